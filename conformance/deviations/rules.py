"""Rules for standard deviations: how far rounding carries each element of a typical correct implementation.

The same pairs as in :mod:`conformance.bounds.running_error`, whose ``error`` is here a standard deviation σ.
Roundings are taken as independent and uniform, and variances of independent errors add (Hull and Swenson 1966; Higham
and Mary 2019). ``docs/tolerance.md`` derives the rules and says where they do not hold.
"""

from __future__ import annotations

import numpy as np

from conformance.bounds.running_error import Pair, Rules, absolute, half_ulp, unless_zero
from conformance.policy import Format
from conformance.spec import Array

LIMIT = 8.0  # of rms(error/σ) over an output
_ALIKE = 1e-6  # by which S² may fall short of n Σ t² for n terms to be one and the same


def squared(value: Array) -> Array:
    """Square in float64."""
    square: Array = np.square(value.astype(np.float64, copy=False))
    return square


def sums(value: Array, axis: int) -> tuple[Array, Array, Array, Array]:
    """How many elements are not 0, Σ x, Σ x² and Σ |x| along an axis, which is kept."""
    count, total = (value != 0).sum(axis=axis, keepdims=True), value.sum(axis=axis, keepdims=True)
    return count, total, np.square(value).sum(axis=axis, keepdims=True), np.abs(value).sum(axis=axis, keepdims=True)


def alike(count: Array, total: Array, squares: Array) -> Array:
    """Where, by their :func:`sums`, all elements that are not 0 are the same number, and so have the same error."""
    return np.asarray((np.square(total) >= (1 - _ALIKE) * count * squares) & (count > 1))


def faint(value: Array, total: Array, arithmetic: Format) -> Array:
    """Magnitudes of terms below a unit in the last place of the ``total`` of magnitudes, 0 for others: sums one after
    another lose them, all on one side. A σ of a quarter of what is lost covers that."""
    magnitude = np.abs(value)
    return np.where(magnitude <= 2 * arithmetic.unit_roundoff * total, magnitude, 0)


class DeviationRules(Rules):
    """The rules for standard deviations. Zero stays exact: a pair (0, 0) has no error to add."""

    def variance(self, arithmetic: Format) -> float:
        """Relative variance of one rounding: u²/3 where a binade begins, and half of that over all mantissas."""
        return (arithmetic.unit_roundoff**2 + self.reference_roundoff**2) / 6

    def store(self, pair: Pair, *holdings: float) -> Pair:
        """Rounding to the storage format: half a unit in the last place over √3; all of what may be flushed."""
        storage, magnitude = self.storage, pair.magnitude
        steps = 1 + sum(1 / factor for factor in holdings)
        if holdings:
            own = np.sqrt(self.variance(storage)) * magnitude + steps * storage.smallest_subnormal / 2
        else:
            own = half_ulp(magnitude, storage) / np.sqrt(3)
        if storage.flushes:
            flushed = storage.smallest_normal * steps
            near_zero = magnitude < 2 * flushed
            own = np.where(near_zero, flushed, own) if np.count_nonzero(near_zero) else own
        return Pair(pair.value, np.hypot(pair.error, unless_zero(own, magnitude)))

    def rounded(self, pair: Pair, arithmetic: Format, times: int) -> Pair:
        """``times`` further roundings in an arithmetic format."""
        own = np.sqrt(times * self.variance(arithmetic)) * pair.size
        return Pair(pair.value, np.hypot(pair.error, own))

    def scaled(self, pair: Pair, factor: float, relative: float) -> Pair:
        """Multiplication by a constant whose relative error is the same for all elements."""
        return Pair(pair.value * factor, abs(factor) * np.hypot(pair.error, pair.size * relative))

    def times(self, pair: Pair, factor: Pair, relative: float) -> Pair:
        """Element by element, by factors with one relative error; what may be 0 or not leaves the statistics."""
        error = np.hypot(factor.size * pair.error, relative * absolute(factor.value * pair.value))
        unknown = (factor.error > 0) & (pair.magnitude > 0)
        return Pair(pair.value * factor.value, np.where(unknown, np.nan, error))

    def product(
        self,
        left: Pair,
        right: Pair,
        value: Array,
        arithmetic: Format,
        *,
        addend: Pair | None = None,
        terms: Array | None = None,
        holding: float = 1.0,
        drift: Array | None = None,
    ) -> Pair:
        """Matrix product whose n terms are added in random order: u²/6 [(n/3) S² + (n/6 + 1) Σ (a b)²] of its own.

        S is the sum: where terms have one sign, partial sums grow towards it, and so do their roundings. Where all
        factors on one side are the same number, they have the same error, and it meets the sum of the other side; where
        all terms are, their roundings are the same too, and amplitudes add.
        """
        first, second = (operand.value.astype(np.float64, copy=False) for operand in (left, right))
        first_squared, second_squared, own = np.square(first), np.square(second), self.variance(arithmetic)
        of_rows, of_columns = sums(first, -1), sums(second, -2)
        count = of_rows[0] if terms is None else terms.max(axis=-1, keepdims=True, initial=0)
        count = count + 1 + 2 * self.casts(arithmetic)
        total = squared(value) if addend is None else squared(value) + squared(addend.value)
        variance = own / 3 * count * total
        if not right.is_exact:
            variance = first_squared @ np.square(right.error) + variance
        variance += (np.square(left.error) + own * (count / 6 + 1) * first_squared) @ second_squared
        if addend is not None:
            variance += np.square(addend.error)
        rows, columns = alike(*of_rows[:3]), alike(*of_columns[:3])
        if np.count_nonzero(rows):
            one = np.square(left.error).max(axis=-1, keepdims=True, initial=0)
            variance += rows * one * np.square(of_columns[1])
        if np.count_nonzero(columns):
            one = np.square(right.error).max(axis=-2, keepdims=True, initial=0)
            variance += columns * one * np.square(of_rows[1])
            variance += (rows & columns) * (own / 3 * np.square(count)) * total
        lost = (faint(first, of_rows[3], arithmetic), second), (first, faint(second, of_columns[3], arithmetic))
        for one, other in lost:
            if np.count_nonzero(one) and np.count_nonzero(other):
                variance += np.square(np.matmul(np.abs(one), np.abs(other))) / 16
        return Pair(value, np.sqrt(self.flushed(variance, count, arithmetic)))

    def summed(self, pair: Pair, axis: int, value: Array, arithmetic: Format) -> Pair:
        """Sum along an axis in random order, likewise."""
        terms, count = pair.value.astype(np.float64, copy=False), pair.value.shape[axis] + self.casts(arithmetic)
        of_terms = sums(terms, axis)
        own = count / 3 * squared(value) + count / 6 * of_terms[2].squeeze(axis)
        variance = np.square(pair.error).sum(axis=axis) + self.variance(arithmetic) * own
        variance = variance + np.square(faint(terms, of_terms[3], arithmetic).sum(axis=axis)) / 16
        variance = np.where(alike(*of_terms[:3]).squeeze(axis), count * variance, variance)
        return Pair(value, np.sqrt(self.flushed(variance, count, arithmetic)))

    def flushed(self, variance: Array, count: Array | int, arithmetic: Format) -> Array:
        """With ``count`` operations whose results may be flushed to zero. A float64's own underflow has no square: what
        is that small has no statistics."""
        return unless_zero(variance + count * arithmetic.underflow**2, variance)
