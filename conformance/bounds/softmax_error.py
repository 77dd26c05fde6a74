"""How far softmax carries the error of its scores, by exact ranges and not by linearisation.

Blanchard, Higham and Higham 2021 analyse the roundings of softmax itself; the range over a box of scores follows from
monotonicity. ``docs/tolerance.md`` derives both.
"""

from __future__ import annotations

import numpy as np

from conformance.bounds.running_error import OVERFLOW, Pair, Rules, absolute, capped, factors
from conformance.policy import Format
from conformance.spec import Array

_LEAST_EXPONENT = 744.0  # exp(−744) is the smallest that float64 holds
_LOGARITHM_UNITS = 4  # error of log in units of its format's roundoff


def widest_exponent(arithmetic: Format) -> float:
    """Log-domain error up to which the hull is computed; a row that knows less has the trivial bound.

    A weight that is 0 in float64 only because it is tiny must stay below the underflow unit at either end of its range.
    """
    return min(300.0, (_LEAST_EXPONENT + float(np.log(arithmetic.underflow))) / 2)


def largest_score(scores: Array, blocked: Array) -> Array:
    """Largest score of each row that is not blocked, or 0; [..., T, 1]."""
    largest = np.where(blocked, -np.inf, scores).max(axis=-1, keepdims=True, initial=-np.inf)
    return np.asarray(np.where(np.isfinite(largest), largest, 0))


def exponent_error(rules: Rules, scores: Pair, blocked: Array, arithmetic: Format, exponential: float) -> Array:
    """Error of exp(s − max s) in the log domain: of the score, of the subtraction, and of exp itself.

    The shift by the maximum is common to a row and cancels in the quotient; only its rounding counts.
    """
    error = np.where(blocked, 0, scores.error)
    distance = np.where(blocked, 0, (largest_score(scores.value, blocked) - scores.value).astype(np.float64))
    row_error = np.where(vanished(distance, error), 0, error).max(axis=-1, keepdims=True, initial=0)
    total = error + rules.roundoff(arithmetic) * (distance + error + row_error) + exponential
    return np.where(blocked | vanished(distance, total), 0, total)


def vanished(distance: Array, error: Array) -> Array:
    """Keys whose weight underflows to 0 wherever in their ranges the scores lie."""
    top = np.where(distance == 0, error, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
    return np.asarray(distance - error - top > 2 * _LEAST_EXPONENT)


def softmax_hull(weights: Array, exponent: Array, widest: float) -> Array:
    """Largest change of each weight when every log-domain score j moves by at most ``exponent[j]``.

    Softmax rises in its own score and falls in all others, so the extremes over the box are attained at its corners:
    no linearisation, and a saturated row keeps a small bound.
    """
    own = weights.astype(np.float64)
    moved = np.minimum(exponent, widest)
    gain, loss = own * np.expm1(moved), -own * np.expm1(-moved)
    grown, shrunk = own * np.exp(moved), own * np.exp(-moved)
    rest = of_others(own)
    upper = (gain * rest + own * of_others(loss)) / np.maximum(grown + of_others(shrunk), 1e-300)
    lower = (loss * rest + own * of_others(gain)) / np.maximum(shrunk + of_others(grown), 1e-300)
    unknown = exponent.max(axis=-1, keepdims=True, initial=0) > widest
    hull = np.where(unknown, np.maximum(own, 1 - own), np.maximum(upper, lower))
    return np.asarray(hull * (1 + (8 * own.shape[-1] + 32) * 2.0**-53))  # of the sums and quotients here


def of_others(array: Array) -> Array:
    """For each element, the sum of the others along the last axis, without cancellation."""
    total = np.zeros_like(array)
    total[..., 1:] = np.cumsum(array[..., :-1], axis=-1)
    total[..., :-1] += np.cumsum(array[..., :0:-1], axis=-1)[..., ::-1]
    return total


def normalised(rules: Rules, weights: Array, hull: Array, terms: Array, arithmetic: Format, rescalings: int) -> Array:
    """The hull and the roundings of the sum, of its rescalings and of the division; [..., T, N]."""
    sums = terms * (rules.roundoff(arithmetic) + arithmetic.underflow)
    quotient = np.where(sums < 0.5, sums / (1 - np.minimum(sums, 0.5)), 1.0)
    divisions = factors(2 + rescalings, arithmetic)
    own = weights.astype(np.float64)
    error = hull + (own + hull) * (quotient + divisions + quotient * divisions)
    trivial = np.maximum(own, 1 - own) + divisions  # a computed sum is at least as large as each of its terms
    return np.minimum(error, trivial) + 4 * arithmetic.underflow


def sum_error(terms: Array, storage: Format, arithmetic: Format, roundoff: float, rescalings: int = 0) -> Array:
    """How far the stored weights of a row may sum to something else than 1, by its number of ``terms``: the errors of
    the scores cancel in the quotient, so only the roundings of sum, division and storing remain."""
    sums = np.minimum((terms + 4 + 2 * rescalings) * roundoff, 0.5)
    tiny = terms * (2 * storage.underflow + 4 * arithmetic.underflow)
    return np.asarray(2 * storage.unit_roundoff + tiny + sums / (1 - sums))


def rebuilt_weights(
    rules: Rules, weights: Array, scores: Pair, blocked: Array, arithmetic: Format, exponential: float
) -> Array:
    """Error of weights that a flash kernel rebuilds as exp(s − lse): nothing normalises them again, and a term
    u·|lse| does not cancel."""
    own, roundoff = absolute(weights), rules.roundoff(arithmetic)
    widest = widest_exponent(arithmetic)
    largest = largest_score(scores.value, blocked)
    visible = np.where(blocked, -np.inf, scores.value)
    total = np.exp(visible - largest).sum(axis=-1, keepdims=True)
    logarithm = np.log(np.where(total > 0, total, 1)).astype(np.float64)
    log_sum = largest.astype(np.float64) + logarithm
    terms = (~blocked).sum(axis=-1, keepdims=True)
    first = exponent_error(rules, scores, blocked, arithmetic, exponential)
    unknown = first.max(axis=-1, keepdims=True, initial=0) > widest
    inherited = np.log1p((own * np.expm1(np.minimum(first, widest))).sum(axis=-1, keepdims=True))
    gone = vanished(np.where(blocked, 0, (largest - scores.value).astype(np.float64)), scores.error)
    row_error = np.where(blocked | gone, 0, scores.error).max(axis=-1, keepdims=True, initial=0)
    inherited = inherited + 1.5 * terms * roundoff  # of the sum
    inherited = inherited + roundoff * (_LOGARITHM_UNITS * logarithm + 2 * (np.abs(log_sum) + row_error + inherited))
    distance = np.where(blocked, 0, np.abs(scores.value - log_sum).astype(np.float64))
    exponent = scores.error + inherited
    exponent = exponent + roundoff * (distance + exponent) + exponential
    below = np.where(blocked, 0, (largest - scores.value).astype(np.float64))
    exponent = np.where(vanished(below, exponent), 0, exponent)
    error = own * np.expm1(np.minimum(exponent, widest)) + 4 * arithmetic.underflow
    return np.where(blocked, 0, np.where(unknown | (exponent > widest), OVERFLOW, capped(error)))
