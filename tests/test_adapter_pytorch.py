"""The PyTorch subjects against an attention of this test's own, in float64, forward and backward."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.pytorch import ADAPTER
from conformance.adapter import Subject
from conformance.spec import (
    Additive,
    Array,
    Case,
    Data,
    Explicit,
    Mask,
    Outputs,
    Padding,
    Parameters,
    Problem,
    Source,
    Window,
)
from conformance.tensors import problem_of

torch = pytest.importorskip("torch")

SUBJECTS: dict[str, Any] = {name: construct() for name, construct in ADAPTER.subjects.items()}
CONTRACT = ("torch/handwritten", "torch/packed")
OTHERS = tuple(name for name in SUBJECTS if name not in CONTRACT)
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


# ---- an attention of this test's own: float64, one loop over samples and heads, written for reading -----------------


def reference(problem: Problem) -> tuple[Array, Array, dict[str, Array]]:
    """Output, weights and gradients of sum(output · cotangent), in float64 (see :class:`Outputs` for the shapes)."""
    case = problem.case
    wide = {name: array.astype(np.float64) for name, array in problem.parameters.present.items()}
    query, key, value = (array.astype(np.float64) for array in (problem.query, problem.key, problem.value))
    projected = [_project(wide, name, array) for name, array in (("query", query), ("key", key), ("value", value))]
    extra = [wide[name] if name in wide else None for name in ("bias_k", "bias_v")]
    keys, values = (_extended(case, rows, row) for rows, row in zip(projected[1:], extra))
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
    for row, (numbers, hidden) in enumerate(zip(scores, blocked)):
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


def supported(names: tuple[str, ...], case: Case) -> list[str]:
    return [name for name in names if SUBJECTS[name].unsupported(case) is None]


# ---- agreement ----------------------------------------------------------------------------------------------------

MASKS = {
    "none": Mask(),
    "padding-right": Mask(key_padding=Padding((6, 3))),
    "padding-left": Mask(key_padding=Padding((4, 6), side="left")),
    "causal": Mask(causal="top-left"),
    "bottom-right": Mask(causal="bottom-right"),
    "window": Mask(window=Window(2, 1)),
    "causal-padding": Mask(causal="top-left", key_padding=Padding((6, 2))),
    "explicit": Mask(explicit=Explicit("random", "TS")),
    "explicit-samples": Mask(explicit=Explicit("random", "BTS")),
    "explicit-heads": Mask(explicit=Explicit("random", "BHTS")),
    "explicit-keys": Mask(explicit=Explicit("random", "B11S")),
    "explicit-padding": Mask(explicit=Explicit("random", "1HTS"), key_padding=Padding((6, 4))),
    "additive": Mask(additive=Additive("TS")),
    "additive-heads-padding": Mask(additive=Additive("BHTS"), key_padding=Padding((5, 3))),
    "additive-minus-inf": Mask(additive=Additive("TS", minus_inf=Explicit("random", "TS"))),
}
EVERY = tuple(SUBJECTS)


@pytest.mark.parametrize("route", ["native", "dense", "additive"])
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_by_every_route(mask: str, route: Any) -> None:
    answered = set()
    for case in (
        case_of(size=(2, 5, 6, 12, 3), mask=MASKS[mask], mask_route=route, dtype="float64"),
        inference_case(mask=MASKS[mask], mask_route=route, dtype="float64"),
    ):
        for name in supported(EVERY, case):
            assert_agrees(SUBJECTS[name], problem_of(case))
            answered.add(name)
    assert answered >= {"torch/mha", "torch/mha@weights", "torch/mha@seq-first", "torch/sdpa-math", "torch/sdpa-flash"}
    assert answered >= set(CONTRACT)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("size", [(2, 5, 7, 12, 3), (1, 1, 1, 4, 1), (3, 9, 4, 16, 4), (2, 17, 33, 8, 8)])
def test_every_dtype_and_size(dtype: Any, size: tuple[int, ...]) -> None:
    case = case_of(size=size, dtype=dtype)
    for name in supported(EVERY, case):
        assert_agrees(SUBJECTS[name], problem_of(case))


STRUCTURES: dict[str, dict[str, Any]] = {
    "no-bias": {"bias": False},
    "kdim-vdim": {"kdim": 5, "vdim": 9},
    "bias-kv": {"bias_kv": True, "mask": Mask(key_padding=Padding((7, 2)), causal="top-left")},
    "zero-attention": {"zero_attention": True, "mask": Mask(explicit=Explicit("random", "BTS"))},
    "both-extra-keys": {"bias_kv": True, "zero_attention": True, "mask": Mask(additive=Additive("BTS"))},
    "bias-kv-kdim": {"bias_kv": True, "kdim": 5, "vdim": 9},
    "value-heads": {"value_head_dim": 6},
    "output-width": {"output_dim": 5},
    "scale": {"scale": 0.7},
    "grouped": {"size": (2, 5, 7, 16, 4), "num_kv_heads": 2, "mask": Mask(key_padding=Padding((7, 2)))},
    "multi-query": {"size": (2, 5, 7, 16, 4), "num_kv_heads": 1},
    "wide-heads": {"head_dim": 5, "value_head_dim": 5},
    "key-is-value": {"sharing": "key-value"},
    "self": {"size": (2, 5, 5, 12, 3), "sharing": "self"},
    "copies": {"size": (2, 5, 5, 12, 3), "sharing": "equal-copies"},
    "transposed": {"layout": "transposed"},
    "negative": {"layout": "negative-stride"},
    "broadcast": {"layout": "broadcast"},
    "self-transposed": {"size": (2, 5, 5, 12, 3), "sharing": "self", "layout": "transposed"},
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure(structure: str) -> None:
    case = case_of(dtype="float32", **STRUCTURES[structure])
    answered = supported(EVERY, case)
    assert "torch/handwritten" in answered
    for name in answered:
        assert_agrees(SUBJECTS[name], problem_of(case))


def test_what_the_contract_implementation_answers() -> None:
    for structure in STRUCTURES.values():
        assert SUBJECTS["torch/handwritten"].unsupported(case_of(**structure)) is None


@pytest.mark.parametrize("name", EVERY)
def test_a_second_call_and_another_case_in_between_change_nothing(name: str) -> None:
    case = inference_case()
    problem, other = problem_of(case), problem_of(replace(case, id="another"))
    first = SUBJECTS[name].attend(problem)
    SUBJECTS[name].attend(other)
    again = SUBJECTS[name].attend(problem)
    for output, array in outputs_by_name(first).items():
        np.testing.assert_array_equal(array, outputs_by_name(again)[output], err_msg=output)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "broadcast"])
def test_problem_arrays_may_be_read_only_and_stay_as_they_are(name: str, layout: Any) -> None:
    case = inference_case(layout=layout, mask=Mask(key_padding=Padding((6, 2))))
    problem = problem_of(case)
    arrays = {"query": problem.query, "cotangent": problem.cotangent, **problem.parameters.present}
    before = {key: array.copy() for key, array in arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    SUBJECTS[name].attend(problem)
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)


@pytest.mark.parametrize("name", EVERY)
def test_heads_are_in_order(name: str) -> None:
    """Each head returns its own number: value bias h, weights 0, so the output spells the order of the heads."""
    case = inference_case(check=("output",))
    problem = problem_of(case)
    nothing = {key: np.zeros_like(array) for key, array in problem.parameters.present.items()}
    nothing["value_bias"] = np.repeat(np.arange(1, case.num_heads + 1), case.head_dim).astype(np.float32)
    nothing["output_weight"] = np.eye(case.embed_dim, dtype=np.float32)
    outputs = SUBJECTS[name].attend(replace(problem, parameters=Parameters(**nothing)))
    np.testing.assert_array_equal(outputs.attn_output[0, 0], nothing["value_bias"])


@pytest.mark.parametrize("name", [n for n in EVERY if hasattr(SUBJECTS[n], "parameter_count")])
@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_parameters_number_4_width_squared_plus_4_width_whatever_the_heads(name: str, heads: int) -> None:
    case = case_of(size=(2, 3, 3, 16, heads))
    assert SUBJECTS[name].parameter_count(case) == 4 * 16**2 + 4 * 16
    assert SUBJECTS[name].parameter_count(replace(case, bias=False)) == 4 * 16**2


def test_subjects_follow_the_protocol_and_name_themselves() -> None:
    for name, subject in SUBJECTS.items():
        assert isinstance(subject, Subject)
        assert subject.name == name
        assert subject.versions()["torch"].startswith(torch.__version__)
        assert isinstance(type(subject).gives_weights, bool)
        assert isinstance(type(subject).gives_gradients, bool)


def test_the_adapter_imports_no_framework_before_a_subject_is_made() -> None:
    code = "import sys, adapters.pytorch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- the contract's own implementation where others part --------------------------------------------------------

FULLY_BLOCKED = {
    "sample": Mask(key_padding=Padding((0, 7))),
    "row": Mask(explicit=Explicit("rows", "TS", indices=(1,))),
    "head": Mask(explicit=Explicit("heads", "BHTS", indices=(1,))),
    "everything": Mask(explicit=Explicit("everything", "TS")),
    "minus-inf": Mask(additive=Additive("TS", minus_inf=Explicit("rows", "TS", indices=(2,)))),
    "both-together": Mask(causal="top-left", additive=Additive("TS", minus_inf=Explicit("keys", "TS", indices=(0,)))),
    "query": Mask(query_padding=Padding((2, 5))),
}


@pytest.mark.parametrize("dtype", ["float64", "float16", "mixed_bfloat16"])
@pytest.mark.parametrize("route", ["native", "dense", "additive"])
@pytest.mark.parametrize("mask", FULLY_BLOCKED)
def test_fully_blocked_rows_are_exactly_neutral(mask: str, route: Any, dtype: Any) -> None:
    case = case_of(mask=FULLY_BLOCKED[mask], mask_route=route, dtype=dtype)
    problem = problem_of(case)
    _, weights, _ = reference(problem)
    empty = (weights == 0).all(-1)
    assert empty.any()
    for name in CONTRACT:
        outputs = assert_agrees(SUBJECTS[name], problem)
        assert outputs.attn_weights is not None
        assert not outputs.attn_weights[empty].astype(np.float64).any()
        rows = empty.all(1)
        assert not outputs.gradients["query"][rows].astype(np.float64).any()
        bias = problem.parameters.output_bias
        assert bias is not None
        expected = np.broadcast_to(bias.astype(outputs.attn_output.dtype), outputs.attn_output[rows].shape)
        np.testing.assert_array_equal(outputs.attn_output[rows], expected)


@pytest.mark.parametrize("size", [(0, 5, 7, 12, 3), (2, 0, 7, 12, 3), (2, 5, 0, 12, 3), (2, 0, 0, 12, 3)])
def test_empty_sizes(size: tuple[int, ...]) -> None:
    for name in CONTRACT:
        for extra in (False, True):
            assert_agrees(SUBJECTS[name], problem_of(case_of(size=size, bias_kv=extra, zero_attention=extra)))
            masked = case_of(size=size, mask=Mask(causal="top-left"), mask_route="dense")
            assert_agrees(SUBJECTS[name], problem_of(masked))


@pytest.mark.parametrize("name", CONTRACT)
def test_large_scores_do_not_overflow_in_float16(name: str) -> None:
    case = case_of(dtype="float16", data=Data(magnitude=30.0), check=("output", "weights"))
    outputs = assert_agrees(SUBJECTS[name], problem_of(case), relative=5e-2)
    assert np.isfinite(outputs.attn_output).all()


ILL_FORMED: dict[str, dict[str, Any]] = {
    "value-longer-than-key": {},
    "key-longer-than-value": {},
    "embed-dim-not-divisible": {"size": (2, 5, 7, 13, 3)},
    "zero-heads": {"size": (2, 5, 7, 12, 0)},
    "mask-target-too-long": {"mask": Mask(explicit=Explicit("random"))},
    "mask-source-too-long": {"mask": Mask(explicit=Explicit("random"))},
    "integer-mask": {"mask": Mask(explicit=Explicit("random"))},
    "mask-rank-1": {"mask": Mask(explicit=Explicit("random"))},
    "padding-mask-as-attention-mask": {"mask": Mask(key_padding=Padding((7, 3)))},
    "padding-mask-wrong-batch": {"mask": Mask(key_padding=Padding((7, 3)))},
    "query-width": {},
}


@pytest.mark.parametrize("fault", ILL_FORMED)
@pytest.mark.parametrize("name", CONTRACT)
def test_ill_formed_calls_raise_value_errors(name: str, fault: Any) -> None:
    problem = problem_of(case_of(ill_formed=fault, check=("output",), **ILL_FORMED[fault]))
    with pytest.raises(ValueError):
        SUBJECTS[name].attend(problem)


def test_a_mask_on_another_device_raises() -> None:
    from adapters.pytorch_modules import HandwrittenAttention, Widths

    module = HandwrittenAttention(Widths(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, torch.float32))
    query = torch.zeros(1, 3, 4)
    with pytest.raises(ValueError, match="meta"):
        module(query, query, query, blocked=torch.zeros(3, 3, dtype=torch.bool, device="meta"))


def test_dropout_of_the_handwritten_module_scales_what_it_keeps_and_rests_in_evaluation() -> None:
    from adapters.pytorch_modules import HandwrittenAttention, Widths

    torch.manual_seed(0)
    module = HandwrittenAttention(Widths(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, torch.float32), dropout=0.5)
    query = torch.randn(1, 3, 4)
    trained, weights = module(query, query, query)
    module.eval()
    still, same = module(query, query, query)
    assert torch.equal(weights, same)  # weights are those before dropout
    assert not torch.equal(trained, still)
    assert torch.equal(still, module(query, query, query)[0])


# ---- proofs of paths, and translations that must not be lost ------------------------------------------------------


def test_the_fast_path_is_proven() -> None:
    from adapters.pytorch_arrays import OtherPathRan

    subject = SUBJECTS["torch/mha@inference"]
    problem = problem_of(inference_case(check=("output",)))
    subject.attend(problem)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with pytest.raises(OtherPathRan, match="_native_multi_head_attention"):
            subject.attend(problem)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize(
    "change",
    [{"sharing": "separate"}, {"bias": False}, {"zero_attention": True}, {"bias_kv": True}, {"num_heads": 3}],
)
def test_the_fast_path_is_declined_where_it_would_not_run(change: dict[str, Any]) -> None:
    subject = SUBJECTS["torch/mha@inference"]
    case = replace(inference_case(check=("output",)), **change)
    if "num_heads" in change:
        case = case_of(size=(2, 6, 6, 12, 3), sharing="self", check=("output",))
    assert subject.unsupported(case) is not None
    from adapters.pytorch_arrays import OtherPathRan

    with pytest.raises(OtherPathRan):  # the reason given is the true one: another path does run
        subject.attend(problem_of(case))


def test_each_backend_of_scaled_dot_product_attention_is_proven() -> None:
    from adapters import pytorch_recipes
    from adapters.pytorch_arrays import OtherPathRan

    problem = problem_of(case_of())
    kernels = dict(pytorch_recipes.BACKENDS)
    for name, other in (("MATH", "FLASH_ATTENTION"), ("FLASH_ATTENTION", "MATH")):
        pytorch_recipes.BACKENDS[name] = (kernels[other][0], kernels[name][1])
        try:
            with pytest.raises(OtherPathRan):
                SUBJECTS["torch/sdpa-" + name.split("_")[0].lower()].attend(problem)
        finally:
            pytorch_recipes.BACKENDS.update(kernels)


def test_flash_declines_what_its_kernel_declines() -> None:
    flash = SUBJECTS["torch/sdpa-flash"]
    case = case_of(value_head_dim=6, check=("output",))
    assert flash.unsupported(case) is not None
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="No available kernel"):
        flash.attend(problem_of(case))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("fault", ["mask-target-too-long", "mask-source-too-long", "integer-mask"])
def test_malformed_masks_reach_the_framework(name: str, fault: Any) -> None:
    case = inference_case(ill_formed=fault, mask=Mask(explicit=Explicit("random")), check=("output",))
    assert SUBJECTS[name].unsupported(case) is None
    with pytest.raises((RuntimeError, AssertionError)):
        SUBJECTS[name].attend(problem_of(case))


def test_textbook_rows_with_nothing_left_are_uniform() -> None:
    outputs = SUBJECTS["torch/textbook"].attend(problem_of(case_of(mask=FULLY_BLOCKED["sample"])))
    np.testing.assert_allclose(outputs.attn_weights[0], 1 / 7, rtol=1e-6)


def test_the_causal_hint_is_given_only_where_it_is_true() -> None:
    from adapters.pytorch_masks import mha_masks, sdpa_masks

    square = problem_of(inference_case(mask=Mask(causal="top-left")))
    assert mha_masks(square)["is_causal"]
    assert sdpa_masks(square) == {"attn_mask": None, "is_causal": True}
    for case in (
        case_of(mask=Mask(causal="bottom-right")),
        inference_case(mask=Mask(causal="top-left", explicit=Explicit("random"))),
        inference_case(mask=Mask(causal="top-left"), mask_route="dense"),
    ):
        assert "is_causal" not in mha_masks(problem_of(case))
        assert sdpa_masks(problem_of(case))["is_causal"] is False


def test_masks_of_multihead_attention_are_of_one_type_and_batch_major() -> None:
    from adapters.pytorch_masks import mha_masks

    case = case_of(mask=Mask(additive=Additive("TS"), key_padding=Padding((7, 2))))
    masks = mha_masks(problem_of(case))
    assert masks["attn_mask"].dtype == masks["key_padding_mask"].dtype == torch.float32
    assert math.isinf(masks["key_padding_mask"][1, 2])
    heads = problem_of(case_of(mask=Mask(explicit=Explicit("random", "BHTS"))))
    assert heads.mask.explicit is not None
    np.testing.assert_array_equal(mha_masks(heads)["attn_mask"][1 * 3 + 2].numpy(), heads.mask.explicit[1, 2])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_arrays_survive_the_way_there_and_back(dtype: str) -> None:
    from adapters.pytorch_arrays import array_of, tensor_of
    from conformance.spec import NUMPY_DTYPES

    array = np.arange(24).reshape(2, 3, 4).astype(NUMPY_DTYPES[dtype])
    for view in (array, array.transpose(1, 0, 2), array[:, ::-1], np.broadcast_to(array[:1], (2, 3, 4)), array[:0]):
        tensor = tensor_of(view)
        if view.size and min(view.strides) >= 0:
            assert tensor.stride() == tuple(stride // view.itemsize for stride in view.strides)
        back = array_of(tensor)
        assert back.dtype == view.dtype
        np.testing.assert_array_equal(back, view)
