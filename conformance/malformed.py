"""Well-formed problem → ill-formed call: one thing is made wrong, and everything else stays right."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import Array, Case
from conformance.vocabulary import AttentionMaskFault, IllFormed, InputFault, PaddingMaskFault

AXIS_TOO_LONG: Mapping[str, str] = {
    "mask-target-too-long": "T",
    "mask-source-too-long": "S",
    "mask-heads": "H",
    "mask-batch": "B",
}


def malformed(problem: Problem) -> Problem:
    """Break the one thing that ``case.ill_formed`` names.

    Some faults are not in the arrays: those of heads are in the sizes of the case, and ``mask-device`` is a matter of
    where the subject puts the mask. Raises ValueError when the case has not what it takes.
    """
    case, fault = problem.case, problem.case.ill_formed
    if fault is None:
        return problem
    axes = None if case.mask.explicit is None else case.mask.explicit.axes
    lacks = lacking(fault, case.mask.parts, axes, case.sharing, square=case.batch == case.target_length)
    if lacks is not None:
        raise ValueError(lacks[1])
    if fault in get_args(InputFault):
        return _with_broken_input(problem, fault)
    return replace(problem, mask=_broken_mask(case, problem.mask, fault))


def lacking(
    fault: IllFormed, parts: Collection[str], axes: str | None, sharing: str, *, square: bool
) -> tuple[str, str] | None:
    """What a case lacks to be made ill-formed in this way: the field at fault and a message; None when nothing.

    ``parts`` are those of its mask, ``axes`` those of the explicit part; ``square`` is B = T. What the faults of heads
    need is checked with the sizes.
    """
    attention, padding = fault in get_args(AttentionMaskFault), fault in get_args(PaddingMaskFault)
    part = "explicit" if attention else "key_padding" if padding else None
    if part is not None and part not in parts:
        return "mask", f"ill_formed {fault} needs a mask with {part}"
    axis = AXIS_TOO_LONG.get(fault)
    if axis is not None and axes is not None and axis not in axes:
        return "mask", f"ill_formed {fault} needs an explicit mask with an axis {axis}, not {axes}"
    if fault == "padding-mask-as-attention-mask" and square:
        return "batch", f"ill_formed {fault}: with batch = target_length a [B, S] mask is a well-formed [T, S] mask"
    if fault in get_args(InputFault) and fault != "query-width" and sharing in ("self", "key-value", "query-key"):
        return "sharing", f"ill_formed {fault} needs inputs of their own, not sharing {sharing}"
    return None


def _longer(array: Array, axis: int) -> Array:
    """One more element along an axis, a copy of the first."""
    return np.concatenate([array, array.take([0], axis)], axis)


def _with_broken_input(problem: Problem, fault: IllFormed) -> Problem:
    query, key, value = problem.query, problem.key, problem.value
    match fault:
        case "query-width":
            query = _longer(query, 2)
            if problem.case.sharing == "self":
                key = value = query
        case "key-width":
            key = _longer(key, 2)
        case "value-longer-than-key":
            value = _longer(value, 1)
        case "key-longer-than-value":
            key = _longer(key, 1)
        case "batch-mismatch":
            key, value = _longer(key, 0), _longer(value, 0)
        case "query-rank":
            query = query[0]
        case "key-rank":
            key = key[0]
        case "mixed-dtypes":
            key = key.astype(np.float32 if key.dtype == np.float64 else np.float64)
    return replace(problem, query=query, key=key, value=value)


def _broken_mask(case: Case, mask: MaskArrays, fault: IllFormed) -> MaskArrays:
    """The mask with one fault; the same mask where the fault is not in its arrays."""
    padding, lengths = mask.key_padding, mask.key_lengths
    if fault == "padding-mask-as-attention-mask":
        return replace(mask, explicit=padding, key_padding=None, key_lengths=None)
    if fault == "padding-mask-wrong-batch" and padding is not None:
        longer = None if lengths is None else _longer(lengths, 0)
        return replace(mask, key_padding=_longer(padding, 0), key_lengths=longer)
    if mask.explicit is None or case.mask.explicit is None:
        return mask
    if fault in AXIS_TOO_LONG:
        axis = case.mask.explicit.axes.index(AXIS_TOO_LONG[fault])
        return replace(mask, explicit=_longer(mask.explicit, axis))
    if fault == "mask-rank-1":
        return replace(mask, explicit=mask.explicit.reshape(-1, mask.explicit.shape[-1])[0])
    if fault == "integer-mask":
        return replace(mask, explicit=mask.explicit.astype(np.int64))
    return mask
