"""The Keras subjects against an attention written out by hand."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from adapters.tf_keras import ADAPTER
from adapters.tf_keras_masks import mask_arguments
from adapters.tf_keras_program import frameworks
from conformance.adapter import Subject
from conformance.spec import Additive, Case, Explicit, Mask, Padding, Window
from conformance.tensors import problem_of
from conformance.vocabulary import Dtype
from tests.keras_by_hand import (
    EAGER,
    GQA,
    GRAPH,
    MHA,
    PADDED,
    PLAIN,
    SCORES,
    SPARSE,
    XLA,
    assert_right,
    attend,
    by_hand,
    flat,
    subject,
)

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

BAND = Window(1, 1)
MASKS: dict[str, Mask] = {
    "none": Mask(),
    "padding": PADDED,
    "left padding": Mask(key_padding=Padding((5, 2), "left")),
    "causal": Mask(causal="top-left"),
    "causal bottom-right": Mask(causal="bottom-right"),
    "padding and causal": Mask(key_padding=Padding((4, 2)), causal="top-left"),
    "own window": Mask(window=BAND),
    "own window under causal": Mask(window=Window(1, 0), causal="top-left"),
    "other window": Mask(window=Window(0, 2, "bottom-right")),
    "explicit and window": Mask(explicit=Explicit("random", "1HTS", density=0.2), window=Window(1, 4)),
    "explicit and padding": Mask(explicit=Explicit("random", "BTS", density=0.1), key_padding=Padding((5, 4))),
    **{axes: Mask(explicit=Explicit("random", axes)) for axes in ("TS", "1TS", "BTS", "B1S", "BHTS", "B1TS", "B11S")},
}


def test_subjects_announce_themselves() -> None:
    assert ADAPTER.missing == ()
    assert {GRAPH, XLA} == set(ADAPTER.slow)
    for name in ADAPTER.subjects:
        assert isinstance(subject(name), Subject)
        assert subject(name).name == name
        assert subject(name).gives_weights == (name == SCORES)
        assert set(subject(name).versions()) == {"keras", "tensorflow"}


def test_listing_subjects_imports_no_framework() -> None:
    code = "import sys, adapters.tf_keras; print([m for m in ('tensorflow', 'keras') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SimpleNamespace(config=SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", other)
    with pytest.raises(RuntimeError, match="loaded here on 'jax': set KERAS_BACKEND=tensorflow"):
        frameworks.__wrapped__()


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask(name: str, mask: str) -> None:
    assert_right(name, replace(PLAIN, id=f"keras-{mask}", mask=MASKS[mask]))


@pytest.mark.parametrize("mask", MASKS)
def test_the_dense_route_says_the_same(mask: str) -> None:
    assert_right(MHA, replace(PLAIN, id=f"keras-dense-{mask}", mask=MASKS[mask], mask_route="dense"))


@pytest.mark.parametrize("name", [GRAPH, XLA])
def test_one_compilation_serves_every_mask_of_a_shape(name: str) -> None:
    programs = subject(name)._program
    before = programs.cache_info().misses
    for seed in range(3):
        assert_right(name, replace(PLAIN, id=f"keras-{seed}", mask=Mask(explicit=SPARSE)))
    assert programs.cache_info().misses == before + 1
    assert_right(name, replace(PLAIN, mask=MASKS["padding"]))
    assert programs.cache_info().misses == before + 2


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
def test_every_dtype(name: str, dtype: Dtype) -> None:
    assert_right(name, replace(PLAIN, dtype=dtype, mask=MASKS["padding and causal"]))


STRUCTURES: dict[str, Case] = {
    "no bias": replace(PLAIN, bias=False),
    "widths": replace(PLAIN, output_dim=6, value_head_dim=3, head_dim=2),
    "self": replace(PLAIN, sharing="self", source_length=3, kdim=16, vdim=16),
    "key is value": replace(PLAIN, sharing="key-value", vdim=9),
    "equal copies": replace(PLAIN, sharing="equal-copies", source_length=3, kdim=16, vdim=16),
    "transposed": replace(PLAIN, layout="transposed"),
    "reversed": replace(PLAIN, layout="negative-stride"),
    "one key": replace(PLAIN, source_length=1),
    "no target": replace(PLAIN, target_length=0),
    "no source": replace(PLAIN, source_length=0),
    "no batch": replace(PLAIN, batch=0),
}


@pytest.mark.parametrize("name", [MHA, SCORES])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure(name: str, structure: str) -> None:
    assert_right(name, STRUCTURES[structure])


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_grouped_heads(num_kv_heads: int) -> None:
    case = replace(PLAIN, num_kv_heads=num_kv_heads, mask=MASKS["BHTS"])
    assert_right(GQA, case)
    if num_kv_heads < case.num_heads:
        limit = subject(MHA).unsupported(case)
        assert limit is not None
        assert "grouped heads" in limit.reason


def test_heads_are_in_order() -> None:
    """Another order of the heads is another answer, so agreement above fixes the order."""
    problem, outputs = attend(SCORES, PLAIN)
    expected = by_hand(problem)["weights"]
    assert outputs.attn_weights is not None
    for order in (np.roll(np.arange(4), 1), np.arange(4)[::-1]):
        assert np.abs(outputs.attn_weights - expected[:, order]).max() > 0.01


def test_calls_leave_nothing_behind() -> None:
    """The layer is shared between cases: a call with other parameters and another mask must not change an answer."""
    _, first = attend(MHA, PLAIN)
    attend(MHA, replace(PLAIN, id="keras-other", mask=MASKS["padding"]))
    _, again = attend(MHA, PLAIN)
    for (output, array), (_, repeated) in zip(flat(first), flat(again), strict=True):
        np.testing.assert_array_equal(array, repeated, err_msg=output)


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
@pytest.mark.parametrize("bias", [True, False])
def test_parameters_are_4d2_plus_4d_whatever_the_heads(num_heads: int, bias: bool) -> None:
    width = 16 // num_heads
    case = replace(PLAIN, kdim=16, vdim=16, num_heads=num_heads, num_kv_heads=num_heads, head_dim=width, bias=bias)
    for name in (MHA, GQA):
        count = subject(name).parameter_count(replace(case, value_head_dim=width))
        assert count == 4 * 16**2 + (4 * 16 if bias else 0)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (replace(PLAIN, scale=0.3), "take none"),
        (replace(PLAIN, bias_kv=True), "no bias row"),
        (replace(PLAIN, zero_attention=True), "no zero-attention"),
        (replace(PLAIN, mask=Mask(additive=Additive())), "no additive bias"),
        (replace(PLAIN, mask=Mask(causal="top-left"), mask_route="additive"), "no floating-point mask"),
        (replace(PLAIN, ill_formed="embed-dim-not-divisible"), "never divides"),
    ],
)
def test_rightful_limits(case: Case, reason: str) -> None:
    for name in ADAPTER.subjects:
        limit = subject(name).unsupported(case)
        assert limit is not None
        assert reason in limit.reason
        assert limit.link is not None


def test_grouped_limits() -> None:
    for case, reason in (
        (replace(PLAIN, value_head_dim=3), "one head_dim"),
        (replace(PLAIN, output_dim=6), "no output"),
    ):
        limit = subject(GQA).unsupported(case)
        assert limit is not None
        assert reason in limit.reason
        assert subject(MHA).unsupported(case) is None


def test_masks_become_keras_arguments() -> None:
    """True comes to mean *may attend*; each part goes where Keras has an argument for it."""
    mask = Mask(key_padding=Padding((5, 2)), query_padding=Padding((3, 1)), causal="top-left", window=Window(1, 0))
    problem = problem_of(replace(PLAIN, mask=mask))
    arguments = mask_arguments(problem, window_option=True)
    assert set(arguments.arrays) == {"value_mask", "query_mask"}
    assert (arguments.use_causal_mask, arguments.sliding_window) == (True, 2)
    assert arguments.arrays["value_mask"].sum(-1).tolist() == [5, 2]
    assert arguments.arrays["query_mask"].sum(-1).tolist() == [3, 1]
    older = mask_arguments(problem, window_option=False)
    assert older.sliding_window is None
    assert problem.mask.window is not None
    np.testing.assert_array_equal(older.arrays["attention_mask"], ~problem.mask.window)


@pytest.mark.parametrize(
    ("mask", "shape"),
    [
        (Mask(explicit=Explicit("random", "B11S")), (2, 1, 1, 5)),
        (Mask(explicit=SPARSE, causal="bottom-right"), (3, 5)),
        (Mask(explicit=Explicit("random", "B1TS"), causal="bottom-right"), (2, 3, 5)),
        (Mask(explicit=Explicit("random", "1HTS"), causal="bottom-right"), (1, 4, 3, 5)),
    ],
)
def test_attention_mask_has_the_fewest_axes(mask: Mask, shape: tuple[int, ...]) -> None:
    assert mask_arguments(problem_of(replace(PLAIN, mask=mask)), True).arrays["attention_mask"].shape == shape
