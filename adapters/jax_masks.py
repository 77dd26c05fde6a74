"""The mask of a problem as arguments of ``jax.nn.dot_product_attention``, on each route.

JAX's Boolean masks say what *may* be attended to, and it pads shapes on the left to four axes, so a [B, T, S] mask
needs its head axis written out: JAX would read the batch as heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import MASK_PARTS, Array

BOOLEAN_PARTS = MASK_PARTS[:-1]


@dataclass(frozen=True)
class JaxMask:
    """``arrays`` are traced arguments by the name of JAX's parameter; the rest is static, part of the compile key."""

    arrays: dict[str, Array] = field(default_factory=dict)
    is_causal: bool = False
    local_window_size: tuple[int, int] | None = None


def jax_mask(problem: Problem) -> JaxMask:
    """JAX's parameters for the mask, by the route of the case. Ill-formed masks are handed over as they are."""
    mask = problem.mask
    match problem.case.mask_route:
        case "dense" if problem.case.ill_formed is None:
            blocked = mask.blocked()
            arrays = mask_and_bias(problem, ())
            return JaxMask(arrays if blocked is None else arrays | {"mask": _full(mask, may_attend(blocked))})
        case "additive" if problem.case.ill_formed is None:
            bias = mask.float_mask(problem.query.dtype)
            return JaxMask({} if bias is None else {"bias": _full(mask, bias)})
        case _:
            return _native(problem)


def _native(problem: Problem) -> JaxMask:
    """Lengths, is_causal and local_window_size where they mean the same; what is left goes into ``mask``."""
    case, mask = problem.case.mask, problem.mask
    lengths = {"key_value_seq_lengths": mask.key_lengths, "query_seq_lengths": mask.query_lengths}
    window = case.window if case.window is not None and case.window.align == "top-left" else None
    own_parameter = {
        "key_padding": mask.key_lengths is not None,
        "query_padding": mask.query_lengths is not None,
        "causal": case.causal == "top-left",
        "window": window is not None,
    }
    left = tuple(part for part in BOOLEAN_PARTS if not own_parameter.get(part, False))
    return JaxMask(
        {name: array for name, array in lengths.items() if array is not None} | mask_and_bias(problem, left),
        is_causal=own_parameter["causal"],
        local_window_size=None if window is None else (window.before, window.after),
    )


def mask_and_bias(problem: Problem, parts: tuple[str, ...] = BOOLEAN_PARTS) -> dict[str, Array]:
    """``mask`` for the Boolean parts named, ``bias`` for the additive part. The only part of a mask keeps the axes in
    which it was written; beside others it is full, so that one compilation serves every combination."""
    mask, own = problem.mask, len(problem.case.mask.parts) == 1
    present = [part for part in parts if getattr(mask, part) is not None]
    arrays: dict[str, Array] = {}
    if own and present == ["explicit"] and mask.explicit is not None:
        arrays["mask"] = may_attend(own_axes(mask.explicit))
    elif present:
        blocked = mask.blocked(*present)
        assert blocked is not None, present
        allowed = may_attend(blocked)
        arrays["mask"] = _full(mask, allowed) if problem.case.ill_formed is None else allowed
    if mask.additive is not None:
        arrays["bias"] = own_axes(mask.additive) if own else _full(mask, own_axes(mask.additive))
    return arrays


def full_mask_and_bias(problem: Problem) -> dict[str, Array]:
    """``mask`` and ``bias`` in [B, H, T, S], all True and all zero where the problem has none. On the additive route
    the Boolean parts are -inf in the bias."""
    mask, dtype = problem.mask, problem.query.dtype
    additive = problem.case.mask_route == "additive"
    blocked = None if additive else mask.blocked()
    bias = mask.float_mask(dtype) if additive else mask.bias()
    return {
        "mask": _full(mask, np.array(True) if blocked is None else may_attend(blocked)),
        "bias": _full(mask, np.zeros((), dtype) if bias is None else bias),
    }


def own_axes(array: Array) -> Array:
    """An array in the axes it was written in, save that three axes, [B, T, S], get their head axis."""
    return array[:, None] if array.ndim == 3 else array


def may_attend(blocked: Array) -> Array:
    """Turn *blocked* into JAX's *may attend*; a mask of integers stays one of integers."""
    allowed: Array = ~blocked if blocked.dtype == np.dtype(bool) else (1 - blocked).astype(blocked.dtype)
    return allowed


def _full(mask: MaskArrays, array: Array) -> Array:
    return np.ascontiguousarray(np.broadcast_to(array, mask.shape))
