"""The constraint binds: whether a case can fail for each part of its mask.

A part binds when the reference without it answers otherwise by more than two bounds, so that an implementation that
ignores the part cannot pass, however it rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from conformance.bounds.outputs import output_bound
from conformance.expectation import Expectation, answer_of, expected
from conformance.policy import ENVELOPE
from conformance.problem import Problem
from conformance.reference import forward_of, reference_of
from conformance.spec import Array, Case


@lru_cache(maxsize=16)
def idle_parts(case: Case) -> tuple[str, ...]:
    """Parts of the mask that no implementation can be caught ignoring: they block nothing, or nothing that shows in
    what the case checks.

    None for a case without a right answer (``observe``), for an ill-formed call, and where a size is 0: nothing can
    bind there.
    """
    parts = case.mask.parts
    if not parts or case.expect != "agree" or 0 in (case.batch, case.target_length, case.source_length):
        return ()
    silent = _silent_in_output(case, parts)
    if not silent:
        return ()
    problem, expectation = expected(case, ENVELOPE)
    return tuple(part for part in silent if not _binds(expectation, _without(problem, part)))


def _silent_in_output(case: Case, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Parts that ``attn_output`` does not show or that the case does not ask it to: nearly always none, and known at a
    small part of the cost of every gradient's bound."""
    if "output" not in case.check or case.literals.expected:
        return parts
    answer = answer_of(case)
    forward = answer.reference.forward
    bound = output_bound(case, forward, ENVELOPE)
    return tuple(
        part
        for part in parts
        if not _differs(forward_of(_without(answer.problem, part)).attn_output, forward.attn_output, bound)
    )


def _without(problem: Problem, part: str) -> Problem:
    absent: dict[str, Any] = {part: None}
    return replace(problem, mask=replace(problem.mask, **absent))


def _binds(expectation: Expectation, ignoring: Problem) -> bool:
    answer = reference_of(ignoring).outputs()
    return any(
        _differs(answer[name], expectation.values[name], expectation.bounds[name]) for name in _seen_of_all(expectation)
    )


def _seen_of_all(expectation: Expectation) -> Iterator[str]:
    """The checked outputs that every subject gives: weights only where nothing else is checked."""
    check = expectation.case.check
    if "output" in check:
        yield "attn_output"
    if "gradients" in check:
        yield from (name for name in expectation.values if name.endswith(".gradient"))
    if check == ("weights",):
        yield "attn_weights"


def _differs(one: Array, other: Array, bound: Array) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(((np.abs(one - other) > 2 * bound) & np.isfinite(bound)).any())
