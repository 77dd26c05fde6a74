"""The derived error bound: how far each element of each output of a correct implementation may lie from the reference.

The rules of :mod:`conformance.running_error` are carried along the graph of attention, forward and backward, with
the numbers of the case itself. Every placement of the scale, the biases and the intermediate stores is covered at
once; what else is allowed is the subject's :class:`~conformance.policy.Policy`. Nothing here is tuned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.extended import roundoff
from conformance.policy import FORMATS, Format, Policy
from conformance.reference import Backward, Forward, Reference, flat, join_heads, split_heads, sum_groups
from conformance.running_error import (
    NOT_JUDGED,
    OVERFLOW,
    Pair,
    Rules,
    absolute,
    capped,
    exact,
    exponent_error,
    factors,
    softmax_hull,
)
from conformance.spec import Array, Case


def bounds_of(case: Case, reference: Reference, policy: Policy) -> dict[str, Array]:
    """Bound of every output of ``reference.outputs()``, float64 in the output's shape.

    0 asks for equality; infinity means that the element may overflow and is not judged.
    """
    graph = _Graph.of(case, reference.forward, policy)
    stages = graph.forward()
    found = {"attn_output": stages.attn_output.error, "attn_weights": stages.attn_weights.error}
    if reference.backward is not None:
        gradients = graph.backward(stages, reference.backward)
        found |= {f"{name}.gradient": gradients[name].error for name in reference.backward.gradients}
    return {name: np.where(error >= NOT_JUDGED, np.inf, error) for name, error in found.items()}


@dataclass(frozen=True)
class _Stages:
    """Pairs of the forward pass that the backward pass needs again."""

    query_scaled: Pair  # √c · query
    key_scaled: Pair
    value: Pair
    scores: Pair
    weights_unstored: Pair
    attn_weights: Pair
    context: Pair
    joined: Pair
    attn_output: Pair


@dataclass(frozen=True)
class _Graph:
    """The graph of one case under one policy."""

    case: Case
    reference: Forward
    policy: Policy
    rules: Rules
    terms: Array  # [B, H, T, 1], unblocked keys of each row, at least 1

    @classmethod
    def of(cls, case: Case, forward: Forward, policy: Policy) -> _Graph:
        rules = Rules(FORMATS[case.compute], roundoff(forward.query.dtype))
        terms = np.maximum((~forward.blocked).sum(axis=-1, keepdims=True), 1)
        return cls(case, forward, policy, rules, terms)

    # Small helpers -------------------------------------------------------------------------------------------------

    def arithmetic(self, stage: str) -> Format:
        return self.policy.format(getattr(self.policy, stage), self.rules.storage)

    def given(self, array: Array) -> Pair:
        """An input or parameter: exact, or cast to the low format of a mixed policy."""
        return self.rules.store(exact(array)) if self.case.mixed else exact(array)

    def parameter(self, name: str) -> Pair:
        return self.given(self.reference.parameters[name])

    @property
    def roots(self) -> tuple[float, float]:
        """Factors of query and key whose product is the scale."""
        scale = float(self.reference.scale)
        root = float(np.sqrt(abs(scale)))
        return (-root if scale < 0 else root), root

    @property
    def root_error(self) -> float:
        """Relative error of √c: 0 for a power of two, else that of the format in which the constant is held."""
        root = self.roots[1]
        return 0.0 if root == 0 or np.log2(root).is_integer() else self.arithmetic("scale").unit_roundoff

    def exponential(self, softmax: Format) -> float:
        relative = self.policy.exponential_relative if self.rules.storage.significand < 20 and self.policy.flash else 0
        once = self.policy.exponential_units * softmax.unit_roundoff + relative
        return once * (1 + self.policy.rescalings) + 4 * self.rules.reference_roundoff

    def linear(self, inputs: Pair, name: str, value: Array) -> Pair:
        """x W + b, stored before and after the bias."""
        rules, weight = self.rules, self.parameter(f"{name}_weight")
        bias = self.reference.parameters.get(f"{name}_bias")
        before = value if bias is None else value - bias
        inner = inputs.value.shape[-1]
        result = rules.store(rules.product(inputs, weight, before, inner, self.arithmetic("products")))
        if bias is None:
            return result
        return rules.store(rules.add(result, self.given(bias), value))

    # Forward ------------------------------------------------------------------------------------------------------

    def forward(self) -> _Stages:
        reference, rules = self.reference, self.rules
        query_scaled, key_scaled = self.scaled("query"), self.scaled("key")
        value = self.heads("value")
        scores = self.scores(query_scaled, key_scaled)
        unstored = self.softmax(scores)
        weights = self.stored_weights(unstored)
        context = rules.product(weights, value, reference.context, self.terms, self.arithmetic("batched_products"))
        context = rules.store(rules.rounded(context, self.arithmetic("batched_products"), 2))
        context = Pair(context.value, np.where(reference.fully_blocked, 0, context.error))
        joined = Pair(reference.joined, join_heads(context.error))
        output = self.linear(joined, "output", reference.attn_output)
        if not self.case.mixed:  # the output of a row blocked in every head is the bias, exactly
            neutral = reference.fully_blocked.all(axis=1)
            output = Pair(output.value, np.where(neutral, 0, output.error))
        return _Stages(query_scaled, key_scaled, value, scores, unstored, weights, context, joined, output)

    def heads(self, name: str) -> Pair:
        """The projection of an input, its extra rows appended, split and repeated as the reference does."""
        case, reference = self.case, self.reference
        heads: Array = getattr(reference, name)
        own = case.num_heads if name == "query" else case.num_kv_heads
        length = reference.inputs[name].shape[1]
        first = heads[:, :: case.num_heads // own, :length]
        projected = self.linear(self.given(reference.inputs[name]), name, join_heads(first))
        error = np.repeat(split_heads(projected.error, own), case.num_heads // own, axis=1)
        extra = heads.shape[2] - length
        if extra:
            appended = self.rules.store(exact(heads[:, :, length:])).error if case.mixed else 0.0
            error = np.concatenate([error, np.broadcast_to(appended, heads[:, :, length:].shape)], axis=2)
        return Pair(heads, error)

    def scaled(self, name: str) -> Pair:
        """√c · query or √c · key, stored on the way in and out."""
        factor = self.roots[0 if name == "query" else 1]
        heads = self.rules.store(self.heads(name))
        scaled = self.rules.scaled(heads, factor, self.root_error, heads.value * factor)
        return self.rules.store(scaled)

    def scores(self, query: Pair, key: Pair) -> Pair:
        reference, rules = self.reference, self.rules
        arithmetic = self.arithmetic("batched_products")
        value = reference.scores if reference.bias is None else reference.scores - reference.bias
        scores = rules.store(rules.product(query, key.transposed(), value, self.case.head_dim, arithmetic))
        scale = abs(float(reference.scale))
        unscaled = absolute(reference.products) * (1 + 4 * rules.storage.unit_roundoff)
        unscaled = unscaled + scores.error / (scale if scale > 0 else 1)
        error = np.where(unscaled > rules.storage.largest, OVERFLOW, scores.error)
        if reference.bias is None:
            return Pair(reference.scores, error)
        return rules.store(Pair(reference.scores, error))

    def softmax(self, scores: Pair) -> Pair:
        """Softmax before it is stored; a row with a score that may overflow, even a blocked one, is not judged:
        an additive −inf meets +inf there."""
        reference, softmax = self.reference, self.arithmetic("softmax")
        blocked, weights = reference.blocked, reference.attn_weights
        visible = np.where(blocked, -np.inf, scores.value)
        largest = visible.max(axis=-1, keepdims=True, initial=-np.inf)
        largest = np.where(np.isfinite(largest), largest, 0)
        narrow = softmax.significand < self.rules.storage.significand
        if narrow:  # the scores are cast to the narrower softmax format first
            scores = Pair(scores.value, scores.error + softmax.unit_roundoff * scores.magnitude)
        exponent = exponent_error(scores, blocked, largest, softmax, self.exponential(softmax))
        error = softmax_hull(weights, exponent)
        relative = self.terms * softmax.unit_roundoff * 1.01 + factors(2 + self.policy.rescalings, softmax)
        error = error + (absolute(weights) + error) * relative + 4 * softmax.underflow
        overflows = (scores.error >= NOT_JUDGED).any(axis=-1, keepdims=True) & ~reference.fully_blocked
        error = np.where(blocked, 0, error)
        return Pair(weights, capped(np.where(overflows, OVERFLOW, error)))

    def stored_weights(self, unstored: Pair) -> Pair:
        stored = self.rules.store(unstored)
        void = unstored.error >= NOT_JUDGED
        error = np.where(self.reference.blocked & ~void, 0, stored.error)
        return Pair(stored.value, error)

    # Backward -----------------------------------------------------------------------------------------------------

    def backward(self, stages: _Stages, reference: Backward) -> dict[str, Pair]:
        rules, case = self.rules, self.case
        products, batched = self.arithmetic("products"), self.arithmetic("batched_products")
        cotangent = self.given(self.reference.inputs["cotangent"])
        weight = self.parameter("output_weight")
        d_joined = rules.product(cotangent, weight.transposed(), join_heads(reference.context), case.output_dim, products)
        d_context = Pair(reference.context, split_heads(rules.store(d_joined).error, case.num_heads))
        weights = self.weights_again(stages)
        d_scores = self.d_scores(stages, weights, d_context, reference)
        visible_queries = np.maximum((~self.reference.blocked).sum(axis=-2), 1)[..., None]
        to_query, to_key = self.roots
        query = rules.product(d_scores, stages.key_scaled, reference.query * to_key, self.terms, batched)
        key = rules.product(
            d_scores.transposed(), stages.query_scaled, reference.key * to_query, visible_queries, batched
        )
        value = rules.product(weights.transposed(), d_context, reference.value, visible_queries, batched)
        heads = {
            "query": self.scaled_gradient(query, to_query),
            "key": self.scaled_gradient(key, to_key),
            "value": rules.store(value),
        }
        return self.projection_gradients(heads) | self.output_gradients(stages, cotangent)

    def scaled_gradient(self, pair: Pair, factor: float) -> Pair:
        rules = self.rules
        scaled = rules.scaled(rules.store(pair), factor, self.root_error, pair.value * factor)
        return rules.store(rules.store(scaled))

    def weights_again(self, stages: _Stages) -> Pair:
        """The weights as the backward pass holds them: stored, or rebuilt as exp(s − lse) by a flash kernel, where
        a term u·|lse| does not cancel."""
        if not self.policy.flash:
            return stages.attn_weights
        softmax, blocked = self.arithmetic("softmax"), self.reference.blocked
        weights, scores = absolute(stages.attn_weights.value), stages.scores
        visible = np.where(blocked, -np.inf, scores.value)
        largest = visible.max(axis=-1, keepdims=True, initial=-np.inf)
        largest = np.where(np.isfinite(largest), largest, 0)
        total = np.exp(visible - largest).sum(axis=-1, keepdims=True)
        log_sum = (largest + np.log(np.where(total > 0, total, 1))).astype(np.float64)
        error = np.where(blocked, 0, np.minimum(scores.error, 1e3))
        distance = np.where(blocked, 0, np.abs(scores.value - log_sum).astype(np.float64))
        shift = 2 * np.abs(log_sum) + 2 * error.max(axis=-1, keepdims=True, initial=0) + distance + error
        exponent = error + (weights * error).sum(axis=-1, keepdims=True) + softmax.unit_roundoff * (shift + self.terms)
        exponent = np.minimum(exponent + 2 * self.exponential(softmax), 300.0)
        rebuilt = self.rules.store(Pair(stages.attn_weights.value, weights * np.expm1(exponent) + 4 * softmax.underflow))
        both = np.maximum(stages.attn_weights.error, rebuilt.error)
        void = stages.attn_weights.error >= NOT_JUDGED
        return Pair(stages.attn_weights.value, np.where(blocked & ~void, 0, both))

    def d_scores(self, stages: _Stages, weights: Pair, d_context: Pair, reference: Backward) -> Pair:
        """dS_j = P_j (dP_j − Σ_k P_k dP_k). The error of P enters the sum against the centred dP, because the
        weights sum to 1 up to rounding: a saturated row does not blow the bound up."""
        rules, jvp, blocked = self.rules, self.arithmetic("softmax_gradient"), self.reference.blocked
        batched = self.arithmetic("batched_products")
        raw = rules.product(
            d_context, stages.value.transposed(), reference.weights, self.case.value_head_dim, batched
        )
        d_weights = Pair(reference.weights, np.where(blocked, 0, rules.store(raw).error))
        own, slack = absolute(weights.value), weights.error
        centred = np.where(blocked, 0, absolute(reference.weights - reference.row_sum))
        error = self.row_sum_error(weights, d_weights, centred, reference)
        difference = np.maximum(1 - 2 * own, 0) * d_weights.error + error
        if self.policy.flash:
            difference = np.maximum(difference, d_weights.error + self.flash_row_sum_error(stages, d_context))
        difference = difference + jvp.unit_roundoff * (centred + difference)
        total = slack * (centred + difference) + own * difference
        total = total + 2 * jvp.unit_roundoff * (own + slack) * (centred + difference) + jvp.underflow
        stored = rules.store(Pair(reference.scores, capped(np.where(blocked, 0, total))))
        void = weights.error >= NOT_JUDGED
        return Pair(reference.scores, np.where(void, OVERFLOW, np.where(blocked, 0, stored.error)))

    def row_sum_error(self, weights: Pair, d_weights: Pair, centred: Array, reference: Backward) -> Array:
        """Error of Σ_k P_k dP_k, [B, H, T, 1]."""
        jvp, storage = self.arithmetic("softmax_gradient"), self.rules.storage
        softmax = self.arithmetic("softmax")
        slack = np.where(self.reference.blocked, 0, weights.error)
        reached = weights.magnitude
        inherited = (reached * d_weights.error + slack * centred).sum(axis=-1, keepdims=True)
        drift = slack.sum(axis=-1, keepdims=True)  # of Σ P from 1
        if not self.policy.flash:
            roundings = np.where(self.reference.blocked, 0, storage.unit_roundoff * reached + storage.smallest_subnormal)
            normalised = roundings.sum(axis=-1, keepdims=True) + 1.5 * (self.terms + 3) * softmax.unit_roundoff
            drift = np.minimum(drift, normalised)
        own = (self.terms + 1) * jvp.unit_roundoff * (reached * d_weights.magnitude).sum(axis=-1, keepdims=True)
        return capped(inherited + absolute(reference.row_sum) * drift + own + self.terms * jvp.underflow)

    def flash_row_sum_error(self, stages: _Stages, d_context: Pair) -> Array:
        """Error of the same sum taken as rowsum(dcontext · context), [B, H, T, 1]."""
        jvp, context = self.arithmetic("softmax_gradient"), stages.context
        inherited = absolute(d_context.value) * context.error + d_context.error * context.magnitude
        own = (self.case.value_head_dim + 1) * jvp.unit_roundoff * (d_context.magnitude * context.magnitude)
        return capped((inherited + own).sum(axis=-1, keepdims=True))

    # Gradients of projections -------------------------------------------------------------------------------------

    def output_gradients(self, stages: _Stages, cotangent: Pair) -> dict[str, Pair]:
        return self.parameter_gradients("output", stages.joined, cotangent)

    def projection_gradients(self, heads: dict[str, Pair]) -> dict[str, Pair]:
        """Gradients of inputs, of projection parameters and of the extra rows."""
        found: dict[str, Pair] = {}
        to_inputs: dict[str, Pair] = {}
        for name, pair in heads.items():
            rows = self.grouped(pair) if name != "query" else pair
            rows = Pair(join_heads(rows.value), join_heads(rows.error))
            length = self.reference.inputs[name].shape[1]
            if self.case.bias_kv and name != "query":
                last = Pair(rows.value[:, length], rows.error[:, length])
                found["bias_k" if name == "key" else "bias_v"] = self.bias_gradient(last)
            rows = Pair(rows.value[:, :length], rows.error[:, :length])
            to_inputs[name] = self.input_gradient(name, rows)
            found |= self.parameter_gradients(name, self.given(self.reference.inputs[name]), rows)
        return found | self.shared(to_inputs)

    def grouped(self, pair: Pair) -> Pair:
        """Sum over the query heads of each group."""
        kv_heads, heads = self.case.num_kv_heads, self.case.num_heads
        if kv_heads == heads:
            return pair
        arithmetic = self.arithmetic("bias_gradients")
        magnitude = sum_groups(pair.magnitude, kv_heads)
        own = heads // kv_heads * arithmetic.unit_roundoff * magnitude + arithmetic.underflow
        value = sum_groups(pair.value, kv_heads)
        return self.rules.store(Pair(value, capped(sum_groups(pair.error, kv_heads) + own)))

    def input_gradient(self, name: str, rows: Pair) -> Pair:
        """dX = dQ Wᵀ. Inputs that are one object may go through one packed product, with all terms in one sum."""
        uses = {"self": 3, "key-value": 2 if name != "query" else 1}.get(self.case.sharing, 1)
        weight = self.parameter(f"{name}_weight").transposed()
        value = rows.value @ weight.value
        result = self.rules.product(rows, weight, value, uses * rows.value.shape[-1], self.arithmetic("products"))
        result = self.rules.store(result)
        neutral = self.neutral_rows(name)
        judged = result.error < NOT_JUDGED  # where a score may overflow, a NaN reaches even blocked positions
        return Pair(result.value, np.where(neutral[..., None] & judged, 0, result.error))

    def neutral_rows(self, name: str) -> Array:
        """bool [B, L]: queries that see nothing, or keys that nothing sees: their gradient is exactly 0."""
        blocked = self.reference.blocked
        if name == "query":
            seen: Array = blocked.all(axis=(1, 3))
            return seen
        unseen: Array = blocked.all(axis=(1, 2))[:, : self.case.source_length]
        return unseen

    def parameter_gradients(self, name: str, inputs: Pair, rows: Pair) -> dict[str, Pair]:
        """dW = Xᵀ dQ and db = Σ dQ, over all B·L rows."""
        left = Pair(flat(inputs.value).T, flat(inputs.error).T)
        right = Pair(flat(rows.value), flat(rows.error))
        value = np.zeros((left.value.shape[0], right.value.shape[1]))
        weight = self.rules.product(left, right, value, left.value.shape[1], self.arithmetic("weight_gradients"))
        weight = Pair(left.value.astype(np.float64) @ right.value.astype(np.float64), weight.error)
        return {f"{name}_weight": self.rules.store(weight), f"{name}_bias": self.bias_gradient(right)}

    def bias_gradient(self, rows: Pair) -> Pair:
        value = rows.value.sum(axis=0)
        return self.rules.store(self.rules.summed(rows, 0, value, self.arithmetic("bias_gradients")))

    def shared(self, separate: dict[str, Pair]) -> dict[str, Pair]:
        """Gradients of inputs that are one object are summed, with a rounding for each addition."""
        match self.case.sharing:
            case "self":
                groups = {"query": ("query", "key", "value")}
            case "key-value":
                groups = {"query": ("query",), "key": ("key", "value")}
            case _:
                groups = {name: (name,) for name in separate}
        found = {}
        for name, uses in groups.items():
            value = sum(separate[use].value for use in uses)
            error = sum(separate[use].error for use in uses)
            magnitude = sum(separate[use].magnitude for use in uses)
            if len(uses) > 1:
                error = capped(error + factors(len(uses), self.rules.storage) * magnitude)
            found[name] = Pair(np.asarray(value), np.asarray(error))
        return found
