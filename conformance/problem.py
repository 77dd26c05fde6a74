"""A case with its numbers: what a subject is given, and what it gives back.

The letters of shapes are those of :mod:`conformance.spec`. This module runs on Python 3.10 with NumPy alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from conformance.spec import MASK_PARTS, Array, Case


@dataclass(frozen=True)
class Parameters:
    """Projection parameters in the neutral layout: ``query @ query_weight + query_bias``; heads are contiguous
    blocks of columns, head 0 first."""

    query_weight: Array  # [D, H·Dh]
    key_weight: Array  # [Dk, K·Dh]
    value_weight: Array  # [Dv, K·Dhv]
    output_weight: Array  # [H·Dhv, Do]
    query_bias: Array | None = None  # [H·Dh]
    key_bias: Array | None = None  # [K·Dh]
    value_bias: Array | None = None  # [K·Dhv]
    output_bias: Array | None = None  # [Do]
    bias_k: Array | None = None  # [K·Dh], one more key row
    bias_v: Array | None = None  # [K·Dhv], one more value row

    @cached_property
    def present(self) -> dict[str, Array]:
        """The parameters that exist, by name, in field order."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True)
class MaskArrays:
    """The mask of a problem as arrays. Boolean arrays are True where attention is blocked."""

    shape: tuple[int, int, int, int]  # (B, H, T, S)
    key_padding: Array | None = None  # bool [B, S]
    key_lengths: Array | None = None  # int32 [B], only for padding on the right
    query_padding: Array | None = None  # bool [B, T]
    query_lengths: Array | None = None  # int32 [B], only for padding on the right
    causal: Array | None = None  # bool [T, S]
    window: Array | None = None  # bool [T, S]
    explicit: Array | None = None  # bool, in the shape its axes say
    additive: Array | None = None  # storage dtype, in the shape its axes say

    def blocked(self, *parts: str) -> Array | None:
        """Union of the named Boolean parts (all of them when none is named), broadcastable to [B, H, T, S] with
        four axes, each either full or 1; None when no such part is present."""
        union: Array | None = None
        for part in parts or MASK_PARTS[:-1]:
            block = self._four_axes(part)
            if block is not None:
                union = block if union is None else union | block
        return union

    def bias(self) -> Array | None:
        """The additive part with four axes, broadcastable to [B, H, T, S], or None."""
        return self._four_axes("additive")

    def float_mask(self, dtype: np.dtype[Any], *parts: str) -> Array | None:
        """The additive part plus −inf where the named Boolean parts block, four axes, or None."""
        block, bias = self.blocked(*parts), self.bias()
        if block is None:
            return bias
        minus_inf = np.where(block, np.array(-np.inf, dtype), np.array(0, dtype))
        return minus_inf if bias is None else np.where(block, np.array(-np.inf, dtype), bias)

    def _four_axes(self, part: str) -> Array | None:
        array: Array | None = getattr(self, part)
        if array is None:
            return None
        if part == "key_padding":
            return array[:, None, None, :]
        if part == "query_padding":
            return array[:, None, :, None]
        if array.ndim == 3:  # [B, T, S] and its broadcasts: the head axis is missing
            return array[:, None]
        return array.reshape((1,) * (4 - array.ndim) + array.shape)


@dataclass(frozen=True)
class Problem:
    """A case with its numbers. Shared inputs are the same object (``query is key``)."""

    case: Case
    query: Array  # [B, T, D]
    key: Array  # [B, S, Dk]
    value: Array  # [B, S, Dv]
    parameters: Parameters
    mask: MaskArrays
    cotangent: Array  # [B, T, Do]; the gradients asked for are those of sum(attn_output · cotangent)
    seed: int = 0  # of whatever the subject draws; 31 bits, from the case's id and the number of the draw

    @property
    def distinct_inputs(self) -> dict[str, Array]:
        """Inputs by name, each object once: ``{"query": …}`` alone when all three are shared."""
        return {name: getattr(self, name) for name in self.case.input_gradients}

    @property
    def input_names(self) -> tuple[str, str, str]:
        """For query, key and value, the name in :attr:`distinct_inputs` under which its array is found."""
        match self.case.sharing:
            case "self":
                return ("query", "query", "query")
            case "key-value":
                return ("query", "key", "key")
            case "query-key":
                return ("query", "query", "value")
            case _:
                return ("query", "key", "value")


@dataclass(frozen=True)
class Outputs:
    """What a subject returns, as NumPy arrays in the dtype that the framework gave them.

    ``gradients`` holds the inputs of :attr:`Case.input_gradients` and every present parameter by name, in the
    neutral layout and in the shape of the array it belongs to; it is empty when none were asked for.
    """

    attn_output: Array  # [B, T, Do]
    attn_weights: Array | None = None  # [B, H, T, S + E], None where the subject does not give them
    gradients: Mapping[str, Array] = field(default_factory=dict)
