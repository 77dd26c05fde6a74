"""What dropout multiplied an answer with, as far as the answer itself tells.

A factor is 0 where something was dropped and 1/(1 − p) where it was kept, both exactly known. Where the answer does not
tell, the factor is a pair as in :mod:`conformance.bounds.running_error`: half of 1/(1 − p), give or take as much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.bounds.running_error import Pair
from conformance.spec import Array


@dataclass(frozen=True)
class Kept:
    """The factors of one answer; None where nothing is dropped."""

    weights: Pair | None = None  # [B, H, T, S + E]
    output: Pair | None = None  # [B, T, Do]


EVERYTHING = Kept()


def factor(kept: Array, told: Array, probability: float, dtype: np.dtype[np.floating]) -> Pair:
    """The factor from what was ``kept`` (Boolean), where it is ``told`` (Boolean), as values of ``dtype``."""
    one = dtype.type(1)
    whole = one / (one - dtype.type(probability))
    value = np.where(told, np.where(kept, whole, 0), whole / 2)
    return Pair(value, np.where(told, 0.0, float(whole) / 2))


def times(array: Array, kept: Pair | None) -> Array:
    """The array after dropout; as it is without."""
    return array if kept is None else array * kept.value
