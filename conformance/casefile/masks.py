"""The mask of a case file: checked as written, named, and resolved in the sizes of a case.

Between the file and :class:`conformance.spec.Mask` a mask is a plain dictionary in *normal form*: every part that is
present, with its defaults filled in; the empty dictionary is no mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from conformance.casefile.fieldtypes import shape_of
from conformance.casefile.model import MaskKeys
from conformance.spec import Additive, Explicit, Mask, Padding, Window

Path = tuple[int | str, ...]
Sizes = Mapping[str, int]
LETTERS = {"B": "batch", "H": "num_heads", "T": "target_length", "S": "source_length"}
_INDEXED = {"rows": "T", "keys": "S", "heads": "H", "samples": "B"}  # pattern → the axis its indices run along
_NEEDS = {"random": (), "block-diagonal": ("block",), "literal": ("values",), "everything": ()} | dict.fromkeys(
    _INDEXED, ("indices",)
)
_TAKES = _NEEDS | {"random": ("density",)}


class Complaint(NamedTuple):
    """What is wrong with a case: the fields it depends on, the culprit first, and where in the culprit."""

    fields: tuple[str, ...]
    path: Path
    message: str


def stated_form(value: MaskKeys | str) -> dict[str, Any]:
    """The written mask and nothing more, ``is_causal`` spelt as ``causal``."""
    if isinstance(value, str):
        return {}
    parts = value.model_dump(exclude_unset=True)
    if parts.pop("is_causal", False):
        parts.setdefault("causal", "top-left")
    return parts


def normal_form(value: MaskKeys | str) -> dict[str, Any]:
    """The written mask with its defaults filled in: one spelling for each meaning."""
    parts = stated_form(value)
    for name in ("key_padding", "query_padding"):
        if "lengths" in parts.get(name, {}):
            parts[name].setdefault("side", "right")
    if "window" in parts:
        parts["window"].setdefault("align", "top-left")
    if "explicit" in parts:
        _fill(parts["explicit"], "TS")
    if "additive" in parts:
        additive = parts["additive"]
        additive.setdefault("axes", "TS")
        if "values" not in additive:
            additive.setdefault("magnitude", Additive.magnitude)
        if "minus_inf" in additive:
            _fill(additive["minus_inf"], additive["axes"])
    return parts


def _fill(explicit: dict[str, Any], axes: str) -> None:
    explicit.setdefault("axes", axes)
    if "values" in explicit:
        explicit.setdefault("pattern", "literal")
    if explicit.get("pattern") == "random":
        explicit.setdefault("density", Explicit.density)


def flaws(keys: MaskKeys | str, mask: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """What is wrong with a mask whatever the sizes: the path inside the mask, and why. ``mask`` is its normal form."""
    if isinstance(keys, MaskKeys) and {"causal", "is_causal"} <= keys.model_fields_set:
        yield ("is_causal",), "give causal or is_causal, not both"
    for name in ("key_padding", "query_padding"):
        part = mask.get(name)
        if part is not None:
            if sum(key in part for key in ("lengths", "last", "first")) != 1:
                yield (name,), "give exactly one of: lengths, last, first"
            elif "side" in part and "lengths" not in part:
                yield (name, "side"), "side goes with lengths; last pads on the right, first on the left"
    if "explicit" in mask:
        yield from _explicit_flaws(mask["explicit"], ("explicit",))
    if "additive" in mask:
        yield from _additive_flaws(mask["additive"])


def _additive_flaws(additive: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    if "values" in additive and "magnitude" in additive:
        yield ("additive", "magnitude"), "give values or a magnitude, not both"
    for path, number in _leaves(additive.get("values", [])):
        if math.isnan(number) or number == math.inf:
            yield ("additive", "values", *path), f"a bias may be finite or −.inf, not {number}"
    if "minus_inf" in additive:
        yield from _explicit_flaws(additive["minus_inf"], ("additive", "minus_inf"))
        if additive["minus_inf"]["axes"] != additive["axes"]:
            message = f"minus_inf has the axes of its additive part, {additive['axes']}"
            yield ("additive", "minus_inf", "axes"), message


def _explicit_flaws(explicit: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    pattern, axes = explicit.get("pattern"), explicit["axes"]
    if pattern is None:
        yield path, "the key 'pattern' is missing"
        return
    for key in ("density", "block", "indices", "values"):
        if key in explicit and key not in _TAKES[pattern]:
            yield (*path, key), f"{key} means nothing for the pattern {pattern}"
        elif key not in explicit and key in _NEEDS[pattern]:
            yield path, f"the pattern {pattern} needs {key}"
    letter = "T" if pattern == "block-diagonal" else _INDEXED.get(pattern, "S")
    if letter not in axes:
        message = f"the pattern {pattern} needs {letter} ({LETTERS[letter]}) among the axes; {axes} has none"
        yield (*path, "axes"), message
    for place, number in _leaves(explicit.get("values", [])):
        if number not in (0, 1):
            yield (*path, "values", *place), f"a Boolean mask holds 0 or 1, not {number}"


def resolve(mask: Mapping[str, Any], sizes: Sizes) -> tuple[Mask, list[Complaint]]:
    """The mask of a case in its sizes, and what does not fit them."""
    complaints: list[Complaint] = []
    for name, axis in (("key_padding", "source_length"), ("query_padding", "target_length")):
        if name in mask:
            complaints += _padding_complaints(name, mask[name], axis, sizes)
    explicit, additive = mask.get("explicit"), mask.get("additive")
    if explicit is not None:
        complaints += _explicit_complaints(explicit, ("explicit",), sizes)
    if additive is not None:
        complaints += _values_complaints(additive, ("additive",), sizes)
        if "minus_inf" in additive:
            complaints += _explicit_complaints(additive["minus_inf"], ("additive", "minus_inf"), sizes)
    if complaints:
        return Mask(), complaints
    return Mask(
        key_padding=_padding(mask.get("key_padding"), sizes["batch"], sizes["source_length"]),
        query_padding=_padding(mask.get("query_padding"), sizes["batch"], sizes["target_length"]),
        causal=mask.get("causal"),
        window=Window(**mask["window"]) if "window" in mask else None,
        explicit=_explicit(explicit),
        additive=_additive(additive),
    ), []


def _padding(part: Mapping[str, Any] | None, batch: int, length: int) -> Padding | None:
    match part:
        case None:
            return None
        case {"lengths": lengths, "side": side}:
            return Padding(tuple(lengths), side)
        case {"last": count}:
            return Padding((length - count,) * batch, "right")
        case _:
            return Padding((length - part["first"],) * batch, "left")


def _explicit(part: Mapping[str, Any] | None) -> Explicit | None:
    return None if part is None else Explicit(**{key: frozen(value) for key, value in part.items()})


def _additive(part: Mapping[str, Any] | None) -> Additive | None:
    if part is None:
        return None
    plain = {key: frozen(value) for key, value in part.items() if key != "minus_inf"}
    return Additive(**plain, minus_inf=_explicit(part.get("minus_inf")))


def _padding_complaints(name: str, part: Mapping[str, Any], axis: str, sizes: Sizes) -> Iterator[Complaint]:
    size = sizes[axis]
    for key in ("last", "first"):
        if part.get(key, 0) > size:
            yield Complaint(("mask", axis), (name, key), f"{name}: {key} {part[key]} is more than {axis} {size}")
    lengths = part.get("lengths")
    if lengths is None:
        return
    if len(lengths) != sizes["batch"]:
        message = f"{name}: {len(lengths)} lengths for a batch of {sizes['batch']}"
        yield Complaint(("mask", "batch"), (name, "lengths"), message)
    for index, length in enumerate(lengths):
        if length > size:
            message = f"{name}: length {length} is more than {axis} {size}"
            yield Complaint(("mask", axis), (name, "lengths", index), message)


def _explicit_complaints(part: Mapping[str, Any], path: Path, sizes: Sizes) -> Iterator[Complaint]:
    letter = _INDEXED.get(part["pattern"])
    if letter is not None:
        axis = LETTERS[letter]
        for index, number in enumerate(part["indices"]):
            if number >= sizes[axis]:
                message = f"{part['pattern']}: index {number} is not below {axis} {sizes[axis]}"
                yield Complaint(("mask", axis), (*path, "indices", index), message)
    yield from _values_complaints(part, path, sizes)


def _values_complaints(part: Mapping[str, Any], path: Path, sizes: Sizes) -> Iterator[Complaint]:
    if "values" in part:
        axes = part["axes"]
        fields = tuple(LETTERS[letter] for letter in axes if letter != "1")
        wanted = [1 if letter == "1" else sizes[LETTERS[letter]] for letter in axes]
        if not fits(part["values"], wanted):
            message = f"values have shape {shape_of(part['values'])}, the axes {axes} mean {wanted}"
            yield Complaint(("mask", *fields), (*path, "values"), message)


def fits(values: Any, shape: list[int]) -> bool:
    """Whether nested lists have a shape; what an empty list would have held cannot be seen and is not asked."""
    known = shape.index(0) + 1 if 0 in shape else len(shape)
    return shape_of(values) == shape[:known]


def frozen(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value


def _leaves(values: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], float]]:
    for index, item in enumerate(values):
        if isinstance(item, list):
            yield from _leaves(item, (*path, index))
        else:
            yield (*path, index), item
