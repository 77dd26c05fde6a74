"""The statistics of one output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from conformance.expectation import Answer, Expectation
from conformance.measure import measures_of
from conformance.policy import ENVELOPE
from conformance.spec import Array
from conformance.tensors import problem_of
from tests.drawn_problems import case_like


def expectation_of(values: Any, bounds: Any, dtype: str = "float32", deviations: Any = np.inf) -> Expectation:
    """An expectation of nothing but an output with these numbers; without deviations it has no statistics."""
    expectation = Answer.of(problem_of(case_like("measure", dtype=dtype))).under(ENVELOPE)
    made = replace(expectation, values={"attn_output": np.array(values)}, bounds={"attn_output": np.array(bounds)})
    vars(made)["deviations"] = {"attn_output": np.broadcast_to(deviations, np.shape(values))}
    return made


def measured(values: Any, bounds: Any, actual: Array, dtype: str = "float32") -> Any:
    return measures_of(expectation_of(values, bounds, dtype), {"attn_output": actual})[0]


def test_the_largest_ratio_has_its_place_and_the_largest_error_is_another() -> None:
    measure = measured([1.0, 2.0, 4.0], [0.1, 1.0, np.inf], np.array([1.05, 2.25, 9.0], np.float32))
    assert measure.elements == 3 and measure.not_judged == 1
    assert measure.max_ratio == pytest.approx(0.5, rel=1e-5) and measure.max_ratio_index == (0,)
    assert measure.max_abs_error == pytest.approx(0.25)
    assert measure.p99_ratio == measure.max_ratio


def test_a_percentile_leaves_the_worst_element_out() -> None:
    actual = np.zeros(1000, np.float32)
    actual[7] = 0.5
    measure = measured(np.zeros(1000), np.ones(1000), actual)
    assert (measure.max_ratio, measure.max_ratio_index, measure.p99_ratio) == (0.5, (7,), 0.0)


def test_bits_are_compared_in_the_dtype_of_the_output() -> None:
    third = 1 / 3
    assert measured([third, third], [1.0, 1.0], np.array([third, third + 1e-7], np.float32)).bit_equal == 1
    rough = np.array([third, third], ml_dtypes.bfloat16)
    assert measured([third, 0.5], [1.0, 1.0], rough, "bfloat16").bit_equal == 1


@pytest.mark.parametrize(
    ("expected", "error", "ulps"),
    [(1.0, 2.0**-23, 1), (1.5, 2.0**-22, 2), (4.0, 2.0**-21, 1), (2.0**-130, 2.0**-149, 1), (0.0, 2.0**-149, 1)],
)
def test_units_in_the_last_place_are_those_of_the_expected_number(expected: float, error: float, ulps: float) -> None:
    measure = measured([expected], [np.finfo(np.float64).max], np.array([expected + error], np.float32))
    assert measure.max_ulp == ulps


def test_more_units_than_float64_can_count_are_infinite() -> None:
    assert measured([0.0], [2.0], np.ones(1), "float64").max_ulp == np.inf


def test_an_error_where_the_bound_is_zero_has_an_infinite_ratio_and_none_has_zero() -> None:
    assert measured([0.0, 0.0], [0.0, 0.0], np.array([0.0, 1e-30], np.float32)).max_ratio == np.inf
    assert measured([0.0], [0.0], np.zeros(1, np.float32)).max_ratio == 0


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_infinitely_wrong_where_it_is_judged(number: float) -> None:
    measure = measured([1.0, 1.0], [1.0, 1.0], np.array([1.0, number], np.float32))
    assert (measure.max_ratio, measure.max_abs_error, measure.assert_close) == (np.inf, np.inf, False)
    assert measured([1.0, 1.0], [1.0, np.inf], np.array([1.0, number], np.float32)).max_ratio == 0


def test_nothing_at_all_is_measured_as_nothing() -> None:
    measure = measured(np.zeros((2, 0, 4)), np.zeros((2, 0, 4)), np.zeros((2, 0, 4), np.float32))
    assert (measure.elements, measure.max_ratio, measure.max_ratio_index, measure.p99_ratio) == (0, 0.0, (), 0.0)
    assert measure.assert_close
    unjudged = measured([1.0], [np.inf], np.array([5.0], np.float32))
    assert (unjudged.p99_ratio, unjudged.max_abs_error, unjudged.max_ulp) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("relative", "close"), [(1e-6, True), (2e-6, False)])
def test_what_default_tolerances_would_have_said(relative: float, close: bool) -> None:
    measure = measured([100.0], [1e-9], np.array([100 * (1 + relative)], np.float32))
    assert measure.assert_close is close


def test_the_root_mean_square_is_over_the_elements_with_bound_and_deviation() -> None:
    actual = np.array([3.0, 4.0, 9.0, 9.0, 9.0], np.float32)
    bounds, deviations = [100.0, 100.0, np.inf, 100.0, 100.0], [1.0, 0.5, 1.0, np.inf, 0.0]
    expectation = expectation_of(np.zeros(5), bounds, deviations=deviations)
    size = measures_of(expectation, {"attn_output": actual})[0].rms
    assert size == pytest.approx(np.sqrt((9 + 64) / 2))
    assert measured(np.zeros(5), bounds, actual).rms is None
    actual[0] = np.nan
    assert measures_of(expectation, {"attn_output": actual})[0].rms == np.inf
