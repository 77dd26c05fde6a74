"""Whether the outputs of a relation's calls keep it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from conformance.compare import structure, worst_element
from conformance.expectation import Answer, Expectation
from conformance.measure import measure_of
from conformance.policy import Policy
from conformance.relations import Named, relation_of
from conformance.spec import Array, Case
from conformance.verdict import Agrees, Diverges, Finding

Judged = dict[str, Array | None]  # outputs of one call by name; None where one is missing


@lru_cache(maxsize=4)
def expectations(case: Case, policy: Policy) -> tuple[Expectation, ...]:
    """What each call of the case's relation would have to answer; only shapes and bounds are used here."""
    return tuple(answer.under(policy) for answer in _answers(case))


@lru_cache(maxsize=4)
def _answers(case: Case) -> tuple[Answer, ...]:
    return tuple(Answer.of(problem) for problem in relation_of(case).problems)


def hold(
    case: Case, judged: Sequence[Judged], policy: Policy
) -> tuple[Agrees | Diverges, Expectation, dict[str, Array]]:
    """The verdict on the outputs of every call, and what it was reached from: the right side's view as expectation,
    the left side's as what came.

    A view that does not exist on both sides is not compared. NaN on both sides is the same answer: that it is wrong
    is for another case to say.
    """
    calls = expectations(case, policy)
    malformed = tuple(one for call, outputs in zip(calls, judged, strict=True) for one in structure(call, outputs))
    if malformed:
        return Diverges(malformed), calls[0], {}
    relation, outputs = relation_of(case), [_wide(call, one) for call, one in zip(calls, judged, strict=True)]
    known = [{name: call.bounds[name] for name in one} for call, one in zip(calls, judged, strict=True)]
    split = len(relation.left.problems)
    left, right = relation.left.view(outputs[:split]), relation.right.view(outputs[split:])
    left_bounds, right_bounds = relation.left.bounds(known[:split]), relation.right.bounds(known[split:])
    names = [name for name in left if name in right]
    shape = left["attn_weights"].shape if "attn_weights" in left else calls[0].blocked.shape
    expectation = replace(
        calls[0],
        values={name: right[name] for name in names},
        bounds={name: left_bounds[name] + right_bounds[name] for name in names},
        exact=frozenset(),
        blocked=next(call.blocked for call in calls if call.blocked.shape == shape),
    )
    actual = {name: left[name] for name in names}
    findings = tuple(one for name in names for one in _broken(expectation, name, actual[name]))
    measures = tuple(measure_of(expectation, name, actual[name]) for name in names)
    return Diverges(findings, measures) if findings else Agrees(measures), expectation, actual


def _wide(expectation: Expectation, outputs: Judged) -> Named:
    return {name: array.astype(expectation.values[name].dtype) for name, array in outputs.items() if array is not None}


def _broken(expectation: Expectation, name: str, actual: Array) -> Iterator[Finding]:
    expected, bound = expectation.values[name], expectation.bounds[name]
    with np.errstate(invalid="ignore"):
        same = (np.abs(actual - expected) <= bound) | (np.isnan(actual) & np.isnan(expected)) | (actual == expected)
    broken = ~same & np.isfinite(bound)
    if broken.any():
        worst = worst_element(expected, actual, bound, broken)
        text = f"{name} does not keep the relation {expectation.case.relation}; expected is what its other side gives"
        yield Finding(name, "relation", text, int(broken.sum()), broken.size, worst)
