"""Each rule of the running error analysis, by itself, against the worst that arithmetic can do."""

from __future__ import annotations

from itertools import product as combinations

import ml_dtypes
import numpy as np
import pytest

from conformance.bounds.running_error import (
    NOT_JUDGED,
    OVERFLOW,
    Pair,
    Rules,
    absolute,
    capped,
    exact,
    factors,
    half_ulp,
)
from conformance.bounds.softmax_error import (
    exponent_error,
    normalised,
    of_others,
    rebuilt_weights,
    softmax_hull,
    widest_exponent,
)
from conformance.policy import FORMATS
from conformance.spec import Array

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SINGLE, HALF = FORMATS["float32"], FORMATS["float16"]
rules = Rules(SINGLE, 2.0**-53)


@pytest.mark.parametrize("name", DTYPES)
def test_half_an_ulp_is_the_largest_error_of_rounding_and_is_reached(name: str) -> None:
    storage, random = FORMATS[name], np.random.default_rng(1)
    numbers = random.standard_normal(20_000) * 2.0 ** random.integers(storage.smallest_exponent - 3, 12, 20_000)
    error = np.abs(numbers.astype(DTYPES[name]).astype(np.float64) - numbers)
    ratio = error / half_ulp(np.abs(numbers), storage)
    assert 0.99 < ratio.max() <= 1


def test_half_an_ulp_at_the_edge_of_a_binade_is_that_of_the_binade_above() -> None:
    assert half_ulp(np.array([2.0]), SINGLE)[0] == 2.0**-23
    assert half_ulp(np.array([2 * (1 - 2.0**-53)]), SINGLE)[0] == 2.0**-23
    assert half_ulp(np.array([1.9]), SINGLE)[0] == 2.0**-24


@pytest.mark.parametrize("name", DTYPES)
def test_formats_are_those_of_the_arrays(name: str) -> None:
    storage, dtype = FORMATS[name], DTYPES[name]
    one, zero, top = (np.array(number).astype(dtype) for number in (1.0, 0.0, np.inf))
    assert storage.largest == float(np.nextafter(top, zero))
    assert storage.smallest_subnormal == float(np.nextafter(zero, one))
    assert storage.unit_roundoff == (float(np.nextafter(one, top)) - 1) / 2
    assert storage.smallest_normal == storage.smallest_subnormal / (2 * storage.unit_roundoff)
    assert storage.underflow == (storage.smallest_subnormal if name == "float16" else storage.smallest_normal)


def test_a_product_that_stagnates_nearly_reaches_its_bound_in_one_order() -> None:
    terms = np.full(1001, 0.99 * 2.0**-24, np.float32)
    terms[0] = 1
    total = np.float32(0)
    for term in terms:
        total = np.float32(total + term)
    exactly = terms.astype(np.float64).sum()
    pair = rules.product(exact(terms[None].astype(float)), exact(np.ones((1001, 1))), np.array([[exactly]]), SINGLE)
    ratio = abs(float(total) - exactly) / pair.error[0, 0]
    assert 0.95 < ratio <= 1
    summed = rules.summed(exact(terms.astype(float)), 0, np.array(exactly), SINGLE)
    assert 0.95 < abs(float(total) - exactly) / float(summed.error) <= 1


def test_a_product_inherits_errors_at_their_worst() -> None:
    left = Pair(np.array([[1.0, -2.0]]), np.array([[0.1, 0.2]]))
    right = Pair(np.array([[3.0], [4.0]]), np.full((2, 1), 0.5))
    pair = Rules(FORMATS["float64"], 0.0).product(left, right, np.array([[-5.0]]), FORMATS["float64"])
    moved = [
        (1 + a * 0.1) * (3 + b * 0.5) + (-2 + c * 0.2) * (4 + d * 0.5) for a, b, c, d in combinations((-1, 1), repeat=4)
    ]
    worst = max(abs(value + 5) for value in moved)
    assert worst <= pair.error[0, 0] <= 1.2 * worst


