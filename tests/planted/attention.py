"""The control of the planted faults: a correct subject, forward and backward written by hand in NumPy.

Formulas: dV = (P ∘ F)ᵀ dC, dP = dC Vᵀ ∘ F with the factors F of dropout, dS = P ∘ (dP − rowsum(P ∘ dP)), dQ = c dS K,
dK = c dSᵀ Q, and the product rule for each projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case, Unsupported
from tests.planted.forward import Forward
from tests.planted.setting import Role, Setting, Tape, shared_gradients

ROLES: tuple[Role, ...] = ("query", "key", "value")


class Attention(Forward):
    """Correct multi-head attention; each planted fault is a subclass that overrides one stage."""

    name = "planted/control"
    gives_weights = True
    gives_gradients = True

    def versions(self) -> Mapping[str, str]:
        return {"numpy": np.__version__}

    def unsupported(self, case: Case) -> Unsupported | None:
        return None

    def attend(self, problem: Problem) -> Outputs:
        """Output, weights and the gradients asked for; ValueError when the call is ill-formed."""
        with np.errstate(all="ignore"):
            problem = self.receive(problem)
            setting = replace(Setting.of(problem), mask=self.read_mask(problem))
            tape = self.forward(setting)
            gradients = self.backward(setting, tape) if problem.case.wants_gradients else {}
        weights = self.returned_weights(setting, self.handed_back(tape))
        return Outputs(tape.output.astype(setting.storage), weights, gradients)

    def handed_back(self, tape: Tape) -> Array:
        """The weights that are returned: those before dropout."""
        return tape.weights

    def output_backward(self, setting: Setting, tape: Tape) -> tuple[Array, Array, Array]:
        """Gradients of the joined heads [B, T, H · Dhv], of the output weight and of the output bias."""
        cotangent = setting.take(setting.problem.cotangent)
        weight = setting.take(setting.problem.parameters.output_weight)
        joined = setting.keep(self.product(setting, cotangent, weight.T))
        return (joined, self.weight_gradient(setting, tape.joined, cotangent), self.bias_gradient(setting, cotangent))

    def weight_gradient(self, setting: Setting, inputs: Array, outputs: Array) -> Array:
        """Σ over batch and positions of inputs ⊗ outputs, [width in, width out]."""
        left, right = (inputs.reshape(-1, inputs.shape[-1]), outputs.reshape(-1, outputs.shape[-1]))
        return setting.keep(self.product(setting, left.T, right))

    def bias_gradient(self, setting: Setting, outputs: Array) -> Array:
        """Σ over batch and positions."""
        return setting.keep(outputs.sum(axis=(0, 1)))

    def aggregate_backward(self, setting: Setting, tape: Tape, context: Array) -> tuple[Array, Array]:
        """Gradients of the weights [B, H, T, S + E] and of the values [B, H, S + E, Dhv]."""
        weights = self.product(setting, context, tape.value.swapaxes(-1, -2)) * tape.kept
        return weights, setting.keep(self.product(setting, tape.dropped.swapaxes(-1, -2), context))

    def softmax_backward(self, setting: Setting, tape: Tape, weights: Array) -> Array:
        """Gradient of the scores [B, H, T, S + E]; exactly 0 where the probability is 0."""
        centre = (tape.probabilities * weights).sum(axis=-1, keepdims=True)
        return np.asarray(tape.probabilities * (weights - centre))

    def scores_backward(self, setting: Setting, tape: Tape, scores: Array) -> tuple[Array, Array]:
        """Gradients of the query heads [B, H, T, Dh] and of the key heads [B, H, S + E, Dh]."""
        scale = setting.arithmetic.type(self.scale(setting))
        query = setting.keep(self.product(setting, scores, tape.key) * scale)
        return query, setting.keep(self.product(setting, scores.swapaxes(-1, -2), tape.query) * scale)

    def group_backward(self, setting: Setting, role: Role, heads: Array) -> Array:
        """[B, H, L, d] → [B, heads of the role, L, d]: the sum over the query heads that share one."""
        batch, count, length, width = heads.shape
        own = setting.heads(role)
        return setting.keep(heads.reshape(batch, own, count // own, length, width).sum(axis=2))

    def project_backward(self, setting: Setting, role: Role, heads: Array) -> tuple[Array, Array, Array]:
        """Gradients of the input [B, L, width], of the weight and of the bias."""
        projected = self.join(setting, heads)
        inputs = setting.take(getattr(setting.problem, role))
        weight = setting.take(getattr(setting.problem.parameters, f"{role}_weight"))
        given = setting.keep(self.product(setting, projected, weight.T))
        return (given, self.weight_gradient(setting, inputs, projected), self.bias_gradient(setting, projected))

    def gather(self, setting: Setting, by_role: dict[Role, Array]) -> dict[str, Array]:
        """Gradients of the inputs that are distinct objects."""
        return shared_gradients(setting.problem.case, by_role)

    def backward(self, setting: Setting, tape: Tape) -> dict[str, Array]:
        """Run the stages in reverse; gradients by name, in the dtype of the array they belong to."""
        joined, output_weight, output_bias = self.output_backward(setting, tape)
        found: dict[str, Array] = {"output_weight": output_weight, "output_bias": output_bias}
        batch, length, width = joined.shape
        heads = setting.problem.case.num_heads
        context = joined.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
        weights, value = self.aggregate_backward(setting, tape, context)
        query, key = self.scores_backward(setting, tape, self.softmax_backward(setting, tape, weights))
        by_role: dict[Role, Array] = {}
        for role, gradient in zip(ROLES, (query, key, value), strict=True):
            own = self.group_backward(setting, role, gradient)
            length = getattr(setting.problem, role).shape[1]
            if own.shape[2] > length:  # the first extra row is the learnt one, when there is one
                found["bias_k" if role == "key" else "bias_v"] = setting.keep(own[:, :, length].sum(axis=0)).reshape(-1)
            results = self.project_backward(setting, role, own[:, :, :length])
            by_role[role], found[f"{role}_weight"], found[f"{role}_bias"] = results
        found |= self.gather(setting, by_role)
        problem = setting.problem
        owners = {**problem.distinct_inputs, **problem.parameters.present}
        return {name: found[name].astype(owner.dtype) for name, owner in owners.items()}
