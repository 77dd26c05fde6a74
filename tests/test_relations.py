"""Relations: their mathematics held against the reference, what breaks them, and how that reaches the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import numpy as np
import pytest

from adapters.numpy_per_head import attend_per_head
from conformance.casefile import read_case_file
from conformance.expectation import Answer
from conformance.policy import ENVELOPE, FORMATS
from conformance.problem import Outputs, Problem
from conformance.reference import reference_of
from conformance.relations.check import hold
from conformance.relations.table import APPENDED, relation_of
from conformance.run import judge
from conformance.spec import Case, Data, Explicit, Mask
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges
from conformance.vocabulary import Relation
from tests.casefiles import HEAD, case_of, faults_of
from tests.drawn_problems import case_like
from tests.planted import CONTROL
from tests.planted.attention import Attention
from tests.planted.forward import Forward
from tests.planted.mask_faults import MaskOfAnotherSample, MaskOfFirstHead
from tests.planted.projection_faults import HeadsInterleaved
from tests.planted.setting import Setting
from tests.projects import Project

CASES = read_case_file(Path(__file__).parent.parent / "cases" / "relations.yaml")
RELATIONS: tuple[Relation, ...] = get_args(Relation)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_reference_keeps_every_relation_far_inside_its_own_bounds(relation: Relation) -> None:
    """Both sides are the same real numbers: what is left is the rounding of the reference, a billionth of a bound in
    float32. A relation that were wrong would be off by many bounds."""
    judged = [case for case in CASES if case.relation == relation and case.dtype == "float32"]
    assert len(judged) >= 6
    for case in judged:
        kept = relation_of(case)
        outputs = [reference_of(problem).outputs() for problem in kept.problems]
        bounds = [Answer.of(problem).under(ENVELOPE).bounds for problem in kept.problems]
        split = len(kept.left.problems)
        left, right = kept.left.view(outputs[:split]), kept.right.view(outputs[split:])
        limit = kept.left.bounds(bounds[:split])
        assert {"attn_output", "value.gradient", "query.gradient"} <= left.keys() & right.keys()
        for name in left.keys() & right.keys():
            assert left[name].shape == right[name].shape
            assert (np.abs(left[name] - right[name]) <= 1e-6 * limit[name] + 1e-15).all(), (case.id, name)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_other_side_asks_another_question(relation: Relation) -> None:
    """A relation between a call and itself would hold for everything."""
    for case in (case for case in CASES if case.relation == relation):
        kept = relation_of(case)
        if relation == "conservation":
            assert kept.right.problems == ()
            continue
        first, second = kept.left.problems[0], kept.right.problems[0]
        if relation == "batch-split":
            joined = np.concatenate([problem.key for problem in kept.right.problems])
            assert len(kept.right.problems) > 1 and np.array_equal(joined, first.key)
            continue
        arrays = [(first.key, second.key), (first.query, second.query)]
        arrays += [(array, second.parameters.present[name]) for name, array in first.parameters.present.items()]
        assert not all(np.array_equal(one, other) for one, other in arrays), case.id


def test_every_case_is_kept_by_the_control() -> None:
    wrong = {case.id: verdict for case in CASES if not isinstance(verdict := judge(case, CONTROL()), Agrees)}
    assert not wrong


class OrderMatters(Attention):
    """A little of the position of a key leaks into its score."""

    name = "test/order"

    def scores(self, setting: Setting, query: Any, key: Any) -> Any:
        scores = super().scores(setting, query, key)
        return scores + np.linspace(0, 0.1, scores.shape[-1], dtype=scores.dtype)


class WeightsSumToLess(Attention):
    """The sum of the weights is a thousandth too small."""

    name = "test/sum"

    def softmax(self, setting: Setting, masked: Any) -> Any:
        return super().softmax(setting, masked) * np.float32(0.999)


class NanOfBoth(Attention):
    name = "test/nan"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        spoilt = outputs.attn_output.copy()
        spoilt[0, 0] = np.nan
        return replace(outputs, attn_output=spoilt)


class NanOfOne(NanOfBoth):
    name = "test/nan-once"
    calls = 0

    def attend(self, problem: Problem) -> Outputs:
        self.calls += 1
        return super().attend(problem) if self.calls == 2 else Attention.attend(self, problem)


def related(relation: Relation, **changes: Any) -> Case:
    sizes = {"batch": 3, "target_length": 5, "source_length": 7, "embed_dim": 16, "num_heads": 4}
    return case_like(f"related-{relation}", relation=relation, **(sizes | changes))


@pytest.mark.parametrize(
    ("subject", "case"),
    [
        (OrderMatters(), related("keys-permuted")),
        (MaskOfFirstHead(), related("heads-permuted", mask=Mask(explicit=Explicit("random", "BHTS")))),
        (MaskOfAnotherSample(), related("batch-split", mask=Mask(explicit=Explicit("random", "B1TS")))),
        (HeadsInterleaved(), related("heads-permuted")),
        (WeightsSumToLess(), related("conservation")),
        (NanOfOne(), related("scores-shifted")),
    ],
    ids=lambda value: value.name,
)
def test_what_breaks_a_relation_is_found(subject: Forward, case: Case) -> None:
    verdict = judge(case, subject)  # type: ignore[arg-type]
    assert isinstance(verdict, Diverges), verdict
    assert {finding.kind for finding in verdict.findings} == {"relation"}
    assert verdict.findings[0].worst is not None
    assert f"the relation {case.relation}" in verdict.findings[0].message


def test_nan_on_both_sides_is_one_answer() -> None:
    assert isinstance(judge(related("scores-shifted"), NanOfBoth()), Agrees)


def test_appended_keys_must_be_exactly_nothing() -> None:
    """One smallest number in the weight of an appended key is a divergence: the bound there is 0."""
    case = related("keys-appended")
    problems = relation_of(case).problems
    judged: list[dict[str, Any]] = []
    for problem in problems:
        outputs = attend_per_head(problem)
        gradients = {f"{name}.gradient": array for name, array in outputs.gradients.items()}
        judged.append({"attn_output": outputs.attn_output, "attn_weights": outputs.attn_weights, **gradients})
    assert isinstance(hold(case, judged, ENVELOPE).verdict, Agrees)
    weights = judged[1]["attn_weights"].copy()
    assert weights.shape[-1] == case.source_length + APPENDED
    weights[0, 0, 0, -1] = 1e-45
    verdict = hold(case, [judged[0], judged[1] | {"attn_weights": weights}], ENVELOPE).verdict
    assert isinstance(verdict, Diverges)
    assert [(one.output, one.kind, one.count) for one in verdict.findings] == [("attn_weights", "relation", 1)]


def test_an_output_of_the_wrong_shape_is_no_matter_of_relations() -> None:
    class Short(Attention):
        name = "test/short"

        def attend(self, problem: Problem) -> Outputs:
            outputs = super().attend(problem)
            return replace(outputs, attn_output=outputs.attn_output[:, 1:])

    verdict = judge(related("keys-permuted"), Short())
    assert isinstance(verdict, Diverges)
    assert {finding.kind for finding in verdict.findings} == {"shape"}


def test_a_subject_that_cannot_answer_the_second_call_is_unsupported() -> None:
    class Whole(Attention):
        name = "test/whole"

        def unsupported(self, case: Case) -> Any:
            from conformance.spec import Unsupported

            return Unsupported("batches of one are not for me") if case.batch == 1 else None

    from conformance.spec import Unsupported

    assert judge(related("batch-split"), Whole()) == Unsupported("batches of one are not for me")


REFUSED: Mapping[str, str] = {
    "{relation: keys-permuted, source_length: 1}": "needs source_length of 2 or more",
    "{relation: batch-split, batch: 1}": "needs batch of 2 or more",
    "{relation: heads-permuted, num_heads: 1}": "needs num_heads of 2 or more",
    "{relation: keys-appended, mask: {causal: bottom-right}}": "needs causal top-left",
    "{relation: keys-appended, mask: {key_padding: {first: 1}}}": "needs key_padding on the right",
    "{relation: scores-shifted, bias: false}": "changes the key bias",
    "{relation: scores-shifted, bias_kv: true}": "does not hold with bias_kv",
    "{relation: conservation, sharing: key-value}": "needs inputs of their own",
    "{relation: conservation, check: [weights]}": "compares outputs and gradients",
    "{relation: keys-permuted, calls: repeated}": "needs calls once",
    "{relation: conservation, num_heads: 1, given: {query: [[[1]]]}, expected: {attn_output: [[[1]]]}}": "no outputs",
    "{relation: conservation, data: {poison: 100.0}, mask: {causal: top-left}}": "poison would be in all",
    "{relation: keys-permuted, expect: observe}": "expect agree",
    "{relation: keys-permuted, mask: {key_padding: {lengths: [7, 0]}}}": "leaves every row a key",
    "{relation: key-permuted}": "keys-permuted",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_relation_that_cannot_be_asked_is_refused_where_it_stands(tmp_path: Path, text: str) -> None:
    (fault,) = faults_of(tmp_path, f"{HEAD}include:\n  - {text[:1]}name: one, {text[1:]}\n")
    assert fault.line == 4
    assert REFUSED[text] in str(fault)


def test_a_relation_is_asked_for_by_name(tmp_path: Path) -> None:
    assert case_of(tmp_path, "include: [{relation: batch-split}]").name == "batch-split"


BODY = dedent("""\
    defaults: {batch: 3, target_length: 4}
    matrix:
      relation: [keys-permuted, scores-shifted]
