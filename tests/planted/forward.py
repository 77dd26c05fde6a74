"""The forward pass of the planted attention, one small overridable method for each stage."""

from __future__ import annotations

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import Array
from tests.planted.setting import Role, Setting, Tape, check_call


class Forward:
    """Multi-head attention in NumPy. 16-bit storage is computed in float32 and rounded where a stage ends; scores
    and softmax stay in float32."""

    def receive(self, problem: Problem) -> Problem:
        """The problem to answer; ValueError when the call is ill-formed."""
        check_call(problem)
        return problem

    def read_mask(self, problem: Problem) -> MaskArrays:
        """The mask as the stages see it."""
        return problem.mask

    def product(self, setting: Setting, left: Array, right: Array) -> Array:
        """Matrix product in the arithmetic format."""
        return np.asarray(np.matmul(left, right))

    def project(self, setting: Setting, role: Role) -> Array:
        """[B, L, width of the input] → [B, L, heads · head width]."""
        inputs = setting.take(getattr(setting.problem, role))
        weight = setting.take(getattr(setting.problem.parameters, f"{role}_weight"))
        return setting.keep(self.product(setting, inputs, weight) + self.bias_of(setting, role))

    def bias_of(self, setting: Setting, name: str) -> Array:
        """A bias vector, or zero where the case has none."""
        bias = getattr(setting.problem.parameters, f"{name}_bias")
        return np.zeros((), setting.arithmetic) if bias is None else setting.take(bias)

    def split(self, setting: Setting, role: Role, projected: Array) -> Array:
        """[B, L, heads · d] → [B, heads, L, d]; head 0 owns the first d columns."""
        batch, length, width = projected.shape
        heads = setting.heads(role)
        return projected.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)

    def extend(self, setting: Setting, role: Role, heads: Array) -> Array:
        """Append the extra key or value rows: the learnt one, then the zero one."""
        case, parameters = setting.problem.case, setting.problem.parameters
        batch, count, _, width = heads.shape
        learnt = parameters.bias_k if role == "key" else parameters.bias_v
        rows = [heads]
        if learnt is not None:
            row = setting.take(learnt).reshape(1, count, 1, width)
            rows.append(np.broadcast_to(row, (batch, count, 1, width)))
        if case.zero_attention:
            rows.append(np.zeros((batch, count, 1, width), setting.arithmetic))
        return np.concatenate(rows, axis=2)

    def group(self, setting: Setting, heads: Array) -> Array:
        """[B, K, L, d] → [B, H, L, d]: H/K neighbouring query heads share a key/value head."""
        return np.repeat(heads, setting.problem.case.num_heads // heads.shape[1], axis=1)

    def scale(self, setting: Setting) -> float:
        """The factor on the scores: the case's own, or 1/√Dh."""
        case = setting.problem.case
        return 1.0 / float(np.sqrt(case.head_dim)) if case.scale is None else case.scale

    def scores(self, setting: Setting, query: Array, key: Array) -> Array:
        """Scaled scores [B, H, T, S + E]."""
        scale = setting.arithmetic.type(self.scale(setting))
        return np.asarray(self.product(setting, query, key.swapaxes(-1, -2)) * scale)

    def blocked(self, setting: Setting) -> Array:
        """Where attention is forbidden by Booleans, [B, H, T, S]."""
        union = setting.mask.blocked()
        return np.broadcast_to(np.bool_(False) if union is None else union, setting.mask.shape)

    def additive(self, setting: Setting) -> Array:
        """The bias on the scores, [B, H, T, S]."""
        bias = setting.mask.bias()
        zero = np.zeros((), setting.arithmetic)
        return np.broadcast_to(zero if bias is None else setting.take(bias), setting.mask.shape)

    def mask(self, setting: Setting, scores: Array) -> Array:
        """Scores with the bias added and −inf where a key is blocked; extra rows are never blocked."""
        bias, source = self.additive(setting), setting.mask.shape[3]
        blocked = self.blocked(setting) | np.isneginf(bias)
        masked = scores.copy()
        masked[..., :source] = np.where(blocked, self.fill(setting), masked[..., :source] + bias)
        return masked

    def fill(self, setting: Setting) -> float:
        """The score of a blocked key."""
        return -np.inf

    def softmax(self, setting: Setting, masked: Array) -> Array:
        """Softmax over the keys; a row of −inf gives zeros."""
        powers = np.exp(masked - self.shift(setting, masked))
        total = powers.sum(axis=-1, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1, total).astype(powers.dtype))

    def shift(self, setting: Setting, masked: Array) -> Array:
        """What is subtracted before exponentiation: the largest score of the row, or 0 in an empty one."""
        largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
        return np.where(np.isneginf(largest), 0, largest).astype(masked.dtype)

    def keeps(self, setting: Setting, weights: Array) -> Array:
        """bool [B, H, T, S + E]: which weights dropout keeps."""
        drawn = np.random.default_rng(setting.problem.seed).random(weights.shape)
        return np.asarray(drawn >= setting.problem.case.dropout)

    def kept(self, setting: Setting, weights: Array) -> Array:
        """Factors of dropout: 0 or 1/(1 − p) in training, else 1."""
        case, one = setting.problem.case, setting.arithmetic.type(1)
        if not case.drops:
            return np.asarray(one)
        factor = one / setting.arithmetic.type(1 - case.dropout)
        return np.asarray(self.keeps(setting, weights) * factor)

    def drop(self, setting: Setting, weights: Array, kept: Array) -> Array:
        """Weights after dropout."""
        return weights if kept.ndim == 0 else setting.keep(weights * kept)

    def aggregate(self, setting: Setting, weights: Array, value: Array) -> Array:
        """[B, H, T, S + E] and [B, H, S + E, Dhv] → [B, H, T, Dhv]."""
        return setting.keep(self.product(setting, weights, value))

    def join(self, setting: Setting, context: Array) -> Array:
        """[B, H, L, d] → [B, L, H · d]."""
        batch, heads, length, width = context.shape
        return context.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)

    def output(self, setting: Setting, joined: Array) -> Array:
        """[B, T, H · Dhv] → [B, T, Do]."""
        weight = setting.take(setting.problem.parameters.output_weight)
        return setting.keep(self.product(setting, joined, weight) + self.bias_of(setting, "output"))

    def returned_weights(self, setting: Setting, weights: Array) -> Array:
        """The weights handed back, in the storage format."""
        return weights.astype(setting.storage)

    def forward(self, setting: Setting) -> Tape:
        """Run the stages in order."""
        query = self.split(setting, "query", self.project(setting, "query"))
        key, value = (
            self.group(setting, self.extend(setting, role, self.split(setting, role, self.project(setting, role))))
            for role in ("key", "value")
        )
        scores = self.scores(setting, query, key)
        probabilities = self.softmax(setting, self.mask(setting, scores))
        weights = setting.keep(probabilities)
        kept = self.kept(setting, weights)
        dropped = self.drop(setting, weights, kept)
        joined = self.join(setting, self.aggregate(setting, dropped, value))
        output = self.output(setting, joined)
        return Tape(query, key, value, scores, probabilities, weights, kept, dropped, joined, output)
