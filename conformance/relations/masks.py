"""Masks of related problems: columns in another order, columns more, heads in another order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from conformance.masks import mask_arrays
from conformance.problem import MaskArrays, Problem
from conformance.spec import Array, Case, Explicit, Mask, Padding
from conformance.vocabulary import Axes

_OF_KEYS = ("key_padding", "causal", "window", "explicit")  # Boolean parts that tell keys apart
_LETTERS = {  # whether samples, heads and rows differ → axes that say so
    (False, False, False): "TS",
    (False, False, True): "TS",
    (True, False, True): "B1TS",
    (True, False, False): "B11S",
    (False, True, False): "1HTS",
    (False, True, True): "1HTS",
    (True, True, False): "BHTS",
    (True, True, True): "BHTS",
}


def keys_taken(problem: Problem, order: Array) -> tuple[Case, MaskArrays]:
    """The case and mask with the columns in another ``order`` [S]. What a structured part blocks is then a pattern
    like any other, so all parts that tell keys apart become one explicit mask."""
    case, mask = problem.case, problem.mask
    parts = [part for part in _OF_KEYS if part in case.mask.parts]
    written, arrays = case.mask, mask
    if parts:
        explicit, array = _explicit(problem, *parts)
        array = np.ascontiguousarray(array[..., order])
        written = Mask(query_padding=written.query_padding, explicit=explicit, additive=written.additive)
        arrays = MaskArrays(mask.shape, query_padding=mask.query_padding, query_lengths=mask.query_lengths)
        arrays = replace(arrays, explicit=array, additive=mask.additive)
    if arrays.additive is not None:
        arrays = replace(arrays, additive=np.ascontiguousarray(arrays.additive[..., order]))
    return replace(case, mask=written), arrays


def longer(problem: Problem, count: int) -> tuple[Case, MaskArrays]:
    """The case and mask with ``count`` columns more at the end, all blocked: by the explicit mask where there is one
    and no padding, else by padding."""
    case, mask = problem.case, problem.mask
    written = case.mask
    if written.explicit is None or written.key_padding is not None:
        padding = written.key_padding or Padding((case.source_length,) * case.batch)
        written = replace(written, key_padding=padding)
    case = replace(case, source_length=case.source_length + count, mask=written)
    structured = replace(case, mask=replace(written, explicit=None, additive=None))
    return case, replace(
        mask_arrays(structured, problem.query.dtype),
        explicit=_more_columns(mask.explicit, count, True),
        additive=_more_columns(mask.additive, count, 0),
    )


def permuted_heads(problem: Problem, order: Array) -> MaskArrays:
    """The mask with its heads in another ``order`` [H], where it tells heads apart."""
    changes: dict[str, Any] = {}
    for part in ("explicit", "additive"):
        written, array = getattr(problem.case.mask, part), getattr(problem.mask, part)
        if written is not None and "H" in written.axes:
            changes[part] = np.ascontiguousarray(array.take(order, written.axes.index("H")))
    return replace(problem.mask, **changes)


def _explicit(problem: Problem, *parts: str) -> tuple[Explicit, Array]:
    """The union of Boolean parts as one explicit mask; its own axes where it is the only part."""
    if parts == ("explicit",) and problem.case.mask.explicit is not None and problem.mask.explicit is not None:
        return Explicit("literal", problem.case.mask.explicit.axes), problem.mask.explicit
    union: Array = np.asarray(problem.mask.blocked(*parts))
    B, H, T, S = problem.mask.shape
    samples, heads, rows = (size > 1 for size in union.shape[:3])
    axes = _LETTERS[samples, heads, rows]
    sizes = {"B": B, "H": H, "T": T, "S": S, "1": 1}
    shape = tuple(sizes[letter] for letter in axes)
    four = (1,) * (4 - len(shape)) + shape
    return Explicit("literal", cast("Axes", axes)), np.broadcast_to(union, four).reshape(shape)


def _more_columns(array: Array | None, count: int, value: object) -> Array | None:
    if array is None:
        return None
    more = np.full((*array.shape[:-1], count), value, array.dtype)
    return np.concatenate([array, more], axis=-1)
