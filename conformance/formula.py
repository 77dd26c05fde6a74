"""The bound of a divergence's worst element as a formula with the numbers of its case, as plain values for a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from conformance.bounds.parts import Breakdown, Part, Term, parts_of
from conformance.expectation import Expectation, expected
from conformance.policy import ENVELOPE, FORMATS, Policy
from conformance.spec import Case
from conformance.verdict import Finding, Worst

RELATED = "A relation holds two answers against each other: the bound is that of both together."
DROPPED = "Under dropout the bound is that of what one draw kept, or what chance allows the mean of the draws."
UNTOUCHED = "Every term here is exactly 0 or given, and nothing is rounded: the answer must be exactly {:.9g}."
EXACT = (
    "Every step of this case is exact in every format, so the answer must be equal; the bound only says what rounding "
    "would be allowed."
)
WRITTEN = "number written in the case"


def formula_of(case: Case, policy: Policy, findings: Sequence[Finding]) -> dict[str, Any] | None:
    """The bound of the worst element of the first finding that has one, or None.

    ``terms`` are those of the last operation of the output, ``parts`` what each stage adds; both sum to ``bound``.
    Where there is no such formula ``note`` says why. ``policy`` is what the subject declares other than the envelope.
    """
    found = next(((finding, finding.worst) for finding in findings if finding.worst is not None), None)
    if found is None:
        return None
    finding, worst = found
    note, breakdown = _explained(case, policy, finding, worst)
    return {
        "output": finding.output,
        "index": list(worst.index),
        "bound": worst.bound,
        "policy": {
            one.name: value for one in fields(Policy) if (value := getattr(policy, one.name)) != _usual(one.name)
        },
        "note": note,
        "terms": [asdict(term) for term in breakdown.terms],
        "parts": [asdict(part) for part in breakdown.parts],
    }


def _usual(name: str) -> Any:
    return getattr(ENVELOPE, name)


def _explained(case: Case, policy: Policy, finding: Finding, worst: Worst) -> tuple[str, Breakdown]:
    nothing = Breakdown(worst.bound, (), ())
    if case.relation is not None:
        return RELATED, nothing
    if case.drops:
        return DROPPED, nothing
    if worst.bound == 0:
        return UNTOUCHED.format(worst.expected), nothing
    expectation = expected(case, policy)[1]
    if finding.kind == "row-sum":
        return "", _row_sum(expectation, policy, worst)
    with np.errstate(all="ignore"):
        found = parts_of(case, expectation.reference, policy, finding.output, worst.index)
    note = EXACT if finding.kind == "inexact" else ""
    return note, _with_written(found, worst.bound - found.bound) if _writes(case, finding.output) else found


def _writes(case: Case, output: str) -> bool:
    return any(name == output for name, _ in case.literals.expected)


def _with_written(found: Breakdown, distance: float) -> Breakdown:
    """With the distance of a written number from the reference, which its bound also spans."""
    if distance <= 0:
        return found
    part = Part(WRITTEN, "|written − reference|", distance, distance, {}, largest=False)
    term = Term("|written − reference|", distance, {})
    return Breakdown(found.bound + distance, (*found.parts, part), (*found.terms, term) if found.terms else ())


def _row_sum(expectation: Expectation, policy: Policy, worst: Worst) -> Breakdown:
    """Of the sum of a row of weights, by :func:`conformance.bounds.softmax_error.sum_error`."""
    storage = FORMATS[expectation.case.compute]
    softmax = policy.format(policy.softmax, storage)
    terms = int((~expectation.blocked[worst.index]).sum())
    numbers = {"n": terms, "u": softmax.unit_roundoff, "u_s": storage.unit_roundoff, "φ": storage.underflow}
    rule = "2·u_s + 2·n·φ + r/(1 − r), r = (n + 4)·u"
    return Breakdown(
        worst.bound,
        (Part("sum of the row", rule, worst.bound, worst.bound, numbers, largest=False),),
        (Term(rule, worst.bound, numbers),),
    )
