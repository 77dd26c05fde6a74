"""What the answers to a case with dropout are held against, for subjects of one policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.bounds.running_error import Pair
from conformance.dropout.kept import Kept, factor
from conformance.expectation import Answer, Expectation, answer_of
from conformance.policy import Policy
from conformance.problem import Problem
from conformance.reference import Forward
from conformance.spec import Array


@dataclass(frozen=True)
class Scene:
    """A problem under a policy. The expectations that most answers need are computed once."""

    problem: Problem
    policy: Policy

    @property
    def keep(self) -> float:
        """The probability that a weight is kept."""
        return 1 - self.problem.case.dropout

    @cached_property
    def forward(self) -> Forward:
        """The forward pass without dropout."""
        return answer_of(self.problem.case).reference.forward

    @cached_property
    def everything(self) -> tuple[Expectation, Expectation]:
        """If every weight is kept and scaled; and if every output is, too."""
        return self._both(told=np.array(True))

    @cached_property
    def anything(self) -> tuple[Expectation, Expectation]:
        """If any weight may be kept or dropped; and any output, too: the bound spans what dropout can reach."""
        return self._both(told=np.array(False))

    def expected(self, kept: Kept) -> Expectation:
        """The expectation under one dropout."""
        return Answer.of(self.problem, kept).under(self.policy)

    def weights(self, kept: Array, told: Array) -> Pair:
        """Factors of the weights [B, H, T, S + E]; both arrays broadcast to that."""
        return self._factor(kept, told, self.forward.attn_weights.shape)

    def output(self, kept: Array, told: Array) -> Pair:
        """Factors of the output [B, T, Do]."""
        return self._factor(kept, told, self.forward.attn_output.shape)

    def _both(self, told: Array) -> tuple[Expectation, Expectation]:
        kept = np.array(True)
        weights = self.weights(kept, told)
        return self.expected(Kept(weights)), self.expected(Kept(weights, self.output(kept, told)))

    def _factor(self, kept: Array, told: Array, shape: tuple[int, ...]) -> Pair:
        dropout, dtype = self.problem.case.dropout, self.forward.attn_weights.dtype
        return factor(np.broadcast_to(kept, shape), np.broadcast_to(told, shape), dropout, dtype)
