"""The PyTorch subjects against an attention of the tests' own, in float64, forward and backward."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adapters.pytorch import ADAPTER
from conformance.adapter import Subject
from conformance.problem import Parameters
from conformance.spec import Additive, Case, Explicit, Mask, Padding, Window
from conformance.tensors import problem_of
from tests.pytorch_oracle import assert_agrees, case_of, inference_case, outputs_by_name

torch = pytest.importorskip("torch")

SUBJECTS: dict[str, Any] = {name: construct() for name, construct in ADAPTER.subjects.items()}
CONTRACT = ("torch/handwritten", "torch/packed")


def supported(names: tuple[str, ...], case: Case) -> list[str]:
    return [name for name in names if SUBJECTS[name].unsupported(case) is None]


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
