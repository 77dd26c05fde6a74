"""What a run cost: by subject and suite, compiling apart, in the terminal and on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.adapter import adapter_of
from conformance.report.costs import Cost, cost_lines, costs_of
from tests.projects import Project, output_of
from tests.report_pages import page_of
from tests.synthetic_runs import HOSTILE, row, run_of

ROWS = [
    row("a", "alpha/mha", seconds={"reference": 0.5, "compile": 3.0, "compare": 0.25}),
    row("b", "alpha/mha", seconds={"reference": 0.5, "subject": 1.0, "compare": 0.25}),
    row("a", "beta/mha", seconds={"subject": 8.0}),
    row("a", "gamma/mha", "unsupported"),
    row("c", HOSTILE, suite="other", seconds={"subject": 0.5}),
]


def test_costs_are_summed_by_subject_and_by_suite() -> None:
    assert costs_of(ROWS, "subject")[:2] == (Cost("beta/mha", 1, 0, 8.0, 0), Cost("alpha/mha", 2, 3.0, 1.0, 1.5))
    assert [(cost.name, cost.pairs, cost.total) for cost in costs_of(ROWS, "suite")] == [
        ("plain", 4, 13.5),
        ("other", 1, 0.5),
    ]


def test_the_dearest_are_listed(tmp_path: Path) -> None:
    lines = list(cost_lines(ROWS, 1))
    assert lines[0] == "CPU seconds by subject: 3 subjects, 14.0 s"
    assert lines[1].split() == ["8.0", "s", "compile", "0.0", "run", "8.0", "judge", "0.0", "beta/mha,", "1", "pair"]
    assert len(lines) == 4 and len(list(cost_lines(ROWS, 0))) == 7
    assert all("\x1b" not in line for line in cost_lines(ROWS, 0))


def test_the_page_has_a_table_where_anything_was_timed(tmp_path: Path) -> None:
    text = page_of(run_of(tmp_path, ROWS)).text
    assert "Time 14 CPU s" in text and "beta/mha 1 0.0 8.0 0.0 8.0" in text
    assert "CPU s" not in page_of(run_of(tmp_path, [row("a")])).text


def test_durations_list_what_subjects_cost(project: Project) -> None:
    project.cases("small", "fake/right")
    text = output_of(project.pytest_here("--durations=3"))
    assert "CPU seconds by subject: 1 subject" in text and "fake/right, 1 pair" in text
    assert "CPU seconds" not in output_of(project.pytest_here())


@pytest.mark.parametrize("subject", ["jax/dpa@jit", "keras/mha"])
def test_calls_that_compile_are_timed_apart(project: Project, subject: str) -> None:
    if adapter_of(subject).missing:
        pytest.skip(f"{subject} needs {', '.join(adapter_of(subject).missing)}")
    project.cases("small", subject, body="include: [{name: one}, {name: two}, {name: wide, target_length: 9}]")
    assert project.pytest_apart("-n", "0").ret == 0
    stages = {row.case: set(row.seconds) for row in project.run().rows}
    assert "compile" in stages["small/one"] and "subject" not in stages["small/one"]
    assert "subject" in stages["small/two"] and "compile" not in stages["small/two"]
    assert ("compile" in stages["small/wide"]) == (subject == "jax/dpa@jit")
