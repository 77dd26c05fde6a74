"""Every row of a run in columns over one pool of values: ten thousand rows in well under a megabyte of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.report.entry import DIVERGING, SEVERITY
from conformance.report.model import View
from conformance.report.text import number_text


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: ASCII only, no character that HTML gives a meaning to."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


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

    ``rows`` holds [case, subject, status, ratio, summary, kinds, node]; ``cases`` holds [file, line, suite, case, why,
    fact …] with one fact for each of ``keys``. All but line, ratio, status and case are places in ``values``.
    """
    pool, cases = _Pool(), _Pool()
    keys = list(dict.fromkeys(str(key) for entry in view.entries for key in entry.row.facts))
    rows = []
    for entry in view.entries:
        row = entry.row
        facts = [pool.place(plain(row.facts.get(key))) for key in keys]
        case = [pool.place(row.file), row.line, *map(pool.place, (row.suite, row.case, row.why)), *facts]
        ratio = entry.ratio if entry.ratio is None or math.isfinite(entry.ratio) else "Infinity"
        rows.append(
            [
                cases.place(case),
                pool.place(row.subject),
                SEVERITY.index(row.status),
                float(f"{ratio:.4g}") if isinstance(ratio, float) else ratio,
                pool.place(row.summary),
                pool.place(" ".join(entry.kinds)),
                pool.place(row.node),
            ]
        )
    diverging = len(DIVERGING)
    return {"values": pool.values, "keys": keys, "cases": cases.values, "rows": rows, "statuses": SEVERITY,
            "diverging": diverging}  # fmt: skip
