"""A run in Markdown, for the page of a CI job: the verdict, what fails and where, what is known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from conformance.report.model import Family, View, view_of
from conformance.report.terminal import reproduce_command, worst_entry
from conformance.report.text import one_line, plural, ratio_text
from conformance.store import Run

SHOWN = 20  # families of each table
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#])")


def append_summary(run: Run, path: Path) -> None:
    """Append the summary to a file, as CI systems want it, whose page several jobs write to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("\n".join(summary_page(run)) + "\n\n")


def summary_page(run: Run) -> Iterator[str]:
    """The summary line by line."""
    view = view_of(run)
    versions = " · ".join(_plain(f"{name} {number}") for name, number in run.header.versions.items())
    yield "## Attention conformance"
    yield ""
    yield f"**{_plain(view.verdict)}**" + ("" if run.header.complete else " The run was interrupted.")
    yield ""
    yield from _table(("verdict", "pairs"), ((status, f"{count:,}") for status, count in view.counts.items() if count))
    yield from (f"Not installed: {_plain(str(item['framework']))}.\n" for item in run.header.missing)
    if run.header.since:
        yield f"Changed: {_plain(run.header.since)}.\n"
    yield from _failing(view)
    known = [family for family in view.families if family.status == "known"]
    if known:
        yield f"<details><summary>{plural(view.counts['known'], 'known divergence')}</summary>\n"
        yield from _families(known)
        yield "</details>\n"
    yield f"<sub>{versions}</sub>"


def _failing(view: View) -> Iterator[str]:
    failing = [family for family in view.families if family.status != "known"]
    worst = worst_entry(view)
    if failing and worst is not None:
        yield from _families(failing)
        yield f"Reproduce the worst:\n\n```console\n$ {reproduce_command(worst.row)}\n```\n"


def _families(families: Sequence[Family]) -> Iterator[str]:
    head = ("status", "subject", "kind", "cases", "worst error/bound", "masks", "dtypes")
    yield from _table(head, (_cells(family) for family in families[:SHOWN]))
    if len(families) > SHOWN:
        yield f"and {plural(len(families) - SHOWN, 'other group')}: see the report.\n"


def _cells(family: Family) -> tuple[str, ...]:
    names = (family.status, family.subject, family.kind, f"{family.count:,}", ratio_text(family.worst.ratio))
    return (*names, *(", ".join(name for name, _ in tally[:3]) for tally in (family.masks, family.dtypes)))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(_plain(cell) for cell in row)} |"
    yield ""


def _plain(text: str) -> str:
    """Text on one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
