"""What the tests of the suite share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.projects import Project, project_of

pytest_plugins = ["pytester"]
CAUGHT = "planted fault"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which case caught each planted fault. Rows come from the reports, so they survive parallel workers."""
    reports: list[Any] = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = sorted(
        str(value).split("\t")
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == CAUGHT
    )
    if not rows:
        return
    table = [["fault", "caught by", "output", "kind", "error/bound", "catching / judged"], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    terminalreporter.section("planted faults")
    for row in table:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project with fake subjects, whose case files the test writes."""
    yield from project_of(pytester, monkeypatch)
