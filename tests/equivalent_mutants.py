"""Mutants that are no fault: ``equivalent_mutants.txt`` has each reason on a line, and below it the mutants it excuses.

Some answer every input alike. The others do what the contract leaves open: they round less, or refuse an ill-formed
call in another place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path


@cache
def excuses() -> tuple[tuple[str, str], ...]:
    """Every mutant that is listed, with the reason, in the order of the list."""
    found, reason = [], ""
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            found.append((line.strip(), reason))
        else:
            reason = line
    return tuple(found)


@cache
def arguments() -> Mapping[str, str]:
    """The reason for each equivalent mutant."""
    return dict(excuses())
