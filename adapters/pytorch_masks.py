"""The mask of a problem as each PyTorch interface takes it: NumPy arrays and flags by the interface's own names.

Shape legend in :mod:`conformance.spec`. A Boolean mask is True where attention is *blocked*; the one translation to
the opposite convention of ``scaled_dot_product_attention`` happens in :func:`sdpa_masks`. :func:`tensors` makes
PyTorch's arguments of them; the rest imports no framework.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import NUMPY_DTYPES, Array, Case
from conformance.vocabulary import AttentionMaskFault, PaddingMaskFault

NOT_KEY_PADDING = ("query_padding", "causal", "window", "explicit")
OTHER_DEVICE = "meta"  # every machine has it
MASK_FAULTS = (*get_args(AttentionMaskFault), *get_args(PaddingMaskFault))


def mha_masks(problem: Problem) -> dict[str, Any]:
    """The mask as keyword arguments of ``nn.MultiheadAttention.forward`` (Boolean True = blocked).

    Both masks are of one type, as PyTorch asks: with an additive part the key padding becomes floats too.
    """
    case, mask = problem.case, problem.mask
    padding = mask.key_padding
    if case.ill_formed in MASK_FAULTS:
        return _present(attn_mask=_mha_axes(mask), key_padding_mask=padding)
    dtype = NUMPY_DTYPES[case.storage]
    if case.mask_route != "native":
        return _present(attn_mask=_mha_shape(_merged(case, mask), mask, keep_two_axes=case.mask_route == "additive"))
    if mask.additive is None:
        attention = mask.blocked(*NOT_KEY_PADDING)
    else:
        attention = mask.float_mask(dtype, *NOT_KEY_PADDING)
        padding = None if padding is None else np.where(padding, -np.inf, 0).astype(dtype)
    masks = _present(attn_mask=_mha_shape(attention, mask, keep_two_axes=True), key_padding_mask=padding)
    others = [part for part in case.mask.parts if part != "key_padding"]
    if others == ["causal"] and case.mask.causal == "top-left" and case.target_length == case.source_length:
        masks["is_causal"] = True
    return masks


def _mha_shape(array: Array | None, mask: MaskArrays, *, keep_two_axes: bool) -> Array | None:
    """Four axes to [T, S] where batch and heads do not matter, else to [B·H, T, S], batch-major."""
    if array is None:
        return None
    batch, heads, target, source = mask.shape
    if keep_two_axes and array.shape[:2] == (1, 1):
        return np.broadcast_to(array[0, 0], (target, source))
    return np.broadcast_to(array, mask.shape).reshape(batch * heads, target, source)


def _mha_axes(mask: MaskArrays) -> Array | None:
    """A malformed explicit mask in the axes of ``nn.MultiheadAttention``: as it is, save that three and four axes
    become [B·H, T, S] in whatever sizes they have."""
    explicit = mask.explicit
    if explicit is None or explicit.ndim < 3:
        return explicit
    four = explicit[:, None] if explicit.ndim == 3 else explicit
    batch, heads = (own if own > 1 else full for own, full in zip(four.shape[:2], mask.shape[:2], strict=True))
    return np.broadcast_to(four, (batch, heads, *four.shape[2:])).reshape(batch * heads, *four.shape[2:])


def sdpa_masks(problem: Problem) -> dict[str, Any]:
    """The mask as ``attn_mask`` (Boolean True = may attend, or floats to add) and ``is_causal``."""
    case, mask = problem.case, problem.mask
    if case.ill_formed in MASK_FAULTS:
        attention = mask.explicit if mask.explicit is not None else mask.blocked("key_padding")
        if attention is not None and attention.ndim == 3:
            attention = attention[:, None]
    elif case.mask_route == "native":
        if case.mask.parts == ("causal",) and case.mask.causal == "top-left":
            return {"attn_mask": None, "is_causal": True}
        attention = mask.blocked() if mask.additive is None else mask.float_mask(NUMPY_DTYPES[case.storage])
        if attention is not None and attention.shape[:2] == (1, 1):
            attention = attention[0, 0]
    else:
        attention = _merged(case, mask)
    if attention is not None and attention.dtype == np.bool_:
        attention = ~attention
    return {"attn_mask": None, "is_causal": False, **_present(attn_mask=attention)}


def module_masks(problem: Problem) -> dict[str, Any]:
    """The mask as ``key_padding``, ``blocked`` and ``bias`` of the hand-written modules."""
    case, mask = problem.case, problem.mask
    if case.ill_formed in MASK_FAULTS:
        return _present(key_padding=mask.key_padding, blocked=mask.explicit)
    if case.mask_route == "native":
        alone = [part for part in case.mask.parts if part in NOT_KEY_PADDING] == ["explicit"]
        blocked = mask.explicit if alone else mask.blocked(*NOT_KEY_PADDING)
        return _present(key_padding=mask.key_padding, blocked=blocked, bias=mask.additive)
    merged = _merged(case, mask)
    floats = merged is not None and merged.dtype != np.bool_
    return _present(bias=merged) if floats else _present(blocked=merged)


def _merged(case: Case, mask: MaskArrays) -> Array | None:
    """Every part in one array of four axes: full and Boolean on the ``dense`` route unless a float bias is among the
    parts, else floats with −inf where blocked."""
    if case.mask_route == "dense" and mask.additive is None:
        merged = mask.blocked()
    else:
        merged = mask.float_mask(NUMPY_DTYPES[case.storage])
    return merged if merged is None or case.mask_route == "additive" else np.broadcast_to(merged, mask.shape)


def _present(**arrays: Array | None) -> dict[str, Any]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None}


def tensors(case: Case, masks: dict[str, Any]) -> dict[str, Any]:
    """The same arguments with tensors for arrays, on the device of the inputs unless the case says otherwise; flags
    stay as they are."""
    from adapters.pytorch_arrays import tensor_of

    device = OTHER_DEVICE if case.ill_formed == "mask-device" else "cpu"
    return {name: tensor_of(mask).to(device) if isinstance(mask, np.ndarray) else mask for name, mask in masks.items()}
