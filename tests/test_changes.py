"""What changed since the run before."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.changes import sentence, since_last_run, statuses
from conformance.store import Run, write_results
from tests.projects import Project
from tests.synthetic_runs import HEADER, row

OLD = {"a": "agrees", "b": "new", "c": "known", "d": "agrees", "gone": "agrees"}


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (OLD, "nothing changed"),
        (OLD | {"a": "new"}, "1 newly failing"),
        (OLD | {"b": "agrees"}, "1 no longer failing"),
        (OLD | {"c": "stale", "d": "errored"}, "2 newly failing"),
        (OLD | {"c": "agrees"}, "1 otherwise changed"),
        (OLD | {"b": "errored"}, "1 otherwise changed"),
        (OLD | {"more": "new"}, "1 added"),
        ({name: OLD[name] for name in "abcd"}, "1 not run this time"),
    ],
)
def test_each_change_is_told(new: dict[str, str], told: str) -> None:
    assert sentence(OLD, new) == told


def test_the_newest_earlier_run_is_found_by_itself(tmp_path: Path) -> None:
    folders = [tmp_path / f"2026010{day}-000000.000000" for day in (1, 2, 3)]
    for folder, made in zip(folders[:2], (row(status="new"), row(status="agrees")), strict=True):
        folder.mkdir()
        write_results(folder, HEADER, [made])
    run = Run(folders[2], HEADER, (row(status="new"),))
    assert since_last_run(run) == "1 newly failing"
    assert since_last_run(Run(folders[0], HEADER, run.rows)) == ""


def test_broken_lines_are_passed_over(tmp_path: Path) -> None:
    write_results(tmp_path, HEADER, [row()])
    with (tmp_path / "results.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"node": "x"}\n[1]\n{"node": "cut')
    assert list(statuses(tmp_path)) == [row().node]


def test_the_second_run_says_that_nothing_changed(project: Project) -> None:
    project.cases("small", "fake/right")
    project.pytest_here().assert_outcomes(passed=1)
    project.pytest_here().stdout.fnmatch_lines(["changed*nothing changed*"])
