"""Multi-head attention at fifty digits, forward and backward, element by element on arrays of mpmath numbers."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np

from conformance.problem import Problem
from conformance.spec import Array

DIGITS = 50


def precise(array: Array) -> Array:
    """The same numbers as mpmath objects; float64 holds every storage format exactly."""
    return np.asarray(np.vectorize(lambda number: mpmath.mpf(float(number)), otypes=[object])(array))


def product(left: Array, right: Array) -> Array:
    """[..., m, n] @ [..., n, p] of objects."""
    terms = left[..., :, :, None] * right[..., None, :, :]
    total: Array = np.add.reduce(terms, axis=-2, initial=mpmath.mpf(0), dtype=object)
    return total


class PreciseAttention:
    """One problem at fifty digits, head by head and query by query. Overrides replace inputs or parameters."""

    def __init__(self, problem: Problem, **overrides: Array) -> None:
        case = problem.case
        self.problem, self.case = problem, case
        self.arrays: dict[str, Array] = {
            name: precise(getattr(problem, name)) for name in ("query", "key", "value", "cotangent")
        }
        self.arrays |= {name: precise(array) for name, array in problem.parameters.present.items()}
        for name, array in overrides.items():
            owners = dict(zip(("query", "key", "value"), problem.input_names, strict=True))
            self.arrays |= dict.fromkeys([role for role, own in owners.items() if own == name] or [name], array)
        self.scale = 1 / mpmath.sqrt(case.head_dim) if case.scale is None else mpmath.mpf(case.scale)

    def projected(self, name: str) -> Array:
        result = product(self.arrays[name], self.arrays[f"{name}_weight"])
        return result + self.arrays[f"{name}_bias"] if f"{name}_bias" in self.arrays else result

    def rows_of_keys(self, name: str) -> Array:
        rows = [self.projected(name)]
        batch, _, width = rows[0].shape
        if self.case.bias_kv:
            extra = self.arrays["bias_k" if name == "key" else "bias_v"]
            rows.append(np.broadcast_to(extra, (batch, 1, width)))
        if self.case.zero_attention:
            rows.append(np.full((batch, 1, width), mpmath.mpf(0), object))
        return np.concatenate(rows, axis=1)

    def visible(self, sample: int, head: int, row: int) -> list[tuple[int, Any]]:
        """Key indices that a query sees, with the additive bias on each."""
        mask = self.problem.mask
        blocked, bias = mask.blocked(), mask.bias()
        found: list[tuple[int, Any]] = []
        for key in range(self.case.source_length):
            place = (sample, head, row, key)
            if blocked is not None and np.broadcast_to(blocked, mask.shape)[place]:
                continue
            added = 0.0 if bias is None else float(np.broadcast_to(bias, mask.shape)[place])
            if added != -np.inf:
                found.append((key, mpmath.mpf(added)))
        return found + [(self.case.source_length + extra, mpmath.mpf(0)) for extra in range(self.case.extra_keys)]

    def forward(self) -> dict[str, Array]:
        case = self.case
        query, self.keys, self.values = self.projected("query"), self.rows_of_keys("key"), self.rows_of_keys("value")
        self.queries, zero = query, mpmath.mpf(0)
        shape = (case.batch, case.num_heads, case.target_length, self.keys.shape[1])
        self.weights = np.full(shape, zero, object)
        self.joined = np.full((*query.shape[:2], case.num_heads * case.value_head_dim), zero, object)
        for sample, head, row in np.ndindex(shape[:3]):
            own_query, own_key, own_value = self.columns(head)
            seen = self.visible(sample, head, row)
            scores = {
                key: self.scale * np.sum(query[sample, row, own_query] * self.keys[sample, key, own_key]) + added
                for key, added in seen
            }
            total = sum((mpmath.exp(score) for score in scores.values()), zero)
            for key, score in scores.items():
                weight = mpmath.exp(score) / total
                self.weights[sample, head, row, key] = weight
                self.joined[sample, row, self.context_columns(head)] += weight * self.values[sample, key, own_value]
        output = product(self.joined, self.arrays["output_weight"])
        if "output_bias" in self.arrays:
            output = output + self.arrays["output_bias"]
        return {"attn_output": output, "attn_weights": self.weights}

    def columns(self, head: int) -> tuple[slice, slice, slice]:
        case, shared = self.case, head // (self.case.num_heads // self.case.num_kv_heads)
        width, value_width = case.head_dim, case.value_head_dim
        return (
            slice(head * width, (head + 1) * width),
            slice(shared * width, (shared + 1) * width),
            slice(shared * value_width, (shared + 1) * value_width),
        )

    def context_columns(self, head: int) -> slice:
        return slice(head * self.case.value_head_dim, (head + 1) * self.case.value_head_dim)

    def gradients(self) -> dict[str, Array]:
        """Gradients of ``sum(attn_output · cotangent)`` by name of input or parameter; call after forward."""
        cotangent, case = self.arrays["cotangent"], self.case
        d_joined = product(cotangent, self.arrays["output_weight"].T)
        grown = {name: np.full_like(array, mpmath.mpf(0)) for name, array in self._grown()}
        for sample, head, row in np.ndindex(self.weights.shape[:3]):
            own_query, own_key, own_value = self.columns(head)
            d_context = d_joined[sample, row, self.context_columns(head)]
            seen = [key for key, _ in self.visible(sample, head, row)]
            weights = self.weights[sample, head, row]
            d_weights = {key: np.sum(d_context * self.values[sample, key, own_value]) for key in seen}
            centre = sum((weights[key] * d_weights[key] for key in seen), mpmath.mpf(0))
            for key in seen:
                grown["value"][sample, key, own_value] += weights[key] * d_context
                d_score = self.scale * weights[key] * (d_weights[key] - centre)
                grown["query"][sample, row, own_query] += d_score * self.keys[sample, key, own_key]
                grown["key"][sample, key, own_key] += d_score * self.queries[sample, row, own_query]
        found = {"output_weight": self._outer(self.joined, cotangent), "output_bias": self._rows(cotangent)}
        inputs: dict[str, Array] = {}
        for (name, array), shared in zip(grown.items(), self.problem.input_names, strict=True):
            rows = array[:, : self.arrays[name].shape[1]]
            found |= {f"{name}_weight": self._outer(self.arrays[name], rows), f"{name}_bias": self._rows(rows)}
            if case.bias_kv and name != "query":
                found["bias_k" if name == "key" else "bias_v"] = self._rows(array[:, case.source_length, None])
            given = product(rows, self.arrays[f"{name}_weight"].T)
            inputs[shared] = inputs[shared] + given if shared in inputs else given
        wanted = (*case.input_gradients, *self.problem.parameters.present)
        return {name: (inputs | found)[name] for name in wanted}

    def _grown(self) -> list[tuple[str, Array]]:
        return [("query", self.queries), ("key", self.keys), ("value", self.values)]

    def _outer(self, left: Array, right: Array) -> Array:
        return product(left.reshape(-1, left.shape[-1]).T, right.reshape(-1, right.shape[-1]))

    def _rows(self, array: Array) -> Array:
        total: Array = np.add.reduce(array.reshape(-1, array.shape[-1]), axis=0, initial=mpmath.mpf(0), dtype=object)
        return total
