"""Cases drawn at random, each as the text of a case file: what runs can be written down, read and run again.

A draw has a *form* (sizes, dtype, parts of the mask: what a compiled program depends on) and *data* (regime, magnitude,
lengths of padding, all numbers). Both follow from the seed and the number of the draw alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.soundness_masks import BOOLEAN, drawn_mask, with_lengths
from conformance.casefile import read_case_file
from conformance.spec import Case
from conformance.tensors import problem_of
from conformance.vocabulary import Dtype, Layout, MaskRoute, Regime, Sharing

Definition = dict[str, Any]
POOL = 36  # forms that subjects answer which compile each; a multiple of the number of dtypes
SHORT, LONGEST = 32, 512
MAX_SCORES = 2**18  # elements of the scores, and of the largest projection: what a draw may cost
NAME = "drawn"  # of the only case of a file
REGIMES = tuple(regime for regime in get_args(Regime) if regime not in ("literal", "revealing"))
USUAL = 0.3  # share of draws that every subject answers: self-attention, a Boolean mask, nothing else stated
PLAIN = 0.5  # of the others, share with plain widths, as most modules of the frameworks want them


class Draw:
    """One source of random choices."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def one_of(self, *options: Any) -> Any:
        return options[int(self.random.integers(len(options)))]

    def size(self, largest: int, smallest: int = 1) -> int:
        """A whole number drawn log-uniformly, both ends included."""
        return int(np.exp(self.random.uniform(np.log(smallest), np.log(largest + 1))))

    def length(self) -> int:
        """A length of 1 … 512: most are short, so that many draws are affordable."""
        return self.size(SHORT if self.chance(0.85) else LONGEST)

    def magnitude(self) -> float:
        """1e-3 … 1e3, three digits."""
        return float(f"{10 ** self.random.uniform(-3, 3):.3g}")


def definition(seed: int, number: int, *, pooled: bool) -> Definition:
    """The keys of draw ``number``; ``pooled`` takes its form from a pool of :data:`POOL`."""
    form = number % POOL if pooled else number
    drawn = _form(Draw(seed, 1 + pooled, form), get_args(Dtype)[form % len(get_args(Dtype))])
    return _with_data(Draw(seed, 3 + pooled, number), drawn)


