"""The report in the terminal: a summary of at most 25 lines."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.report.entry import Entry
from conformance.report.model import Family, View, view_of
from conformance.report.text import clipped, one_line, plural, ratio_text
from conformance.store import Row, Run, Status

LINES = 25
MISSING_SHOWN = 4
HEADER_LINES = 3
ORDER: tuple[Status, ...] = ("agrees", "new", "errored", "stale", "known", "unsupported", "missing")


def summary_lines(run: Run, report: Path | None, width: int = 100) -> list[str]:
    """The run in at most 25 lines, each cut to ``width`` save those meant for copying (install commands, the report's
    path, the command that reproduces the worst row)."""
    view = view_of(run)
    head = [clipped(line, width) for line in _header(view, width)]
    head += [one_line(line) for line in _missing(view)]
    head.append(clipped(_counts(view), width))
    head += [clipped(f"changed    {run.header.since}", width)] if run.header.since else []
    tail = [clipped(_known(view), width)] if view.counts["known"] else []
    tail += [f"report     {report}"] if report else []
    tail += [f"reproduce  {reproduce_command(worst.row)}" for worst in [worst_entry(view)] if worst]
    families = [family for family in view.families if family.status != "known"]
    room = LINES - len(head) - len(tail)
    shown = families if len(families) <= room else families[: room - 1]
    lines = [clipped(line, width) for line in _families(shown)]
    if len(shown) < len(families):
        lines.append(clipped(_others(families[len(shown) :]), width))
    return head + lines + tail


def reproduce_command(row: Row) -> str:
    """The command that writes a reproducer of a row, quoted for a shell."""
    return f"python -m conformance repro {shlex.quote(one_line(f'{row.case}[{row.subject}]'))}"


def worst_entry(view: View) -> Entry | None:
    """The row most worth reproducing: of the most severe status the one with the largest ratio; None if all agree."""
    return view.families[0].worst if view.families else None


def _header(view: View, width: int) -> Iterator[str]:
    header = view.run.header
    versions = " · ".join(one_line(f"{name}\u00a0{version}") for name, version in header.versions.items())
    lines = textwrap.wrap(
        f"attention conformance · {versions}", width, subsequent_indent=" " * 11, break_on_hyphens=False
    )
    yield from (line.replace("\u00a0", " ").removesuffix(" ·") for line in lines[:HEADER_LINES])
    if not header.complete:
        yield f"PARTIAL    the run was interrupted; {plural(len(view.entries), 'row')} recorded"


def _missing(view: View) -> Iterator[str]:
    missing = view.run.header.missing
    for item in missing[:MISSING_SHOWN]:
        yield f"missing    {item.get('framework', '?')}: {item.get('install', 'not installed')}"
    if len(missing) > MISSING_SHOWN:
        yield f"missing    and {', '.join(str(item.get('framework', '?')) for item in missing[MISSING_SHOWN:])}"


def _counts(view: View) -> str:
    counts = view.counts
    words = [f"{counts[status]:,} {'agree' if status == 'agrees' else status}" for status in ORDER if counts[status]]
    seconds = f"   ({view.run.header.wall_seconds:.0f} s)" if view.run.header.wall_seconds else ""
    return f"verdict    {', '.join(words) or 'nothing was compared'}{seconds}"


def _families(families: Sequence[Family]) -> Iterator[str]:
    names = [(one_line(family.subject), one_line(family.kind)) for family in families]
    subject_width = min(max((len(subject) for subject, _ in names), default=0), 28)
    kind_width = min(max((len(kind) for _, kind in names), default=0), 22)
    for family, (subject, kind) in zip(families, names, strict=True):
        masks, dtypes = (_some(tally) for tally in (family.masks, family.dtypes))
        yield (
            f"{family.status.upper():<10} {clipped(subject, 28):<{subject_width}}  {clipped(kind, 22):<{kind_width}}  "
            f"{plural(family.count, 'case'):>9}  worst {ratio_text(family.worst.ratio):<6}  {masks}; {dtypes}"
        )


def _others(families: Sequence[Family]) -> str:
    """What there was no room for, by status."""
    left = Counter(family.status for family in families)
    cases = plural(sum(family.count for family in families), "case")
    groups = ", ".join(f"{count} {status}" for status, count in left.items())
    return f"           and {plural(len(families), 'other group')} ({groups}) of {cases}: see the report"


def _some(tally: tuple[tuple[str, int], ...]) -> str:
    names = [one_line(name) for name, _ in tally]
    return ", ".join(names[:2]) + (f" +{len(names) - 2}" if len(names) > 2 else "")


def _known(view: View) -> str:
    groups = [family for family in view.families if family.status == "known"]
    subjects = len({family.subject for family in groups})
    return (
        f"known      {plural(view.counts['known'], 'case')} in {plural(len(groups), 'group')} of "
        f"{plural(subjects, 'subject')}, as the ledger says"
    )
