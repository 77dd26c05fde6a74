"""What the stages of the planted attention share: formats, the recorded forward pass, and the check of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import NUMPY_DTYPES, Array, Case

Role = Literal["query", "key", "value"]


@dataclass(frozen=True)
class Setting:
    """One problem and its two formats. Every stage returns ``arithmetic`` arrays whose values fit ``storage``."""

    problem: Problem
    mask: MaskArrays
    storage: np.dtype[Any]
    arithmetic: np.dtype[Any]

    @classmethod
    def of(cls, problem: Problem) -> Setting:
        storage = NUMPY_DTYPES[problem.case.compute]
        arithmetic = np.dtype(np.float64) if problem.case.compute == "float64" else np.dtype(np.float32)
        return cls(problem, problem.mask, storage, arithmetic)

    def keep(self, array: Array) -> Array:
        """Round to the storage format, as writing the array to memory would."""
        return np.asarray(array).astype(self.storage).astype(self.arithmetic)

    def take(self, array: Array) -> Array:
        """An input as the stages see it: rounded to the compute format of a mixed policy, then raised."""
        return self.keep(array)

    def heads(self, role: Role) -> int:
        """Number of heads that the projection of this role gives."""
        case = self.problem.case
        return case.num_heads if role == "query" else case.num_kv_heads


@dataclass(frozen=True)
class Tape:
    """What the forward pass leaves for the backward pass; keys and values have their extra rows and H heads."""

    query: Array  # [B, H, T, Dh]
    key: Array  # [B, H, S + E, Dh]
    value: Array  # [B, H, S + E, Dhv]
    scores: Array  # [B, H, T, S + E], scaled, before the mask
    probabilities: Array  # [B, H, T, S + E], before they are stored
    weights: Array  # [B, H, T, S + E], stored
    kept: Array  # factors of dropout, broadcastable to that
    dropped: Array  # [B, H, T, S + E], weights after dropout
    joined: Array  # [B, T, H·Dhv]
    output: Array  # [B, T, Do]


def check_call(problem: Problem, *, lengths: bool = True, mask_types: bool = True) -> None:
    """Raise ValueError for an ill-formed call; the flags leave one rule out, for faults that forget it."""
    _check_inputs(problem)
    if lengths and problem.key.shape[1] != problem.value.shape[1]:
        raise ValueError(f"key has {problem.key.shape[1]} positions and value {problem.value.shape[1]}")
    for part, expected in _mask_shapes(problem).items():
        array = getattr(problem.mask, part)
        if array is None:
            continue
        if array.shape != expected:
            raise ValueError(f"{part} mask has shape {array.shape}, not {expected}")
        if mask_types and part != "additive" and array.dtype != np.bool_:
            raise ValueError(f"{part} mask must be Boolean, not {array.dtype}")
        if mask_types and part == "additive" and array.dtype.kind in "biu":
            raise ValueError(f"additive mask must be floating-point, not {array.dtype}")


def _check_inputs(problem: Problem) -> None:
    case, parameters = problem.case, problem.parameters
    if case.num_heads < 1 or case.num_kv_heads < 1 or case.num_heads % case.num_kv_heads:
        raise ValueError(f"{case.num_heads} query heads cannot share {case.num_kv_heads} key and value heads")
    if not problem.query.ndim == problem.key.ndim == problem.value.ndim == 3:
        raise ValueError("query, key and value must have three axes")
    if not len(problem.query) == len(problem.key) == len(problem.value):
        raise ValueError("query, key and value must have the same batch size")
    query_width = case.num_heads * case.head_dim
    for array, weight, width, name in (
        (problem.query, parameters.query_weight, query_width, "query"),
        (problem.key, parameters.key_weight, case.num_kv_heads * case.head_dim, "key"),
        (problem.value, parameters.value_weight, case.num_kv_heads * case.value_head_dim, "value"),
    ):
        if weight.shape != (array.shape[2], width):
            raise ValueError(f"{name} of width {array.shape[2]} and {width} head columns, weight {weight.shape}")
        if array.dtype != weight.dtype:
            raise ValueError(f"{name} is {array.dtype} and its weight {weight.dtype}")


def _mask_shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    case = problem.case
    batch, target, source = (len(problem.query), problem.query.shape[1], problem.key.shape[1])
    shapes: dict[str, tuple[int, ...]] = {
        "key_padding": (batch, source),
        "query_padding": (batch, target),
        "causal": (target, source),
        "window": (target, source),
    }
    sizes = {"B": batch, "T": target, "S": source, "H": case.num_heads, "1": 1}
    for part, written in (("explicit", case.mask.explicit), ("additive", case.mask.additive)):
        if written is not None:
            shapes[part] = tuple(sizes[letter] for letter in written.axes)
    if problem.mask.explicit is not None:  # a mask that the case does not describe can only mean [T, S]
        shapes.setdefault("explicit", (target, source))
    return shapes


def shared_gradients(case: Case, by_role: dict[Role, Array]) -> dict[str, Array]:
    """Gradients of the distinct inputs: a shared object collects the gradient of each of its uses."""
    match case.sharing:
        case "self":
            return {"query": by_role["query"] + by_role["key"] + by_role["value"]}
        case "key-value":
            return {"query": by_role["query"], "key": by_role["key"] + by_role["value"]}
        case "query-key":
            return {"query": by_role["query"] + by_role["key"], "value": by_role["value"]}
        case _:
            return {"query": by_role["query"], "key": by_role["key"], "value": by_role["value"]}
