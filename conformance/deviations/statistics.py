"""Whether the errors of a whole output are as large as rounding makes them: rms(error/σ) over its judged elements.

Far sharper than the bound, which no single element may exceed, and no proof: σ is that of a typical correct
implementation. ``docs/tolerance.md`` says how the limit was calibrated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from conformance.deviations.rules import LIMIT
from conformance.expectation import Expectation
from conformance.spec import Array
from conformance.verdict import Finding, Measure, Worst

JUDGED = ("float64", "float32")  # storage formats; in 16 bits the result is shown, and no verdict
_LEAST = 1e-145  # a smaller σ has a square next to float64's underflow


def has_statistics(expectation: Expectation, name: str) -> Array:
    """Where the statistics of an output hold (bool): not without a bound, or a deviation, or any rounding."""
    deviations = expectation.deviations[name]
    return np.isfinite(expectation.bounds[name]) & np.isfinite(deviations) & (deviations > _LEAST)


def rms(ratios: Array) -> float | None:
    """Root mean square of error/σ over the elements that have statistics; None without any."""
    return float(np.sqrt(np.square(ratios).sum() / ratios.size)) if ratios.size else None


def statistical_findings(expectation: Expectation, measure: Measure, actual: Array) -> Iterator[Finding]:
    """A finding where the errors of an output, each within its bound, are together larger than rounding makes them."""
    if expectation.case.compute not in JUDGED or measure.rms is None or measure.rms <= LIMIT:
        return
    name = measure.output
    ratios = _standardised(expectation, name, actual)
    index = np.unravel_index(int(np.nanargmax(ratios)), ratios.shape)
    expected, bound = expectation.values[name][index], expectation.bounds[name][index]
    error = float(np.abs(actual[index].astype(expected.dtype) - expected))
    worst = Worst(tuple(int(i) for i in index), float(expected), float(actual[index]), error, float(bound))
    text = f"{name} errs {measure.rms:.3g} times as much as rounding does (rms of error/σ, limit {LIMIT:g})"
    yield Finding(name, "statistics", text, int((ratios > LIMIT).sum()), int((~np.isnan(ratios)).sum()), worst)


def _standardised(expectation: Expectation, name: str, actual: Array) -> Array:
    """error/σ of every element of an output; NaN where there are no statistics."""
    values, judged = expectation.values[name], has_statistics(expectation, name)
    with np.errstate(all="ignore"):
        error = np.abs(actual.astype(values.dtype) - values).astype(np.float64)
        ratios = np.where(np.isnan(error), np.inf, error) / np.where(judged, expectation.deviations[name], 1)
        return np.where(judged, ratios, np.nan)
