"""Faults of the backward pass alone: output and weights are right."""

from __future__ import annotations

import numpy as np

from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Role, Setting, Tape


class RowSumMissing(Attention):
    """The softmax's Jacobian product loses its row sum: dS = P ∘ dP."""

    name = "planted/gradient-row-sum-missing"

    def softmax_backward(self, setting: Setting, tape: Tape, weights: Array) -> Array:
        return np.asarray(tape.probabilities * weights)


class NanLeak(Attention):
    """The row sum of a fully blocked row is 0/0 in the backward pass; keys that other rows share turn NaN."""

    name = "planted/gradient-nan-leak"

    def softmax_backward(self, setting: Setting, tape: Tape, weights: Array) -> Array:
        scores = super().softmax_backward(setting, tape, weights)
        empty = (tape.probabilities == 0).all(axis=-1, keepdims=True)
        return np.where(empty, np.nan, scores).astype(scores.dtype)


class NanInAnotherRow(Attention):
    """Where a sample has a fully blocked row, the gradient of another of its rows is NaN."""

    name = "planted/gradient-nan-in-another-row"

    def scores_backward(self, setting: Setting, tape: Tape, scores: Array) -> tuple[Array, Array]:
        query, key = super().scores_backward(setting, tape, scores)
        empty = (tape.probabilities == 0).all(axis=-1)
        beside = np.roll(empty, 1, axis=-1) & ~empty
        return np.where(beside[..., None], np.nan, query).astype(query.dtype), key


class KeyUnscaled(Attention):
    """dK lacks the scale."""

    name = "planted/gradient-key-unscaled"

    def scores_backward(self, setting: Setting, tape: Tape, scores: Array) -> tuple[Array, Array]:
        query, _ = super().scores_backward(setting, tape, scores)
        return query, setting.keep(self.product(setting, scores.swapaxes(-1, -2), tape.query))


class BiasGradientMissesToken(Attention):
    """Bias gradients sum over all positions but the last."""

    name = "planted/gradient-bias-misses-token"

    def bias_gradient(self, setting: Setting, outputs: Array) -> Array:
        return super().bias_gradient(setting, outputs[:, :-1])


class BiasGradientAveraged(Attention):
    """Bias gradients sum over positions and take the mean over the batch."""

    name = "planted/gradient-bias-averaged"

    def bias_gradient(self, setting: Setting, outputs: Array) -> Array:
        return setting.keep(super().bias_gradient(setting, outputs) / max(len(outputs), 1))


class BiasGradientInStorage(Attention):
    """Bias gradients of 16-bit inputs are summed in 16 bits, one position after another."""

    name = "planted/gradient-bias-summed-in-storage"

    def bias_gradient(self, setting: Setting, outputs: Array) -> Array:
        total = setting.keep(np.zeros(outputs.shape[-1]))
        for row in outputs.reshape(-1, outputs.shape[-1]):
            total = setting.keep(total + row)
        return total


class ValueUnmasked(Attention):
    """dV is taken with weights that were recomputed without the mask."""

    name = "planted/gradient-value-unmasked"

    def aggregate_backward(self, setting: Setting, tape: Tape, context: Array) -> tuple[Array, Array]:
        weights, _ = super().aggregate_backward(setting, tape, context)
        unmasked = setting.keep(self.softmax(setting, tape.scores))
        return weights, setting.keep(self.product(setting, unmasked.swapaxes(-1, -2), context))


class GroupTakesFirstHead(Attention):
    """A shared key/value head is given the gradient of one of its query heads instead of their sum."""

    name = "planted/gradient-group-takes-first-head"

    def group_backward(self, setting: Setting, role: Role, heads: Array) -> Array:
        return heads[:, :: heads.shape[1] // setting.heads(role)]


class SharedInputOverwritten(Attention):
    """The gradient of an input used twice is overwritten by its last use instead of summed."""

    name = "planted/gradient-shared-input-overwritten"

    def gather(self, setting: Setting, by_role: dict[Role, Array]) -> dict[str, Array]:
        names = setting.problem.input_names
        return {name: by_role[role] for name, role in zip(names, by_role, strict=True)}


class BlockedKeyGradient(Attention):
    """The gradient of a blocked score is not masked: a small number where exactly 0 is due."""

    name = "planted/gradient-at-blocked-keys"

    def softmax_backward(self, setting: Setting, tape: Tape, weights: Array) -> Array:
        scores, blocked = (super().softmax_backward(setting, tape, weights), self.blocked(setting))
        scores[..., : blocked.shape[-1]] += np.where(blocked, 1e-6, 0).astype(scores.dtype)
        return scores
