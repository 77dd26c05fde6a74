"""Small problems drawn at random over every feature of a case, and data that sums find hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.problem import Problem
from conformance.spec import Additive, Array, Case, Data, Explicit, Mask, Padding, Source
from conformance.tensors import problem_of

REGIMES = ("normal", "coherent", "tiny", "large", "dominant-key", "equal", "subnormal", "very-negative-scores")
TWISTS = ("none", "large biases", "graded", "cancelling", "small cotangent")


def case_like(identity: str, **changes: Any) -> Case:
    """A small case of width-4 heads; sizes that follow from others are filled in."""
    sizes: dict[str, Any] = {
        "batch": 2,
        "target_length": 3,
        "source_length": 4,
        "embed_dim": 4,
        "num_heads": 2,
        "head_dim": 2,
    }
    sizes |= {name: changes.pop(name) for name in list(changes) if name in sizes}
    follow: dict[str, Any] = {
        "num_kv_heads": sizes["num_heads"],
        "value_head_dim": sizes["head_dim"],
        "kdim": sizes["embed_dim"],
        "vdim": sizes["embed_dim"],
        "output_dim": sizes["embed_dim"],
    }
    changes = sizes | follow | changes
    return Case(id=identity, suite="drawn", name=identity, why="drawn", source=Source("drawn", 1), **changes)


def drawn_case(random: np.random.Generator, dtype: str) -> Case:
    """Sizes, mask, regime, sharing, scale and extra rows at random; empty sizes among them."""

    def one_of(*options: Any) -> Any:
        return options[int(random.integers(len(options)))]

    heads, batch, width = one_of(1, 2, 4), int(random.integers(1, 3)), int(random.integers(1, 9))
    target, source = int(random.integers(0, 7)), int(random.integers(0, 9))
    sharing = one_of("separate", "separate", "self", "key-value")
    source = target if sharing == "self" else source
    regime = one_of(*(regime for regime in REGIMES if sharing == "separate" or regime != "dominant-key"))
    scales = (None, None, 0.25, 2.5, 0.01) if regime == "very-negative-scores" else (None, None, 0.0, -0.5, 0.01, 2.5)
    return case_like(
        f"drawn-{random.integers(1 << 40)}",
        dtype=dtype,
        batch=batch,
        target_length=target,
        source_length=source,
        embed_dim=width,
        num_heads=heads,
        num_kv_heads=one_of(*(count for count in (1, 2, 4) if heads % count == 0)),
        head_dim=int(random.integers(1, 6)),
        value_head_dim=int(random.integers(1, 5)),
        output_dim=int(random.integers(1, 5)),
        mask=drawn_mask(random, batch, source, heads),
        data=Data(regime, float(one_of(1, 1, 1, 0.01, 8))),
        sharing=sharing,
        bias=one_of(True, True, False),
        bias_kv=sharing != "self" and one_of(True, False, False),
        zero_attention=one_of(True, False, False),
        scale=one_of(*scales),
    )


def drawn_mask(random: np.random.Generator, batch: int, source: int, heads: int) -> Mask:
    """Some of the parts of a mask; rows, keys and whole heads end up fully blocked now and then."""
    parts: dict[str, Any] = {}
    if random.random() < 0.3:
        parts["causal"] = "top-left"
    if random.random() < 0.3:
        parts["key_padding"] = Padding(tuple(int(length) for length in random.integers(0, source + 1, batch)))
    if random.random() < 0.3:
        infinite = Explicit("random", "BHTS") if random.random() < 0.5 else None
        parts["additive"] = Additive("BHTS", float(random.choice([1, 30, 1000])), minus_inf=infinite)
    if random.random() < 0.3:
        parts["explicit"] = Explicit("random", "BHTS", density=0.6)
    elif random.random() < 0.2 and heads > 1:
        parts["explicit"] = Explicit("heads", "1HTS", indices=(0,))
    return Mask(**parts)


def drawn_problem(random: np.random.Generator, dtype: str) -> Problem | None:
    """A problem of a drawn case with a twist of its numbers; None where the regime cannot be built in its sizes."""
    try:
        problem = problem_of(drawn_case(random, dtype))
    except ValueError:
        return None
    twist = str(random.choice(TWISTS))
    with np.errstate(over="ignore"):
        problem = twisted(problem, twist, random)
    finite = all(np.isfinite(array).all() for array in problem.parameters.present.values())
    return problem if finite else None


def twisted(problem: Problem, twist: str, random: np.random.Generator) -> Problem:
    parameters, cotangent = problem.parameters.present, problem.cotangent.astype(np.float64)
    changed: dict[str, Array] = {}
    match twist:
        case "large biases":
            changed = {name: array.astype(np.float64) * 300 for name, array in parameters.items() if "bias" in name}
        case "graded":
            changed = {
                name: array.astype(np.float64) * 10.0 ** random.integers(-4, 2, array.shape)
                for name, array in parameters.items()
                if name.endswith("weight")
            }
        case "cancelling":  # columns whose entries cancel in pairs, all but a thousandth
            changed = {
                name: np.abs(array[:1].astype(np.float64)) * np.where(np.arange(len(array)) % 2, -1.001, 1)[:, None]
                for name, array in parameters.items()
                if name.endswith("weight")
            }
        case "small cotangent":
            cotangent = cotangent * 1e-5
    return with_numbers(problem, {**changed, "cotangent": cotangent})


def with_numbers(problem: Problem, numbers: Mapping[str, Any]) -> Problem:
    """The problem with other numbers for some of its arrays, by name, in its storage format."""
    dtype = problem.cotangent.dtype
    arrays = {name: np.asarray(array, np.float64).astype(dtype) for name, array in numbers.items()}
    inputs: dict[str, Any] = {
        name: arrays.pop(name) for name in ("query", "key", "value", "cotangent") if name in arrays
    }
    return replace(problem, parameters=replace(problem.parameters, **arrays), **inputs)
