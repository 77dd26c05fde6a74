"""What contradicts itself about the call that a case makes, and about its data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.casefile.masks import Complaint
from conformance.casefile.related import relation_complaints
from conformance.malformed import lacking
from conformance.spec import Literals


def call_complaints(
    values: Mapping[str, Any], sizes: Mapping[str, int], literals: Literals | None
) -> Iterator[Complaint]:
    """``values`` holds every field of the case but its sizes."""
    yield from _expectation_complaints(values, sizes)
    yield from relation_complaints(values, sizes, literals)
    yield from _data_complaints(values, sizes, literals)


def _expectation_complaints(values: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[Complaint]:
    ill_formed, expect = values["ill_formed"], values["expect"]
    if ill_formed is not None:
        axes = values["mask"].get("explicit", {}).get("axes")
        square = sizes["batch"] == sizes["target_length"]
        lacks = lacking(ill_formed, values["mask"], axes, values["sharing"], square=square)
        if lacks is not None:
            yield Complaint(("ill_formed", lacks[0]), (), lacks[1])
        if expect == "agree":
            message = "an ill-formed call has no answer to agree with: leave expect out, or say {raises: true}"
            yield Complaint(("expect", "ill_formed"), (), message)
    elif expect == "raises":
        yield Complaint(("expect", "ill_formed"), (), "only an ill-formed call raises: say what is ill_formed")


def _data_complaints(
    values: Mapping[str, Any], sizes: Mapping[str, int], literals: Literals | None
) -> Iterator[Complaint]:
    data = values["data"]
    if data.get("poison") is not None and not values["mask"].keys() - {"additive"}:
        yield Complaint(("data", "mask"), (), "poison needs a mask that blocks a key for every query of a sample")
    if not math.isfinite(data.get("poison") or 0) and values["expect"] != "observe":
        message = "nobody agrees on what poison that is not finite should do: expect observe"
        yield Complaint(("data", "expect"), (), message)
    if data["regime"] == "literal" and not (literals and literals.given):
        yield Complaint(("data",), (), "data literal needs given numbers")
    if data["regime"] == "one-hot":
        possible = sizes["embed_dim"] == sizes["num_heads"] * sizes["head_dim"] and sizes["kdim"] >= sizes["head_dim"]
        if not possible or sizes["source_length"] > 2 ** min(sizes["head_dim"], 64) or values["sharing"] != "separate":
            needs = "embed_dim = num_heads·head_dim, kdim ≥ head_dim, source_length ≤ 2^head_dim and separate inputs"
            yield Complaint(
                ("data", "source_length", "embed_dim", "head_dim", "sharing"), (), f"data one-hot needs {needs}"
            )
