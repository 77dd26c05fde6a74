"""The rows of a run for other programs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from conformance.cli import main
from conformance.report.tabular import RESULTS_SCHEMA, csv_lines, results_schema
from conformance.store import write_results
from tests.projects import Project
from tests.synthetic_runs import HEADER, finding, measure, row, run_of


def test_the_published_schema_is_that_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--results"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == results_schema() == json.loads(RESULTS_SCHEMA.read_text("utf-8"))


def test_every_line_of_a_run_is_as_the_schema_says(tmp_path: Path) -> None:
    rows = [row(status="new", findings=(finding(),), measures=(measure(),)), row(status="unsupported")]
    write_results(tmp_path, HEADER, rows)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text("utf-8").splitlines()]
    assert len(lines) == 3
    for line in lines:
        jsonschema.validate(line, results_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(lines[1] | {"status": "fine"}, results_schema())


def test_rows_as_csv(tmp_path: Path) -> None:
    odd = replace(row(status="new", findings=(finding(),)), summary='a "quoted", line\nand more', entries=("x", "y"))
    table = list(csv.DictReader(csv_lines(run_of(tmp_path, [row(), odd]))))
    assert [line["status"] for line in table] == ["agrees", "new"]
    assert table[1]["summary"] == odd.summary
    assert (table[1]["kinds"], table[1]["entries"]) == ("value", "x y")
    assert table[0]["dtype"] == row().facts["dtype"]
    assert len(table[0]) == len(set(table[0]))


def test_every_line_of_csv_can_be_encoded(tmp_path: Path) -> None:
    (_, line) = csv_lines(run_of(tmp_path, [replace(row(), summary="a file \udcff\nand more")]))
    assert '"a file \\udcff\nand more"' in line.encode().decode() and line.endswith("\r\n")


def test_the_command_prints_a_line_for_each_row(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.cases("small", "fake/right", "fake/off")
    project.pytest_here()
    folder = project.run().folder
    capsys.readouterr()
    assert main(["csv", str(folder)]) == 0
    assert len(list(csv.reader(capsys.readouterr().out.splitlines()))) == 3


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "conformance", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
