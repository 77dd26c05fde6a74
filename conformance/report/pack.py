"""What the page's scripts read: every row in columns, and for diverging rows details and tensors, compressed.

The index interns every value, so ten thousand rows cost well under a megabyte. Details and tensors are deflated and written
as base64 into elements that are decoded when a case is opened; both have a budget, spent on new rows and on the worst row
of each group first.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.report.elements import fields_of, finding_ratio, worst_elements
from conformance.report.model import DIVERGING, SEVERITY, Entry, View
from conformance.report.text import brief_text, number, number_text, ratio_text
from conformance.spec import Array
from conformance.store import Row

TENSOR_BUDGET = 3_000_000  # characters of base64 in the page
DETAIL_BUDGET = 1_000_000
ROW_BUDGET = 400_000  # of the tensors of one row
FINDINGS_SHOWN = 30
Reproducer = Callable[[Row], str | None]


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


def deflated(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


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


@dataclass(frozen=True)
class Packed:
    """Compressed details and tensors by row number, and how many rows went without for want of room."""

    details: Mapping[int, str]
    tensors: Mapping[int, str]
    without_details: int
    without_tensors: int


def packed(view: View, reproducer: Reproducer | None) -> Packed:
    """Details of as many diverging rows, and tensors of every new row and the worst row of each group, as fit."""
    first = {entry.number for entry in view.first_of_groups}
    chosen = sorted(view.diverging, key=lambda entry: (entry.row.status != "new", entry.number not in first))
    details: dict[int, str] = {}
    tensors: dict[int, str] = {}
    detail_room, tensor_room, left_out = DETAIL_BUDGET, TENSOR_BUDGET, 0
    for entry in chosen:
        arrays = view.run.tensors(entry.row) if detail_room > 0 else {}
        wanted = bool(arrays) and (entry.number in first or entry.row.status == "new")
        layout, blob = _tensors(entry.row, arrays, min(ROW_BUDGET, tensor_room)) if wanted else ([], "")
        if detail_room > 0:
            note = "" if layout or not entry.row.tensors else "size" if wanted else "group"
            text = deflated(script_json(_detail(entry, arrays, layout, note, reproducer)).encode())
            detail_room -= len(text)
            details[entry.number] = text
        if layout:
            tensors[entry.number] = blob
            tensor_room -= len(blob)
        elif wanted or (entry.row.tensors and entry.row.status == "new"):
            left_out += 1
    return Packed(details, tensors, len(chosen) - len(details), left_out)


def _detail(
    entry: Entry, arrays: Mapping[str, Array], layout: list[dict[str, Any]], note: str, reproducer: Reproducer | None
) -> dict[str, Any]:
    row = entry.row
    return {
        "findings": [_finding(finding, entry.dtype) for finding in row.findings[:FINDINGS_SHOWN]],
        "more": max(len(row.findings) - FINDINGS_SHOWN, 0),
        "measures": [_measure(measure) for measure in row.measures],
        "worst": [
            [element.output, element.index, number_text(element.expected, entry.dtype),
             number_text(element.actual, entry.dtype), brief_text(element.error), brief_text(element.bound),
             ratio_text(element.ratio)]
            for element in worst_elements(row, arrays)
        ],
        "ledger": plain(row.ledger),
        "traceback": row.traceback,
        "seconds": plain(row.seconds),
        "reproducer": reproducer(row) if reproducer else None,
        "blocked": _bits(arrays.get("blocked")),
        "outputs": layout,
        "note": note,
    }  # fmt: skip


def _finding(finding: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    shown = {name: finding.get(name) for name in ("output", "kind", "message", "count", "total")}
    return {**plain(shown), "ratio": ratio_text(finding_ratio(finding)), "dtype": dtype}


def _measure(measure: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: number(measure.get(name)) for name in ("max_abs_error", "max_ulp", "max_ratio", "p99_ratio")}
    return {
        **plain(measure),
        "max_abs_error": brief_text(numbers["max_abs_error"]),
        "max_ulp": brief_text(numbers["max_ulp"]),
        "max_ratio": ratio_text(numbers["max_ratio"]),
        "p99_ratio": ratio_text(numbers["p99_ratio"]),
    }


def _bits(blocked: Array | None) -> dict[str, Any] | None:
    if blocked is None or blocked.ndim != 4 or blocked.size > 1 << 20:
        return None
    bits = np.packbits(np.asarray(blocked, bool).ravel())
    return {"shape": list(blocked.shape), "bits": base64.b64encode(bits.tobytes()).decode("ascii")}


def _tensors(row: Row, arrays: Mapping[str, Array], room: int) -> tuple[list[dict[str, Any]], str]:
    """The outputs that fit into ``room`` base64 characters, those with findings first: their layout and the bytes."""
    layout: list[dict[str, Any]] = []
    data = b""
    text = ""
    for output, planes in sorted(_planes(arrays), key=lambda item: _rank(row, item[0])):
        kind = "<f8" if any(_needs_float64(plane) for plane in planes) else "<f4"
        grown = data + b"".join(np.ascontiguousarray(plane, kind).tobytes() for plane in planes)
        packed_text = deflated(grown) if len(grown) < 8 * room else ""
        if not packed_text or len(packed_text) > room:
            continue
        layout.append({"name": output, "shape": list(planes[0].shape), "kind": kind, "at": len(data)})
        data, text = grown, packed_text
    return layout, text


def _planes(arrays: Mapping[str, Array]) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """(output, (expected, actual, signed error, bound)) of every output that can be drawn."""
    for drawn in fields_of(arrays):
        if drawn.expected.ndim and drawn.expected.size:
            yield drawn.output, (drawn.expected, drawn.actual, drawn.error, drawn.bound)


def _rank(row: Row, output: str) -> tuple[bool, bool, str]:
    outputs = [finding.get("output") for finding in row.findings]
    return (output not in outputs, not output.startswith("attn_"), output)


def _needs_float64(plane: Array) -> bool:
    """Whether float32 would lose a magnitude altogether: subnormal or overflowing values."""
    size = np.abs(plane[np.isfinite(plane) & (plane != 0)])
    return bool(size.size) and (float(size.min()) < 1.2e-38 or float(size.max()) > 3.4e38)
