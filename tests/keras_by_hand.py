"""What the tests of the Keras subjects stand on: a plain case, and an attention written out in float64."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from adapters.tf_keras import ADAPTER, KerasMha
from conformance.problem import Outputs, Problem
from conformance.spec import NUMPY_DTYPES, Array, Case, Explicit, Mask, Padding, Source
from conformance.tensors import problem_of

MHA, SCORES, GRAPH, XLA, GQA = "keras/mha", "keras/mha@scores", "keras/mha@graph", "keras/mha@xla", "keras/gqa"
EAGER, DOT_PRODUCT = (MHA, SCORES, GQA), (MHA, GRAPH, XLA, GQA)
PLAIN = Case(
    id="keras-adapter",
    suite="keras-adapter",
    name="keras-adapter",
    why="All lengths differ, so that a wrong broadcast shows; head_dim 4 keeps the scale exact.",
    source=Source("tests/test_adapter_keras.py", 1),
    batch=2,
    target_length=3,
    source_length=5,
    embed_dim=16,
    num_heads=4,
    num_kv_heads=4,
    head_dim=4,
    value_head_dim=4,
    kdim=9,
    vdim=7,
    output_dim=16,
)
SPARSE = Explicit("random", "TS")
PADDED = Mask(key_padding=Padding((5, 2)))
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 0.04, "bfloat16": 0.3}


@cache
def subject(name: str) -> KerasMha:
    made = ADAPTER.subjects[name]()
    assert isinstance(made, KerasMha)
    return made


def attend(name: str, case: Case) -> tuple[Problem, Outputs]:
    assert subject(name).unsupported(case) is None
    problem = problem_of(case)
    return problem, subject(name).attend(problem)


def split(array: Array, heads: int) -> Array:
    """[B, L, heads · width] → [B, heads, L, width], head 0 first."""
    batch, length, width = array.shape
    return array.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def joined(array: Array) -> Array:
    batch, heads, length, width = array.shape
    return array.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def by_hand(problem: Problem) -> dict[str, Array]:
    """Output, weights and gradients in float64, fully blocked rows at 0."""
    case = problem.case
    parameters = {name: array.astype(np.float64) for name, array in problem.parameters.present.items()}
    inputs = {name: getattr(problem, name).astype(np.float64) for name in ("query", "key", "value")}
    heads = {"query": case.num_heads, "key": case.num_kv_heads, "value": case.num_kv_heads}
    groups = case.num_heads // case.num_kv_heads
    query, key, value = (
        split(inputs[name] @ parameters[f"{name}_weight"] + parameters.get(f"{name}_bias", 0), heads[name])
        for name in inputs
    )
    key, value = key.repeat(groups, 1), value.repeat(groups, 1)
    scores = query @ key.swapaxes(2, 3) * case.effective_scale
    blocked = problem.mask.blocked()
    scores = scores if blocked is None else np.where(blocked, -np.inf, scores)
    highest = scores.max(-1, keepdims=True, initial=-1e300)
    exponentials = np.exp(scores - highest)
    total = exponentials.sum(-1, keepdims=True)
    weights = exponentials / np.where(total == 0, 1, total)
    context = joined(weights @ value)
    found = {"output": context @ parameters["output_weight"] + parameters.get("output_bias", 0), "weights": weights}
    upstream = problem.cotangent.astype(np.float64)
    found["output_weight"] = np.einsum("btc,bto->co", context, upstream)
    found["output_bias"] = upstream.sum((0, 1))
    by_context = split(upstream @ parameters["output_weight"].T, case.num_heads)
    by_weights = by_context @ value.swapaxes(2, 3)
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdims=True)) * case.effective_scale
    by_head = {
        "query": by_scores @ key,
        "key": by_scores.swapaxes(2, 3) @ query,
        "value": weights.swapaxes(2, 3) @ by_context,
    }
    for used, name in zip(problem.input_names, inputs, strict=True):
        repeats = 1 if name == "query" else groups
        grouped = by_head[name].reshape(case.batch, heads[name], repeats, *by_head[name].shape[2:])
        projected = joined(grouped.sum(2))
        found[f"{name}_weight"] = np.einsum("bli,blo->io", inputs[name], projected)
        found[f"{name}_bias"] = projected.sum((0, 1))
        found[used] = found.get(used, 0) + projected @ parameters[f"{name}_weight"].T
    return found


def flat(outputs: Outputs) -> Iterator[tuple[str, Array]]:
    yield "output", outputs.attn_output
    if outputs.attn_weights is not None:
        yield "weights", outputs.attn_weights
    yield from outputs.gradients.items()


def assert_right(name: str, case: Case) -> None:
    problem, outputs = attend(name, case)
    expected = by_hand(problem)
    if case.wants_gradients:
        assert set(outputs.gradients) == {*problem.distinct_inputs, *problem.parameters.present}
    for output, array in flat(outputs):
        is_parameter_or_input = output not in ("output", "weights")
        assert array.dtype == NUMPY_DTYPES[case.storage if is_parameter_or_input else case.compute], output
        assert array.shape == expected[output].shape, output
        np.testing.assert_allclose(
            array.astype(np.float64), expected[output], 0, TOLERANCE[case.compute], err_msg=output
        )
