"""What a correct implementation must answer for one problem: values, bounds, and what must be exact."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from conformance.bounds.outputs import bounds_of
from conformance.deviations.graph import deviations_of
from conformance.dropout.kept import EVERYTHING, Kept
from conformance.exactness import exact_outputs
from conformance.extended import product
from conformance.policy import Policy
from conformance.problem import Problem
from conformance.reference import Reference, join_heads, reference_of, softmax
from conformance.spec import Array, Case
from conformance.tensors import problem_of


@dataclass(frozen=True, eq=False)
class Expectation:
    """Reference values (float64 or longdouble) and bounds (float64) of every judged output, by output name."""

    case: Case
    reference: Reference
    policy: Policy
    values: dict[str, Array]
    bounds: dict[str, Array]
    exact: frozenset[str]  # outputs that every format represents exactly, judged by equality
    blocked: Array  # bool [B, H, T, S + E]
    weights_after_dropout: bool = field(default=False, kw_only=True)  # whether attn_weights are those

    @property
    def fully_blocked(self) -> Array:
        """bool [B, H, T]: rows in which every key is blocked."""
        return np.asarray(self.blocked.all(axis=-1))

    @cached_property
    def uniform_output(self) -> Array:
        """``attn_output`` if fully blocked rows attended to all keys alike."""
        forward = self.reference.forward
        keys = max(forward.blocked.shape[-1], 1)
        return _output(self.reference, np.where(forward.fully_blocked, 1 / keys, forward.attn_weights))

    @cached_property
    def unmasked_output(self) -> Array:
        """``attn_output`` if nothing were masked."""
        forward = self.reference.forward
        return _output(self.reference, softmax(forward.scores, np.zeros_like(forward.blocked)))

    @cached_property
    def deviations(self) -> dict[str, Array]:
        """Standard deviations (float64) of the errors of a typical correct implementation, by output name; computed
        when first asked for. Infinite where statistics do not hold."""
        deviations, computed = deviations_of(self.case, self.reference, self.policy), self.reference.outputs()
        if self.weights_after_dropout:
            deviations["attn_weights"] = deviations["dropped_weights"]
        for name, _ in self.case.literals.expected:
            distance = np.abs(self.values[name] - computed[name]).astype(np.float64)
            deviations[name] = np.hypot(deviations[name], distance)
        return deviations


@dataclass(frozen=True)
class Answer:
    """The reference of one problem, from which the expectation under any policy follows."""

    problem: Problem
    reference: Reference

    @classmethod
    def of(cls, problem: Problem, kept: Kept = EVERYTHING) -> Answer:
        return cls(problem, reference_of(problem, kept))

    def under(self, policy: Policy) -> Expectation:
        """The expectation with the bounds of a policy.

        Numbers written in the case file replace the reference's. The bound then also spans their distance from the
        reference, without which it would not hold for the written number.

        Raises ValueError when a written number lies outside the bound of the reference.
        """
        case = self.problem.case
        values, bounds = self.reference.outputs(), bounds_of(case, self.reference, policy)
        exact = exact_outputs(case, self.reference, policy)
        for name, numbers in case.literals.expected:
            computed = values[name]
            values[name] = written_values(name, numbers, computed, bounds[name], name in exact)
            bounds[name] = bounds[name] + np.abs(values[name] - computed).astype(np.float64)
        return Expectation(case, self.reference, policy, values, bounds, exact, self.reference.forward.blocked)


@lru_cache(maxsize=8)
def answer_of(case: Case) -> Answer:
    """The problem of a case and its reference, shared by all that ask for them."""
    return Answer.of(problem_of(case))


@lru_cache(maxsize=16)
def expected(case: Case, policy: Policy) -> tuple[Problem, Expectation]:
    """Problem and expectation of a case, shared between the subjects of one policy."""
    answer = answer_of(case)
    return answer.problem, answer.under(policy)


def sample_of(problem: Problem, index: int) -> Problem:
    """Sample ``index`` of a problem as a problem of its own, with batch 1."""
    case = problem.case

    def own(array: Array | None) -> Array | None:
        return array if array is None or array.shape[0] == 1 else array[index : index + 1]

    mask = problem.mask
    batched = {"key_padding", "key_lengths", "query_padding", "query_lengths"}
    parts = {name: own(getattr(mask, name)) for name in batched}
    for name in ("explicit", "additive"):
        written = getattr(case.mask, name)
        parts[name] = own(getattr(mask, name)) if written and written.axes[0] == "B" else getattr(mask, name)
    inputs = {name: getattr(problem, name)[index : index + 1] for name in ("query", "key", "value", "cotangent")}
    if case.sharing == "self":
        inputs["key"] = inputs["value"] = inputs["query"]
    elif case.sharing == "key-value":
        inputs["value"] = inputs["key"]
    elif case.sharing == "query-key":
        inputs["key"] = inputs["query"]
    alone = replace(case, batch=1)
    return replace(problem, case=alone, mask=replace(mask, shape=(1, *mask.shape[1:]), **parts), **inputs)


def _output(reference: Reference, weights: Array) -> Array:
    forward = reference.forward
    joined = join_heads(product(weights, forward.value))
    output: Array = product(joined, forward.parameters["output_weight"]) + forward.parameters.get("output_bias", 0)
    return output


def written_values(name: str, numbers: Any, computed: Array, bound: Array, exact: bool) -> Array:
    """The numbers that a case writes for an output, as an array like the reference's.

    Raises ValueError, naming the element, where they and the reference contradict each other.
    """
    written = np.array(numbers, dtype=computed.dtype).reshape(computed.shape)
    wrong = ~(np.abs(written - computed) <= bound) & np.isfinite(bound)
    if exact:
        wrong |= written.astype(np.float64) != computed.astype(np.float64)
    if wrong.any():
        index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        place = ", ".join(str(int(axis)) for axis in index)
        raise ValueError(
            f"the case writes {name}[{place}] = {float(written[index])!r}, the reference computes "
            f"{float(computed[index])!r}; the bound is {0.0 if exact else float(bound[index]):.3g}"
        )
    return written
