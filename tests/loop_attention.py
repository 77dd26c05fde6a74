"""Multi-head attention one number at a time, in float64: what the adapters' tests are judged by.

It reads padding, causal and window parts from the case, not from the problem's arrays, so it also checks those.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from conformance.problem import Problem
from conformance.spec import Array, Padding


def with_extra_rows(problem: Problem, name: str, sample: int, kv_head: int) -> list[list[float]]:
    """Projected rows of one key head of one sample, one number at a time, with the appended rows."""
    parameters = problem.parameters.present
    case, array = problem.case, getattr(problem, name)[sample].astype(np.float64)
    width = case.value_head_dim if name == "value" else case.head_dim
    weight = parameters[f"{name}_weight"].astype(np.float64)
    bias = parameters.get(f"{name}_bias", np.zeros(weight.shape[1])).astype(np.float64)
    columns = range(kv_head * width, kv_head * width + width)
    rows = [[math.fsum([*(row * weight[:, column]), bias[column]]) for column in columns] for row in array]
    if name != "query" and case.bias_kv:
        rows.append([float(parameters[f"bias_{name[0]}"][column]) for column in columns])
    if name != "query" and case.zero_attention:
        rows.append([0.0] * width)
    return rows


def may_attend(problem: Problem, at: tuple[int, int, int, int]) -> bool:
    """Read the case, not the dense mask: padding, causal, window, explicit and −inf, one position at a time."""
    case, mask = problem.case, problem.case.mask
    sample, _, target, source = at
    if source >= case.source_length:
        return True
    offset = case.source_length - case.target_length

    def padded(padding: Padding | None, position: int, length: int) -> bool:
        if padding is None:
            return False
        real = padding.lengths[sample]
        return position >= real if padding.side == "right" else position < length - real

    blocked = padded(mask.key_padding, source, case.source_length)
    blocked |= padded(mask.query_padding, target, case.target_length)
    if mask.causal is not None:
        blocked |= source > target + (offset if mask.causal == "bottom-right" else 0)
    if mask.window is not None:
        centre = target + (offset if mask.window.align == "bottom-right" else 0)
        blocked |= not centre - mask.window.before <= source <= centre + mask.window.after
    if mask.explicit is not None:
        blocked |= bool(element(problem.mask.explicit, mask.explicit.axes, at))
    return not blocked and added(problem, at) != -math.inf


def added(problem: Problem, at: tuple[int, int, int, int]) -> float:
    additive = problem.case.mask.additive
    if additive is None or at[3] >= problem.case.source_length:
        return 0.0
    return float(element(problem.mask.additive, additive.axes, at))


def element(array: Array | None, axes: str, at: tuple[int, int, int, int]) -> Any:
    assert array is not None
    place = dict(zip("BHTS", at, strict=True)) | {"1": 0}
    return array[tuple(place[letter] for letter in axes)]


def loop_weights(problem: Problem, sample: int, head: int) -> list[list[float]]:
    case = problem.case
    query = with_extra_rows(problem, "query", sample, head)
    key = with_extra_rows(problem, "key", sample, head * case.num_kv_heads // case.num_heads)
    scale = case.scale if case.scale is not None else case.head_dim**-0.5
    rows = []
    for target, q in enumerate(query):
        scores: dict[int, float] = {}
        for source, k in enumerate(key):
            at = (sample, head, target, source)
            if may_attend(problem, at):
                product = math.fsum(left * right for left, right in zip(q, k, strict=True))
                scores[source] = scale * product + added(problem, at)
        highest = max(scores.values(), default=0.0)
        powers = {source: math.exp(score - highest) for source, score in scores.items()}
        total = math.fsum(powers.values())
        rows.append([powers.get(source, 0.0) / total if powers else 0.0 for source in range(len(key))])
    return rows


def loop_attention(problem: Problem) -> tuple[Array, Array]:
    """Output [B, T, Do] and weights [B, H, T, S + E] in float64."""
    case, parameters = problem.case, problem.parameters.present
    shape = (case.batch, case.num_heads, case.target_length)
    weights = np.zeros((*shape, case.source_length + case.extra_keys))
    aggregate = np.zeros((*shape, case.value_head_dim))
    for sample in range(case.batch):
        for head in range(case.num_heads):
            value = with_extra_rows(problem, "value", sample, head * case.num_kv_heads // case.num_heads)
            rows = loop_weights(problem, sample, head)
            for target, row in enumerate(rows):
                weights[sample, head, target] = row
                for column in range(case.value_head_dim):
                    products = [w * v[column] for w, v in zip(row, value, strict=True)]
                    aggregate[sample, head, target, column] = math.fsum(products)
    rows_of_output = parameters["output_weight"].astype(np.float64).reshape(case.num_heads, case.value_head_dim, -1)
    output = sum(aggregate[:, head] @ rows_of_output[head] for head in range(case.num_heads))
    return output + parameters.get("output_bias", np.zeros(1)).astype(np.float64), weights
