"""How a case's name spells what it states: short, unique for each value, only characters ``[A-Za-z0-9._+-]``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

SIZE_PREFIXES = {
    "batch": "B",
    "target_length": "T",
    "source_length": "S",
    "embed_dim": "D",
    "num_heads": "H",
    "num_kv_heads": "K",
    "head_dim": "Dh",
    "value_head_dim": "Dhv",
    "kdim": "Dk",
    "vdim": "Dv",
    "output_dim": "Do",
}
MANY = 8  # numbers that are spelt out one by one; more are told apart by a digest


def spelt(name: str, value: Any) -> str:
    """A field's value as a piece of a case's name; masks and data in normal form."""
    match name:
        case "mask":
            return _mask(value)
        case "data":
            return _data(value)
        case "bias" | "bias_kv" | "zero_attention":
            return ("" if value else "no-") + name.replace("_", "-")
        case "dropout":
            return f"dropout{_number(value)}"
        case "scale":
            return "scale-default" if value is None else f"scale{_number(value)}"
        case "relation":
            return "no-relation" if value is None else str(value)
        case "ill_formed":
            return "well-formed" if value is None else str(value)
        case "check":
            return "+".join(value)
        case _:
            return SIZE_PREFIXES.get(name, "") + str(value)


def _mask(mask: Mapping[str, Any]) -> str:
    parts = []
    if "key_padding" in mask:
        parts.append(_padding("key-padding", "", mask["key_padding"]))
    if "query_padding" in mask:
        parts.append(_padding("query-padding", "query-", mask["query_padding"]))
    if "causal" in mask:
        parts.append(f"causal.{mask['causal']}")
    if "window" in mask:
        window = mask["window"]
        side = "" if window["align"] == "top-left" else f".{window['align']}"
        parts.append(f"window.{window['before']}.{window['after']}{side}")
    if "explicit" in mask:
        parts.append(f"explicit.{_explicit(mask['explicit'])}.{mask['explicit']['axes']}")
    if "additive" in mask:
        parts.append(_additive(mask["additive"]))
    return "+".join(parts) or "unmasked"


def _padding(name: str, prefix: str, part: Mapping[str, Any]) -> str:
    for key in ("last", "first"):
        if key in part:
            return f"{prefix}{key}{part[key]}"
    return ".".join([name, *_numbers(part["lengths"]), *(["left"] if part["side"] == "left" else [])])


def _explicit(part: Mapping[str, Any]) -> str:
    match part["pattern"]:
        case "random":
            return f"random{_number(part['density'])}"
        case "block-diagonal":
            return f"block-diagonal{part['block']}"
        case "everything":
            return "everything"
        case "literal":
            return f"literal.{_digest(part['values'])}"
        case pattern:
            return ".".join([pattern, *_numbers(part["indices"])])


def _additive(part: Mapping[str, Any]) -> str:
    numbers = _digest(part["values"]) if "values" in part else f"x{_number(part['magnitude'])}"
    minus_inf = [f"minus-inf.{_explicit(part['minus_inf'])}"] if "minus_inf" in part else []
    return ".".join(["additive", part["axes"], numbers, *minus_inf])


def _data(data: Mapping[str, Any]) -> str:
    parts = [data["regime"]]
    if data["magnitude"] != 1:
        parts.append(f"x{_number(data['magnitude'])}")
    if data.get("poison") is not None:
        parts.append(f"poison-{_number(data['poison'])}")
    return ".".join(parts)


def _numbers(values: Sequence[int]) -> list[str]:
    return [str(value) for value in values] if len(values) <= MANY else [_digest(values)]


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _digest(values: Sequence[Any]) -> str:
    """Eight hexadecimal digits for nested numbers; ``1`` and ``1.0`` are the same number."""
    return hashlib.sha256(json.dumps(_floats(values)).encode()).hexdigest()[:8]


def _floats(values: Any) -> Any:
    return [_floats(item) for item in values] if isinstance(values, list | tuple) else float(values)
