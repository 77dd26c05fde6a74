"""Where the JAX subjects are known to leave the contract, pinned exactly: a change here is news for the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.numpy_reference import NumpyReference
from conformance.spec import Additive, Case, Explicit, Mask, Padding
from conformance.tensors import problem_of
from conformance.vocabulary import IllFormed
from tests.test_adapter_jax import COMPILED, FLOAT32, JIT, PLAIN, TEXTBOOK, agrees, subject

pytest.importorskip("jax")

BLOCKED_SAMPLE = replace(PLAIN, mask=Mask(key_padding=Padding((0, 3))))


@COMPILED
@pytest.mark.parametrize("route", ["native", "dense"])
def test_a_blocked_sample_attends_uniformly_and_leaks_into_value_gradients(name: str, route: Any) -> None:
    problem = problem_of(replace(BLOCKED_SAMPLE, mask_route=route))
    actual, right = subject(name).attend(problem), NumpyReference().attend(problem)
    parameters, value = problem.parameters, problem.value[0] @ problem.parameters.value_weight
    uniform = (value + parameters.value_bias).mean(axis=0) @ parameters.output_weight + parameters.output_bias
    np.testing.assert_allclose(actual.attn_output[0], np.broadcast_to(uniform, (3, 6)), atol=FLOAT32)
    np.testing.assert_allclose(actual.attn_output[1], right.attn_output[1], atol=FLOAT32)
    assert (right.gradients["value"][0] == 0).all() and (actual.gradients["value"][0] != 0).all()
    assert (actual.gradients["query"][0] == 0).all() and (actual.gradients["key"][0] == 0).all()


@COMPILED
def test_a_row_of_minus_inf_is_nan_and_poisons_every_parameter_gradient(name: str) -> None:
    case = replace(PLAIN, mask=Mask(additive=Additive("TS", 1.0, Explicit("rows", "TS", indices=(1,)))))
    actual = subject(name).attend(problem_of(case))
    assert np.isnan(actual.attn_output[:, 1]).all() and np.isfinite(actual.attn_output[:, [0, 2]]).all()
    for gradient_name, gradient in actual.gradients.items():
        if gradient_name.endswith(("_weight", "key_bias", "query_bias", "value_bias")):
            assert np.isnan(gradient).all(), gradient_name
    assert np.isnan(actual.gradients["key"]).all() and np.isnan(actual.gradients["value"]).all()
    assert np.isfinite(actual.gradients["query"][:, [0, 2]]).all()


@COMPILED
def test_booleans_and_minus_inf_together_attend_uniformly_to_what_the_booleans_block(name: str) -> None:
    by_bias = Additive("TS", 1.0, Explicit("keys", "TS", indices=(0, 1)))
    problem = problem_of(replace(PLAIN, mask=Mask(key_padding=Padding((2, 5)), additive=by_bias), check=("output",)))
    parameters, value = problem.parameters, problem.value[0, 2:] @ problem.parameters.value_weight
    uniform = (value + parameters.value_bias).mean(axis=0) @ parameters.output_weight + parameters.output_bias
    actual = subject(name).attend(problem).attn_output[0]
    np.testing.assert_allclose(actual, np.broadcast_to(uniform, (3, 6)), atol=FLOAT32)


def test_query_lengths_give_exact_zeros_where_a_mask_gives_uniform_rows() -> None:
    case = replace(PLAIN, mask=Mask(query_padding=Padding((2, 0))))
    problem = problem_of(case)
    agrees(subject(JIT).attend(problem), NumpyReference().attend(problem), FLOAT32)
    by_mask = subject(JIT).attend(replace(problem, case=replace(case, mask_route="dense")))
    assert np.abs(by_mask.attn_output[1] - problem.parameters.output_bias).max() > 0.01


def test_float64_is_only_as_accurate_as_float32() -> None:
    problem = problem_of(replace(PLAIN, dtype="float64", check=("output",)))
    error = np.abs(subject(JIT).attend(problem).attn_output - NumpyReference().attend(problem).attn_output).max()
    assert 1e-9 < error < 1e-5


def test_float16_raises_under_jit() -> None:
    with pytest.raises(ValueError, match="'F16_F16_F32' is not supported by dot_general on CPU"):
        subject(JIT).attend(problem_of(replace(PLAIN, dtype="float16", check=("output",))))


def sized(target: int, source: int, width: int, heads: int = 1) -> Case:
    """One sample, one key head."""
    return replace(
        PLAIN,
        batch=1,
        num_heads=heads,
        num_kv_heads=1,
        target_length=target,
        source_length=source,
        head_dim=width,
        value_head_dim=width,
        dtype="bfloat16",
        check=("output",),
    )


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 1, 2), (1, 3, 1), (3, 1, 1), (1, 1, 1, 2)])
def test_bfloat16_products_with_two_axes_of_size_one_raise_under_jit(sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="ALG_DOT_BF16_BF16_F32"):
        subject(JIT).attend(problem_of(sized(*sizes)))


@pytest.mark.parametrize("sizes", [(1, 2, 2), (2, 1, 2), (2, 2, 1)])
def test_bfloat16_products_with_one_axis_of_size_one_do_not(sizes: tuple[int, ...]) -> None:
    problem = problem_of(sized(*sizes))
    agrees(subject(JIT).attend(problem), NumpyReference().attend(problem), 3e-2)


SQUARE = replace(PLAIN, kdim=8, vdim=8, output_dim=8, mask=Mask(explicit=Explicit("random")), check=("output",))
PADDED = replace(SQUARE, mask=Mask(key_padding=Padding((5, 2))))
FOUR_AXES = replace(SQUARE, mask=Mask(explicit=Explicit("random", "BHTS")))
ILL_FORMED: list[tuple[IllFormed, Case, tuple[str, ...]]] = [  # the fault, a case, and who accepts it
    ("value-longer-than-key", SQUARE, ()),
    ("key-longer-than-value", SQUARE, ()),
    ("value-longer-than-key", replace(SQUARE, source_length=1), (TEXTBOOK,)),
    ("embed-dim-not-divisible", replace(SQUARE, num_heads=3, num_kv_heads=3), ()),
    ("zero-heads", replace(SQUARE, num_heads=0, num_kv_heads=0), ()),
    ("mask-target-too-long", SQUARE, ()),
    ("mask-source-too-long", SQUARE, ()),
    ("mask-source-too-long", replace(SQUARE, source_length=1), (JIT, TEXTBOOK)),
    ("integer-mask", SQUARE, (TEXTBOOK,)),
    ("mask-rank-1", SQUARE, (JIT, TEXTBOOK)),
    ("padding-mask-as-attention-mask", PADDED, ()),
    ("padding-mask-as-attention-mask", replace(PADDED, batch=1, mask=Mask(key_padding=Padding((3,)))), (JIT, TEXTBOOK)),
    ("padding-mask-wrong-batch", PADDED, ()),
    ("query-width", SQUARE, ()),
    ("key-width", SQUARE, ()),
    ("batch-mismatch", SQUARE, ()),
    ("query-rank", SQUARE, ()),
    ("key-rank", SQUARE, ()),
    ("mixed-dtypes", SQUARE, (TEXTBOOK,)),
    ("mask-heads", FOUR_AXES, ()),
    ("mask-batch", FOUR_AXES, ()),
    ("heads-not-divisible-by-kv-heads", replace(SQUARE, num_heads=4, head_dim=2, value_head_dim=2, num_kv_heads=3), ()),
]


@COMPILED
@pytest.mark.parametrize(
    ("fault", "case", "accepted_by"), ILL_FORMED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_ill_formed_calls_reach_jax_as_they_are(
    fault: IllFormed, case: Case, accepted_by: tuple[str, ...], name: str
) -> None:
    problem = problem_of(replace(case, ill_formed=fault))
    if name in accepted_by:
        assert subject(name).attend(problem).attn_output.shape == (case.batch, 3, 8)
    else:
        with pytest.raises((ValueError, TypeError, AssertionError)):
            subject(name).attend(problem)
