"""Faults of dropout: each is right in evaluation unless it says otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.problem import Outputs, Problem
from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Setting, Tape


class NotRescaled(Attention):
    """What dropout keeps is not multiplied by 1/(1 − p)."""

    name = "planted/dropout-not-rescaled"

    def kept(self, setting: Setting, weights: Array) -> Array:
        return np.sign(super().kept(setting, weights))


class RescaledByKeep(Attention):
    """What dropout keeps is multiplied by 1 − p: the rate is read as a rate of keeping, once."""

    name = "planted/dropout-rescaled-by-keep"

    def kept(self, setting: Setting, weights: Array) -> Array:
        case = setting.problem.case
        factor = setting.arithmetic.type((1 - case.dropout) ** 2)
        return np.asarray(super().kept(setting, weights) * factor) if case.drops else super().kept(setting, weights)


class KeepsInstead(Attention):
    """Dropout keeps each weight with probability p, and scales as if it dropped with p."""

    name = "planted/dropout-keeps-instead"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        return ~super().keeps(setting, weights)


class SlightlyMore(Attention):
    """Dropout drops a tenth more than it is asked to."""

    name = "planted/dropout-slightly-more"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        drawn = np.random.default_rng(setting.problem.seed).random(weights.shape)
        return np.asarray(drawn >= 1.1 * setting.problem.case.dropout)


class HeadsShare(Attention):
    """All heads share one dropout mask."""

    name = "planted/dropout-heads-share"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        return np.broadcast_to(super().keeps(setting, weights)[:, :1], weights.shape)


class SamplesShare(Attention):
    """All samples share one dropout mask."""

    name = "planted/dropout-samples-share"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        return np.broadcast_to(super().keeps(setting, weights)[:1], weights.shape)


class WholeRows(Attention):
    """Dropout drops or keeps all weights of a query together."""

    name = "planted/dropout-whole-rows"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        return np.broadcast_to(super().keeps(setting, weights)[..., :1], weights.shape)


class WholeKeys(Attention):
    """Dropout drops or keeps a key for all queries together."""

    name = "planted/dropout-whole-keys"

    def keeps(self, setting: Setting, weights: Array) -> Array:
        return np.broadcast_to(super().keeps(setting, weights)[:, :, :1], weights.shape)


class SameEveryCall(Attention):
    """Every call drops the same weights."""

    name = "planted/dropout-same-every-call"

    def receive(self, problem: Problem) -> Problem:
        return replace(super().receive(problem), seed=1)


class InEvaluation(Attention):
    """Dropout stays on in evaluation."""

    name = "planted/dropout-in-evaluation"

    def receive(self, problem: Problem) -> Problem:
        problem = super().receive(problem)
        return replace(problem, case=replace(problem.case, mode="train"))


class NeverOn(Attention):
    """Dropout is off in training too."""

    name = "planted/dropout-never-on"

    def kept(self, setting: Setting, weights: Array) -> Array:
        return np.asarray(setting.arithmetic.type(1))


class Renormalised(Attention):
    """After dropout each row is divided by its sum again."""

    name = "planted/dropout-renormalised"

    def drop(self, setting: Setting, weights: Array, kept: Array) -> Array:
        dropped = super().drop(setting, weights, kept)
        total = dropped.sum(axis=-1, keepdims=True)
        return dropped if kept.ndim == 0 else setting.keep(dropped / np.where(total == 0, 1, total))


class BeforeSoftmax(Attention):
    """Dropout writes −∞ over scores, before the softmax."""

    name = "planted/dropout-before-softmax"

    def mask(self, setting: Setting, scores: Array) -> Array:
        masked = super().mask(setting, scores)
        return np.where(super().kept(setting, masked) == 0, -np.inf, masked)

    def kept(self, setting: Setting, weights: Array) -> Array:
        return np.asarray(setting.arithmetic.type(1))


class Gaussian(Attention):
    """Weights are multiplied by normal noise of mean 1 instead of being dropped."""

    name = "planted/dropout-gaussian"

    def kept(self, setting: Setting, weights: Array) -> Array:
        case = setting.problem.case
        if not case.drops:
            return super().kept(setting, weights)
        noise = np.random.default_rng(setting.problem.seed).standard_normal(weights.shape)
        return np.asarray(1 + noise * np.sqrt(case.dropout / (1 - case.dropout))).astype(weights.dtype)


class OutputOnly(Attention):
    """Dropout is applied to the output and not to the weights."""

    name = "planted/dropout-output-only"

    def kept(self, setting: Setting, weights: Array) -> Array:
        return np.asarray(setting.arithmetic.type(1))

    def output(self, setting: Setting, joined: Array) -> Array:
        output = super().output(setting, joined)
        return setting.keep(output * super().kept(setting, output))


class OtherMaskInBackward(Attention):
    """The backward pass of the values uses a dropout mask of its own."""

    name = "planted/dropout-other-mask-in-backward"

    def aggregate_backward(self, setting: Setting, tape: Tape, context: Array) -> tuple[Array, Array]:
        again = replace(setting, problem=replace(setting.problem, seed=setting.problem.seed + 1))
        dropped = self.drop(setting, tape.weights, self.kept(again, tape.weights))
        return super().aggregate_backward(setting, replace(tape, dropped=dropped), context)


class NoMaskInBackward(Attention):
    """The gradient of the weights does not go back through dropout."""

    name = "planted/dropout-no-mask-in-backward"

    def aggregate_backward(self, setting: Setting, tape: Tape, context: Array) -> tuple[Array, Array]:
        one = np.asarray(setting.arithmetic.type(1))
        return super().aggregate_backward(setting, replace(tape, kept=one), context)


class WeightsNotRescaled(Attention):
    """The returned weights are those after dropout without their factor 1/(1 − p)."""

    name = "planted/dropout-weights-not-rescaled"

    def handed_back(self, tape: Tape) -> Array:
        return np.where(tape.kept == 0, 0, tape.weights)


class WeightsOfAnotherDraw(Attention):
    """The returned weights were dropped by another mask than the output."""

    name = "planted/dropout-weights-of-another-draw"

    def attend(self, problem: Problem) -> Outputs:
        found = super().attend(problem)
        if not problem.case.drops or found.attn_weights is None:
            return found
        setting = Setting.of(problem)
        weights = setting.take(found.attn_weights)
        again = self.kept(replace(setting, problem=replace(problem, seed=problem.seed + 1)), weights)
        return replace(found, attn_weights=self.drop(setting, weights, again).astype(setting.storage))
