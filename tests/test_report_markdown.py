"""The summary for a CI job's page: what it says, that it is appended, and that nothing in a name becomes markup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conformance.report.markdown import SHOWN, append_summary, summary_page
from tests.projects import Project
from tests.synthetic_runs import HEADER, finding, row, run_of


def test_a_run_with_something_new_says_so_first(tmp_path: Path) -> None:
    rows = [row(), row(status="known", findings=(finding(),)), row(status="new", findings=(finding(),))]
    page = "\n".join(summary_page(run_of(tmp_path, rows)))
    assert "**1 new divergence.**" in page
    assert "| new | 1 |" in page
    assert page.index("| new | alpha/mha | value |") < page.index("<details><summary>1 known divergence")
    assert "$ python -m conformance repro" in page


def test_a_quiet_run_is_short(tmp_path: Path) -> None:
    page = "\n".join(summary_page(run_of(tmp_path, [row()])))
    assert "**Every answer agrees with the reference.**" in page
    assert "repro" not in page
    assert "details" not in page


def test_an_interrupted_run_and_what_is_missing_are_told(tmp_path: Path) -> None:
    missing = ({"framework": "absent", "modules": ["absent"], "install": "pip install absent"},)
    header = replace(HEADER, complete=False, missing=missing, since="2 added")
    page = "\n".join(summary_page(run_of(tmp_path, [row()], header)))
    assert "The run was interrupted." in page
    assert "Not installed: absent." in page
    assert "Changed: 2 added." in page


def test_names_are_text_and_long_lists_are_cut(tmp_path: Path) -> None:
    subjects = [f"evil|<b>{number}</b>`*" for number in range(SHOWN + 3)]
    rows = [row(subject=name, status="new", findings=(finding(),)) for name in subjects]
    page = "\n".join(summary_page(run_of(tmp_path, rows)))
    table = page.partition("\n```console")[0]
    assert r"evil\|\<b\>1\</b\>\`\*" in table
    assert "<b>" not in table
    assert "and 3 other groups: see the report." in page


def test_summaries_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.md"
    for _ in range(2):
        append_summary(run_of(tmp_path, [row()]), path)
    assert path.read_text("utf-8").count("## Attention conformance") == 2


def test_pytest_writes_the_summary(project: Project) -> None:
    project.cases("small", "fake/right", "fake/off")
    assert project.pytest_here("--summary", "page.md").ret == 1
    page = (project.root / "page.md").read_text("utf-8")
    assert "| new | fake/off | value | 1 |" in page
    assert "| agrees | 1 |" in page
