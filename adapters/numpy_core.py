"""Precision, mask and softmax attention of one or many heads, forward and backward, in plain NumPy.

Precision follows what a careful implementation does for each storage dtype: 16-bit arrays are multiplied, summed
and passed through the softmax in float32 and the result of each stage is rounded to storage; float32 and float64 are
computed as they are. Scores never leave the compute dtype, so they cannot overflow where float16 would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.problem import Problem
from conformance.spec import NUMPY_DTYPES, Array, Case


@dataclass(frozen=True)
class Precision:
    """Between stages every array has the compute dtype and holds only values that the storage dtype has."""

    storage: np.dtype[Any]
    compute: np.dtype[Any]
    gradient: np.dtype[Any]  # the dtype of inputs and parameters; differs from storage under a mixed policy

    @classmethod
    def of(cls, case: Case) -> Precision:
        storage = NUMPY_DTYPES[case.compute]
        compute = np.dtype(np.float64) if case.compute == "float64" else np.dtype(np.float32)
        return cls(storage, compute, NUMPY_DTYPES[case.storage])

    def stored(self, array: Array) -> Array:
        """Round to the storage dtype, and back to the compute dtype, which is exact."""
        return array.astype(self.storage, copy=False).astype(self.compute, copy=False)

    def result(self, array: Array) -> Array:
        """An output or the weights, in the storage dtype."""
        return array.astype(self.storage)

    def gradient_result(self, array: Array) -> Array:
        """A gradient rounded to storage, in the dtype of what it is the gradient of."""
        return array.astype(self.storage).astype(self.gradient)


@dataclass(frozen=True)
class Masking:
    """A mask ready for the scores: ``blocked`` includes the places where ``bias`` is −inf."""

    blocked: Array  # bool [B, H, T, S + E]
    bias: Array | None  # compute dtype [B, H, T, S + E]

    def head(self, index: int) -> Masking:
        """The mask of one head, without the head axis."""
        return Masking(self.blocked[:, index], None if self.bias is None else self.bias[:, index])


def masking_of(problem: Problem, compute: np.dtype[Any]) -> Masking:
    """Mask of a problem by the route its case asks for; appended keys are open to every query."""
    mask, shape = problem.mask, problem.mask.shape
    if problem.case.mask_route == "additive":
        blocked, bias = None, mask.float_mask(compute)
    else:
        blocked, bias = mask.blocked(), mask.bias()
    open_keys = ((0, 0), (0, 0), (0, 0), (0, problem.case.extra_keys))
    full_blocked = np.pad(np.broadcast_to(False if blocked is None else blocked, shape), open_keys)
    if bias is None:
        return Masking(full_blocked, None)
    full_bias = np.pad(np.broadcast_to(bias.astype(compute), shape), open_keys)
    return Masking(full_blocked | np.isneginf(full_bias), full_bias)


def kept_by_dropout(problem: Problem, compute: np.dtype[Any]) -> Array | None:
    """Factors of the weights, [B, H, T, S + E]: 0 with probability p, else 1/(1 − p); None where nothing is dropped."""
    case = problem.case
    if not case.drops:
        return None
    shape = (*problem.mask.shape[:3], problem.mask.shape[3] + case.extra_keys)
    drawn = np.random.default_rng(problem.seed).random(shape)
    factors: Array = np.where(drawn < case.dropout, 0, 1 / (1 - case.dropout)).astype(compute)
    return factors


@dataclass(frozen=True)
class Attended:
    """Results of one forward pass; the leading axes are [B, H] or [B]."""

    probabilities: Array  # [..., T, S + E], compute dtype, not rounded
    weights: Array  # the same, rounded to storage
    kept: Array | None  # factors of dropout
    dropped: Array  # weights after dropout
    aggregate: Array  # [..., T, Dhv]


def attend(
    query: Array,
    key: Array,
    value: Array,
    masking: Masking,
    scale: float,
    precision: Precision,
    kept: Array | None = None,
) -> Attended:
    """softmax(scale · Q Kᵀ + bias) V over the keys that are not blocked; a row without any has weights 0.

    query [..., T, Dh], key [..., S + E, Dh], value [..., S + E, Dhv]; ``kept`` multiplies the weights.
    """
    scores = (query @ key.swapaxes(-1, -2)) * precision.compute.type(scale)
    if masking.bias is not None:
        scores = scores + masking.bias
    probabilities = _softmax(np.where(masking.blocked, -np.inf, scores))
    weights = precision.stored(probabilities)
    dropped = weights if kept is None else precision.stored(weights * kept)
    return Attended(probabilities, weights, kept, dropped, precision.stored(dropped @ value))


def _softmax(scores: Array) -> Array:
    """Softmax over the last axis where −inf means blocked; rows of −inf alone, or of no keys, come out 0."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(np.isneginf(highest), 0, highest))
    total = exponentials.sum(axis=-1, keepdims=True)
    probabilities: Array = exponentials / np.where(total == 0, 1, total)
    return probabilities


@dataclass(frozen=True)
class CoreGradients:
    """Gradients of query, key and value of a head, compute dtype, not yet rounded to storage."""

    query: Array  # [..., T, Dh]
    key: Array  # [..., S + E, Dh]
    value: Array  # [..., S + E, Dhv]


def attend_backward(
    upstream: Array, query: Array, key: Array, value: Array, forward: Attended, masking: Masking, scale: float
) -> CoreGradients:
    """Gradients of sum(aggregate · upstream), upstream [..., T, Dhv].

    With the factors F of dropout: dV = (P ∘ F)ᵀ dO, dP = dO Vᵀ ∘ F, dS = P ∘ (dP − rowsum(P ∘ dP)), dQ = scale · dS K,
    dK = scale · dSᵀ Q.
    """
    probabilities = forward.probabilities
    d_weights = upstream @ value.swapaxes(-1, -2)
    if forward.kept is not None:
        d_weights = d_weights * forward.kept
    centre = (probabilities * d_weights).sum(axis=-1, keepdims=True)
    d_scores = np.where(masking.blocked, 0, probabilities * (d_weights - centre))
    factor = d_scores.dtype.type(scale)
    return CoreGradients(
        query=(d_scores @ key) * factor,
        key=(d_scores.swapaxes(-1, -2) @ query) * factor,
        value=forward.dropped.swapaxes(-1, -2) @ upstream,
    )
