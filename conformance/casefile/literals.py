"""Cases written one by one, with or without the numbers themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.casefile.build import SIZES, Builder, Cell, Cells, Scope
from conformance.casefile.fieldtypes import shape_of
from conformance.casefile.located import Loc
from conformance.casefile.masks import Complaint, fits
from conformance.casefile.model import DataKeys, ExpectedKeys, IncludeKeys
from conformance.casefile.names import spelt
from conformance.casefile.sizes import resolve_sizes
from conformance.spec import Case, Literals, Source
from conformance.tensors import shapes
from conformance.vocabulary import Check

# Which size each axis of an array shows; None where it shows a product of sizes.
_AXES: Mapping[str, tuple[str | None, ...]] = {
    "query": ("batch", "target_length", "embed_dim"),
    "key": ("batch", "source_length", "kdim"),
    "value": ("batch", "source_length", "vdim"),
    "cotangent": ("batch", "target_length", "output_dim"),
    "attn_output": ("batch", "target_length", "output_dim"),
    "attn_weights": ("batch", "num_heads", "target_length", None),
    "query_weight": ("embed_dim", None),
    "key_weight": ("kdim", None),
    "value_weight": ("vdim", None),
    "output_weight": (None, "output_dim"),
    "output_bias": ("output_dim",),
}
# Arrays with an axis that is a product: which axis, the size it shows, and the size by which to divide.
_PRODUCTS = (
    ("query_weight", 1, "head_dim", "num_heads"),
    ("output_weight", 0, "value_head_dim", "num_heads"),
    ("key_weight", 1, "num_kv_heads", "head_dim"),
)
_SHARED: Mapping[str, tuple[str, ...]] = {
    "self": ("key", "value"),
    "equal-copies": ("key", "value"),
    "key-value": ("value",),
    "query-key": ("key",),
    "separate": (),
}
_CHECKS: Mapping[str, Check] = {"attn_output": "output", "attn_weights": "weights"}


def include(builder: Builder, entry: IncludeKeys, loc: Loc, scope: Scope) -> None:
    """Add the case of one entry of ``include``, or note what is wrong with it."""
    subjects = builder.subjects(entry, loc) or scope.subjects
    line = builder.document.line(loc)
    tags = tuple(dict.fromkeys((*scope.tags, *(entry.tags or ()))))
    scope = replace(
        scope,
        why=entry.why or scope.why,
        source=Source(scope.source.file, line, entry=True),
        loc=loc,
        tags=tags,
        subjects=subjects,
    )
    noted = len(builder.faults)
    own = builder.cells(entry, loc, near=True)
    given, expected = _given(entry, loc), _expected(builder, entry, loc)
    name = entry.name or "-".join(spelt(key, cell.value) for key, cell in own.items())
    if not name or (entry.name is None and (given or expected)):
        builder.fault(loc, "this case needs a name")
    if len(builder.faults) > noted:
        return
    cells = {**scope.cells, **_inferred(given | expected, {**scope.cells, **own}, own), **own}
    if given:
        cells |= {"data": _literal_data(builder, entry, cells, loc)}
    add_literal_case(builder, scope, cells, name, given, expected)


def add_literal_case(builder: Builder, scope: Scope, cells: Cells, name: str, given: Cells, expected: Cells) -> None:
    """Add a case with the arrays it is given; it is taken back when they do not fit it."""
    sharing = cells["sharing"].value if "sharing" in cells else "separate"
    copies = {copy: given["query"].value for copy in _SHARED[sharing] if sharing == "equal-copies" and "query" in given}
    literals = Literals(
        given=tuple((key, _floats(value)) for key, value in ({k: c.value for k, c in given.items()} | copies).items()),
        expected=tuple((key, _floats(cell.value)) for key, cell in expected.items()),
    )
    case = builder.add(scope, cells, name, literals)
    if case is None:
        return
    complaints = [*_given_complaints(case, given), *_expected_complaints(case, expected)]
    arrays = {**given, **expected}
    for complaint in complaints:
        builder.complain(complaint, arrays, scope.loc, name)
    if complaints:
        builder.cases.remove(case)


def _given(entry: IncludeKeys, loc: Loc) -> dict[str, Cell]:
    arrays = entry.given.model_dump(exclude_unset=True) if entry.given is not None else {}
    return {name: Cell(array, (*loc, "given", name), near=True) for name, array in arrays.items()}


def _expected(builder: Builder, entry: IncludeKeys, loc: Loc) -> dict[str, Cell]:
    """Expected outputs, under ``expected`` or ``expect``."""
    found: dict[str, Cell] = {}
    for key in ("expected", "expect"):
        keys = getattr(entry, key)
        if not isinstance(keys, ExpectedKeys):
            continue
        arrays = keys.model_dump(exclude_unset=True)
        raises = arrays.pop("raises", False)
        for name, array in arrays.items():
            here = (*loc, key, name)
            if name in found:
                builder.fault(here, f"{name} is given under expected too")
            if raises:
                builder.fault(here, "a call that raises has no outputs")
            found[name] = Cell(array, here, near=True)
    return found


def _literal_data(builder: Builder, entry: IncludeKeys, cells: Cells, loc: Loc) -> Cell:
    """The case's data with its regime turned into ``literal``; numbers that are not given are drawn as usual."""
    match entry.data:
        case None:
            return Cell({"regime": "literal", "magnitude": 1.0}, (*loc, "given"), near=True)
        case DataKeys(regime=regime):
            pass
        case regime:
            pass
    if regime not in (None, "literal"):
        builder.fault((*loc, "data"), f"numbers are given, so data is literal, not {regime}")
    return cells["data"]._replace(value=cells["data"].value | {"regime": "literal"})


