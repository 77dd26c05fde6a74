"""The rules for standard deviations, against the errors of arithmetic that rounds."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.bounds.running_error import Pair, exact
from conformance.deviations.rules import LIMIT, DeviationRules, alike, sums
from conformance.policy import FORMATS
from conformance.spec import Array

FLOAT32 = FORMATS["float32"]
RULES = DeviationRules(FLOAT32, 2.0**-53)
WIDTH = 48


def in_random_order(terms: Array, random: np.random.Generator) -> Array:
    """Sums of float32 terms [n, ...] one after the other, each in an order of its own."""
    total = np.zeros(terms.shape[1:], np.float32)
    for term in random.permuted(terms, axis=0):
        total = total + term
    return total


def rms(error: Array, deviation: Array) -> float:
    return float(np.sqrt(np.mean(np.square(error / deviation))))


@pytest.mark.parametrize("terms", [4, 32, 256])
@pytest.mark.parametrize("sign", ["mixed", "positive"])
def test_an_inner_product_errs_as_its_deviation_says(terms: int, sign: str) -> None:
    random = np.random.default_rng(terms)
    left, right = (random.standard_normal(shape).astype(np.float32) for shape in ((WIDTH, terms), (terms, WIDTH)))
    if sign == "positive":
        left, right = np.abs(left), np.abs(right)
    products = left.T[:, :, None] * right[:, None, :]
    value = left.astype(np.float64) @ right.astype(np.float64)
    pair = RULES.product(exact(left), exact(right), value, FLOAT32)
    assert 0.5 < rms(in_random_order(products, random) - value, pair.error) < 1.5


@pytest.mark.parametrize("terms", [4, 32, 256])
def test_a_sum_errs_as_its_deviation_says(terms: int) -> None:
    random = np.random.default_rng(terms)
    numbers = random.uniform(-1, 2, (terms, 400)).astype(np.float32)
    value = numbers.astype(np.float64).sum(axis=0)
    pair = RULES.summed(exact(numbers), 0, value, FLOAT32)
    assert 0.5 < rms(in_random_order(numbers, random) - value, pair.error) < 1.5


@pytest.mark.parametrize("least", [0.1, 0.5, 0.9])
def test_terms_that_a_dominant_one_swallows_are_covered(least: float) -> None:
    random = np.random.default_rng(1)
    numbers = (random.uniform(least, 1, (1000, WIDTH)) * 2.0**-24).astype(np.float32)
    numbers[0] = 1
    value, ones = numbers.astype(np.float64).sum(axis=0), np.ones((1, 1000), np.float32)
    error = np.add.accumulate(numbers, axis=0)[-1] - value
    for pair in (
        RULES.summed(exact(numbers), 0, value, FLOAT32),
        RULES.product(exact(ones), exact(numbers), value[None], FLOAT32),
        RULES.product(exact(numbers.T), exact(ones.T), value[:, None], FLOAT32),
    ):
        assert rms(error, pair.error.ravel()) < LIMIT / 2
    plain = np.sqrt(RULES.variance(FLOAT32) * (1000 / 3 + 1000 / 6 + 1))
    assert rms(error, plain * value) > LIMIT


def test_what_operands_err_is_carried_along() -> None:
    random = np.random.default_rng(1)
    left, right = random.standard_normal((WIDTH, 32)), random.standard_normal((32, WIDTH))
    first, second = np.abs(left) * 1e-3, np.abs(right) * 2e-3
    pair = RULES.product(Pair(left, first), Pair(right, second), left @ right, FLOAT32)
    errors = [
        (left + random.standard_normal(left.shape) * first) @ (right + random.standard_normal(right.shape) * second)
        - left @ right
        for _ in range(60)
    ]
    assert 0.95 < rms(np.stack(errors), pair.error) < 1.05


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 1e30])
@pytest.mark.parametrize("holdings", [(), (0.5,)])
def test_storing_errs_as_its_deviation_says(magnitude: float, holdings: tuple[float, ...]) -> None:
    numbers = np.exp(np.random.default_rng(2).uniform(0, 4, 20_000)) * magnitude
    stored = RULES.store(exact(numbers), *holdings)
    assert 0.95 < rms(numbers.astype(np.float32) - numbers, stored.error) < 1.05


def test_what_may_be_flushed_has_all_of_it_as_its_deviation() -> None:
    small = exact(np.array([0.5, 1.5]) * FLOAT32.smallest_normal)
    assert (RULES.store(small).error >= FLOAT32.smallest_normal).all()


def test_further_roundings_add_variances() -> None:
    numbers = np.exp(np.random.default_rng(3).uniform(0, 4, 20_000)).astype(np.float32)
    value = numbers.astype(np.float64) * np.float32(1.1) * np.float32(0.7) * np.float32(1.3)
    rounded = numbers * np.float32(1.1) * np.float32(0.7) * np.float32(1.3)
    assert 0.9 < rms(rounded - value, RULES.rounded(exact(value), FLOAT32, 3).error) < 1.1


def test_a_factor_that_is_not_exact_is_off_for_all_alike() -> None:
    scaled = RULES.scaled(Pair(np.array([1.0, -2.0]), np.array([3.0, 0.0])), -2.0, 1.0)
    np.testing.assert_allclose(scaled.value, [-2, 4])
    np.testing.assert_allclose(scaled.error, [2 * np.hypot(3, 1), 4])


def test_equal_terms_add_amplitudes() -> None:
    terms = np.full((4096, 3), 0.1, np.float32)
    value = terms.astype(np.float64).sum(axis=0)
    error = np.abs(in_random_order(terms, np.random.default_rng(0)) - value)
    as_sum = RULES.summed(exact(terms), 0, value, FLOAT32).error
    as_product = RULES.product(exact(np.ones((1, 4096))), exact(terms), value[None], FLOAT32).error[0]
    for deviation in (as_sum, as_product):
        assert rms(error, deviation) < 3
        assert rms(error, deviation / np.sqrt(4096)) > 2 * LIMIT  # what independent roundings would have had


def test_terms_are_alike_where_they_are_one_number_or_zero() -> None:
    rows = np.array([[2.0, 2, 2], [2, 0, 2], [2, 2, 2.1], [2, -2, 2], [0, 0, 2], [0, 0, 0]])
    assert alike(*sums(rows, -1)[:3]).ravel().tolist() == [True, True, False, False, False, False]
    assert alike(*sums(rows.T, -2)[:3]).ravel().tolist() == [True, True, False, False, False, False]


def test_zero_stays_exact() -> None:
    nothing, something = exact(np.zeros((2, 3))), exact(np.ones((3, 2)))
    assert (RULES.product(nothing, something, np.zeros((2, 2)), FLOAT32).error == 0).all()
    assert (RULES.store(nothing).error == 0).all() and (RULES.store(nothing, 2.0).error == 0).all()
    assert (RULES.summed(nothing, 0, np.zeros(3), FLOAT32).error == 0).all()
    assert (RULES.rounded(nothing, FLOAT32, 2).error == 0).all()


def test_an_addend_takes_part_in_the_roundings() -> None:
    random = np.random.default_rng(4)
    left, right = random.standard_normal((WIDTH, 8)), random.standard_normal((8, WIDTH))
    value, addend = left @ right, Pair(np.full(WIDTH, 1e3), np.full(WIDTH, 1e-3))
    alone = RULES.product(exact(left), exact(right), value, FLOAT32).error
    together = RULES.product(exact(left), exact(right), value, FLOAT32, addend=addend).error
    assert (together > np.hypot(alone, 1e-3)).all()
    assert together.max() < 1e-3 + 10 * FLOAT32.unit_roundoff * 1e3
