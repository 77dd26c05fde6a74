"""What a case expects: written numbers, exact outputs, single samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.exactness import exact_outputs, exact_product, exact_sum, unit_exponent
from conformance.expectation import Answer, expected, sample_of, written_values
from conformance.policy import ENVELOPE, Policy
from conformance.reference import reference_of
from conformance.run import judge
from conformance.spec import Additive, Case, Data, Explicit, Literals, Mask, Padding
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored
from tests.casefiles import case_of
from tests.drawn_problems import case_like
from tests.planted.attention import Attention

WRITTEN = """
    include:
      - name: two-keys
        why: Scores ln 3 and 0 give the weights 3/4 and 1/4.
        {dtype}
        bias: false
        num_heads: 1
        given:
          query: [[[1]]]
          key: [[[1.0986122886681098], [0]]]
          value: [[[4], [8]]]
          query_weight: [[1]]
          key_weight: [[1]]
          value_weight: [[1]]
          output_weight: [[1]]
        check: [output, weights]
        expected:
          attn_weights: [[[[0.75, {weight}]]]]
          attn_output: [[[{output}]]]
"""


def written_case(folder: Path, dtype: str = "float64", weight: str = "0.25", output: str = "5") -> Case:
    return case_of(folder, WRITTEN.format(dtype=f"dtype: {dtype}", weight=weight, output=output))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_written_numbers_are_what_is_expected(tmp_path: Path, dtype: str) -> None:
    case = written_case(tmp_path, dtype)
    _, expectation = expected(case, ENVELOPE)
    assert expectation.values["attn_weights"].tolist() == [[[[0.75, 0.25]]]]
    assert expectation.values["attn_output"].tolist() == [[[5.0]]]
    assert isinstance(judge(case, Attention()), Agrees)


def test_the_bound_spans_the_distance_of_the_written_number(tmp_path: Path) -> None:
    """ln 3 is rounded to bfloat16, so 3/4 is not quite the answer; a correct subject must pass all the same."""
    case = written_case(tmp_path, "bfloat16")
    answer = Answer.of(problem_of(case))
    reference, bare = answer.reference.outputs(), replace(case, literals=Literals(given=case.literals.given))
    distance = np.abs(reference["attn_output"] - 5)
    assert distance.max() > 0
    narrow = Answer.of(problem_of(bare)).under(ENVELOPE).bounds["attn_output"]
    np.testing.assert_allclose(answer.under(ENVELOPE).bounds["attn_output"], narrow + distance)


def test_a_written_number_that_the_reference_contradicts_is_an_error(tmp_path: Path) -> None:
    verdict = judge(written_case(tmp_path, output="5.001"), Attention())
    assert isinstance(verdict, Errored) and verdict.exception == "ValueError"
    for part in ("attn_output[0, 0, 0]", "5.001", "the reference computes 5.0", "the bound is"):
        assert part in verdict.message
    weights = judge(written_case(tmp_path, weight="0.2501"), Attention())
    assert isinstance(weights, Errored) and "attn_weights[0, 0, 0, 1] = 0.2501" in weights.message


def test_a_subject_is_judged_by_the_written_number(tmp_path: Path) -> None:
    class Shifted(Attention):
        def returned_weights(self, setting: Any, weights: Any) -> Any:
            return super().returned_weights(setting, weights) + np.float64(1e-12)

    verdict = judge(written_case(tmp_path), Shifted())
    assert isinstance(verdict, Diverges)
    worst = verdict.findings[0].worst
    assert worst is not None and worst.expected in (0.75, 0.25)


def test_written_numbers_of_an_exact_output_must_be_exact() -> None:
    computed, bound = np.array([1.0, 2.0]), np.full(2, 0.5)
    assert written_values("attn_output", (1.25, 2.0), computed, bound, exact=False).tolist() == [1.25, 2]
    with pytest.raises(ValueError, match=r"attn_output\[0\] = 1.25, the reference computes 1.0; the bound is 0"):
        written_values("attn_output", (1.25, 2.0), computed, bound, exact=True)
    assert written_values("attn_output", (9.0, 2.0), computed, np.array([np.inf, 1]), exact=False).tolist() == [9, 2]


# Exact outputs -------------------------------------------------------------------------------------------------------


def exact_of(policy: Policy = ENVELOPE, **changes: Any) -> frozenset[str]:
    problem = problem_of(case_like("exact", **changes))
    return exact_outputs(problem.case, reference_of(problem), policy)


FORWARD = {"attn_output", "attn_weights", "output_weight.gradient", "output_bias.gradient"}
VALUE = {"value.gradient", "value_weight.gradient", "value_bias.gradient"}
EACH_DTYPE = pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])


@EACH_DTYPE
def test_one_hot_cases_are_exact_up_to_the_gradient_of_values(dtype: str) -> None:
    assert exact_of(dtype=dtype, data=Data("one-hot")) == FORWARD | VALUE
    grouped = exact_of(dtype=dtype, data=Data("one-hot"), num_kv_heads=1, sharing="separate")
    assert grouped == FORWARD | VALUE


@EACH_DTYPE
def test_integers_are_exact_where_each_query_sees_a_power_of_two_of_keys(dtype: str) -> None:
    assert exact_of(dtype=dtype, data=Data("integers")) == FORWARD
    assert exact_of(dtype=dtype, data=Data("integers"), mask=Mask(key_padding=Padding((3, 4)))) == frozenset()
    assert exact_of(dtype=dtype, data=Data("integers"), check=("output",)) == {"attn_output", "attn_weights"}


def test_a_bias_on_the_scores_of_integers_tells_keys_apart() -> None:
    assert exact_of(data=Data("integers"), mask=Mask(additive=Additive("TS", 1.0))) == frozenset()
    zeros = Mask(additive=Additive("TS", values=tuple([0.0] * 12)))
    assert exact_of(data=Data("integers"), mask=zeros) == FORWARD


def test_a_query_that_sees_one_key_gives_it_all() -> None:
    """Whatever the scores: each query's own key alone is open."""
    mask = Mask(explicit=Explicit("block-diagonal", "TS", block=1))
    assert exact_of(data=Data("integers"), mask=mask) == FORWARD | VALUE


