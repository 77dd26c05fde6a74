"""What the shipped subjects declare about their arithmetic: no wider than the envelope, and true where measured."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pytest

from conformance.adapter import announced, load
from conformance.bounds.outputs import bounds_of
from conformance.deviations.graph import deviations_of
from conformance.policy import ENVELOPE, FORMATS, Policy
from conformance.reference import reference_of
from conformance.run import policy_of
from conformance.tensors import problem_of
from tests.drawn_problems import case_like
from tests.exponentials import DIVISION, SOFTMAX, exponential_units

PAGE = Path(__file__).parent.parent / "docs" / "tolerance.md"
INSTALLED = [name for name, adapter in announced() if not adapter.missing and not name.startswith("fake/")]
ACCUMULATORS = (*("products", "batched_products", "softmax", "softmax_gradient", "weight_gradients", "bias_gradients"),)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_declared_policy_is_nowhere_wider_than_the_envelope(name: str) -> None:
    policy = policy_of(load(name))
    assert policy != ENVELOPE
    assert all(getattr(policy, stage) == getattr(ENVELOPE, stage) for stage in ACCUMULATORS)
    assert policy.flash <= ENVELOPE.flash and policy.rescalings <= ENVELOPE.rescalings
    assert policy.exponential_units <= ENVELOPE.exponential_units
    assert policy.exponential_relative <= ENVELOPE.exponential_relative
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        problem = problem_of(case_like("declared", dtype=dtype, source_length=9))
        reference = reference_of(problem)
        # a rounding in an unknown binade has 1/√2 of the worst σ
        for compute, slack in ((bounds_of, 1 + 1e-12), (deviations_of, np.sqrt(2))):
            own, wide = (compute(problem.case, reference, each) for each in (policy, ENVELOPE))
            for output, array in own.items():
                assert (array <= wide[output] * slack).all(), (dtype, output)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", [name for name in SOFTMAX if name in INSTALLED])
def test_the_exponential_is_as_accurate_as_declared(name: str, dtype: str) -> None:
    units = exponential_units(SOFTMAX[name](), dtype)
    declared = policy_of(load(name)).exponential_units
    assert 0.3 < units <= declared + (0 if name.startswith("numpy/") else DIVISION)


def test_an_exponential_that_is_not_as_accurate_would_be_noticed() -> None:
    def rough(scores: np.ndarray) -> np.ndarray:
        return np.exp(scores * np.float32(1 + 1e-7))

    assert exponential_units(rough, "float32") > 40


@pytest.mark.parametrize(
    ("without", "factor"),
    [
        ({"flash": True, "exponential_units": 4.0}, 1.02),
        ({"flash": False, "exponential_units": 40.0}, 1.05),
        ({"flash": False, "exponential_units": 4.0, "scale": "storage"}, 1.2),
    ],
    ids=["flash", "exponential", "scale"],
)
def test_each_part_of_a_declaration_sharpens_the_bound(without: dict[str, object], factor: float) -> None:
    dtype = "bfloat16" if "scale" in without else "float32"
    problem = problem_of(case_like("sharper", dtype=dtype, source_length=8))
    reference = reference_of(problem)
    declared = Policy(flash=False, scale="wide", exponential_units=4)
    left = replace(declared, **without)  # type: ignore[arg-type]
    own, wide = (bounds_of(problem.case, reference, policy)["attn_weights"] for policy in (declared, left))
    assert float(np.median(wide / own)) > factor, float(np.median(wide / own))


def test_the_page_says_what_is_declared() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| (`[a-z]+/.*?) \| (no|allowed) \| (\d+) \| (accumulator|storage) \|", page, re.MULTILINE)
    assert len(rows) == 6
    patterns = [re.findall(r"`(.*?)`", subjects) for subjects, *_ in rows]
    for name in INSTALLED:
        matching = [index for index, each in enumerate(patterns) if any(fnmatchcase(name, one) for one in each)]
        # "but the next": a row that names the subject itself comes after the pattern
        _, flash, units, scale = rows[matching[-1]]
        policy = policy_of(load(name))
        assert (policy.flash, policy.exponential_units) == (flash == "allowed", float(units)), name
        assert policy.scale == ("wide" if scale == "accumulator" else "storage"), name
    assert FORMATS["float32"].unit_roundoff * 4 > 2.1264e-7
