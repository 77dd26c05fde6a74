"""One (case, subject) from start to verdict."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from conformance.adapter import Subject
from conformance.binding import idle_parts
from conformance.calls import InputsChangedError, answers_of, judged_gradients, limit_of
from conformance.compare import Judgement, compare, judged_outputs
from conformance.dropout.judge import judge_draws
from conformance.errors import NothingJudged
from conformance.expectation import answer_of, expected
from conformance.policy import ENVELOPE, Policy
from conformance.problem import Outputs
from conformance.refusal import ACCIDENTS, accepted, message_of, refused
from conformance.relations.check import expectations, hold
from conformance.relations.table import relation_of
from conformance.spec import Array, Case, Unsupported
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored, Finding, Verdict

DROPPED = "dropped: a subject that ignores its {parts} mask could not be caught by this generated case"


@dataclass(frozen=True)
class Outcome:
    """A verdict with what it was reached from: ``tensors`` as in :meth:`conformance.store.Run.tensors`, kept for
    divergences only; ``seconds`` of CPU time by stage, of which ``compile`` is ``subject`` where that compiled."""

    verdict: Verdict
    tensors: dict[str, Array] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    judged: tuple[dict[str, Array | None], ...] = ()  # of a divergence: the outputs of each call, by name


def judge(case: Case, subject: Subject) -> Verdict:
    """The verdict of one case on one subject."""
    return examine(case, subject).verdict


def examine(case: Case, subject: Subject) -> Outcome:
    """Run a subject on a case and judge every output; whatever is raised becomes an Errored verdict."""
    seconds: dict[str, float] = {}
    with warnings.catch_warnings():  # what a framework warns about is not a verdict, and must not become an error
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):  # and a subject that sets NumPy's error state sets it for itself
            return _examined(case, subject, seconds)


def _examined(case: Case, subject: Subject, seconds: dict[str, float]) -> Outcome:
    try:
        limit = limit_of(case, subject)
        if limit is not None:
            return Outcome(limit)
        if not case.source.entry and (idle := idle_parts(case)):
            return Outcome(Unsupported(DROPPED.format(parts=" and ".join(idle))))
        if case.expect == "raises":
            return Outcome(_refusal(case, subject, seconds), seconds=seconds)
        with _timed(seconds, "reference"):
            _prepare(case, policy_of(subject))
        compilations = _compilations(subject)
        with _timed(seconds, "subject"):
            answers = answers_of(answer_of(case).problem, subject)
        if _compilations(subject) != compilations:
            seconds["compile"] = seconds.pop("subject")
        with _timed(seconds, "compare"):
            return _judged(case, subject, answers, seconds)
    except KeyboardInterrupt:
        raise
    except InputsChangedError as error:
        for kept in (answer_of, expected, relation_of, expectations):
            kept.cache_clear()
        return Outcome(errored(error), seconds=seconds)
    except BaseException as error:  # SystemExit, or an outcome of pytest, from within a subject is no verdict of ours
        return Outcome(errored(error), seconds=seconds)


def _compilations(subject: Subject) -> int:
    """How often a subject has built or compiled something, where it counts that."""
    return int(getattr(subject, "compilations", 0))


def policy_of(subject: Subject) -> Policy:
    """The policy a subject declares, or the envelope of all common choices."""
    policy: Policy = getattr(subject, "policy", ENVELOPE)
    return policy


def _prepare(case: Case, policy: Policy) -> None:
    """Have at hand what the answers will be held against: subjects of one policy share it."""
    if case.relation is None:
        expected(case, policy)
    else:
        expectations(case, policy)


def errored(error: BaseException) -> Errored:
    """The verdict that keeps an exception, its message and its traceback."""
    lines = "".join(traceback.format_exception(error))
    name = type(error).__name__
    return Errored(name, message_of(error).strip() or name, lines, accident=isinstance(error, ACCIDENTS))


def _refusal(case: Case, subject: Subject, seconds: dict[str, float]) -> Verdict:
    """Agrees when the subject refuses the ill-formed call."""
    problem = problem_of(case)
    try:
        with _timed(seconds, "subject"):
            outputs = subject.attend(problem)
    except ACCIDENTS as error:
        return errored(error)
    except Exception as error:
        return Agrees(note=refused(error))
    with _timed(seconds, "compare"):
        return Diverges((accepted(case, outputs, policy_of(subject)),))


def _judged(case: Case, subject: Subject, answers: list[Outputs], seconds: dict[str, float]) -> Outcome:
    gradients = judged_gradients(case, subject)
    judged = tuple(judged_outputs(case.check, outputs, subject.gives_weights, gradients) for outputs in answers)
    if not any(judged):
        return Outcome(Unsupported(f"gives none of what the case checks: {', '.join(case.check)}"), seconds=seconds)
    found = _judgement(case, judged, policy_of(subject))
    bounds = [found.expectation.bounds[name] for name in found.actual]
    if isinstance(found.verdict, Agrees) and not bounds:
        raise NothingJudged(f"nothing that the case checks is compared: {', '.join(case.check)}")
    if bounds and all(bound.size and not np.isfinite(bound).any() for bound in bounds):
        raise NothingJudged("no element of this case can be judged: every bound overflows; choose smaller numbers")
    if isinstance(found.verdict, Diverges):
        return Outcome(found.verdict, _tensors(found, found.verdict.findings), seconds, judged)
    return Outcome(found.verdict, {}, seconds)


def judged_again(case: Case, outcome: Outcome, policy: Policy) -> Agrees | Diverges:
    """The verdict that a diverging outcome would have under another policy.

    Raises ValueError where that policy leaves nothing to judge.
    """
    with np.errstate(all="ignore"):
        return _judgement(case, outcome.judged, policy).verdict


def _judgement(case: Case, judged: Sequence[dict[str, Array | None]], policy: Policy) -> Judgement:
    """The judgement on the outputs of every call."""
    if case.relation is not None:
        return hold(case, judged, policy)
    if case.drops:
        return judge_draws(case, judged, policy)
    _, expectation = expected(case, policy)
    found = [Judgement(compare(expectation, outputs, policy), expectation, outputs) for outputs in judged]
    diverging = next((one for one in found if isinstance(one.verdict, Diverges)), found[0])
    if isinstance(diverging.verdict, Diverges) and diverging is not found[0]:  # the first call was right
        findings = tuple(replace(one, kind="unstable") for one in diverging.verdict.findings)
        return replace(diverging, verdict=replace(diverging.verdict, findings=findings))
    return diverging


def _tensors(judgement: Judgement, findings: Sequence[Finding]) -> dict[str, Array]:
    expectation = judgement.expectation
    found: dict[str, Array] = {"blocked": expectation.blocked}
    for name in dict.fromkeys(finding.output for finding in findings):
        array = judgement.actual.get(name)
        if array is not None and array.shape == expectation.values[name].shape:
            found[f"{name}/actual"] = array.astype(np.float64)
            found[f"{name}/expected"] = expectation.values[name].astype(np.float64)
            found[f"{name}/bound"] = expectation.bounds[name]
    return found


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.process_time()
    try:
        yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.process_time() - start


def unsupported_reason(limit: Unsupported) -> str:
    """Reason and link in one line."""
    return limit.reason if limit.link is None else f"{limit.reason} ({limit.link})"
