"""The reference: multi-head attention, its weights and every gradient, in more precision than the subject.

Float32 and 16-bit subjects are compared with float64 arithmetic, float64 subjects with extended precision. Every
stage is kept, because the bound of :mod:`conformance.bounds.outputs` is derived from the numbers of each stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.dropout.kept import EVERYTHING, Kept, times
from conformance.extended import DOUBLE, EXTENDED, product
from conformance.problem import Problem
from conformance.spec import Array


@dataclass(frozen=True, eq=False)
class Forward:
    """Stages of the forward pass, float64 or longdouble. N = S + E keys; key and value heads are repeated to H."""

    inputs: dict[str, Array]  # query [B, T, D], key [B, S, Dk], value [B, S, Dv], cotangent [B, T, Do]
    parameters: dict[str, Array]
    blocked: Array  # bool [B, H, T, N]
    query: Array  # [B, H, T, Dh]
    key: Array  # [B, H, N, Dh]
    value: Array  # [B, H, N, Dhv]
    bias: Array | None  # additive part, broadcastable to [B, H, T, N], finite
    products: Array  # [B, H, T, N], Q Kᵀ before the scale
    scores: Array  # [B, H, T, N], scaled, the bias added, nothing masked
    attn_weights: Array  # [B, H, T, N]
    dropped_weights: Array  # [B, H, T, N], after dropout
    context: Array  # [B, H, T, Dhv]
    joined: Array  # [B, T, H·Dhv]
    undropped_output: Array  # [B, T, Do], before dropout of the output itself
    attn_output: Array  # [B, T, Do]
    scale: np.floating
    kept: Kept

    @property
    def fully_blocked(self) -> Array:
        """bool [B, H, T, 1]: rows in which every key is blocked."""
        return np.asarray(self.blocked.all(axis=-1, keepdims=True))


@dataclass(frozen=True)
class Backward:
    """Stages of the backward pass of ``sum(attn_output · cotangent)``; ``gradients`` by name of input or parameter."""

    context: Array  # [B, H, T, Dhv]
    dropped_weights: Array  # [B, H, T, N], before dropout is gone back through
    weights: Array  # [B, H, T, N]; 0 where blocked
    row_sum: Array  # [B, H, T, 1], Σ_j P_j dP_j
    scores: Array  # [B, H, T, N]
    query: Array  # [B, H, T, Dh], before the scale
    key: Array  # [B, H, N, Dh], before the scale
    value: Array  # [B, H, N, Dhv]
    gradients: dict[str, Array]


@dataclass(frozen=True)
class Reference:
    forward: Forward
    backward: Backward | None

    def outputs(self) -> dict[str, Array]:
        """Every judged output by name; gradients are named ``<input or parameter>.gradient``."""
        found = {"attn_output": self.forward.attn_output, "attn_weights": self.forward.attn_weights}
        if self.forward.kept.weights is not None:
            found["dropped_weights"] = self.forward.dropped_weights
        if self.backward is not None:
            found |= {f"{name}.gradient": array for name, array in self.backward.gradients.items()}
        return found


def reference_of(problem: Problem, kept: Kept = EVERYTHING) -> Reference:
    """Forward, and backward where the case asks for gradients; ``kept`` is what dropout kept."""
    forward = forward_of(problem, kept)
    return Reference(forward, _backward(problem, forward) if problem.case.wants_gradients else None)


def split_heads(array: Array, heads: int) -> Array:
    """[B, L, heads·d] → [B, heads, L, d]."""
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def join_heads(array: Array) -> Array:
    """[B, heads, L, d] → [B, L, heads·d]."""
    batch, heads, length, width = array.shape
    return array.swapaxes(1, 2).reshape(batch, length, heads * width)


def sum_groups(array: Array, kv_heads: int) -> Array:
    """[B, H, N, d] → [B, K, N, d]: the sum over the query heads that share a key and value head."""
    batch, heads, length, width = array.shape
    total: Array = array.reshape(batch, kv_heads, heads // kv_heads, length, width).sum(axis=2)
    return total


def flat(array: Array) -> Array:
    """[B, L, d] → [B·L, d]."""
    return array.reshape(-1, array.shape[-1])


def _wide(problem: Problem, array: Array) -> Array:
    """The array in the reference's dtype; non-finite poison, which must not matter, becomes 0."""
    wide = array.astype(EXTENDED if problem.case.compute == "float64" else DOUBLE)
    return np.where(np.isfinite(wide), wide, 0) if problem.case.data.poison is not None else wide


def forward_of(problem: Problem, kept: Kept = EVERYTHING) -> Forward:
    """The forward pass alone."""
    case = problem.case
    inputs = {name: _wide(problem, getattr(problem, name)) for name in ("query", "key", "value", "cotangent")}
    parameters = {name: array.astype(inputs["query"].dtype) for name, array in problem.parameters.present.items()}
    query = split_heads(_linear("query", inputs, parameters), case.num_heads)
    key, value = (_keys(problem, _linear(name, inputs, parameters), name, parameters) for name in ("key", "value"))
    blocked, bias = blocked_and_bias(problem, query.dtype)
    one = query.dtype.type(1)
    scale = one / np.sqrt(one * case.head_dim) if case.scale is None else one * case.scale
    products = product(query, key.swapaxes(-1, -2))
    scores = products * scale
    if bias is not None:
        scores = scores + bias
    weights = softmax(scores, blocked)
    dropped = times(weights, kept.weights)
    context = product(dropped, value)
    joined = join_heads(context)
    output = product(joined, parameters["output_weight"]) + parameters.get("output_bias", 0)
    return Forward(
        *(inputs, parameters, blocked, query, key, value, bias, products, scores, weights),
        *(dropped, context, joined, output, times(output, kept.output), scale, kept),
    )


