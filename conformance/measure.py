"""How close one output came to its reference, whatever the verdict."""

from __future__ import annotations

import numpy as np

from conformance.deviations.statistics import rms, standardised
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


def measure_of(expectation: Expectation, name: str, array: Array) -> Measure:
    """Statistics of one output of the right shape."""
    expected, bound = expectation.values[name], expectation.bounds[name]
    actual = array.astype(expected.dtype)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(actual - expected).astype(np.float64)
        error = np.where(np.isnan(error), np.inf, error)
        ratio = np.where(error == 0, 0, error / bound)
        ulps = error / _ulp(np.abs(expected).astype(np.float64), expectation.case.compute)
    ratio = np.where(np.isfinite(bound), ratio, 0)
    judged = np.isfinite(bound)
    largest = int(np.argmax(ratio)) if ratio.size else 0
    index = tuple(int(i) for i in np.unravel_index(largest, ratio.shape)) if ratio.size else ()
    relative, absolute = ASSERT_CLOSE[expectation.case.compute]
    magnitude = np.abs(expected).astype(np.float64)
    return Measure(
        output=name,
        elements=ratio.size,
        not_judged=int((~judged).sum()),
        bit_equal=int((actual.astype(array.dtype) == expected.astype(np.float64).astype(array.dtype)).sum()),
        max_abs_error=float(error[judged].max(initial=0)),
        max_ulp=float(ulps[judged].max(initial=0)),
        max_ratio=float(ratio.max(initial=0)),
        max_ratio_index=index,
        p99_ratio=float(np.quantile(ratio[judged], 0.99, method="higher")) if judged.any() else 0.0,
        assert_close=bool((error <= absolute + relative * magnitude).all()),
        rms=rms(standardised(expectation, name, array)),
    )


def _ulp(magnitude: Array, dtype: str) -> Array:
    storage = FORMATS[dtype]
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, storage.smallest_exponent)
    unit: Array = np.ldexp(1.0, np.maximum(exponent, storage.smallest_exponent) - storage.significand + 1)
    return unit
