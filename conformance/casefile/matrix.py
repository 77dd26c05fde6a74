"""Matrices of a case file → ordered cases with stable, readable names.

A case is named after the values of its axes, in the order in which the axes are written, so that a new value adds
names and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from conformance.casefile.build import Builder, Cells, Scope, scope_cells
from conformance.casefile.exclusions import Axis, Exclusion, Selection, Value, wanted_of
from conformance.casefile.literals import include
from conformance.casefile.located import Document, Loc
from conformance.casefile.model import BlockKeys, FileKeys
from conformance.casefile.names import spelt
from conformance.casefile.pairing import OutOfPatienceError, pairwise
from conformance.errors import Fault
from conformance.spec import Case, Source

MAX_CASES = 100_000


def expand(
    keys: FileKeys, document: Document, tainted: set[str] | None = None
) -> tuple[tuple[Case, ...], tuple[Fault, ...]]:
    """Cases of a validated file in order: ``matrix``, ``matrices``, ``include``; and everything wrong with them.

    ``tainted`` are fields that could not be read, when the file has faults already (None when it has none): what
    follows from them is not reported.
    """
    builder = Builder(document, keys.suite, set(tainted or ()))
    top, reliable = _top_scope(builder, keys), tainted is None
    if keys.matrix is not None:
        scope = replace(top, loc=("matrix",), source=Source(document.file, document.line(("matrix",))))
        _expand_block(builder, keys, (), scope, "", reliable)
    elif keys.exclude is not None and reliable:
        builder.fault(("exclude",), "exclude without a matrix", on_key=True)
    for index, block in enumerate(keys.matrices or ()):
        loc: Loc = ("matrices", index)
        _expand_block(builder, block, loc, _block_scope(builder, block, loc, top), block.name or "", reliable)
    for index, entry in enumerate(keys.include or ()):
        include(builder, entry, ("include", index), top)
    if not (keys.matrix or keys.matrices or keys.include) and reliable:
        builder.fault((), "the file has no cases: give matrix, matrices or include")
    return tuple(builder.cases), tuple(builder.all_faults())


def _top_scope(builder: Builder, keys: FileKeys) -> Scope:
    subjects = builder.subjects(keys, ())
    if keys.defaults is not None:
        subjects = builder.subjects(keys.defaults, ("defaults",)) or subjects
    return Scope(
        cells=scope_cells(builder, keys, ()),
        why=keys.why,
        source=Source(builder.document.file, 1),
        loc=(),
        tags=_merged(keys.tags, keys.defaults.tags if keys.defaults else None),
        subjects=subjects,
    )


def _merged(*tags: Sequence[str] | None) -> tuple[str, ...]:
    """Tags of all scopes, the outermost first, each once."""
    return tuple(dict.fromkeys(tag for some in tags for tag in some or ()))


def _block_scope(builder: Builder, block: BlockKeys, loc: Loc, top: Scope) -> Scope:
    defaults = block.defaults
    subjects = builder.subjects(defaults, (*loc, "defaults")) if defaults is not None else ()
    return Scope(
        cells={**top.cells, **scope_cells(builder, block, loc)},
        why=block.why or top.why,
        source=replace(top.source, line=builder.document.line(loc)),
        loc=loc,
        tags=_merged(top.tags, block.tags, defaults.tags if defaults else None),
        subjects=subjects or top.subjects,
    )


def _expand_block(
    builder: Builder, block: FileKeys | BlockKeys, loc: Loc, scope: Scope, name: str, reliable: bool
) -> None:
    """Add the cases of one matrix. A matrix in which something could not be read is not ``reliable``: that an
    exclusion leaves nothing out may then be due to what is missing."""
    noted = len(builder.faults)
    axes = _axes(builder, block.matrix, (*loc, "matrix"))
    exclusions = [
        Exclusion(wanted_of(entry), (*loc, "exclude", index)) for index, entry in enumerate(block.exclude or ())
    ]
    reliable = reliable and len(builder.faults) == noted
    if not axes or any(not axis.values for axis in axes):
        return
    before, complained = len(builder.cases), builder.complained
    for row in _rows(builder, axes, scope.cells, exclusions, block.combine, (*loc, "matrix")):
        if builder.seen >= MAX_CASES:
            builder.fault((*loc, "matrix"), f"more than {MAX_CASES:,} cases in one file", on_key=True)
            return
        cells = {**scope.cells}
        for value in row:
            cells |= value.cells
        builder.add(scope, cells, "-".join(filter(None, [name, *(value.text for value in row)])))
    if not reliable or len(builder.faults) > noted:
        return
    for exclusion in exclusions:
        if not exclusion.bites:
            builder.fault(exclusion.loc, "this excludes nothing")
    if len(builder.cases) == before and builder.complained == complained:
        builder.fault((*loc, "exclude"), "everything is excluded", on_key=True)


def _axes(builder: Builder, matrix: Any, loc: Loc) -> list[Axis]:
    """The axes in the order in which they are written."""
    axes: list[Axis] = []
    written = list(builder.document.node(loc).value)
    for name in written:
        values: list[Value] = []
        lines: dict[str, int] = {}
        for index, raw in enumerate(getattr(matrix, name)):
            here = (*loc, name, index)
            value = _value(builder, name, raw, here)
            if value is None:
                continue
            if value.text in lines:
                builder.fault(here, f"the same value as in line {lines[value.text]}")
                continue
            lines[value.text] = builder.document.line(here)
            values.append(value)
        fields = tuple(dict.fromkeys(key for value in values for key in value.cells))
        for clash in (key for axis in axes for key in axis.fields if key in fields):
            builder.fault((*loc, name), f"{clash} is given by another axis too", on_key=True)
        axes.append(Axis(fields, tuple(values)))
    return axes


def _value(builder: Builder, name: str, raw: Any, loc: Loc) -> Value | None:
    if name == "sizes":
        cells = builder.cells(raw, loc, near=True)
        return Value(cells, "-".join(spelt(key, cells[key].value) for key in cells))
    cell = builder.cell(name, raw, loc, near=True)
    return None if cell is None else Value({name: cell}, spelt(name, cell.value))


def _rows(
    builder: Builder, axes: list[Axis], base: Cells, exclusions: list[Exclusion], combine: str, loc: Loc
) -> Iterator[tuple[Value, ...]]:
    counts = [len(axis.values) for axis in axes]
    selection = Selection(builder, axes, base, exclusions)
    if combine == "product" or len(axes) == 1:
        if prod(counts) > MAX_CASES:
            message = f"{prod(counts):,} combinations; at most {MAX_CASES:,} are expanded"
            builder.fault(loc, message, "combine: pairwise", on_key=True)
            return
        yield from (row for row in product(*(axis.values for axis in axes)) if not selection.excludes(row))
        return
    largest = sorted(counts)[-2:]
    if prod(largest) > MAX_CASES:
        builder.fault(loc, f"{prod(largest):,} pairs; at most {MAX_CASES:,} are expanded", on_key=True)
        return
    selection.find_bites()
    try:
        rows = pairwise(counts, lambda row: not selection.excludes(selection.row(row)))
    except OutOfPatienceError:
        message = "the exclusions are too entangled for pairwise: use product, or split the matrix"
        builder.fault(loc, message, on_key=True)
        return
    yield from (tuple(axis.values[index] for axis, index in zip(axes, row, strict=True)) for row in rows)
