"""The known divergences as a page for readers on the web: what the ledger says of each, and where a run showed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.ledger import Entry
from conformance.report.elements import row_ratio
from conformance.report.text import ratio_text
from conformance.store import Row, Run

SEEN = "- Seen in "  # how the one line begins that comes from a run
_HEAD = """\
# Known divergences

What the versions below do otherwise than [the contract](../docs/contract.md) of multi-head attention. Each is an entry
of the ledger, `cases/known_divergences.yaml`: a run fails when one no longer shows, or when another one appears.

Tested: {versions}. This page is made from the ledger and a run, by `python -m conformance divergences`.
"""


@dataclass(frozen=True)
class Seen:
    """Where a run showed an entry."""

    pairs: int = 0
    subjects: tuple[str, ...] = ()
    worst: float | None = None  # error over bound; None where nothing was compared
    example: str = ""  # id of the first pair

    def and_in(self, row: Row) -> Seen:
        ratio = row_ratio(row)
        worst = self.worst if ratio is None else max(ratio, self.worst or 0.0)
        subjects = self.subjects if row.subject in self.subjects else (*self.subjects, row.subject)
        return replace(
            self, pairs=self.pairs + 1, subjects=subjects, worst=worst, example=self.example or _pair_id(row)
        )


def divergences_page(entries: Sequence[Entry], run: Run) -> str:
    """The page as Markdown: a section for each framework, a heading for each entry, in the order of the ledger."""
    seen: dict[str, Seen] = {}
    for row in run.rows:
        for shown in row.entries if row.status == "known" else ():
            seen[shown] = seen.get(shown, Seen()).and_in(row)
    versions = ", ".join(f"{name} {number}" for name, number in run.header.versions.items())
    lines = [_HEAD.format(versions=versions)]
    for framework, own in _by_framework(entries).items():
        lines += [f"## {framework}", ""]
        for entry in own:
            lines += [*_section(entry, seen.get(entry.id)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _by_framework(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.subjects[0].partition("/")[0], []).append(entry)
    return found


def _section(entry: Entry, seen: Seen | None) -> Iterator[str]:
    yield f"### {entry.id}"
    yield ""
    yield " ".join(entry.reason.split())
    yield ""
    yield f"- Subjects: {_code(entry.subjects)}"
    if entry.when or entry.cases:
        yield f"- Where: {'; '.join([*_conditions(entry.when), *(f'case `{case}`' for case in entry.cases)])}"
    if entry.unless:
        yield f"- Not where: {'; '.join(_conditions(entry.unless))}"
    if entry.accuracy:
        yield f"- Accuracy reached: {', '.join(f'{stage} in {wide}' for stage, wide in entry.accuracy.items())}"
    else:
        yield f"- Shows: {'; '.join(f'{part} {_code(kinds)}' for part, kinds in entry.shows.items())}"
    yield f"- Versions: {', '.join(f'{name} {wanted}' for name, wanted in entry.versions.items())}; since {entry.since}"
    if entry.link:
        yield f"- Upstream: <{entry.link}>"
    if seen is not None:
        worst = "" if seen.worst is None else f", worst error/bound {ratio_text(seen.worst)}"
        yield f"{SEEN}{seen.pairs:,} pairs of {_code(seen.subjects)}{worst}"
        yield f"- Again: `python -m conformance repro '{seen.example}'`"


def _conditions(when: Mapping[str, Any]) -> Iterator[str]:
    for name, wanted in when.items():
        options = wanted if isinstance(wanted, list) else [wanted]
        yield f"{name} {' or '.join(f'`{option}`' for option in options)}"


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _pair_id(row: Row) -> str:
    return f"{row.case}[{row.subject}]"
