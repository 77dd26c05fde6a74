"""Two runs compared: every kind of difference, its factor, and the exit status that a script relies on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.cli import main
from conformance.report.differences import difference_lines, differences
from conformance.store import Row, Run
from tests.projects import Project
from tests.synthetic_runs import finding, measure, row, run_of


def rows(**ratios: float | str) -> list[Row]:
    """Rows by name: a number is the largest ratio of one that agrees, a word is a status."""
    made: list[Row] = []
    for name, given in ratios.items():
        status: Any = given if isinstance(given, str) else "agrees"
        measures = () if isinstance(given, str) else (measure(ratio=given),)
        made.append(replace(row(case=name, status=status, measures=measures), node=name))
    return made


def compared(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    found = differences(run_of(folder, rows(**old)), run_of(folder, rows(**new)))
    return [(one.kind, one.node) for one in found]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("agrees", "new", "new"),
        ("known", "errored", "new"),
        ("stale", "known", "fixed"),
        ("new", "agrees", "fixed"),
        ("known", "agrees", "changed"),
        (0.3, 0.6, "worse"),
        (0.6, 0.3, "better"),
        (0.3, 0.59, None),
        (0.001, 0.04, None),
        (0.3, math.inf, "worse"),
        (math.inf, math.inf, None),
        ("agrees", "agrees", None),
        (None, "agrees", "added"),
        (None, "new", "new"),
        ("new", None, "gone"),
    ],
)
def test_each_pair_is_told_by_its_kind(tmp_path: Path, old: Any, new: Any, kind: str | None) -> None:
    runs = [{} if side is None else {"one": side} for side in (old, new)]
    assert compared(tmp_path, *runs) == ([] if kind is None else [(kind, "one")])


def test_the_worst_come_first(tmp_path: Path) -> None:
    old = {"a": 0.1, "b": 0.1, "c": 0.8, "d": "agrees"}
    assert compared(tmp_path, old, {"a": 0.3, "b": 0.9, "c": 0.1, "d": "new"}) == [
        ("new", "d"),
        ("worse", "b"),
        ("worse", "a"),
        ("better", "c"),
    ]


def test_lines_name_ratios_and_factors_and_count_what_is_not_shown(tmp_path: Path) -> None:
    old, new = run_of(tmp_path / "x", rows(a=0.1, b=0.2)), run_of(tmp_path / "y", rows(a=0.4, b=0.6))
    lines = list(difference_lines(old, new, shown=1))
    assert lines[0] == "x → y: 2 pairs, 2 differ"
    assert lines[1] == "worse    2 pairs: larger error/bound"
    assert lines[2].endswith("agrees, error/bound 0.10 → 0.40, ×4.00")
    assert lines[3:] == ["  and 1 more"]


def test_findings_count_where_measures_are_small(tmp_path: Path) -> None:
    quiet = row(measures=(measure(ratio=0.2),))
    loud = replace(quiet, findings=(finding(),))
    assert [one.kind for one in differences(run_of(tmp_path, [quiet]), run_of(tmp_path, [loud]))] == ["worse"]


def test_the_command_compares_folders_and_fails_on_what_is_new(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.cases("small", "fake/off")
    runs: list[Run] = []
    for text in (project.ledger({}).read_text(), "known: []\n"):
        project.write("cases/known_divergences.yaml", text)
        project.pytest_here()
        runs.append(project.run())
    capsys.readouterr()
    old, new = (str(run.folder) for run in runs)
    assert main(["diff", old, new]) == 1
    assert "small/one[fake/off] known → new" in capsys.readouterr().out
    assert main(["diff", new, old]) == 0
    assert "fixed" in capsys.readouterr().out
    assert main(["diff", str(project.root / "nowhere"), new]) == 2
