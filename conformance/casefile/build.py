"""Stated values → :class:`conformance.spec.Case`: plain Python, and everything that several cases share done once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from conformance.casefile.called import call_complaints
from conformance.casefile.dropping import dropout_complaints
from conformance.casefile.fieldtypes import Strict
from conformance.casefile.located import Document, Loc
from conformance.casefile.masks import Complaint, flaws, normal_form, resolve
from conformance.casefile.model import CaseKeys, DataKeys, ExpectKeys, MaskKeys, RaisesKeys, ScopeKeys
from conformance.casefile.names import SIZE_PREFIXES
from conformance.casefile.related import blocked_row_complaints
from conformance.casefile.sizes import resolve_sizes, size_complaints
from conformance.errors import Fault
from conformance.spec import Case, Data, Literals, Mask, Source

SIZES = tuple(SIZE_PREFIXES)
DEFAULTS: Mapping[str, Any] = {
    name: Case.__dataclass_fields__[name].default
    for name in (
        *("dtype", "mask_route", "layout", "sharing", "calls", "mode", "dropout", "relation"),
        *("bias", "bias_kv", "zero_attention", "scale"),
    )
} | {
    "mask": {},
    "data": {"regime": "normal", "magnitude": 1.0},
    "ill_formed": None,
    "check": Case.__dataclass_fields__["check"].default,
    "expect": None,  # agree, or raises for an ill-formed call
}


class Cell(NamedTuple):
    """A stated value in normal form and where it stands; ``near`` when a matrix or an entry states it for this case,
    rather than the defaults for all."""

    value: Any
    loc: Loc
    near: bool


Cells = Mapping[str, Cell]


@dataclass(frozen=True)
class Scope:
    """What the cases of one matrix, or one entry, have in common."""

    cells: Cells
    why: str
    source: Source
    loc: Loc
    tags: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()


def normal_value(name: str, value: Any) -> Any:
    """A validated value of a field as plain data, defaults filled in."""
    match name, value:
        case "mask", _:
            return normal_form(value)
        case "data", str():
            return {"regime": value, "magnitude": 1.0}
        case "data", DataKeys():
            return {"regime": "normal", "magnitude": 1.0} | value.model_dump(exclude_unset=True)
        case "expect", RaisesKeys() | ExpectKeys():
            return "raises" if value.raises else None  # None: outputs are given, which is to agree
    return tuple(value) if isinstance(value, list) else value


def stated_fields(keys: Strict) -> list[str]:
    """The fields of a case that ``keys`` states, in the order of the model."""
    return [name for name in CaseKeys.model_fields if name in keys.model_fields_set]


@dataclass
class _Group:
    """The same complaint at the same place, from one case or many."""

    message: str
    case: str
    count: int = 1


@dataclass
class Builder:
    """Collects the cases of a file, and what is wrong with them.

    ``tainted`` names fields whose default could not be read: what depends on them is not complained about.
    """

    document: Document
    suite: str
    tainted: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    complained: int = 0
    _groups: dict[tuple[Loc, str], _Group] = field(default_factory=dict)
    _lines: dict[str, int] = field(default_factory=dict)
    _sizes: dict[Any, tuple[dict[str, int], list[Complaint]]] = field(default_factory=dict)
    _masks: dict[Any, tuple[Mask, list[Complaint]]] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """How many names have been given to cases, good or bad."""
        return len(self._lines)

    def fault(self, loc: Loc, message: str, suggestion: str | None = None, *, on_key: bool = False) -> None:
        self.faults.append(self.document.fault(loc, message, suggestion, on_key=on_key))

    def cell(self, name: str, value: Any, loc: Loc, *, near: bool) -> Cell | None:
        """A validated value as a cell; None, and the faults noted, when it makes no sense in itself."""
        normal = normal_value(name, value)
        if name == "mask" and isinstance(value, MaskKeys):
            found = list(flaws(value, normal))
            for path, message in found:
                self.fault((*loc, *path), message)
            if found:
                return None
        return Cell(normal, loc, near)

    def cells(self, keys: Strict, loc: Loc, *, near: bool) -> dict[str, Cell]:
        """What ``keys`` states about a case. A senseless value is left out, and its field tainted."""
        found: dict[str, Cell] = {}
        for name in stated_fields(keys):
            cell = self.cell(name, getattr(keys, name), (*loc, name), near=near)
            if cell is not None:
                found[name] = cell
            elif not near:
                self.tainted.add(name)
        return found

    def subjects(self, keys: Any, loc: Loc) -> tuple[str, ...]:
        """The subjects that a scope restricts its cases to; a restriction without a reason is a fault."""
        if keys.subjects and not keys.subjects_why:
            self.fault((*loc, "subjects"), "subjects needs a reason: give subjects_why")
        if keys.subjects_why and not keys.subjects:
            self.fault((*loc, "subjects_why"), "subjects_why without subjects")
        return tuple(keys.subjects or ())

    def sizes(self, cells: Cells) -> tuple[dict[str, int], list[Complaint]]:
        """The sizes of a case and what is impossible about them."""
        stated = {name: cells[name].value for name in SIZES if name in cells}
        values = {name: cells[name].value if name in cells else DEFAULTS[name] for name in ("ill_formed", "sharing")}
        key = (*stated.items(), *values.values())
        if key not in self._sizes:
            sizes = resolve_sizes(stated, values["ill_formed"])
            self._sizes[key] = sizes, list(size_complaints(sizes, stated, values))
        return self._sizes[key]

    def mask(self, mask: dict[str, Any], sizes: Mapping[str, int]) -> tuple[Mask, list[Complaint]]:
        if not mask:
            return Mask(), []
        # By content: an identity is used again for another mask once the first is gone.
        key = (repr(mask), *(sizes[name] for name in ("batch", "num_heads", "target_length", "source_length")))
        if key not in self._masks:
            self._masks[key] = resolve(mask, sizes)
        return self._masks[key]

    def add(self, scope: Scope, cells: Cells, name: str, literals: Literals | None = None) -> Case | None:
        """Build a case and keep it; None when something is wrong with it, which is then noted."""
        values = {key: cells[key].value if key in cells else default for key, default in DEFAULTS.items()}
        sizes, complaints = self.sizes(cells)
        mask, mask_complaints = (Mask(), []) if complaints else self.mask(values["mask"], sizes)
        complaints = [*complaints, *mask_complaints, *call_complaints(values, sizes, literals)]
        complaints += dropout_complaints(values, sizes, literals)
        for complaint in complaints:
            self.complain(complaint, cells, scope.loc, name)
        if name in self._lines:
            self.complain(
                Complaint((), (), f"the name is already taken in line {self._lines[name]}"), {}, scope.loc, name
            )
            return None
        self._lines[name] = scope.source.line
        if complaints:
            return None
        values |= {**sizes, "mask": mask, "data": Data(**values["data"])}
        values["expect"] = values["expect"] or ("raises" if values["ill_formed"] else "agree")
        case = Case(
            id=f"{self.suite}/{name}", suite=self.suite, name=name, why=scope.why, source=scope.source,
            literals=literals or _NO_LITERALS, subjects=scope.subjects, tags=scope.tags,
            **values,
        )  # fmt: skip
        complaints = list(blocked_row_complaints(case))
        for complaint in complaints:
            self.complain(complaint, cells, scope.loc, name)
        if complaints:
            return None
        self.cases.append(case)
        return case

    def complain(self, complaint: Complaint, cells: Cells, block: Loc, case: str) -> None:
        """Note a complaint at the value that caused it: the first of its fields that is stated for this case, else the
        first that is stated at all, else the block."""
        self.complained += 1
        if any(name in self.tainted and not (name in cells and cells[name].near) for name in complaint.fields):
            return
        stated = [name for name in complaint.fields if name in cells]
        chosen = next((name for name in stated if cells[name].near), stated[0] if stated else None)
        loc = block if chosen is None else cells[chosen].loc
        if chosen is None or chosen == complaint.fields[0]:
            loc = (*loc, *complaint.path)
        key = (loc, re.sub(r"\d+", "#", complaint.message))
        if key in self._groups:
            self._groups[key].count += 1
        else:
            self._groups[key] = _Group(complaint.message, case)

    def all_faults(self) -> list[Fault]:
        """Everything noted, one fault for each complaint and place."""
        grouped = []
        for (loc, _), group in self._groups.items():
            more = f", and {group.count - 1:,} more" if group.count > 1 else ""
            grouped.append(self.document.fault(loc, f"{group.message} (case {group.case}{more})"))
        return self.faults + grouped


_NO_LITERALS = Literals()


def scope_cells(builder: Builder, keys: Any, loc: Loc) -> dict[str, Cell]:
    """The defaults of a scope: its ``defaults``, over what its own keys state about every case."""
    own = {
        name: cell
        for name in ("check", "expect")
        if getattr(keys, name) is not None
        and (cell := builder.cell(name, getattr(keys, name), (*loc, name), near=False))
    }
    defaults: ScopeKeys | None = keys.defaults
    return own | (builder.cells(defaults, (*loc, "defaults"), near=False) if defaults is not None else {})
