"""Problems: the same id gives the same arrays, and regimes do what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.policy import FORMATS
from conformance.problem import Problem
from conformance.reference import reference_of
from conformance.spec import NUMPY_DTYPES, Array, Data, Explicit, Literals, Mask, Padding
from conformance.tensors import parameter_names, problem_of, shapes
from tests.drawn_problems import case_like

DTYPES = ["float64", "float32", "float16", "bfloat16"]
PADDED = Mask(key_padding=Padding((2, 3)))


def arrays_of(problem: Problem) -> dict[str, Array]:
    inputs = {name: getattr(problem, name) for name in ("query", "key", "value", "cotangent")}
    return inputs | problem.parameters.present


def built(**changes: Any) -> Problem:
    return problem_of(case_like(str(changes.pop("identity", "tensors")), **changes))


def test_the_same_id_gives_the_same_arrays_and_another_id_others() -> None:
    first, again, other = (arrays_of(built(identity=name)) for name in ("a", "a", "b"))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert not np.array_equal(array, other[name]), name


def test_an_array_does_not_depend_on_the_others() -> None:
    plain = arrays_of(built())
    for changes in ({"bias": False}, {"bias_kv": True}, {"target_length": 9}, {"zero_attention": True}):
        more = arrays_of(built(**changes))
        for name in set(plain) & set(more):
            if plain[name].shape == more[name].shape:
                np.testing.assert_array_equal(plain[name], more[name], err_msg=name)


def test_the_same_numbers_in_another_dtype_are_the_same_numbers_rounded() -> None:
    wide = arrays_of(built(dtype="float64"))
    for dtype in DTYPES:
        for name, array in arrays_of(built(dtype=dtype)).items():
            assert array.dtype == NUMPY_DTYPES[dtype]
            np.testing.assert_array_equal(array, wide[name].astype(array.dtype))
    mixed = arrays_of(built(dtype="mixed_float16"))
    assert all(array.dtype == np.float32 for array in mixed.values())


def test_shapes_follow_the_sizes() -> None:
    case = case_like(
        "shapes", kdim=3, vdim=5, output_dim=7, num_heads=4, num_kv_heads=2, value_head_dim=6, bias_kv=True
    )
    problem = problem_of(case)
    assert {name: array.shape for name, array in arrays_of(problem).items()} == shapes(case)
    assert problem.key.shape == (2, 4, 3) and problem.parameters.value_weight.shape == (5, 12)
    assert problem.parameters.output_weight.shape == (24, 7) and problem.parameters.bias_k is not None
    assert parameter_names(case) == tuple(problem.parameters.present)
    assert "query_bias" not in parameter_names(replace(case, bias=False))


@pytest.mark.parametrize("name", ["query", "key", "value", "cotangent", "query_weight", "output_bias"])
def test_no_subject_can_write_into_a_problem(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        arrays_of(built())[name][0] = 1


# Regimes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grouped", [1, 2])
def test_every_score_is_below_minus_one_hundred(dtype: str, grouped: int) -> None:
    problem = built(dtype=dtype, data=Data("very-negative-scores"), num_kv_heads=grouped, target_length=9)
    scores = reference_of(problem).forward.scores
    assert scores.max() < -100
    if dtype == "float32":  # without subtracting the maximum, each row would be 0/0
        assert (np.exp(scores.astype(np.float32)).sum(axis=-1) < 1e-40).all()


def test_scores_of_no_positive_scale_cannot_be_very_negative() -> None:
    with pytest.raises(ValueError, match="positive scale"):
        built(data=Data("very-negative-scores"), scale=-1.0)


def test_numbers_that_do_not_fit_the_storage_format_are_refused() -> None:
    with pytest.raises(ValueError, match="query overflow float16"):
        built(dtype="float16", data=Data("large", 1e5))


def test_large_scores_overflow_exp_unless_the_maximum_is_subtracted() -> None:
    scores = reference_of(built(data=Data("large", 8.0))).forward.scores
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(scores.astype(np.float32))).any(axis=-1).mean() > 0.5
    plain = reference_of(built()).forward.scores
    assert np.isfinite(np.exp(plain.astype(np.float32))).all()


def test_tiny_scores_leave_the_weights_nearly_uniform() -> None:
    weights = reference_of(built(data=Data("tiny"), bias=False)).forward.attn_weights
    assert np.abs(weights - 0.25).max() < 1e-5


def test_one_key_of_each_sample_is_eight_times_as_long() -> None:
    plain, dominant = built(), built(data=Data("dominant-key"))
    ratio = dominant.key.astype(np.float64) / plain.key.astype(np.float64)
    assert sorted(np.unique(ratio.round(6)).tolist()) == [1, 8]
    assert ((ratio.round(6) == 8).all(axis=-1).sum(axis=1) == 1).all()
    assert built(data=Data("dominant-key"), source_length=0).key.shape == (2, 0, 4)
    with pytest.raises(ValueError, match="keys of their own"):
        built(data=Data("dominant-key"), sharing="self", source_length=3)


def test_equal_tokens_are_all_one_token() -> None:
    problem = built(data=Data("equal"))
    for name in ("query", "key", "value"):
        assert np.unique(getattr(problem, name).reshape(-1, 4), axis=0).shape[0] == 1
    weights = reference_of(problem).forward.attn_weights
    np.testing.assert_allclose(weights, 0.25, atol=1e-15)
    assert built(data=Data("equal"), source_length=0).key.size == 0


def test_coherent_numbers_are_positive_and_keys_alike() -> None:
    problem = built(data=Data("coherent"))
    assert all((array > 0).all() for array in arrays_of(problem).values())
    assert (problem.key == problem.key[:, :1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_cancelling_sums_are_small_beside_their_terms_and_not_zero(dtype: str) -> None:
    sizes = {"embed_dim": 16, "head_dim": 8, "num_kv_heads": 1, "target_length": 6}
    problem = built(dtype=dtype, data=Data("cancelling"), bias=False, **sizes)
    forward = reference_of(problem).forward
    joined, weight = forward.joined.astype(np.float64), problem.parameters.output_weight.astype(np.float64)
    cotangent = problem.cotangent.astype(np.float64)
    scores = np.abs(forward.query).astype(np.float64) @ np.abs(forward.key).astype(np.float64).swapaxes(-1, -2)
    values = forward.attn_weights.astype(np.float64) @ np.abs(forward.value).astype(np.float64)
    unit = 2 * FORMATS[dtype].unit_roundoff
    for total, terms in (
        (forward.scores, scores * forward.scale),
        (forward.context, values),
        (forward.attn_output, np.abs(joined) @ np.abs(weight)),
        (cotangent.sum(axis=1), np.abs(cotangent).sum(axis=1)),
    ):
        ratio = np.abs(total).astype(np.float64) / terms
        assert np.median(ratio) > 0 and ratio.max() < 16 * unit


def test_of_an_odd_width_the_last_number_cancels_with_none() -> None:
    plain, paired = (built(data=Data(regime), head_dim=3, embed_dim=6) for regime in ("normal", "cancelling"))
    plain_weight, weight = plain.parameters.query_weight, paired.parameters.query_weight
    for last in (2, 5):
        np.testing.assert_array_equal(weight[:, last], plain_weight[:, last])
    for first in (0, 3):
        np.testing.assert_array_equal(weight[:, first + 1], weight[:, first])
    assert built(data=Data("cancelling"), source_length=0).key.shape == (2, 0, 4)


@pytest.mark.parametrize("dtype", [*DTYPES, "mixed_float16"])
def test_projections_lie_half_way_between_two_numbers_of_the_format(dtype: str) -> None:
    problem = built(dtype=dtype, data=Data("rounding-ties"), bias=False)
    unit = 2 * FORMATS[dtype.removeprefix("mixed_")].unit_roundoff
    for inputs, weight in (
        (problem.query, problem.parameters.query_weight),
        (problem.value, problem.parameters.value_weight),
        (problem.cotangent, problem.parameters.output_weight.T),
    ):
        projected = np.matmul(inputs.astype(np.longdouble), weight.astype(np.longdouble))
        assert ((projected >= 2) & (projected < 4)).all()
        assert (projected / unit % 2 == 1).all()  # numbers of the format are even multiples there
    assert np.unique(problem.query).size > 4
    scores = reference_of(problem).forward.scores
    assert 0 < np.abs(scores).max() < 4


def test_a_bias_makes_a_tie_of_a_projection_that_was_stored_before() -> None:
    problem = built(dtype="float16", data=Data("rounding-ties"))
    assert problem.parameters.query_bias is not None
    assert (problem.parameters.query_bias == 2.0**-10).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masked", [False, True])
def test_one_hot_weights_are_exactly_zero_and_one(dtype: str, masked: bool) -> None:
    mask = Mask(explicit=Explicit("heads", "1HTS", indices=(1,))) if masked else Mask()
    forward = reference_of(built(dtype=dtype, data=Data("one-hot"), mask=mask)).forward
    weights = forward.attn_weights.astype(np.float64)
    assert np.isin(weights, (0, 1)).all()
    for head, row in np.ndindex(2, 3):
        expected = np.eye(4)[(row + head) % 4] * (0 if masked and head == 1 else 1)
        assert (weights[:, head, row] == expected).all()


def test_one_hot_codes_need_room() -> None:
    for changes in ({"source_length": 5}, {"embed_dim": 5}, {"sharing": "key-value"}, {"kdim": 1}):
        with pytest.raises(ValueError, match="one-hot needs"):
            built(data=Data("one-hot"), **changes)
    with pytest.raises(ValueError, match="scale other than 0"):
        built(data=Data("one-hot"), scale=0.0)
    assert built(data=Data("one-hot"), source_length=0).query.shape == (2, 3, 4)


def test_integers_are_small_whole_numbers_with_queries_of_zero() -> None:
    problem = built(data=Data("integers"))
    for array in arrays_of(problem).values():
        assert (array == np.rint(array)).all() and np.abs(array).max() <= 2
    assert (reference_of(problem).forward.scores == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_inputs_are_subnormal_and_no_bias_hides_them(dtype: str) -> None:
    problem = built(dtype=dtype, data=Data("subnormal", 0.25))
    smallest = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}[dtype]
    magnitude = np.abs(problem.query.astype(np.float64))
    assert 0 < magnitude.max() < 2 * smallest and (magnitude < smallest).mean() > 0.8
    assert all((array == 0).all() for name, array in arrays_of(problem).items() if name.endswith("_bias"))


def test_a_magnitude_multiplies_the_inputs_alone() -> None:
    plain, larger = arrays_of(built(dtype="float64")), arrays_of(built(dtype="float64", data=Data("normal", 4.0)))
    for name, array in larger.items():
        np.testing.assert_array_equal(array, plain[name] * (4 if name in ("query", "key", "value") else 1))


def test_written_numbers_replace_drawn_ones() -> None:
    literals = Literals(given=(("output_bias", (1.0, 2.0, 3.0, 4.0)), ("unheard of", (1.0,))))
    problem = built(literals=literals, data=Data("literal"))
    assert problem.parameters.output_bias is not None and problem.parameters.output_bias.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(problem.query, built().query)


# Poison, layouts, sharing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [1e4, np.inf, np.nan])
def test_poison_stands_at_the_keys_that_nobody_sees_and_nowhere_else(poison: float) -> None:
    clean, poisoned = built(mask=PADDED), built(mask=PADDED, data=Data(poison=poison))
    for name in ("key", "value"):
        array = getattr(poisoned, name)
        np.testing.assert_array_equal(array[0, 2:], np.full((2, 4), poison, np.float32))
        np.testing.assert_array_equal(array[1, 3:], np.full((1, 4), poison, np.float32))
        np.testing.assert_array_equal(array[0, :2], getattr(clean, name)[0, :2])
    np.testing.assert_array_equal(poisoned.query, clean.query)


def test_poison_needs_a_key_of_its_own_that_nobody_sees() -> None:
    with pytest.raises(ValueError, match="needs a mask"):
        built(data=Data(poison=1.0))
    with pytest.raises(ValueError, match="leaves none"):
        built(data=Data(poison=1.0), mask=Mask(causal="top-left"), source_length=3)
    with pytest.raises(ValueError, match="also a query"):
        built(data=Data(poison=1.0), mask=PADDED, sharing="self", source_length=3)


def test_layouts_change_strides_and_not_numbers() -> None:
    plain = built()
    step = plain.query.itemsize
    for layout, strides in (
        ("contiguous", (12 * step, 4 * step, step)),
        ("transposed", (4 * step, 8 * step, step)),
        ("negative-stride", (12 * step, -4 * step, step)),
    ):
        problem = built(layout=layout)
        assert problem.query.strides == strides
        np.testing.assert_array_equal(problem.query, plain.query)
        assert problem.parameters.query_weight.flags.c_contiguous
    spread = built(layout="broadcast")
    assert spread.query.strides == (0, 4 * step, step)
    np.testing.assert_array_equal(spread.query[1], plain.query[0])


def test_shared_inputs_are_one_object_and_equal_copies_are_not() -> None:
    one = built(sharing="self", source_length=3)
    assert one.query is one.key is one.value
    two = built(sharing="key-value", layout="transposed")
    assert two.key is two.value and two.key is not two.query
    assert list(two.distinct_inputs) == ["query", "key"] and two.input_names == ("query", "key", "key")
    copies = built(sharing="equal-copies", source_length=3)
    assert copies.query is not copies.key and copies.key is not copies.value
    np.testing.assert_array_equal(copies.query, copies.value)
    separate = built()
    assert len({id(separate.query), id(separate.key), id(separate.value)}) == 3
