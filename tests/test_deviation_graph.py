"""Standard deviations of whole problems, against attention that rounds after every operation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from conformance.deviations.graph import deviations_of
from conformance.deviations.rules import LIMIT
from conformance.expectation import Answer
from conformance.measure import measures_of
from conformance.policy import FORMATS, Policy
from conformance.problem import Problem
from conformance.reference import reference_of
from conformance.spec import Array, Data, Explicit, Mask, Padding
from conformance.tensors import problem_of
from tests.drawn_problems import case_like, drawn_problem, with_numbers
from tests.rounding_attention import Choices
from tests.rounding_gradients import RoundingGradients

RUNS = 150  # problems of each format
LARGEST = 5.0  # rms(error/σ) of a correct implementation
ENOUGH = 600  # outputs with statistics
PLAIN = Policy(flash=False, exponential_units=4)


def sizes(problem: Problem, choices: Choices, policy: Policy, random: np.random.Generator) -> dict[str, float]:
    """rms(error/σ) of each output that has statistics."""
    expectation = Answer.of(problem).under(policy)
    with np.errstate(all="ignore"):
        outputs = RoundingGradients(problem, choices, random).outputs()
    return {one.output: one.rms for one in measures_of(expectation, outputs) if one.rms is not None}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_correct_implementation_strays_from_the_statistics(dtype: str) -> None:
    random = np.random.default_rng([8, *dtype.encode()])
    judged = 0
    for _ in range(RUNS):
        problem = drawn_problem(random, dtype)
        if problem is None:
            continue
        choices = Choices.drawn(random, arithmetic="wide", exponential="exact")
        policy = Policy(flash=choices.kernel == "flash", exponential_units=2)
        for name, size in sizes(problem, choices, policy, random).items():
            assert size <= LARGEST < LIMIT, (name, size, problem.case, choices)
            judged += 1
    assert judged >= ENOUGH


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_ordinary_rounding_is_as_large_as_the_deviation(dtype: str) -> None:
    random = np.random.default_rng(7)
    found: dict[str, list[float]] = defaultdict(list)
    for seed in range(8):
        problem = problem_of(case_like(f"plain-{seed}", dtype=dtype, source_length=24, target_length=12, embed_dim=16))
        policy = Policy(flash=False, scale="wide", exponential_units=1)
        for name, size in sizes(problem, Choices(), policy, random).items():
            found[name].append(size)
    assert len(found) == 13
    for name, each in found.items():
        assert 0.15 < float(np.median(each)) < 1.5, (name, each)


def repeated_numbers(problem: Problem) -> Iterator[tuple[str, dict[str, Array]]]:
    """Data that roundings do not average out on."""
    query, key, value, cotangent = (
        getattr(problem, name).astype(np.float64) for name in ("query", "key", "value", "cotangent")
    )
    constant = {"cotangent": np.full(cotangent.shape, 0.1)}
    same_value = {"value": np.broadcast_to(value[:, :1], value.shape)}
    yield "equal cotangents", constant
    yield "equal queries", {"query": np.broadcast_to(query[:, :1], query.shape)} | constant
    yield "equal values", same_value | constant
    yield "equal keys", {"key": np.broadcast_to(key[:, :1], key.shape)}
    quarter = np.minimum(np.arange(key.shape[1]), key.shape[1] * 3 // 4)
    yield "padding that is not masked", {"key": key[:, quarter], "value": value[:, quarter]}
    half = np.arange(key.shape[1]) // 2
    yield "each token twice", {"key": key[:, half], "value": value[:, half]}
    offset = {"value": value * 1e-2 + 10, "cotangent": np.abs(cotangent) + 0.5}
    yield "one sign", offset
    yield "small keys, one sign", offset | {"key": np.abs(key) * 1e-5}


@pytest.mark.parametrize("lengths", [(3, 520), (260, 3), (48, 48)])
@pytest.mark.parametrize("choices", [Choices(), Choices(kernel="flash")], ids=["plain", "flash"])
def test_data_that_repeat_raise_no_false_alarm(lengths: tuple[int, int], choices: Choices) -> None:
    target, source = lengths
    case = case_like("long", batch=1, target_length=target, source_length=source, embed_dim=8, head_dim=4)
    problem, random = problem_of(case), np.random.default_rng(3)
    policy = Policy(flash=choices.kernel == "flash", exponential_units=4)
    for label, numbers in repeated_numbers(problem):
        for name, size in sizes(with_numbers(problem, numbers), choices, policy, random).items():
            assert size <= LARGEST, (label, name, size)


@pytest.mark.parametrize("regime", ["coherent", "equal"])
def test_rows_whose_weights_repeat_leave_the_statistics(regime: str) -> None:
    case = case_like("repeat", source_length=9, target_length=4, data=Data(regime))  # type: ignore[arg-type]
    deviations = deviations_of(case, reference_of(problem_of(case)), PLAIN)
    assert np.isinf(deviations["attn_weights"]).all() and np.isinf(deviations["value_weight.gradient"]).all()
    assert np.isfinite(deviations["output_bias.gradient"]).all()


def test_rows_whose_scores_are_uncertain_leave_the_statistics_alone() -> None:
    problem = problem_of(case_like("uncertain", batch=1, dtype="bfloat16"))
    query = problem.query.astype(np.float64)
    query[:, 1] *= 300
    problem = with_numbers(problem, {"query": query})
    deviations = deviations_of(problem.case, reference_of(problem), PLAIN)
    assert np.isinf(deviations["attn_output"][:, 1]).all() and np.isfinite(deviations["attn_output"][:, [0, 2]]).all()


def test_what_is_exactly_zero_has_no_deviation() -> None:
    mask = Mask(explicit=Explicit("rows", "TS", indices=(1,)), key_padding=Padding((2, 4)))
    problem = problem_of(case_like("zero", dtype="float32", mask=mask))
    deviations = deviations_of(problem.case, reference_of(problem), PLAIN)
    assert (deviations["attn_weights"][:, :, 1] == 0).all() and (deviations["attn_weights"][0, :, :, 2:] == 0).all()
    assert (deviations["query.gradient"][:, 1] == 0).all() and (deviations["value.gradient"][0, 2:] == 0).all()
    assert (deviations["value.gradient"][1] > 0).all()


def test_a_deviation_is_smaller_than_its_bound() -> None:
    problem = problem_of(case_like("smaller", dtype="float32", source_length=16, target_length=8))
    expectation = Answer.of(problem).under(PLAIN)
    for name, bound in expectation.bounds.items():
        if name != "key_bias.gradient":
            assert (expectation.deviations[name] < bound).mean() > 0.99, name


def test_a_softmax_in_float32_widens_the_deviations_of_float64() -> None:
    problem = problem_of(case_like("core", dtype="float64"))
    narrow = Policy(softmax="float32", softmax_gradient="float32", flash=False)
    reference = reference_of(problem)
    wide, own = (deviations_of(problem.case, reference, policy) for policy in (narrow, PLAIN))
    assert (wide["attn_weights"] > 1e6 * own["attn_weights"]).all()
    assert wide["attn_weights"].max() < 100 * FORMATS["float32"].unit_roundoff


def test_what_a_flash_kernel_rebuilds_is_less_certain() -> None:
    problem = problem_of(case_like("flash", dtype="float32", data=Data("normal", 4.0)))
    reference = reference_of(problem)
    plain, flash = (
        deviations_of(problem.case, reference, Policy(flash=flash, exponential_units=4, rescalings=0))
        for flash in (False, True)
    )
    np.testing.assert_allclose(plain["output_weight.gradient"], flash["output_weight.gradient"], rtol=0.5)
    assert (flash["query.gradient"] > plain["query.gradient"]).mean() > 0.9
