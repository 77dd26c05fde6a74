"""The report in the terminal, and how elements and ratios are told."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.report.elements import fields_of, row_ratio, worst_elements
from conformance.report.explain import explain_lines
from conformance.report.terminal import summary_lines
from conformance.report.text import ratio_text
from conformance.verdict import Worst
from tests.report_pages import mixed_run
from tests.synthetic_runs import HEADER, finding, row, run_of


def test_the_terminal_says_the_same_in_few_lines(tmp_path: Path) -> None:
    missing = ({"framework": "gamma", "modules": ["gamma"], "install": "pip install gamma==1.0"},)
    run = replace(mixed_run(tmp_path), header=replace(HEADER, missing=missing))
    lines = summary_lines(run, Path("reports/report.html"))
    assert lines[0] == "attention conformance · numpy 2.4.6 · alpha 1.0.0"
    assert lines[1] == "missing    gamma: pip install gamma==1.0"
    assert lines[2] == "verdict    1 agree, 1 new, 1 errored, 1 stale, 1 known, 1 unsupported"
    assert [line.split()[0] for line in lines[3:]] == ["NEW", "ERRORED", "STALE", "known", "report", "reproduce"]
    assert lines[3].split() == ["NEW", "beta/mha", "value", "1", "case", "worst", "5.00", "none;", "float32"]
    assert lines[-2] == "report     reports/report.html"
    assert lines[-1] == "reproduce  python -m conformance repro 'a[beta/mha]'"


def test_the_terminal_never_takes_more_than_25_lines(tmp_path: Path) -> None:
    rows = [row(f"c{place}", f"alpha/{'x' * place}", "new") for place in range(60)] + [row("k", status="known")]
    missing = tuple({"framework": f"f{place}", "install": "pip install f"} for place in range(9))
    versions = {f"package-{place}": "1.0" for place in range(40)}
    header = replace(HEADER, missing=missing, versions=versions, complete=False)
    lines = summary_lines(run_of(tmp_path, rows, header), Path("r.html"), width=80)
    assert len(lines) == 25
    copied = ("report", "reproduce", "missing")
    assert all(len(line) <= 80 for line in lines if not line.startswith(copied))
    assert re.search(r"and \d+ other groups \(\d+ new\) of \d+ cases", "\n".join(lines))


def test_the_terminal_is_safe_from_control_characters_and_shells(tmp_path: Path) -> None:
    odd = "x'; rm -rf y #\n\x1b[2J\u202e"
    run = run_of(tmp_path, [row(odd, f"beta/{odd}", "errored", summary=odd, traceback=odd, why=odd)])
    lines = summary_lines(run, None) + explain_lines(run, run.rows[0])
    assert not re.search(r"[\x00-\x1f\u202e]", "".join(lines))
    command = next(line for line in lines if line.startswith("reproduce")).removeprefix("reproduce").strip()
    assert len(shlex.split(command)) == 5


def test_a_case_is_explained_in_text(tmp_path: Path) -> None:
    run = mixed_run(tmp_path)
    text = "\n".join(explain_lines(run, run.rows[1]))
    assert "cases/plain.yaml:7" in text
    assert "B 2  T 3  S 5  H 2  D 8" in text
    assert "attn_output: value, 4 of 48, worst ratio 5.00" in text
    assert re.search(r"attn_output\[1, 2, 3\]: expected \S+, actual NaN, error NaN, bound 1e-7, ratio ∞", text)
    assert re.search(r"attn_weights\[0, 1, 2, 4\]: expected .* ratio 50\n", text)
    assert text.endswith("reproduce  python -m conformance repro 'a[beta/mha]'")
    assert "reason: softmax over nothing" in "\n".join(explain_lines(run, run.rows[2]))


@pytest.mark.parametrize(
    ("expected", "actual", "bound"),
    [
        (1.0, 1.0, 0.0),
        (1.0, 1.5, 0.25),
        (1.0, 1.1, 0.0),
        (1.0, math.nan, 1.0),
        (1.0, 1.5, math.nan),
        (1.0, math.inf, math.inf),
        (2.0, 1.0, math.inf),
    ],
)
def test_ratios_follow_the_rule_of_the_verdict(expected: float, actual: float, bound: float) -> None:
    tensors = {f"o/{name}": np.array([value]) for name, value in
               (("expected", expected), ("actual", actual), ("bound", bound))}  # fmt: skip
    (field,) = fields_of(tensors)
    assert field.ratio[0] == Worst((0,), expected, actual, abs(actual - expected), bound).ratio


def test_worst_elements_without_tensors_come_from_the_findings() -> None:
    made = row(
        status="new", findings=(finding(), finding("nonfinite", worst={"index": [0], "error": "nan", "bound": 1}))
    )
    elements = worst_elements(made, {})
    assert [(element.ratio, element.index) for element in elements] == [(math.inf, (0,)), (5.0, (1, 2, 3))]
    assert row_ratio(made) == math.inf


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "—"), (0.0, "0"), (0.4142, "0.41"), (1.0, "1.00"), (1.0001, ">1.00"), (0.9999, "<1.00"), (9.996, "10"),
     (123.4, "123"), (9999.7, "1e4"), (2.5e6, "2.5e6"), (3e-5, "3e-5"), (math.inf, "∞"), (math.nan, "∞")],
)  # fmt: skip
def test_ratios_are_short(ratio: float | None, text: str) -> None:
    assert ratio_text(ratio) == text


def test_explain_names_the_two_calls_of_a_relation_and_who_behaves_alike(tmp_path: Path) -> None:
    rows = [
        row("a", "alpha/mha", "known", facts={"relation": "batch-split"}),
        row("a", "beta/mha", "known", facts={"relation": "batch-split"}),
        row("a", "gamma/mha", facts={"relation": "batch-split"}),
        row("b", "gamma/mha", "known", facts={"relation": "conservation"}),
    ]
    run = run_of(tmp_path, rows)
    text = "\n".join(explain_lines(run, rows[0]))
    assert "attn_output[1, 2, 3]: other call 0.25, this call 0.75" in text
    assert "≠ known (value 5.00): alpha/mha = beta/mha" in text
    assert "✓ agrees: gamma/mha" in text
    alone = "\n".join(explain_lines(run, rows[3]))
    assert "conserved 0.25, actual 0.75" in alone and "who agrees" not in alone
