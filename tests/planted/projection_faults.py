"""Faults of the projections, of the heads, of the scale and of lengths."""

from __future__ import annotations

import math

import numpy as np

from conformance.problem import Problem
from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Role, Setting, check_call


class ReshapeWithTargetLength(Attention):
    """A notebook reshapes the key with the query's length: it raises, or misreads, as soon as T ≠ S."""

    name = "planted/reshape-with-target-length"

    def split(self, setting: Setting, role: Role, projected: Array) -> Array:
        if role != "key":
            return super().split(setting, role, projected)
        batch, target = setting.problem.query.shape[:2]
        return projected.reshape(batch, target, setting.heads(role), -1).transpose(0, 2, 1, 3)


class HeadsInterleaved(Attention):
    """Heads are taken as columns h, h + H, h + 2H …: reshaped to [L, Dh, H] instead of [L, H, Dh]."""

    name = "planted/heads-interleaved"

    def split(self, setting: Setting, role: Role, projected: Array) -> Array:
        batch, length, width = projected.shape
        heads = setting.heads(role)
        return projected.reshape(batch, length, width // heads, heads).transpose(0, 3, 1, 2)


class SplitWithoutTranspose(Attention):
    """[B, L, D] is viewed as [B, H, L, Dh] at once, which mixes positions and heads."""

    name = "planted/split-without-transpose"

    def split(self, setting: Setting, role: Role, projected: Array) -> Array:
        batch, length, width = projected.shape
        heads = setting.heads(role)
        return projected.reshape(batch, heads, length, width // heads)


class JoinWithoutTranspose(Attention):
    """[B, H, T, Dh] is viewed as [B, T, H·Dh] without moving the head axis back."""

    name = "planted/join-without-transpose"

    def join(self, setting: Setting, context: Array) -> Array:
        batch, heads, length, width = context.shape
        return context.reshape(batch, length, heads * width)


class ValueHeadsRolled(Attention):
    """Head h weighs the values of head h − 1: a packed weight is sliced from the wrong offset."""

    name = "planted/value-heads-rolled"

    def split(self, setting: Setting, role: Role, projected: Array) -> Array:
        heads = super().split(setting, role, projected)
        return np.roll(heads, 1, axis=1) if role == "value" else heads


class GroupedHeadsTiled(Attention):
    """Grouped heads are tiled (0, 1, 0, 1) where each must be repeated (0, 0, 1, 1)."""

    name = "planted/grouped-heads-tiled"

    def group(self, setting: Setting, heads: Array) -> Array:
        return np.tile(heads, (1, setting.problem.case.num_heads // heads.shape[1], 1, 1))


class ScaleSqrtEmbedDim(Attention):
    """Scores are divided by √D, the width of the model, instead of √Dh, the width of a head."""

    name = "planted/scale-sqrt-embed-dim"

    def scale(self, setting: Setting) -> float:
        case = setting.problem.case
        return 1 / math.sqrt(case.embed_dim) if case.scale is None else case.scale


class ScaleMissing(Attention):
    """Scores are not scaled at all."""

    name = "planted/scale-missing"

    def scale(self, setting: Setting) -> float:
        return 1.0


class ScaleOffByOnePercent(Attention):
    """The scale is 1 % too large: a constant rounded when it was written down."""

    name = "planted/scale-off-by-one-percent"

    def scale(self, setting: Setting) -> float:
        return super().scale(setting) * 1.01


class ScaleTwice(Attention):
    """The query is scaled beforehand and the fused operator scales again."""

    name = "planted/scale-twice"

    def scale(self, setting: Setting) -> float:
        return super().scale(setting) ** 2


class ScaleArgumentIgnored(Attention):
    """The caller's own scale is ignored in favour of 1/√Dh."""

    name = "planted/scale-argument-ignored"

    def scale(self, setting: Setting) -> float:
        return 1 / math.sqrt(setting.problem.case.head_dim)


class OutputProjectionMissing(Attention):
    """The joined heads are returned without W_O."""

    name = "planted/output-projection-missing"

    def output(self, setting: Setting, joined: Array) -> Array:
        return joined


class QueryBiasDropped(Attention):
    """The query projection forgets its bias."""

    name = "planted/query-bias-dropped"

    def bias_of(self, setting: Setting, name: str) -> Array:
        return setting.take(np.zeros(())) if name == "query" else super().bias_of(setting, name)


class KeyBiasDropped(Attention):
    """The key projection forgets its bias: seen only where extra key rows do not carry it."""

    name = "planted/key-bias-dropped"

    def bias_of(self, setting: Setting, name: str) -> Array:
        return setting.take(np.zeros(())) if name == "key" else super().bias_of(setting, name)


class ValueBiasDropped(Attention):
    """The value projection forgets its bias."""

    name = "planted/value-bias-dropped"

    def bias_of(self, setting: Setting, name: str) -> Array:
        return setting.take(np.zeros(())) if name == "value" else super().bias_of(setting, name)


class OutputBiasDropped(Attention):
    """The output projection forgets its bias."""

    name = "planted/output-bias-dropped"

    def bias_of(self, setting: Setting, name: str) -> Array:
        return setting.take(np.zeros(())) if name == "output" else super().bias_of(setting, name)


class MemoryOrderMisread(Attention):
    """The buffer of an input that is not contiguous is read as if it were."""

    name = "planted/memory-order-misread"

    def receive(self, problem: Problem) -> Problem:
        problem = super().receive(problem)
        return _with_inputs(problem, *(x.ravel("K").reshape(x.shape) for x in _inputs(problem)))


class ValueTruncatedToKeyLength(Attention):
    """Key and value of different lengths are cut to the shorter one without a word."""

    name = "planted/value-truncated-to-key-length"

    def receive(self, problem: Problem) -> Problem:
        check_call(problem, lengths=False)
        length = min(problem.key.shape[1], problem.value.shape[1])
        return _with_inputs(problem, problem.query, problem.key[:, :length], problem.value[:, :length])


class WrongPastSourceLength(Attention):
    """Only for T > S: queries from position S on are given the answer of query S − 1, a clipped index."""

    name = "planted/wrong-past-source-length"

    def aggregate(self, setting: Setting, weights: Array, value: Array) -> Array:
        context = super().aggregate(setting, weights, value)
        source = setting.mask.shape[3]
        rows = np.minimum(np.arange(context.shape[2]), max(source - 1, 0))
        return context[:, :, rows]


def _inputs(problem: Problem) -> tuple[Array, Array, Array]:
    return problem.query, problem.key, problem.value


def _with_inputs(problem: Problem, query: Array, key: Array, value: Array) -> Problem:
    return Problem(problem.case, query, key, value, problem.parameters, problem.mask, problem.cotangent)