def case_text(seed: int, number: int, drawn: Mapping[str, Any], *, pooled: bool) -> str:
    """A case file with one case. Its suite, and with it the case's numbers, is named after seed and number."""
    kind = "pooled" if pooled else "free"
    lines = [f"    {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in drawn.items()]
    return "\n".join(
        [
            f"suite: soundness-{seed}-{kind}-{number}",
            f"why: Drawn by benchmarks/soundness.py --seed {seed}; an error above its bound is a fault of either.",
            "include:",
            f"  - name: {NAME}",
            *lines,
            "",
        ]
    )


def drawn_case(seed: int, number: int, folder: Path, *, pooled: bool) -> tuple[Case, str] | None:
    """The case of a draw, read from its text, and the text; None where its numbers cannot be made in these sizes.

    ``folder`` is where the text is put to be read.
    """
    text = case_text(seed, number, definition(seed, number, pooled=pooled), pooled=pooled)
    path = folder / "drawn.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        (case,) = read_case_file(path, folder)
        with np.errstate(over="ignore"):
            problem_of(case)
    except ValueError:  # a regime that these sizes, or this format, cannot hold
        return None
    return case, text


def _form(draw: Draw, dtype: str) -> Definition:
    """Everything but the numbers. Sizes are drawn again until they are affordable."""
    usual = draw.chance(USUAL)
    sharing = "self" if usual else draw.one_of("separate", "separate", *get_args(Sharing))
    sizes = _sizes(draw, sharing, plain=usual)
    while _cost(sizes) > MAX_SCORES / (4 if dtype == "float64" else 1):
        sizes = _sizes(draw, sharing, plain=usual)
    form: Definition = {**sizes, "dtype": dtype, "sharing": sharing}
    if usual:
        return form | {"mask": drawn_mask(draw, sizes, BOOLEAN) or "none"}
    form["mask"] = drawn_mask(draw, sizes) or "none"
    form["mask_route"] = draw.one_of(*get_args(MaskRoute))
    form["layout"] = draw.one_of(*get_args(Layout)) if draw.chance(0.3) else "contiguous"
    form["calls"] = draw.one_of("repeated", "one-sample-at-a-time") if draw.chance(0.15) else "once"
    form["bias"] = draw.chance(0.7)
    form["bias_kv"], form["zero_attention"] = draw.chance(0.08), draw.chance(0.08)
    form["scale"] = draw.one_of(1.0, 0.5, 0.3, 0.125, 0.01, 0.0, -0.5, 2.5) if draw.chance(0.2) else None
    return form


def _sizes(draw: Draw, sharing: str, *, plain: bool) -> dict[str, int]:
    heads = draw.one_of(1, 1, 2, 2, 3, 4, 4, 6, 8, 16)
    head_dim = draw.one_of(1, 2, 3, 4, 5, 7, 8, 8, 13, 16, 16, 32, 33, 64, 128)
    sizes = {
        "batch": draw.one_of(1, 1, 2, 2, 3, 5),
        "target_length": draw.length(),
        "source_length": draw.length(),
        "embed_dim": heads * head_dim,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": head_dim,
        "value_head_dim": head_dim,
        "kdim": heads * head_dim,
        "vdim": heads * head_dim,
        "output_dim": heads * head_dim,
    }
    if not plain and not draw.chance(PLAIN):
        _own_widths(draw, sizes)
    if sharing in ("self", "query-key", "equal-copies"):
        sizes["source_length"] = sizes["target_length"]
        sizes["kdim"] = sizes["embed_dim"]
        sizes["vdim"] = sizes["vdim"] if sharing == "query-key" else sizes["embed_dim"]
    elif sharing == "key-value":
        sizes["vdim"] = sizes["kdim"]
    return sizes


def _own_widths(draw: Draw, sizes: dict[str, int]) -> None:
    """Fewer key heads than query heads, value heads and inputs of other widths."""
    heads = sizes["num_heads"]
    if draw.chance(0.4):
        sizes["num_kv_heads"] = draw.one_of(*(count for count in range(1, heads + 1) if heads % count == 0))
    if draw.chance(0.3):
        sizes["value_head_dim"] = draw.one_of(1, 2, 3, 8, 17, 64)
    for width, probability in (("embed_dim", 0.4), ("kdim", 0.4), ("vdim", 0.4), ("output_dim", 0.4)):
        if draw.chance(probability):
            sizes[width] = draw.size(LONGEST)


def _cost(sizes: Mapping[str, int]) -> int:
    """Elements of the largest array of a problem's stages."""
    batch, heads = sizes["batch"], sizes["num_heads"]
    longest = max(sizes["target_length"], sizes["source_length"])
    width = max(heads * max(sizes["head_dim"], sizes["value_head_dim"]), sizes["embed_dim"], sizes["vdim"])
    return max(batch * heads * sizes["target_length"] * sizes["source_length"], batch * longest * width, width**2)


def _with_data(draw: Draw, form: Definition) -> Definition:
    """The form with numbers: a regime, a magnitude, lengths of padding, now and then poison."""
    regime = draw.one_of("normal", "normal", "normal", *REGIMES)
    if regime == "one-hot" and not _codes_fit(form):
        regime = "normal"
    magnitude = draw.magnitude() if draw.chance(0.4) else 1.0
    if regime in ("rounding-ties", "integers", "one-hot"):
        magnitude = 2.0 ** float(np.rint(np.log2(magnitude)))  # others would make the numbers inexact
    data: Definition = {"regime": regime, "magnitude": magnitude}
    mask = with_lengths(draw, form)
    if (
        form["sharing"] not in ("self", "query-key")
        and isinstance(mask, dict)
        and "key_padding" in mask
        and draw.chance(0.2)
    ):
        data["poison"] = draw.one_of(1.0, 100.0, -3e4)
    return form | {"mask": mask, "data": data}


def _codes_fit(form: Definition) -> bool:
    return bool(
        form["embed_dim"] == form["num_heads"] * form["head_dim"]
        and form["kdim"] >= form["head_dim"]
        and form["source_length"] <= 2 ** form["head_dim"]
        and form["sharing"] == "separate"
    )
