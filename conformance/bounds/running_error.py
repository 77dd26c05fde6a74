"""Running error analysis: elementary rules on pairs of a reference value and a bound on its error.

Each rule answers: if every operand of a correct implementation lies within ``error`` of ``value``, how far can the
result lie from its own reference value? Sources: Jeannerod and Rump 2013 (n·u for inner products in any order),
Higham 2002 (products of n factors). ``docs/tolerance.md`` derives them.

Zero is exact: a pair of value 0 and error 0 says that every implementation holds exactly 0, and all rules keep it so.
A sum counts the terms that can differ from 0, so nothing here needs to know which positions a mask blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from conformance.policy import Format
from conformance.spec import Array

OVERFLOW = 1e150  # stands for "may overflow"; finite, so that it can be multiplied and compared without NaN
NOT_JUDGED = 1e100  # bounds at or above this are infinite
_SMALLEST = 2.0**-1074  # float64 above 0


@dataclass(frozen=True, eq=False)
class Pair:
    """A reference value and, in float64, how far a correct implementation may lie from it."""

    value: Array
    error: Array

    @cached_property
    def size(self) -> Array:
        """Absolute value, in float64."""
        return absolute(self.value)

    @cached_property
    def magnitude(self) -> Array:
        """Upper bound on the absolute value that an implementation may hold."""
        return self.size + self.error

    @cached_property
    def differs(self) -> Array:
        """1 where an implementation may hold something else than 0; NaN, which is not known, can."""
        differs: Array = (self.magnitude != 0).astype(np.float32)  # sums are exact up to 2²⁴ terms
        return differs

    @cached_property
    def is_exact(self) -> bool:
        """Whether no element has an error: then there is nothing to carry on."""
        return not np.count_nonzero(self.error)

    @cached_property
    def is_unknown(self) -> bool:
        """Whether an element may overflow."""
        return not self.is_exact and bool(np.count_nonzero(self.error >= NOT_JUDGED))

    def transposed(self) -> Pair:
        """Last two axes swapped."""
        return Pair(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))


def exact(value: Array) -> Pair:
    """A value that every implementation holds exactly."""
    return Pair(value, np.zeros(value.shape))


def absolute(value: Array) -> Array:
    magnitude: Array = np.abs(value).astype(np.float64, copy=False)
    return magnitude


def capped(error: Array) -> Array:
    """NaN and everything beyond OVERFLOW become OVERFLOW."""
    return np.fmin(error, OVERFLOW)


def overflowing(error: Array, where: Array) -> Array:
    """The error, capped, and OVERFLOW wherever something may overflow."""
    return capped(np.where(where, OVERFLOW, error) if np.count_nonzero(where) else error)


def unless_zero(error: Array, magnitude: Array) -> Array:
    """The error, and 0 where the magnitude is: a zero is exact, and so is a sum of no terms."""
    return error if np.count_nonzero(magnitude) == magnitude.size else np.where(magnitude == 0, 0, error)


@cache
def factors(count: int, arithmetic: Format) -> float:
    """Relative error of a product of ``count`` factors (1 + δ)^±1: (1 − u)^−count − 1."""
    return float(np.expm1(-count * np.log1p(-arithmetic.unit_roundoff)))


def term_count(left: Pair, right: Pair) -> Array:
    """How many terms of each inner product of a matrix product can differ from 0."""
    count: Array = left.differs @ right.differs
    return count


def half_ulp(magnitude: Array, storage: Format) -> Array:
    """Largest error of rounding any number up to ``magnitude`` to a format."""
    spacing = np.spacing(magnitude * (1 + 2.0**-50))  # of float64; the magnitude itself is rounded
    half: Array = np.maximum(spacing * 2.0 ** (52 - storage.significand), storage.smallest_subnormal / 2)
    return half


@dataclass(frozen=True)
class Rules:
    """The rules for one storage format; ``reference_roundoff`` is the unit roundoff of the reference itself."""

    storage: Format
    reference_roundoff: float

    def roundoff(self, arithmetic: Format) -> float:
        """Unit roundoff of an arithmetic format, and that of the reference, which rounds the same operation."""
        return arithmetic.unit_roundoff + self.reference_roundoff

    def casts(self, arithmetic: Format) -> int:
        """Roundings of operands that are cast to a format narrower than the storage."""
        return int(arithmetic.significand < self.storage.significand)

    def given(self, value: Array) -> Pair:
        """An input: exact, unless it is subnormal and the hardware reads subnormal numbers as 0."""
        magnitude = absolute(value)
        return Pair(value, np.where(magnitude < self.storage.underflow, magnitude, 0.0))

    def store(self, pair: Pair, *holdings: float) -> Pair:
        """Rounding to the storage format: half an ulp, and flushing to zero where hardware may flush.

        With ``holdings``, an implementation may also store the value times any of these factors, at its choice:
        rounding is then relative, and subnormal steps and overflow are those of the factor that makes them worst.
        """
        storage, magnitude = self.storage, pair.magnitude
        steps = 1 + sum(1 / factor for factor in holdings)
        if holdings:
            rounding = storage.unit_roundoff * magnitude + steps * storage.smallest_subnormal / 2
        else:
            rounding = half_ulp(magnitude, storage)
        if storage.flushes:
            near_zero = pair.size - pair.error < storage.smallest_normal / min(1.0, *holdings, 1.0)
            if np.count_nonzero(near_zero):
                flushed = np.minimum(storage.smallest_normal * steps, magnitude + storage.smallest_subnormal)
                rounding = np.where(near_zero, np.maximum(rounding, flushed), rounding)
        rounding = unless_zero(rounding + self.reference_roundoff * magnitude, magnitude)
        error, overflows = pair.error + rounding, (magnitude + rounding) * max(1.0, *holdings, 0.0) > storage.largest
        return Pair(pair.value, overflowing(error, overflows))

    def rounded(self, pair: Pair, arithmetic: Format, times: int) -> Pair:
        """``times`` further roundings in an arithmetic format."""
        magnitude = pair.magnitude
        own = factors(times, arithmetic) * magnitude + times * arithmetic.underflow
        return Pair(pair.value, capped(pair.error + unless_zero(own, magnitude)))

    def scaled(self, pair: Pair, factor: float, relative: float) -> Pair:
        """Multiplication by a constant that is itself known to a relative error; the rounding comes with the store."""
        error = abs(factor) * (pair.error * (1 + relative) + pair.size * relative)
        error = overflowing(error, pair.error >= NOT_JUDGED)  # even times 0
        if factor != 0:  # a product too small for float64 is not an exact 0
            error = unless_zero(np.maximum(error, _SMALLEST), pair.magnitude)
        return Pair(pair.value * factor, capped(error))

    def times(self, pair: Pair, factor: Pair, relative: float) -> Pair:
        """Element by element; the factor is held with a further relative error. The rounding comes with the store."""
        error = factor.size * pair.error + (factor.error + relative * factor.magnitude) * pair.magnitude
        error = unless_zero(error, factor.magnitude)
        return Pair(pair.value * factor.value, overflowing(error, pair.error >= NOT_JUDGED))  # infinity times 0 is NaN

    def accumulated(self, inherited: Array, roundings: Array, magnitude: Array, arithmetic: Format) -> Array:
        """The error of a sum whose terms come to ``magnitude``: what they bring along, and its own roundings."""
        own = roundings * (self.roundoff(arithmetic) * magnitude + arithmetic.underflow)
        return inherited + unless_zero(own, roundings)

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
        """Matrix product, in any order, blocked, fused or split.

        ``addend`` may start the accumulator and so take part in every rounding; ``terms`` counts those of a longer
        sum that this one may be part of; the accumulator may hold the product times ``holding``. ``drift`` bounds how
        far the errors of each left row may add up to: what a column on the right has in common meets no more.
        """
        own_terms = term_count(left, right)
        terms = own_terms if terms is None else terms
        both, inherited = left.magnitude @ right.magnitude, np.zeros(())
        if not left.is_exact:
            inherited = left.error @ right.magnitude
        if drift is not None and right.value.shape[-2]:
            middle = (right.value.max(axis=-2, keepdims=True) + right.value.min(axis=-2, keepdims=True)) / 2
            rest = absolute(right.value - middle) * (1 + 2.0**-50) + right.error
            inherited = np.minimum(inherited, left.error @ rest + drift * absolute(middle))
        if not right.is_exact:
            inherited = left.size @ right.error + inherited
        if addend is not None:
            both, inherited, terms = both + addend.magnitude, inherited + addend.error, terms + 1
        roundings = unless_zero(terms + 2 * self.casts(arithmetic), own_terms)
        error = self.accumulated(inherited, roundings, both, arithmetic)
        overflows = both * max(1.0, holding) > arithmetic.largest
        for operand, axis in ((left, -1), (right, -2)):  # infinity times 0 is NaN
            if operand.is_unknown:
                overflows = overflows | (operand.error >= NOT_JUDGED).any(axis=axis, keepdims=True)
        return Pair(value, overflowing(error, overflows))

    def summed(self, pair: Pair, axis: int, value: Array, arithmetic: Format) -> Pair:
        """Sum along an axis, in any order."""
        magnitude = pair.magnitude
        terms, total = (magnitude > 0).sum(axis=axis), magnitude.sum(axis=axis)
        roundings = unless_zero(terms + self.casts(arithmetic), terms)
        error = self.accumulated(pair.error.sum(axis=axis), roundings, total, arithmetic)
        return Pair(value, overflowing(error, total > arithmetic.largest))
