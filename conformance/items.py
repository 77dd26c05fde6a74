"""pytest's view of a case file: one item for each pair, and one for what is wrong with a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import Fault, LedgerError, LocatedError
from conformance.ledger import FILE_NAME, unused
from conformance.pair import Pair, conclude, screenful
from conformance.plugin import _session
from conformance.suite import case_files, duplicate_suite, ledger_of, pairs_of, select


class Failure(Exception):
    """Carries a failure's text to pytest, which shows it without a traceback of this suite."""


def collector_for(path: Path, parent: pytest.Collector) -> pytest.Collector:
    """The collector of a YAML file: the ledger, or a case file."""
    kind = LedgerFile if path.name == FILE_NAME else CaseFile
    made: pytest.Collector = kind.from_parent(parent, path=path)
    return made


class CaseFile(pytest.File):
    """A case file. What is wrong with it becomes a failing item, so that the other files still run."""

    def collect(self) -> Iterator[pytest.Item]:
        session, root = _session(self.config), self.config.rootpath
        try:
            duplicate_suite(self.path, root)
            selection = select(self.path, root, session.full)
        except LocatedError as error:
            yield FaultItem.from_parent(self, name="case-file", faults=error.faults)
            return
        session.sample(selection.left_out)
        for pair in selection.pairs:
            yield PairItem.from_parent(self, name=f"{pair.case.name}[{pair.subject}]", pair=pair)


class LedgerFile(pytest.File):
    """The ledger: one item that fails when the ledger has faults or holds an entry that covers nothing."""

    def collect(self) -> Iterator[pytest.Item]:
        yield LedgerItem.from_parent(self, name="ledger")


class _TextItem(pytest.Item):
    """An item whose failure is text."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Failure):
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
        return self.path, self.faults[0].line - 1, self.nodeid


class LedgerItem(_TextItem):
    """Reads the ledger and asks whether each entry still covers a pair of the case files beside it."""

    def runtest(self) -> None:
        root = self.config.rootpath
        try:
            entries = ledger_of(self.path.parent, root)
        except LedgerError as error:
            raise Failure(str(error)) from None
        pairs = pairs_of(case_files(self.path.parent), root)
        idle = unused(entries, ((pair.case.id, pair.facts, pair.subject) for pair in pairs))
        if idle:
            message = "matches no case and subject: correct its condition or remove it"
            raise Failure("\n".join(f"{entry.file}:{entry.line}: the entry {entry.id} {message}" for entry in idle))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.nodeid


class PairItem(_TextItem):
    """One case for one subject."""

    def __init__(self, *, pair: Pair, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.pair = pair

    def runtest(self) -> None:
        try:
            ledger = ledger_of(self.path.parent, self.config.rootpath)
        except LedgerError:
            ledger = ()  # the ledger's own item fails with its faults; divergences fail as unknown
        conclusion = conclude(self.pair, ledger)
        _session(self.config).record(conclusion)
        row = conclusion.row
        match row.status:
            case "agrees":
                return
            case "known":
                pytest.xfail(row.summary)
            case "unsupported" | "missing":
                pytest.skip(row.summary)
            case _:
                raise Failure(screenful(self.pair, row, conclusion.outcome.verdict))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, self.pair.case.source.line - 1, self.nodeid
