"""Multi-head attention in NumPy, all heads at once, forward and backward; and the announcement of both NumPy subjects.

The two subjects keep the whole contract. They share the softmax of :mod:`adapters.numpy_core` and differ in everything
around it: projections, splitting and joining of heads, and the sums of the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from adapters.numpy_checks import validate
from adapters.numpy_core import (
    Attended,
    Masking,
    Precision,
    attend,
    attend_backward,
    kept_by_dropout,
    masking_of,
)
from adapters.numpy_per_head import attend_per_head
from conformance.adapter import Adapter
from conformance.policy import Policy
from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case, Unsupported

# NumPy states for its float32 exp a largest relative error of 2.1264e-07 over all numbers, which is 3.6 units of
# roundoff (numpy/_core/src/umath/loops_exponent_log.dispatch.c.src). The scale is held in the compute dtype.
DECLARED = Policy(flash=False, scale="wide", exponential_units=4)


class _NumpySubject:
    gives_weights: bool = True
    gives_gradients: bool = True
    policy: Policy = DECLARED

    def versions(self) -> Mapping[str, str]:
        """Versions of NumPy and of ml_dtypes, which brings bfloat16."""
        return {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}

    def unsupported(self, case: Case) -> Unsupported | None:
        """None: every case can be answered."""
        return None


class NumpyReference(_NumpySubject):
    """All heads at once: one projection each for query, key and value, then [B, H, L, Dh] arrays."""

    name = "numpy/reference"

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises ValueError when the call is ill-formed."""
        validate(problem)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return _attend_all_heads(problem)


