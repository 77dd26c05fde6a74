"""Arithmetic of the reference: float64, or extended precision where the subject itself works in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.spec import Array

EXTENDED = np.dtype(np.longdouble)
DOUBLE = np.dtype(np.float64)
_SIGNIFICAND_BITS = np.finfo(np.longdouble).nmant + 1  # 64 on x86; 53 where longdouble is float64
_SMALL = 50_000  # multiplications up to which a plain longdouble product is quicker than splitting


def roundoff(dtype: np.dtype[Any]) -> float:
    """Unit roundoff of the reference's own arithmetic in a dtype.

    Where longdouble is no wider than float64, this is 2⁻⁵³, and the bound widens by the reference's own error.
    """
    return float(np.finfo(dtype).eps) / 2


def product(left: Array, right: Array) -> Array:
    """Matrix product [..., m, n] @ [..., n, p] with the accuracy of the operands' dtype.

    NumPy multiplies longdouble matrices a hundred times slower than float64 ones. Large products are therefore split
    into float64 slices whose pairwise products are exact in float64 (Ozaki, Ogita, Oishi and Rump 2012), and only
    the slices' sum is extended.
    """
    if left.dtype != EXTENDED or left.size * right.shape[-1] <= _SMALL or _SIGNIFICAND_BITS <= 53:
        with np.errstate(all="ignore"):  # infinities and NaN of hostile inputs are judged, not warned about
            exact: Array = left @ right
        return exact
    bits = int((53 - np.ceil(np.log2(left.shape[-1]))) // 2)
    count = int(np.ceil((_SIGNIFICAND_BITS + 2) / bits)) + 1
    left_slices, right_slices = _slices(left, -1, bits, count), _slices(right, -2, bits, count)
    total = np.zeros(np.broadcast_shapes(left.shape[:-2], right.shape[:-2]) + (left.shape[-2], right.shape[-1]), EXTENDED)
    for order in reversed(range(count)):  # smallest terms first
        for index in range(order + 1):
            total += left_slices[index] @ right_slices[order - index]
    return total


def _slices(matrix: Array, axis: int, bits: int, count: int) -> list[Array]:
    """float64 slices of ``bits`` bits each, most significant first, aligned along ``axis``, that sum to the matrix."""
    largest = np.max(np.abs(matrix), axis=axis, keepdims=True)
    _, exponent = np.frexp(np.where(largest > 0, largest, 1))
    remainder, slices = matrix, []
    for step in range(1, count + 1):
        unit = exponent - bits * step
        part = np.ldexp(np.rint(np.ldexp(remainder, -unit)), unit)
        slices.append(part.astype(np.float64))
        remainder = remainder - part
    return slices
