"""Case files written by tests: text in, cases or faults out."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from conformance.casefile import read_case_file
from conformance.errors import CaseFileError, Fault
from conformance.spec import Case

HEAD = "suite: s\nwhy: because\n"  # two lines before what a test is about


def cases_of(folder: Path, text: str) -> tuple[Case, ...]:
    """The cases of a file that says ``text``."""
    return read_case_file(_written(folder, text), folder)


def names_of(folder: Path, text: str) -> list[str]:
    return [case.name for case in cases_of(folder, HEAD + dedent(text))]


def case_of(folder: Path, text: str) -> Case:
    """The only case of a file whose head is given."""
    (case,) = cases_of(folder, HEAD + dedent(text))
    return case


def faults_of(folder: Path, text: str) -> tuple[Fault, ...]:
    """The faults of a file that says ``text`` and nothing else."""
    with pytest.raises(CaseFileError) as caught:
        cases_of(folder, text)
    return caught.value.faults


def places(faults: tuple[Fault, ...]) -> list[tuple[int, int]]:
    return [(fault.line, fault.column) for fault in faults]


def _written(folder: Path, text: str) -> Path:
    path = folder / "cases" / "file.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path
