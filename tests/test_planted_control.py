"""The control of the planted faults against a float64 loop written apart from it, and against central differences."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.problem import Problem
from conformance.spec import NUMPY_DTYPES, Additive, Array, Case, Explicit, Mask, Padding, Source
from conformance.tensors import problem_of
from tests.planted import CONTROL

PLAIN = Case(
    id="planted-control",
    suite="planted",
    name="control",
    why="The control must be right before its faults mean anything.",
    source=Source("tests/test_planted_control.py", 1),
    batch=2,
    target_length=3,
    source_length=5,
    embed_dim=6,
    num_heads=4,
    num_kv_heads=4,
    head_dim=3,
    value_head_dim=2,
    kdim=5,
    vdim=7,
    output_dim=4,
    dtype="float64",
)
CASES = {
    "no-mask": PLAIN,
    "no-bias": replace(PLAIN, bias=False, scale=0.3),
    "padding-and-causal": replace(PLAIN, mask=Mask(key_padding=Padding((5, 2), "left"), causal="top-left")),
    "bottom-right": replace(PLAIN, mask=Mask(causal="bottom-right")),
    "blocked-sample": replace(PLAIN, mask=Mask(key_padding=Padding((0, 3)))),
    "minus-inf": replace(PLAIN, mask=Mask(additive=Additive("BHTS", 1.0, Explicit("rows", "BHTS", indices=(1,))))),
    "per-head": replace(PLAIN, mask=Mask(explicit=Explicit("random", "BHTS"), additive=Additive("1HTS"))),
    "grouped": replace(PLAIN, num_kv_heads=2, mask=Mask(causal="bottom-right")),
    "extra-keys": replace(PLAIN, num_kv_heads=2, bias_kv=True, zero_attention=True, mask=Mask(causal="top-left")),
    "no-keys": replace(PLAIN, source_length=0),
    "no-queries": replace(PLAIN, target_length=0),
    "self": replace(PLAIN, source_length=3, kdim=6, vdim=6, sharing="self", mask=Mask(causal="top-left")),
    "key-value": replace(PLAIN, kdim=5, vdim=5, sharing="key-value"),
}
MANY = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])


def loop(problem: Problem) -> tuple[Array, Array]:
    """Output [B, T, Do] and weights [B, H, T, S + E], one score at a time, in Python floats."""
    case, shape = problem.case, problem.mask.shape
    heads_of = {name: _heads(problem, name) for name in ("query", "key", "value")}
    blocked, bias = problem.mask.blocked(), problem.mask.bias()
    forbidden = np.zeros(shape, bool) if blocked is None else np.broadcast_to(blocked, shape)
    added = np.zeros(shape) if bias is None else np.broadcast_to(bias, shape)
    scale = 1 / math.sqrt(case.head_dim) if case.scale is None else case.scale
    weights = np.zeros((*shape[:3], shape[3] + case.extra_keys))
    context = np.zeros((shape[0], shape[2], case.num_heads * case.value_head_dim))
    for b, h, t in np.ndindex(shape[:3]):
        shared = h // (case.num_heads // case.num_kv_heads)
        query, keys, values = (heads_of["query"][b][h][t], heads_of["key"][b][shared], heads_of["value"][b][shared])
        powers = []
        for s, key in enumerate(keys):
            own = s >= shape[3]
            total = sum(float(x) * float(y) for x, y in zip(query, key, strict=True)) * scale
            score = total if own else (-math.inf if forbidden[b, h, t, s] else total + float(added[b, h, t, s]))
            powers.append(math.exp(score))
        if sum(powers) > 0:
            weights[b, h, t] = np.array(powers) / sum(powers)
        for s, value in enumerate(values):
            context[b, t, h * case.value_head_dim : (h + 1) * case.value_head_dim] += weights[b, h, t, s] * value
    output = context @ problem.parameters.output_weight
    return (output if problem.parameters.output_bias is None else output + problem.parameters.output_bias, weights)


def _heads(problem: Problem, name: str) -> list[list[list[Array]]]:
    """Projected rows as nested lists: sample, head, position; the extra rows come last."""
    case, parameters = problem.case, problem.parameters
    count = case.num_heads if name == "query" else case.num_kv_heads
    width = case.value_head_dim if name == "value" else case.head_dim
    projected = getattr(problem, name) @ parameters.present[f"{name}_weight"]
    projected = projected + parameters.present.get(f"{name}_bias", np.zeros(count * width))
    learnt = None if name == "query" else parameters.present.get("bias_k" if name == "key" else "bias_v")
    extra: list[Array] = [] if learnt is None else [learnt]
    if case.zero_attention and name != "query":
        extra.append(np.zeros(count * width))
    return [
        [[row[h * width : (h + 1) * width] for row in [*sample, *extra]] for h in range(count)] for sample in projected
    ]


def moved(problem: Problem, name: str, array: Array) -> Problem:
    """The problem with one input, or one parameter, replaced; shared inputs stay shared."""
    if name in problem.parameters.present:
        return replace(problem, parameters=replace(problem.parameters, **{name: array}))
    roles = [role for role, owner in zip(("query", "key", "value"), problem.input_names, strict=True) if owner == name]
    changed: dict[str, Any] = dict.fromkeys(roles, array)
    return replace(problem, **changed)


def loss(problem: Problem) -> float:
    """The scalar whose gradients a case asks for."""
    return float((CONTROL().attend(problem).attn_output * problem.cotangent).sum())


@MANY
def test_forward_equals_the_loop(case: Case) -> None:
    problem = problem_of(case)
    found = CONTROL().attend(problem)
    output, weights = loop(problem)
    assert found.attn_weights is not None
    np.testing.assert_allclose(found.attn_output, output, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(found.attn_weights, weights, rtol=1e-11, atol=1e-12)
    assert ((weights == 0) == (found.attn_weights == 0)).all()


@MANY
def test_gradients_equal_central_differences(case: Case) -> None:
    problem = problem_of(case)
    found = CONTROL().attend(problem).gradients
    owners = {**problem.distinct_inputs, **problem.parameters.present}
    assert set(found) == set(owners)
    step = 1e-5
    for name, array in owners.items():
        assert found[name].shape == array.shape
        direction = np.random.default_rng(len(name)).standard_normal(array.shape)
        ends = [loss(moved(problem, name, array + sign * step * direction)) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((found[name] * direction).sum(), slope, rtol=1e-7, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
def test_low_precision_comes_back_in_the_compute_format(dtype: Any) -> None:
    case = replace(PLAIN, dtype=dtype, mask=Mask(key_padding=Padding((0, 3))))
    problem = problem_of(case)
    found = CONTROL().attend(problem)
    assert found.attn_weights is not None
    assert found.attn_output.dtype == found.attn_weights.dtype == NUMPY_DTYPES[case.compute]
    assert not found.attn_weights[0].astype(np.float64).any()
    output, _ = loop(_widened(problem))
    tolerance = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}[case.compute]
    np.testing.assert_allclose(found.attn_output.astype(np.float64), output, atol=tolerance, rtol=0)
    for name, gradient in found.gradients.items():
        assert gradient.dtype == NUMPY_DTYPES[case.storage], name
        assert np.isfinite(gradient.astype(np.float64)).all(), name


def _widened(problem: Problem) -> Problem:
    wide = {name: array.astype(np.float64) for name, array in problem.parameters.present.items()}
    inputs = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "value")}
    return replace(problem, parameters=replace(problem.parameters, **wide), **inputs)


@pytest.mark.parametrize(
    ("fault", "mask"),
    [
        ("value-longer-than-key", Mask()),
        ("key-longer-than-value", Mask()),
        ("query-width", Mask()),
        ("embed-dim-not-divisible", Mask()),
        ("integer-mask", Mask(explicit=Explicit("random", "TS"))),
        ("mask-target-too-long", Mask(explicit=Explicit("random", "TS"))),
        ("mask-source-too-long", Mask(explicit=Explicit("random", "BHTS"))),
        ("padding-mask-as-attention-mask", Mask(key_padding=Padding((5, 2)))),
        ("padding-mask-wrong-batch", Mask(key_padding=Padding((5, 2)))),
        ("batch-mismatch", Mask()),
        ("key-width", Mask()),
        ("query-rank", Mask()),
        ("key-rank", Mask()),
        ("mixed-dtypes", Mask()),
        ("mask-heads", Mask(explicit=Explicit("random", "BHTS"))),
        ("mask-batch", Mask(explicit=Explicit("random", "BHTS"))),
    ],
)
def test_ill_formed_calls_raise(fault: Any, mask: Mask) -> None:
    with pytest.raises(ValueError, match=r"positions|width|shape|heads|Boolean|batch|axes|its weight"):
        CONTROL().attend(problem_of(replace(PLAIN, ill_formed=fault, mask=mask)))
