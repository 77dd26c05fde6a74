"""pytest's view of a case file: one item for each pair, and one for what is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.casefolder import LEDGER, case_files, check_suite, faulty
from conformance.errors import AdapterError, Fault, LedgerError, LocatedError
from conformance.ledger import unmatched, unused
from conformance.ledgerfile import ledger_of
from conformance.pair import Pair, conclude, screenful
from conformance.plugin import STATUS, session_of
from conformance.report.text import visible
from conformance.suite import check_subjects, compile_order, constraint_faults, pairs_of, select


class Failure(Exception):
    """Carries a failure's text to pytest, which shows it without a traceback of this suite."""


def collector_for(path: Path, parent: pytest.Collector) -> pytest.Collector:
    """The collector of a YAML file: the ledger, or a case file."""
    kind = LedgerFile if path.name == LEDGER else CaseFile
    made: pytest.Collector = kind.from_parent(parent, path=path)
    return made


class CaseFile(pytest.File):
    """A case file. What is wrong with it becomes a failing item, so that the other files still run."""

    def collect(self) -> Iterator[pytest.Item]:
        session, root = session_of(self.config), self.config.rootpath
        try:
            check_suite(self.path, root)
            check_subjects(self.path, root)
            selection = select(self.path, root, session.full)
        except LocatedError as error:
            yield FaultItem.from_parent(self, name="case-file", faults=error.faults)
            return
        except AdapterError as error:
            raise self.CollectError(str(error)) from error
        session.sample(selection.left_out)
        idle = constraint_faults(self.path, root)
        if idle:
            yield FaultItem.from_parent(self, name="constraints", faults=idle)
        for pair in selection.pairs:
            yield PairItem.from_parent(self, name=f"{pair.case.name}[{pair.subject}]", pair=pair)


class LedgerFile(pytest.File):
    """The ledger: one item that fails when the ledger has faults or holds an entry that covers nothing."""

    def collect(self) -> Iterator[pytest.Item]:
        yield LedgerItem.from_parent(self, name="ledger")


def in_compile_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The items with pairs of one shape side by side; otherwise in their order."""
    return sorted(items, key=lambda item: compile_order(item.pair.case) if isinstance(item, PairItem) else ())


class _TextItem(pytest.Item):
    """An item whose failure is text."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failure | pytest.xfail.Exception):  # pytest would format a traceback for each
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class FaultItem(_TextItem):
    """Fails with every fault of a file, each located."""

    def __init__(self, *, faults: tuple[Fault, ...], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.faults = faults

    def runtest(self) -> None:
        raise Failure("\n".join(map(str, self.faults)))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.faults[0].line - 1, f"faults of {self.nodeid}"


class LedgerItem(_TextItem):
    """Reads the ledger and asks whether each entry still covers a pair of the case files beside it."""

    def runtest(self) -> None:
        root, files = self.config.rootpath, case_files(self.path.parent)
        try:
            entries = ledger_of(self.path.parent, root)
        except LedgerError as error:
            raise Failure(str(error)) from None
        broken = faulty(files, root)
        if broken:
            names = ", ".join(path.name for path in broken)
            raise Failure(f"whether each entry covers a pair cannot be told while there are faults in {names}")
        pairs = tuple(pairs_of(files, root))
        covered = ((pair.case.id, pair.facts, pair.subject) for pair in pairs)
        cases = tuple(dict.fromkeys(pair.case.id for pair in pairs))
        faults = [(entry, "matches no case and subject") for entry in unused(entries, covered)]
        faults += [(entry, f"matches no case with {pattern!r}") for entry, pattern in unmatched(entries, cases)]
        if faults:
            lines = [f"{entry.file}:{entry.line}: the entry {entry.id} {message}" for entry, message in faults]
            raise Failure("\n".join([*lines, "correct the condition or remove the entry"]))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"faults of {self.nodeid}"


class PairItem(_TextItem):
    """One case for one subject. What the subject says is shown with its control characters and lone surrogates made
    visible: a terminal obeys the former, and the latter cannot be sent by a worker of pytest-xdist."""

    def __init__(self, *, pair: Pair, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pair = pair

    def runtest(self) -> None:
        note = ""
        try:
            ledger = ledger_of(self.path.parent, self.config.rootpath)
        except LedgerError as error:  # every divergence then fails as unknown, the ledger's own item with the faults
            ledger, note = (), f"\n  the ledger has faults and was not used: {error.faults[0].place}"
        conclusion = conclude(self.pair, ledger)
        session_of(self.config).record(self.pair, conclusion)
        row = conclusion.row
        match row.status:
            case "agrees":
                return
            case "known":
                pytest.xfail(visible(row.summary))
            case "unsupported" | "missing":
                pytest.skip(visible(row.summary))
            case _:
                self.user_properties.append((STATUS, row.status))  # for the progress line, and for JUnit XML
                raise Failure(visible(screenful(self.pair, row, conclusion.outcome.verdict)) + note)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.pair.case.source.line - 1, self.pair.id  # pytest garbles a name that ends the node id
