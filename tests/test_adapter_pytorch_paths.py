"""The contract's own implementation in PyTorch where frameworks part, and the proof that each path is the one named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.pytorch import ADAPTER
from conformance.refusal import ACCIDENTS
from conformance.spec import NUMPY_DTYPES, Additive, Data, Explicit, Mask, Padding
from conformance.tensors import problem_of
from tests.pytorch_oracle import assert_agrees, case_of, inference_case, reference

torch = pytest.importorskip("torch")

SUBJECTS: dict[str, Any] = {name: construct() for name, construct in ADAPTER.subjects.items()}
CONTRACT = ("torch/handwritten", "torch/packed")
OTHERS = tuple(name for name in SUBJECTS if name not in CONTRACT)

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
def test_scores_beyond_float16_do_not_overflow(name: str) -> None:
    problem = problem_of(case_of(dtype="float16", data=Data(magnitude=1000.0), check=("output", "weights")))
    textbook = SUBJECTS["torch/textbook"].attend(problem)
    assert not np.isfinite(textbook.attn_output).all()  # the scores do overflow where they are kept in float16
    outputs = SUBJECTS[name].attend(problem)
    _, weights, _ = reference(problem)
    assert np.isfinite(outputs.attn_output).all()
    assert (outputs.attn_weights.argmax(-1) == weights.argmax(-1)).mean() > 0.9


@pytest.mark.parametrize("name", CONTRACT)
@pytest.mark.parametrize("mask", FULLY_BLOCKED)
def test_nothing_non_finite_arises_on_the_way_back(name: str, mask: str) -> None:
    problem = problem_of(case_of(mask=FULLY_BLOCKED[mask]))
    with torch.autograd.set_detect_anomaly(True, check_nan=True):  # raises when an inner gradient is NaN
        SUBJECTS[name].attend(problem)


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
    "key-width": {},
    "query-rank": {},
    "key-rank": {},
    "batch-mismatch": {},
    "mask-heads": {"mask": Mask(explicit=Explicit("random", "BHTS"))},
    "mask-batch": {"mask": Mask(explicit=Explicit("random", "BHTS"))},
    "mask-device": {"mask": Mask(explicit=Explicit("random"))},
    "heads-not-divisible-by-kv-heads": {"num_kv_heads": 2},
}


@pytest.mark.parametrize("fault", ILL_FORMED)
@pytest.mark.parametrize("name", CONTRACT)
def test_ill_formed_calls_raise_value_errors(name: str, fault: Any) -> None:
    problem = problem_of(case_of(ill_formed=fault, check=("output",), **ILL_FORMED[fault]))
    with pytest.raises(ValueError, match=r"must|not divisible|differ in length|blocked is on meta"):
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
    module = HandwrittenAttention(Widths(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, torch.float32, dropout=0.5))
    query = torch.randn(1, 3, 4)
    trained, weights = module(query, query, query)
    module.eval()
    still, same = module(query, query, query)
    assert torch.equal(weights, same)  # weights are those before dropout
    assert not torch.equal(trained, still)
    assert torch.equal(still, module(query, query, query)[0])


# ---- proofs of paths, and translations that must not be lost ------------------------------------------------------


def test_another_path_is_no_refusal() -> None:
    from adapters.pytorch_arrays import OtherPathRan

    assert issubclass(OtherPathRan, ACCIDENTS)


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
    with pytest.warns(UserWarning, match=r"[Ff]lash"), pytest.raises(RuntimeError, match="No available kernel"):
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
    assert masks["attn_mask"].dtype == masks["key_padding_mask"].dtype == np.float32
    assert math.isinf(masks["key_padding_mask"][1, 2])
    heads = problem_of(case_of(mask=Mask(explicit=Explicit("random", "BHTS"))))
    assert heads.mask.explicit is not None
    np.testing.assert_array_equal(mha_masks(heads)["attn_mask"][1 * 3 + 2], heads.mask.explicit[1, 2])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_arrays_survive_the_way_there_and_back(dtype: str) -> None:
    from adapters.pytorch_arrays import array_of, tensor_of

    array = np.arange(24).reshape(2, 3, 4).astype(NUMPY_DTYPES[dtype])
    for view in (array, array.transpose(1, 0, 2), array[:, ::-1], np.broadcast_to(array[:1], (2, 3, 4)), array[:0]):
        tensor = tensor_of(view)
        if view.size and min(view.strides) >= 0:
            assert tensor.stride() == tuple(stride // view.itemsize for stride in view.strides)
        back = array_of(tensor)
        assert back.dtype == view.dtype
        np.testing.assert_array_equal(back, view)
