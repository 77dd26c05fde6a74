"""Which pairs a folder of case files asks for: cases in file order, subjects in name order, and what is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from conformance.adapter import Adapter, adapters
from conformance.casefile import read_case_file
from conformance.errors import CaseFileError, Fault
from conformance.facts import facts_of
from conformance.ledger import FILE_NAME, Entry, read_ledger
from conformance.pair import Pair
from conformance.spec import Case, Source

SHARED_SHAPE = "shared-shape"
SAMPLED = f"answers only cases tagged {SHARED_SHAPE}, because every new shape costs it a compilation; --full runs all"


@dataclass(frozen=True)
class Selection:
    """The pairs of one file, and how many were left out by subject because the subject is slow."""

    pairs: tuple[Pair, ...]
    left_out: Mapping[str, int]


@cache
def cases_of(path: Path, root: Path) -> tuple[Case, ...]:
    """Cases of a file, read once in a process. Raises CaseFileError."""
    return read_case_file(path, root)


def subjects() -> Iterator[tuple[str, Adapter]]:
    """Every announced subject with its adapter, ordered by adapter, then as the adapter lists them."""
    for adapter in adapters():
        for name in adapter.subjects:
            yield name, adapter


@cache
def select(path: Path, root: Path, full: bool) -> Selection:
    """The pairs of a case file. ``full`` gives slow subjects every case."""
    left_out: dict[str, int] = {}
    pairs: list[Pair] = []
    for number, case in enumerate(cases_of(path, root)):
        facts = facts_of(case)
        for place, (name, adapter) in enumerate(subjects()):
            if case.subjects and not any(fnmatchcase(name, pattern) for pattern in case.subjects):
                continue
            if name in adapter.slow and not full and SHARED_SHAPE not in case.tags:
                left_out[name] = left_out.get(name, 0) + 1
                continue
            pairs.append(Pair(case, facts, name, adapter, (number, place)))
    return Selection(tuple(pairs), left_out)


def case_files(folder: Path) -> tuple[Path, ...]:
    """The case files of a folder in name order: every YAML file but the ledger."""
    return tuple(path for path in sorted(folder.glob("*.yaml")) if path.name != FILE_NAME)


@cache
def ledger_of(folder: Path, root: Path) -> tuple[Entry, ...]:
    """The ledger beside the case files of a folder, empty when there is none. Raises LedgerError."""
    names = [name for name, _ in subjects()]
    return read_ledger(folder / FILE_NAME, names, fact_names(), root)


def fact_names() -> tuple[str, ...]:
    """Names of all facts, from any case."""
    return tuple(facts_of(EXAMPLE))


def duplicate_suite(path: Path, root: Path) -> None:
    """Raise CaseFileError when another file of the folder, earlier in name order, has the same suite name: case ids
    would not be unique."""
    own = cases_of(path, root)[0]
    for other in case_files(path.parent):
        if other == path:
            return
        try:
            first = cases_of(other, root)[0]
        except CaseFileError:
            continue
        if first.suite == own.suite:
            message = f"the suite name {own.suite!r} is already used by {first.source.file}"
            raise CaseFileError((Fault(own.source.file, 1, 1, message),))


def pairs_of(files: Iterable[Path], root: Path) -> Iterator[Pair]:
    """Every pair of several case files; files with faults are passed over."""
    for path in files:
        try:
            yield from select(path, root, full=True).pairs
        except CaseFileError:
            continue


def find_pair(pair_id: str, files: Iterable[Path], root: Path) -> Pair | None:
    """The pair with an id such as ``causal/T3-S5-float32[torch/mha]``, or with that node id; None without it."""
    return next((pair for pair in pairs_of(files, root) if pair_id in (pair.id, pair.node)), None)


def pair_ids(files: Iterable[Path], root: Path) -> list[str]:
    """Ids of every pair of several case files."""
    return [pair.id for pair in pairs_of(files, root)]


def _example() -> Case:
    sizes: dict[str, Any] = dict.fromkeys(("batch", "target_length", "source_length", "num_heads", "num_kv_heads"), 1)
    widths = dict.fromkeys(("embed_dim", "head_dim", "value_head_dim", "kdim", "vdim", "output_dim"), 1)
    return Case("example/one", "example", "one", "the smallest case", Source("example", 1), **sizes, **widths)


EXAMPLE = _example()
