"""What is impossible about a case's dropout, or about data that are to reveal it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.casefile.masks import Complaint
from conformance.spec import Literals


def dropout_complaints(
    values: Mapping[str, Any], sizes: Mapping[str, int], literals: Literals | None
) -> Iterator[Complaint]:
    """``values`` holds every field of the case but its sizes."""
    if values["dropout"] > 0 and values["mode"] == "train":
        if values["calls"] != "once":
            message = f"dropout in training is drawn in several calls anyway: calls {values['calls']} says nothing"
            yield Complaint(("calls", "dropout", "mode"), (), message)
        if values["relation"] is not None:
            message = f"relation {values['relation']} compares calls, and dropout in training makes each another"
            yield Complaint(("relation", "dropout", "mode"), (), message)
        if values["data"].get("poison") is not None:
            yield Complaint(("data", "dropout", "mode"), (), "poison and dropout in training hide each other")
        if "output" not in values["check"]:
            yield Complaint(("check", "dropout", "mode"), (), "dropout in training shows in the output: check it")
        if literals is not None and literals.expected:
            yield Complaint(("dropout", "mode"), (), "dropout in training is random: no outputs can be written for it")
    if values["data"]["regime"] == "revealing" and not _reveals(values, sizes):
        needs = "value_head_dim ≥ 2·source_length, vdim ≥ source_length, output_dim = num_heads·value_head_dim"
        fields = ("data", "source_length", "value_head_dim", "vdim", "output_dim", "sharing")
        yield Complaint(fields, (), f"data revealing needs {needs}, separate inputs and no extra keys")


def _reveals(values: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    return (
        sizes["value_head_dim"] >= 2 * sizes["source_length"]
        and sizes["vdim"] >= sizes["source_length"]
        and sizes["output_dim"] == sizes["num_heads"] * sizes["value_head_dim"]
        and values["sharing"] == "separate"
        and not values["bias_kv"]
        and not values["zero_attention"]
    )
