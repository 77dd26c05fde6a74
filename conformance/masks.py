"""The mask of a case as arrays, each part in the shape in which it is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.problem import MaskArrays
from conformance.seeds import generator
from conformance.spec import Additive, Array, Case, Explicit, Padding


def mask_arrays(case: Case, dtype: np.dtype[Any]) -> MaskArrays:
    """Every part of ``case.mask`` as an array; True blocks. ``dtype`` is that of the additive part."""
    mask, T, S = case.mask, case.target_length, case.source_length
    offset = S - T
    row, column = np.arange(T)[:, None], np.arange(S)[None, :]
    causal = window = None
    if mask.causal is not None:
        causal = column > row + (offset if mask.causal == "bottom-right" else 0)
    if mask.window is not None:
        distance = column - row - (offset if mask.window.align == "bottom-right" else 0)
        window = (distance < -mask.window.before) | (distance > mask.window.after)
    return MaskArrays(
        shape=(case.batch, case.num_heads, T, S),
        key_padding=None if mask.key_padding is None else _padding(mask.key_padding, S),
        key_lengths=_lengths(mask.key_padding),
        query_padding=None if mask.query_padding is None else _padding(mask.query_padding, T),
        query_lengths=_lengths(mask.query_padding),
        causal=causal,
        window=window,
        explicit=None if mask.explicit is None else explicit_array(case, mask.explicit),
        additive=None if mask.additive is None else _additive(case, mask.additive, dtype),
    )


def explicit_array(case: Case, explicit: Explicit) -> Array:
    """The Boolean array of an explicit part, in the shape of its axes."""
    shape = axes_shape(case, explicit.axes)
    if explicit.pattern == "literal":
        return np.array(explicit.values, dtype=np.bool_).reshape(shape)
    if explicit.pattern == "everything":
        return np.ones(shape, np.bool_)
    if explicit.pattern == "random":
        return _random(case, explicit, shape)
    if explicit.pattern == "block-diagonal":
        rows, columns = np.arange(case.target_length), np.arange(case.source_length)
        outside = rows[:, None] // explicit.block != columns[None, :] // explicit.block
        return np.broadcast_to(outside, shape).copy()
    letter = {"rows": "T", "keys": "S", "heads": "H", "samples": "B"}[explicit.pattern]
    blocked = np.zeros(shape, np.bool_)
    np.moveaxis(blocked, explicit.axes.index(letter), 0)[list(explicit.indices)] = True
    return blocked


def axes_shape(case: Case, axes: str) -> tuple[int, ...]:
    """Shape that the letters of ``axes`` spell in the sizes of a case."""
    size = {"B": case.batch, "H": case.num_heads, "T": case.target_length, "S": case.source_length, "1": 1}
    return tuple(size[letter] for letter in axes)


def _random(case: Case, explicit: Explicit, shape: tuple[int, ...]) -> Array:
    random = generator(case, f"mask.explicit.{explicit.axes}")
    blocked: Array = random.random(shape) < explicit.density
    if shape[-1]:
        kept = random.integers(0, shape[-1], shape[:-1])
        np.put_along_axis(blocked, kept[..., None], False, axis=-1)
    return blocked


def _padding(padding: Padding, length: int) -> Array:
    positions, lengths = np.arange(length)[None, :], np.array(padding.lengths)[:, None]
    blocked: Array = positions >= lengths if padding.side == "right" else positions < length - lengths
    return blocked


def _lengths(padding: Padding | None) -> Array | None:
    return None if padding is None or padding.side == "left" else np.array(padding.lengths, np.int32)


def _additive(case: Case, additive: Additive, dtype: np.dtype[Any]) -> Array:
    shape = axes_shape(case, additive.axes)
    if additive.values:
        bias = np.array(additive.values, np.float64).reshape(shape)
    else:
        bias = additive.magnitude * generator(case, "mask.additive").standard_normal(shape)
    if additive.minus_inf is not None:
        bias = np.where(explicit_array(case, additive.minus_inf), -np.inf, bias)
    return bias.astype(dtype)
