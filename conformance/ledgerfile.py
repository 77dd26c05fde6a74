"""The ledger as it is written: YAML → entries, or everything that is wrong with the file, each where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field

from conformance.adapter import announced
from conformance.casefile.located import Document, in_order, load_located
from conformance.casefolder import LEDGER
from conformance.errors import Fault, LedgerError
from conformance.facts import fact_names
from conformance.ledger import Entry
from conformance.policy import Precision
from conformance.problem import Parameters
from conformance.verdict import Kind

Category = Literal["call", "output", "weights", "gradients"]
PolicyField = Literal[
    "products", "batched_products", "softmax", "softmax_gradient", "weight_gradients", "bias_gradients", "scale"
]
GRADIENTS = ("query", "key", "value", *(one.name for one in fields(Parameters)))
Condition = str | int | float | bool | list[str | int | float | bool]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EntryModel(_Strict):
    """One known divergence as it is written."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    subjects: list[str] = Field(min_length=1)
    when: dict[str, Condition] = Field(default_factory=dict)
    unless: dict[str, Condition] = Field(default_factory=dict)
    cases: list[str] = Field(default_factory=list)
    shows: dict[Category, list[Kind]] = Field(default_factory=dict)
    accuracy: dict[PolicyField, Precision] = Field(default_factory=dict)
    gradients_of: list[str] = Field(default_factory=list)
    message: str | None = None
    versions: dict[str, str] = Field(min_length=1)
    reason: str = Field(min_length=20)
    link: str | None = None
    since: str


class LedgerModel(_Strict):
    known: list[EntryModel]


@cache
def ledger_of(folder: Path, root: Path) -> tuple[Entry, ...]:
    """The ledger beside the case files of a folder, empty when there is none. Raises LedgerError."""
    names = [name for name, _ in announced()]
    return read_ledger(folder / LEDGER, names, fact_names(), root)


def read_ledger(
    path: Path, subjects: Iterable[str], facts: Iterable[str], root: Path | None = None
) -> tuple[Entry, ...]:
    """Entries of a ledger file, empty when there is no file. ``subjects`` and ``facts`` are the names that may be used.

    Raises LedgerError with every fault: unknown subjects, facts or kinds, repeated ids, bad version specifiers.
    """
    if not path.exists():
        return ()
    model, document = load_located(path, LedgerModel, root=root, error=LedgerError)
    faults = list(_faults(model, document, tuple(subjects), tuple(facts)))
    if faults:
        raise LedgerError(in_order(faults))
    return tuple(_entry(written, document, index) for index, written in enumerate(model.known))


def _entry(written: EntryModel, document: Document, index: int) -> Entry:
    line = document.line(("known", index, "id"))
    return Entry(
        written.id,
        document.file,
        line,
        tuple(written.subjects),
        written.when,
        written.unless,
        tuple(written.cases),
        {category: tuple(kinds) for category, kinds in written.shows.items()},
        {str(stage): precision for stage, precision in written.accuracy.items()},
        tuple(written.gradients_of),
        written.message,
        written.versions,
        " ".join(written.reason.split()),
        written.link,
        written.since,
    )


def _faults(
    model: LedgerModel, document: Document, subjects: tuple[str, ...], facts: tuple[str, ...]
) -> Iterable[Fault]:
    seen: dict[str, int] = {}
    for index, entry in enumerate(model.known):
        place: tuple[str | int, ...] = ("known", index)
        line = document.line((*place, "id"))
        if entry.id in seen:
            yield document.fault((*place, "id"), f"the id {entry.id!r} is already used on line {seen[entry.id]}")
        seen.setdefault(entry.id, line)
        if bool(entry.shows) == bool(entry.accuracy):
            yield document.fault((*place, "id"), "an entry needs either shows or accuracy, and not both")
        for number, pattern in enumerate(entry.subjects):
            if not any(fnmatchcase(subject, pattern) for subject in subjects):
                message = f"no subject is called {pattern!r}"
                yield document.fault((*place, "subjects", number), message, _nearest(pattern, subjects))
        for part in ("when", "unless"):
            for name in getattr(entry, part):
                if name not in facts:
                    message = f"{name!r} is not a fact of a case"
                    yield document.fault((*place, part, name), message, _nearest(name, facts), on_key=True)
        yield from _showing_faults(entry, document, place)
        for name, wanted in entry.versions.items():
            try:
                SpecifierSet(wanted)
            except InvalidSpecifier:
                message = f"{wanted!r} is not a version specifier such as '==2.13.*'"
                yield document.fault((*place, "versions", name), message)


def _showing_faults(entry: EntryModel, document: Document, place: tuple[str | int, ...]) -> Iterable[Fault]:
    if entry.message is not None:
        yield from _message_faults(entry, document, (*place, "message"))
    elif "raised" in entry.shows.get("call", ()):
        text = "what is raised needs a message, a regular expression: without one, any exception would be known"
        yield document.fault((*place, "shows"), text)
    for number, name in enumerate(entry.gradients_of):
        if name not in GRADIENTS:
            text = f"{name!r} has no gradient"
            yield document.fault((*place, "gradients_of", number), text, _nearest(name, GRADIENTS))


def _message_faults(entry: EntryModel, document: Document, place: tuple[str | int, ...]) -> Iterable[Fault]:
    if "raised" not in entry.shows.get("call", ()):
        yield document.fault(place, "a message is held only against what is raised, and call does not show raised")
    try:
        re.compile(entry.message or "")
    except re.error as error:
        yield document.fault(place, f"not a regular expression: {error}")


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    found = get_close_matches(name, known, 1)
    return found[0] if found else None
