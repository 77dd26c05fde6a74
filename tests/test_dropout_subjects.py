"""How the shipped subjects draw: from the seed of the problem, in training only, and leaving no trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.adapter import adapter_of, adapters, load
from conformance.facts import facts_of
from conformance.pair import Pair
from conformance.problem import Outputs
from conformance.reproducer import script_of
from conformance.run import judge
from conformance.spec import Case
from conformance.tensors import problem_of
from conformance.verdict import Agrees
from tests.test_dropout import REVEALING

EVERY = tuple(name for adapter in adapters() for name in adapter.subjects)
DROPS = (
    *("numpy/reference", "numpy/per-head"),
    *("keras/mha", "keras/mha@scores", "keras/mha@graph", "keras/gqa"),
    *("torch/mha", "torch/mha@weights", "torch/mha@seq-first", "torch/sdpa-math"),
    *("torch/handwritten", "torch/packed", "torch/textbook"),
)
SELF = Case(
    **(vars(REVEALING) | {"source_length": 9, "sharing": "self", "data": replace(REVEALING.data, regime="normal")})
)


def answers(subject: str, case: Case, seed: int = 5) -> Outputs:
    return load(subject).attend(replace(problem_of(case), seed=seed))


def same(one: Outputs, other: Outputs) -> bool:
    return np.array_equal(one.attn_output, other.attn_output)


@pytest.mark.parametrize("subject", EVERY)
def test_a_subject_without_dropout_says_so(subject: str) -> None:
    limit = load(subject).unsupported(REVEALING)
    assert (limit is None) == (subject in (*DROPS, "keras/mha@xla"))
    assert limit is None or "dropout" in limit.reason or "evaluation" in limit.reason


@pytest.mark.parametrize("subject", EVERY)
def test_training_without_dropout_is_the_identity(subject: str) -> None:
    case = replace(SELF, dropout=0.0, check=("output",))
    if load(subject).unsupported(case) is None:
        assert same(answers(subject, case), answers(subject, replace(case, mode="evaluate")))
    else:
        assert subject == "torch/mha@inference"


@pytest.mark.parametrize("subject", EVERY)
def test_evaluation_ignores_dropout(subject: str) -> None:
    """Not bit for bit: with dropout Keras takes another route, even in evaluation."""
    case = replace(SELF, mode="evaluate")
    assert load(subject).unsupported(case) is None
    assert isinstance(judge(case, load(subject)), Agrees)
    assert same(answers(subject, case, seed=1), answers(subject, case, seed=2))


@pytest.mark.parametrize("subject", DROPS)
def test_the_seed_decides(subject: str) -> None:
    first, again, other = (answers(subject, REVEALING, seed) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_pytorchs_own_random_numbers_go_on_as_before() -> None:
    torch = pytest.importorskip("torch")
    answers("torch/mha", REVEALING)  # builds the module, which PyTorch initialises at random
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    answers("torch/mha", REVEALING)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("subject", ["torch/mha", "keras/mha"])
def test_dropout_in_training_has_no_reproducer(subject: str) -> None:
    pair = Pair(REVEALING, facts_of(REVEALING), subject, adapter_of(subject), (0, 0))
    assert script_of(pair) is None
    script = script_of(replace(pair, case=replace(REVEALING, mode="evaluate")))
    assert script is not None and f"dropout={REVEALING.dropout}" in script
