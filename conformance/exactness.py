"""Which outputs of a case no correct order of operations can round.

A sum of products is exact, in whatever order, when every term is a multiple of some power of two and the sum of the
terms' absolute values is within 2^p such units, p being the accumulator's significand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.policy import FORMATS, Policy
from conformance.reference import Backward, Forward, Reference, flat, join_heads, sum_groups
from conformance.spec import NUMPY_DTYPES, Array, Case

REGIMES = ("integers", "one-hot", "literal")
_NO_UNIT = 4096  # unit of an array of zeros: any power of two divides it
_VANISHED = 1e-320  # numbers below this are 0 in every format
_CLEAR_GAP = 760.0  # scores so far below the largest have the weight 0 in every format; exp(−746) is 0 in float64


def exact_outputs(case: Case, reference: Reference, policy: Policy) -> frozenset[str]:
    """Names of the outputs for which every stage is representable in the storage format and every sum is exact."""
    if case.data.regime not in REGIMES or case.mixed:
        return frozenset()
    question = _Question(case, reference.forward, policy)
    if not question.forward_exact():
        return frozenset()
    found = {"attn_output", "attn_weights"}
    if reference.backward is not None:
        found |= {f"{name}.gradient" for name in question.exact_gradients(reference.backward)}
    return frozenset(found)


def present(array: Array) -> Array:
    """The array with 0 for what only the reference's wide exponents can hold, such as weights of exp(−1024)."""
    return np.where(np.abs(array) < _VANISHED, 0, array)


def unit_exponent(array: Array) -> int | None:
    """Exponent of the largest power of two of which all elements are multiples; None past float64's precision."""
    narrow = present(array).astype(np.float64)
    if not np.array_equal(narrow, present(array)):
        return None
    mantissa, exponent = np.frexp(narrow[narrow != 0])
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64)).astype(np.int64)
    return int((exponent + lowest - 53).min(initial=_NO_UNIT))


def exact_product(left: Array, right: Array, bits: int, addend: Array | None = None) -> bool:
    """Whether a matrix product, added to something or not, is exact in any order with ``bits`` of significand."""
    units = [unit_exponent(array) for array in (left, right)]
    total = np.abs(left).astype(np.float64) @ np.abs(right).astype(np.float64)
    if units[0] is None or units[1] is None:
        return False
    unit = units[0] + units[1]
    if addend is not None:
        more = unit_exponent(addend)
        if more is None:
            return False
        unit, total = min(unit, more), total + np.abs(addend).astype(np.float64)
    return bool(total.max(initial=0) <= 2.0 ** min(bits + unit, 1000))


def exact_sum(array: Array, bits: int) -> bool:
    """Whether the sum over the first axis is exact in any order."""
    return exact_product(np.ones((1, array.shape[0])), array, bits)


