"""Running error analysis: elementary rules on pairs of a reference value and a bound on its error.

Each rule answers: if every operand of a correct implementation lies within ``error`` of ``value``, how far can the
result lie from its own reference value? Sources: Jeannerod and Rump 2013 (n·u for inner products in any order),
Higham 2002 (products of n factors). ``docs/tolerance.md`` derives them.

Zero is exact: a pair of value 0 and error 0 says that every implementation holds exactly 0, and all rules keep it so.
A sum counts the terms that can differ from 0, so nothing here needs to know which positions a mask blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from conformance.policy import Format
from conformance.spec import Array

OVERFLOW = 1e150  # stands for "may overflow"; finite, so that it can be multiplied and compared without NaN
NOT_JUDGED = 1e100  # bounds at or above this are infinite


class Pair(NamedTuple):
    """A reference value and, in float64, how far a correct implementation may lie from it."""

    value: Array
    error: Array

    @property
    def magnitude(self) -> Array:
        """Upper bound on the absolute value that an implementation may hold."""
        return absolute(self.value) + self.error

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


def factors(count: int, arithmetic: Format) -> float:
    """Relative error of a product of ``count`` factors (1 + δ)^±1: (1 − u)^−count − 1."""
    return float(np.expm1(-count * np.log1p(-arithmetic.unit_roundoff)))


def term_count(left: Pair, right: Pair) -> Array:
    """How many terms of each inner product of a matrix product can differ from 0."""
    count: Array = _nonzero(left) @ _nonzero(right)
    return count


def _nonzero(pair: Pair) -> Array:
    differs: Array = (pair.magnitude != 0).astype(np.float32)  # exact up to 2²⁴ terms; NaN, not known, can differ
    return differs


def half_ulp(magnitude: Array, storage: Format) -> Array:
    """Largest error of rounding any number up to ``magnitude`` to a format."""
    _, exponent = np.frexp(magnitude * (1 + 2.0**-50))  # the magnitude itself is rounded
    half: Array = np.ldexp(1.0, np.maximum(exponent - 1, storage.smallest_exponent) - storage.significand)
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
            limit = storage.smallest_normal / min(1.0, *holdings) if holdings else storage.smallest_normal
            flushed = np.minimum(storage.smallest_normal * steps, magnitude + storage.smallest_subnormal)
            rounding = np.where(absolute(pair.value) - pair.error < limit, np.maximum(rounding, flushed), rounding)
        rounding = np.where(magnitude > 0, rounding + self.reference_roundoff * magnitude, 0)
        overflows = (magnitude + rounding) * max(1.0, *holdings, 0.0) > storage.largest
        return Pair(pair.value, capped(np.where(overflows, OVERFLOW, pair.error + rounding)))

    def rounded(self, pair: Pair, arithmetic: Format, times: int) -> Pair:
        """``times`` further roundings in an arithmetic format."""
        magnitude = pair.magnitude
        own = factors(times, arithmetic) * magnitude + times * arithmetic.underflow
        return Pair(pair.value, capped(pair.error + np.where(magnitude > 0, own, 0)))

    def scaled(self, pair: Pair, factor: float, relative: float) -> Pair:
        """Multiplication by a constant that is itself known to a relative error; the rounding comes with the store."""
        error = abs(factor) * (pair.error * (1 + relative) + absolute(pair.value) * relative)
        error = np.where(pair.error >= NOT_JUDGED, OVERFLOW, error)  # even times 0
        if factor != 0:  # a product too small for float64 is not an exact 0
            error = np.where(pair.magnitude > 0, np.maximum(error, np.finfo(np.float64).smallest_subnormal), 0)
        return Pair(pair.value * factor, capped(error))

    def times(self, pair: Pair, factor: Pair, relative: float) -> Pair:
        """Element by element; the factor is held with a further relative error. The rounding comes with the store."""
        error = absolute(factor.value) * pair.error + (factor.error + relative * factor.magnitude) * pair.magnitude
        error = np.where(factor.magnitude > 0, error, 0)
        error = np.where(pair.error >= NOT_JUDGED, OVERFLOW, error)  # infinity times 0 is NaN
        return Pair(pair.value * factor.value, capped(error))

    def accumulated(self, inherited: Array, roundings: Array, magnitude: Array, arithmetic: Format) -> Array:
        """The error of a sum whose terms come to ``magnitude``: what they bring along, and its own roundings."""
        own = roundings * (self.roundoff(arithmetic) * magnitude + arithmetic.underflow)
        return inherited + np.where(roundings > 0, own, 0)

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
        both = left.magnitude @ right.magnitude
        from_left = left.error @ right.magnitude
        if drift is not None and right.value.shape[-2]:
            middle = (right.value.max(axis=-2, keepdims=True) + right.value.min(axis=-2, keepdims=True)) / 2
            rest = absolute(right.value - middle) * (1 + 2.0**-50) + right.error
            from_left = np.minimum(from_left, left.error @ rest + drift * absolute(middle))
        inherited = absolute(left.value) @ right.error + from_left
        if addend is not None:
            both, inherited, terms = both + addend.magnitude, inherited + addend.error, terms + 1
        roundings = np.where(own_terms > 0, terms + 2 * self.casts(arithmetic), 0)
        error = self.accumulated(inherited, roundings, both, arithmetic)
        overflows = both * max(1.0, holding) > arithmetic.largest
        for operand, axis in ((left, -1), (right, -2)):  # infinity times 0 is NaN
            overflows = overflows | (operand.error >= NOT_JUDGED).any(axis=axis, keepdims=True)
        return Pair(value, capped(np.where(overflows, OVERFLOW, error)))

    def summed(self, pair: Pair, axis: int, value: Array, arithmetic: Format) -> Pair:
        """Sum along an axis, in any order."""
        magnitude = pair.magnitude
        terms, total = (magnitude > 0).sum(axis=axis), magnitude.sum(axis=axis)
        roundings = np.where(terms > 0, terms + self.casts(arithmetic), 0)
        error = self.accumulated(pair.error.sum(axis=axis), roundings, total, arithmetic)
        return Pair(value, capped(np.where(total > arithmetic.largest, OVERFLOW, error)))
