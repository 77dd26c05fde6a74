"""Multi-head attention head by head: small matrices for each head, a loop, a concatenation, one output matrix.

Nothing is reshaped or transposed into a head axis here, so a fault in that bookkeeping elsewhere shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from adapters.numpy_core import (
    Attended,
    Masking,
    Precision,
    attend,
    attend_backward,
    kept_by_dropout,
    masking_of,
)
from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case


@dataclass(frozen=True)
class _Projection:
    """One head's own matrix and bias."""

    weight: Array  # [W, Dh]
    bias: Array | None  # [Dh]
    extra: Array | None = None  # [Dh], the row of bias_kv

    def __call__(self, array: Array, precision: Precision) -> Array:
        product: Array = array @ self.weight
        return precision.stored(product if self.bias is None else product + self.bias)


@dataclass(frozen=True)
class _Head:
    """The forward pass of one query head."""

    query: Array  # [B, T, Dh]
    key: Array  # [B, S + E, Dh]
    value: Array  # [B, S + E, Dhv]
    masking: Masking
    attended: Attended


class _Network:
    """The problem cut into heads, everything rounded to storage and held in the compute dtype."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.case: Case = problem.case
        self.precision = Precision.of(problem.case)
        self.masking = masking_of(problem, self.precision.compute)
        self.kept = kept_by_dropout(problem, self.precision.compute)
        stored = self.precision.stored
        self.query, self.key, self.value = stored(problem.query), stored(problem.key), stored(problem.value)
        self.parameters = {name: stored(array) for name, array in problem.parameters.present.items()}
        self.queries = self._cut("query", self.case.num_heads)
        self.keys = self._cut("key", self.case.num_kv_heads, "bias_k")
        self.values = self._cut("value", self.case.num_kv_heads, "bias_v")

    def _cut(self, name: str, heads: int, extra: str = "") -> list[_Projection]:
        """The small matrices W⁽⁰⁾, W⁽¹⁾ … of one projection, as copies of their own."""

        def pieces(full: str) -> list[Array | None]:
            array = self.parameters.get(full)
            if array is None:
                return [None] * heads
            width = array.shape[-1] // heads
            return [array[..., head * width : (head + 1) * width].copy() for head in range(heads)]

        weights = [weight for weight in pieces(f"{name}_weight") if weight is not None]
        return [
            _Projection(weight, bias, row)
            for weight, bias, row in zip(weights, pieces(f"{name}_bias"), pieces(extra), strict=True)
        ]

    def kv_head(self, head: int) -> int:
        """The key head that a query head reads."""
        return head // (self.case.num_heads // self.case.num_kv_heads)

    def forward(self, head: int) -> _Head:
        """Project, append the extra keys, attend: one head."""
        of_key, of_value = self.keys[self.kv_head(head)], self.values[self.kv_head(head)]
        query = self.queries[head](self.query, self.precision)
        key = self._appended(of_key(self.key, self.precision), of_key.extra)
        value = self._appended(of_value(self.value, self.precision), of_value.extra)
        masking = self.masking.head(head)
        kept = None if self.kept is None else self.kept[:, head]
        attended = attend(query, key, value, masking, self.case.effective_scale, self.precision, kept)
        return _Head(query, key, value, masking, attended)

    def _appended(self, rows: Array, extra: Array | None) -> Array:
        """[B, S, Dh] → [B, S + E, Dh]."""
        batch, _, width = rows.shape
        if extra is not None:
            rows = np.concatenate([rows, np.broadcast_to(extra, (batch, 1, width))], axis=1)
        if self.case.zero_attention:
            rows = np.concatenate([rows, np.zeros((batch, 1, width), rows.dtype)], axis=1)
        return rows


def attend_per_head(problem: Problem) -> Outputs:
    """Multi-head attention of a well-formed problem."""
    network = _Network(problem)
    heads = [network.forward(head) for head in range(problem.case.num_heads)]
    joined = np.concatenate([head.attended.aggregate for head in heads], axis=-1)
    output = joined @ network.parameters["output_weight"]
    if "output_bias" in network.parameters:
        output = output + network.parameters["output_bias"]
    return Outputs(
        attn_output=network.precision.result(output),
        attn_weights=network.precision.result(np.stack([head.attended.weights for head in heads], axis=1)),
        gradients=_backward(network, heads) if problem.case.wants_gradients else {},
    )


class _Sums(dict[str, Array]):
    """Gradients by name, each the sum of what was added to it."""

    def add(self, name: str, gradient: Array) -> None:
        self[name] = self[name] + gradient if name in self else gradient


def _backward(network: _Network, heads: list[_Head]) -> dict[str, Array]:
    """Gradients of sum(attn_output · cotangent), by name, each rounded once to storage."""
    precision, parameters = network.precision, network.parameters
    upstream = precision.stored(network.problem.cotangent)
    sums = _Sums()
    if "output_bias" in parameters:
        sums.add("output_bias", upstream.sum(axis=(0, 1)))
    sums.add("output_weight", np.concatenate([_outer(head.attended.aggregate, upstream) for head in heads], axis=0))
    of_query, of_key, of_value = zip(*_core_gradients(network, heads, upstream), strict=True)
    names = network.problem.input_names
    _project_back(network, sums, ("query", names[0]), network.query, network.queries, list(of_query))
    _project_back(network, sums, ("key", names[1]), network.key, network.keys, _by_kv_head(network, of_key))
    _project_back(network, sums, ("value", names[2]), network.value, network.values, _by_kv_head(network, of_value))
    return {name: precision.gradient_result(gradient) for name, gradient in sums.items()}


def _core_gradients(network: _Network, heads: list[_Head], upstream: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Gradients of each head's projected query, key and value."""
    width = network.case.value_head_dim
    for index, head in enumerate(heads):
        rows = network.parameters["output_weight"][index * width : (index + 1) * width]
        d_aggregate = network.precision.stored(upstream @ rows.T)
        scale = network.case.effective_scale
        core = attend_backward(d_aggregate, head.query, head.key, head.value, head.attended, head.masking, scale)
        yield core.query, core.key, core.value


