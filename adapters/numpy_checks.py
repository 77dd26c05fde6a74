"""What the NumPy implementations refuse: every ill-formed call raises ValueError before anything is computed.

The checks look at the arrays alone, as an implementation would; they do not read that a case is meant to be ill-formed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.problem import MaskArrays, Parameters, Problem
from conformance.spec import NUMPY_DTYPES, Array, Case


def validate(problem: Problem) -> None:
    """Check heads, inputs, parameters and mask of a problem, in this order.

    Raises:
        ValueError: with the name of the argument at fault, its shape or dtype, and the one that was needed.
    """
    _check_heads(problem.case)
    _check_inputs(problem)
    _check_parameters(problem.case, problem.parameters, _widths(problem))
    _check_dtypes(problem)
    _check_mask(problem)


def _check_heads(case: Case) -> None:
    if case.num_heads < 1 or case.num_kv_heads < 1:
        raise ValueError(f"at least one head is needed, got {case.num_heads} query and {case.num_kv_heads} key heads")
    if case.num_heads % case.num_kv_heads:
        raise ValueError(f"{case.num_heads} query heads cannot share {case.num_kv_heads} key heads evenly")


def _check_inputs(problem: Problem) -> None:
    for name, array in (("query", problem.query), ("key", problem.key), ("value", problem.value)):
        if array.ndim != 3:
            raise ValueError(f"{name} must have 3 axes (batch, length, width), got shape {array.shape}")
    query, key, value = problem.query, problem.key, problem.value
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        sizes = (query.shape[0], key.shape[0], value.shape[0])
        raise ValueError(f"query, key and value must have one batch size, got {sizes}")
    if key.shape[1] != value.shape[1]:
        raise ValueError(f"key and value must have one length, got {key.shape[1]} and {value.shape[1]}")


def _widths(problem: Problem) -> tuple[int, int, int]:
    """(D, Dk, Dv) as the inputs have them."""
    return problem.query.shape[2], problem.key.shape[2], problem.value.shape[2]


def _check_parameters(case: Case, parameters: Parameters, widths: tuple[int, int, int]) -> None:
    heads, kv_heads = case.num_heads, case.num_kv_heads
    split = (
        ("query", widths[0], heads, case.head_dim),
        ("key", widths[1], kv_heads, case.head_dim),
        ("value", widths[2], kv_heads, case.value_head_dim),
    )
    for name, width, count, head_width in split:
        weight = getattr(parameters, f"{name}_weight")
        if weight.ndim == 2 and weight.shape[1] % count:
            raise ValueError(f"{name}_weight: width {weight.shape[1]} is not divisible by {count} heads")
        _require(f"{name}_weight", weight, (width, count * head_width))
        _require(f"{name}_bias", getattr(parameters, f"{name}_bias"), (count * head_width,))
    _require("output_weight", parameters.output_weight, (heads * case.value_head_dim, case.output_dim))
    _require("output_bias", parameters.output_bias, (case.output_dim,))
    _require("bias_k", parameters.bias_k, (kv_heads * case.head_dim,))
    _require("bias_v", parameters.bias_v, (kv_heads * case.value_head_dim,))
    if (parameters.bias_k is None) != (parameters.bias_v is None):
        raise ValueError("bias_k and bias_v must be given together")


def _require(name: str, array: Array | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def _check_dtypes(problem: Problem) -> None:
    expected = problem.query.dtype
    if expected not in NUMPY_DTYPES.values():
        raise ValueError(f"query must be a floating-point array, got {expected}")
    others = {"key": problem.key, "value": problem.value, **problem.parameters.present}
    for name, array in others.items():
        if array.dtype != expected:
            raise ValueError(f"{name} must have the dtype of the query, {expected}, got {array.dtype}")


def _check_mask(problem: Problem) -> None:
    batch, target, source = problem.query.shape[0], problem.query.shape[1], problem.key.shape[1]
    mask, sizes = problem.mask, (batch, problem.case.num_heads, target, source)
    plain = {
        "key_padding": (batch, source),
        "query_padding": (batch, target),
        "causal": (target, source),
        "window": (target, source),
    }
    for name, shape in plain.items():
        array = getattr(mask, name)
        _require_boolean(name, array)
        _require(name, array, shape)
    for name in ("key_lengths", "query_lengths"):
        _require(name, getattr(mask, name), (batch,))
    _require_boolean("explicit mask", mask.explicit)
    _require_broadcastable("explicit mask", mask.explicit, sizes)
    _check_additive(mask, sizes)


def _require_boolean(name: str, array: Array | None) -> None:
    if array is not None and array.dtype != np.dtype(bool):
        raise ValueError(f"{name} must be Boolean, got {array.dtype}; an additive mask is a separate argument")


def _check_additive(mask: MaskArrays, sizes: tuple[int, int, int, int]) -> None:
    additive: np.ndarray[Any, Any] | None = mask.additive
    if additive is not None and additive.dtype not in NUMPY_DTYPES.values():
        raise ValueError(f"additive mask must be a floating-point array, got {additive.dtype}")
    _require_broadcastable("additive mask", additive, sizes)


def _require_broadcastable(name: str, array: Array | None, sizes: tuple[int, int, int, int]) -> None:
    """[T, S], or [B or 1, T or 1, S], or [B or 1, H or 1, T or 1, S]; sizes are (B, H, T, S)."""
    if array is None:
        return
    batch, heads, target, source = sizes
    match array.ndim:
        case 2:
            allowed: tuple[set[int], ...] = ({target}, {source})
        case 3:
            allowed = ({batch, 1}, {target, 1}, {source})
        case 4:
            allowed = ({batch, 1}, {heads, 1}, {target, 1}, {source})
        case _:
            raise ValueError(f"{name} must have 2, 3 or 4 axes, got shape {array.shape}")
    if any(size not in sizes_allowed for size, sizes_allowed in zip(array.shape, allowed, strict=True)):
        raise ValueError(f"{name} of shape {array.shape} does not fit (B, H, T, S) = {sizes}")
