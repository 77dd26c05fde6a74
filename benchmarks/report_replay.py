"""A pytest plugin that gives the outcomes of a recorded run anew: what another reporter makes of the same rows.

``--replay FOLDER`` names the run. Rows that agree pass, known divergences are expected failures, what is unsupported is
skipped, and all else fails, with the text of the row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.store import Row, read_run


class Failure(Exception):
    """Carries a row's text to the reporter."""


class Replayed(pytest.Item):
    """One row."""

    def __init__(self, *, row: Row, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.row = row

    def runtest(self) -> None:
        match self.row.status:
            case "agrees":
                return
            case "unsupported" | "missing":
                pytest.skip(self.row.summary)
            case "known":
                pytest.xfail(text_of(self.row))
            case _:
                raise Failure(text_of(self.row))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.row.line, self.name


def text_of(row: Row) -> str:
    """A diverging row as the suite shows it in a terminal: summary, findings with their worst elements, traceback."""
    lines = [f"{row.case}[{row.subject}]: {row.summary}"]
    for finding in row.findings:
        lines.append(f"  {finding['kind']}: {finding['message']}; {finding['count']} of {finding['total']} elements")
        worst = finding.get("worst")
        if worst:
            numbers = ", ".join(f"{name} {worst[name]}" for name in ("expected", "actual", "error", "bound"))
            lines.append(f"    worst at {finding['output']}{worst['index']}: {numbers}")
    return "\n".join([*lines, row.traceback or "", f"  case written at {row.file}:{row.line}"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--replay", type=Path, required=True, metavar="FOLDER", help="a recorded run")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    run = read_run(config.getoption("--replay"))
    items[:] = [Replayed.from_parent(session, name=row.node, nodeid=row.node, row=row) for row in run.rows]
