"""Every row of a run in columns over one pool of values: ten thousand rows in a quarter of a megabyte, deflated."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.report.changes import KINDS
from conformance.report.entry import DIVERGING, SEVERITY
from conformance.report.model import View
from conformance.report.text import number_text
from conformance.store import Row


def deflated(data: bytes) -> str:
    """What may stand inside a script element, whatever the data: deflated, in base64."""
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def deflated_json(value: Any) -> str:
    """JSON without blanks, deflated. Raises ValueError for NaN and infinities: see :func:`plain`."""
    return deflated(json.dumps(value, allow_nan=False, separators=(",", ":"), default=str).encode())


def plain(value: Any) -> Any:
    """The value with numbers that JSON lacks written as text, tuples as lists, keys as text."""
    match value:
        case float() if not math.isfinite(value):
            return number_text(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


@dataclass
class _Pool:
    """Each distinct value once, by place."""

    values: list[Any] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def place(self, value: Any) -> int:
        key = value if isinstance(value, str) else "\0" + json.dumps(value, sort_keys=True, default=str)
        if key not in self.places:
            self.places[key] = len(self.values)
            self.values.append(value)
        return self.places[key]


def index_of(view: View) -> dict[str, Any]:
    """Every row in columns over one pool of values.

    ``rows`` holds [case, subject, status, ratio, summary, kinds, node, cluster, change]; ``cases`` holds [file, line,
    suite, case, why, pattern, fact …] with one fact for each of ``keys``. Clusters are numbered within their case, in
    order of severity; a pattern is its number from 1, and a change its place in ``changes`` from 1, 0 standing for
    none. Of the others all but line, ratio, status and case are places in ``values``.
    """
    pool, cases, known = _Pool(), _Pool(), dict[str, int]()
    cluster, pattern, change = _clusters(view), _patterns(view), _changes(view)
    keys = list(dict.fromkeys(str(key) for entry in view.entries for key in entry.row.facts))
    rows = []
    for entry in view.entries:
        row = entry.row
        shared = (row.file, row.line, row.suite, row.case, row.why, row.facts)
        case = json.dumps(shared, default=str)  # every subject's row says it again
        if case not in known:
            known[case] = cases.place(_case(row, pattern.get((row.file, row.case), 0), keys, pool))
        ratio = entry.ratio if entry.ratio is None or math.isfinite(entry.ratio) else "Infinity"
        rows.append(
            [
                known[case],
                pool.place(row.subject),
                SEVERITY.index(row.status),
                float(f"{ratio:.4g}") if isinstance(ratio, float) else ratio,
                pool.place(row.summary),
                pool.place(" ".join(entry.kinds)),
                pool.place(row.node),
                cluster[entry.number],
                change.get(row.node, 0),
            ]
        )
    return {
        "values": pool.values,
        "keys": keys,
        "cases": cases.values,
        "rows": rows,
        "statuses": SEVERITY,
        "diverging": len(DIVERGING),
        "changes": list(KINDS),
        "since": view.comparison.name if view.comparison else None,
    }


def _clusters(view: View) -> dict[int, int]:
    """Number of the cluster of each row."""
    return {
        entry.number: number
        for clusters in view.clustered
        for number, cluster in enumerate(clusters)
        for entry in cluster
    }


def _patterns(view: View) -> dict[tuple[str, str], int]:
    """Number of the pattern that each case shows."""
    return {
        (entry.row.file, entry.row.case): number
        for number, pattern in enumerate(view.patterns, 1)
        for entry in pattern.cases
    }


def _changes(view: View) -> dict[str, int]:
    """Kind of the change of each row, by node id."""
    changes = view.comparison.changes if view.comparison else ()
    places = {kind: place for place, kind in enumerate(KINDS, 1)}
    return {change.node: places[change.kind] for change in changes}


def _case(row: Row, pattern: int, keys: Sequence[str], pool: _Pool) -> list[int]:
    facts = [pool.place(plain(row.facts.get(key))) for key in keys]
    return [pool.place(row.file), row.line, *map(pool.place, (row.suite, row.case, row.why)), pattern, *facts]
