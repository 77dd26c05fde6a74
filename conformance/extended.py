"""Arithmetic of the reference: float64, or extended precision where the subject itself works in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.spec import Array

EXTENDED = np.dtype(np.longdouble)
DOUBLE = np.dtype(np.float64)
_SIGNIFICAND_BITS = np.finfo(np.longdouble).nmant + 1  # 64 on x86; 53 where longdouble is float64
_SMALL = 50_000  # multiplications up to which a plain longdouble product is quicker than splitting
_SPARE_BITS = 12  # by which a sum may lie below the largest product before slices lose bits of it


def roundoff(dtype: np.dtype[Any]) -> float:
    """Unit roundoff of the reference's own arithmetic in a dtype.

    Where longdouble is no wider than float64, this is 2⁻⁵³, and the bound widens by the reference's own error.
    """
    return float(np.finfo(dtype).eps) / 2


def product(left: Array, right: Array) -> Array:
    """Matrix product [..., m, n] @ [..., n, p] with the accuracy of the operands' dtype.

    NumPy multiplies longdouble matrices a hundred times slower than float64 ones. Large products are therefore split
    into float64 slices whose pairwise products are exact in float64 (Ozaki, Ogita, Oishi and Rump 2012), and only
    the slices' sum is extended. Slices are aligned to the largest element of a row or column, so data too unevenly
    graded for that take the slow way.
    """
    if left.dtype == EXTENDED and left.size * right.shape[-1] > _SMALL and _SIGNIFICAND_BITS > 53:
        return _split_product(left, right)
    return _plain_product(left, right)


def _plain_product(left: Array, right: Array) -> Array:
    with np.errstate(all="ignore"):  # infinities and NaN of hostile inputs are judged, not warned about
        exact: Array = left @ right
    return exact


def _split_product(left: Array, right: Array) -> Array:
    bits = int((53 - np.ceil(np.log2(left.shape[-1]))) // 2)
    count = int(np.ceil((_SIGNIFICAND_BITS + _SPARE_BITS) / bits)) + 1
    left_exponent, right_exponent = _exponent(left, -1), _exponent(right, -2)
    left_scaled, right_scaled = np.ldexp(left, -left_exponent), np.ldexp(right, -right_exponent)
    magnitude = np.abs(left_scaled).astype(np.float64) @ np.abs(right_scaled).astype(np.float64)
    if np.any((magnitude > 0) & (magnitude < 2.0**-_SPARE_BITS * left.shape[-1])):
        return _plain_product(left, right)
    left_slices, right_slices = _slices(left_scaled, bits, count), _slices(right_scaled, bits, count)
    total = np.zeros(magnitude.shape, EXTENDED)
    for order in reversed(range(count)):  # smallest terms first
        for index in range(order + 1):
            total += np.ldexp((left_slices[index] @ right_slices[order - index]).astype(EXTENDED), -bits * (order + 2))
    scaled: Array = np.ldexp(total, left_exponent + right_exponent)
    return scaled


def _exponent(matrix: Array, axis: int) -> Array:
    """Exponent of the largest element along an axis, kept; 0 where all elements are 0."""
    largest = np.max(np.abs(matrix), axis=axis, keepdims=True)
    exponent: Array = np.frexp(np.where(largest > 0, largest, 1))[1]
    return exponent


def _slices(matrix: Array, bits: int, count: int) -> list[Array]:
    """Integers of at most ``bits`` bits in float64; slice i times 2^(−bits·(i + 1)) add up to a matrix below 1."""
    remainder, slices = matrix, []
    for step in range(1, count + 1):
        part = np.rint(np.ldexp(remainder, bits * step))
        slices.append(part.astype(np.float64))
        remainder = remainder - np.ldexp(part, -bits * step)
    return slices
