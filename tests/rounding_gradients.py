"""The backward pass of the attention that rounds after every operation."""

from __future__ import annotations

import numpy as np

from conformance.spec import Array
from tests.rounding_attention import RoundingAttention


class RoundingGradients(RoundingAttention):
    """Forward and backward; see :class:`tests.rounding_attention.RoundingAttention`."""

    def outputs(self) -> dict[str, Array]:
        self.forward()
        found = {"attn_output": self.output}
        if self.given_weights is not None:
            found["attn_weights"] = self.given_weights
        if self.problem.case.wants_gradients:
            with np.errstate(invalid="ignore"):
                found |= {f"{name}.gradient": array for name, array in self.backward().items()}
        return {name: array.astype(self.storage) for name, array in found.items()}

    def backward(self) -> dict[str, Array]:
        case, cotangent = self.problem.case, self.take(self.problem.cotangent)
        d_joined = self.keep(self.product(cotangent, self.parameters["output_weight"].T))
        d_context = self.split(d_joined, case.num_heads)
        weights = self.weights_again() if self.choices.kernel == "flash" else self.weights
        d_scores = self.d_scores(weights, d_context)
        query, key = self.d_query_and_key(d_scores)
        value = self.over_queries(weights, d_context)
        found = {"output_weight": self.weight_gradient(self.join(self.context), cotangent)}
        found["output_bias"] = self.rows_sum(cotangent.reshape(-1, cotangent.shape[-1]))
        rows: dict[str, Array] = {}
        for name, heads in (("query", query), ("key", key), ("value", value)):
            joined = self.join(heads)
            length = getattr(self.problem, name).shape[1]
            rows[name] = joined[:, :length]
            found[f"{name}_weight"] = self.weight_gradient(self.take(getattr(self.problem, name)), rows[name])
            found[f"{name}_bias"] = self.rows_sum(rows[name].reshape(-1, joined.shape[-1]))
            if case.bias_kv and name != "query":
                found["bias_k" if name == "key" else "bias_v"] = self.rows_sum(joined[:, length])
        found |= self.inputs(rows)
        wanted = (*case.input_gradients, *self.problem.parameters.present)
        return {name: found[name] for name in wanted}

    def weights_again(self) -> Array:
        rough = 1.9e-4 if self.storage.itemsize == 2 else 0.0
        exponent = self.done(np.where(self.blocked, 0, self.scores - self.log_sum))
        return self.keep(np.where(self.blocked, 0, self.exp(exponent, rough)).astype(self.format))

    def d_scores(self, weights: Array, d_context: Array) -> Array:
        d_weights = self.keep(self.product(d_context, self.value.swapaxes(-1, -2)))
        d_weights = np.where(self.blocked, 0, d_weights)
        if self.choices.kernel == "flash":
            row_sum = self.total(self.done(d_context * self.context))
        else:
            row_sum = self.total(self.done(weights * d_weights))
        if self.choices.jacobian == "centred":
            d_scores = self.done(weights * self.done(d_weights - row_sum))
        else:
            d_scores = self.done(self.done(weights * d_weights) - self.done(weights * row_sum))
        return self.keep(np.where(self.blocked, 0, d_scores))

    def d_query_and_key(self, d_scores: Array) -> tuple[Array, Array]:
        sign, factor, root = self.format.type(self.signed[0]), self.factor(), self.factor(root=True)
        if self.choices.scale == "scores":
            d_scores = self.keep(self.done(d_scores * self.after))
        query = self.keep(self.product(d_scores, self.scaled_key))
        key = self.over_queries(d_scores, self.scaled_query)
        match self.choices.scale:
            case "query":
                query = self.done(query * (sign * factor))
            case "key":
                key = self.done(key * (sign * factor))
            case "split":
                query, key = self.done(query * (sign * root)), self.done(key * root)
        return self.store(query), self.store(key)

    def over_queries(self, left: Array, right: Array) -> Array:
        """leftᵀ · right, summed over the query heads of each group, in one sum or head by head."""
        case, left = self.problem.case, left.swapaxes(-1, -2)
        kv_heads, uses = case.num_kv_heads, case.num_heads // case.num_kv_heads
        if self.choices.sums == "together":
            batch, _, length, queries = left.shape
            left = left.reshape(batch, kv_heads, uses, length, queries).swapaxes(2, 3)
            left = left.reshape(batch, kv_heads, length, uses * queries)
            return self.store(self.product(left, right.reshape(batch, kv_heads, uses * queries, right.shape[-1])))
        heads = self.keep(self.product(left, right))
        heads = heads.reshape(heads.shape[0], kv_heads, uses, *heads.shape[2:])
        return self.store(self.sum([heads[:, :, use] for use in range(uses)]))

    def weight_gradient(self, inputs: Array, rows: Array) -> Array:
        left, right = (array.reshape(-1, array.shape[-1]) for array in (inputs, rows))
        return self.store(self.product(left.T, right))

    def rows_sum(self, rows: Array) -> Array:
        return self.store(self.sum(list(rows) or [np.zeros(rows.shape[1:], self.format)]))

    def inputs(self, rows: dict[str, Array]) -> dict[str, Array]:
        """Gradients of the inputs; one object collects those of its uses, in one product or several."""
        found: dict[str, list[str]] = {}
        for role, name in zip(("query", "key", "value"), self.problem.input_names, strict=True):
            found.setdefault(name, []).append(role)
        return {name: self.input_gradient(rows, uses) for name, uses in found.items()}

    def input_gradient(self, rows: dict[str, Array], uses: list[str]) -> Array:
        weights = [self.parameters[f"{use}_weight"].T for use in uses]
        if self.choices.sums == "together":
            packed = np.concatenate([rows[use] for use in uses], axis=-1)
            return self.store(self.product(packed, np.concatenate(weights)))
        parts = [self.store(self.product(rows[use], weight)) for use, weight in zip(uses, weights, strict=True)]
        total = parts[0]
        for part in parts[1:]:
            total = self.store(self.done(total + part))
        return total
