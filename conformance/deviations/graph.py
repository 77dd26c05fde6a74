"""The standard deviation of every output, carried along the same graph as its bound.

An error that many elements have in common is whole again when these are summed, where independent errors average out.
Its variance is raised beforehand by the number of elements that share it (``_sharing``, ``_coherence``).
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from conformance.bounds.backward import BackwardGraph
from conformance.bounds.forward import ForwardGraph
from conformance.bounds.outputs import outputs_of
from conformance.bounds.running_error import Pair, Rules
from conformance.bounds.softmax_error import largest_score
from conformance.deviations.rules import LIMIT, DeviationRules, faint, squared
from conformance.policy import Format, Policy
from conformance.reference import Reference, flat
from conformance.spec import Array, Case

_LINEAR = 0.5  # log-domain error up to which a first order describes the softmax


def deviations_of(case: Case, reference: Reference, policy: Policy) -> dict[str, Array]:
    """Standard deviation of the error of every output of ``reference.outputs()``, float64 in the output's shape.

    Infinite where the statistics do not hold, 0 where nothing is rounded.
    """
    with np.errstate(all="ignore"):  # NaN marks what has left the statistics, and everything that it enters
        pairs = outputs_of(ForwardDeviation.of(case, reference.forward, policy), BackwardDeviation, reference)
        return {name: np.where(np.isfinite(pair.error), pair.error, np.inf) for name, pair in pairs.items()}


class ForwardDeviation(ForwardGraph):
    """The forward graph, with softmax to first order in the errors of its scores."""

    rules_type: ClassVar[type[Rules]] = DeviationRules
    rules: DeviationRules

    def softmax(self, scores: Pair) -> Pair:
        """Softmax before it is stored: P_j² [(1 − P_j)² τ_j² + Σ_{k≠j} P_k² τ_k²], the sum and the division."""
        weights, arithmetic = self.reference.attn_weights.astype(np.float64), self.arithmetic("softmax")
        exponent, square, own = self.exponent(scores), np.square(weights), self.rules.variance(arithmetic)
        moved = square * exponent
        others = np.maximum(moved.sum(axis=-1, keepdims=True) - moved, 0)
        sums = self.terms / 3 + (self.terms / 6 + 1) * square.sum(axis=-1, keepdims=True)
        relative = np.square(np.maximum(1 - weights, 0)) * exponent + others + own * (sums + 2 + self.rescalings)
        relative = relative + np.square(_lost(weights, arithmetic)) / 16
        variance = np.where(self.reference.blocked, 0, square * relative + arithmetic.underflow**2)
        return Pair(self.reference.attn_weights, self.deviation(exponent, variance))

    def exponent(self, scores: Pair) -> Array:
        """Variance τ² of exp(s − max s) in the log domain; 0 where the weight is."""
        arithmetic, blocked = self.arithmetic("softmax"), self.reference.blocked
        if self.rules.casts(arithmetic):
            scores = DeviationRules(arithmetic, self.rules.reference_roundoff).store(scores)
        distance = largest_score(scores.value, blocked) - scores.value
        exponential = self.exponential(arithmetic) * (1 + self.rescalings)
        variance = np.square(scores.error) + self.rules.variance(arithmetic) * squared(distance) + exponential**2 / 3
        return np.where(self.reference.attn_weights.astype(np.float64) > 0, variance, 0)

    def deviation(self, exponent: Array, variance: Array) -> Array:
        """σ of weights; NaN in rows whose scores are too uncertain for a first order, and where weights repeat."""
        uncertain = LIMIT**2 * exponent.max(axis=-1, keepdims=True, initial=0) >= _LINEAR**2
        return np.where(uncertain | self.repeating, np.nan, np.sqrt(variance))

    @property
    def repeating(self) -> Array:
        """Rows and columns of weights with more than √n pairs that the softmax cannot tell apart, or more than √n that
        their sum cannot, as those of equal tokens are: equal numbers are rounded alike, so their errors do not average
        out; [B, H, T, N]."""
        return self.once("repeating", ("softmax",), self._repeating)

    def _repeating(self) -> Array:
        weights = self.reference.attn_weights.astype(np.float64)
        unit = 2 * self.arithmetic("softmax").unit_roundoff
        found = np.zeros(weights.shape, np.bool_)
        for axis in (-1, -2):
            ordered = np.moveaxis(np.sort(weights, axis=axis), axis, 0)
            least = ordered[:-1]
            pairs = (np.diff(ordered, axis=0) <= unit * least * (1 - least)) & (least > 0)
            many = np.square(pairs.sum(axis=0)) > (ordered > 0).sum(axis=0)
            last = unit * ordered.sum(axis=0)  # unit in the last place of their sum, within which it rounds them alike
            apart = math.isqrt(len(ordered)) + 1
            many |= ((ordered[apart:] - ordered[:-apart] <= last) & (ordered[:-apart] > last)).any(axis=0)
            found |= np.expand_dims(many, axis)
        return found


class BackwardDeviation(BackwardGraph):
    """The backward graph, with rebuilt weights and the derivative of softmax to first order."""

    graph: ForwardDeviation

    @property
    def rules(self) -> DeviationRules:
        return self.graph.rules

    def weights_again(self) -> Pair:
        """The weights of the forward pass, or exp(s − lse) where a flash kernel rebuilds them."""
        held = self.stages.held_weights
        if not self.graph.policy.flash:
            return held
        scores, own = self.stages.scores, self.rules.variance(self.arithmetic("softmax"))
        square, largest = squared(held.value), largest_score(scores.value, self.blocked)
        total = np.exp(np.where(self.blocked, -np.inf, scores.value - largest)).sum(axis=-1, keepdims=True)
        logarithm = np.log(np.where(total > 0, total, 1))
        log_sum, exponent = squared(largest + logarithm), self.graph.exponent(scores)
        common = (square * exponent).sum(axis=-1, keepdims=True)
        common = common + own * (3 * log_sum + 8 * squared(logarithm) + self.graph.terms / 3)
        exponent = np.where(self.blocked, 0, exponent + common)
        again = self.rules.store(Pair(held.value, self.graph.deviation(exponent, square * exponent)))
        return Pair(held.value, np.maximum(held.error, again.error))

    def d_value(self, weights: Pair, d_context: Pair) -> Pair:
        """dV = Pᵀ dcontext. An error of dcontext reaches all keys of its row, and is whole again in their sum."""
        error = d_context.error * np.sqrt(_sharing(weights))
        return super().d_value(weights, Pair(d_context.value, error))

    def parameters(self, name: str, inputs: Pair, rows: Pair) -> dict[str, Pair]:
        """dW and db. The errors that values bring into the context of every query meet the sum of the cotangents."""
        shared = np.sqrt(_coherence(flat(rows.value)).mean())
        return super().parameters(name, Pair(inputs.value, inputs.error * shared), rows)

    def d_scores(self, weights: Pair, d_context: Pair) -> Pair:
        """dS_j = P_j (dP_j − D), or P_j dP_j − P_j D."""
        rules, reference, narrow = self.rules, self.reference, self.arithmetic("softmax_gradient")
        value, shared = self.stages.value, np.sqrt(_coherence(d_context.value))
        value = Pair(value.value, value.error * shared).transposed()
        product = rules.product(d_context, value, reference.dropped_weights, self.arithmetic("batched_products"))
        d_weights = np.square(self.graph.dropped(rules.store(product), self.graph.reference.kept.weights).error)
        own, held, row_sum = squared(weights.value), np.square(weights.error), squared(reference.row_sum)
        centred = np.where(self.blocked, 0, squared(reference.weights - reference.row_sum))
        magnitude = own * squared(reference.weights)
        inherited = (own * d_weights + held * centred).sum(axis=-1, keepdims=True)
        row = rules.variance(narrow) * self.sums(row_sum, magnitude) + row_sum * self.drift(own)
        difference = (1 - 2 * np.sqrt(own)) * d_weights + inherited + _sharing(weights) * row
        if self.graph.policy.flash:
            difference = np.maximum(difference, d_weights + _sharing(weights) * self.flash_row_sum(d_context))
        rounding = rules.variance(narrow) * (1 + rules.casts(narrow)) * (magnitude + own * (row_sum + centred))
        variance = np.where(self.blocked, 0, held * centred + own * np.maximum(difference, 0) + rounding)
        return rules.store(Pair(reference.scores, np.sqrt(variance)), *self.graph.holdings(2))

    def sums(self, total: Array | float, squares: Array) -> Array:
        """(n/3) S² + (n/6 + 1) Σ t² of each row, [B, H, T, 1]."""
        terms = self.graph.terms
        return np.asarray(terms / 3 * total + (terms / 6 + 1) * squares.sum(axis=-1, keepdims=True))

    def drift(self, own: Array) -> Array:
        """Variance of Σ P about 1: of the sum it was divided by, of the division and of storing."""
        softmax, storage = self.rules.variance(self.arithmetic("softmax")), self.rules.variance(self.rules.storage)
        lost = np.square(_lost(np.sqrt(own), self.arithmetic("softmax"))) / 16
        return np.asarray(softmax * self.sums(1.0, own) + (softmax + storage) * own.sum(axis=-1, keepdims=True) + lost)

    def flash_row_sum(self, d_context: Pair) -> Array:
        """Variance of D as rowsum(dcontext · context), [B, H, T, 1]."""
        context, width = self.stages.context, self.case.value_head_dim
        left, right = squared(d_context.value), squared(context.value)
        inherited = left * np.square(context.error) + np.square(d_context.error) * right
        sums = width / 3 * squared(self.reference.row_sum) + (width / 6 + 1) * (left * right).sum(-1, keepdims=True)
        own = self.rules.variance(self.arithmetic("softmax_gradient")) * sums
        return np.asarray(inherited.sum(axis=-1, keepdims=True) + own)


def _lost(weights: Array, arithmetic: Format) -> Array:
    """What a sum of the weights of a row, one after another, may lose of them; [B, H, T, 1]."""
    return np.asarray(faint(weights, weights.sum(axis=-1, keepdims=True), arithmetic).sum(axis=-1, keepdims=True))


def _coherence(value: Array) -> Array:
    """(Σ x)²/Σ x² over the queries, at least 1: n where all n are the same, about 1 where signs are mixed; [..., 1, d].
    For the variance of an error that each query has x times."""
    total = squared(value.sum(axis=-2, keepdims=True))
    squares = squared(value).sum(axis=-2, keepdims=True)
    return np.asarray(np.maximum(total / np.where(squares > 0, squares, 1), 1))


def _sharing(weights: Pair) -> Array:
    """How many keys share the weight of a row, 1/Σ P²: with the variance of an error of the row raised by it, the keys'
    shares P_j of the error, added as if they were independent, make up the whole; [B, H, T, 1]."""
    total = squared(weights.value).sum(axis=-1, keepdims=True)
    return np.asarray(1 / np.where(total > 0, total, 1))
