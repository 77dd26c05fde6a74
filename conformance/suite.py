"""Which pairs a folder of case files asks for: cases in file order, subjects in name order, and what is sampled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from conformance.adapter import announced
from conformance.binding import idle_parts
from conformance.casefolder import case_files, cases_of, readable
from conformance.errors import CaseFileError, Fault, LedgerError
from conformance.facts import facts_of
from conformance.ledger import Entry, never_shown
from conformance.ledgerfile import ledger_of
from conformance.pair import Pair
from conformance.spec import Case
from conformance.store import Row

SAMPLED = "answers only cases tagged {tag}: every new shape or form of mask costs it a compilation; --full runs all"

SHAPES = (
    *("dtype", "batch", "target_length", "source_length", "num_heads", "num_kv_heads", "head_dim", "value_head_dim"),
    *("embed_dim", "kdim", "vdim", "output_dim", "bias", "bias_kv", "zero_attention", "sharing", "scale", "mode"),
)  # fields of a case that settle the shapes of a call and its options, the mask apart


@dataclass(frozen=True)
class Selection:
    """The pairs of one file, and how many were left out by subject because the subject is slow."""

    pairs: tuple[Pair, ...]
    left_out: Mapping[str, int]


def check_subjects(path: Path, root: Path) -> None:
    """Raise CaseFileError when a case asks for subjects that no adapter announces: nothing would run, in silence."""
    names = [name for name, _ in announced()]
    faults: dict[str, Fault] = {}
    for case in cases_of(path, root):
        for pattern in case.subjects:
            if pattern not in faults and not any(fnmatchcase(name, pattern) for name in names):
                near = get_close_matches(pattern, names, 1)
                message = f"no subject is called {pattern!r}"
                faults[pattern] = Fault(case.source.file, case.source.line, 1, message, "", near[0] if near else None)
    if faults:
        raise CaseFileError(tuple(faults.values()))


def constraint_faults(path: Path, root: Path) -> tuple[Fault, ...]:
    """A fault for each case written by hand that cannot fail for a part of its mask. The pairs of generated cases say
    so themselves, and are dropped."""
    return tuple(
        Fault(
            case.source.file,
            case.source.line,
            1,
            f"{case.name} cannot fail for its {' and '.join(idle)} mask: the answer is the same without it",
        )
        for case in cases_of(path, root)
        if case.source.entry and (idle := idle_parts(case))
    )


@cache
def select(path: Path, root: Path, full: bool) -> Selection:
    """The pairs of a case file. ``full`` gives slow subjects every case."""
    left_out: dict[str, int] = {}
    pairs: list[Pair] = []
    for number, case in enumerate(cases_of(path, root)):
        facts = facts_of(case)
        for place, (name, adapter) in enumerate(announced()):
            if case.subjects and not any(fnmatchcase(name, pattern) for pattern in case.subjects):
                continue
            if not full and name in adapter.slow and adapter.slow[name] not in case.tags:
                left_out[name] = left_out.get(name, 0) + 1
                continue
            pairs.append(Pair(case, facts, name, adapter, (number, place)))
    return Selection(tuple(pairs), left_out)


@cache
def compile_order(case: Case) -> tuple[str, ...]:
    """A key by which cases come together that share shapes, dtypes and the form of the mask: what a framework compiled
    for one serves the next, and need not be kept once they are through."""
    mask, written = case.mask, (case.mask.explicit, case.mask.additive)
    shapes = (getattr(case, name) for name in SHAPES)
    form = (case.mask_route, *mask.parts, mask.causal, mask.window, *(one.axes if one else "" for one in written))
    return tuple(map(str, (*shapes, case.wants_gradients, *form)))


def pairs_of(files: Iterable[Path], root: Path, full: bool = True) -> Iterator[Pair]:
    """The pairs of several case files, those that slow subjects leave out included; files with faults are passed
    over."""
    for path, _ in readable(files, root):
        yield from select(path, root, full).pairs


def find_pair(pair_id: str, files: Iterable[Path], root: Path) -> Pair | None:
    """The pair with an id such as ``causal/T3-S5-float32[torch/mha]``, or with that node id; None without it."""
    return next((pair for pair in pairs_of(files, root) if pair_id in (pair.id, pair.node)), None)


def idle_entries(rows: Sequence[Row], versions: Mapping[str, str], root: Path, full: bool) -> tuple[Entry, ...]:
    """Ledger entries that this run proves dead: they are for these versions, every pair that they cover has run, and
    no row shows them. A single pair cannot tell: it may be unsupported, or not judge what the entry speaks of."""
    ran = {row.node for row in rows}
    idle: list[Entry] = []
    for folder in sorted({(root / row.file).parent for row in rows}):
        try:
            own = [row for row in rows if (root / row.file).parent == folder]
            entries = never_shown(ledger_of(folder, root), own, versions)
        except LedgerError:
            continue  # the item of the ledger fails
        pairs = tuple(pairs_of(case_files(folder), root, full)) if entries else ()
        for entry in entries:
            covered = [pair.node for pair in pairs if entry.covers(pair.case.id, pair.facts, pair.subject)]
            if ran.issuperset(covered):
                idle.append(entry)
    return tuple(idle)


def pair_ids(files: Iterable[Path], root: Path) -> list[str]:
    """Ids of every pair of several case files."""
    return [pair.id for pair in pairs_of(files, root)]