def test_no_other_regime_and_no_mixed_policy_is_exact() -> None:
    assert exact_of() == frozenset()
    assert exact_of(data=Data("one-hot"), dtype="mixed_float16") == frozenset()


def test_a_narrow_accumulator_must_hold_every_partial_sum() -> None:
    narrow = Policy(products="storage", batched_products="storage", weight_gradients="storage")
    sizes: dict[str, Any] = {"batch": 2, "target_length": 40, "source_length": 4, "data": Data("integers")}
    assert "output_weight.gradient" in exact_of(dtype="bfloat16", **sizes)
    assert "output_weight.gradient" not in exact_of(narrow, dtype="bfloat16", **sizes)


def literal(given: dict[str, Any], **changes: Any) -> frozenset[str]:
    weights = {f"{name}_weight": ((1.0,),) for name in ("query", "key", "value", "output")}
    literals = Literals(given=tuple((weights | given).items()))
    sizes = {"batch": 1, "target_length": 1, "source_length": 2, "embed_dim": 1, "num_heads": 1, "head_dim": 1}
    return exact_of(data=Data("literal"), literals=literals, bias=False, check=("output",), **(sizes | changes))


def test_written_cases_are_exact_only_where_no_order_can_round() -> None:
    numbers = {"query": [[[2.0]]], "key": [[[3.0], [3.0]]], "value": [[[4.0], [8.0]]]}
    assert literal(numbers) == {"attn_output", "attn_weights"}
    assert literal(numbers | {"value": [[[0.1], [0.2]]]}, dtype="float64") == frozenset()  # 0.1 + 0.2 rounds
    assert literal(numbers | {"key": [[[3.0], [2.0]]]}) == frozenset()  # weights that are no powers of two
    assert literal(numbers | {"query": [[[0.1]]]}, scale=0.3) == frozenset()  # scores that may be told apart
    assert literal(numbers | {"key": [[[900.0], [100.0]]]}) == {"attn_output", "attn_weights"}
    third = {"query": [[[3.0]]], "query_weight": ((1 / 3,),)}
    assert literal({**numbers, **third}, dtype="float64") == frozenset()  # the projected query rounds
    assert literal(numbers | {"key": [[[900.0], [700.0]]]}) == frozenset()  # exp(−400) is not 0 in float64


def test_units_and_exact_sums() -> None:
    assert unit_exponent(np.array([0.75, 6.0])) == -2
    assert unit_exponent(np.zeros(3)) is not None and unit_exponent(np.array([np.longdouble(1) / 3])) is None
    half = np.array([[0.5, 0.25]])
    assert exact_product(half, np.array([[4.0], [8.0]]), 11)
    assert not exact_product(half, np.array([[4096.0], [1.0]]), 11)
    assert not exact_product(half, np.array([[4.0], [8.0]]), 11, np.array([4096.0]))
    assert exact_product(half, np.array([[4.0], [8.0]]), 24, np.array([4096.0]))
    assert not exact_product(half, np.array([[np.longdouble(1) / 3], [1]]), 24)
    assert not exact_product(half, np.array([[4.0], [8.0]]), 24, np.array([np.longdouble(1) / 3]))
    assert exact_sum(np.ones((5, 2)), 8) and not exact_sum(np.ones((300, 2)) * [1, 1.5], 8)


# Single samples ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["separate", "self", "key-value"])
def test_a_sample_of_a_problem_answers_as_it_does_in_the_batch(sharing: Any) -> None:
    mask = Mask(
        key_padding=Padding((2, 3)),
        query_padding=Padding((3, 1)),
        causal="top-left",
        explicit=Explicit("random", "B1TS"),
        additive=Additive("TS", 1.0),
    )
    problem = problem_of(case_like("sample", sharing=sharing, source_length=3, mask=mask))
    whole = reference_of(problem).outputs()
    for index in range(2):
        alone = sample_of(problem, index)
        assert alone.case.batch == 1 and alone.mask.shape == (1, 2, 3, 3)
        assert (alone.query is alone.key) == (sharing == "self")
        assert (alone.key is alone.value) == (sharing != "separate")
        part = reference_of(alone).outputs()
        for name in ("attn_output", "attn_weights", "query.gradient"):
            np.testing.assert_allclose(part[name][0], whole[name][index], rtol=1e-12, atol=1e-15)


def test_the_uniform_and_the_unmasked_answer_of_blocked_rows() -> None:
    problem = problem_of(case_like("kinds", mask=Mask(explicit=Explicit("rows", "TS", indices=(1,)))))
    expectation = Answer.of(problem).under(ENVELOPE)
    assert expectation.fully_blocked[:, :, 1].all() and not expectation.fully_blocked[:, :, 0].any()
    opened = reference_of(problem_of(case_like("kinds"))).outputs()["attn_output"]
    np.testing.assert_allclose(expectation.unmasked_output, opened)
    value = reference_of(problem).forward
    mean = value.value.mean(axis=2)[:, :, None].swapaxes(1, 2).reshape(2, 1, 4) @ value.parameters["output_weight"]
    bias = value.parameters["output_bias"]
    np.testing.assert_allclose(expectation.uniform_output[:, 1], mean[:, 0] + bias)
