"""The derived error bound: how far each element of each output of a correct implementation may lie from the reference.

The rules of :mod:`conformance.bounds.running_error` are carried along the graph of attention, forward and backward,
with the numbers of the case itself. Every placement of the scale, the biases and the intermediate stores is covered at
once; what else is allowed is the subject's :class:`~conformance.policy.Policy`. Nothing here is tuned.
"""

from __future__ import annotations

import numpy as np

from conformance.bounds.backward import BackwardGraph
from conformance.bounds.forward import ForwardGraph
from conformance.bounds.running_error import NOT_JUDGED, Pair
from conformance.policy import Policy
from conformance.reference import Forward, Reference
from conformance.spec import Array, Case


def bounds_of(case: Case, reference: Reference, policy: Policy) -> dict[str, Array]:
    """Bound of every output of ``reference.outputs()``, float64 in the output's shape.

    0 asks for equality; infinity means that the element may overflow and is not judged.
    """
    pairs = outputs_of(ForwardGraph.of(case, reference.forward, policy), BackwardGraph, reference)
    return {name: _judged(pair) for name, pair in pairs.items()}


def output_bound(case: Case, forward: Forward, policy: Policy) -> Array:
    """Bound of ``attn_output`` alone, at the cost of the forward pass."""
    return _judged(ForwardGraph.of(case, forward, policy).run().attn_output)


def _judged(pair: Pair) -> Array:
    return np.where(pair.error >= NOT_JUDGED, np.inf, pair.error)


def outputs_of(graph: ForwardGraph, backward: type[BackwardGraph], reference: Reference) -> dict[str, Pair]:
    """Every output of ``reference.outputs()`` at the end of a graph, which the graph's rules have walked."""
    stages = graph.run()
    found = {"attn_output": stages.attn_output, "attn_weights": stages.attn_weights}
    if reference.forward.kept.weights is not None:
        found["dropped_weights"] = stages.dropped_weights
    if reference.backward is not None:
        gradients = backward(graph, stages, reference.backward).run()
        found |= {f"{name}.gradient": gradients[name] for name in reference.backward.gradients}
    return found
