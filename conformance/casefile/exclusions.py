"""Which combinations of a matrix are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isnan
from typing import Any

from conformance.casefile.build import DEFAULTS, SIZES, Builder, Cell, Cells, normal_value, stated_fields
from conformance.casefile.located import Loc
from conformance.casefile.masks import stated_form
from conformance.casefile.model import CaseKeys, DataKeys

PATIENCE = 100_000  # combinations tried to find one that an exclusion matches


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


@dataclass
class Selection:
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
                if exclusion.bites or count >= PATIENCE:
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


def wanted_of(entry: CaseKeys) -> dict[str, Any]:
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


def _covers(wanted: Any, value: Any) -> bool:
    """Whether a value has everything that is wanted of it; ``none`` wants a mask without parts."""
    match wanted, value:
        case "none", dict():
            return not value
        case dict(), dict():
            return all(name in value and _covers(wanted[name], value[name]) for name in wanted)
        case float(), float():
            return wanted == value or (isnan(wanted) and isnan(value))
        case _:
            return bool(wanted == value)
