"""Data regimes: what makes the numbers of a case easy, hard or exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.policy import FORMATS
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
    if case.effective_scale == 0:
        raise ValueError("data one-hot needs a scale other than 0")
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


def _revealing(case: Case, numbers: Numbers) -> Numbers:
    """The output shows each weight by itself, and twice: columns j and S + j of head h are weight j of that head.

    Values are one-hot, the output projection is the identity, and neither adds a bias. Needs Dhv ≥ 2·S, Dv ≥ S,
    Do = H·Dhv, separate inputs and no extra keys.
    """
    S, Dhv, context = case.source_length, case.value_head_dim, case.num_heads * case.value_head_dim
    if Dhv < 2 * S or case.vdim < S or case.output_dim != context or case.sharing != "separate" or case.extra_keys:
        raise ValueError(
            "data revealing needs value_head_dim ≥ 2·source_length, vdim ≥ source_length, "
            "output_dim = num_heads·value_head_dim, separate inputs and no extra keys"
        )
    columns = np.zeros((case.vdim, Dhv))
    columns[:S, : 2 * S] = np.tile(np.eye(S), 2)
    biases = {name: numbers[name] * 0 for name in ("value_bias", "output_bias") if name in numbers}
    return (
        numbers
        | biases
        | {
            "value": np.broadcast_to(np.eye(S, case.vdim), numbers["value"].shape),
            "value_weight": np.tile(columns, (1, case.num_kv_heads)),
            "output_weight": np.eye(context),
        }
    )


def _cancelling(case: Case, numbers: Numbers) -> Numbers:
    """Sums of pairs x, −x that differ by a few units in the last place of the storage format.

    They are the scores (columns of the query and key projections in pairs), the context where the value projection has
    no bias and inputs are not shared (keys in equal pairs, values in opposite ones), the output (columns of the value
    projection, rows of the output projection) and the sums over queries in the gradients (cotangents).
    """

    def paired(name: str, sign: int, axis: int, heads: int = 1) -> None:
        if name in numbers:
            found[name] = _in_pairs(case, name, numbers[name], sign, axis, heads)

    found: Numbers = {}
    H, K = case.num_heads, case.num_kv_heads
    for part in ("weight", "bias"):
        paired(f"query_{part}", 1, -1, H)
        paired(f"key_{part}", -1, -1, K)
        paired(f"value_{part}", 1, -1, K)
    paired("output_weight", -1, 0, H)
    paired("key", 1, 1)
    paired("value", -1, 1)
    paired("cotangent", -1, 1)
    return numbers | found


def _in_pairs(case: Case, name: str, array: Array, sign: int, axis: int, heads: int) -> Array:
    """The array with every second entry of each head along ``axis`` equal, or opposite but for −3 … 3 units in the last
    place, to the one before. Of an odd number the last stays alone."""
    split = np.moveaxis(array, axis, 0)
    split = split.reshape(heads, split.shape[0] // heads, *split.shape[1:]).copy()
    second = split[:, 1::2]
    units = generator(case, f"{name} units").integers(-3, 4, second.shape) if sign < 0 else 0
    second[...] = sign * split[:, : 2 * second.shape[1] : 2] * (1 + units * 2 * FORMATS[case.compute].unit_roundoff)
    return np.moveaxis(split.reshape(array.shape[axis], *split.shape[2:]), 0, axis)


def _ties(case: Case, numbers: Numbers) -> Numbers:
    """Sums that lie exactly half-way between two numbers of the storage format.

    Inputs and cotangents lie in [1, 2), even and odd multiples of the last place there in turn, along the width. Each
    column of a projection adds two neighbours, so the sum lies in [2, 4), where every second such multiple is a tie.
    A bias is one such unit: added to a product that was stored before, it makes a tie again. Keys are scaled by a power
    of two, so that scores stay small.
    """
    unit = 2 * FORMATS[case.compute].unit_roundoff
    found: Numbers = {}
    for name in (*INPUTS, "cotangent"):
        array = numbers[name]
        count = np.floor(generator(case, f"{name} units").random(array.shape) * (0.5 / unit))  # pairs of units below 1
        found[name] = 1 + (2 * count + np.arange(array.shape[-1]) % 2) * unit
    for name in ("query_weight", "key_weight", "value_weight", "output_weight"):
        rows, columns = numbers[name].shape
        weight = np.zeros((rows, columns))
        for neighbour in (0, 1):
            weight[(np.arange(columns) + neighbour) % rows, np.arange(columns)] = 1
        found[name] = weight
    found["key_weight"] *= 2.0 ** -np.ceil(np.log2(8 * np.sqrt(case.head_dim)))
    return numbers | found | {name: array * 0 + unit for name, array in numbers.items() if name.endswith("_bias")}


_REGIMES: dict[str, Callable[[Case, Numbers], Numbers]] = {
    "normal": _normal,
    "literal": _normal,
    "tiny": _scaled(1e-3),
    "large": _scaled(24.0),
    "very-negative-scores": _very_negative,
    "dominant-key": _dominant,
    "equal": _equal,
    "coherent": _coherent,
    "cancelling": _cancelling,
    "rounding-ties": _ties,
    "integers": _integers,
    "one-hot": _one_hot,
    "subnormal": _subnormal,
    "revealing": _revealing,
}
