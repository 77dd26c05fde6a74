"""Ill-formed calls: each way breaks the one thing that it names, and needs something to break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from conformance.problem import Problem
from conformance.spec import Case, Explicit, Mask, Padding
from conformance.tensors import fingerprint, problem_of
from conformance.vocabulary import HeadFault, IllFormed
from tests.drawn_problems import case_like

SIZES = {"batch": 2, "target_length": 3, "source_length": 4, "embed_dim": 4}  # those of case_like
PADDED, EXPLICIT = Mask(key_padding=Padding((2, 3))), Mask(explicit=Explicit("random", "BTS"))
FOUR_AXES = Mask(explicit=Explicit("random", "BHTS"))
BROKEN: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "value-longer-than-key": ({}, lambda p: (p.key.shape[1], p.value.shape[1]) == (4, 5)),
    "key-longer-than-value": ({}, lambda p: (p.key.shape[1], p.value.shape[1]) == (5, 4)),
    "batch-mismatch": ({}, lambda p: [len(a) for a in (p.query, p.key, p.value)] == [2, 3, 3]),
    "query-width": ({}, lambda p: p.query.shape == (2, 3, 5) and p.parameters.query_weight.shape == (4, 4)),
    "key-width": ({}, lambda p: p.key.shape == (2, 4, 5) and p.parameters.key_weight.shape == (4, 4)),
    "query-rank": ({}, lambda p: (p.query.shape, p.key.shape) == ((3, 4), (2, 4, 4))),
    "key-rank": ({}, lambda p: (p.key.shape, p.value.shape) == ((4, 4), (2, 4, 4))),
    "mixed-dtypes": ({}, lambda p: [p.key.dtype, p.value.dtype] == ["float64", "float32"]),
    "mask-target-too-long": ({"mask": EXPLICIT}, lambda p: p.mask.explicit.shape == (2, 4, 4)),
    "mask-source-too-long": ({"mask": EXPLICIT}, lambda p: p.mask.explicit.shape == (2, 3, 5)),
    "mask-heads": ({"mask": FOUR_AXES}, lambda p: p.mask.explicit.shape == (2, 3, 3, 4)),
    "mask-batch": ({"mask": FOUR_AXES}, lambda p: p.mask.explicit.shape == (3, 2, 3, 4)),
    "integer-mask": ({"mask": EXPLICIT}, lambda p: p.mask.explicit.dtype == np.int64),
    "mask-rank-1": ({"mask": EXPLICIT}, lambda p: p.mask.explicit.shape == (4,)),
    "padding-mask-as-attention-mask": (
        {"mask": PADDED},
        lambda p: p.mask.key_padding is None and p.mask.key_lengths is None and p.mask.explicit.shape == (2, 4),
    ),
    "padding-mask-wrong-batch": (
        {"mask": PADDED},
        lambda p: p.mask.key_padding.shape == (3, 4) and p.mask.key_lengths.shape == (3,),
    ),
    "embed-dim-not-divisible": (
        {"embed_dim": 5, "head_dim": 2},
        lambda p: p.parameters.query_weight.shape == (5, 5) and p.parameters.output_weight.shape == (5, 5),
    ),
    "zero-heads": ({"num_heads": 0, "num_kv_heads": 0}, lambda p: p.parameters.key_weight.shape == (4, 4)),
    "heads-not-divisible-by-kv-heads": (
        {"num_heads": 3, "num_kv_heads": 2},
        lambda p: (p.parameters.query_weight.shape, p.parameters.key_weight.shape) == ((4, 6), (4, 4)),
    ),
}
IN_THE_ARRAYS = [fault for fault in BROKEN if fault not in get_args(HeadFault)]


def malformed_case(fault: Any, **changes: Any) -> Case:
    case: Case = case_like("ill-formed", ill_formed=fault, expect="raises", **changes)
    return case


def test_every_way_is_tested_here() -> None:
    assert {*BROKEN, "mask-device"} == set(get_args(IllFormed))


@pytest.mark.parametrize("fault", BROKEN)
def test_each_malformation_breaks_what_it_names(fault: str) -> None:
    changes, broken = BROKEN[fault]
    assert broken(problem_of(malformed_case(fault, **changes)))


@pytest.mark.parametrize("fault", IN_THE_ARRAYS)
def test_a_malformation_breaks_nothing_else(fault: str) -> None:
    changes, broken = BROKEN[fault]
    case = malformed_case(fault, **changes)
    problem, well_formed = problem_of(case), problem_of(replace(case, ill_formed=None))
    assert not broken(well_formed)
    input_fault = not case.mask.parts
    for name in ("query", "key", "value"):
        same = np.array_equal(getattr(problem, name), getattr(well_formed, name))
        assert same or input_fault, name
    for name, parameter in well_formed.parameters.present.items():
        np.testing.assert_array_equal(problem.parameters.present[name], parameter)


def test_a_mask_on_another_device_is_no_matter_of_arrays() -> None:
    case = malformed_case("mask-device", mask=EXPLICIT)
    assert fingerprint(problem_of(case)) == fingerprint(problem_of(replace(case, ill_formed=None)))


def test_a_key_is_given_another_dtype_whatever_the_query_has() -> None:
    problem = problem_of(malformed_case("mixed-dtypes", dtype="float64"))
    assert [array.dtype.name for array in (problem.query, problem.key)] == ["float64", "float32"]


def test_a_shared_query_that_is_too_wide_stays_shared() -> None:
    problem = problem_of(malformed_case("query-width", sharing="self", source_length=3))
    assert problem.query is problem.key is problem.value
    assert problem.query.shape == (2, 3, 5)


def test_left_padding_is_malformed_without_lengths() -> None:
    mask = Mask(key_padding=Padding((2, 3), side="left"))
    problem: Problem = problem_of(malformed_case("padding-mask-wrong-batch", mask=mask))
    assert problem.mask.key_lengths is None and problem.mask.key_padding is not None
    assert problem.mask.key_padding.shape == (3, 4)


@pytest.mark.parametrize(
    ("fault", "changes", "message"),
    [
        ("mask-rank-1", {}, "needs a mask with explicit"),
        ("padding-mask-wrong-batch", {"mask": EXPLICIT}, "needs a mask with key_padding"),
        ("mask-heads", {"mask": EXPLICIT}, "needs an explicit mask with an axis H, not BTS"),
        ("key-rank", {"sharing": "key-value"}, "needs inputs of their own, not sharing key-value"),
        ("value-longer-than-key", {"sharing": "self", "source_length": 3}, "not sharing self"),
        ("padding-mask-as-attention-mask", {"mask": PADDED, "target_length": 2}, "is a well-formed"),
    ],
)
def test_what_a_malformation_needs(fault: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        problem_of(malformed_case(fault, **changes))
