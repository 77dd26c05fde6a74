"""Which relations a case can ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.casefile.masks import Complaint
from conformance.facts import facts_of
from conformance.spec import Case, Literals

_SHARING_REFUSED = {
    "keys-permuted": ("self", "query-key"),
    "keys-appended": ("self", "query-key"),
    "conservation": ("self", "key-value"),
}
_LEAST = {
    "keys-permuted": ("source_length", 2),
    "heads-permuted": ("num_heads", 2),
    "batch-split": ("batch", 2),
    "conservation": ("source_length", 1),
}


def relation_complaints(
    values: Mapping[str, Any], sizes: Mapping[str, int], literals: Literals | None
) -> Iterator[Complaint]:
    """What keeps the relation of a case from being built (see :mod:`conformance.relations.table`)."""
    relation = values["relation"]
    if relation is None:
        return
    for name, plain, words in (("calls", "once", "calls once"), ("ill_formed", None, "a well-formed call")):
        if values[name] != plain:
            yield Complaint(("relation", name), (), f"relation {relation} needs {words}, not {name} {values[name]}")
    if values["expect"] not in (None, "agree"):
        yield Complaint(("expect", "relation"), (), f"relation {relation} is kept or broken: expect agree")
    if values["sharing"] in _SHARING_REFUSED.get(relation, ()):
        message = f"relation {relation} needs inputs of their own, not sharing {values['sharing']}"
        yield Complaint(("relation", "sharing"), (), message)
    name, least = _LEAST.get(relation, ("batch", 0))
    if sizes[name] < least:
        yield Complaint(("relation", name), (), f"relation {relation} needs {name} of {least} or more")
    yield from _compared(relation, values, literals)
    if relation == "keys-appended":
        yield from _appended(values["mask"])
    if relation == "scores-shifted" and not values["bias"]:
        yield Complaint(("relation", "bias"), (), "relation scores-shifted changes the key bias: bias true")
    if relation in ("scores-shifted", "conservation"):
        for extra in ("bias_kv", "zero_attention"):
            if values[extra]:
                yield Complaint(("relation", extra), (), f"relation {relation} does not hold with {extra}")


def _compared(relation: str, values: Mapping[str, Any], literals: Literals | None) -> Iterator[Complaint]:
    if literals is not None and literals.expected:
        yield Complaint(("relation",), (), f"relation {relation} compares calls: no outputs can be written for it")
    if relation == "conservation" and set(values["check"]) <= {"weights"}:
        message = "relation conservation compares outputs and gradients: check one of them"
        yield Complaint(("check", "relation"), (), message)
    if relation == "conservation" and values["data"].get("poison") is not None:
        yield Complaint(("data", "relation"), (), "relation conservation makes all values one: poison would be in all")


def blocked_row_complaints(case: Case) -> Iterator[Complaint]:
    """A relation is about rows that see a key: an answer that breaks the contract has no bound."""
    if case.relation is not None and facts_of(case)["blocked_rows"] != "none":
        message = f"relation {case.relation} needs a mask that leaves every row a key"
        yield Complaint(("mask", "relation"), (), message)


def _appended(mask: Mapping[str, Any]) -> Iterator[Complaint]:
    aligned = {"causal": mask.get("causal"), "window": mask.get("window", {}).get("align")}
    for part, align in aligned.items():
        if align == "bottom-right":
            message = f"relation keys-appended needs {part} top-left: bottom-right moves with the number of keys"
            yield Complaint(("relation", "mask"), (), message)
    padding = mask.get("key_padding", {})
    if padding.get("side") == "left" or "first" in padding:
        yield Complaint(("relation", "mask"), (), "relation keys-appended needs key_padding on the right")