def _linear(name: str, inputs: dict[str, Array], parameters: dict[str, Array]) -> Array:
    return product(inputs[name], parameters[f"{name}_weight"]) + parameters.get(f"{name}_bias", 0)


def _keys(problem: Problem, projected: Array, name: str, parameters: dict[str, Array]) -> Array:
    """Append the extra rows, split heads, and repeat each head for the query heads of its group."""
    case, rows = problem.case, [projected]
    shape = (projected.shape[0], 1, projected.shape[2])
    if case.bias_kv:
        rows.append(np.broadcast_to(parameters["bias_k" if name == "key" else "bias_v"], shape))
    if case.zero_attention:
        rows.append(np.zeros(shape, projected.dtype))
    heads = split_heads(np.concatenate(rows, axis=1), case.num_kv_heads)
    return np.repeat(heads, case.num_heads // case.num_kv_heads, axis=1)


def blocked_and_bias(problem: Problem, dtype: np.dtype[np.floating]) -> tuple[Array, Array | None]:
    """bool [B, H, T, N] of blocked positions, by Booleans or by −inf, and the finite bias or None."""
    shape, extra = problem.mask.shape, ((0, 0), (0, 0), (0, 0), (0, problem.case.extra_keys))
    union = problem.mask.blocked()
    blocked = np.zeros(shape, np.bool_) if union is None else np.broadcast_to(union, shape)
    bias = problem.mask.bias()
    if bias is not None:
        bias = np.broadcast_to(bias, shape).astype(dtype)
        blocked = blocked | np.isneginf(bias)
        bias = np.pad(np.where(np.isneginf(bias), 0, bias), extra)
    return np.pad(blocked, extra), bias


def softmax(scores: Array, blocked: Array) -> Array:
    """Softmax over the keys that are not blocked; blocked keys and fully blocked rows are exactly 0."""
    masked = np.where(blocked, -np.inf, scores)
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    exponential = np.exp(masked - np.where(np.isfinite(largest), largest, 0))
    total = exponential.sum(axis=-1, keepdims=True)
    weights: Array = exponential / np.where(total > 0, total, 1)
    return weights


def _backward(problem: Problem, forward: Forward) -> Backward:
    case, inputs, parameters = problem.case, forward.inputs, forward.parameters
    kept = forward.kept
    cotangent = times(inputs["cotangent"], kept.output)
    d_context = split_heads(product(cotangent, parameters["output_weight"].T), case.num_heads)
    d_dropped = np.where(forward.blocked, 0, product(d_context, forward.value.swapaxes(-1, -2)))
    d_weights = times(d_dropped, kept.weights)
    row_sum = (forward.attn_weights * d_weights).sum(axis=-1, keepdims=True)
    d_scores = forward.attn_weights * np.where(forward.blocked, 0, d_weights - row_sum)
    d_query = product(d_scores, forward.key)
    d_key = product(d_scores.swapaxes(-1, -2), forward.query)
    d_value = product(forward.dropped_weights.swapaxes(-1, -2), d_context)
    gradients = {
        "output_weight": product(flat(forward.joined).T, flat(cotangent)),
        "output_bias": flat(cotangent).sum(axis=0),
    }
    to_inputs = {}
    scaled = {"query": d_query * forward.scale, "key": d_key * forward.scale, "value": d_value}
    for name, heads in scaled.items():
        projected = join_heads(heads if name == "query" else sum_groups(heads, case.num_kv_heads))
        rows = projected[:, : inputs[name].shape[1]]
        to_inputs[name] = product(rows, parameters[f"{name}_weight"].T)
        gradients[f"{name}_weight"] = product(flat(inputs[name]).T, flat(rows))
        gradients[f"{name}_bias"] = flat(rows).sum(axis=0)
        if case.bias_kv and name != "query":
            gradients["bias_k" if name == "key" else "bias_v"] = projected[:, case.source_length].sum(axis=0)
    gradients = shared_inputs(problem, to_inputs) | gradients
    asked = {name: gradients[name] for name in (*case.input_gradients, *problem.parameters.present)}
    return Backward(d_context, d_dropped, d_weights, row_sum, d_scores, d_query, d_key, d_value, asked)


def shared_inputs(problem: Problem, separate: dict[str, Array]) -> dict[str, Array]:
    """Sum the gradients of inputs that are one object."""
    total: dict[str, Array] = {}
    for role, name in zip(("query", "key", "value"), problem.input_names, strict=True):
        total[name] = separate[role] if name not in total else total[name] + separate[role]
    return total
