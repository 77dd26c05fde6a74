"""What a correct implementation must answer for one problem: values, bounds, and what must be exact."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from conformance.bounds import bounds_of
from conformance.extended import product
from conformance.policy import Policy
from conformance.reference import Reference, join_heads, reference_of, softmax
from conformance.spec import NUMPY_DTYPES, Array, Case, Problem

EXACT_FORWARD = ("attn_output", "attn_weights", "output_weight.gradient", "output_bias.gradient")
EXACT_VALUE = ("value.gradient", "value_weight.gradient", "value_bias.gradient")


@dataclass(frozen=True)
class Expectation:
    """Reference values (float64 or longdouble) and bounds (float64) of every judged output, by output name."""

    case: Case
    values: dict[str, Array]
    bounds: dict[str, Array]
    exact: frozenset[str]  # outputs that every format represents exactly, judged by equality
    blocked: Array  # bool [B, H, T, S + E]
    uniform_output: Array  # attn_output if fully blocked rows attended to all keys alike
    unmasked_output: Array  # attn_output if nothing were masked

    @property
    def fully_blocked(self) -> Array:
        """bool [B, H, T]: rows in which every key is blocked."""
        rows: Array = self.blocked.all(axis=-1)
        return rows


@dataclass(frozen=True)
class Answer:
    """The reference of one problem, from which the expectation under any policy follows."""

    problem: Problem
    reference: Reference
    exact: frozenset[str]

    @classmethod
    def of(cls, problem: Problem) -> Answer:
        reference = reference_of(problem)
        return cls(problem, reference, _exact_outputs(problem.case, reference))

    def under(self, policy: Policy) -> Expectation:
        """The expectation with the bounds of a policy."""
        case, forward = self.problem.case, self.reference.forward
        bounds = bounds_of(case, self.reference, policy)
        nothing = np.zeros_like(forward.blocked)
        unmasked = _output(self.reference, softmax(forward.scores, nothing))
        everywhere = forward.blocked.shape[-1]
        uniform = np.where(forward.fully_blocked, 1 / max(everywhere, 1), forward.attn_weights)
        return Expectation(
            case,
            self.reference.outputs(),
            bounds,
            self.exact,
            forward.blocked,
            _output(self.reference, uniform),
            unmasked,
        )


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
    alone = replace(case, batch=1)
    return replace(problem, case=alone, mask=replace(mask, shape=(1, *mask.shape[1:]), **parts), **inputs)


def _output(reference: Reference, weights: Array) -> Array:
    forward = reference.forward
    joined = join_heads(product(weights, forward.value))
    output: Array = product(joined, forward.parameters["output_weight"]) + forward.parameters.get("output_bias", 0)
    return output


def _exact_outputs(case: Case, reference: Reference) -> frozenset[str]:
    """Outputs for which every stage is representable in the storage format, so that no correct order of operations
    rounds. Flash kernels rebuild the weights as exp(s − lse), exact only for weights of 0 and 1."""
    if case.data.regime not in ("integers", "one-hot", "literal") or case.mixed:
        return frozenset()
    forward, backward = reference.forward, reference.backward
    stages = [forward.query, forward.key, forward.value, forward.attn_weights, forward.joined, forward.attn_output]
    largest = sum(float(np.abs(stage).max(initial=0)) for stage in (forward.value, forward.joined))
    if largest * max(case.source_length, case.embed_dim) > 2.0**20 or not all(_representable(case, s) for s in stages):
        return frozenset()
    weights = forward.attn_weights
    equal = weights.max(axis=-1, keepdims=True, initial=0)
    flat_rows = np.where(weights > 1e-320, weights == equal, True).all()  # all visible scores alike: exp is exp(0) = 1
    if not flat_rows:
        return frozenset()
    exact = set(EXACT_FORWARD[:2])
    if backward is not None:
        gradients = EXACT_FORWARD[2:]
        if bool(np.isin(weights, (0, 1)).all()) and case.sharing == "separate":
            gradients = gradients + EXACT_VALUE
        if _representable(case, backward.context) and _representable(case, backward.value):
            outputs = reference.outputs()
            exact |= {name for name in gradients if name in outputs and _representable(case, outputs[name])}
    return frozenset(exact)


def _representable(case: Case, array: Array) -> bool:
    """Whether every element is a number of the storage format; weights below its range count as the 0 they become."""
    visible = np.where(np.abs(array) < 1e-320, 0, array)
    return bool(np.array_equal(visible.astype(NUMPY_DTYPES[case.storage]).astype(array.dtype), visible))
