"""The JAX subjects against the NumPy ones, and the divergences that are known of them, each pinned as it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from adapters.jax_masks import jax_mask, may_attend
from adapters.jax_nn import ADAPTER, Textbook
from adapters.numpy_reference import NumpyReference
from conformance.adapter import Subject
from conformance.spec import (
    NUMPY_DTYPES,
    Additive,
    Array,
    Case,
    Check,
    Explicit,
    IllFormed,
    Mask,
    Outputs,
    Padding,
    Source,
    Window,
)
from conformance.tensors import problem_of

pytest.importorskip("jax")

FLOAT32 = 1e-5  # 170 roundoffs; a wrong head order, mask, or a scale off by 1 % shows at 1e-3 and above
JIT, EAGER, TEXTBOOK = "jax/dpa@jit", "jax/dpa", "jax/textbook"
PLAIN = Case(
    id="jax-adapter",
    suite="jax-adapter",
    name="jax-adapter",
    why="All sizes differ, so that a wrong broadcast shows.",
    source=Source("tests/test_adapter_jax.py", 1),
    batch=2,
    target_length=3,
    source_length=5,
    embed_dim=8,
    num_heads=4,
    num_kv_heads=4,
    head_dim=2,
    value_head_dim=2,
    kdim=9,
    vdim=7,
    output_dim=6,
)
ALL_PARTS = Mask(
    key_padding=Padding((5, 4)),
    causal="top-left",
    window=Window(2, 0),
    explicit=Explicit("literal", values=((0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 1, 0, 0, 0))),
    additive=Additive("BTS"),
)
FORWARD: dict[str, Case] = {
    name: replace(case, check=("output", "weights"))
    for name, case in {
        "two-axes": replace(PLAIN, mask=Mask(explicit=Explicit("random"))),
        "batch-by-three-axes-where-batch-is-heads": replace(
            PLAIN, batch=4, mask=Mask(explicit=Explicit("random", "BTS"))
        ),
        "per-head-bias": replace(PLAIN, mask=Mask(additive=Additive("1HTS"))),
        "causal-bottom-right": replace(PLAIN, mask=Mask(causal="bottom-right")),
        "causal-top-left-short-source": replace(PLAIN, target_length=5, source_length=3, mask=Mask(causal="top-left")),
        "window-top-left": replace(PLAIN, mask=Mask(window=Window(1, 2))),
        "window-bottom-right": replace(PLAIN, mask=Mask(window=Window(1, 0, "bottom-right"))),
        "padding-left": replace(PLAIN, mask=Mask(key_padding=Padding((5, 2), "left"))),
        "own-scale": replace(PLAIN, scale=0.3),
        "no-keys": replace(PLAIN, source_length=0),
        "no-queries": replace(PLAIN, target_length=0, mask=Mask(causal="top-left", window=Window(1, 1))),
        "no-samples": replace(PLAIN, batch=0),
        "negative-stride": replace(PLAIN, layout="negative-stride"),
    }.items()
}
BACKWARD: dict[str, Case] = {
    "no-mask-no-bias": replace(PLAIN, bias=False),
    "grouped": replace(PLAIN, num_kv_heads=2, mask=Mask(explicit=Explicit("random", "BHTS"))),
    "self": replace(PLAIN, source_length=3, kdim=8, vdim=8, sharing="self", mask=Mask(causal="top-left")),
    "key-value": replace(PLAIN, kdim=7, sharing="key-value"),
    "all-parts": replace(PLAIN, mask=ALL_PARTS),
    "all-parts-dense": replace(PLAIN, mask=ALL_PARTS, mask_route="dense"),
    "all-parts-additive": replace(PLAIN, mask=ALL_PARTS, mask_route="additive"),
}
COMPILED = pytest.mark.parametrize("name", [JIT, TEXTBOOK])


@cache
def subject(name: str) -> Subject:
    return ADAPTER.subjects[name]()


def agrees(actual: Outputs, expected: Outputs, tolerance: float) -> None:
    """Shapes, dtypes and values; the tolerance is relative to the largest element, never below 1."""
    pairs: dict[str, tuple[Array | None, Array | None]] = {"output": (actual.attn_output, expected.attn_output)}
    if actual.attn_weights is not None:
        pairs["weights"] = (actual.attn_weights, expected.attn_weights)
    assert set(actual.gradients) == set(expected.gradients)
    pairs |= {name: (actual.gradients[name], gradient) for name, gradient in expected.gradients.items()}
    for name, (left, right) in pairs.items():
        assert left is not None and right is not None
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        wide = right.astype(np.float64)
        largest = max(1.0, float(np.abs(wide).max(initial=0)))
        np.testing.assert_allclose(left.astype(np.float64), wide, rtol=0, atol=tolerance * largest, err_msg=name)


@COMPILED
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in FORWARD.items()])
def test_forward_agrees_with_numpy(case: Case, name: str) -> None:
    problem = problem_of(case)
    agrees(subject(name).attend(problem), NumpyReference().attend(problem), FLOAT32)


@COMPILED
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in BACKWARD.items()])
def test_gradients_agree_with_numpy(case: Case, name: str) -> None:
    problem = problem_of(case)
    actual = subject(name).attend(problem)
    assert set(actual.gradients) == {*problem.distinct_inputs, *problem.parameters.present}
    agrees(actual, NumpyReference().attend(problem), FLOAT32)


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        (TEXTBOOK, "float64", 1e-14),
        (TEXTBOOK, "float16", 4e-3),
        (TEXTBOOK, "bfloat16", 3e-2),
        (JIT, "bfloat16", 3e-2),
        (EAGER, "float32", FLOAT32),
        (EAGER, "float16", 4e-3),
    ],
)
def test_dtypes_agree_with_numpy(name: str, dtype: Any, tolerance: float) -> None:
    check: tuple[Check, ...] = (
        ("output",) if (name, dtype) == (EAGER, "float16") else ("output", "weights", "gradients")
    )
    problem = problem_of(replace(PLAIN, dtype=dtype, mask=Mask(causal="top-left"), check=check))
    actual = subject(name).attend(problem)
    assert actual.attn_output.dtype == NUMPY_DTYPES[dtype]
    agrees(actual, NumpyReference().attend(problem), tolerance)


def test_values_of_another_width_are_unsupported_by_dot_product_attention_alone() -> None:
    case = replace(PLAIN, value_head_dim=3)
    limit = subject(JIT).unsupported(case)
    assert limit is not None and "same shape" in limit.reason and limit.link is not None
    assert subject(TEXTBOOK).unsupported(case) is None
    problem = problem_of(case)
    agrees(subject(TEXTBOOK).attend(problem), NumpyReference().attend(problem), FLOAT32)
    with pytest.raises(ValueError, match="value shape should be"):
        subject(JIT).attend(problem)


@pytest.mark.parametrize("name", ADAPTER.subjects)
def test_limits_that_every_subject_has(name: str) -> None:
    for change in ({"dtype": "mixed_bfloat16"}, {"bias_kv": True}, {"zero_attention": True}):
        assert subject(name).unsupported(replace(PLAIN, **change)) is not None
    assert subject(name).unsupported(PLAIN) is None
    assert isinstance(subject(name), Subject) and subject(name).name == name
    assert set(subject(name).versions()) == {"jax", "jaxlib", "numpy"}


def test_native_route_uses_the_parameter_that_means_the_same() -> None:
    right = Mask(key_padding=Padding((5, 2)), query_padding=Padding((3, 1)), causal="top-left", window=Window(1, 2))
    native = jax_mask(problem_of(replace(PLAIN, mask=right)))
    assert set(native.arrays) == {"key_value_seq_lengths", "query_seq_lengths"}
    assert native.is_causal and native.local_window_size == (1, 2)
    assert all(array.dtype == np.int32 for array in native.arrays.values())

    other = Mask(key_padding=Padding((5, 2), "left"), causal="bottom-right", window=Window(1, 2, "bottom-right"))
    problem = problem_of(replace(PLAIN, mask=other))
    left_over = jax_mask(problem)
    blocked = problem.mask.blocked()
    assert blocked is not None and set(left_over.arrays) == {"mask"}
    np.testing.assert_array_equal(left_over.arrays["mask"], ~blocked)
    assert not left_over.is_causal and left_over.local_window_size is None


@pytest.mark.parametrize("name", [JIT, TEXTBOOK])
def test_one_compilation_serves_every_mask_of_a_shape(name: str) -> None:
    fresh: Any = ADAPTER.subjects[name]()
    for seed, density in enumerate((0.2, 0.5, 0.7)):
        case = replace(PLAIN, id=f"jax-{seed}", mask=Mask(explicit=Explicit("random", "BHTS", density)))
        fresh.attend(problem_of(replace(case, check=("output",))))
    assert fresh.run._cache_size() == 1


def test_the_scale_is_an_argument_of_the_textbook() -> None:
    fresh: Any = Textbook()
    outputs = [fresh.attend(problem_of(replace(PLAIN, scale=s, check=("output",)))).attn_output for s in (0.2, 0.9)]
    assert fresh.run._cache_size() == 1 and not np.array_equal(*outputs)


# Known divergences: each test fails when JAX starts to keep the contract, which is news for the ledger.

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
        with pytest.raises((ValueError, TypeError)):
            subject(name).attend(problem)


def test_translation_of_a_mask_keeps_its_type() -> None:
    np.testing.assert_array_equal(may_attend(np.array([True, False])), [False, True], strict=True)
    np.testing.assert_array_equal(may_attend(np.array([1, 0])), np.array([0, 1]), strict=True)
