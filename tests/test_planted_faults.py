"""The suite bites: each planted fault is caught by the default cases, and the control that carries none is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.casefile import read_case_file
from conformance.casefolder import case_files
from conformance.problem import Outputs, Problem
from conformance.run import judge
from conformance.spec import Array, Case, Source
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored, Verdict
from tests.conftest import CAUGHT
from tests.planted import CONTROL, FAULTS
from tests.planted.attention import Attention
from tests.planted.projection_faults import ReshapeWithTargetLength

CASE_FILES = case_files(Path(__file__).parent.parent / "cases")
LARGEST_COST = 3_000_000  # multiply-adds of one case; larger ones would outgrow a test that runs on every change
ENOUGH = 3  # catching cases after which a fault counts as caught
MOST = 600  # cases judged for one fault
SQUARE = Case(
    id="planted-square",
    suite="planted",
    name="square",
    why="The notebook's fault cannot show where the lengths are equal.",
    source=Source("tests/test_planted_faults.py", 1),
    batch=2,
    target_length=4,
    source_length=4,
    embed_dim=8,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    value_head_dim=4,
    kdim=8,
    vdim=8,
    output_dim=8,
)


@dataclass(frozen=True)
class Catch:
    """What a fault looked like in the case that caught it first."""

    case: str
    output: str
    kind: str
    ratio: str


def cost(case: Case) -> int:
    """Multiply-adds of the forward pass, about."""
    target, source = case.batch * case.target_length, case.batch * case.source_length
    projections = target * case.embed_dim * case.num_heads * case.head_dim * 2
    projections += source * (case.kdim * case.head_dim + case.vdim * case.value_head_dim) * case.num_kv_heads
    return projections + target * case.source_length * case.num_heads * (case.head_dim + case.value_head_dim)


@cache
def cases_of(file: Path) -> tuple[Case, ...]:
    """The small cases of a file that ask for a definite answer of every subject."""
    found = read_case_file(file)
    return tuple(case for case in found if case.expect != "observe" and not case.subjects and cost(case) < LARGEST_COST)


@cache
def cheapest_first() -> tuple[Problem, ...]:
    """The problems of all small cases. A case that cannot be built is left out; the control's test reports it."""
    cases = sorted((case for file in CASE_FILES for case in cases_of(file)), key=cost)
    problems = []
    for case in cases:
        with suppress(ValueError):
            problems.append(problem_of(case))
    return tuple(problems)


def answer(problem: Problem, subject: Attention) -> Outputs | None:
    """The outputs, those of the second call for a repeated case, or None when the subject raises."""
    try:
        if problem.case.calls == "repeated":
            subject.attend(problem)
        return subject.attend(problem)
    except (ValueError, IndexError):
        return None


@cache
def right_answers() -> tuple[Outputs | None, ...]:
    """What the control answers, in the order of :func:`cheapest_first`."""
    return tuple(answer(problem, CONTROL()) for problem in cheapest_first())


def same(one: Outputs | None, other: Outputs | None) -> bool:
    """Whether two answers are bit-equal, so that no judge could tell them apart."""
    if one is None or other is None:
        return one is other
    pairs = [(one.attn_output, other.attn_output), (one.attn_weights, other.attn_weights)]
    pairs += [(one.gradients[name], other.gradients[name]) for name in one.gradients]
    return all(_same_array(left, right) for left, right in pairs)


def _same_array(left: Array | None, right: Array | None) -> bool:
    if left is None or right is None:
        return left is right
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    return np.array_equal(left.astype(np.float64), right.astype(np.float64), equal_nan=True)


def telling_cases(fault: type[Attention]) -> Iterator[tuple[Case, bool]]:
    """Cases that the fault answers otherwise than the control, and whether it raises there."""
    for problem, right in zip(cheapest_first(), right_answers(), strict=True):
        found = answer(problem, fault())
        if not same(found, right):
            yield problem.case, found is None


def catch(case: Case, verdict: Verdict, *, raises: bool) -> Catch | None:
    """What the verdict shows, or None when the fault goes unseen. An error counts only if the fault itself raised."""
    name = f"{case.suite}/{case.name}"
    match verdict:
        case Diverges(findings=(first, *_)):
            ratio = "" if first.worst is None else f"{first.worst.ratio:.3g}"
            return Catch(name, first.output, first.kind, ratio)
        case Errored(exception=exception) if raises:
            return Catch(name, exception, "errored", "")
        case _:
            return None


def test_faults_are_told_apart() -> None:
    names = [fault().name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 32
    for fault in FAULTS:
        assert fault().name.startswith("planted/")
        assert fault.__doc__, fault
        assert "\n" not in fault.__doc__


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in CASE_FILES])
def test_control_never_diverges(file: Path) -> None:
    wrong = {}
    for case in cases_of(file):
        if case.subjects:  # none of them is the control
            continue
        verdict = judge(case, CONTROL())
        if not isinstance(verdict, Agrees):
            wrong[case.id] = verdict
    assert not wrong


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name.split("/")[1]) for fault in FAULTS])
def test_fault_is_caught(fault: type[Attention], record_property: Callable[[str, object], None]) -> None:
    caught: list[Catch] = []
    judged = 0
    for case, raises in telling_cases(fault):
        judged += 1
        found = catch(case, judge(case, fault()), raises=raises)
        caught += [] if found is None else [found]
        if len(caught) >= ENOUGH or judged >= MOST:
            break
    assert caught, f"{fault.name} answered {judged} cases otherwise than the control and none of them showed it"
    first = caught[0]
    row = [fault.name.split("/")[1], first.case, first.output, first.kind, first.ratio, f"{len(caught)} / {judged}"]
    record_property(CAUGHT, "\t".join(row))


@pytest.mark.parametrize("source_length", [3, 5, 8], ids=["shorter", "longer", "twice"])
def test_notebook_fault_shows_only_where_lengths_differ(source_length: int) -> None:
    assert isinstance(judge(SQUARE, CONTROL()), Agrees)
    assert isinstance(judge(SQUARE, ReshapeWithTargetLength()), Agrees)
    oblong = replace(SQUARE, id=f"planted-oblong-{source_length}", source_length=source_length)
    assert isinstance(judge(oblong, CONTROL()), Agrees)
    assert isinstance(judge(oblong, ReshapeWithTargetLength()), Diverges | Errored)
