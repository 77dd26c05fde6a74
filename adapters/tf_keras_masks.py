"""A problem's mask as the arguments of Keras' attention layers, where True means *may attend*.

Keras has four ways in: ``value_mask`` [B, S] and ``query_mask`` [B, T] for padding, ``use_causal_mask`` (top-left),
the layer option ``sliding_window``, and ``attention_mask`` for everything else. Keras merges them itself; when this
module merges parts beforehand, it is because only ``attention_mask`` can carry them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import Array, Case


@dataclass(frozen=True)
class MaskArguments:
    """``arrays`` holds the tensors of a call by argument name; the other fields are static options."""

    arrays: Mapping[str, Array] = field(default_factory=dict)
    use_causal_mask: bool = False
    sliding_window: int | None = None


def mask_arguments(problem: Problem, window_option: bool) -> MaskArguments:
    """The mask along the route the case asks for: ``native`` uses each of Keras' own parameters, ``dense`` puts the
    union of all Boolean parts into one ``attention_mask`` [B, H, T, S].

    ``window_option`` says whether this release's layers have ``sliding_window``. A malformed mask always goes the
    native way, as it is.
    """
    case, mask = problem.case, problem.mask
    if case.mask_route == "dense" and case.ill_formed is None:
        blocked = mask.blocked()
        if blocked is None:
            return MaskArguments()
        return MaskArguments({"attention_mask": np.broadcast_to(~blocked, mask.shape)})
    window = _sliding_window(case) if window_option else None
    arrays = {
        "value_mask": mask.key_padding,
        "query_mask": mask.query_padding,
        "attention_mask": _attention(mask, _parts_without_argument(case, window)),
    }
    return MaskArguments(
        arrays={name: _may_attend(array) for name, array in arrays.items() if array is not None},
        use_causal_mask=case.mask.causal == "top-left",
        sliding_window=window,
    )


def unsupported_mask(case: Case) -> str | None:
    """Why Keras' layers have no way in for the case's mask, or None."""
    mask = case.mask
    if mask.additive is not None:
        return "Keras' attention layers have no additive bias; their masks are Boolean"
    if case.mask_route == "additive" and mask.parts:
        return "Keras' attention layers take no floating-point mask"
    if case.ill_formed is not None and mask.explicit is not None and _parts_without_argument(case, None):
        return "Keras takes one attention_mask: a malformed part cannot be merged with another without repairing it"
    return None


def _sliding_window(case: Case) -> int | None:
    """Keras' window option w, which keeps the band abs(i - j) < w, where the case's window is that band; else None.

    Under a top-left causal mask only the part before the query matters.
    """
    window = case.mask.window
    if window is None or window.align != "top-left" or window.before < 0:
        return None
    symmetric = window.before == window.after or (case.mask.causal == "top-left" and window.after >= 0)
    return window.before + 1 if symmetric else None


def _parts_without_argument(case: Case, sliding_window: int | None) -> tuple[str, ...]:
    """Parts beside the explicit one that Keras has no argument of their own for."""
    bottom_right = ("causal",) if case.mask.causal == "bottom-right" else ()
    window = ("window",) if case.mask.window is not None and sliding_window is None else ()
    return bottom_right + window


def _attention(mask: MaskArrays, parts: tuple[str, ...]) -> Array | None:
    """The blocked positions for ``attention_mask``: an explicit mask alone in its own axes, several parts merged in
    the fewest axes that hold them."""
    if not parts:
        return mask.explicit
    blocked = mask.blocked("explicit", *parts)
    assert blocked is not None, f"the case names {parts} and its arrays have none of them"
    if blocked.shape[1] > 1:
        return blocked
    return blocked[0, 0] if blocked.shape[0] == 1 else blocked[:, 0]


def _may_attend(blocked: Array) -> Any:
    """The same mask with Keras' polarity; an ill-formed mask of numbers stays one, in its own dtype."""
    return ~blocked if blocked.dtype == np.bool_ else np.logical_not(blocked).astype(blocked.dtype)