def test_only_terms_that_can_differ_from_zero_count() -> None:
    left = np.array([[1.0, 0.0, 0.0, 2.0]])
    pair = rules.product(exact(left), exact(np.array([[1.0], [5.0], [0.0], [0.0]])), np.ones((1, 1)), SINGLE)
    assert pair.error[0, 0] == pytest.approx(2.0**-24, rel=1e-6)
    nothing = rules.product(exact(left), exact(np.array([[0.0], [5.0], [1.0], [0.0]])), np.zeros((1, 1)), SINGLE)
    assert nothing.error[0, 0] == 0


def test_zero_stays_zero_through_every_rule() -> None:
    zero = exact(np.zeros((2, 2)))
    for pair in (
        rules.store(zero),
        rules.store(zero, 1e-6),
        rules.rounded(zero, SINGLE, 3),
        rules.scaled(zero, 2.0, 0.1),
        rules.summed(zero, 0, np.zeros(2), SINGLE),
        rules.given(zero.value),
    ):
        assert (pair.error == 0).all()


def test_a_constant_of_zero_gives_zero_and_a_tiny_one_does_not() -> None:
    pair = Pair(np.ones(3), np.full(3, 1e-300))
    assert (rules.scaled(pair, 0.0, 0.1).error == 0).all()
    assert (rules.scaled(pair, 1e-200, 0.0).error > 0).all()


def test_a_store_overflows_before_the_largest_number_is_passed() -> None:
    half = Rules(HALF, 0.0)
    errors = half.store(exact(np.array([1.0, 65_000.0, 65_519.0, 7e4]))).error
    assert (errors[:2] < 100).all() and (errors[2:] == OVERFLOW).all()
    held = half.store(exact(np.array([1.0, 65_000.0])), 8.0).error
    assert held[0] < 1e-3 and held[1] == OVERFLOW


def test_a_store_may_hold_the_value_times_a_factor() -> None:
    """0.001 · x rounded to float16, brought back: the steps are a thousand times as wide."""
    half, random = Rules(HALF, 0.0), np.random.default_rng(4)
    numbers = random.uniform(1e-3, 1e-2, 4000)
    back = (numbers * 1e-3).astype(np.float16).astype(np.float64) / 1e-3
    error = np.abs(back - numbers)
    assert (error <= half.store(exact(numbers), 1e-3).error).all()
    assert (error > half.store(exact(numbers)).error).any()


def test_float32_may_flush_and_float16_may_not() -> None:
    tiny = exact(np.array([1e-39, 1e-5]))
    assert rules.store(tiny).error[0] >= 1e-39
    assert rules.given(tiny.value).error.tolist() == [1e-39, 0]
    assert (Rules(HALF, 0.0).given(np.array([6e-8])).error == 0).all()


def test_an_accumulator_may_overflow_where_its_terms_cancel() -> None:
    terms = exact(np.array([[3e38, -3e38]]))
    assert rules.product(terms, exact(np.ones((2, 1))), np.zeros((1, 1)), SINGLE).error[0, 0] >= NOT_JUDGED
    assert rules.summed(Pair(terms.value[0], np.zeros(2)), 0, np.zeros(()), SINGLE).error >= NOT_JUDGED


def test_what_may_be_infinite_is_not_exactly_zero_times_zero() -> None:
    left, zero = Pair(np.array([[1.0], [1.0]]), np.array([[OVERFLOW], [0.0]])), exact(np.zeros((1, 1)))
    assert (rules.product(left, zero, np.zeros((2, 1)), SINGLE).error >= NOT_JUDGED).tolist() == [[True], [False]]
    right = left.transposed()
    assert (rules.product(zero, right, np.zeros((1, 2)), SINGLE).error >= NOT_JUDGED).tolist() == [[True, False]]
    assert (rules.scaled(left, 0.0, 0.0).error >= NOT_JUDGED).tolist() == [[True], [False]]


def test_operands_of_a_narrower_arithmetic_are_cast() -> None:
    double = Rules(FORMATS["float64"], 0.0)
    one = exact(np.full((1, 1), 1 / 3))
    error = double.product(one, one, one.value**2, SINGLE).error[0, 0]
    assert error >= abs(float(np.float32(1 / 3) * np.float32(1 / 3)) - 1 / 9) > 2.0**-53
    summed = double.summed(exact(np.full(1, 1 / 3)), 0, np.full((), 1 / 3), SINGLE)
    assert summed.error >= abs(np.float32(1 / 3) - 1 / 3)


