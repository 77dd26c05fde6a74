"""What a comparison finds, under which kind, and where it says it is worst."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.compare import compare, judged_outputs, row_sums, worst_element
from conformance.expectation import Answer, Expectation
from conformance.policy import ENVELOPE, Policy
from conformance.problem import Outputs
from conformance.spec import Array, Case, Data, Explicit, Mask, Padding
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored, Finding
from tests.drawn_problems import case_like

ROW = Mask(explicit=Explicit("rows", "TS", indices=(1,)))


def expectation_of(**changes: Any) -> Expectation:
    return Answer.of(problem_of(case_like("compare", **changes))).under(ENVELOPE)


def right(expectation: Expectation, *names: str) -> dict[str, Array | None]:
    """The expected outputs in the storage format, which a correct subject might return."""
    dtype = np.float32 if expectation.case.dtype == "float32" else np.float64
    return {name: expectation.values[name].astype(dtype) for name in names or expectation.values}


def found(expectation: Expectation, actual: dict[str, Array | None]) -> tuple[Finding, ...]:
    verdict = compare(expectation, actual, ENVELOPE)
    assert isinstance(verdict, Diverges)
    return verdict.findings


def the_only(expectation: Expectation, name: str, array: Array) -> Finding:
    (finding,) = found(expectation, {name: array})
    assert finding.output == name
    return finding


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_reference_itself_agrees_and_is_measured(dtype: str) -> None:
    expectation = expectation_of(dtype=dtype, mask=ROW)
    verdict = compare(expectation, right(expectation), ENVELOPE)
    assert isinstance(verdict, Agrees)
    assert [measure.output for measure in verdict.measures] == list(expectation.values)


def test_an_output_that_was_promised_and_not_given_is_missing() -> None:
    expectation = expectation_of()
    (finding,) = found(expectation, right(expectation) | {"query.gradient": None})
    assert (finding.kind, finding.output) == ("missing", "query.gradient")


def test_a_wrong_shape_is_found_and_its_numbers_are_not_looked_at() -> None:
    expectation = expectation_of()
    array = np.full((2, 4, 3), np.nan, np.float32)
    finding = the_only(expectation, "attn_output", array)
    assert finding.kind == "shape" and "[2, 4, 3]" in finding.message and "[2, 3, 4]" in finding.message


def test_a_wrong_dtype_is_found_beside_wrong_numbers() -> None:
    expectation = expectation_of()
    array = expectation.values["attn_output"].astype(np.float64)
    assert the_only(expectation, "attn_output", array).kind == "dtype"
    kinds = [finding.kind for finding in found(expectation, {"attn_output": array + 1})]
    assert kinds == ["dtype", "value"]


def test_gradients_of_a_mixed_policy_come_back_in_the_storage_dtype() -> None:
    expectation = expectation_of(dtype="mixed_float16")
    gradient = expectation.values["query.gradient"]
    assert isinstance(compare(expectation, {"query.gradient": gradient.astype(np.float32)}, ENVELOPE), Agrees)
    assert the_only(expectation, "query.gradient", gradient.astype(np.float16)).kind == "dtype"
    assert the_only(expectation, "attn_output", expectation.values["attn_output"].astype(np.float32)).kind == "dtype"


def test_a_value_outside_the_bound_is_found_at_its_place() -> None:
    expectation = expectation_of()
    array = expectation.values["attn_output"].astype(np.float32)
    array[1, 2, 3] += 1
    finding = the_only(expectation, "attn_output", array)
    assert (finding.kind, finding.count, finding.total) == ("value", 1, array.size)
    assert finding.worst is not None and finding.worst.index == (1, 2, 3)
    assert finding.worst.error == pytest.approx(1, rel=1e-5) and finding.worst.ratio > 1000


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_equals_anything(number: float) -> None:
    expectation = expectation_of()
    array = expectation.values["attn_output"].astype(np.float32)
    array[0, 0, 0] = number
    finding = the_only(expectation, "attn_output", array)
    assert finding.kind == "nonfinite" and finding.worst is not None and finding.worst.ratio == np.inf


def test_nan_is_wrong_even_where_nan_is_expected() -> None:
    expectation = expectation_of()
    values = expectation.values | {"attn_output": np.full((2, 3, 4), np.nan)}
    nothing = replace(expectation, values=values)
    assert the_only(nothing, "attn_output", np.full((2, 3, 4), np.nan, np.float32)).kind == "nonfinite"


def test_nan_where_the_bound_is_infinite_is_not_judged() -> None:
    expectation = expectation_of()
    bounds = expectation.bounds | {"attn_output": np.full((2, 3, 4), np.inf)}
    nothing: dict[str, Array | None] = {"attn_output": np.full((2, 3, 4), np.nan, np.float32)}
    verdict = compare(replace(expectation, bounds=bounds), nothing, ENVELOPE)
    assert isinstance(verdict, Agrees) and verdict.measures[0].not_judged == 24


def behaviour(expectation: Expectation, name: str) -> Array:
    values = expectation.values["attn_output"]
    return {
        "nan-blocked-row": np.full(values.shape, np.nan),
        "uniform-blocked-row": expectation.uniform_output,
        "unmasked-blocked-row": expectation.unmasked_output,
        "blocked-row": values + 3,
    }[name]


@pytest.mark.parametrize("kind", ["nan-blocked-row", "uniform-blocked-row", "unmasked-blocked-row", "blocked-row"])
def test_each_behaviour_of_a_fully_blocked_row_has_its_kind(kind: str) -> None:
    expectation = expectation_of(mask=ROW)
    array = expectation.values["attn_output"].astype(np.float32)
    array[:, 1] = behaviour(expectation, kind)[:, 1]
    finding = the_only(expectation, "attn_output", array)
    assert finding.kind == kind and finding.count == 8
    assert finding.worst is not None and finding.worst.index[1] == 1


@pytest.mark.parametrize(
    ("number", "kind"), [(np.nan, "nan-blocked-row"), (0.25, "uniform-blocked-row"), (0.5, "blocked-row")]
)
def test_weights_of_a_fully_blocked_row_have_their_kinds(number: float, kind: str) -> None:
    expectation = expectation_of(mask=ROW)
    array = expectation.values["attn_weights"].astype(np.float32)
    array[:, :, 1] = number
    assert the_only(expectation, "attn_weights", array).kind == kind


def test_a_blocked_row_and_another_fault_are_two_findings() -> None:
    expectation = expectation_of(mask=ROW)
    array = expectation.values["attn_output"].astype(np.float32)
    array[:, 1], array[0, 0, 0] = np.nan, 9
    assert [finding.kind for finding in found(expectation, {"attn_output": array})] == ["nan-blocked-row", "value"]


def test_a_weight_at_a_blocked_key_must_be_exactly_zero() -> None:
    expectation = expectation_of(mask=Mask(key_padding=Padding((3, 2))))
    array = expectation.values["attn_weights"].astype(np.float32)
    array[0, 1, 2, 3] = 1e-30
    finding = the_only(expectation, "attn_weights", array)
    assert finding.kind == "blocked-weight" and finding.worst is not None
    assert finding.worst.index == (0, 1, 2, 3) and finding.worst.ratio == np.inf


def test_a_gradient_that_nothing_contributes_to_must_be_exactly_zero() -> None:
    expectation = expectation_of(mask=Mask(key_padding=Padding((3, 4))))
    array = expectation.values["key.gradient"].astype(np.float32)
    array[0, 3, 0] = 1e-30
    finding = the_only(expectation, "key.gradient", array)
    assert finding.kind == "blocked-weight" and "contributes" in finding.message


def test_rows_that_do_not_sum_to_one_are_found_inside_the_bound() -> None:
    """Large scores leave each weight uncertain, but not the sum of a row."""
    expectation = expectation_of(data=Data("normal", 6.0), source_length=6)
    bounds, weights = expectation.bounds["attn_weights"], expectation.values["attn_weights"]
    array = (weights + 0.9 * bounds).astype(np.float32)
    finding = the_only(expectation, "attn_weights", array)
    assert finding.kind == "row-sum" and finding.worst is not None and len(finding.worst.index) == 3
    assert finding.worst.expected == pytest.approx(1)


def test_rows_that_are_blocked_or_not_judged_have_no_bound_on_their_sum() -> None:
    expectation = expectation_of(mask=ROW)
    bounds = expectation.bounds["attn_weights"].copy()
    bounds[0, 0, 0, 0] = np.inf
    expected, bound = row_sums(replace(expectation, bounds=expectation.bounds | {"attn_weights": bounds}), ENVELOPE)
    assert np.isinf(bound[:, :, 1]).all() and np.isinf(bound[0, 0, 0]) and np.isfinite(bound[1, :, 0]).all()
    assert expected[1, 1, 0] == pytest.approx(1)
    wide = row_sums(expectation, Policy(softmax="storage"))[1]
    assert (wide == row_sums(expectation, ENVELOPE)[1]).all()  # float32 is as wide as its storage


def test_an_exact_output_must_be_bit_equal() -> None:
    expectation = expectation_of(data=Data("one-hot"), num_heads=2, head_dim=2, source_length=4)
    assert "attn_output" in expectation.exact
    array = expectation.values["attn_output"].astype(np.float32)
    assert isinstance(compare(expectation, {"attn_output": array}, ENVELOPE), Agrees)
    index = tuple(np.argwhere(array != 0)[0])
    array[index] = np.nextafter(array[index], np.float32(np.inf))
    finding = the_only(expectation, "attn_output", array)
    assert finding.kind == "inexact" and finding.worst is not None and finding.worst.index == index


def test_an_exact_output_in_a_blocked_row_keeps_the_kind_of_the_row() -> None:
    expectation = expectation_of(data=Data("one-hot"), mask=ROW)
    array = expectation.values["attn_weights"].astype(np.float32)
    array[0, 0, 1] = 0.25
    assert the_only(expectation, "attn_weights", array).kind == "uniform-blocked-row"


def test_the_worst_element_is_the_one_with_the_largest_ratio() -> None:
    expected, bound = np.zeros(4), np.array([1.0, 0.1, 1.0, 0.0])
    everywhere = np.ones(4, np.bool_)
    assert worst_element(expected, np.array([5.0, 1.0, 2.0, 0.0]), bound, everywhere).index == (1,)
    assert worst_element(expected, np.array([5.0, 1.0, np.nan, 0.0]), bound, everywhere).index == (2,)
    assert worst_element(expected, np.array([5.0, 1.0, 2.0, 1e-9]), bound, everywhere).index == (3,)
    assert worst_element(expected, np.array([5.0, 1.0, 2.0, 1e-9]), bound, np.array([1, 0, 0, 0]) > 0).index == (0,)
    two = worst_element(expected[:2], np.array([1e-9, 2e-9]), np.zeros(2), everywhere[:2])
    assert two.index == (1,) and two.ratio == np.inf  # both infinite: the larger error


def test_what_is_judged_is_what_the_case_checks_and_the_subject_gives() -> None:
    everything = ("output", "weights", "gradients")
    outputs = Outputs(np.zeros((2, 3, 4)), np.zeros((2, 2, 3, 4)), {"query": np.zeros((2, 3, 4))})
    names = list(judged_outputs(everything, outputs, gives_weights=True, gradients=("query", "key")))
    assert names == ["attn_output", "attn_weights", "query.gradient", "key.gradient"]
    assert judged_outputs(everything, outputs, gives_weights=False, gradients=("key",))["key.gradient"] is None
    assert list(judged_outputs(("gradients",), outputs, gives_weights=True, gradients=())) == []


@pytest.mark.parametrize("verdict", [Agrees(), Diverges(()), Errored("E", "m", "t")])
def test_a_verdict_has_no_truth_value(verdict: Agrees | Diverges | Errored) -> None:
    with pytest.raises(TypeError, match="match on the type"):
        bool(verdict)


def test_a_case_is_compared_with_empty_outputs_too() -> None:
    case: Case = case_like("compare", target_length=0)
    expectation = Answer.of(problem_of(case)).under(ENVELOPE)
    assert isinstance(compare(expectation, right(expectation), ENVELOPE), Agrees)


def test_what_is_not_finite_is_said_to_be_so_where_every_step_is_exact_too() -> None:
    """Even where the bound overflows: exact elements are judged by equality."""
    expectation = expectation_of()
    name = "attn_output"
    exact = replace(
        expectation,
        exact=frozenset({name}),
        bounds=expectation.bounds | {name: np.full(expectation.bounds[name].shape, np.inf)},
    )
    actual = expectation.values[name].astype(np.float32)
    exact = replace(exact, values=exact.values | {name: actual.astype(np.float64)})
    spoilt = actual.copy()
    spoilt[0, 0, 0], spoilt[0, 0, 1] = np.nan, spoilt[0, 0, 1] + 1
    verdict = compare(exact, {name: spoilt}, ENVELOPE)
    assert isinstance(verdict, Diverges)
    assert {(one.kind, one.count) for one in verdict.findings} == {("nonfinite", 1), ("inexact", 1)}