def _by_kv_head(network: _Network, gradients: tuple[Array, ...]) -> list[Array]:
    """Sums over the query heads that read the same key head."""
    sums = _Sums()
    for head, gradient in enumerate(gradients):
        sums.add(str(network.kv_head(head)), gradient)
    return [sums[str(head)] for head in range(network.case.num_kv_heads)]


def _project_back(
    network: _Network,
    sums: _Sums,
    names: tuple[str, str],
    array: Array,
    projections: list[_Projection],
    gradients: list[Array],
) -> None:
    """Add the gradients of one projection's matrices, biases, extra row and input; ``names`` is (role, input)."""
    role, input_name = names
    source = array.shape[1]
    rounded = [network.precision.stored(gradient) for gradient in gradients]
    own = [gradient[:, :source] for gradient in rounded]
    sums.add(f"{role}_weight", np.concatenate([_outer(array, gradient) for gradient in own], axis=1))
    if projections[0].bias is not None:
        sums.add(f"{role}_bias", np.concatenate([gradient.sum(axis=(0, 1)) for gradient in own]))
    if projections[0].extra is not None:
        sums.add(f"bias_{role[0]}", np.concatenate([gradient[:, source].sum(axis=0) for gradient in rounded]))
    for projection, gradient in zip(projections, own, strict=True):
        sums.add(input_name, gradient @ projection.weight.T)


def _outer(array: Array, upstream: Array) -> Array:
    """Σ over batch and length: [B, L, Wi], [B, L, Wo] → [Wi, Wo]."""
    product: Array = np.tensordot(array, upstream, axes=([0, 1], [0, 1]))
    return product
