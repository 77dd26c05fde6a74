"""What a run recorded: JSON Lines for facts, one .npz for the tensors of each divergence.

A run is a folder. While it lasts, every process appends its rows to a file of its own and flushes each line, so an
interrupted run keeps what it had; :func:`combine` then makes one ``results.jsonl`` of them, in matrix order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from conformance.spec import Array

SCHEMA = 1
RESULTS = "results.jsonl"
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