def _inferred(arrays: Cells, stated: Cells, own: Cells) -> dict[str, Cell]:
    """Sizes that the shapes of given arrays show. ``stated`` are all cells of the case, ``own`` those of its entry."""
    found: dict[str, Cell] = {}
    for name, axes in _AXES.items():
        if name in arrays and len(shape := shape_of(arrays[name].value)) == len(axes):
            for axis, size in zip(axes, shape, strict=True):
                if axis is not None and axis not in own:
                    found.setdefault(axis, arrays[name]._replace(value=size))
    known = {name: cell.value for name, cell in {**stated, **found}.items() if name in SIZES}
    for name, place, width, count in _PRODUCTS:
        parts = resolve_sizes(known)[count]
        if name in arrays and len(shape := shape_of(arrays[name].value)) == 2 and width not in own and parts:
            known[width], rest = divmod(shape[place], parts)
            if rest == 0 and known[width] > 0:
                found[width] = arrays[name]._replace(value=known[width])
            else:
                del known[width]
    return found


def _given_complaints(case: Case, given: Cells) -> Iterator[Complaint]:
    wanted = shapes(case)
    for name, cell in given.items():
        if name in _SHARED[case.sharing]:
            yield Complaint((name,), (), f"{name} is shared (sharing {case.sharing}): give {_owners(case)} alone")
        elif name not in wanted:
            switch = "bias_kv" if name in ("bias_k", "bias_v") else "bias"
            yield Complaint((name,), (), f"{name} is given, but {switch} is false")
        else:
            yield from _shape_complaints(name, cell.value, wanted[name])


def _owners(case: Case) -> str:
    return " and ".join(name for name in ("query", "key", "value") if name not in _SHARED[case.sharing])


def _expected_complaints(case: Case, expected: Cells) -> Iterator[Complaint]:
    wanted = {
        "attn_output": (case.batch, case.target_length, case.output_dim),
        "attn_weights": (case.batch, case.num_heads, case.target_length, case.source_length + case.extra_keys),
    }
    for name, cell in expected.items():
        if case.expect == "raises":
            yield Complaint((name,), (), "a call that raises has no outputs")
        elif _CHECKS[name] not in case.check:
            yield Complaint((name,), (), f"{name} is expected, but {_CHECKS[name]} is not among what is checked")
        yield from _shape_complaints(name, cell.value, wanted[name])


def _shape_complaints(name: str, value: Any, wanted: tuple[int, ...]) -> Iterator[Complaint]:
    if not fits(value, list(wanted)):
        legend = ", ".join(axis or "…" for axis in _AXES.get(name, ()))
        meaning = f" = [{legend}]" if legend else ""
        yield Complaint((name,), (), f"{name} has shape {shape_of(value)}, the case needs {list(wanted)}{meaning}")


def _floats(value: Any) -> Any:
    return tuple(_floats(item) for item in value) if isinstance(value, list) else float(value)
