"""The divergences of the Keras subjects, each pinned as it is: a change in Keras or TensorFlow must be noticed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adapters.tf_keras_masks import mask_arguments
from conformance.spec import Explicit, Mask, Padding
from conformance.tensors import problem_of
from conformance.vocabulary import IllFormed
from tests.keras_by_hand import (
    DOT_PRODUCT,
    EAGER,
    GQA,
    MHA,
    PADDED,
    PLAIN,
    SCORES,
    SPARSE,
    assert_right,
    attend,
    by_hand,
    subject,
)

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

BLOCKED_ROW = Mask(explicit=Explicit("rows", "TS", indices=(1,)))


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
    case = replace(PLAIN, dtype="float64", mask=PADDED, check=("output", "weights"))
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


FOUR_AXES = Explicit("random", "BHTS")
SHAPES, LENGTHS = "Incompatible shapes|must be broadcastable", "must be equal|Expected dimension"
REFUSED: tuple[tuple[IllFormed, Mask, str], ...] = (
    ("value-longer-than-key", Mask(), LENGTHS),
    ("key-longer-than-value", Mask(), LENGTHS),
    ("zero-heads", Mask(), "positive integer|modulo by zero"),
    ("query-width", Mask(), "Input to reshape"),
    ("mask-target-too-long", Mask(explicit=SPARSE), SHAPES),
    ("mask-source-too-long", Mask(explicit=SPARSE), SHAPES),
    ("mask-rank-1", Mask(explicit=SPARSE), "out of bounds"),
    ("padding-mask-as-attention-mask", PADDED, SHAPES),
    ("padding-mask-wrong-batch", PADDED, SHAPES),
    ("key-width", Mask(), "Input to reshape"),
    ("batch-mismatch", Mask(), "must be equal|Expected dimension|broadcast|mismatch|compatible"),
    ("query-rank", Mask(), "transpose|tuple index"),
    ("key-rank", Mask(), "must be equal|tuple index"),
    ("mask-heads", Mask(explicit=FOUR_AXES), SHAPES),
    ("mask-batch", Mask(explicit=FOUR_AXES), SHAPES),
)


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.parametrize(("ill_formed", "mask", "message"), REFUSED)
def test_ill_formed_calls_raise(name: str, ill_formed: IllFormed, mask: Mask, message: str) -> None:
    heads = 0 if ill_formed == "zero-heads" else PLAIN.num_heads
    case = replace(PLAIN, ill_formed=ill_formed, mask=mask, num_heads=heads, num_kv_heads=heads)
    with pytest.raises(Exception, match=message):
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
