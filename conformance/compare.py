"""Outputs against their expectation: what is wrong, of which kind, where it is worst, and how close the rest came.

Structure comes before numbers: presence, shape, dtype, fully blocked rows, finiteness, exact zeros; then the bound, and
last the statistics of what lies inside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from conformance.bounds.softmax_error import sum_error
from conformance.deviations.statistics import statistical_findings
from conformance.expectation import Expectation
from conformance.measure import measured
from conformance.policy import FORMATS, Policy
from conformance.problem import Outputs
from conformance.spec import NUMPY_DTYPES, Array
from conformance.verdict import Agrees, Diverges, Finding, Kind, Worst


@dataclass(frozen=True)
class Judgement:
    """A verdict and what it was reached from: the outputs that it shows, by name, and what they were held against."""

    verdict: Agrees | Diverges
    expectation: Expectation
    actual: Mapping[str, Array | None]


def compare(expectation: Expectation, actual: dict[str, Array | None], policy: Policy) -> Agrees | Diverges:
    """Judge every output by name; an output that is None was promised and not given."""
    findings = list(structure(expectation, actual))
    unfit = {finding.output for finding in findings if finding.kind in ("missing", "shape")}
    fit = {name: array for name, array in actual.items() if array is not None and name not in unfit}
    found = measured(expectation, fit)
    for (name, array), (measure, outside) in zip(fit.items(), found, strict=True):
        wrong: list[Finding] = []
        if outside or name in expectation.exact:
            wrong = list(_numbers(expectation, name, array, policy))
        elif name == "attn_weights":
            wrong = list(_row_sums(expectation, array, policy))
        findings += wrong or statistical_findings(expectation, measure, array)
    measures = tuple(measure for measure, _ in found)
    return Diverges(tuple(findings), measures) if findings else Agrees(measures)


def structure(expectation: Expectation, actual: Mapping[str, Array | None]) -> Iterator[Finding]:
    """Outputs that are missing, or of the wrong shape or dtype."""
    for name, array in actual.items():
        if array is None:
            yield Finding(name, "missing", f"{name} was asked for and not returned")
        else:
            yield from _shape(expectation, name, array)


def judged_outputs(
    check: Collection[str], outputs: Outputs, gives_weights: bool, gradients: tuple[str, ...]
) -> dict[str, Array | None]:
    """What a case checks and the subject says it gives, by output name; None where it is missing."""
    judged: dict[str, Array | None] = {}
    if "output" in check:
        judged["attn_output"] = outputs.attn_output
    if "weights" in check and gives_weights:
        judged["attn_weights"] = outputs.attn_weights
    return judged | {f"{name}.gradient": outputs.gradients.get(name) for name in gradients}


def _shape(expectation: Expectation, name: str, actual: Array) -> Iterator[Finding]:
    expected = expectation.values[name].shape
    if actual.shape != expected:
        yield Finding(name, "shape", f"{name} has shape {list(actual.shape)}, expected {list(expected)}")
    case = expectation.case
    dtype = NUMPY_DTYPES[case.storage if name.endswith(".gradient") else case.compute]
    if actual.dtype != dtype:
        yield Finding(name, "dtype", f"{name} has dtype {actual.dtype}, expected {dtype}")


def _numbers(expectation: Expectation, name: str, array: Array, policy: Policy) -> Iterator[Finding]:
    """Findings about the numbers of one output: each element is counted under the first kind that fits it."""
    expected, bound = expectation.values[name], expectation.bounds[name]
    actual = array.astype(expected.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(actual - expected)
        wrong = ~(error <= bound) & np.isfinite(bound)
    inexact = np.zeros(wrong.shape, np.bool_)
    if name in expectation.exact:
        inexact = ~wrong & (actual.astype(np.float64) != expected.astype(np.float64))
    rows = _in_blocked_rows(expectation, name, expected.shape)
    in_rows = (wrong | inexact) & rows
    if in_rows.any():
        kind, text = _blocked_row_kind(expectation, name, actual, in_rows)
        yield from _finding(expectation, name, kind, in_rows, actual, text)
    wrong, inexact = wrong & ~rows, inexact & ~rows
    nonfinite = (wrong | inexact) & ~np.isfinite(actual)
    unequal = inexact & ~nonfinite
    yield from _finding(expectation, name, "inexact", unequal, actual, "must be bit-equal: every step is exact here")
    yield from _finding(expectation, name, "nonfinite", nonfinite, actual, "is not finite where the reference is")
    zero = wrong & ~nonfinite & (bound == 0) & (expected == 0)
    where = "at a blocked position" if name == "attn_weights" else "where nothing that is not masked contributes"
    yield from _finding(expectation, name, "blocked-weight", zero, actual, f"is not exactly 0 {where}")
    value = wrong & ~nonfinite & ~zero
    yield from _finding(expectation, name, "value", value, actual, "lies outside the bound")
    if name == "attn_weights" and not wrong.any():
        yield from _row_sums(expectation, array, policy)


def _finding(
    expectation: Expectation, name: str, kind: Kind, where: Array, actual: Array, text: str
) -> Iterator[Finding]:
    count = int(where.sum())
    if not count:
        return
    worst = worst_element(expectation.values[name], actual, expectation.bounds[name], where)
    yield Finding(name, kind, f"{name} {text}", count, where.size, worst)


def worst_element(expected: Array, actual: Array, bound: Array, where: Array) -> Worst:
    """The element of ``where`` with the largest error/bound ratio; not finite beats all, then larger errors win."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(actual - expected).astype(np.float64)
        ratio = np.where(np.isfinite(error), error / bound, np.inf)
    ratio = np.where(where, np.where(np.isnan(ratio), 0, ratio), -1)
    candidates = ratio == ratio.max()
    index = np.unravel_index(int(np.argmax(np.where(candidates, np.nan_to_num(error, nan=np.inf), -1))), error.shape)
    place = tuple(int(i) for i in index)
    return Worst(place, float(expected[index]), float(actual[index]), float(error[index]), float(bound[index]))


