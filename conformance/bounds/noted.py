"""The walk of both graphs of the bound with notes of what is rounded, and with some stages made exact."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from conformance.bounds.backward import BackwardGraph
from conformance.bounds.forward import ForwardGraph, Result
from conformance.bounds.outputs import outputs_of
from conformance.bounds.running_error import Pair, Rules, exact
from conformance.bounds.softmax_error import softmax_hull, widest_exponent
from conformance.policy import Format, Policy
from conformance.reference import Reference
from conformance.spec import Array, Case


@dataclass(frozen=True)
class Step:
    """One application of a rule: arrays in the shape of its result, or broadcastable to it."""

    kind: Literal["sum", "softmax", "store"]
    inherited: Array  # error that the operands bring along
    error: Array  # of the result
    magnitude: Array  # Σ|x||y| of a sum, |y| of what is stored, P of a softmax
    roundings: Array  # n of a sum
    arithmetic: Format
    exponents: Array | None = None  # τ of a softmax

    @property
    def own(self) -> Array:
        """What the rule itself adds."""
        return self.error - self.inherited


@dataclass(frozen=True)
class Note:
    """What happened in one stage, and the error that it would have handed on."""

    steps: tuple[Step, ...]
    error: Array


@dataclass(frozen=True)
class NotingRules(Rules):
    """The rules of the bound, with a list of what they did since the last stage."""

    steps: list[Step] = field(default_factory=list)

    def accumulated(self, inherited: Array, roundings: Array, magnitude: Array, arithmetic: Format) -> Array:
        error = super().accumulated(inherited, roundings, magnitude, arithmetic)
        self.steps.append(Step("sum", inherited, error, magnitude, roundings, arithmetic))
        return error

    def store(self, pair: Pair, *holdings: float) -> Pair:
        stored = super().store(pair, *holdings)
        once = np.ones(pair.error.shape)
        self.steps.append(Step("store", pair.error, stored.error, pair.magnitude, once, self.storage))
        return stored


@dataclass(frozen=True)
class NotingGraph(ForwardGraph):
    """A forward graph that notes the steps of each stage, also of the backward graph that follows it."""

    rules: NotingRules
    exactly: Collection[str] = ()  # stages that hand on exactly the reference's values
    noted: Collection[str] = ()  # stages whose notes are kept
    notes: dict[str, Note] = field(default_factory=dict)
    rules_type: ClassVar[type[Rules]] = NotingRules

    def once(self, what: str, depends: tuple[str, ...], compute: Callable[[], Result]) -> Result:
        """Computed in each walk: walks differ in what is exact."""
        return compute()

    def handed_on(self, stage: str, pair: Pair) -> Pair:
        if stage in self.noted:
            self.notes.setdefault(stage, Note(tuple(self.rules.steps), pair.error))
        self.rules.steps.clear()
        return exact(pair.value) if stage in self.exactly else pair

    def exponents(self, scores: Pair, arithmetic: Format) -> Array:
        found, weights = super().exponents(scores, arithmetic), self.reference.attn_weights
        hull = softmax_hull(weights, found, widest_exponent(arithmetic))
        self.rules.steps.append(Step("softmax", hull, hull, weights.astype(np.float64), self.terms, arithmetic, found))
        return found

    def softmax(self, scores: Pair) -> Pair:
        pair = super().softmax(scores)
        self.rules.steps[-1] = replace(self.rules.steps[-1], error=pair.error)
        return pair


@dataclass(frozen=True)
class Walk:
    """The graph of one output under one policy, which can be walked with any of its stages exact."""

    case: Case
    reference: Reference
    policy: Policy
    output: str

    def with_exact(self, exactly: Collection[str], noted: Collection[str] = ()) -> tuple[Array, dict[str, Note]]:
        """The bound of the output if every implementation held the outcome of some stages exactly, and notes of
        others."""
        graph = NotingGraph.of(self.case, self.reference.forward, self.policy)
        graph = replace(graph, exactly=frozenset(exactly), noted=frozenset(noted))
        error = outputs_of(graph, BackwardGraph, self.reference)[self.output].error
        return error, graph.notes
