"""The split product is as exact as extended precision, whatever the grading of the data."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from conformance import extended
from conformance.extended import DOUBLE, EXTENDED, product, roundoff
from conformance.spec import Array

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

DATA: dict[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "coherent": lambda random, shape: 1 + random.random(shape) * 1e-3,
    "constant": lambda _, shape: np.full(shape, 1 / 3),
    "graded": lambda random, shape: random.standard_normal(shape) * 10.0 ** random.integers(-3, 4, shape),
    "steep": lambda random, shape: random.standard_normal(shape) * 10.0 ** random.integers(-30, 31, shape),
    "subnormal": lambda random, shape: random.standard_normal(shape) * 2.0**-1022,
    "huge": lambda random, shape: random.standard_normal(shape) * 2.0**500,
    "sparse": lambda random, shape: random.standard_normal(shape) * (random.random(shape) < 0.05),
    "zero": lambda _, shape: np.zeros(shape),
}
needs_extended = pytest.mark.skipif(roundoff(EXTENDED) == roundoff(DOUBLE), reason="longdouble is float64 here")


@needs_extended
@pytest.mark.parametrize("name", DATA)
def test_split_and_plain_products_agree_to_extended_precision(name: str) -> None:
    random = np.random.default_rng(11)
    for shape in ((40, 60, 50), (3, 700, 40), (60, 1, 1000)):
        rows, inner, columns = shape
        third = EXTENDED.type(1) / 3  # all 64 bits are in use
        left = DATA[name](random, (2, rows, inner)).astype(EXTENDED) * third
        right = DATA[name](random, (2, inner, columns)).astype(EXTENDED) * third
        assert left.size * columns > extended._SMALL
        both = np.abs(left) @ np.abs(right)
        difference = np.abs(product(left, right) - left @ right)
        assert (difference <= 2 * inner * roundoff(EXTENDED) * both).all()


@needs_extended
@pytest.mark.parametrize("name", ["normal", "coherent", "graded", "steep"])
def test_single_elements_agree_with_fifty_digits(name: str) -> None:
    random = np.random.default_rng(12)
    left, right = DATA[name](random, (40, 64)).astype(EXTENDED), DATA[name](random, (64, 40)).astype(EXTENDED)
    result = product(left, right)
    with mpmath.workdps(50):
        for row, column in ((0, 0), (7, 39), (39, 20)):
            pairs = zip(left[row], right[:, column], strict=True)
            terms = [mpmath.mpf(float(a)) * mpmath.mpf(float(b)) for a, b in pairs]
            element = result[row, column]
            found = mpmath.mpf(float(element)) + mpmath.mpf(float(element - EXTENDED.type(float(element))))
            assert abs(found - sum(terms)) <= 64 * mpmath.mpf(2) ** -64 * sum(map(abs, terms))


@needs_extended
def test_data_graded_against_each_other_take_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's largest element meets the smallest of each column: slices would lose the sum altogether."""
    taken: list[tuple[int, ...]] = []
    plain = extended._plain_product

    def noted(left: Array, right: Array) -> Array:
        taken.append(left.shape)
        return plain(left, right)

    monkeypatch.setattr(extended, "_plain_product", noted)
    left, right = np.full((60, 60), 1e-40, EXTENDED), np.full((60, 60), 1e-40, EXTENDED)
    left[:, 0], right[1, :] = 1, 1
    found = product(left, right)
    assert taken == [(60, 60)]
    np.testing.assert_allclose(found.astype(np.float64), 2e-40, rtol=1e-15)
    product(np.ones((60, 60), EXTENDED), np.ones((60, 60), EXTENDED))
    assert taken == [(60, 60)]


def test_float64_products_stay_float64() -> None:
    left = np.ones((40, 40))
    assert product(left, left).dtype == np.float64
    assert (product(left, left) == 40).all()


def test_small_and_empty_products() -> None:
    empty = np.zeros((2, 0, 3), EXTENDED)
    assert product(empty, np.zeros((2, 3, 4), EXTENDED)).shape == (2, 0, 4)
    nothing = product(np.zeros((2, 3, 0), EXTENDED), np.zeros((2, 0, 4), EXTENDED))
    assert nothing.tolist() == np.zeros((2, 3, 4)).tolist()
