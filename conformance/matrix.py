"""Matrices of a case file → ordered cases with stable, readable names.

A case is named after the values of its axes, in the order in which the axes are written, so that a new value adds
names and changes none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

from conformance.casebuild import DEFAULTS, SIZES, Builder, Cell, Cells, Scope, normal_value, scope_cells, stated_fields
from conformance.casemasks import stated_form
from conformance.casemodel import BlockKeys, CaseKeys, DataKeys, FileKeys
from conformance.casenames import spelt
from conformance.errors import Fault
from conformance.literals import include
from conformance.located import Document, Loc
from conformance.pairing import OutOfPatienceError, pairwise
from conformance.spec import Case, Source

MAX_CASES = 100_000


@dataclass(frozen=True)
class Value:
    """One value of an axis: what it states about a case, and how it is spelt in the case's name."""

    cells: Cells
    text: str


@dataclass(frozen=True)
class Axis:
    fields: tuple[str, ...]
    values: tuple[Value, ...]


@dataclass
class Exclusion:
    """A partial case; what matches it in all it states is left out. ``bites`` once something did."""

    wanted: Mapping[str, Any]
    loc: Loc
    bites: bool = False


def expand(
    keys: FileKeys, document: Document, tainted: set[str] | None = None
) -> tuple[tuple[Case, ...], tuple[Fault, ...]]:
    """Cases of a validated file in order: ``matrix``, ``matrices``, ``include``; and everything wrong with them.

    ``tainted`` are fields that could not be read, when the file has faults already (None when it has none): what
    follows from them is not reported.
    """
    builder = Builder(document, keys.suite, set(tainted or ()))
    builder.subjects(keys, ())
    if keys.defaults is not None:
        builder.subjects(keys.defaults, ("defaults",))
    defaults = keys.defaults or keys
    top = Scope(
        cells=scope_cells(builder, keys, ()),
        why=keys.why,
        source=Source(document.file, 1),
        loc=(),
        tags=_merged(keys.tags, keys.defaults and keys.defaults.tags),
        subjects=tuple(defaults.subjects or keys.subjects or ()),
    )
    reliable = tainted is None
    if keys.matrix is not None:
        scope = replace(top, loc=("matrix",), source=Source(document.file, document.line(("matrix",))))
        _expand_block(builder, keys, (), scope, "", reliable)
    elif keys.exclude is not None and reliable:
        builder.faults.append(document.fault(("exclude",), "exclude without a matrix", on_key=True))
    for index, block in enumerate(keys.matrices or ()):
        loc: Loc = ("matrices", index)
        _expand_block(builder, block, loc, _block_scope(builder, block, loc, top), block.name or "", reliable)
    for index, entry in enumerate(keys.include or ()):
        include(builder, entry, ("include", index), top)
    if len(builder.cases) > MAX_CASES:
        builder.fault((), f"{len(builder.cases):,} cases; at most {MAX_CASES:,} in one file")
    faults = builder.all_faults()
    if not builder.cases and not faults and reliable:
        faults = [document.fault((), "the file has no cases: give matrix, matrices or include")]
    return tuple(builder.cases), tuple(faults)


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
        tags=_merged(top.tags, block.tags, defaults and defaults.tags),
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
        Exclusion(_wanted(entry), (*loc, "exclude", index)) for index, entry in enumerate(block.exclude or ())
    ]
    reliable = reliable and len(builder.faults) == noted
    if not axes or any(not axis.values for axis in axes):
        return
    before, complained = len(builder.cases), builder.complained
    for row in _rows(builder, axes, scope.cells, exclusions, block.combine, (*loc, "matrix")):
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
        builder.faults.append(builder.document.fault((*loc, "exclude"), "everything is excluded", on_key=True))


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
            builder.faults.append(
                builder.document.fault((*loc, name), f"{clash} is given by another axis too", on_key=True)
            )
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
    selection = _Selection(builder, axes, base, exclusions)
    if combine == "product" or len(axes) == 1:
        if prod(counts) > MAX_CASES:
            message = f"{prod(counts):,} combinations; at most {MAX_CASES:,} are expanded"
            builder.faults.append(builder.document.fault(loc, message, "combine: pairwise", on_key=True))
            return
        yield from (row for row in product(*(axis.values for axis in axes)) if not selection.excludes(row))
        return
    largest = sorted(counts)[-2:]
    if prod(largest) > MAX_CASES:
        builder.faults.append(
            builder.document.fault(loc, f"{prod(largest):,} pairs; at most {MAX_CASES:,} are expanded", on_key=True)
        )
        return
    selection.find_bites()
    try:
        rows = pairwise(counts, lambda row: not selection.excludes(selection.row(row)))
    except OutOfPatienceError:
        message = "the exclusions are too entangled for pairwise: use product, or split the matrix"
        builder.faults.append(builder.document.fault(loc, message, on_key=True))
        return
    yield from (tuple(axis.values[index] for axis, index in zip(axes, row, strict=True)) for row in rows)


