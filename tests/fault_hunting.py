"""Hunting a fault with the shipped cases, the cheapest first: which see it and how, and which other judges would have.

A fault and its control are subjects that differ in the fault alone. A case is judged where the two answer differently;
where their answers are bit-equal, the verdict is the control's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from conformance.adapter import Subject
from conformance.calls import answers_of
from conformance.casefile import read_case_file
from conformance.casefolder import case_files
from conformance.problem import Outputs, Problem
from conformance.run import examine
from conformance.spec import Array, Case
from conformance.tensors import problem_of
from conformance.verdict import Diverges, Errored
from tests.other_judges import JUDGES, Answers, Opinion, opinions

Maker = Callable[[], Subject]
CASE_FILES = case_files(Path(__file__).parent.parent / "cases")
LARGEST_COST = 3_000_000  # multiply-adds of one case; larger ones would outgrow a test that runs on every change
ENOUGH = 3  # killing cases after which a hunt ends
TIERS = {
    "errored": "structure",
    "accepted": "structure",
    "raised": "structure",
    "missing": "structure",
    "shape": "structure",
    "dtype": "structure",
    "nan-blocked-row": "structure",
    "uniform-blocked-row": "structure",
    "unmasked-blocked-row": "structure",
    "blocked-row": "structure",
    "blocked-weight": "structure",
    "nonfinite": "structure",
    "row-sum": "bound",
    "inexact": "bound",
    "value": "bound",
    "unstable": "relation",
    "statistics": "statistics",
    "dropout-rate": "statistics",
    "dropout-shared": "statistics",
    "dropout-mean": "statistics",
    "output-dropout": "structure",
    "weights-after-dropout": "structure",
    "relation": "relation",
    "as-contract": "structure",
}


@dataclass(frozen=True)
class Kill:
    """A case that sees the fault: its size, its first finding, and what other judges say of the same answer."""

    case: str
    cost: int
    output: str
    kind: str
    ratio: str
    others: tuple[Opinion, ...]  # in the order of JUDGES

    @property
    def tier(self) -> str:
        return TIERS[self.kind]


@dataclass(frozen=True)
class Hunt:
    """The killing cases of one fault, the cheapest first, of ``judged`` cases that it answers unlike the control."""

    judged: int
    kills: tuple[Kill, ...]

    def opinion(self, judge: int) -> Opinion:
        """The best that another judge says over the killing cases."""
        return max((kill.others[judge] for kill in self.kills), key=list(Opinion).index, default=Opinion.PASSES)

    def row(self, name: str, stage: str) -> list[str]:
        """The hunt as a line of the table of faults."""
        first, count = self.kills[0], f"{len(self.kills)} / {self.judged}"
        seen = [first.case, str(first.cost), first.output, first.kind, first.tier, first.ratio]
        return [name, stage, count, *seen, *(self.opinion(index).value for index in range(len(JUDGES)))]


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
    """The problems of all small cases. A case that cannot be built is left out; the tests of the controls report it."""
    cases = sorted((case for file in CASE_FILES for case in cases_of(file)), key=cost)
    problems = []
    for case in cases:
        with suppress(ValueError):
            problems.append(problem_of(case))
    return tuple(problems)


def answers(problem: Problem, subject: Subject) -> Answers:
    """The outputs of every call that the case makes; None when one of them raises, or gives no arrays."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return answers_of(problem, subject)
        except Exception:  # noqa: BLE001  # whatever a fault raises is its answer
            return None


@cache
def right_answers(control: Maker) -> tuple[Answers, ...]:
    """What the control answers, in the order of :func:`cheapest_first`."""
    subject = control()
    return tuple(
        None if subject.unsupported(problem.case) else answers(problem, subject) for problem in cheapest_first()
    )


def same(one: Answers, other: Answers) -> bool:
    """Whether two answers are bit-equal in every call, so that no judge could tell them apart."""
    if one is None or other is None:
        return one is other
    return all(_same_outputs(left, right) for left, right in zip(one, other, strict=True))


def _same_outputs(one: Outputs, other: Outputs) -> bool:
    if set(one.gradients) != set(other.gradients):
        return False
    pairs = [(one.attn_output, other.attn_output), (one.attn_weights, other.attn_weights)]
    pairs += [(one.gradients[name], other.gradients[name]) for name in one.gradients]
    return all(_same_array(left, right) for left, right in pairs)


def _same_array(left: Array | None, right: Array | None) -> bool:
    if left is None or right is None:
        return left is right
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    return np.array_equal(left.astype(np.float64), right.astype(np.float64), equal_nan=True)


def hunt(fault: Maker, control: Maker, *, most: int | None = None, step: int = 1, dropout: bool = False) -> Hunt:
    """Judge a fault case after case until enough kill it, or ``most`` are judged. Each case meets a new subject.

    ``step`` leaves all but each so-manieth case out, ``dropout`` all whose probability of dropout is 0.
    """
    kills: list[Kill] = []
    judged = 0
    for problem, right in telling(fault, control, step, dropout=dropout):
        judged += 1
        found = kill(problem, fault(), right)
        kills += [] if found is None else [found]
        if len(kills) >= ENOUGH or judged == most:
            break
    return Hunt(judged, tuple(kills))


def telling(fault: Maker, control: Maker, step: int = 1, *, dropout: bool = False) -> Iterator[tuple[Problem, Answers]]:
    """Problems that the fault answers otherwise than the control, with the control's answer."""
    subject = fault()
    pairs = zip(cheapest_first(), right_answers(control), strict=True)
    for problem, right in [pair for pair in pairs if pair[0].case.dropout > 0 or not dropout][::step]:
        if subject.unsupported(problem.case) is None and not same(answers(problem, subject), right):
            yield problem, right


def kill(problem: Problem, subject: Subject, right: Answers) -> Kill | None:
    """How the case sees the fault, or None when it does not. The control agrees in every case, so errors are faults."""
    case = problem.case
    name = f"{case.suite}/{case.name}"
    outcome = examine(case, subject)
    match outcome.verdict:
        case Diverges(findings=(first, *_)):
            ratio = "" if first.worst is None else f"{first.worst.ratio:.3g}"
            others = opinions(case, outcome.judged, right)
            return Kill(name, cost(case), first.output, first.kind, ratio, others)
        case Errored(exception=exception):
            return Kill(name, cost(case), exception, "errored", "", (Opinion.SEES,) * len(JUDGES))
        case _:
            return None
