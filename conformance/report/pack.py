"""What a case page is made of: details, tensors and the reproducer of diverging rows, within the room that a page has.

Details and tensors are deflated and written as base64 into elements that are decoded when a case is opened. Each has a
budget, spent on the worst row of each family first, then on new rows, then on the worst row of each group.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.report.boundtext import bound_shown
from conformance.report.elements import (
    Element,
    Field,
    fields_of,
    finding_ratio,
    worst_elements,
)
from conformance.report.entry import Entry
from conformance.report.index import deflated, deflated_json, plain
from conformance.report.model import View
from conformance.report.text import brief_text, number, number_text, ratio_text, rms_text
from conformance.spec import Array
from conformance.store import Row

TENSOR_BUDGET = 2_400_000  # characters of base64 in the page
DETAIL_BUDGET = 930_000
SCRIPT_BUDGET = 1_000_000  # characters of reproducers, before compression
ROW_BUDGET = 400_000  # of the tensors of one row
SCRIPT_LIMIT = 90_000  # of one reproducer
FINDINGS_SHOWN = 30
Reproducer = Callable[[Row], str | None]


@dataclass(frozen=True)
class Packed:
    """Compressed details and tensors by row number, and how many rows went without for want of room."""

    details: Mapping[int, str]
    tensors: Mapping[int, str]
    without_details: int
    without_tensors: int


class _Packer:
    """Spends the budgets, a row at a time."""

    def __init__(self, view: View, reproducer: Reproducer | None) -> None:
        self._view, self._reproducer = view, reproducer
        self._first = {entry.number for entry in view.first_of_groups}
        self._foremost = {family.worst.number for family in view.families}
        self._detail_room, self._tensor_room, self._script_room = DETAIL_BUDGET, TENSOR_BUDGET, SCRIPT_BUDGET
        self.details: dict[int, str] = {}
        self.tensors: dict[int, str] = {}
        self.left_out = 0  # rows that should have had heat maps

    def order(self, entry: Entry) -> tuple[bool, bool, bool]:
        """One row of every family, then new rows, the worst of each group before others."""
        return (entry.number not in self._foremost, entry.row.status != "new", entry.number not in self._first)

    def add(self, entry: Entry) -> None:
        row, wanted = entry.row, entry.number in self._first or entry.row.status == "new"
        if self._detail_room <= 0:
            self.left_out += wanted and row.tensors is not None
            return
        arrays = self._view.run.tensors(row)
        layout, blob = _tensors(row, arrays, min(ROW_BUDGET, self._tensor_room)) if wanted else ([], "")
        if layout:
            self.tensors[entry.number] = blob
            self._tensor_room -= len(blob)
        missed = not layout and bool(_drawn(row, arrays))
        self.left_out += wanted and missed
        script, script_note = self._script(row, wanted)
        detail = _detail(entry, arrays) | {"outputs": layout, "reproducer": script, "script": script_note}
        detail["note"] = "" if not missed else "size" if wanted else "group"
        self.details[entry.number] = deflated_json(detail)
        self._detail_room -= max(len(self.details[entry.number]) - len(script or ""), 0)

    def _script(self, row: Row, wanted: bool) -> tuple[str | None, str]:
        """The reproducer, and ``size`` where there may be one that the page has no room for."""
        if self._reproducer is None:
            return None, ""
        if not wanted or self._script_room <= 0:
            return None, "size"
        script = self._reproducer(row)
        if script is not None and len(script) > SCRIPT_LIMIT:
            return None, "size"
        self._script_room -= len(script or "")
        return script, ""


def packed(view: View, reproducer: Reproducer | None) -> Packed:
    """Details of as many diverging rows, and tensors and reproducers of as many new rows and worst rows of a group, as
    fit. The reproducer is asked for those rows only, as it may have to compute the problem anew."""
    packer = _Packer(view, reproducer)
    for entry in sorted(view.diverging, key=packer.order):
        packer.add(entry)
    return Packed(packer.details, packer.tensors, len(view.diverging) - len(packer.details), packer.left_out)


def _detail(entry: Entry, arrays: Mapping[str, Array]) -> dict[str, Any]:
    row = entry.row
    return {
        "findings": [_finding(finding, entry.dtype) for finding in row.findings[:FINDINGS_SHOWN]],
        "more": max(len(row.findings) - FINDINGS_SHOWN, 0),
        "measures": [_measure(measure) for measure in row.measures],
        "worst": [_element(element, entry.dtype) for element in worst_elements(row, arrays)],
        "bound": bound_shown(row),
        "ledger": plain(row.ledger),
        "traceback": row.traceback,
        "seconds": plain(row.seconds),
        "blocked": _bits(arrays.get("blocked")),
    }


def _element(element: Element, dtype: str) -> list[Any]:
    """Output, index, expected, actual, error, bound, ratio, the numbers as text."""
    values = [number_text(element.expected, dtype), number_text(element.actual, dtype)]
    sizes = [brief_text(element.error), brief_text(element.bound), ratio_text(element.ratio)]
    return [element.output, element.index, *values, *sizes]


def _finding(finding: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    shown = {name: finding.get(name) for name in ("output", "kind", "message", "count", "total")}
    return {**plain(shown), "ratio": ratio_text(finding_ratio(finding)), "dtype": dtype}


def _measure(measure: Mapping[str, Any]) -> dict[str, Any]:
    names = ("max_abs_error", "max_ulp", "max_ratio", "p99_ratio", "rms")
    numbers = {name: number(measure.get(name)) for name in names}
    return {
        **plain(measure),
        "max_abs_error": brief_text(numbers["max_abs_error"]),
        "max_ulp": brief_text(numbers["max_ulp"]),
        "max_ratio": ratio_text(numbers["max_ratio"]),
        "p99_ratio": ratio_text(numbers["p99_ratio"]),
        "rms": rms_text(numbers["rms"]),
    }


def _bits(blocked: Array | None) -> dict[str, Any] | None:
    if blocked is None or blocked.ndim != 4 or blocked.size > 1 << 20:
        return None
    bits = np.packbits(np.asarray(blocked, bool).ravel())
    return {"shape": list(blocked.shape), "bits": base64.b64encode(bits.tobytes()).decode("ascii")}


def _tensors(row: Row, arrays: Mapping[str, Array], room: int) -> tuple[list[dict[str, Any]], str]:
    """The outputs that fit into ``room`` base64 characters, those with findings first: their layout and the bytes.

    An output that does not fit is cut to the face (sample and head) that holds its worst element, when that fits.
    """
    layout: list[dict[str, Any]] = []
    data, text = b"", ""
    for output, planes in _drawn(row, arrays):
        full = planes[0].shape
        for origin, face in (((0,) * len(full), planes), _worst_face(planes)):
            kind = "<f8" if any(_needs_float64(plane) for plane in face) else "<f4"
            grown = data + b"".join(np.ascontiguousarray(plane, kind).tobytes() for plane in face)
            candidate = deflated(grown) if len(grown) < 8 * room else ""
            if candidate and len(candidate) <= room:
                place = {"shape": face[0].shape, "origin": origin, "full": full, "kind": kind, "at": len(data)}
                layout.append({"name": output} | place)
                data, text = grown, candidate
                break
    return layout, text


def _worst_face(planes: tuple[Array, ...]) -> tuple[tuple[int, ...], tuple[Array, ...]]:
    """The last two axes at the leading index of the largest error/bound: where it starts, and the planes cut to it."""
    worst = np.unravel_index(int(np.argmax(Field("", planes[0], planes[1], planes[3]).ratio)), planes[0].shape)
    leading = tuple(int(place) for place in worst[:-2])
    cut = tuple(slice(place, place + 1) for place in leading)
    return (*leading, *(0 for _ in worst[-2:])), tuple(plane[cut] for plane in planes)


def _drawn(row: Row, arrays: Mapping[str, Array]) -> list[tuple[str, tuple[Array, ...]]]:
    """Outputs worth drawing: those with findings first, then the output and the weights."""
    outputs = {str(finding.get("output")) for finding in row.findings}
    some = [item for item in _planes(arrays) if item[0] in outputs or item[0].startswith("attn_")]
    return sorted(some, key=lambda item: (item[0] not in outputs, not item[0].startswith("attn_"), item[0]))


def _planes(arrays: Mapping[str, Array]) -> Iterator[tuple[str, tuple[Array, ...]]]:
    """(output, (expected, actual, signed error, bound)) of every output that can be drawn."""
    for drawn in fields_of(arrays):
        if drawn.expected.ndim and drawn.expected.size:
            yield drawn.output, (drawn.expected, drawn.actual, drawn.error, drawn.bound)


def _needs_float64(plane: Array) -> bool:
    """Whether float32 would lose a magnitude altogether: subnormal or overflowing values."""
    size = np.abs(plane[np.isfinite(plane) & (plane != 0)])
    return bool(size.size) and (float(size.min()) < 1.2e-38 or float(size.max()) > 3.4e38)
