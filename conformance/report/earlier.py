"""The run that a run is compared with, read without making its rows: a whole run is a hundred megabytes of text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.report.changes import Comparison, Outcome, covers, outcomes_of
from conformance.report.elements import worst_ratio
from conformance.store import RESULTS, Run, finished_runs, read_header

_NODE = re.compile(rb'\{"node": ("(?:[^"\\]|\\.)*")')  # how the line of a row begins


def comparison(run: Run, against: Path | None) -> Comparison | None:
    """The run compared with that of a folder; None without one. Raises as :func:`conformance.store.read_run`."""
    if against is None:
        return None
    read_header(against)  # whatever is no run is refused; single lines that cannot be read are passed over
    return Comparison.of(against.resolve().name, outcomes_in(against), outcomes_of(run))


def earlier_run(run: Run) -> Path | None:
    """The newest earlier run beside this one that came to its end and holds at least half of its pairs, or None."""
    own = dict.fromkeys(row.node for row in run.rows)
    for folder in reversed(finished_runs(run.folder.parent)):
        if folder.name < run.folder.name and _is_complete(folder) and covers(dict.fromkeys(_nodes(folder)), own):
            return folder
    return None


def outcomes_in(folder: Path) -> dict[str, Outcome]:
    """What became of every pair of a run's folder; lines that cannot be read are passed over."""
    found: dict[str, Outcome] = {}
    for line in _lines(folder):
        try:
            row = json.loads(line)
            ratio = worst_ratio(row["findings"], row["measures"])
            found[row["node"]] = Outcome(f"{row['case']}[{row['subject']}]", row["status"], ratio)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def _is_complete(folder: Path) -> bool:
    try:
        return read_header(folder).complete
    except (OSError, ValueError):  # of another schema, or no run at all
        return False


def _nodes(folder: Path) -> Iterator[str]:
    for line in _lines(folder):
        found = _NODE.match(line)
        if found:
            yield json.loads(found[1])


def _lines(folder: Path) -> Iterator[bytes]:
    """The lines of rows."""
    with (folder / RESULTS).open("rb") as stream:
        next(stream, None)  # the header
        yield from stream
