"""The NumPy subjects against a float64 loop written apart from them, central differences, and each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.numpy_reference import ADAPTER, NumpyPerHead, NumpyReference
from conformance.adapter import Subject
from conformance.problem import Outputs, Problem
from conformance.spec import NUMPY_DTYPES, Additive, Array, Case, Data, Explicit, Mask, Padding, Source, Window
from conformance.tensors import problem_of
from tests.loop_attention import loop_attention

PLAIN = Case(
    id="numpy-adapter",
    suite="numpy-adapter",
    name="numpy-adapter",
    why="All sizes differ, so that a wrong broadcast shows.",
    source=Source("tests/test_adapter_numpy.py", 1),
    batch=2,
    target_length=3,
    source_length=5,
    embed_dim=6,
    num_heads=4,
    num_kv_heads=4,
    head_dim=3,
    value_head_dim=2,
    kdim=5,
    vdim=7,
    output_dim=4,
    dtype="float64",
)
MIXED_PARTS = Mask(
    key_padding=Padding((5, 2), "left"),
    query_padding=Padding((3, 2)),
    causal="top-left",
    window=Window(1, 2, "bottom-right"),
    additive=Additive("BTS"),
)
CASES: dict[str, Case] = {
    "no-mask": PLAIN,
    "no-bias-own-scale": replace(PLAIN, bias=False, scale=0.3),
    "all-parts": replace(PLAIN, mask=MIXED_PARTS),
    "all-parts-additive-route": replace(PLAIN, mask=MIXED_PARTS, mask_route="additive"),
    "all-parts-dense-route": replace(PLAIN, mask=MIXED_PARTS, mask_route="dense"),
    "blocked-sample": replace(PLAIN, mask=Mask(key_padding=Padding((0, 3)))),
    "everything-blocked": replace(PLAIN, mask=Mask(explicit=Explicit("everything"))),
    "blocked-by-both-together": replace(
        PLAIN, mask=Mask(key_padding=Padding((2, 5)), additive=Additive("TS", 1.0, Explicit("keys", indices=(0, 1))))
    ),
    "one-blocked-head": replace(PLAIN, mask=Mask(explicit=Explicit("heads", "1HTS", indices=(2,)))),
    "minus-inf-row": replace(PLAIN, mask=Mask(additive=Additive("BHTS", 1.0, Explicit("rows", "BHTS", indices=(1,))))),
    "grouped": replace(PLAIN, num_kv_heads=2, mask=Mask(causal="bottom-right")),
    "multi-query": replace(PLAIN, num_kv_heads=1, mask=Mask(explicit=Explicit("random", "BHTS"))),
    "extra-keys": replace(PLAIN, num_kv_heads=2, bias_kv=True, zero_attention=True, mask=MIXED_PARTS),
    "extra-keys-behind-a-blocked-sample": replace(PLAIN, bias_kv=True, mask=Mask(key_padding=Padding((0, 5)))),
    "zero-attention-without-keys": replace(PLAIN, zero_attention=True, source_length=0),
    "no-keys": replace(PLAIN, source_length=0),
    "no-queries": replace(PLAIN, target_length=0),
    "no-samples": replace(PLAIN, batch=0),
    "self": replace(PLAIN, source_length=3, kdim=6, vdim=6, sharing="self", mask=Mask(causal="top-left")),
    "key-value": replace(PLAIN, kdim=5, vdim=5, sharing="key-value"),
    "negative-stride": replace(PLAIN, layout="negative-stride"),
}
EVERY_CASE = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
EVERY_SUBJECT = pytest.mark.parametrize("subject", [NumpyReference(), NumpyPerHead()], ids=lambda subject: subject.name)


@EVERY_SUBJECT
@EVERY_CASE
def test_forward_equals_the_loop(case: Case, subject: Subject) -> None:
    problem = problem_of(case)
    output, weights = loop_attention(problem)
    actual = subject.attend(problem)
    assert actual.attn_weights is not None
    assert actual.attn_output.dtype == actual.attn_weights.dtype == np.float64
    np.testing.assert_allclose(actual.attn_output, output, rtol=1e-12, atol=1e-13, strict=True)
    np.testing.assert_allclose(actual.attn_weights, weights, rtol=1e-12, atol=1e-14, strict=True)
    assert (actual.attn_weights[weights == 0] == 0).all()


@EVERY_SUBJECT
@EVERY_CASE
def test_gradients_equal_central_differences_of_the_loop(case: Case, subject: Subject) -> None:
    problem = problem_of(case)
    gradients = subject.attend(problem).gradients
    arrays = problem.distinct_inputs | problem.parameters.present
    assert list(gradients) != [] and set(gradients) == set(arrays)
    for name, array in arrays.items():
        assert gradients[name].shape == array.shape and gradients[name].dtype == array.dtype
        for index in probes(name, array):
            expected = central_difference(problem, name, index)
            np.testing.assert_allclose(gradients[name][index], expected, rtol=2e-6, atol=2e-8, err_msg=f"{name}{index}")


def probes(name: str, array: Array) -> list[tuple[int, ...]]:
    """A few elements of an array, the same every time."""
    random = np.random.default_rng(len(name))
    if array.size == 0:
        return []
    return [tuple(int(random.integers(size)) for size in array.shape) for _ in range(3)]


def central_difference(problem: Problem, name: str, index: tuple[int, ...], step: float = 1e-5) -> float:
    def objective(change: float) -> float:
        array = (problem.distinct_inputs | problem.parameters.present)[name].copy()
        array[index] += change
        if name in problem.parameters.present:
            changed = replace(problem, parameters=replace(problem.parameters, **{name: array}))
        else:
            roles = zip(("query", "key", "value"), problem.input_names, strict=True)
            inputs: dict[str, Any] = {role: array for role, source in roles if source == name}
            changed = replace(problem, **inputs)
        return float((loop_attention(changed)[0] * problem.cotangent).sum())

    return (objective(step) - objective(-step)) / (2 * step)


BLOCKED = {name: CASES[name] for name in ("blocked-sample", "blocked-by-both-together", "minus-inf-row", "no-keys")}


@EVERY_SUBJECT
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", BLOCKED)
def test_fully_blocked_rows_are_exactly_neutral(name: str, dtype: Any, subject: Subject) -> None:
    """With the cotangent on fully blocked rows alone, all but the output bias must have exactly zero gradients."""
    case = replace(BLOCKED[name], dtype=dtype, bias=name != "minus-inf-row")
    problem = problem_of(case)
    _, weights = loop_attention(problem)
    blocked = (weights == 0).all(axis=(1, 3)) if name != "minus-inf-row" else np.zeros((2, 3), bool)
    if name == "minus-inf-row":
        blocked[:, 1] = True
    assert blocked.any()
    cotangent = np.where(blocked[..., None], problem.cotangent, np.zeros((), problem.cotangent.dtype))
    actual = subject.attend(replace(problem, cotangent=cotangent))
    bias = problem.parameters.output_bias
    expected = np.zeros(case.output_dim) if bias is None else bias.astype(NUMPY_DTYPES[case.compute])
    assert (actual.attn_output[blocked] == expected).all()
    assert actual.attn_weights is not None and (actual.attn_weights.swapaxes(1, 2)[blocked] == 0).all()
    for gradient_name, gradient in actual.gradients.items():
        assert (gradient == 0).all() or gradient_name == "output_bias", gradient_name


ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["all-parts", "grouped", "extra-keys", "self", "minus-inf-row"])
def test_low_precision_stays_near_float64_and_both_ways_agree(name: str, dtype: Any) -> None:
    problem = problem_of(replace(CASES[name], dtype=dtype))
    case = problem.case
    wide = NumpyReference().attend(widened(problem))
    unit = ROUNDOFF[case.compute]
    for outputs in (NumpyReference().attend(problem), NumpyPerHead().attend(problem)):
        assert outputs.attn_output.dtype == NUMPY_DTYPES[case.compute]
        assert outputs.attn_weights is not None and outputs.attn_weights.dtype == NUMPY_DTYPES[case.compute]
        close(outputs.attn_output, wide.attn_output, 16 * unit)
        close(outputs.attn_weights, wide.attn_weights, 16 * unit)
        for gradient_name, gradient in outputs.gradients.items():
            assert gradient.dtype == NUMPY_DTYPES[case.storage], gradient_name
            close(gradient, wide.gradients[gradient_name], 16 * unit)


def close(actual: Array, expected: Array | None, tolerance: float) -> None:
    assert expected is not None
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=tolerance * largest)


def widened(problem: Problem) -> Problem:
    """The same numbers in float64."""
    parameters = {name: array.astype(np.float64) for name, array in problem.parameters.present.items()}
    inputs = {name: array.astype(np.float64) for name, array in problem.distinct_inputs.items()}
    roles = zip(("query", "key", "value"), problem.input_names, strict=True)
    changed: dict[str, Any] = {role: inputs[name] for role, name in roles}
    additive = problem.mask.additive
    return replace(
        problem,
        **changed,
        case=replace(problem.case, dtype="float64"),
        parameters=replace(problem.parameters, **parameters),
        mask=problem.mask if additive is None else replace(problem.mask, additive=additive.astype(np.float64)),
        cotangent=problem.cotangent.astype(np.float64),
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_results_are_mostly_the_rounded_float64_results(dtype: Any) -> None:
    """Each stage is rounded once from float32: a softmax or an accumulator in 16 bits would differ far more often."""
    case = replace(PLAIN, dtype=dtype, source_length=64, head_dim=16, embed_dim=64, check=("output", "weights"))
    problem = problem_of(case)
    weights = NumpyReference().attend(problem).attn_weights
    stored = problem_of(replace(case, dtype="float64"))
    assert weights is not None and stored is not None
    query, key = (projected(problem, name, NUMPY_DTYPES[dtype]) for name in ("query", "key"))
    scores = query @ key.swapaxes(-1, -2) * 0.25
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True)).astype(NUMPY_DTYPES[dtype])
    assert (weights == expected).mean() > 0.99


def projected(problem: Problem, name: str, dtype: np.dtype[Any]) -> Array:
    """[B, H, L, Dh]: a projection computed in float64, rounded to the dtype, in float64 again."""
    parameters = {key: array.astype(np.float64) for key, array in problem.parameters.present.items()}
    full = getattr(problem, name).astype(np.float64) @ parameters[f"{name}_weight"] + parameters[f"{name}_bias"]
    rounded: Array = full.astype(dtype).astype(np.float64)
    return np.stack(np.split(rounded, problem.case.num_heads, axis=-1), axis=1)


@EVERY_SUBJECT
def test_large_scores_do_not_overflow_in_float16(subject: Subject) -> None:
    """Scores past 65,504 stay finite because they are held in float32, and the row's maximum is subtracted."""
    case = replace(PLAIN, dtype="float16", data=Data(magnitude=400.0), check=("output", "weights"))
    actual = subject.attend(problem_of(case))
    assert actual.attn_weights is not None
    assert np.isfinite(actual.attn_output).all() and np.isfinite(actual.attn_weights).all()
    np.testing.assert_allclose(actual.attn_weights.astype(float).sum(-1), 1, atol=2e-3)