def _wanted(entry: CaseKeys) -> dict[str, Any]:
    """What an exclusion states, and nothing it leaves open."""
    wanted: dict[str, Any] = {}
    for name in stated_fields(entry):
        match name, getattr(entry, name):
            case "mask", value:
                wanted[name] = stated_form(value) or "none"
            case "data", str() as regime:
                wanted[name] = {"regime": regime}
            case "data", DataKeys() as data:
                wanted[name] = data.model_dump(exclude_unset=True)
            case _, value:
                wanted[name] = normal_value(name, value)
    return wanted


@dataclass
class _Selection:
    """Judges rows of a matrix by its exclusions."""

    builder: Builder
    axes: list[Axis]
    base: Cells
    exclusions: list[Exclusion]
    _matches: dict[tuple[int, str, int], bool] = field(default_factory=dict)

    def row(self, indices: Sequence[int | None]) -> tuple[Value | None, ...]:
        return tuple(
            None if index is None else axis.values[index] for axis, index in zip(self.axes, indices, strict=True)
        )

    def excludes(self, row: Sequence[Value | None]) -> bool:
        """Whether an exclusion matches; what an open (None) axis would state matches nothing yet."""
        if not self.exclusions:
            return False
        cells: dict[str, Cell] = dict(self.base)
        unknown: set[str] = set()
        for axis, value in zip(self.axes, row, strict=True):
            if value is None:
                unknown.update(axis.fields)
            else:
                cells |= value.cells
        matching = [exclusion for exclusion in self.exclusions if self._match(exclusion, cells, unknown)]
        for exclusion in matching:
            exclusion.bites = True
        return bool(matching)

    def find_bites(self) -> None:
        """Mark the exclusions that match some row of the whole product, by the axes they depend on alone."""
        for exclusion in self.exclusions:
            needed = set(exclusion.wanted)
            if not needed.isdisjoint(SIZES):
                needed |= {*SIZES, "ill_formed"}  # one size may follow from another
            choices = [axis.values if needed & set(axis.fields) else axis.values[:1] for axis in self.axes]
            for count, row in enumerate(product(*choices)):
                if exclusion.bites or count >= MAX_CASES:
                    exclusion.bites = True  # too many to try them all: the benefit of the doubt
                    break
                cells = {**self.base}
                for value in row:
                    cells |= value.cells
                exclusion.bites = self._match(exclusion, cells, set())

    def _match(self, exclusion: Exclusion, cells: Cells, unknown: set[str]) -> bool:
        for name, wanted in exclusion.wanted.items():
            if name in unknown:
                return False
            if name in cells:
                if not self._holds(exclusion, name, wanted, cells[name]):
                    return False
            elif name in SIZES:
                if not unknown.isdisjoint((*SIZES, "ill_formed")) or self.builder.sizes(cells)[0][name] != wanted:
                    return False
            elif not _covers(wanted, DEFAULTS[name]):
                return False
        return True

    def _holds(self, exclusion: Exclusion, name: str, wanted: Any, cell: Cell) -> bool:
        key = (id(exclusion), name, id(cell))
        if key not in self._matches:
            self._matches[key] = _covers(wanted, cell.value)
        return self._matches[key]


def _covers(wanted: Any, value: Any) -> bool:
    """Whether a value has everything that is wanted of it; ``none`` wants a mask without parts."""
    match wanted, value:
        case "none", dict():
            return not value
        case dict(), dict():
            return all(name in value and _covers(wanted[name], value[name]) for name in wanted)
        case float(), float():
            return wanted == value or (wanted != wanted and value != value)
        case _:
            return bool(wanted == value)
