"""The measured tables of the page: each has its place and its rows, and no figure that contradicts the text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import calibration
from benchmarks.calibration import (
    PLAIN,
    faults_table,
    main,
    measures,
    planted,
    resolution,
    square,
    subjects_table,
    tables,
)
from benchmarks.faults import FAULTS, Fault, tf32
from benchmarks.page import PAGE, ROOT, Table
from conformance.adapter import announced
from conformance.deviations.rules import LIMIT
from conformance.store import Row, Status
from tests.exponentials import SOFTMAX
from tests.planted.attention import Attention
from tests.synthetic_runs import measure, row


def rows_of(name: str) -> list[list[str]]:
    """The cells of a table in the page, without its head."""
    (table,) = (table for table in tables() if table.name == name)
    found = table.place.search(PAGE.read_text("utf-8"))
    assert found is not None
    lines = [line for line in found[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_table_has_its_place_and_no_other() -> None:
    named = re.findall(r"<!-- measured: (\w+) -->", PAGE.read_text("utf-8"))
    assert sorted(named) == sorted(["soundness", *(table.name for table in tables())])


def test_the_tables_have_a_row_for_each_of_what_is_measured() -> None:
    assert [row[0] for row in rows_of("faults")] == [fault.label for fault in FAULTS]
    assert {row[0] for row in rows_of("exponentials")} == set(SOFTMAX)
    assert {row[0] for row in rows_of("subjects")} <= {name for name, _ in announced()}
    assert len(rows_of("resolution")) == 4


def test_no_correct_subject_comes_near_the_limit_in_the_table() -> None:
    for _, *cells in rows_of("subjects"):
        for cell in cells[:2]:
            assert all(float(size) < LIMIT / 2 for size in re.findall(r"\d+\.\d", cell))


def test_the_table_of_subjects_leaves_out_what_is_known_to_be_wrong() -> None:
    def found(subject: str, status: Status, kind: str, size: float) -> Row:
        findings = ({"output": "attn_output", "kind": kind},)
        return row(subject=subject, status=status, findings=findings, measures=(measure() | {"rms": size},))

    rows = [
        row(subject="right", measures=(measure() | {"rms": 1.25},)),
        found("right", "known", "value", 1e6),
        found("right", "known", "statistics", 90.0),
        found("wrong", "new", "statistics", 12.0),
        found("wrong", "new", "value", 1e3),
    ]
    table = list(subjects_table(rows))
    assert [line.split(" |")[:3] for line in table if line.startswith(("| right", "| wrong"))] == [
        ["| right", " — / — / —", " 1.2 / — / —"],
        ["| wrong", " — / — / —", " 12.0 / — / —"],
    ]
    assert table[-1] == "(2 outputs.)"


def test_a_table_is_put_between_its_comments() -> None:
    table = Table("faults", lambda: iter(()))
    page = "before\n<!-- measured: faults -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    assert table.put(page, "new\n") == "before\n<!-- measured: faults -->\nnew\n<!-- end -->\nafter <!-- end -->\n"


def test_the_command_writes_only_what_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "tolerance.md"
    copy = tmp_path / "page.md"
    copy.write_text(page.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(calibration, "PAGE", copy)
    monkeypatch.setattr(calibration, "ROOT", tmp_path)
    monkeypatch.setattr(calibration, "LENGTHS", (7,))
    monkeypatch.setattr(calibration, "SEEDS", (1,))
    assert main(["faults", "--write"]) == 0
    written = copy.read_text("utf-8")
    table = Table("faults", faults_table)
    assert table.put(written, "") == table.put(page.read_text("utf-8"), "")
    assert "| none: the control | 0 % / 0 % / 0 % | 0 % / 0 % / 0 % |" in written


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_each_fault_is_found_by_statistics_or_the_bound_and_the_control_by_neither(fault: Fault) -> None:
    for dtype in fault.dtypes:
        found = measures(*planted(dtype, 33, 8, 1), fault.subject)
        flagged = any((one.rms or 0) > LIMIT or one.max_ratio > 1 for one in found)
        assert flagged is (fault.label != "none: the control"), dtype


def test_the_resolution_is_what_the_page_says() -> None:
    by_statistics, by_bound = (calibration.JUDGES[name] for name in ("statistics", "bound"))
    assert resolution("float32", 16, 8, by_statistics, output_only=False) <= 3.1e-6
    assert resolution("float32", 16, 8, by_bound, output_only=False) <= 3.1e-5
    assert resolution("float64", 16, 8, by_statistics, output_only=True) <= 1.1e-14


def test_the_control_is_the_policy_that_it_is_judged_by() -> None:
    problem, expectation = planted("float32", 16, 8, 1)
    assert expectation.policy == PLAIN and problem.case == square("float32", 16, 8, 1)
    assert max(one.rms or 0 for one in measures(problem, expectation, Attention())) < 2


def test_tf32_keeps_eleven_bits() -> None:
    numbers = np.array([1 + 2.0**-10, 1 + 2.0**-12, 1 + 1.5 * 2.0**-11, -3.0], np.float32)
    np.testing.assert_array_equal(tf32(numbers), [1 + 2.0**-10, 1, 1 + 2.0**-10, -3])
