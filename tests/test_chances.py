"""The tail bounds never promise more than the exact distributions keep."""

from __future__ import annotations

import math

import mpmath
import pytest

from conformance.dropout.chances import allowed, divergence, radius, surprise

COINS = pytest.mark.parametrize(("trials", "probability"), [(1, 0.5), (7, 0.9), (40, 0.1), (200, 0.5), (1000, 0.99)])


def at_least(count: int, trials: int, probability: float) -> mpmath.mpf:
    """P(K ≥ count), exactly."""
    p = mpmath.mpf(probability)
    chances = (mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count, trials + 1))
    return mpmath.fsum(chances)


@COINS
def test_surprise_bounds_the_exact_tail_on_either_side(trials: int, probability: float) -> None:
    for count in range(0, trials + 1, max(1, trials // 40)):
        if count >= trials * probability:
            tail = at_least(count, trials, probability)
        else:
            tail = at_least(trials - count, trials, 1 - probability)
        bound = surprise(count, trials, probability)
        assert bound == 1 or 2 * tail <= bound * (1 + 1e-12) + 1e-300


@COINS
@pytest.mark.parametrize("alarm", [0.3, 1e-3, 1e-10])
def test_what_is_allowed_is_left_no_more_often_than_the_alarm_says(
    trials: int, probability: float, alarm: float
) -> None:
    least, most = allowed(trials, probability, alarm)
    assert 0 <= least <= most <= trials
    assert surprise(least, trials, probability) >= alarm
    assert least == 0 or surprise(least - 1, trials, probability) < alarm
    assert most == trials or surprise(most + 1, trials, probability) < alarm
    below = 1 - at_least(least, trials, probability)
    above = at_least(most + 1, trials, probability) if most < trials else 0
    assert below + above <= alarm


def test_the_bound_is_sharp_enough_to_be_of_use() -> None:
    """The distance allowed is within a tenth of the normal quantile's, 6.1 standard deviations, where that holds."""
    least, most = allowed(100_000, 0.5, 1e-9)
    deviation = math.sqrt(100_000) / 2
    assert 6.1 * deviation <= most - 50_000 <= 6.8 * deviation
    assert most - 50_000 == 50_000 - least


def test_the_divergence_of_coins() -> None:
    assert divergence(0.3, 0.3) == 0
    assert divergence(1.0, 0.5) == pytest.approx(math.log(2))
    assert divergence(0.5, 0.25) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert divergence(0.5, 1.0) == math.inf
    assert surprise(0, 0, 0.5) == 1


@COINS
@pytest.mark.parametrize("alarm", [0.3, 1e-3, 1e-10])
def test_the_radius_holds_for_the_mean_of_coins(trials: int, probability: float, alarm: float) -> None:
    far = radius(1.0, trials, alarm)
    above = math.floor((probability + far) * trials) + 1
    below = math.ceil((probability - far) * trials) - 1
    outside = at_least(above, trials, probability) if above <= trials else mpmath.mpf(0)
    outside += 1 - at_least(below + 1, trials, probability) if below >= 0 else 0
    assert outside <= alarm
