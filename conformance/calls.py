"""Calls of a subject: what it refuses to answer, and its answers, kept from later changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapter import Subject
from conformance.dropout.judge import draws_of
from conformance.expectation import sample_of
from conformance.problem import Outputs, Problem
from conformance.relations.table import relation_of
from conformance.spec import Case, Unsupported
from conformance.tensors import fingerprint, parameter_names


class InputsChangedError(ValueError):
    """A subject wrote into the arrays of a problem, which other subjects share."""


def limit_of(case: Case, subject: Subject) -> Unsupported | None:
    """The documented reason why a subject cannot answer a case, or one of the calls of its relation; None without one.

    Raises TypeError where the subject gives anything else.
    """
    limit = _limit(case, subject)
    if limit is not None or case.relation is None:
        return limit
    limits = (_limit(problem.case, subject) for problem in relation_of(case).problems)
    return next((one for one in limits if one is not None), None)


def _limit(case: Case, subject: Subject) -> Unsupported | None:
    limit: Any = subject.unsupported(case)
    if limit is None or isinstance(limit, Unsupported):
        return limit
    raise TypeError(f"unsupported() gave a {type(limit).__name__}, not Unsupported or None")


def judged_gradients(case: Case, subject: Subject) -> tuple[str, ...]:
    """Inputs and parameters whose gradients are judged."""
    if not (subject.gives_gradients and case.wants_gradients):
        return ()
    return case.input_gradients + (parameter_names(case) if case.calls != "one-sample-at-a-time" else ())


def answers_of(problem: Problem, subject: Subject) -> list[Outputs]:
    """The subject's answers to every call of a problem; those to single samples are put together."""
    answers = [attended(call, subject) for call in calls_of(problem)]
    return [_together(answers)] if _in_samples(problem.case) else answers


def calls_of(problem: Problem) -> list[Problem]:
    """The calls of a problem: one, or the same twice, or one for each sample, each call of its relation, or each draw
    of dropout."""
    case = problem.case
    if case.relation is not None:
        return list(relation_of(case).problems)
    if case.drops:
        return list(draws_of(problem))
    if case.calls == "repeated":
        return [problem, problem]
    return [sample_of(problem, index) for index in range(case.batch)] if _in_samples(case) else [problem]


def _in_samples(case: Case) -> bool:
    plain = case.relation is None and not case.drops
    return plain and case.calls == "one-sample-at-a-time" and case.batch > 0


def attended(problem: Problem, subject: Subject) -> Outputs:
    """One call. Its answer is copied, so that a later call cannot change it, and its inputs must be left as they were:
    they are shared with other subjects."""
    before = fingerprint(problem)
    outputs = subject.attend(problem)
    kept = Outputs(
        np.array(outputs.attn_output),
        None if outputs.attn_weights is None else np.array(outputs.attn_weights),
        {name: np.array(array) for name, array in outputs.gradients.items()},
    )
    if fingerprint(problem) != before:
        raise InputsChangedError("the subject changed the arrays of the problem, which other subjects share")
    return kept


def _together(parts: list[Outputs]) -> Outputs:
    """One output from those of single samples. Parameter gradients are sums over samples and are left out: adding
    them here would be this suite's rounding, not the subject's."""
    weights = [part.attn_weights for part in parts if part.attn_weights is not None]
    names = [name for name in parts[0].gradients if name in ("query", "key", "value")]
    return Outputs(
        np.concatenate([part.attn_output for part in parts]),
        np.concatenate(weights) if weights else None,
        {name: np.concatenate([part.gradients[name] for part in parts]) for name in names},
    )
