"""How commands end: the exit statuses, and what is said of a name that nothing has."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.errors import UsageError

OK, DIVERGES, USAGE = 0, 1, 2


def unknown(what: str, given: str, known: Sequence[str], where: str) -> UsageError:
    """``reports/x holds no pair 'a'``, with the names that are nearest to it on lines of their own."""
    from difflib import get_close_matches

    near = [f"  did you mean {name!r}?" for name in get_close_matches(given, known, 3)]
    return UsageError("\n".join([f"{where} holds no {what} {given!r}", *near]))
