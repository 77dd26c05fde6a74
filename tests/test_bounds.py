"""The bound holds: no choice of orders, placements, stores and kernels makes a correct implementation exceed it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.bounds.outputs import bounds_of
from conformance.casefile import read_case_file
from conformance.expectation import expected
from conformance.policy import ENVELOPE, FORMATS, Policy
from conformance.problem import Problem
from conformance.reference import reference_of
from conformance.spec import Array, Data, Explicit, Mask, Padding
from conformance.tensors import problem_of
from tests.drawn_problems import case_like, drawn_problem, with_numbers
from tests.rounding_attention import Choices
from tests.rounding_gradients import RoundingGradients

RUNS = 240  # problems of each format
ENOUGH = 2200  # outputs judged in each format


def ratios(problem: Problem, outputs: dict[str, Array], policy: Policy) -> dict[str, Array]:
    """Error over bound of each output, at the elements that are judged; infinite where an exact 0 is missed."""
    reference = reference_of(problem)
    bounds, values = bounds_of(problem.case, reference, policy), reference.outputs()
    found = {}
    for name, array in outputs.items():
        assert array.shape == values[name].shape == bounds[name].shape, name
        judged = np.isfinite(bounds[name])
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = np.abs(array.astype(values[name].dtype) - values[name]).astype(np.float64)
            ratio = np.where(error == 0, 0, np.where(np.isnan(error), np.inf, error) / bounds[name])
        found[name] = ratio[judged]
    return found


def answer(problem: Problem, choices: Choices, random: np.random.Generator) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        return RoundingGradients(problem, choices, random).outputs()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_no_correct_implementation_exceeds_the_bound(dtype: str) -> None:
    random = np.random.default_rng([2026, *dtype.encode()])
    largest: dict[str, list[float]] = defaultdict(list)
    for _ in range(RUNS):
        problem = drawn_problem(random, dtype)
        if problem is None:
            continue
        choices = Choices.drawn(random, arithmetic="wide")
        found = ratios(problem, answer(problem, choices, random), Policy(flash=choices.kernel == "flash"))
        for name, ratio in found.items():
            largest[name].append(float(ratio.max(initial=0)))
            assert largest[name][-1] <= 1, (name, problem.case, choices)
    assert sum(len(values) for values in largest.values()) >= ENOUGH
    assert {"attn_output", "attn_weights", "query.gradient", "bias_k.gradient", "key_weight.gradient"} <= set(largest)
    # The bound is not idle: the worst element of some drawn problem comes near it, in each kind of output.
    near = {"float64": 0.1, "float32": 0.1, "float16": 0.3, "bfloat16": 0.3}[dtype]
    for name in ("attn_output", "attn_weights", "value.gradient", "output_weight.gradient", "output_bias.gradient"):
        assert max(largest[name]) >= near, name


@pytest.mark.parametrize(
    ("dtype", "floors"),
    [
        ("float64", {"attn_output": 0.004, "attn_weights": 0.01, "output_bias.gradient": 0.09}),
        ("float32", {"attn_output": 0.004, "attn_weights": 0.01, "output_bias.gradient": 0.09}),
        ("float16", {"attn_output": 0.04, "attn_weights": 0.1, "output_bias.gradient": 0.9}),
        ("bfloat16", {"attn_output": 0.04, "attn_weights": 0.1, "output_bias.gradient": 0.9}),
    ],
)
def test_the_median_worst_element_of_plain_problems_has_a_floor(dtype: str, floors: dict[str, float]) -> None:
    """Normal data, everything stored, the envelope's bound: how much of it ordinary rounding uses."""
    random = np.random.default_rng(7)
    largest: dict[str, list[float]] = defaultdict(list)
    for seed in range(12):
        problem = problem_of(case_like(f"plain-{seed}", dtype=dtype, source_length=8, embed_dim=8, head_dim=4))
        for name, ratio in ratios(problem, answer(problem, Choices(), random), Policy()).items():
            largest[name].append(float(ratio.max()))
    for name, floor in floors.items():
        assert floor <= float(np.median(largest[name])) <= 1, (name, float(np.median(largest[name])))


