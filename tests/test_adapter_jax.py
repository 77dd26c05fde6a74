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
from conformance.problem import Outputs
from conformance.spec import NUMPY_DTYPES, Additive, Array, Case, Explicit, Mask, Padding, Source, Window
from conformance.tensors import problem_of
from conformance.vocabulary import Check

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
    np.testing.assert_array_equal(left_over.arrays["mask"], np.broadcast_to(~blocked, problem.mask.shape))
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


def test_translation_of_a_mask_keeps_its_type() -> None:
    np.testing.assert_array_equal(may_attend(np.array([True, False])), [False, True], strict=True)
    np.testing.assert_array_equal(may_attend(np.array([1, 0])), np.array([0, 1]), strict=True)
