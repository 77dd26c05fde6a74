"""Every term of the bound is needed: without it, some correct implementation exceeds what is left.

Each test answers a problem built for one term. The whole bound contains the answer; the bound with that one term taken
out does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.bounds import backward as bounds_backward
from conformance.bounds import forward as bounds_forward
from conformance.bounds import running_error
from conformance.bounds.running_error import Pair, Rules, exact
from conformance.policy import Format, Policy
from conformance.problem import Problem
from conformance.spec import Array, Data, Literals
from conformance.tensors import problem_of
from tests.drawn_problems import case_like, with_numbers
from tests.rounding_attention import Choices
from tests.test_bounds import answer, ratios

PRECISE = Policy(flash=False, exponential_units=2.0)
product, scaled = Rules.product, Rules.scaled


def judge(problem: Problem, choices: Choices, policy: Policy, name: str) -> Callable[[], float]:
    """Largest ratio of one output under the bound as it then is."""
    outputs = answer(problem, choices, np.random.default_rng(3))
    return lambda: float(ratios(problem, {name: outputs[name]}, policy)[name].max())


def without_inherited(self: Rules, left: Pair, right: Pair, *rest: Any, **named: Any) -> Pair:
    return product(self, exact(left.value), exact(right.value), *rest, **named)


def without_addend(self: Rules, *operands: Any, addend: Pair | None = None, **named: Any) -> Pair:
    result = product(self, *operands, **named)
    return result if addend is None else Pair(result.value, result.error + addend.error)


def without_pooled_terms(self: Rules, *operands: Any, terms: Array | None = None, **named: Any) -> Pair:
    return product(self, *operands, **named)


def hull_alone(rules: Rules, weights: Array, hull: Array, *rest: Any) -> Array:
    return hull


def zeros_of_first(weights: Array, *rest: Any) -> Array:
    return np.zeros(weights.shape)


def no_rebuilding(rules: Rules, weights: Array, *rest: Any) -> Array:
    return np.zeros(weights.shape)


def no_row_sum(self: Any, weights: Pair, *rest: Any) -> Array:
    return np.zeros((*weights.value.shape[:-1], 1))


def long_sums() -> tuple[Problem, Choices, Policy, str]:
    """Two hundred positive terms, one after another, in float32."""
    problem = problem_of(case_like("long", batch=8, target_length=25, data=Data("coherent")))
    return problem, Choices(), PRECISE, "output_bias.gradient"


def stored_gradient() -> tuple[Problem, Choices, Policy, str]:
    return problem_of(case_like("stored", dtype="bfloat16")), Choices(), PRECISE, "output_bias.gradient"


def stored_context() -> tuple[Problem, Choices, Policy, str]:
    """The output inherits the rounding of a context that is stored in 16 bits."""
    problem = problem_of(case_like("context", dtype="float16", embed_dim=64, num_heads=8, head_dim=8))
    return problem, Choices(), PRECISE, "output_weight.gradient"


def large_scores() -> tuple[Problem, Choices, Policy, str]:
    problem = problem_of(case_like("scores", dtype="bfloat16", embed_dim=16, head_dim=8, data=Data("normal", 3.0)))
    return problem, Choices(), PRECISE, "attn_weights"


def many_keys() -> tuple[Problem, Choices, Policy, str]:
    """A sum that starts from exp(0) = 1 and loses three hundred powers of just under half its last place."""
    sizes = {"batch": 1, "target_length": 1, "source_length": 301, "embed_dim": 1, "num_heads": 1, "head_dim": 1}
    problem = problem_of(case_like("keys", bias=False, **sizes))
    key = np.full((1, 301, 1), np.log(0.9 * 2.0**-24))
    key[0, 0] = 0
    numbers = {"query": [[[1.0]]], "key": key, "query_weight": [[1.0]], "key_weight": [[1.0]]}
    return with_numbers(problem, numbers), Choices(), PRECISE, "attn_weights"


def rough_exponential() -> tuple[Problem, Choices, Policy, str]:
    problem = problem_of(case_like("exp", source_length=8, data=Data("normal", 0.1)))
    return problem, Choices(exponential="scattered"), Policy(flash=False), "attn_weights"


def saturated_flash_row() -> tuple[Problem, Choices, Policy, str]:
    """One score of 1000 and one seven lower: the weights are certain, and rebuilt from a log-sum of 1000.0009."""
    numbers = {"query": [[[1.0]]], "key": [[[1000.3], [993.4]]], "value": [[[1.0], [2.0]]], "cotangent": [[[1.0]]]}
    weights = {f"{name}_weight": [[1.0]] for name in ("query", "key", "value", "output")}
    sizes = {"batch": 1, "target_length": 1, "source_length": 2, "embed_dim": 1, "num_heads": 1, "head_dim": 1}
    literals = Literals(given=tuple({**numbers, **weights}.items()))
    case = case_like("flash", bias=False, data=Data("literal"), literals=literals, **sizes)
    choices = Choices(kernel="flash", exponential="high", stores="none")
    return problem_of(case), choices, Policy(exponential_units=30.5, rescalings=0), "value.gradient"


def two_keys_alike() -> tuple[Problem, Choices, Policy, str]:
    """Two keys of weight 1/2 and gradients of the weights that are large and nearly equal."""
    case = case_like("halves", batch=1, source_length=2, dtype="bfloat16", embed_dim=8, head_dim=4, bias=False)
    problem = problem_of(case)
    value = 30 + problem.value[:, :1].astype(np.float64) * np.array([[[1.0], [1.01]]])
    numbers = {"query": problem.query.astype(np.float64) * 1e-3, "value": value, "cotangent": np.abs(problem.cotangent)}
    weights = {"value_weight": np.full((8, 8), 0.3), "output_weight": np.full((8, 8), 0.3)}
    return with_numbers(problem, numbers | weights), Choices(), PRECISE, "key.gradient"


def bias_first() -> tuple[Problem, Choices, Policy, str]:
    """An accumulator that starts from a bias of 1 loses all of 64 products of just under half its last place."""
    problem = problem_of(case_like("bias", embed_dim=4, num_heads=8, head_dim=8, data=Data("coherent")))
    numbers = {
        "value_weight": np.zeros((4, 64)),
        "value_bias": np.ones(64),
        "output_weight": np.full((64, 4), 0.9 * 2.0**-24),
        "output_bias": np.ones(4),
    }
    return with_numbers(problem, numbers), Choices(bias="first"), PRECISE, "attn_output"


def grouped_heads() -> tuple[Problem, Choices, Policy, str]:
    """One sum over the 32 queries of eight heads: a first term of 1, then 255 of just under half its last place."""
    sizes = {"batch": 1, "target_length": 32, "source_length": 1, "num_heads": 8, "head_dim": 1, "embed_dim": 1}
    problem = problem_of(case_like("group", num_kv_heads=1, output_dim=2, bias=False, **sizes))
    cotangent, output_weight = np.zeros((1, 32, 2)), np.zeros((8, 2))
    cotangent[0, 0, 0] = output_weight[0, 0] = 1
    cotangent[..., 1], output_weight[:, 1] = 0.9 * 2.0**-24, 1
    numbers = {"cotangent": cotangent, "output_weight": output_weight, "value_weight": np.ones((1, 1))}
    return with_numbers(problem, numbers), Choices(sums="together"), PRECISE, "value.gradient"


def tiny_scaled_query() -> tuple[Problem, Choices, Policy, str]:
    """c · query is a subnormal number of float16, and keys are large enough to show its last place."""
    problem = problem_of(case_like("steps", dtype="float16", head_dim=8, embed_dim=4, scale=1e-3, bias=False))
    weights = {"query_weight": np.abs(problem.parameters.query_weight) * 4e-3}
    weights["key_weight"] = problem.parameters.key_weight.astype(np.float64) * 2e4
    return with_numbers(problem, weights), Choices(scale="query"), PRECISE, "attn_weights"


def subnormal_input() -> tuple[Problem, Choices, Policy, str]:
    """Inputs that hardware may read as 0, times weights that make them normal numbers."""
    problem = problem_of(case_like("read", data=Data("subnormal", 0.1), bias=False))
    weight = problem.parameters.value_weight * np.float32(1e30)
    return with_numbers(problem, {"value_weight": weight}), Choices(subnormal="flushed"), PRECISE, "attn_output"


def flushed_output() -> tuple[Problem, Choices, Policy, str]:
    problem = problem_of(case_like("flush", data=Data("subnormal"), bias=False))
    return problem, Choices(subnormal="flushed"), PRECISE, "attn_output"


def no_roundoff(self: Rules, arithmetic: Format) -> float:
    return 0.0


TERMS: dict[str, tuple[Callable[[], tuple[Problem, Choices, Policy, str]], Any, str, Any]] = {
    "rounding of a store": (stored_gradient, running_error, "half_ulp", lambda magnitude, _: np.zeros(magnitude.shape)),
    "rounding of sums": (long_sums, Rules, "roundoff", no_roundoff),
    "error of operands": (stored_context, Rules, "product", without_inherited),
    "error of scores": (large_scores, bounds_forward, "softmax_hull", zeros_of_first),
    "rounding of the sum of powers": (many_keys, bounds_forward, "normalised", hull_alone),
    "error of exp": (rough_exponential, bounds_forward.ForwardGraph, "exponential", lambda *_: 0.0),
    "weights rebuilt from a log-sum": (saturated_flash_row, bounds_backward, "rebuilt_weights", no_rebuilding),
    "error of the row sum": (two_keys_alike, bounds_backward.BackwardGraph, "row_sum_error", no_row_sum),
    "a bias in the accumulator": (bias_first, Rules, "product", without_addend),
    "one sum over grouped heads": (grouped_heads, Rules, "product", without_pooled_terms),
    "subnormal steps of c · query": (tiny_scaled_query, bounds_forward.ForwardGraph, "holdings", lambda *_: ()),
    "inputs read as 0": (subnormal_input, Rules, "given", lambda _, value: exact(value)),
    "results flushed to 0": (flushed_output, Format, "flushes", property(lambda _: False)),
}


@pytest.mark.parametrize("term", TERMS)
def test_without_this_term_the_bound_fails(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, owner, name, weaker = TERMS[term]
    ratio = judge(*build())
    whole = ratio()
    monkeypatch.setattr(owner, name, weaker)
    assert 0 < whole <= 1 < ratio()
