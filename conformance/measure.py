"""How close outputs came to their reference, whatever the verdict.

The outputs of one call are laid end to end and measured in one pass: with small arrays, what costs is the number of
NumPy's calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from conformance.deviations.statistics import has_statistics, rms
from conformance.expectation import Expectation
from conformance.policy import FORMATS
from conformance.spec import Array
from conformance.verdict import Measure

ASSERT_CLOSE = {  # defaults of torch.testing.assert_close, for comparison: (rtol, atol)
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}


@dataclass(frozen=True)
class Part:
    """Where one output lies in a sheet."""

    output: str
    shape: tuple[int, ...]
    elements: slice
    judged: int  # how many elements have a bound
    standardised: slice  # its elements among all that have statistics


@dataclass(frozen=True)
class Sheet:
    """What the outputs of a call are measured against, end to end in one axis."""

    parts: tuple[Part, ...]
    values: Array  # float64 or longdouble
    rounded: Array  # the same, rounded to the dtypes of the outputs
    bounds: Array
    judged: Array  # bool, where the bound is finite
    ulps: Array  # unit in the last place of each value
    close: Array  # error that torch.testing.assert_close accepts
    statistics: Array  # bool, where there is a deviation
    deviations: Array  # of these elements alone

    def measures(self, actual: Array) -> Iterator[tuple[Measure, bool]]:
        """The measure of each output, and whether an element lies outside its bound; ``actual`` is laid out like the
        sheet, in the dtype of its values."""
        with np.errstate(all="ignore"):
            distance = np.abs(actual - self.values)
            outside = ~(distance <= self.bounds) & self.judged
            equal = actual == self.rounded
            error = distance.astype(np.float64)
            error[np.isnan(error)] = np.inf
            close, ratios = error <= self.close, error[self.statistics] / self.deviations
            error[~self.judged] = 0
            ratio = np.where(error == 0, 0, error / self.bounds)
            ulps = error / self.ulps
        for part in self.parts:
            own, among = part.elements, ratio[part.elements]
            largest = int(among.argmax()) if among.size else 0
            index = np.unravel_index(largest, part.shape) if among.size else ()
            measure = Measure(
                output=part.output,
                elements=among.size,
                not_judged=among.size - part.judged,
                bit_equal=int(np.count_nonzero(equal[own])),
                max_abs_error=float(error[own].max(initial=0)),
                max_ulp=float(ulps[own].max(initial=0)),
                max_ratio=float(among[largest]) if among.size else 0.0,
                max_ratio_index=tuple(map(int, index)),
                p99_ratio=_percentile(among, part.judged),
                assert_close=bool(close[own].all()),
                rms=rms(ratios[part.standardised]),
            )
            yield measure, bool(outside[own].any())


def measured(expectation: Expectation, outputs: Mapping[str, Array]) -> tuple[tuple[Measure, bool], ...]:
    """The measure of each output, all of the right shapes, and whether an element lies outside its bound."""
    if not outputs:
        return ()
    sheet = _sheet(expectation, tuple((name, array.dtype) for name, array in outputs.items()))
    return tuple(sheet.measures(_end_to_end(outputs.values(), sheet.values.dtype)))


def measures_of(expectation: Expectation, outputs: Mapping[str, Array]) -> tuple[Measure, ...]:
    """The measures alone."""
    return tuple(measure for measure, _ in measured(expectation, outputs))


@lru_cache(maxsize=4)
def _sheet(expectation: Expectation, outputs: tuple[tuple[str, np.dtype[Any]], ...]) -> Sheet:
    """The sheet for outputs of these names and dtypes: subjects of one policy share it."""
    names = [name for name, _ in outputs]
    values = [expectation.values[name] for name in names]
    bounds = _end_to_end((expectation.bounds[name] for name in names), np.float64)
    statistics = [has_statistics(expectation, name) for name in names]
    rounded = (array.astype(np.float64).astype(dtype) for array, (_, dtype) in zip(values, outputs, strict=True))
    flat, among = _end_to_end(values, values[0].dtype), _end_to_end(statistics, np.bool_)
    magnitude, (relative, absolute) = np.abs(flat).astype(np.float64), ASSERT_CLOSE[expectation.case.compute]
    places = zip(
        *(names, (array.shape for array in values), _places(array.size for array in values)),
        (int(np.isfinite(expectation.bounds[name]).sum()) for name in names),
        _places(int(where.sum()) for where in statistics),
        strict=True,
    )
    return Sheet(
        parts=tuple(Part(*place) for place in places),
        values=flat,
        rounded=_end_to_end(rounded, flat.dtype),
        bounds=bounds,
        judged=np.isfinite(bounds),
        ulps=_ulp(magnitude, expectation.case.compute),
        close=absolute + relative * magnitude,
        statistics=among,
        deviations=_end_to_end((expectation.deviations[name] for name in names), np.float64)[among],
    )


def _end_to_end(arrays: Iterable[Array], dtype: Any) -> Array:
    return np.concatenate(tuple(arrays), axis=None, dtype=dtype, casting="unsafe")


def _places(sizes: Iterable[int]) -> Iterator[slice]:
    """Where stretches of these sizes lie, one after the other."""
    stop = 0
    for size in sizes:
        start, stop = stop, stop + size
        yield slice(start, stop)


def _percentile(ratio: Array, judged: int) -> float:
    """The 99th percentile, rounded up, of the largest ``judged`` ratios: those of what is not judged are 0."""
    if not judged:
        return 0.0
    from_top = judged - ceil((judged - 1) * 0.99)
    return float(np.partition(ratio, -from_top)[-from_top])


def _ulp(magnitude: Array, dtype: str) -> Array:
    storage = FORMATS[dtype]
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, storage.smallest_exponent)
    unit: Array = np.ldexp(1.0, np.maximum(exponent, storage.smallest_exponent) - storage.significand + 1)
    return unit
