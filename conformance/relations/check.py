"""Whether the outputs of a relation's calls keep it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from conformance.compare import Judgement, structure, worst_element
from conformance.deviations.statistics import statistical_findings
from conformance.expectation import Answer, Expectation, answer_of
from conformance.measure import measures_of
from conformance.policy import Policy
from conformance.relations.table import relation_of
from conformance.relations.views import Named
from conformance.spec import Array, Case
from conformance.verdict import Agrees, Diverges, Finding, Measure

Judged = dict[str, Array | None]  # outputs of one call by name; None where one is missing


@dataclass(frozen=True, eq=False)
class Sides(Expectation):
    """One side of a relation as the expectation of the other."""

    of_both: dict[str, Array]  # standard deviations of the difference, by output name

    @property
    def deviations(self) -> dict[str, Array]:  # those of one call are cached
        return self.of_both


@lru_cache(maxsize=4)
def expectations(case: Case, policy: Policy) -> tuple[Expectation, ...]:
    """What each call of the case's relation would have to answer; only shapes and bounds are used here."""
    return tuple(answer.under(policy) for answer in _answers(case))


@lru_cache(maxsize=4)
def _answers(case: Case) -> tuple[Answer, ...]:
    own = answer_of(case)
    return tuple(own if problem is own.problem else Answer.of(problem) for problem in relation_of(case).problems)


def hold(case: Case, judged: Sequence[Judged], policy: Policy) -> Judgement:
    """The judgement on the outputs of every call: the left side's view, held against the right side's.

    A view that does not exist on both sides is not compared. NaN on both sides is the same answer: that it is wrong
    is for another case to say.
    """
    calls = expectations(case, policy)
    malformed = tuple(one for call, outputs in zip(calls, judged, strict=True) for one in structure(call, outputs))
    if malformed:
        return Judgement(Diverges(malformed), calls[0], {})
    sides, outputs = sides_of(case, calls, judged), [_wide(call, one) for call, one in zip(calls, judged, strict=True)]
    relation, split = relation_of(case), len(relation_of(case).left.problems)
    left, right = relation.left.view(outputs[:split]), relation.right.view(outputs[split:])
    alike = {name: _alike_and_not_finite(left[name], right[name]) for name in left if name in right}
    expectation = replace(sides, values={name: np.where(where, 0, right[name]) for name, where in alike.items()})
    actual = {name: np.where(where, 0, left[name]) for name, where in alike.items()}
    findings: list[Finding] = []
    measures = measures_of(expectation, actual)
    for (name, array), measure in zip(actual.items(), measures, strict=True):
        findings += list(_broken(expectation, name, array)) or _unlikely(expectation, measure, array)
    verdict = Diverges(tuple(findings), measures) if findings else Agrees(measures)
    return Judgement(verdict, expectation, actual)


def sides_of(case: Case, calls: Sequence[Expectation], judged: Sequence[Collection[str]]) -> Sides:
    """Bounds and deviations of the difference between both views, without values yet; ``judged`` are the names of
    the outputs of each call."""
    relation, split = relation_of(case), len(relation_of(case).left.problems)

    def both(arrays: Sequence[Mapping[str, Array]]) -> list[tuple[str, Array, Array]]:
        own = [{name: one[name] for name in outputs} for one, outputs in zip(arrays, judged, strict=True)]
        left, right = relation.left.bounds(own[:split]), relation.right.bounds(own[split:])
        return [(name, left[name], right[name]) for name in left if name in right]

    bounds = {name: left + right for name, left, right in both([call.bounds for call in calls])}
    deviations = {name: np.hypot(left, right) for name, left, right in both([call.deviations for call in calls])}
    seen = bounds.get("attn_weights", calls[0].blocked).shape
    plain = {one.name: getattr(calls[0], one.name) for one in fields(Expectation)} | {
        "bounds": bounds,
        "exact": frozenset(),
        "blocked": next(call.blocked for call in calls if call.blocked.shape == seen),
    }
    return Sides(**plain, of_both=deviations)


def _wide(expectation: Expectation, outputs: Judged) -> Named:
    return {name: array.astype(expectation.values[name].dtype) for name, array in outputs.items() if array is not None}


def _alike_and_not_finite(one: Array, other: Array) -> Array:
    """Where both are NaN, or the same infinity: for a relation, the same answer."""
    return np.asarray((np.isnan(one) & np.isnan(other)) | (np.isinf(one) & (one == other)))


def _broken(expectation: Expectation, name: str, actual: Array) -> Iterator[Finding]:
    expected, bound = expectation.values[name], expectation.bounds[name]
    with np.errstate(invalid="ignore"):
        broken = ~(np.abs(actual - expected) <= bound) & np.isfinite(bound)
    if broken.any():
        worst = worst_element(expected, actual, bound, broken)
        text = f"{name} does not keep the relation {expectation.case.relation}; expected is what its other side gives"
        yield Finding(name, "relation", text, int(broken.sum()), broken.size, worst)


def _unlikely(expectation: Expectation, measure: Measure, actual: Array) -> list[Finding]:
    """A difference within the bounds of both sides, and yet larger than their roundings make it."""
    return [replace(one, kind="relation") for one in statistical_findings(expectation, measure, actual)]
