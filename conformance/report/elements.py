"""Single elements of a diverging row: the ratio field of each output and its worst elements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from conformance.report.text import number
from conformance.spec import Array
from conformance.store import Row

WORST = 10


@dataclass(frozen=True)
class Element:
    """One element of one output; ``error`` is signed, ``ratio`` is the absolute error over the bound."""

    output: str
    index: tuple[int, ...]
    expected: float | None
    actual: float | None
    error: float | None
    bound: float | None
    ratio: float

    @property
    def place(self) -> str:
        """``attn_output[0, 3, 5]``."""
        return f"{self.output}[{', '.join(map(str, self.index))}]"


@dataclass(frozen=True)
class Field:
    """One output, all arrays float64 of one shape."""

    output: str
    expected: Array
    actual: Array
    bound: Array

    @property
    def error(self) -> Array:
        """Actual minus expected; exactly 0 where both are the same infinity."""
        with np.errstate(all="ignore"):
            return np.where(self.actual == self.expected, 0.0, self.actual - self.expected)

    @property
    def ratio(self) -> Array:
        """|error|/bound by the rule of :attr:`conformance.verdict.Worst.ratio`: ``inf`` when an error meets a bound
        of 0 or is not finite."""
        error = np.abs(self.error)
        with np.errstate(all="ignore"):
            judged = np.where(np.isfinite(error) & (self.bound > 0), error / self.bound, math.inf)
        return np.where(error == 0, 0.0, judged)

    def element(self, flat: int, ratio: Array) -> Element:
        index = np.unravel_index(flat, self.expected.shape)
        place = tuple(int(axis) for axis in index)
        arrays = (self.expected, self.actual, self.error, self.bound, ratio)
        return Element(self.output, place, *(float(array[index]) for array in arrays))


def fields_of(tensors: Mapping[str, Array]) -> tuple[Field, ...]:
    """The outputs that can be compared element by element; an output whose shapes differ is left out."""
    return tuple(_fields(tensors))


def _fields(tensors: Mapping[str, Array]) -> Iterator[Field]:
    for name in tensors:
        output, _, part = name.rpartition("/")
        arrays = [tensors.get(f"{output}/{role}") for role in ("expected", "actual", "bound")]
        if part != "expected" or any(array is None for array in arrays):
            continue
        expected, actual, bound = (np.asarray(array, np.float64) for array in arrays)
        if expected.shape == actual.shape and bound.size in (1, expected.size):
            yield Field(output, expected, actual, np.broadcast_to(bound, expected.shape))


def worst_elements(row: Row, tensors: Mapping[str, Array], count: int = WORST) -> tuple[Element, ...]:
    """At most ``count`` elements with the largest ratio, largest first, and only those outside their bound when there
    are any. Outputs that have findings come before the others; ties are broken by the absolute error. Without tensors,
    the worst element of each finding."""
    found = [element for field in fields_of(tensors) for element in _largest(field, count)]
    if not found:
        found = list(_of_findings(row))
    with_findings = {str(finding["output"]) for finding in row.findings}

    def rank(element: Element) -> tuple[bool, float, float]:
        error = abs(element.error) if element.error is not None else 0.0
        return (element.output not in with_findings, -element.ratio, -(math.inf if math.isnan(error) else error))

    outside = [element for element in found if element.ratio > 1]
    return tuple(sorted(outside or found, key=rank)[:count])


def _largest(field: Field, count: int) -> Iterator[Element]:
    ratio, error = field.ratio, np.nan_to_num(np.abs(field.error), nan=math.inf, posinf=math.inf)
    order = np.lexsort((np.arange(ratio.size), -error.ravel(), -ratio.ravel()))
    for flat in order[:count]:
        if ratio.flat[flat] > 0:
            yield field.element(int(flat), ratio)


def _of_findings(row: Row) -> Iterator[Element]:
    for finding in row.findings:
        ratio = finding_ratio(finding)
        if ratio is not None:
            worst = finding["worst"]
            expected, actual, error, bound = (
                number(worst.get(name)) for name in ("expected", "actual", "error", "bound")
            )
            index = tuple(int(axis) for axis in worst["index"])
            yield Element(str(finding["output"]), index, expected, actual, error, bound, ratio)


def finding_ratio(finding: Mapping[str, object]) -> float | None:
    """Error over bound of a recorded finding's worst element, or None when it has none."""
    worst = finding.get("worst")
    if not isinstance(worst, Mapping):
        return None
    error, bound = number(worst.get("error")), number(worst.get("bound"))
    if error == 0:
        return 0.0
    finite = error is not None and math.isfinite(error)
    return abs(error) / bound if error is not None and finite and bound is not None and bound > 0 else math.inf


def row_ratio(row: Row) -> float | None:
    """The error/bound ratio of a row by :func:`worst_ratio`."""
    return worst_ratio(row.findings, row.measures)


def worst_ratio(findings: Iterable[Mapping[str, object]], measures: Iterable[Mapping[str, object]]) -> float | None:
    """The largest error/bound ratio of recorded findings, and without any, of measures.

    None when nothing was measured, and where the first finding, which names the row, has no element: a wrong shape is
    not as bad as the numbers of another output.
    """
    found = [finding_ratio(finding) for finding in findings]
    if found and found[0] is None:
        return None
    ratios = found or [number(measure.get("max_ratio")) for measure in measures]
    known = [math.inf if math.isnan(ratio) else ratio for ratio in ratios if ratio is not None]
    return max(known, default=None)
