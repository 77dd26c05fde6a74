"""``benchmarks/growth.py``: runs of growing size are measured and drawn, and a missed target is told."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.growth import missed
from benchmarks.growth_plot import plot
from benchmarks.growth_runs import Growth, Memory, case_file
from benchmarks.page import PERFORMANCE, ROOT
from conformance.casefile import read_case_file

MIB = 2**20
LINE = re.compile(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d,]+) MiB \|", re.MULTILINE)


def memory(sizes: Sequence[int], frameworks: Sequence[int]) -> Memory:
    """Of a worker that had so many MiB, and so many frameworks, in turn."""
    return Memory(tuple(range(len(sizes))), tuple(size * MIB for size in sizes), tuple(frameworks), max(sizes) * MIB)


def growth(values: int, seconds: float, *sizes: int) -> Growth:
    """A run of one worker."""
    worker = memory(sizes, [1] * len(sizes))
    return Growth(values, values // 10, seconds, seconds, 1, 1, worker, (worker,))


def figures(text: str) -> list[list[float]]:
    """Comparisons, pairs, CPU and wall seconds, and MiB of the largest worker, of each run in a table."""
    return [[float(cell.replace(",", "")) for cell in found] for found in LINE.findall(text)]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_runs_of_growing_size_are_measured_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "growth.svg"
    command = [sys.executable, "-m", "benchmarks.growth", "--sizes", "100", "300", "--subjects", "numpy/reference"]
    done = subprocess.run([*command, "--plot", str(picture)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    few, many = figures(done.stdout)
    assert many[:2] == [3 * few[0], 3 * few[1]], done.stdout + done.stderr
    assert few[4] > 30
    assert (done.returncode == 1) is bool(done.stderr.strip()), done.stderr
    lines = [element.get("class") for element in ET.parse(picture).iter() if "d" in element.attrib]
    assert {"line a", "line b", "line c"} <= set(lines)


def test_each_missed_target_is_told() -> None:
    least = growth(1_000, 1, 500, 500)
    assert list(missed([least, growth(10_000, 10.9, 500, 520)])) == []
    assert list(missed([least, growth(10_000, 11.1, 500, 500)])) == [
        "10.0 times the comparisons take 11.1 times as long (cpu)",
        "10.0 times the comparisons take 11.1 times as long (wall)",
    ]
    assert list(missed([least, growth(10_000, 10, 500, 1_600)])) == [
        "10,000 comparisons: a worker has 1.56 GiB, 1.5 are allowed",
        "worker 1 is 3.20 times as large in the second half of its pairs",
    ]


def test_a_framework_that_is_imported_late_is_no_creep() -> None:
    assert memory([100, 300, 303, 300, 306, 600], [0, 1, 1, 1, 1, 2]).creep == pytest.approx(306 / 303)
    assert memory([100, 300, 303, 300, 306, 600], [0, 1, 1, 1, 1, 1]).creep == pytest.approx(600 / 303)


def test_cases_grow_in_number_and_not_in_forms(tmp_path: Path) -> None:
    path = tmp_path / "cases" / "growth.yaml"
    path.parent.mkdir()
    path.write_text(case_file(12, ["numpy/*"]), "utf-8")
    cases = read_case_file(path, tmp_path)
    forms = {(case.target_length, case.source_length, case.dtype) for case in cases}
    assert (len(cases), len({case.id for case in cases}), len(forms)) == (96, 96, 2)


def test_a_plot_holds_every_run_and_every_worker() -> None:
    runs = [growth(1_000, 2, 400, 500), growth(10_000, 20, 400, 500, 510)]
    drawn = plot(runs)
    assert [text for text in ("1,000", "10,000", "worker 1") if f">{text}<" not in drawn] == []
    (drawn_memory,) = (found for found in re.findall(r'd="(M[^"]+)"/>\n<path[^>]*/>\n<text[^>]*>worker 1', drawn))
    assert drawn_memory.count("L") == 2


def test_the_page_quotes_runs_that_meet_the_targets() -> None:
    section = PERFORMANCE.read_text("utf-8").partition("<!-- measured: growth -->")[2].partition("<!-- end -->")[0]
    runs = figures(section)
    assert [round(values, -int(len(str(int(values))) - 1)) for values, *_ in runs] == [1_000, 10_000, 100_000]
    (_, _, cpu, wall, before), (_, _, more_cpu, more_wall, after) = runs[1:]
    assert more_cpu <= 11 * cpu and more_wall <= 11 * wall
    assert max(before, after) <= 1536
    assert "performance-growth.svg" in PERFORMANCE.read_text("utf-8")