""")


def test_a_broken_relation_reaches_the_report_and_the_ledger(project: Project) -> None:
    project.cases("kept", "fake/right", "fake/order", body=BODY)
    result = project.pytest_here()
    assert result.ret == 1
    statuses = project.statuses()
    assert statuses["keys-permuted[fake/right]"] == statuses["scores-shifted[fake/order]"] == "agrees"
    assert statuses["keys-permuted[fake/order]"] == "new"
    result.stdout.fnmatch_lines(["*relation: attn_output does not keep the relation keys-permuted*"])
    shows = {"output": ["relation"]}
    project.ledger({"id": "order", "subjects": ["fake/order"], "when": {"relation": "keys-permuted"}, "shows": shows})
    assert project.pytest_here().ret == 0
    assert project.statuses()["keys-permuted[fake/order]"] == "known"
    assert row_of_case(project, "keys-permuted").entries == ("order",)


def test_what_a_subject_answers_is_no_concern_of_a_relation(project: Project) -> None:
    """An entry about wrong outputs covers the case without the relation alone."""
    project.cases("own", "fake/off", body="include: [{name: plain}, {name: kept, relation: scores-shifted}]")
    project.ledger({})
    assert project.pytest_here().ret == 0
    assert project.statuses() == {"plain[fake/off]": "known", "kept[fake/off]": "agrees"}


def row_of_case(project: Project, name: str) -> Any:
    (row,) = [row for row in project.run().rows if row.node.endswith(f"::{name}[fake/order]")]
    return row


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_what_is_conserved_has_a_sharp_bound_however_uncertain_the_scores(dtype: Any) -> None:
    """Of scores in the hundreds, a low format knows no digit of a weight, and still that the weights sum to 1."""
    case = related("conservation", dtype=dtype, data=Data("normal", 16.0), check=("output",))
    (problem,) = relation_of(case).left.problems
    whole, mixed = (Answer.of(one).under(ENVELOPE) for one in (problem, problem_of(case)))
    unit = FORMATS[dtype].unit_roundoff
    scale = np.abs(problem.value).max() * np.abs(problem.parameters.output_weight).sum(axis=0).max()
    assert (whole.bounds["attn_output"] <= 40 * unit * scale).all()
    assert mixed.bounds["attn_output"].max() > 10 * whole.bounds["attn_output"].max()
