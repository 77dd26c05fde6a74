"""The Keras subjects against an attention written out here, and the divergences that are known of them, each pinned
as it is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from adapters.tf_keras import ADAPTER, KerasMha
from adapters.tf_keras_masks import mask_arguments
from adapters.tf_keras_program import frameworks
from conformance.adapter import Subject
from conformance.spec import (
    NUMPY_DTYPES,
    Additive,
    Array,
    Case,
    Dtype,
    Explicit,
    IllFormed,
    Mask,
    Outputs,
    Padding,
    Problem,
    Source,
    Window,
)
from conformance.tensors import problem_of

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

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
BAND, SPARSE = Window(1, 1), Explicit("random", "TS")
MASKS: dict[str, Mask] = {
    "none": Mask(),
    "padding": Mask(key_padding=Padding((5, 2))),
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
TOLERANCE = {"float64": 1e-13, "float32": 1e-5, "float16": 0.04, "bfloat16": 0.3}
BLOCKED_ROW = Mask(explicit=Explicit("rows", "TS", indices=(1,)))


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
        share = by_head[name].reshape(case.batch, heads[name], -1, *by_head[name].shape[2:]).sum(2)
        projected = joined(share)
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
        np.testing.assert_allclose(array.astype(np.float64), expected[output], 0, TOLERANCE[case.compute], err_msg=output)


def test_subjects_announce_themselves() -> None:
    assert ADAPTER.missing == ()
    assert {GRAPH, XLA} == ADAPTER.slow
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
    forward = replace(PLAIN, check=("output",))
    for seed in range(3):
        assert_right(name, replace(forward, id=f"keras-{seed}", mask=Mask(explicit=SPARSE)))
    assert subject(name)._program.cache_info().misses == 1
    assert_right(name, replace(PLAIN, mask=MASKS["padding"]))
    assert subject(name)._program.cache_info().misses == 2


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
        assert limit is not None and "grouped heads" in limit.reason


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
        assert limit is not None and reason in limit.reason and limit.link is not None


def test_grouped_limits() -> None:
    for case, reason in ((replace(PLAIN, value_head_dim=3), "one head_dim"), (replace(PLAIN, output_dim=6), "no output")):
        limit = subject(GQA).unsupported(case)
        assert limit is not None and reason in limit.reason
        assert subject(MHA).unsupported(case) is None


def test_masks_become_keras_arguments() -> None:
    """True comes to mean *may attend*; each part goes where Keras has an argument for it."""
    mask = Mask(key_padding=Padding((5, 2)), query_padding=Padding((3, 1)), causal="top-left", window=Window(1, 0))
    problem = problem_of(replace(PLAIN, mask=mask))
    arguments = mask_arguments(problem, window_option=True)
    assert (set(arguments.arrays), arguments.use_causal_mask, arguments.sliding_window) == (
        {"value_mask", "query_mask"},
        True,
        2,
    )
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


# What follows pins divergences: a change in Keras or TensorFlow must be noticed, then leave the ledger too.


@pytest.mark.parametrize("name", DOT_PRODUCT)
def test_a_blocked_row_is_uniform_on_the_dot_product_route(name: str) -> None:
    problem, outputs = attend(name, replace(PLAIN, mask=BLOCKED_ROW, check=("output",)))
    silenced = replace(problem.parameters, query_weight=0 * problem.parameters.query_weight, query_bias=np.zeros(16))
    uniform = by_hand(replace(problem, parameters=silenced, mask=replace(problem.mask, explicit=None)))["output"]
    np.testing.assert_allclose(outputs.attn_output[:, 1], uniform[:, 1], atol=1e-5)
    np.testing.assert_allclose(outputs.attn_output[:, [0, 2]], by_hand(problem)["output"][:, [0, 2]], atol=1e-5)


def test_a_blocked_row_is_neutral_where_scores_are_returned() -> None:
    assert_right(SCORES, replace(PLAIN, mask=BLOCKED_ROW))


def test_query_mask_is_ignored_by_multi_head_attention_and_obeyed_by_grouped() -> None:
    case = replace(PLAIN, mask=Mask(query_padding=Padding((3, 1))))
    for name in (MHA, SCORES):
        problem, outputs = attend(name, case)
        unmasked = by_hand(replace(problem, mask=replace(problem.mask, query_padding=None)))["output"]
        np.testing.assert_allclose(outputs.attn_output, unmasked, atol=1e-5)
    problem, outputs = attend(GQA, case)
    distance = np.abs(outputs.attn_output - unmasked).max(-1)
    assert (distance[problem.mask.query_padding] > 0.01).all()


@pytest.mark.parametrize("name", EAGER)
def test_the_scale_of_float64_passes_through_float32(name: str) -> None:
    case = replace(PLAIN, dtype="float64", head_dim=3, value_head_dim=3, check=("output",))
    problem, outputs = attend(name, case)
    narrow = replace(problem, case=replace(case, scale=float(np.float32(1 / np.sqrt(3)))))
    np.testing.assert_allclose(outputs.attn_output, by_hand(narrow)["output"], atol=1e-14)
    assert np.abs(outputs.attn_output - by_hand(problem)["output"]).max() > 1e-10


@pytest.mark.parametrize("name", EAGER)
def test_a_four_axis_mask_with_padding_mistakes_batch_for_heads(name: str) -> None:
    case = replace(PLAIN, mask=Mask(explicit=Explicit("random", "BHTS", density=0.1), key_padding=Padding((5, 4))))
    with pytest.raises(Exception, match=r"[Ii]ncompatible shapes"):
        attend(name, case)
    square = replace(case, batch=4, mask=replace(case.mask, key_padding=Padding((5, 4, 5, 5))))
    problem, outputs = attend(name, square)
    assert np.abs(outputs.attn_output - by_hand(problem)["output"]).max() > 0.01
    assert_right(SCORES, replace(square, mask_route="dense"))


def test_a_score_below_the_masking_constant_loses_its_row() -> None:
    """The scores route writes -1e9 at blocked places, so lower scores lose to it and the row comes out 0."""
    case = replace(PLAIN, dtype="float64", mask=MASKS["padding"], check=("output", "weights"))
    problem = problem_of(case)
    parameters = replace(
        problem.parameters,
        query_weight=0 * problem.parameters.query_weight,
        query_bias=np.full(16, 1e5),
        key_weight=0 * problem.parameters.key_weight,
        key_bias=np.full(16, -1e5),
    )
    weights = subject(SCORES).attend(replace(problem, parameters=parameters)).attn_weights
    assert weights is not None
    np.testing.assert_array_equal(weights[1], 0)  # scores of -2e10, three keys blocked
    np.testing.assert_allclose(weights[0], 1 / 5)  # the same scores, no key blocked


@pytest.mark.parametrize("name", [MHA, SCORES, GQA])
@pytest.mark.parametrize(
    ("ill_formed", "mask"),
    [
        ("value-longer-than-key", Mask()),
        ("key-longer-than-value", Mask()),
        ("zero-heads", Mask()),
        ("query-width", Mask()),
        ("mask-target-too-long", Mask(explicit=SPARSE)),
        ("mask-source-too-long", Mask(explicit=SPARSE)),
        ("mask-rank-1", Mask(explicit=SPARSE)),
        ("padding-mask-as-attention-mask", MASKS["padding"]),
        ("padding-mask-wrong-batch", MASKS["padding"]),
    ],
)
def test_ill_formed_calls_raise(name: str, ill_formed: IllFormed, mask: Mask) -> None:
    case = replace(PLAIN, ill_formed=ill_formed, mask=mask)
    case = replace(case, num_heads=0, num_kv_heads=0) if ill_formed == "zero-heads" else case
    with pytest.raises(Exception, match=r"must be|[Ii]ncompatible shapes|positive integer|zero|out of bounds|mismatch|Expected|requested"):
        attend(name, case)


@pytest.mark.parametrize("name", EAGER)
def test_integer_masks_are_accepted(name: str) -> None:
    case = replace(PLAIN, ill_formed="integer-mask", mask=Mask(explicit=SPARSE))
    problem, outputs = attend(name, case)
    given = mask_arguments(problem, True).arrays["attention_mask"]
    assert given.dtype == np.int64
    well_formed = replace(problem, mask=replace(problem.mask, explicit=given == 0))
    np.testing.assert_allclose(outputs.attn_output, by_hand(well_formed)["output"], atol=1e-5)


def test_a_mask_of_two_rows_makes_two_of_one_query() -> None:
    case = replace(PLAIN, target_length=1, ill_formed="mask-target-too-long", mask=Mask(explicit=SPARSE))
    for name in (MHA, GQA):
        assert attend(name, case)[1].attn_output.shape == (2, 2, 16)
    with pytest.raises(ValueError, match="broadcastable"):
        attend(SCORES, case)


def test_bfloat16_bias_gradients_are_summed_in_bfloat16() -> None:
    """4096 ones add up to 256, where bfloat16 ends to resolve steps of one."""
    case = replace(PLAIN, dtype="bfloat16", target_length=2048, source_length=1)
    problem = problem_of(case)
    ones = replace(problem, cotangent=np.ones_like(problem.cotangent))
    np.testing.assert_array_equal(subject(MHA).attend(ones).gradients["output_bias"].astype(np.float64), 256)