@EVERY_SUBJECT
def test_finite_poison_at_blocked_keys_changes_nothing_and_gets_zero_gradients(subject: Subject) -> None:
    case = replace(PLAIN, mask=Mask(key_padding=Padding((3, 4))))
    clean = subject.attend(problem_of(case))
    poisoned = subject.attend(problem_of(replace(case, data=Data(poison=1e3))))
    np.testing.assert_array_equal(clean.attn_output, poisoned.attn_output)
    assert (poisoned.gradients["key"][0, 3:] == 0).all() and (poisoned.gradients["value"][1, 4:] == 0).all()


@EVERY_SUBJECT
def test_minus_inf_blocks_even_a_score_that_overflows(subject: Subject) -> None:
    """inf + −inf would be NaN: a place with −inf is blocked, whatever its score."""
    by_bias = Additive("TS", 1.0, Explicit("keys", "TS", indices=(0, 1)))
    problem = problem_of(replace(PLAIN, mask=Mask(additive=by_bias), check=("output", "weights")))
    overflowing = problem.key.copy()
    overflowing[:, :2] = 1.7e308
    clean, actual = subject.attend(problem), subject.attend(replace(problem, key=overflowing))
    np.testing.assert_array_equal(actual.attn_output, clean.attn_output)


@EVERY_SUBJECT
def test_no_gradients_unless_asked_and_inputs_untouched(subject: Subject) -> None:
    problem = problem_of(replace(PLAIN, check=("output",)))
    before = {name: array.copy() for name, array in problem.distinct_inputs.items()}
    first, second = subject.attend(problem), subject.attend(problem)
    assert first.gradients == {}
    np.testing.assert_array_equal(first.attn_output, second.attn_output)
    for name, array in before.items():
        np.testing.assert_array_equal(array, getattr(problem, name))


def test_adapter_announces_both_subjects_under_their_names() -> None:
    assert ADAPTER.missing == () and ADAPTER.slow == {}
    for name, constructor in ADAPTER.subjects.items():
        subject = constructor()
        assert isinstance(subject, Subject) and subject.name == name and subject.unsupported(PLAIN) is None
        assert subject.versions()["numpy"] == np.__version__
        assert isinstance(subject.attend(problem_of(PLAIN)), Outputs)
