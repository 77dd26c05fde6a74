"""Running error analysis: elementary rules on pairs of a reference value and a bound on its error.

Each rule answers: if every operand of a correct implementation lies within ``error`` of ``value``, how far can the
result lie from its own reference value? Sources: Jeannerod and Rump 2013 (n·u for inner products in any order),
Higham 2002 (products of n factors), Blanchard, Higham and Higham 2021 (softmax). ``docs/tolerance.md`` derives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from conformance.policy import Format
from conformance.spec import Array

OVERFLOW = 1e150  # stands for "may overflow"; finite, so that 0 · OVERFLOW stays 0 at blocked positions
NOT_JUDGED = 1e100  # bounds at or above this are infinite
_LARGEST_EXPONENT = 300.0  # log-domain errors are capped here, far past any useful bound


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
    magnitude: Array = np.abs(value).astype(np.float64)
    return magnitude


def capped(error: Array) -> Array:
    """NaN and everything beyond OVERFLOW become OVERFLOW."""
    return np.fmin(error, OVERFLOW)


@dataclass(frozen=True)
class Rules:
    """The rules for one storage format; ``reference_roundoff`` is the unit roundoff of the reference itself."""

    storage: Format
    reference_roundoff: float

    def store(self, pair: Pair) -> Pair:
        """Rounding to the storage format: u(|x| + e), half a subnormal step, and flushing where hardware may flush."""
        storage, magnitude = self.storage, pair.magnitude
        rounding = (storage.unit_roundoff + self.reference_roundoff) * magnitude + storage.smallest_subnormal / 2
        if storage.underflow == storage.smallest_normal:
            may_flush = absolute(pair.value) - pair.error < storage.smallest_normal
            flushed = np.minimum(storage.smallest_normal, magnitude + storage.smallest_subnormal)
            rounding = np.where(may_flush, np.maximum(rounding, flushed), rounding)
        error = np.where(magnitude + rounding > storage.largest, OVERFLOW, pair.error + rounding)
        return Pair(pair.value, capped(error))

    def rounded(self, pair: Pair, arithmetic: Format, times: int = 1) -> Pair:
        """``times`` further roundings in an arithmetic format."""
        error = pair.error + factors(times, arithmetic) * pair.magnitude + arithmetic.underflow
        return Pair(pair.value, capped(error))

    def scaled(self, pair: Pair, factor: float, relative: float, value: Array) -> Pair:
        """Multiplication by a constant that is itself known to a relative error."""
        error = abs(factor) * (pair.error * (1 + relative) + absolute(pair.value) * relative)
        return Pair(value, capped(error))

    def add(self, left: Pair, right: Pair, value: Array) -> Pair:
        return Pair(value, capped(left.error + right.error))

    def product(
        self, left: Pair, right: Pair, value: Array, terms: Array | int, arithmetic: Format
    ) -> Pair:
        """Matrix product of ``terms`` non-zero terms, in any order, blocked, fused or split."""
        both = left.magnitude @ right.magnitude
        inherited = absolute(left.value) @ right.error + left.error @ right.magnitude
        own = terms * ((arithmetic.unit_roundoff + self.reference_roundoff) * both + arithmetic.underflow)
        error = np.where(both > arithmetic.largest, OVERFLOW, inherited + own)
        return Pair(value, capped(error))

    def summed(self, pair: Pair, axis: int, value: Array, arithmetic: Format) -> Pair:
        """Sum along an axis, in any order."""
        terms = pair.value.shape[axis]
        magnitude = pair.magnitude.sum(axis=axis)
        own = terms * ((arithmetic.unit_roundoff + self.reference_roundoff) * magnitude + arithmetic.underflow)
        error = np.where(magnitude > arithmetic.largest, OVERFLOW, pair.error.sum(axis=axis) + own)
        return Pair(value, capped(error))


def factors(count: int, arithmetic: Format) -> float:
    """Relative error of a product of ``count`` factors (1 + δ)^±1: (1 − u)^−count − 1."""
    return float(np.expm1(-count * np.log1p(-arithmetic.unit_roundoff)))


def exponent_error(scores: Pair, blocked: Array, largest: Array, arithmetic: Format, exponential: float) -> Array:
    """Error of exp(s − max s) in the log domain: of the score, of the subtraction, and of exp itself.

    The shift by the maximum is common to a row and cancels in the quotient; only its rounding counts.
    """
    error = np.where(blocked, 0, scores.error)
    distance = np.where(blocked, 0, (largest - scores.value).astype(np.float64))
    row_error = error.max(axis=-1, keepdims=True, initial=0)
    total = error + arithmetic.unit_roundoff * (distance + error + row_error) + exponential
    return np.where(blocked, 0, np.minimum(total, _LARGEST_EXPONENT))


def softmax_hull(weights: Array, exponent: Array) -> Array:
    """Largest change of each weight when every log-domain score j moves by at most ``exponent[j]``.

    Softmax rises in its own score and falls in all others, so the extremes over the box are attained at its corners:
    no linearisation, and a saturated row keeps a small bound.
    """
    own = weights.astype(np.float64)
    others = np.maximum((weights.sum(axis=-1, keepdims=True) - weights).astype(np.float64), 0)
    grown, shrunk = np.exp(exponent), np.exp(-exponent)
    gain, loss = own * np.expm1(exponent), -own * np.expm1(-exponent)
    gains, losses = _total(gain), _total(loss)
    upper = own * np.expm1(exponent) * others + own * np.maximum(losses - loss, 0)
    upper = upper / np.maximum(own * grown + np.maximum(_total(own * shrunk) - own * shrunk, 0), 1e-300)
    lower = own * -np.expm1(-exponent) * others + own * np.maximum(gains - gain, 0)
    lower = lower / np.maximum(own * shrunk + np.maximum(_total(own * grown) - own * grown, 0), 1e-300)
    cancellation = 1e-15 * np.maximum(gains, losses) * own  # of the sums "all but j" above, in float64
    return np.maximum(np.minimum(upper, 1), np.minimum(lower, own)) + cancellation


def _total(array: Array) -> Array:
    total: Array = array.sum(axis=-1, keepdims=True)
    return total
