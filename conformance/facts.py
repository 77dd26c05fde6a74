"""Flat properties of a case: what the ledger's conditions and the report's search speak about."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.masks import mask_arrays
from conformance.problem import MaskArrays
from conformance.spec import MASK_PARTS, NUMPY_DTYPES, Array, Case, Source


def facts_of(case: Case) -> dict[str, Any]:
    """Facts by name, each a string, number or Boolean.

    ``blocked_rows`` tells how many rows have every key blocked: ``none``, ``heads`` (only in some heads), ``some`` or
    ``all``. ``blocked_by`` tells what blocks them: ``boolean`` where Booleans block each whole, ``minus-inf`` where −∞
    alone blocks every key of some row, else ``both`` (``none`` without such rows). ``blocked_queries`` tells whose they
    are: ``past-the-end`` when all are of queries padded on the right, ``others`` when some are not. ``batch_heads``
    compares the two axes that a mask without heads may confuse: ``one`` sample, ``equal`` sizes, or ``different`` ones.
    ``heads_are_length`` tells whether several heads are as many as the queries or the keys.
    """
    mask = mask_arrays(case, NUMPY_DTYPES[case.storage])
    rows, by, queries = _blocked_rows(case, mask)
    facts: dict[str, Any] = {
        "suite": case.suite,
        "dtype": case.dtype,
        "B": case.batch,
        "T": case.target_length,
        "S": case.source_length,
        "D": case.embed_dim,
        "H": case.num_heads,
        "K": case.num_kv_heads,
        "Dh": case.head_dim,
        "Dhv": case.value_head_dim,
        "kdim": case.kdim,
        "vdim": case.vdim,
        "output_dim": case.output_dim,
        "lengths": _lengths(case),
        "batch_heads": "one" if case.batch == 1 else "equal" if case.batch == case.num_heads else "different",
        "heads_are_length": case.num_heads > 1 and case.num_heads in (case.target_length, case.source_length),
        "empty": _empty(case),
        "widths": "plain" if case.plain_widths else "own",
        "mask": str(case.mask),
        "route": case.mask_route,
        "data": case.data.regime,
        "poison": "none" if case.data.poison is None else str(case.data.poison),
        "layout": case.layout,
        "sharing": case.sharing,
        "calls": case.calls,
        "mode": case.mode,
        "dropout": case.dropout,
        "drops": case.drops,
        "relation": case.relation or "none",
        "bias": case.bias,
        "bias_kv": case.bias_kv,
        "zero_attention": case.zero_attention,
        "scale": "default" if case.scale is None else case.scale,
        "ill_formed": case.ill_formed or "none",
        "expect": case.expect,
        "gradients": case.wants_gradients,
        "blocked_rows": rows,
        "blocked_by": by,
        "blocked_queries": queries,
        "causal": case.mask.causal or "none",
        "axes": case.mask.explicit.axes if case.mask.explicit else "none",
    }
    return facts | {part: part in case.mask.parts for part in MASK_PARTS if part != "causal"}


def _lengths(case: Case) -> str:
    """How target and source length compare: ``T<S``, ``T=S`` or ``T>S``."""
    T, S = case.target_length, case.source_length
    return "T=S" if T == S else "T<S" if T < S else "T>S"


def _empty(case: Case) -> str:
    sizes = {"batch": case.batch, "target": case.target_length, "source": case.source_length}
    return "+".join(name for name, size in sizes.items() if size == 0) or "none"


def _blocked_rows(case: Case, mask: MaskArrays) -> tuple[str, str, str]:
    shape, bias, union = mask.shape, mask.bias(), mask.blocked()
    boolean = np.zeros(shape, np.bool_) if union is None else np.broadcast_to(union, shape)
    infinite = np.zeros(shape, np.bool_) if bias is None else np.broadcast_to(_minus_inf(bias), shape)
    if case.extra_keys or 0 in shape[:3]:
        return "none", "none", "none"
    rows = _all_keys(boolean | infinite)
    if not rows.any():
        return "none", "none", "none"
    heads = rows.all(axis=1)  # [B, T], blocked in every head
    amount = "all" if heads.all() else "some" if heads.any() else "heads"
    queries = "past-the-end" if _past_the_end(mask)[rows].all() else "others"
    if _all_keys(boolean)[rows].all():
        return amount, "boolean", queries
    alone = _all_keys(infinite & ~boolean)
    return amount, "minus-inf" if alone.any() else "both", queries


def _past_the_end(mask: MaskArrays) -> Array:
    """bool [B, H, T]: rows of queries padded on the right."""
    batch, heads, length, _ = mask.shape
    lengths = np.full(batch, length) if mask.query_lengths is None else mask.query_lengths
    return np.broadcast_to((np.arange(length) >= lengths[:, None])[:, None], (batch, heads, length))


def _all_keys(blocked: Array) -> Array:
    """[B, H, T, S] → [B, H, T]: rows in which every key is blocked."""
    rows: Array = np.all(blocked, axis=-1)
    return rows


def _minus_inf(bias: Array) -> Array:
    where: Array = np.isneginf(bias.astype(np.float64))  # NumPy cannot ask this of bfloat16
    return where


def _example() -> Case:
    sizes: dict[str, Any] = dict.fromkeys(("batch", "target_length", "source_length", "num_heads", "num_kv_heads"), 1)
    widths: dict[str, Any] = dict.fromkeys(("embed_dim", "head_dim", "value_head_dim", "kdim", "vdim", "output_dim"), 1)
    return Case("example/one", "example", "one", "the smallest case", Source("example", 1), **sizes, **widths)


_EXAMPLE = _example()


def fact_names() -> tuple[str, ...]:
    """Names of all facts, from any case."""
    return tuple(facts_of(_EXAMPLE))