class NumpyPerHead(_NumpySubject):
    """H separate small matrices, a loop over heads, the concatenation of what they give, and the output projection."""

    name = "numpy/per-head"

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises ValueError when the call is ill-formed."""
        validate(problem)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return attend_per_head(problem)


@dataclass(frozen=True)
class _Pass:
    """What the forward pass leaves for the backward pass; everything in the compute dtype, rounded to storage."""

    problem: Problem
    precision: Precision
    masking: Masking
    inputs: tuple[Array, Array, Array]  # [B, T, D], [B, S, Dk], [B, S, Dv]
    parameters: Mapping[str, Array]
    query: Array  # [B, H, T, Dh]
    key: Array  # [B, H, S + E, Dh]: key heads repeated for the query heads that share them
    value: Array  # [B, H, S + E, Dhv]
    attended: Attended
    joined: Array  # [B, T, H·Dhv]


def _attend_all_heads(problem: Problem) -> Outputs:
    forward = _forward(problem)
    precision, parameters = forward.precision, forward.parameters
    return Outputs(
        attn_output=precision.result(_affine(forward.joined, parameters, "output")),
        attn_weights=precision.result(forward.attended.weights),
        gradients=_backward(forward) if problem.case.wants_gradients else {},
    )


def _forward(problem: Problem) -> _Pass:
    case, precision = problem.case, Precision.of(problem.case)
    masking = masking_of(problem, precision.compute)
    parameters = {name: precision.stored(array) for name, array in problem.parameters.present.items()}
    inputs = (precision.stored(problem.query), precision.stored(problem.key), precision.stored(problem.value))
    projected = [
        precision.stored(_affine(array, parameters, name))
        for name, array in zip(("query", "key", "value"), inputs, strict=True)
    ]
    shared_by = case.num_heads // case.num_kv_heads
    query = _split(projected[0], case.num_heads)
    key = _split(_with_extra_keys(projected[1], parameters.get("bias_k"), case), case.num_kv_heads)
    value = _split(_with_extra_keys(projected[2], parameters.get("bias_v"), case), case.num_kv_heads)
    key, value = np.repeat(key, shared_by, axis=1), np.repeat(value, shared_by, axis=1)
    kept = kept_by_dropout(problem, precision.compute)
    attended = attend(query, key, value, masking, case.effective_scale, precision, kept)
    joined = _join(attended.aggregate)
    return _Pass(problem, precision, masking, inputs, parameters, query, key, value, attended, joined)


def _affine(array: Array, parameters: Mapping[str, Array], name: str) -> Array:
    """array @ W + b, not yet rounded."""
    product: Array = array @ parameters[f"{name}_weight"]
    bias = parameters.get(f"{name}_bias")
    return product if bias is None else product + bias


def _with_extra_keys(projected: Array, row: Array | None, case: Case) -> Array:
    """[B, S, W] → [B, S + E, W]: the learnt row of ``bias_kv`` first, then the row of zeros of ``zero_attention``."""
    batch, _, width = projected.shape
    parts = [projected]
    if row is not None:
        parts.append(np.broadcast_to(row, (batch, 1, width)))
    if case.zero_attention:
        parts.append(np.zeros((batch, 1, width), projected.dtype))
    return np.concatenate(parts, axis=1)


def _split(array: Array, heads: int) -> Array:
    """[B, L, heads · W] → [B, heads, L, W], head 0 first."""
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _join(array: Array) -> Array:
    """[B, heads, L, W] → [B, L, heads · W]."""
    batch, heads, length, width = array.shape
    return array.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def _backward(forward: _Pass) -> dict[str, Array]:
    """Gradients of sum(attn_output · cotangent), by name, each rounded once to storage."""
    case, precision = forward.problem.case, forward.precision
    upstream = precision.stored(forward.problem.cotangent)
    gradients = _affine_gradients("output", forward.joined, upstream, forward.parameters)
    d_joined = precision.stored(upstream @ forward.parameters["output_weight"].T)
    core = attend_backward(
        _split(d_joined, case.num_heads),
        forward.query,
        forward.key,
        forward.value,
        forward.attended,
        forward.masking,
        case.effective_scale,
    )
    projected = {
        "query": _join(core.query),
        "key": _join(_sum_shared(core.key, case.num_kv_heads)),
        "value": _join(_sum_shared(core.value, case.num_kv_heads)),
    }
    source = forward.inputs[1].shape[1]
    for name, role in (("bias_k", "key"), ("bias_v", "value")):
        if name in forward.parameters:
            gradients[name] = precision.stored(projected[role][:, source]).sum(axis=0)
    for role, array, name in zip(("query", "key", "value"), forward.inputs, forward.problem.input_names, strict=True):
        d_projected = precision.stored(projected[role][:, : array.shape[1]])
        gradients |= _affine_gradients(role, array, d_projected, forward.parameters)
        d_input = d_projected @ forward.parameters[f"{role}_weight"].T
        gradients[name] = gradients[name] + d_input if name in gradients else d_input
    return {name: precision.gradient_result(gradient) for name, gradient in gradients.items()}


def _affine_gradients(name: str, array: Array, upstream: Array, parameters: Mapping[str, Array]) -> dict[str, Array]:
    """Gradients of a projection's weight and bias; array [B, L, Wi], upstream [B, L, Wo]."""
    rows, columns = array.reshape(-1, array.shape[-1]), upstream.reshape(-1, upstream.shape[-1])
    gradients = {f"{name}_weight": rows.T @ columns}
    if f"{name}_bias" in parameters:
        gradients[f"{name}_bias"] = columns.sum(axis=0)
    return gradients


def _sum_shared(array: Array, kv_heads: int) -> Array:
    """[B, H, L, W] → [B, K, L, W]: the sum over the query heads that share a key head."""
    batch, heads, length, width = array.shape
    total: Array = array.reshape(batch, kv_heads, heads // kv_heads, length, width).sum(axis=2)
    return total


ADAPTER = Adapter(
    framework="numpy",
    modules=("numpy",),
    install="pip install numpy",
    subjects={NumpyReference.name: NumpyReference, NumpyPerHead.name: NumpyPerHead},
)
