"""A folder of case files: which files it holds, their cases, and whether the suites' names are unique.

Nothing here runs a case, so that checking files stays quick.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from conformance.casefile import duplicate_suites, read_case_file
from conformance.errors import CaseFileError, Fault
from conformance.spec import Case

LEDGER = "known_divergences.yaml"
ENDINGS = (".yaml", ".yml")


def case_files(folder: Path) -> tuple[Path, ...]:
    """The case files of a folder in name order: every YAML file but the ledger."""
    found = sorted(path for path in folder.glob("*") if path.suffix in ENDINGS)
    return tuple(path for path in found if path.name != LEDGER and not path.is_dir())


@cache
def cases_of(path: Path, root: Path) -> tuple[Case, ...]:
    """Cases of a file, read once in a process. Raises CaseFileError, also when the file cannot be read."""
    try:
        return read_case_file(path, root)
    except OSError as error:
        raise CaseFileError((Fault(str(path), 1, 1, f"cannot be read: {error.strerror}"),)) from error


def readable(files: Iterable[Path], root: Path) -> Iterator[tuple[Path, tuple[Case, ...]]]:
    """Files without faults, with their cases; the others are passed over."""
    for path in files:
        try:
            yield path, cases_of(path, root)
        except CaseFileError:
            continue


def faulty(files: Iterable[Path], root: Path) -> tuple[Path, ...]:
    """The files that have faults."""
    files = tuple(files)
    sound = {path for path, _ in readable(files, root)}
    return tuple(path for path in files if path not in sound)


def check_suite(path: Path, root: Path) -> tuple[Case, ...]:
    """Cases of a file whose suite no earlier file of its folder has, in name order: case ids would not be unique.

    Raises CaseFileError.
    """
    own = cases_of(path, root)
    earlier = (other for other in case_files(path.parent) if other < path)
    firsts = [cases[0] for _, cases in readable(earlier, root)]
    faults = [fault for fault in duplicate_suites([*firsts, own[0]], root) if fault.file == own[0].source.file]
    if faults:
        raise CaseFileError(tuple(faults))
    return own