def _in_blocked_rows(expectation: Expectation, name: str, shape: tuple[int, ...]) -> Array:
    """Elements of the output or of the weights that belong to a fully blocked row (of any head)."""
    rows = expectation.fully_blocked
    if name == "attn_weights":
        return np.broadcast_to(rows[..., None], shape)
    if name == "attn_output":
        return np.broadcast_to(np.asarray(rows.any(axis=1))[..., None], shape)
    return np.zeros(shape, np.bool_)


def _blocked_row_kind(expectation: Expectation, name: str, actual: Array, where: Array) -> tuple[Kind, str]:
    """Which known behaviour a fully blocked row shows."""
    if not np.isfinite(actual[where]).all():
        return "nan-blocked-row", "is not finite in a fully blocked row"
    if name == "attn_weights":
        keys = actual.shape[-1]
        if np.allclose(actual[where], 1 / keys, rtol=0.02):
            return "uniform-blocked-row", "is uniform over all keys in a fully blocked row"
        return "blocked-row", "is not exactly 0 in a fully blocked row"
    behaviours: tuple[tuple[Kind, str, Array], ...] = (
        ("uniform-blocked-row", "averages all values in a fully blocked row", expectation.uniform_output),
        ("unmasked-blocked-row", "is answered unmasked in a fully blocked row", expectation.unmasked_output),
    )
    for kind, text, other in behaviours:
        separation = np.abs(other - expectation.values[name])[where].max()
        if separation > 0 and np.abs(actual - other)[where].max() <= 0.05 * separation:
            return kind, text
    return "blocked-row", "is not the output bias in a fully blocked row"


@lru_cache(maxsize=4)
def row_sums(expectation: Expectation, policy: Policy) -> tuple[Array, Array]:
    """Row sums [B, H, T] of the weights and their bound, infinite where a row is not judged.

    They are 1, up to roundings.
    """
    storage = FORMATS[expectation.case.compute]
    softmax = policy.format(policy.softmax, storage)
    bound = sum_error((~expectation.blocked).sum(axis=-1), storage, softmax, softmax.unit_roundoff)
    judged = np.isfinite(expectation.bounds["attn_weights"]).all(axis=-1) & ~expectation.fully_blocked
    return expectation.values["attn_weights"].sum(axis=-1), np.where(judged, bound, np.inf)


def _row_sums(expectation: Expectation, weights: Array, policy: Policy) -> Iterator[Finding]:
    if expectation.weights_after_dropout:
        return
    expected, bound = row_sums(expectation, policy)
    actual = weights.astype(expected.dtype).sum(axis=-1)
    wrong = np.isfinite(bound) & ~(np.abs(actual - expected) <= bound)
    if wrong.any():
        worst = worst_element(expected, actual, bound, wrong)
        text = "a row of attn_weights does not sum to 1"
        yield Finding("attn_weights", "row-sum", text, int(wrong.sum()), wrong.size, worst)
