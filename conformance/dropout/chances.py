"""How far chance alone carries a count or a sum: tail bounds that hold for every number of trials.

Each is a proved inequality, not an approximation by a normal distribution: Chernoff's bound in the form of Hoeffding
(1963, theorem 1) for counts, Hoeffding's (1963, theorem 2) and McDiarmid's (1989) for sums and functions of independent
bounded variables.
"""

from __future__ import annotations

import math

FALSE_ALARM = 1e-9  # of one verdict, over everything that it asks of chance


def divergence(share: float, probability: float) -> float:
    """Kullback-Leibler divergence of two coins, in nats; infinite where ``probability`` rules ``share`` out."""
    total = 0.0
    for one, other in ((share, probability), (1 - share, 1 - probability)):
        if one > 0:
            total += one * math.log(one / other) if other > 0 else math.inf
    return max(total, 0.0)


def surprise(count: int, trials: int, probability: float) -> float:
    """Upper bound on the chance that a binomial count lies as far out as ``count``, on its side or on the other.

    P(K ≥ k) ≤ exp(−n · D(k/n ‖ p)) for k above n · p, and likewise below.
    """
    return min(1.0, 2 * math.exp(-trials * divergence(count / trials, probability))) if trials else 1.0


def allowed(trials: int, probability: float, alarm: float) -> tuple[int, int]:
    """The smallest and the largest binomial count whose :func:`surprise` is at least ``alarm``."""
    middle = round(trials * probability)

    def last(inside: int, outside: int) -> int:
        while abs(outside - inside) > 1:
            between = (inside + outside) // 2
            if surprise(between, trials, probability) >= alarm:
                inside = between
            else:
                outside = between
        return inside

    return last(middle, -1), last(middle, trials + 1)


def radius(squares: float, draws: int, alarm: float) -> float:
    """How far the mean of ``draws`` independent values strays from its expectation, save with a chance of ``alarm``.

    Each value is a function of independent variables, the i-th of which changes it by at most c_i; ``squares`` is
    Σ c_i².
    P(abs(mean − expectation) ≥ t) ≤ 2 exp(−2 · draws · t² / Σ c_i²).
    """
    return math.sqrt(squares * math.log(2 / alarm) / (2 * draws))
