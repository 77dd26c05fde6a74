"""The sizes of a case: defaults filled in, and what cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.casefile.fieldtypes import MAX_ELEMENTS
from conformance.casefile.masks import Complaint, Sizes

BATCH, TARGET_LENGTH, SOURCE_LENGTH, EMBED_DIM, NUM_HEADS = 2, 5, 7, 16, 4


def resolve_sizes(stated: Mapping[str, int], ill_formed: str | None = None) -> dict[str, int]:
    """Every size of a case. What is not stated follows from what is: ``num_kv_heads`` from ``num_heads``,
    ``head_dim`` = ``embed_dim`` // ``num_heads``, ``value_head_dim`` from ``head_dim``, the other widths from
    ``embed_dim``. An ill-formed call gets the sizes that make it so."""
    num_heads = stated.get("num_heads", 0 if ill_formed == "zero-heads" else NUM_HEADS)
    uneven = 4 * num_heads + num_heads // 2
    embed_dim = stated.get("embed_dim", uneven if ill_formed == "embed-dim-not-divisible" else EMBED_DIM)
    head_dim = stated.get("head_dim", embed_dim // num_heads if num_heads else embed_dim)
    num_kv_heads = num_heads - 1 if ill_formed == "heads-not-divisible-by-kv-heads" else num_heads
    return {
        "batch": stated.get("batch", BATCH),
        "target_length": stated.get("target_length", TARGET_LENGTH),
        "source_length": stated.get("source_length", SOURCE_LENGTH),
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "num_kv_heads": stated.get("num_kv_heads", num_kv_heads),
        "head_dim": head_dim,
        "value_head_dim": stated.get("value_head_dim", head_dim),
        "kdim": stated.get("kdim", embed_dim),
        "vdim": stated.get("vdim", embed_dim),
        "output_dim": stated.get("output_dim", embed_dim),
    }


def size_complaints(sizes: Sizes, stated: Mapping[str, int], values: Mapping[str, Any]) -> Iterator[Complaint]:
    """What makes these sizes impossible. ``values`` holds the case's other fields."""
    yield from _head_complaints(sizes, stated, values["ill_formed"])
    yield from _sharing_complaints(sizes, values["sharing"])
    yield from _memory_complaints(sizes)


def _head_complaints(sizes: Sizes, stated: Mapping[str, int], ill_formed: str | None) -> Iterator[Complaint]:
    width, heads, groups = sizes["embed_dim"], sizes["num_heads"], sizes["num_kv_heads"]
    if ill_formed == "zero-heads":
        if heads:
            message = f"ill_formed zero-heads needs num_heads 0 (or left out), not {heads}"
            yield Complaint(("num_heads", "ill_formed"), (), message)
        return
    if heads == 0:
        yield Complaint(("num_heads",), (), "num_heads 0 makes a call ill-formed: say ill_formed: zero-heads")
        return
    divisible = width % heads == 0
    if ill_formed == "embed-dim-not-divisible":
        if divisible:
            message = f"ill_formed embed-dim-not-divisible, but embed_dim {width} is divisible by num_heads {heads}"
            yield Complaint(("embed_dim", "num_heads", "ill_formed"), (), message)
    elif not divisible and "head_dim" not in stated:
        message = f"embed_dim {width} is not divisible by num_heads {heads}: state head_dim, or that it is ill_formed"
        yield Complaint(("embed_dim", "num_heads", "head_dim"), (), message)
    if ill_formed == "heads-not-divisible-by-kv-heads":
        if groups == 0 or heads % groups == 0:
            message = f"ill_formed {ill_formed} needs num_kv_heads that do not divide num_heads {heads}, not {groups}"
            yield Complaint(("num_kv_heads", "num_heads", "ill_formed"), (), message)
    elif groups == 0 or heads % groups:
        message = f"num_heads {heads} is not divisible by num_kv_heads {groups}"
        yield Complaint(("num_kv_heads", "num_heads"), (), message)


def _sharing_complaints(sizes: Sizes, sharing: str) -> Iterator[Complaint]:
    if sharing in ("self", "query-key", "equal-copies"):
        if sizes["target_length"] != sizes["source_length"]:
            lengths = f"target_length {sizes['target_length']} and source_length {sizes['source_length']}"
            yield Complaint(
                ("sharing", "source_length", "target_length"),
                (),
                f"sharing {sharing} needs equal lengths, not {lengths}",
            )
        for name in ("kdim",) if sharing == "query-key" else ("kdim", "vdim"):
            if sizes[name] != sizes["embed_dim"]:
                message = f"sharing {sharing} needs {name} = embed_dim, not {sizes[name]} and {sizes['embed_dim']}"
                yield Complaint(("sharing", name, "embed_dim"), (), message)
    elif sharing == "key-value" and sizes["kdim"] != sizes["vdim"]:
        message = f"sharing key-value needs kdim = vdim, not {sizes['kdim']} and {sizes['vdim']}"
        yield Complaint(("sharing", "kdim", "vdim"), (), message)


_ARRAYS: Mapping[str, tuple[str, ...]] = {
    "scores": ("batch", "num_heads", "target_length", "source_length"),
    "query": ("batch", "target_length", "embed_dim"),
    "key": ("batch", "source_length", "kdim"),
    "value": ("batch", "source_length", "vdim"),
    "output": ("batch", "target_length", "output_dim"),
    "query_weight": ("embed_dim", "num_heads", "head_dim"),
    "key_weight": ("kdim", "num_kv_heads", "head_dim"),
    "value_weight": ("vdim", "num_kv_heads", "value_head_dim"),
    "output_weight": ("num_heads", "value_head_dim", "output_dim"),
    "projected query": ("batch", "target_length", "num_heads", "head_dim"),
    "projected key": ("batch", "source_length", "num_kv_heads", "head_dim"),
    "projected value": ("batch", "source_length", "num_kv_heads", "value_head_dim"),
}


def _memory_complaints(sizes: Sizes) -> Iterator[Complaint]:
    for array, factors in _ARRAYS.items():
        elements = 1
        for name in factors:
            elements *= sizes[name]
        if elements > MAX_ELEMENTS:
            largest = sorted(factors, key=lambda name: -sizes[name])
            shape = "·".join(f"{name} {sizes[name]}" for name in factors)
            message = f"too large: {array} would have {elements:,} elements ({shape}); the limit is {MAX_ELEMENTS:,}"
            yield Complaint(tuple(largest), (), message)
            return