@dataclass(frozen=True)
class _Question:
    case: Case
    forward: Forward
    policy: Policy

    def bits(self, stage: str) -> int:
        return self.policy.format(getattr(self.policy, stage), FORMATS[self.case.compute]).significand

    def representable(self, array: Array) -> bool:
        array = present(array)
        return bool(np.array_equal(array.astype(NUMPY_DTYPES[self.case.storage]).astype(array.dtype), array))

    @property
    def weights(self) -> Array:
        return present(self.forward.attn_weights)

    def forward_exact(self) -> bool:
        forward = self.forward
        return (
            self._projection_exact("value")
            and self._weights_exact()
            and exact_product(self.weights, forward.value, self.bits("batched_products"))
            and self.representable(forward.context)
            and self._linear_exact("output", forward.joined, forward.attn_output)
        )

    def _projection_exact(self, name: str) -> bool:
        heads, inputs = getattr(self.forward, name), self.forward.inputs[name]
        own = self.case.num_heads if name == "query" else self.case.num_kv_heads
        rows = join_heads(heads[:, :: self.case.num_heads // own, : inputs.shape[1]])
        return self._linear_exact(name, inputs, rows)

    def _linear_exact(self, name: str, inputs: Array, result: Array) -> bool:
        weight, bias = self.forward.parameters[f"{name}_weight"], self.forward.parameters.get(f"{name}_bias")
        before = result if bias is None else result - bias
        stored = self.representable(result) and self.representable(before)
        return stored and exact_product(inputs, weight, self.bits("products"), bias)

    def _weights_exact(self) -> bool:
        """Each row gives its weight to one key, or alike to keys whose scores no rounding can tell apart."""
        forward, visible = self.forward, ~self.forward.blocked
        scores = np.where(visible, forward.scores, -np.inf)
        largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        reach = np.abs(np.where(visible, forward.scores, 0)).max(axis=-1, keepdims=True, initial=0)
        with np.errstate(invalid="ignore"):
            clear = (scores == largest) | (scores < largest - _CLEAR_GAP - reach / 32)
        top = (scores == largest) & visible
        one = clear.all(axis=-1) & (top.sum(axis=-1) <= 1)
        alike = (top | ~visible).all(axis=-1)
        if not one.all() and not (self._projection_exact("query") and self._projection_exact("key")):
            return False
        return bool((one | (alike & self._scores_exact())).all()) and self.representable(self.weights)

    def _scores_exact(self) -> Array:
        """bool [B, H, T]: rows whose scores are exact wherever the scale is applied."""
        forward, visible = self.forward, ~self.forward.blocked
        root = np.sqrt(np.abs(float(forward.scale)))
        everywhere = (
            root > 0
            and float(np.log2(root)).is_integer()
            and self.representable(forward.products)
            and self.representable(forward.scores)
            and exact_product(
                forward.query, forward.key.swapaxes(-1, -2) * forward.scale, self.bits("batched_products"), forward.bias
            )
        )
        query, key = (np.abs(array).astype(np.float64) for array in (forward.query, forward.key))
        nothing = query @ key.swapaxes(-1, -2) == 0
        if forward.bias is not None:
            nothing = nothing & (forward.bias == 0)
        return np.asarray((nothing | ~visible).all(axis=-1) | everywhere)

    def exact_gradients(self, backward: Backward) -> list[str]:
        """Parameters and inputs whose gradients are exact, given that the forward pass is."""
        cotangent, gradients = flat(self.forward.inputs["cotangent"]), backward.gradients
        weight = exact_product(flat(self.forward.joined).T, cotangent, self.bits("weight_gradients"))
        exact = {"output_weight": weight, "output_bias": exact_sum(cotangent, self.bits("bias_gradients"))}
        exact |= self._value_gradients(backward)
        return [name for name, holds in exact.items() if holds and self._stored(gradients, name)]

    def _value_gradients(self, backward: Backward) -> dict[str, bool]:
        """Weights of 0 and 1 are exact even where a flash kernel rebuilds them as exp(s − lse); 1/2 is not."""
        forward, case, weights = self.forward, self.case, self.weights
        projection, output = forward.parameters["value_weight"], forward.parameters["output_weight"]
        heads = sum_groups(backward.value, case.num_kv_heads)
        if not (
            case.sharing in ("separate", "equal-copies")
            and np.isin(weights, (0, 1)).all()
            and exact_product(forward.inputs["cotangent"], output.T, self.bits("products"))
            and exact_product(weights.swapaxes(-1, -2), backward.context, self.bits("batched_products"))
            and exact_sum(backward.value.swapaxes(0, 1).reshape(case.num_heads, -1), self.bits("bias_gradients"))
            and all(self.representable(stage) for stage in (backward.context, backward.value, heads))
        ):
            return {}
        rows = join_heads(heads)[:, : case.source_length]
        return {
            "value": exact_product(rows, projection.T, self.bits("products")),
            "value_weight": exact_product(flat(forward.inputs["value"]).T, flat(rows), self.bits("weight_gradients")),
            "value_bias": exact_sum(flat(rows), self.bits("bias_gradients")),
        }

    def _stored(self, gradients: dict[str, Array], name: str) -> bool:
        return name in gradients and self.representable(gradients[name])
