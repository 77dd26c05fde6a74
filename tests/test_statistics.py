"""The verdict on whole outputs: what statistics find, what they leave to the bound, and how it shows."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.faults import WrongScale
from conformance.deviations.graph import ForwardDeviation
from conformance.deviations.rules import LIMIT
from conformance.deviations.statistics import rms
from conformance.expectation import Answer, Expectation
from conformance.policy import Policy
from conformance.report.text import UNEXPLAINED, rms_text
from conformance.run import examine, judge, judged_again
from conformance.spec import Data
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges
from tests.drawn_problems import case_like
from tests.planted.attention import Attention
from tests.projects import Project, output_of


class Plain(Attention):
    policy = Policy(flash=False, exponential_units=4)


class OffScale(WrongScale):
    policy = Plain.policy


def square(dtype: str = "float32", **changes: Any) -> Any:
    return case_like("square", dtype=dtype, target_length=16, source_length=16, embed_dim=16, head_dim=8, **changes)


@pytest.mark.parametrize(("dtype", "relative"), [("float32", 5e-6), ("float64", 1e-14)])
def test_a_scale_that_is_slightly_off_is_found_by_statistics_alone(dtype: str, relative: float) -> None:
    assert isinstance(judge(square(dtype), Plain()), Agrees)
    verdict = judge(square(dtype), OffScale(relative))
    assert isinstance(verdict, Diverges)
    assert {finding.kind for finding in verdict.findings} == {"statistics"}
    assert all(measure.max_ratio < 1 for measure in verdict.measures)
    first = next(finding for finding in verdict.findings if finding.output == "attn_weights")
    assert first.worst is not None and 0 < first.worst.ratio < 1
    assert 0 < first.count <= first.total == verdict.measures[1].elements
    assert "errs" in first.message and f"limit {LIMIT:g}" in first.message


def test_weights_that_their_sum_cannot_tell_apart_have_no_statistics() -> None:
    problem = problem_of(case_like("sum", source_length=300, target_length=3, embed_dim=2, head_dim=2, dtype="float32"))
    reference = Answer.of(problem).reference.forward
    graph = ForwardDeviation.of(problem.case, reference, Policy())
    assert not graph.repeating.any()
    alike = np.full(reference.attn_weights.shape, 1e-5) * (1 + 1e-3 * np.linspace(0, 1, 300))
    alike[..., 0] = 1 - 300e-5
    assert replace(graph, reference=replace(reference, attn_weights=alike)).repeating.all()


def test_an_output_with_another_finding_has_none_of_statistics() -> None:
    verdict = judge(square(), OffScale(0.1))
    assert isinstance(verdict, Diverges)
    assert {(finding.output, finding.kind) for finding in verdict.findings} >= {("attn_weights", "value")}
    assert len({finding.output for finding in verdict.findings}) == len(verdict.findings)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_bfloat16"])
def test_in_16_bits_statistics_are_measured_and_give_no_verdict(dtype: str) -> None:
    verdict = judge(square(dtype), OffScale(3e-2 if dtype == "bfloat16" else 1e-2))
    assert max(measure.rms or 0 for measure in verdict.measures) > 1  # type: ignore[union-attr]
    if isinstance(verdict, Diverges):
        assert "statistics" not in {finding.kind for finding in verdict.findings}


def test_a_wider_policy_widens_the_statistics_too() -> None:
    outcome = examine(square("float64"), OffScale(1e-12))
    assert isinstance(outcome.verdict, Diverges)
    again = judged_again(square("float64"), outcome, Policy(scale="float32", flash=False, exponential_units=4))
    assert isinstance(again, Agrees)


def test_data_without_statistics_are_left_to_the_bound() -> None:
    verdict = judge(square(data=Data("equal")), Plain())
    assert isinstance(verdict, Agrees)
    sizes = {measure.output: measure.rms for measure in verdict.measures}
    assert sizes["attn_weights"] is None and sizes["output_bias.gradient"] is not None


def test_a_number_that_the_case_writes_may_be_as_far_off_as_it_was_rounded() -> None:
    problem = problem_of(square())
    computed = Answer.of(problem).under(Plain.policy)
    assert (computed.deviations["attn_output"] > 0).all()
    distance = 1e-7
    numbers = tuple((computed.values["attn_output"] + distance).ravel().tolist())
    literals = replace(problem.case.literals, expected=(("attn_output", numbers),))
    written = Answer.of(replace(problem, case=replace(problem.case, literals=literals))).under(Plain.policy)
    expected = np.hypot(computed.deviations["attn_output"], distance)
    np.testing.assert_allclose(written.deviations["attn_output"], expected, rtol=1e-6)


def test_deviations_are_computed_when_they_are_asked_for() -> None:
    expectation = Answer.of(problem_of(square())).under(Plain.policy)
    assert "deviations" not in vars(expectation)
    assert expectation.deviations is expectation.deviations
    assert isinstance(expectation, Expectation)


def test_nothing_has_no_root_mean_square() -> None:
    assert rms(np.zeros(0)) is None
    assert rms(np.array([3.0, 4.0])) == pytest.approx(np.sqrt(12.5))


@pytest.mark.parametrize(("size", "text"), [(None, "—"), (0.5, "0.50"), (UNEXPLAINED, "20"), (21.0, "21, unexplained")])
def test_the_report_says_what_is_unexplained(size: float | None, text: str) -> None:
    assert rms_text(size) == text


def test_a_run_shows_what_statistics_found(project: Project) -> None:
    project.cases("small", "fake/right", "fake/scale", body=BODY)
    result = project.pytest_here()
    result.assert_outcomes(passed=1, failed=1)
    (row,) = (row for row in project.run().rows if row.subject == "fake/scale")
    assert row.status == "new" and (row.findings[0]["output"], row.findings[0]["kind"]) == ("attn_output", "statistics")
    assert row.summary.startswith("statistics: attn_output errs")
    assert "statistics" in (run_page := (project.run().folder / "report.html").read_text("utf-8"))
    assert "rms(error/σ)" in run_page
    assert re.search(r"NEW +fake/scale +statistics", output_of(result))
    assert "statistics: attn_output errs" in output_of(result)
    assert any(measure["rms"] > LIMIT for measure in row.measures)


BODY = """
include:
  - {name: one, target_length: 16, source_length: 16, embed_dim: 16, num_heads: 2}
"""
