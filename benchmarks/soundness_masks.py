"""Masks drawn at random: every part, form and pattern, alone and together, as the keys of a case file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from conformance.spec import MASK_PARTS
from conformance.vocabulary import Alignment, Axes

if TYPE_CHECKING:
    from benchmarks.soundness_draws import Draw

LETTERS = {"B": "batch", "H": "num_heads", "T": "target_length", "S": "source_length"}
INDEXED = {"rows": "T", "keys": "S", "heads": "H", "samples": "B"}
PADDED = {"key_padding": "source_length", "query_padding": "target_length"}
BOOLEAN = ("key_padding", "causal", "explicit")  # the parts that every framework has a parameter for
MAX_WRITTEN = 48  # numbers of a mask that is written out


def drawn_mask(draw: Draw, sizes: Mapping[str, int], parts: Sequence[str] = MASK_PARTS) -> dict[str, Any]:
    """No mask, one of the parts, or several together; the lengths of padding are left open."""
    if draw.chance(0.2):
        return {}
    names = [name for name in parts if draw.chance(0.15)] or [draw.one_of(*parts)]
    return {name: _PARTS[name](draw, sizes) for name in names}


def with_lengths(draw: Draw, form: Mapping[str, Any]) -> Any:
    """The mask of a form with the lengths of its paddings: now and then 0, or so many in every sample."""
    mask = form["mask"]
    if mask == "none":
        return mask
    drawn = {}
    for name, part in mask.items():
        drawn[name] = part
        if name in PADDED:
            length = form[PADDED[name]]
            least = 0 if draw.chance(0.15) else 1
            lengths = [int(count) for count in draw.random.integers(least, length + 1, form["batch"])]
            drawn[name] = {"lengths": lengths, "side": part["side"]}
    return drawn


def _padding(draw: Draw, sizes: Mapping[str, int]) -> dict[str, Any]:
    return {"side": draw.one_of("right", "right", "left")}


def _causal(draw: Draw, sizes: Mapping[str, int]) -> str:
    return str(draw.one_of(*get_args(Alignment)))


def _window(draw: Draw, sizes: Mapping[str, int]) -> dict[str, Any]:
    longest = max(sizes["target_length"], sizes["source_length"])
    before, after = draw.size(longest) - 1, draw.size(longest) - 1
    return {"before": before, "after": after, "align": _causal(draw, sizes)}


def _explicit(draw: Draw, sizes: Mapping[str, int]) -> dict[str, Any]:
    return _pattern(draw, sizes, str(draw.one_of(*get_args(Axes))))


def _pattern(draw: Draw, sizes: Mapping[str, int], axes: str) -> dict[str, Any]:
    """A Boolean pattern that these axes can hold."""
    possible = ["random"] * 4 + ["keys"] + [name for name, letter in INDEXED.items() if letter in axes]
    possible += ["block-diagonal"] * ("T" in axes) + ["literal"] * (_count(axes, sizes) <= MAX_WRITTEN)
    pattern = "everything" if draw.chance(0.02) else draw.one_of(*possible)
    keys: dict[str, Any] = {"pattern": pattern, "axes": axes}
    if pattern == "random":
        keys["density"] = round(float(draw.random.uniform(0.05, 0.95)), 3)
    elif pattern == "block-diagonal":
        keys["block"] = draw.size(max(sizes["target_length"], sizes["source_length"]))
    elif pattern == "literal":
        keys["values"] = draw.random.integers(0, 2, _shape(axes, sizes)).tolist()
    elif pattern in INDEXED:
        size = sizes[LETTERS[INDEXED[pattern]]]
        chosen = draw.random.permutation(size)[: draw.size(max(1, size // 2))]
        keys["indices"] = sorted(int(index) for index in chosen)
    return keys


def _additive(draw: Draw, sizes: Mapping[str, int]) -> dict[str, Any]:
    axes = str(draw.one_of(*get_args(Axes)))
    keys: dict[str, Any] = {"axes": axes}
    if _count(axes, sizes) <= MAX_WRITTEN and draw.chance(0.3):
        keys["values"] = draw.random.normal(0, 3, _shape(axes, sizes)).round(2).tolist()
    else:
        keys["magnitude"] = draw.magnitude()
    if draw.chance(0.3):
        keys["minus_inf"] = _pattern(draw, sizes, axes)
    return keys


def _shape(axes: str, sizes: Mapping[str, int]) -> list[int]:
    return [1 if letter == "1" else sizes[LETTERS[letter]] for letter in axes]


def _count(axes: str, sizes: Mapping[str, int]) -> int:
    total = 1
    for size in _shape(axes, sizes):
        total *= size
    return total


_PARTS = {
    "key_padding": _padding,
    "query_padding": _padding,
    "causal": _causal,
    "window": _window,
    "explicit": _explicit,
    "additive": _additive,
}
