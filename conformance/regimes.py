"""Data regimes: what makes the numbers of a case easy, hard or exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.seeds import generator
from conformance.spec import Array, Case

Numbers = dict[str, Array]
INPUTS = ("query", "key", "value")
ONE_HOT_GAP = 1024.0  # exp(−1024) is 0 in every format under test, and 1024 is exact in all of them


def shape_numbers(case: Case, numbers: Numbers) -> Numbers:
    """Turn standard normal numbers into those of the case's regime, then multiply the inputs by its magnitude.

    Raises ValueError when the regime cannot be built in these sizes.
    """
    numbers = _REGIMES[case.data.regime](case, numbers)
    return numbers | {name: numbers[name] * case.data.magnitude for name in INPUTS}


def _normal(case: Case, numbers: Numbers) -> Numbers:
    return numbers


def _scaled(factor: float) -> Callable[[Case, Numbers], Numbers]:
    def scaled(case: Case, numbers: Numbers) -> Numbers:
        return numbers | {name: numbers[name] * factor for name in INPUTS}

    return scaled


def _subnormal(case: Case, numbers: Numbers) -> Numbers:
    """Inputs around the smallest normal number of the storage format; no bias hides them."""
    smallest = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}[case.compute]
    biases = {name: array * 0 for name, array in numbers.items() if name.endswith("_bias")}
    return numbers | biases | {name: numbers[name] * smallest for name in INPUTS}


def _very_negative(case: Case, numbers: Numbers) -> Numbers:
    """Every score below −100: positive queries against negative keys, scaled by a power of two."""
    if case.effective_scale <= 0:
        raise ValueError(f"data very-negative-scores needs a positive scale, not {case.effective_scale}")
    positive = {name: np.abs(numbers[name]) + 0.5 for name in INPUTS}
    numbers = numbers | positive | {"query_weight": np.abs(numbers["query_weight"])}
    numbers["key_weight"] = -np.abs(numbers["key_weight"])
    biases = {name: numbers[name] * 0 for name in ("query_bias", "key_bias") if name in numbers}
    heads = (case.num_heads, case.head_dim)
    query = (numbers["query"] @ numbers["query_weight"]).reshape(-1, *heads)
    key = (numbers["key"] @ numbers["key_weight"]).reshape(-1, case.num_kv_heads, case.head_dim)
    smallest = np.abs(query).min(initial=1.0) * np.abs(key).min(initial=1.0) * case.head_dim * case.effective_scale
    factor = 2.0 ** np.ceil(np.log2(100.0 / smallest)) if smallest < 100 else 1.0
    return numbers | biases | {"query_weight": numbers["query_weight"] * factor}


def _dominant(case: Case, numbers: Numbers) -> Numbers:
    """One key of each sample is eight times as long as the others. ValueError when the keys are the queries."""
    if case.sharing in ("self", "query-key", "equal-copies"):
        raise ValueError(f"data dominant-key needs keys of their own, and sharing {case.sharing} has none")
    key = numbers["key"].copy()
    if case.source_length:
        chosen = generator(case, "dominant").integers(0, case.source_length, case.batch)
        key[np.arange(case.batch), chosen] *= 8
    return numbers | {"key": key}


def _equal(case: Case, numbers: Numbers) -> Numbers:
    """Every token is the same token."""
    return numbers | {
        name: np.broadcast_to(numbers[name][:1, :1], numbers[name].shape) for name in INPUTS if numbers[name].size
    }


def _coherent(case: Case, numbers: Numbers) -> Numbers:
    """All signs positive and all keys alike: sums grow without cancellation, so a narrow accumulator stagnates."""
    positive = {name: np.abs(array) + (0.5 if name in INPUTS else 0.0) for name, array in numbers.items()}
    key = positive["key"]
    return positive | {"key": np.broadcast_to(key[:, :1], key.shape) if key.size else key}


def _integers(case: Case, numbers: Numbers) -> Numbers:
    """Small integers everywhere and queries that are zero: scores are 0, weights 1/n, all sums exact."""
    whole = {name: np.clip(np.rint(array), -2, 2) for name, array in numbers.items()}
    for name in ("key_weight", "value_weight", "output_weight"):
        whole[name] = np.clip(np.rint(numbers[name] * np.sqrt(max(numbers[name].shape[0], 1)) * 0.7), -1, 1)
    return whole | {name: whole[name] * 0 for name in ("query_weight", "query_bias") if name in whole}


def _one_hot(case: Case, numbers: Numbers) -> Numbers:
    """Query i of head h matches key (i + h) mod S by a ±1 code and no other: weights are exactly one-hot.

    The codes need embed_dim = H·Dh, kdim ≥ Dh, S ≤ 2^Dh and a power-of-two scale for exactness.
    """
    H, Dh, S, T = case.num_heads, case.head_dim, case.source_length, case.target_length
    if case.embed_dim != H * Dh or case.kdim < Dh or 2**Dh < S or case.sharing != "separate":
        raise ValueError(
            "data one-hot needs embed_dim = num_heads·head_dim, kdim ≥ head_dim, S ≤ 2^head_dim and separate inputs"
        )
    whole = _integers(case, numbers)
    bits = (np.arange(S)[:, None] >> np.arange(Dh)[None, :]) & 1
    code = 2.0 * bits - 1.0
    target = (np.arange(T)[:, None] + np.arange(H)[None, :]) % max(S, 1)
    query = code[target].reshape(T, H * Dh) if S else np.zeros((T, H * Dh))
    key = np.concatenate([code, np.zeros((S, case.kdim - Dh))], axis=1)
    factor = ONE_HOT_GAP / (2 * case.effective_scale)
    biases = {name: whole[name] * 0 for name in ("query_bias", "key_bias") if name in whole}
    return (
        whole
        | biases
        | {
            "query": np.broadcast_to(query, numbers["query"].shape),
            "key": np.broadcast_to(key, numbers["key"].shape),
            "query_weight": factor * np.eye(H * Dh),
            "key_weight": np.tile(np.eye(case.kdim, Dh), (1, case.num_kv_heads)),
        }
    )


_REGIMES: dict[str, Callable[[Case, Numbers], Numbers]] = {
    "normal": _normal,
    "literal": _normal,
    "tiny": _scaled(1e-3),
    "large": _scaled(24.0),
    "very-negative-scores": _very_negative,
    "dominant-key": _dominant,
    "equal": _equal,
    "coherent": _coherent,
    "integers": _integers,
    "one-hot": _one_hot,
    "subnormal": _subnormal,
}
