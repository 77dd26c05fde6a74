"""What a run recorded: JSON Lines for facts, one .npz for the tensors of each divergence.

A run is a folder. While it lasts, every process appends its rows to a file of its own and flushes each line, so an
interrupted run keeps what it had; :func:`combine` then makes one ``results.jsonl`` of them, in matrix order. What is
stored does not depend on how many processes there were. NaN and infinities are written as Python's ``json`` does.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from conformance.spec import Array

SCHEMA = 1
RESULTS, PARTS, NOTES = "results.jsonl", "rows-*.jsonl", "note-*.json"
NAME, STARTED = re.compile(r"\d{8}-\d{6}\.\d{6}"), "%Y%m%d-%H%M%S.%f"  # of a run's folder
LARGE = 100_000  # elements of an output above which its tensors are stored as float32
Status = Literal["agrees", "known", "new", "stale", "unsupported", "missing", "errored"]


@dataclass(frozen=True)
class Row:
    """One (case, subject): plain JSON values only.

    ``findings`` and ``measures`` are :class:`conformance.verdict.Finding` and ``Measure`` as dictionaries;
    ``facts`` are the flat properties of the case that the ledger and the report's search use; ``ledger`` is the
    entry that explains a known or stale row, ``entries`` the ids of all entries that the row shows or is stale
    because of; ``seconds`` are CPU seconds by stage; ``bound`` is :func:`conformance.formula.formula_of` the
    findings.
    """

    node: str
    order: tuple[int, int]  # place of the case in its file's matrix, place of the subject in the run
    file: str
    line: int
    suite: str
    case: str
    why: str
    subject: str
    framework: str
    status: Status
    summary: str  # one line: the reason of a skip, the first finding's message, the exception
    facts: Mapping[str, Any]
    findings: tuple[Mapping[str, Any], ...] = ()
    measures: tuple[Mapping[str, Any], ...] = ()
    ledger: Mapping[str, Any] | None = None
    traceback: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    tensors: str | None = None  # path of the .npz, relative to the run's folder
    entries: tuple[str, ...] = ()
    bound: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """A short name for files about this row, the same in every run."""
        return hashlib.sha256(self.node.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Header:
    """What a run was: when, with what, and whether it came to its end."""

    started: str  # ISO 8601, UTC
    command: str
    complete: bool
    versions: Mapping[str, str]
    environment: Mapping[str, Any]
    missing: tuple[Mapping[str, Any], ...] = ()  # framework, modules, install
    sampled: tuple[Mapping[str, Any], ...] = ()  # subject, left_out, reason
    wall_seconds: float = 0.0
    since: str = ""  # what changed since an earlier run, which it names; empty without one
    schema: int = SCHEMA


@dataclass(frozen=True)
class Run:
    folder: Path
    header: Header
    rows: tuple[Row, ...]

    def tensors(self, row: Row) -> dict[str, Array]:
        """Arrays of a diverging row by ``"<output>/<expected|actual|bound>"`` (float64), and ``blocked`` (bool
        [B, H, T, S + E]); empty when none were kept, or when results were passed on without them."""
        if row.tensors is None or not (self.folder / row.tensors).is_file():
            return {}
        with np.load(self.folder / row.tensors) as arrays:
            return dict(arrays)

    def script(self, row: Row) -> str | None:
        """The reproducer that was written when the row was recorded, or None."""
        path = self.folder / "scripts" / f"{row.key}.py"
        return path.read_text(encoding="utf-8") if path.exists() else None


class Recorder:
    """Appends the rows of one process to its own file in a run's folder, a flushed line each; beside it a note of the
    versions that its subjects report and of the pairs that are left out (``sampled`` as in :class:`Header`)."""

    def __init__(self, folder: Path, process: str, sampled: Sequence[Mapping[str, Any]] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._sampled = folder, list(sampled)
        self._versions: dict[str, str] = {}
        self._note = folder / f"note-{process}.json"
        self._stream = (folder / f"rows-{process}.jsonl").open("a", encoding="utf-8", errors="backslashreplace")
        self._write_note()

    def record(self, row: Row, tensors: Mapping[str, Array] | None = None, script: str | None = None) -> None:
        """Write a row, and the tensors and the reproducer of a divergence beside it."""
        if tensors:
            name = f"tensors/{row.key}.npz"
            (self._folder / "tensors").mkdir(exist_ok=True)
            keyed: dict[str, Any] = _thinned(tensors)
            np.savez(self._folder / name, **keyed)
            row = replace(row, tensors=name)
        if script is not None:
            (self._folder / "scripts").mkdir(exist_ok=True)
            (self._folder / "scripts" / f"{row.key}.py").write_text(script, encoding="utf-8", errors="backslashreplace")
        self._stream.write(_line(row))
        self._stream.flush()

    def learn(self, versions: Mapping[str, str]) -> None:
        """Note the versions that a subject runs on."""
        if not versions.items() <= self._versions.items():
            self._versions |= versions
            self._write_note()

    def close(self) -> None:
        self._stream.close()

    def _write_note(self) -> None:
        text = json.dumps({"versions": self._versions, "sampled": self._sampled})
        unfinished = self._note.with_suffix(".new")
        unfinished.write_text(text, encoding="utf-8", errors="backslashreplace")
        unfinished.replace(self._note)  # whole or not at all


def combine(folder: Path, header: Header) -> Run:
    """Make one ``results.jsonl`` of what the processes of a run wrote, in matrix order: the last row of each pair.
    Versions that subjects reported, and pairs that were left out, are added to the header."""
    run = _gathered(folder, header)
    write_results(folder, run.header, run.rows)
    for pattern in (PARTS, NOTES, "note-*.new"):
        for part in folder.glob(pattern):
            part.unlink()
    return run


def _gathered(folder: Path, header: Header) -> Run:
    by_node = {row.node: row for part in sorted(folder.glob(PARTS)) for row in _rows(part)}
    rows = sorted(by_node.values(), key=lambda row: (row.file, row.order, row.node))
    notes = [json.loads(note.read_text(encoding="utf-8")) for note in sorted(folder.glob(NOTES))]
    return Run(folder, _noted(header, notes), tuple(rows))


def _noted(header: Header, notes: Sequence[Mapping[str, Any]]) -> Header:
    """Every process collects everything, so each note tells all that was left out."""
    versions = {name: version for note in notes for name, version in note["versions"].items()}
    sampled = {
        item["subject"]: item for item in (*header.sampled, *(item for note in notes for item in note["sampled"]))
    }
    return replace(
        header,
        versions=dict(header.versions) | dict(sorted(versions.items())),
        sampled=tuple(sampled[subject] for subject in sorted(sampled)),
    )


def write_results(folder: Path, header: Header, rows: Iterable[Row]) -> None:
    """Write ``results.jsonl``: the header on the first line, a row on each other."""
    with (folder / RESULTS).open("w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(_line(header))
        stream.writelines(map(_line, rows))


def read_run(folder: Path) -> Run:
    """Read a run's folder; of a run that was killed, or is not over, what its processes wrote so far. Raises
    FileNotFoundError without results, ValueError for another schema or a broken line."""
    if any(folder.glob(PARTS)) and not (folder / RESULTS).exists():
        started = ""
        if NAME.fullmatch(folder.name):
            started = datetime.strptime(folder.name, STARTED).replace(tzinfo=UTC).isoformat(timespec="seconds")
        return _gathered(folder, Header(started, "", complete=False, versions={}, environment={}))
    return Run(folder, read_header(folder), tuple(_rows(folder / RESULTS, skip=1)))


def read_header(folder: Path) -> Header:
    """The header of a run's folder; raises as :func:`read_run`."""
    path = folder / RESULTS
    with path.open("rb") as stream:
        first = json.loads(stream.readline())
    schema = first.get("schema") if isinstance(first, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {schema!r}; this version reads schema {SCHEMA}")
    header: Header = _made(path, 1, Header, first, ("missing", "sampled"))
    return header


def latest_run(reports: Path) -> Path | None:
    """The newest folder of ``reports`` that holds results, or None."""
    found = finished_runs(reports)
    return found[-1] if found else None


def finished_runs(reports: Path) -> list[Path]:
    """Folders of runs that hold results, the oldest first. Folders that someone named otherwise are not among them."""
    folders = (path.parent for path in reports.glob(f"*/{RESULTS}"))
    return sorted(folder for folder in folders if NAME.fullmatch(folder.name))


def _rows(path: Path, skip: int = 0) -> Iterator[Row]:
    with path.open("rb") as stream:  # a line that was cut short may end within a character
        for number, line in enumerate(stream, 1):
            if number <= skip:
                continue
            if not line.endswith(b"\n"):
                return  # the process was stopped within this line
            yield _made(path, number, Row, json.loads(line), ("order", "findings", "measures", "entries"))


def _made(path: Path, number: int, kind: type[Any], values: Any, tuples: Sequence[str]) -> Any:
    """A header or row of what a line says; ValueError when it says something else."""
    try:
        return kind(**values | {name: tuple(values[name]) for name in tuples if name in values})
    except TypeError as error:
        raise ValueError(f"{path}:{number}: not a {kind.__name__.lower()}: {error}") from error


def _line(value: Header | Row) -> str:
    shallow = {one.name: getattr(value, one.name) for one in fields(value)}  # asdict would copy every measure
    return json.dumps(shallow, ensure_ascii=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    """Mappings and NumPy scalars that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _thinned(tensors: Mapping[str, Array]) -> dict[str, Any]:
    """Arrays as stored; float64 values of very large outputs go down to float32 for the sake of the disk."""
    return {
        name: array.astype(np.float32) if array.dtype == np.float64 and array.size > LARGE else array
        for name, array in tensors.items()
    }
