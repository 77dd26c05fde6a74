"""What a run recorded: JSON Lines for facts, one .npz for the tensors of each divergence.

A run is a folder. While it lasts, every process appends its rows to a file of its own and flushes each line, so an
interrupted run keeps what it had; :func:`combine` then makes one ``results.jsonl`` of them, in matrix order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from conformance.spec import Array

SCHEMA = 1
RESULTS = "results.jsonl"
LARGE = 100_000  # elements of an output above which its tensors are stored as float32
Status = Literal["agrees", "known", "new", "stale", "unsupported", "missing", "errored"]


@dataclass(frozen=True)
class Row:
    """One (case, subject): plain JSON values only.

    ``findings`` and ``measures`` are :class:`conformance.verdict.Finding` and ``Measure`` as dictionaries;
    ``facts`` are the flat properties of the case that the ledger and the report's search use; ``ledger`` is the
    entry that explains a known or stale row; ``seconds`` are CPU seconds by stage.
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
    schema: int = SCHEMA


@dataclass(frozen=True)
class Run:
    folder: Path
    header: Header
    rows: tuple[Row, ...]

    def tensors(self, row: Row) -> dict[str, Array]:
        """Arrays of a diverging row by ``"<output>/<expected|actual|bound>"`` (float64), and ``blocked`` (bool
        [B, H, T, S + E]); empty when none were kept."""
        if row.tensors is None:
            return {}
        with np.load(self.folder / row.tensors) as arrays:
            return dict(arrays)


class Recorder:
    """Appends the rows of one process to its own file in a run's folder, a flushed line each."""

    def __init__(self, folder: Path, process: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._process = folder, process
        self._stream = (folder / f"rows-{process}.jsonl").open("a", encoding="utf-8")
        self._tensors = 0

    def record(self, row: Row, tensors: Mapping[str, Array] | None = None) -> None:
        """Write a row, and the tensors of a divergence beside it."""
        if tensors:
            self._tensors += 1
            name = f"tensors/{self._process}-{self._tensors}.npz"
            (self._folder / "tensors").mkdir(exist_ok=True)
            np.savez(self._folder / name, **_thinned(tensors))
            row = replace(row, tensors=name)
        self._stream.write(json.dumps(asdict(row), ensure_ascii=False, default=_plain) + "\n")
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def combine(folder: Path, header: Header) -> Run:
    """Make one ``results.jsonl`` of what the processes of a run wrote, in matrix order."""
    parts = sorted(folder.glob("rows-*.jsonl"))
    rows = sorted((row for part in parts for row in _rows(part)), key=lambda row: (row.file, row.order, row.node))
    write_results(folder, header, rows)
    for part in parts:
        part.unlink()
    return Run(folder, header, tuple(rows))


def write_results(folder: Path, header: Header, rows: Iterable[Row]) -> None:
    """Write ``results.jsonl``: the header on the first line, a row on each other."""
    with (folder / RESULTS).open("w", encoding="utf-8") as stream:
        for value in (header, *rows):
            stream.write(json.dumps(asdict(value), ensure_ascii=False, default=_plain) + "\n")


def read_run(folder: Path) -> Run:
    """Read a run's folder. Raises FileNotFoundError without results, ValueError for another schema or a broken line."""
    path = folder / RESULTS
    with path.open(encoding="utf-8") as stream:
        first = json.loads(stream.readline())
    if first.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {first.get('schema')!r}; this version reads schema {SCHEMA}")
    header = Header(**first | {name: tuple(first[name]) for name in ("missing", "sampled")})
    return Run(folder, header, tuple(_rows(path, skip=1)))


def latest_run(reports: Path) -> Path | None:
    """The newest folder of ``reports`` that holds results, or None."""
    found = sorted(path.parent for path in reports.glob(f"*/{RESULTS}"))
    return found[-1] if found else None


def _rows(path: Path, skip: int = 0) -> Iterator[Row]:
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if number <= skip:
                continue
            if not line.endswith("\n"):
                return  # the process was stopped within this line
            values = json.loads(line)
            for name in ("order", "findings", "measures"):
                values[name] = tuple(values[name])
            yield Row(**values)


def _plain(value: Any) -> Any:
    """Mappings and NumPy scalars that JSON does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _thinned(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays as stored; float64 values of very large outputs go down to float32 for the sake of the disk."""
    return {
        name: array.astype(np.float32) if array.dtype == np.float64 and array.size > LARGE else array
        for name, array in tensors.items()
    }
