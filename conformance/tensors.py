"""Case → Problem: every number is drawn from the case's id, so the same file gives the same arrays everywhere.

Each array has a generator of its own, seeded by the case's id and the array's name: adding an array to a problem
changes no other.
"""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Any

import numpy as np

from conformance import masks
from conformance.malformed import malformed
from conformance.problem import MaskArrays, Parameters, Problem
from conformance.regimes import shape_numbers
from conformance.seeds import generator, seed_of
from conformance.spec import NUMPY_DTYPES, Array, Case, Data

INPUTS = ("query", "key", "value")


def problem_of(case: Case) -> Problem:
    """The arrays of a case, in its storage dtype, malformed as ``case.ill_formed`` asks.

    Raises ValueError when the data regime cannot be built in the case's sizes, or the case not malformed as it asks.
    """
    numbers = {name: _normal(case, name, shape) for name, shape in shapes(case).items()}
    numbers = _shared(case, shape_numbers(case, numbers))
    numbers.update({name: np.array(value, np.float64) for name, value in case.literals.given if name in numbers})
    dtype = NUMPY_DTYPES[case.storage]
    stored = {name: _stored(case, name, array, dtype) for name, array in numbers.items()}
    mask = masks.mask_arrays(case, dtype)
    if case.data.poison is not None:
        _poison(case.data, case.sharing, stored, mask)
    laid_out = _laid_out(case, stored)
    mask_parts = (getattr(mask, one.name) for one in fields(mask) if one.name != "shape")
    for array in (*laid_out.values(), *(part for part in mask_parts if part is not None)):
        array.flags.writeable = False  # a subject that writes into its inputs must not change another's verdict
    parameters = Parameters(**{name: laid_out[name] for name in parameter_names(case)})
    inputs = {name: laid_out[name] for name in (*INPUTS, "cotangent")}
    problem = Problem(case=case, parameters=parameters, mask=mask, seed=seed_of(case, 0), **inputs)
    return malformed(problem)


def fingerprint(problem: Problem) -> int:
    """A checksum over every array of a problem."""
    masks = (getattr(problem.mask, one.name) for one in fields(problem.mask) if one.name != "shape")
    inputs = (problem.query, problem.key, problem.value, problem.cotangent)
    arrays = (*inputs, *problem.parameters.present.values(), *masks)
    total = 0
    for array in arrays:
        if array is not None:
            total = zlib.crc32(array.tobytes(), total)
    return total


def parameter_names(case: Case) -> tuple[str, ...]:
    """Names of the parameters a case has, in neutral order."""
    return tuple(name for name in shapes(case) if name not in (*INPUTS, "cotangent"))


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Shape of every array of a well-formed problem by name, absent parameters left out."""
    B, T, S = case.batch, case.target_length, case.source_length
    query_width, key_width = case.num_heads * case.head_dim, case.num_kv_heads * case.head_dim
    value_width, context_width = case.num_kv_heads * case.value_head_dim, case.num_heads * case.value_head_dim
    if case.ill_formed in ("embed-dim-not-divisible", "zero-heads"):
        query_width = key_width = value_width = context_width = case.embed_dim
    found: dict[str, tuple[int, ...]] = {
        "query": (B, T, case.embed_dim),
        "key": (B, S, case.kdim),
        "value": (B, S, case.vdim),
        "query_weight": (case.embed_dim, query_width),
        "key_weight": (case.kdim, key_width),
        "value_weight": (case.vdim, value_width),
        "output_weight": (context_width, case.output_dim),
        "cotangent": (B, T, case.output_dim),
    }
    if case.bias:
        found |= {"query_bias": (query_width,), "key_bias": (key_width,)}
        found |= {"value_bias": (value_width,), "output_bias": (case.output_dim,)}
    if case.bias_kv:
        found |= {"bias_k": (key_width,), "bias_v": (value_width,)}
    return found


def _normal(case: Case, name: str, shape: tuple[int, ...]) -> Array:
    """Standard normal inputs; weights scaled by 1/√fan-in so that every stage keeps magnitude 1; small biases."""
    numbers: Array = generator(case, name).standard_normal(shape)
    if name.endswith("_weight"):
        return np.asarray(numbers / np.sqrt(max(shape[0], 1)))
    return numbers * 0.3 if name.endswith("_bias") else numbers


def _stored(case: Case, name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """The array in its storage format, whose range it must fit."""
    with np.errstate(over="ignore"):
        stored = array.astype(dtype)
    if not np.isfinite(stored).all():
        raise ValueError(f"data {case.data.regime} makes {name} overflow {case.storage} in these sizes")
    return stored


def _shared(case: Case, numbers: dict[str, Array]) -> dict[str, Array]:
    match case.sharing:
        case "self" | "equal-copies":
            numbers["key"] = numbers["value"] = numbers["query"]
        case "key-value":
            numbers["value"] = numbers["key"]
        case "query-key":
            numbers["key"] = numbers["query"]
        case "separate":
            pass
    return numbers


def _poison(data: Data, sharing: str, stored: dict[str, Array], mask: MaskArrays) -> None:
    if sharing in ("self", "query-key"):
        raise ValueError(f"data.poison needs keys of their own: with sharing {sharing}, a poisoned key is also a query")
    blocked = mask.blocked()
    if blocked is None:
        raise ValueError("data.poison needs a mask that blocks a key for every query of a sample")
    unseen = np.asarray(np.broadcast_to(blocked, mask.shape).all(axis=(1, 2)))
    if not unseen.any():
        raise ValueError("data.poison needs a key that no query of its sample may attend to; this mask leaves none")
    for name in ("key", "value"):
        stored[name] = np.where(unseen[..., None], np.array(data.poison, stored[name].dtype), stored[name])


def _laid_out(case: Case, stored: dict[str, Array]) -> dict[str, Array]:
    """Give the inputs the memory layout asked for, and make shared inputs one object."""
    arrays = {name: _layout(case, array) if name in INPUTS else array for name, array in stored.items()}
    if case.sharing == "self":
        arrays["key"] = arrays["value"] = arrays["query"]
    elif case.sharing == "key-value":
        arrays["value"] = arrays["key"]
    elif case.sharing == "query-key":
        arrays["key"] = arrays["query"]
    return arrays


def _layout(case: Case, array: Array) -> Array:
    match case.layout:
        case "transposed":
            return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)
        case "negative-stride":
            return np.ascontiguousarray(array[:, ::-1])[:, ::-1]
        case "broadcast":
            return np.broadcast_to(array[:1], array.shape)
        case "contiguous":
            return np.ascontiguousarray(array)
