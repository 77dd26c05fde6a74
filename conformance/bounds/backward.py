"""The error bound of the backward pass of ``sum(attn_output · cotangent)``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.forward import ForwardGraph, Stages
from conformance.bounds.running_error import OVERFLOW, Pair, Rules, absolute, capped, term_count
from conformance.bounds.softmax_error import rebuilt_weights
from conformance.policy import Format
from conformance.reference import Backward, flat, join_heads, split_heads, sum_groups
from conformance.spec import Array, Case

_SHARED: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # the uses of each input object
    "self": {"query": ("query", "key", "value")},
    "key-value": {"query": ("query",), "key": ("key", "value")},
    "query-key": {"query": ("query", "key"), "value": ("value",)},
}
_SEPARATE: Mapping[str, tuple[str, ...]] = {"query": ("query",), "key": ("key",), "value": ("value",)}


@dataclass(frozen=True)
class BackwardGraph:
    """The backward graph that follows one forward graph."""

    graph: ForwardGraph
    stages: Stages
    reference: Backward

    @property
    def case(self) -> Case:
        return self.graph.case

    @property
    def rules(self) -> Rules:
        return self.graph.rules

    @property
    def blocked(self) -> Array:
        return self.graph.reference.blocked

    def arithmetic(self, stage: str) -> Format:
        return self.graph.arithmetic(stage)

    def run(self) -> dict[str, Pair]:
        """The gradients of inputs that are distinct objects and of all parameters, by name."""
        cotangent = self.graph.dropped(self.graph.input("cotangent"), self.graph.reference.kept.output)
        weight = self.graph.parameter("output_weight").transposed()
        value = join_heads(self.reference.context)
        d_joined = self.rules.product(cotangent, weight, value, self.arithmetic("products"))
        context = split_heads(self.rules.store(d_joined).error, self.case.num_heads)
        heads = self.d_heads(self.graph.handed_on("d_context", Pair(self.reference.context, context)))
        return self.projections(heads) | self.parameters("output", self.stages.joined, cotangent)

    # Heads --------------------------------------------------------------------------------------------------------

    def d_heads(self, d_context: Pair) -> dict[str, Pair]:
        """Gradients of query, key and value heads, summed over the query heads that share one."""
        weights = self.graph.handed_on("weights_again", self.weights_again())
        d_scores = self.graph.handed_on("d_scores", self.d_scores(weights, d_context))
        return {
            "query": self.graph.handed_on("d_query", self.d_query(d_scores)),
            "key": self.graph.handed_on("d_key", self.d_key(d_scores)),
            "value": self.graph.handed_on("d_value", self.grouped(self.rules.store(self.d_value(weights, d_context)))),
        }

    def d_query(self, d_scores: Pair) -> Pair:
        """dQ = c dS K."""
        (to_query, to_key), batched = self.graph.roots, self.arithmetic("batched_products")
        value = self.reference.query * to_key
        query = self.rules.product(d_scores, self.stages.key_scaled, value, batched, holding=self.holding)
        lost = self.graph.lost(d_scores.magnitude, self.graph.reference.key)
        return self.scaled(Pair(query.value, np.where(lost, OVERFLOW, query.error)), to_query)

    def d_key(self, d_scores: Pair) -> Pair:
        """dK = c dSᵀ Q."""
        to_query, to_key = self.graph.roots
        key = self.over_queries(d_scores, self.stages.query_scaled, self.reference.key * to_query, self.holding)
        lost = self.graph.lost(d_scores.transposed().magnitude, self.graph.reference.query)
        scaled = self.scaled(Pair(key.value, np.where(lost, OVERFLOW, key.error)), to_key)
        return self.grouped(scaled, *self.graph.holdings(-2))

    @property
    def holding(self) -> float:
        """The factor by which an implementation may hold the gradients of query and key before the scale."""
        return max(1.0, *self.graph.holdings(-1), 0.0)

    def d_value(self, weights: Pair, d_context: Pair) -> Pair:
        """dV = Pᵀ dcontext, with the weights after dropout."""
        dropped = self.graph.dropped(weights, self.graph.reference.kept.weights)
        return self.over_queries(dropped, d_context, self.reference.value)

    def over_queries(self, left: Pair, right: Pair, value: Array, holding: float = 1.0) -> Pair:
        """leftᵀ · right. Where heads share a key, one sum may run over the queries of all of them."""
        left, kv_heads = left.transposed(), self.case.num_kv_heads
        terms = np.repeat(sum_groups(term_count(left, right), kv_heads), self.case.num_heads // kv_heads, axis=1)
        batched = self.arithmetic("batched_products")
        return self.rules.product(left, right, value, batched, terms=terms, holding=holding)

    def scaled(self, pair: Pair, factor: float) -> Pair:
        """The other √c; an implementation may hold the gradient of c · query, or of query itself."""
        stored = self.rules.store(pair, *self.graph.holdings(-1))
        return self.rules.store(self.rules.scaled(stored, factor, self.graph.root_error))

    def weights_again(self) -> Pair:
        """The weights as the backward pass holds them: those of the forward pass, or rebuilt by a flash kernel."""
        held = self.stages.held_weights
        if not self.graph.policy.flash:
            return held
        softmax = self.arithmetic("softmax")
        exponential = self.graph.exponential(softmax)
        error = rebuilt_weights(self.rules, held.value, self.stages.scores, self.blocked, softmax, exponential)
        again = self.rules.store(Pair(held.value, error))
        return Pair(held.value, np.maximum(held.error, again.error))

    def d_scores(self, weights: Pair, d_context: Pair) -> Pair:
        """dS_j = P_j (dP_j − Σ_k P_k dP_k). The error of P enters the sum against the centred dP, because the
        weights sum to 1 up to rounding: a saturated row does not blow the bound up.

        The roundings cover P (dP − D) and P dP − P D alike.
        """
        rules, jvp, reference = self.rules, self.arithmetic("softmax_gradient"), self.reference
        value = self.stages.value.transposed()
        batched = self.arithmetic("batched_products")
        raw = rules.store(rules.product(d_context, value, reference.dropped_weights, batched))
        raw = self.graph.dropped(raw, self.graph.reference.kept.weights)
        d_weights = Pair(reference.weights, np.where(self.blocked, 0, raw.error))
        own = absolute(weights.value)
        centred = np.where(self.blocked, 0, absolute(reference.weights - reference.row_sum))
        row_sum = Pair(reference.row_sum, self.row_sum_error(weights, d_weights, centred))
        difference = np.maximum(1 - 2 * own, 0) * d_weights.error + row_sum.error
        if self.graph.policy.flash:
            row_sum = Pair(row_sum.value, np.maximum(row_sum.error, self.flash_row_sum_error(d_context)))
            difference = np.maximum(difference, d_weights.error + row_sum.error)
        total = weights.error * (centred + difference) + own * difference
        roundoff = rules.roundoff(jvp) * (1 + rules.casts(jvp))
        rounding = d_weights.magnitude + row_sum.magnitude + centred + difference
        total = total + 1.01 * roundoff * weights.magnitude * rounding + 3 * jvp.underflow
        total = np.where(weights.magnitude > 0, total, 0)
        return rules.store(Pair(reference.scores, capped(total)), *self.graph.holdings(2))

    def row_sum_error(self, weights: Pair, d_weights: Pair, centred: Array) -> Array:
        """Error of Σ_k P_k dP_k, [B, H, T, 1]."""
        rules, jvp = self.rules, self.arithmetic("softmax_gradient")
        reached, terms = weights.magnitude, self.graph.terms
        inherited = (reached * d_weights.error + weights.error * centred).sum(axis=-1, keepdims=True)
        rebuilt = self.graph.policy.flash  # from log-sum-exp: nothing normalises them again
        drift = weights.error.sum(axis=-1, keepdims=True) if rebuilt else self.graph.drift(weights)
        magnitude = (reached * d_weights.magnitude).sum(axis=-1, keepdims=True)
        own = (terms + 1 + 2 * rules.casts(jvp)) * (rules.roundoff(jvp) * magnitude + jvp.underflow)
        return capped(inherited + absolute(self.reference.row_sum) * drift + own)

    def flash_row_sum_error(self, d_context: Pair) -> Array:
        """Error of the same sum taken as rowsum(dcontext · context), [B, H, T, 1]."""
        jvp, context = self.arithmetic("softmax_gradient"), self.stages.context
        inherited = absolute(d_context.value) * context.error + d_context.error * context.magnitude
        own = self.rules.roundoff(jvp) * (d_context.magnitude * context.magnitude) + jvp.underflow
        own = (self.case.value_head_dim + 1 + 2 * self.rules.casts(jvp)) * own
        return capped((inherited + own).sum(axis=-1, keepdims=True))

    def grouped(self, pair: Pair, *holdings: float) -> Pair:
        """Sum over the query heads of each group, held before or after the scale."""
        kv_heads, uses = self.case.num_kv_heads, self.case.num_heads // self.case.num_kv_heads
        if uses == 1:
            return pair
        batch, _, length, width = pair.value.shape
        shape = (batch, kv_heads, uses, length, width)
        heads = Pair(pair.value.reshape(shape), pair.error.reshape(shape))
        value = sum_groups(pair.value, kv_heads)
        return self.rules.store(self.rules.summed(heads, 2, value, self.arithmetic("bias_gradients")), *holdings)

    # Projections --------------------------------------------------------------------------------------------------

    def projections(self, heads: dict[str, Pair]) -> dict[str, Pair]:
        """Gradients of inputs, of projection parameters and of the extra rows."""
        found: dict[str, Pair] = {}
        rows: dict[str, Pair] = {}
        for name, pair in heads.items():
            joined = Pair(join_heads(pair.value), join_heads(pair.error))
            length = self.graph.reference.inputs[name].shape[1]
            if self.case.bias_kv and name != "query":
                extra = "bias_k" if name == "key" else "bias_v"
                found[extra] = self.bias_gradient(extra, Pair(joined.value[:, length], joined.error[:, length]))
            rows[name] = Pair(joined.value[:, :length], joined.error[:, :length])
            found |= self.parameters(name, self.graph.input(name), rows[name])
        for name, uses in _SHARED.get(self.case.sharing, _SEPARATE).items():
            gradient = self.input_gradient(name, {use: rows[use] for use in uses})
            found[name] = self.graph.handed_on(f"{name}.gradient", gradient)
        return found

    def parameters(self, name: str, inputs: Pair, rows: Pair) -> dict[str, Pair]:
        """dW = Xᵀ dQ and db = Σ dQ, over all B·L rows."""
        left, right = (Pair(flat(pair.value), flat(pair.error)) for pair in (inputs, rows))
        value = self.reference.gradients[f"{name}_weight"]
        weight = self.rules.product(left.transposed(), right, value, self.arithmetic("weight_gradients"))
        found = {f"{name}_weight": self.graph.handed_on(f"{name}_weight.gradient", self.rules.store(weight))}
        if f"{name}_bias" in self.reference.gradients:
            found[f"{name}_bias"] = self.bias_gradient(f"{name}_bias", right)
        return found

    def bias_gradient(self, name: str, rows: Pair) -> Pair:
        total = self.rules.summed(rows, 0, self.reference.gradients[name], self.arithmetic("bias_gradients"))
        return self.graph.handed_on(f"{name}.gradient", self.rules.store(total))

    def input_gradient(self, name: str, rows: dict[str, Pair]) -> Pair:
        """dX = dQ Wᵀ. The uses of one object may be one packed product, all terms in one sum, or several products
        that are stored and then added."""
        weights = {use: self.graph.parameter(f"{use}_weight").transposed() for use in rows}
        terms = sum((term_count(rows[use], weights[use]) for use in rows), np.zeros(()))
        parts = []
        for use, pair in rows.items():
            value = np.matmul(*(array.astype(np.float64) for array in (pair.value, weights[use].value)))
            product = self.rules.product(pair, weights[use], value, self.arithmetic("products"), terms=terms)
            parts.append(self.rules.store(product))
        if len(parts) == 1:
            return parts[0]
        value = self.reference.gradients[name]
        stacked = Pair(np.stack([part.value for part in parts]), np.stack([part.error for part in parts]))
        total = self.rules.summed(stacked, 0, value, self.rules.storage)
        return Pair(value, np.where(total.error + absolute(value) > self.rules.storage.largest, OVERFLOW, total.error))