NARROW = Policy("storage", "storage", "storage", "storage", "storage", "storage", flash=False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_policy_of_narrow_arithmetic_covers_arithmetic_that_narrow(dtype: str) -> None:
    random = np.random.default_rng([3, *dtype.encode()])
    outside, judged = 0, 0
    for _ in range(40):
        problem = drawn_problem(random, dtype)
        if problem is None:
            continue
        choices = Choices.drawn(random, arithmetic="storage")
        policy = replace(NARROW, flash=choices.kernel == "flash")
        outputs = answer(problem, choices, random)
        for name, ratio in ratios(problem, outputs, policy).items():
            assert ratio.max(initial=0) <= 1, (name, problem.case, choices)
            judged += 1
        wide = ratios(problem, outputs, replace(Policy(), flash=policy.flash))
        outside += any(ratio.max(initial=0) > 1 for ratio in wide.values())
    assert judged > 300
    assert outside >= 4  # which the wide policy does not forgive


def test_a_core_in_float32_widens_the_bound_of_float64_to_what_float32_rounds() -> None:
    problem = problem_of(case_like("core", dtype="float64"))
    reference = reference_of(problem)
    core = Policy("wide", "float32", "float32", "float32", flash=False)
    bounds = bounds_of(problem.case, reference, core)
    unit = FORMATS["float32"].unit_roundoff
    assert bounds["attn_weights"].max() > 10 * unit
    half = problem_of(case_like("core", dtype="float32"))
    rounded = answer(half, Choices(), np.random.default_rng(1))  # every stage in float32
    own = reference_of(half).outputs()
    for name in ("attn_weights", "query.gradient"):
        assert (np.abs(rounded[name] - own[name]) <= 2 * bounds[name]).all()


def test_mixed_precision_allows_for_inputs_cast_to_the_low_format() -> None:
    for compute in ("float16", "bfloat16"):
        problem = problem_of(case_like("mixed", dtype=f"mixed_{compute}", bias_kv=True, mask=Mask(additive=None)))
        found = ratios(problem, answer(problem, Choices(), np.random.default_rng(2)), Policy(flash=False))
        assert 0.05 < max(float(ratio.max()) for ratio in found.values()) <= 1


def test_what_no_query_reaches_and_what_reaches_no_key_is_exactly_zero() -> None:
    mask = Mask(explicit=Explicit("rows", "TS", indices=(1,)), key_padding=Padding((2, 4)))
    problem = problem_of(case_like("zero", dtype="float32", mask=mask))
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert (bounds["attn_output"][:, 1] == 0).all() and (bounds["attn_output"][:, 0] > 0).all()
    assert (bounds["attn_weights"][:, :, 1] == 0).all()
    assert (bounds["attn_weights"][0, :, :, 2:] == 0).all()
    assert (bounds["query.gradient"][:, 1] == 0).all() and (bounds["query.gradient"][:, 0] > 0).all()
    for name in ("key.gradient", "value.gradient"):
        assert (bounds[name][0, 2:] == 0).all() and (bounds[name][1] > 0).all()


def test_a_blocked_head_has_parameter_gradients_of_exactly_zero() -> None:
    problem = problem_of(case_like("head", mask=Mask(explicit=Explicit("heads", "1HTS", indices=(1,)))))
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    for name in ("query_weight", "key_weight", "value_weight", "query_bias", "key_bias", "value_bias"):
        assert (bounds[f"{name}.gradient"][..., 2:] == 0).all() and (bounds[f"{name}.gradient"][..., :2] > 0).all()
    assert (bounds["output_weight.gradient"][2:] == 0).all()


def test_no_keys_at_all_make_the_output_the_bias() -> None:
    problem = problem_of(case_like("empty", source_length=0))
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert (bounds["attn_output"] == 0).all()
    assert (bounds["query.gradient"] == 0).all() and (bounds["output_weight.gradient"] == 0).all()
    assert bounds["attn_weights"].shape == (2, 2, 3, 0)


def test_a_scale_of_zero_leaves_queries_and_keys_without_gradient() -> None:
    problem = problem_of(case_like("scale", scale=0.0))
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert (bounds["query.gradient"] == 0).all() and (bounds["key_weight.gradient"] == 0).all()
    assert (bounds["attn_weights"] > 0).all()


def test_gradients_before_a_scale_of_zero_may_overflow_too() -> None:
    problem = problem_of(case_like("nothing", dtype="float16", scale=0.0, bias=False))
    large = {"key_weight": np.full((4, 4), 100.0), "value_weight": np.eye(4) * 50, "key": np.full((2, 4, 4), 100.0)}
    large["query_weight"] = np.eye(4) * 1e-3
    problem = with_numbers(problem, large)
    bounds = bounds_of(problem.case, reference_of(problem), Policy(flash=False))
    assert np.isinf(bounds["query.gradient"]).any() and np.isfinite(bounds["value.gradient"]).all()


@pytest.mark.parametrize("scale", [None, 0.0, 1e-3, 100.0])
def test_where_a_product_of_query_and_key_may_overflow_the_row_is_not_judged(scale: float | None) -> None:
    problem = problem_of(case_like("overflow", dtype="float16", scale=scale, data=Data("large", 40.0)))
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert np.isinf(bounds["attn_weights"]).any() and np.isinf(bounds["attn_output"]).any()
    assert np.isfinite(bounds["output_bias.gradient"]).all()


def test_overflow_in_one_row_leaves_the_other_rows_judged() -> None:
    problem = problem_of(case_like("one-row", batch=1, dtype="float16", bias=False))
    query = problem.query.astype(np.float64)
    query[:, 1] = 6e4
    problem = with_numbers(problem, {"query": query, "query_weight": np.full((4, 4), 0.5)})
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert np.isfinite(bounds["attn_output"][0, 0]).all() and np.isinf(bounds["attn_output"][0, 1]).all()


def test_the_accumulator_may_overflow_where_terms_cancel() -> None:
    problem = problem_of(case_like("cancel", batch=1, target_length=1, dtype="float32", bias=False, embed_dim=4))
    cotangent = np.array([[[3e38, -3e38, 3e38, -3e38]]])
    weight = np.ones((4, 4))
    problem = with_numbers(problem, {"cotangent": cotangent, "output_weight": weight})
    bounds = bounds_of(problem.case, reference_of(problem), Policy())
    assert np.isinf(bounds["value.gradient"]).all() and np.isfinite(bounds["attn_output"]).all()


def test_a_large_finite_bias_leaves_the_bound_as_sharp_as_a_mask_does() -> None:
    cases = read_case_file(Path(__file__).parent.parent / "cases" / "additive_bias.yaml")
    (case,) = [one for one in cases if one.name == "large-finite-instead-of-minus-infinity"]
    problem, expectation = expected(case, ENVELOPE)
    assert problem.mask.additive is not None
    assert np.abs(problem.mask.additive).max() > 1e8
    assert all(np.isfinite(bound).all() for bound in expectation.bounds.values())
    assert expectation.bounds["attn_output"].max() < 1e-3