def test_small_helpers() -> None:
    assert factors(2, HALF) == pytest.approx((1 - 2.0**-11) ** -2 - 1)
    assert capped(np.array([np.nan, 1e200, 1.0])).tolist() == [OVERFLOW, OVERFLOW, 1.0]
    assert absolute(np.array([-2.0], np.longdouble)).dtype == np.float64
    assert of_others(np.array([1.0, 2.0, 4.0])).tolist() == [6, 5, 3]
    assert of_others(np.zeros((2, 0))).shape == (2, 0) and of_others(np.array([3.0])).tolist() == [0]


def softmax_of(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = powers / powers.sum(axis=-1, keepdims=True)
    return weights


@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
@pytest.mark.parametrize("error", [1e-6, 0.3, 5.0])
def test_the_hull_contains_every_corner_and_is_reached(spread: float, error: float) -> None:
    random = np.random.default_rng(6)
    scores = random.standard_normal(6).astype(np.longdouble) * spread
    errors = random.random(6) * error
    weights = softmax_of(scores)
    hull = softmax_hull(weights, errors, 300.0)
    moves = np.array(list(combinations((-1, 1), repeat=6)))
    moved = np.abs(softmax_of(scores + moves * errors) - weights)
    assert (moved <= hull * (1 + 1e-9) + 1e-18).all()  # up to the rounding of the differences here
    np.testing.assert_allclose(moved.max(axis=0).astype(np.float64), hull, rtol=1e-8, atol=1e-18)


def test_the_hull_keeps_its_accuracy_where_one_weight_is_almost_everything() -> None:
    scores = np.array([0.0, -45.0, -60.0], np.longdouble)
    errors = np.full(3, 25.0)
    weights = softmax_of(scores)
    moved = np.abs(softmax_of(scores + np.array([-25.0, 25, 25])) - weights)
    hull = softmax_hull(weights, errors, 300.0)
    assert hull[0] == pytest.approx(float(moved[0]), rel=1e-6) and hull[0] > 0.9


def test_a_row_that_knows_nothing_has_the_trivial_bound() -> None:
    weights = np.array([0.25, 0.75])
    assert softmax_hull(weights, np.array([1e3, 0.0]), 300.0) == pytest.approx([0.75, 0.75])
    assert widest_exponent(SINGLE) == 300 and 15 < widest_exponent(FORMATS["float64"]) < 20


def test_sums_that_may_lose_half_of_themselves_leave_the_trivial_bound() -> None:
    bfloat16 = FORMATS["bfloat16"]
    own = np.array([0.5, 0.5])
    error = normalised(Rules(bfloat16, 0.0), own, np.zeros(2), np.array([400]), bfloat16, 0)
    assert (error >= 0.5).all() and (error < 0.6).all()


def test_weights_rebuilt_from_a_log_sum_feel_its_size_and_may_be_unknown() -> None:
    blocked, weights = np.zeros((1, 2), np.bool_), np.array([[0.5, 0.5]])

    def error(score: float, uncertain: float) -> Array:
        scores = Pair(np.full((1, 2), score), np.full((1, 2), uncertain))
        return rebuilt_weights(rules, weights, scores, blocked, SINGLE, 0.0)

    assert error(1e4, 0.0).max() > 100 * error(1.0, 0.0).max()
    assert (error(1.0, 400.0) == OVERFLOW).all()
    assert (rebuilt_weights(rules, weights, exact(np.zeros((1, 2))), ~blocked, SINGLE, 0.0) == 0).all()


def test_the_exponent_counts_the_distance_to_the_largest_score() -> None:
    scores = exact(np.array([[0.0, -80.0]]))
    error = exponent_error(rules, scores, np.zeros((1, 2), np.bool_), SINGLE, 0.0)
    assert error[0].tolist() == pytest.approx([0.0, 80 * 2.0**-24], rel=1e-6)
