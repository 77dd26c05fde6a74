"""The benchmark of the report: what its page quotes meets the targets, and a missed target is told."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.page import PERFORMANCE
from benchmarks.report_rows import NEW, SHARES, synthetic
from benchmarks.report_visits import Visit
from conformance.store import read_run
from tests.browsing import absent, need


def figures(size: int, opened: float, filtered: float) -> report.Figures:
    return report.Figures(size, 1.0, tuple(Visit(opened, filtered, 1e6) for _ in range(3)))


def test_the_page_quotes_figures_that_meet_the_targets() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| <.*? \| ([\d.]+) \w+ \|", PERFORMANCE.read_text("utf-8"), re.MULTILINE))
    size, opened, filtered = (float(text) for text in rows.values())
    assert figures(int(size * 1e6), opened * 1e3, filtered).missed() == []


def test_each_missed_target_is_told() -> None:
    assert len(figures(6_000_001, 3_001, 101).missed()) == 3
    assert figures(5_999_999, 2_999, 101).missed() == ["it filters in 101 ms, 100 are allowed"]


def test_made_up_rows_are_in_the_proportions_of_a_run(tmp_path: Path) -> None:
    run = synthetic(2_000, tmp_path)
    assert read_run(tmp_path) == run
    counts = {status: sum(row.status == status for row in run.rows) for status in (*SHARES, "new")}
    assert counts.pop("new") == NEW
    assert all(abs(count / (2_000 - NEW) - SHARES[status]) < 0.04 for status, count in counts.items())
    new = next(row for row in run.rows if row.status == "new")
    assert run.tensors(new) and run.script(new)


def test_both_reports_are_written_and_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need(absent())
    need(None if importlib.util.find_spec("pytest_html") else "pytest-html is not installed: pip install pytest-html")
    page = tmp_path / "performance.md"
    page.write_text("<!-- measured: report -->\n<!-- end -->\n", "utf-8")
    monkeypatch.setattr(report, "PERFORMANCE", page)
    monkeypatch.setattr(report, "ROUNDS", 1)
    monkeypatch.setattr(report, "SIZE", 1_000)
    assert report.main(["--rows", "400", "--write"]) == 1
    printed = capsys.readouterr()
    assert "1,000 are allowed" in printed.err
    assert printed.out.startswith("| 400 rows |")
    assert printed.out in page.read_text("utf-8")
