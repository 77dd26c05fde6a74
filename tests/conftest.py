"""What the tests of the suite share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.projects import Project, project_of

pytest_plugins = ["pytester"]
CAUGHT = "fault"
HEADER = ["fault", "stage", "kills / judged", "smallest case", "multiply-adds", "output", "kind", "tier", "error/bound"]
HEADER += ["assert_close", "jax", "allclose(1e-2)"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which case caught each fault. Rows come from the reports, so they survive parallel workers."""
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
    table = [HEADER, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
    terminalreporter.section("faults, planted and mutated")
    for row in table:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project with fake subjects, whose case files the test writes."""
    yield from project_of(pytester, monkeypatch)
