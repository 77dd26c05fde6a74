"""The reference against the same formula at fifty digits, and its gradients against differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from conformance.bounds.outputs import bounds_of
from conformance.extended import EXTENDED
from conformance.policy import Policy
from conformance.problem import Problem
from conformance.reference import reference_of
from conformance.spec import Additive, Array, Case, Data, Explicit, Mask, Padding, Window
from conformance.tensors import problem_of
from tests.drawn_problems import case_like
from tests.precise_attention import DIGITS, PreciseAttention, precise

FEATURES: dict[str, dict[str, object]] = {
    "plain": {},
    "no-bias": {"bias": False},
    "causal": {"mask": Mask(causal="top-left")},
    "window": {"mask": Mask(window=Window(1, 0, "bottom-right"))},
    "padding": {"mask": Mask(key_padding=Padding((3, 0)))},
    "blocked-row": {"mask": Mask(explicit=Explicit("rows", "TS", indices=(1,)))},
    "blocked-head": {"mask": Mask(explicit=Explicit("heads", "1HTS", indices=(0,)))},
    "additive": {"mask": Mask(additive=Additive("BHTS", 2.0))},
    "additive-infinite": {"mask": Mask(additive=Additive("TS", 1.0, minus_inf=Explicit("random", "TS")))},
    "grouped": {"num_heads": 4, "num_kv_heads": 2},
    "multi-query": {"num_heads": 4, "num_kv_heads": 1, "head_dim": 1},
    "extra-rows": {"bias_kv": True, "zero_attention": True},
    "zero-row-blocked": {"zero_attention": True, "mask": Mask(key_padding=Padding((0, 2)))},
    "widths": {"kdim": 3, "vdim": 5, "output_dim": 2, "value_head_dim": 3},
    "self": {"sharing": "self", "source_length": 3},
    "key-value": {"sharing": "key-value"},
    "scale": {"scale": -0.7},
    "scale-zero": {"scale": 0.0},
    "no-keys": {"source_length": 0},
    "no-queries": {"target_length": 0},
    "large": {"data": Data("large")},
    "tiny": {"data": Data("tiny")},
    "coherent": {"data": Data("coherent")},
    "very-negative": {"data": Data("very-negative-scores")},
    "dominant": {"data": Data("dominant-key")},
    "subnormal": {"data": Data("subnormal")},
    "one-hot": {"data": Data("one-hot")},
}


def cases() -> Iterator[Case]:
    for name, changes in FEATURES.items():
        yield case_like(f"precise-{name}", dtype="float64", **changes)
        yield case_like(f"precise-{name}-32", dtype="float32", **changes)


CASES = list(cases())


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 50


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_agrees_with_fifty_digits(case: Case) -> None:
    problem = problem_of(case)
    reference = reference_of(problem)
    assert reference.forward.query.dtype == (EXTENDED if case.dtype == "float64" else np.float64)
    values, bounds = reference.outputs(), bounds_of(case, reference, Policy(flash=False, exponential_units=4))
    with mpmath.workdps(DIGITS):
        attention = PreciseAttention(problem)
        expected = attention.forward()
        expected |= {f"{name}.gradient": array for name, array in attention.gradients().items()}
        assert list(expected) == list(values)
        for name, array in expected.items():
            error = np.abs(_exactly(values[name]) - array)
            assert values[name].shape == array.shape
            with np.errstate(invalid="ignore"):
                limit = precise(bounds[name]) * mpmath.mpf("1e-3")
            assert (error <= limit).all(), name


def _exactly(array: Array) -> Array:
    """longdouble → mpmath without losing bits: the float64 part and what it leaves."""
    high = array.astype(np.float64)
    return precise(high) + precise((array - high).astype(np.float64))


DIFFERENTIATED = ["plain", "causal", "grouped", "extra-rows", "self", "key-value", "additive", "widths"]


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_central_differences(name: str) -> None:
    """Along a random direction of each array, with steps of 1e-20 at fifty digits: the formula itself is checked."""
    problem = problem_of(case_like(f"difference-{name}", dtype="float64", **FEATURES[name]))
    random = np.random.default_rng(5)
    gradients = reference_of(problem).outputs()
    with mpmath.workdps(DIGITS):
        for array in (*problem.distinct_inputs, *problem.parameters.present):
            direction = precise(random.standard_normal(_numbers(problem, array).shape))
            ahead, behind = (_objective(problem, array, step, direction) for step in ("1e-20", "-1e-20"))
            slope = (ahead - behind) / mpmath.mpf("2e-20")
            claimed = np.sum(_exactly(gradients[f"{array}.gradient"]) * direction)
            size = np.sum(np.abs(_exactly(gradients[f"{array}.gradient"]) * direction))
            assert abs(slope - claimed) <= 1e-16 * size + mpmath.mpf("1e-17"), array


def _numbers(problem: Problem, name: str) -> Array:
    numbers: Array = (problem.distinct_inputs | problem.parameters.present)[name]
    return numbers


def _objective(problem: Problem, name: str, step: str, direction: Array) -> mpmath.mpf:
    moved = precise(_numbers(problem, name)) + mpmath.mpf(step) * direction
    attention = PreciseAttention(problem, **{name: moved})
    return np.sum(attention.forward()["attn_output"] * attention.arrays["cotangent"])


def test_without_gradients_there_is_no_backward_pass() -> None:
    case = replace(case_like("forward"), check=("output", "weights"))
    reference = reference_of(problem_of(case))
    assert reference.backward is None
    assert list(reference.outputs()) == ["attn_output", "attn_weights"]


def test_poison_that_is_not_finite_does_not_reach_the_reference() -> None:
    clean = case_like("poison", mask=Mask(key_padding=Padding((2, 3))))
    for poison in (float("nan"), float("inf")):
        outputs = reference_of(problem_of(replace(clean, data=Data(poison=poison)))).outputs()
        expected = reference_of(problem_of(clean)).outputs()
        assert all(np.isfinite(array).all() for array in outputs.values())
        np.testing.assert_array_equal(outputs["attn_output"], expected["attn_output"])


def test_a_fully_blocked_row_is_neutral_and_extra_rows_unblock_it() -> None:
    mask = Mask(explicit=Explicit("everything", "TS"))
    blocked = reference_of(problem_of(case_like("neutral", mask=mask)))
    assert blocked.forward.fully_blocked.all() and (blocked.forward.attn_weights == 0).all()
    assert (blocked.outputs()["query.gradient"] == 0).all()
    opened = reference_of(problem_of(case_like("neutral", mask=mask, zero_attention=True)))
    assert not opened.forward.fully_blocked.any() and (opened.forward.attn_weights[..., -1] == 1).all()
