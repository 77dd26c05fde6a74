"""An attention of the tests' own in float64, forward and backward, and what it takes to compare a subject with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case, Source

PRECISION = {"float64": 1e-11, "float32": 3e-5, "float16": 2e-2, "bfloat16": 1.5e-1}


def case_of(**changes: Any) -> Case:
    """A small case; ``size`` is (batch, target, source, embed_dim, heads), widths follow unless they are given."""
    batch, target, source, width, heads = changes.pop("size", (2, 5, 7, 12, 3))
    values: dict[str, Any] = {
        "batch": batch,
        "target_length": target,
        "source_length": source,
        "embed_dim": width,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // max(heads, 1),
        "value_head_dim": width // max(heads, 1),
        "kdim": width,
        "vdim": width,
        "output_dim": width,
    }
    described = repr(sorted(changes.items()))
    return Case(described, "tests", "case", "", Source("tests", 1), **(values | changes))


def inference_case(**changes: Any) -> Case:
    return case_of(size=(2, 6, 6, 12, 2), sharing="self", **changes)


def reference(problem: Problem) -> tuple[Array, Array, dict[str, Array]]:
    """Output, weights and gradients of sum(output · cotangent), in float64 (see :class:`Outputs` for the shapes)."""
    case = problem.case
    wide = {name: array.astype(np.float64) for name, array in problem.parameters.present.items()}
    query, key, value = (array.astype(np.float64) for array in (problem.query, problem.key, problem.value))
    projected = [_project(wide, name, array) for name, array in (("query", query), ("key", key), ("value", value))]
    extra = [wide.get(name) for name in ("bias_k", "bias_v")]
    keys, values = (_extended(case, rows, row) for rows, row in zip(projected[1:], extra, strict=True))
    bias, blocked = _full_mask(problem, keys.shape[1])
    heads, groups = case.num_heads, case.num_heads // case.num_kv_heads
    dh, dhv = case.head_dim, case.value_head_dim
    context = np.zeros((case.batch, case.target_length, heads * dhv))
    weights = np.zeros((case.batch, heads, case.target_length, keys.shape[1]))
    cotangent = problem.cotangent.astype(np.float64)
    d_context = cotangent @ wide["output_weight"].T
    d_query, d_keys, d_values = np.zeros_like(projected[0]), np.zeros_like(keys), np.zeros_like(values)
    for sample in range(case.batch):
        for head in range(heads):
            q = projected[0][sample, :, head * dh : (head + 1) * dh]
            own, own_value = head // groups * dh, head // groups * dhv
            k = keys[sample, :, own : own + dh]
            v = values[sample, :, own_value : own_value + dhv]
            p = _softmax(q @ k.T * case.effective_scale + bias[sample, head], blocked[sample, head])
            weights[sample, head] = p
            columns = slice(head * dhv, (head + 1) * dhv)
            context[sample, :, columns] = p @ v
            d_aggregate = d_context[sample, :, columns]
            d_p = d_aggregate @ v.T
            d_scores = p * (d_p - (p * d_p).sum(-1, keepdims=True)) * case.effective_scale
            d_query[sample, :, head * dh : (head + 1) * dh] = d_scores @ k
            d_keys[sample, :, own : own + dh] += d_scores.T @ q
            d_values[sample, :, own_value : own_value + dhv] += p.T @ d_aggregate
    output = _project({"output_weight": wide["output_weight"], **_bias(wide, "output")}, "output", context)
    source = case.source_length
    gradients = {
        "output_weight": np.einsum("btc,bto->co", context, cotangent),
        "output_bias": cotangent.sum((0, 1)),
        "bias_k": d_keys[:, source].sum(0) if case.bias_kv else None,
        "bias_v": d_values[:, source].sum(0) if case.bias_kv else None,
    }
    totals: dict[str, Array] = {}
    for name, array, found, used in zip(
        ("query", "key", "value"),
        (query, key, value),
        (d_query, d_keys[:, :source], d_values[:, :source]),
        problem.input_names,
        strict=True,
    ):
        gradients[f"{name}_weight"] = np.einsum("bli,blo->io", array, found)
        gradients[f"{name}_bias"] = found.sum((0, 1))
        totals[used] = totals.get(used, 0) + found @ wide[f"{name}_weight"].T
    return output, weights, totals | {name: gradients[name] for name in wide}


def _bias(wide: dict[str, Array], name: str) -> dict[str, Array]:
    return {f"{name}_bias": wide[f"{name}_bias"]} if f"{name}_bias" in wide else {}


def _project(wide: dict[str, Array], name: str, array: Array) -> Array:
    product: Array = array @ wide[f"{name}_weight"]
    return product + wide[f"{name}_bias"] if f"{name}_bias" in wide else product


def _extended(case: Case, rows: Array, row: Array | None) -> Array:
    more = [] if row is None else [np.tile(row, (case.batch, 1, 1))]
    if case.zero_attention:
        more.append(np.zeros((case.batch, 1, rows.shape[2])))
    return np.concatenate([rows, *more], axis=1)


def _full_mask(problem: Problem, keys: int) -> tuple[Array, Array]:
    batch, heads, target, source = problem.mask.shape
    bias, blocked = np.zeros((batch, heads, target, keys)), np.zeros((batch, heads, target, keys), bool)
    if (found := problem.mask.blocked()) is not None:
        blocked[..., :source] |= found
    if (added := problem.mask.bias()) is not None:
        blocked[..., :source] |= np.isneginf(added.astype(np.float64))
        bias[..., :source] = np.where(np.isneginf(added.astype(np.float64)), 0, added.astype(np.float64))
    return bias, blocked


def _softmax(scores: Array, blocked: Array) -> Array:
    weights = np.zeros_like(scores)
    for row, (numbers, hidden) in enumerate(zip(scores, blocked, strict=True)):
        if not hidden.all():
            powers = np.where(hidden, 0, np.exp(numbers - numbers[~hidden].max()))
            weights[row] = powers / powers.sum()
    return weights


def outputs_by_name(outputs: Outputs) -> dict[str, Array]:
    found = {"attn_output": outputs.attn_output, **outputs.gradients}
    return found if outputs.attn_weights is None else found | {"attn_weights": outputs.attn_weights}


def assert_agrees(subject: Any, problem: Problem, relative: float | None = None) -> Outputs:
    """Structure, dtype and numbers of everything the subject promises."""
    case = problem.case
    outputs: Outputs = subject.attend(problem)
    output, weights, gradients = reference(problem)
    expected = {"attn_output": output, **({"attn_weights": weights} if subject.gives_weights else {})}
    if subject.gives_gradients and case.wants_gradients:
        expected |= gradients
    found = outputs_by_name(outputs)
    assert sorted(found) == sorted(expected)
    relative = PRECISION[case.compute] if relative is None else relative
    for name, array in expected.items():
        own = case.compute if name.startswith("attn_") else case.storage
        assert str(found[name].dtype) == own, name
        assert found[name].shape == array.shape, name
        size = max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(found[name].astype(np.float64), array, rtol=0, atol=relative * size, err_msg=name)
    return outputs
