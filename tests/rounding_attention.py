"""Multi-head attention that rounds after every operation, with every choice that a correct implementation has.

It shares no code with the reference or the bound. NumPy rounds each addition and multiplication of an array in the
array's own format, so sums are taken term by term in a chosen order and never by a library's product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from conformance.policy import FORMATS
from conformance.problem import Problem
from conformance.spec import NUMPY_DTYPES, Array

SMALLEST = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 0.0}


@dataclass(frozen=True)
class Choices:
    """What an implementation may decide for itself."""

    order: Literal["sequential", "reversed", "random", "pairwise", "blocked"] = "sequential"
    scale: Literal["query", "key", "scores", "split"] = "scores"
    bias: Literal["first", "last", "stored"] = "stored"  # in the accumulator first or last, or added after a store
    stores: Literal["all", "none", "some"] = "all"  # intermediate results in the storage format
    constant: Literal["storage", "wide"] = "wide"  # the format of the scale
    exponential: Literal["exact", "high", "low", "scattered"] = "exact"
    division: Literal["quotient", "reciprocal"] = "quotient"
    jacobian: Literal["centred", "expanded"] = "centred"
    sums: Literal["apart", "together"] = "apart"  # over the heads of a group, and the uses of one input
    subnormal: Literal["kept", "flushed"] = "kept"
    kernel: Literal["plain", "flash"] = "plain"
    arithmetic: Literal["wide", "storage"] = "wide"  # the format of every operation

    @classmethod
    def drawn(cls, random: np.random.Generator, **fixed: Any) -> Choices:
        hints = get_type_hints(cls)
        drawn = {f.name: str(random.choice(get_args(hints[f.name]))) for f in fields(cls)}
        return cls(**(drawn | fixed))


class RoundingAttention:
    """One problem answered under some choices; ``outputs()`` is by the names of the reference."""

    def __init__(self, problem: Problem, choices: Choices, random: np.random.Generator) -> None:
        case = problem.case
        self.problem, self.choices, self.random = problem, choices, random
        self.storage = NUMPY_DTYPES[case.compute]
        wide = np.dtype(np.float64 if case.compute == "float64" else np.float32)
        self.format = self.storage if choices.arithmetic == "storage" else wide
        self.smallest = SMALLEST[self.format.name] if choices.subnormal == "flushed" else 0.0
        self.unit = FORMATS[self.format.name].unit_roundoff
        self.parameters = {name: self.take(array) for name, array in problem.parameters.present.items()}
        scale = 1 / np.sqrt(case.head_dim) if case.scale is None else case.scale
        self.signed = (float(np.sign(scale)), abs(float(scale)))
        self.given_weights: Array | None = None

    # Arithmetic ---------------------------------------------------------------------------------------------------

    def done(self, array: Array) -> Array:
        """The result of one operation, flushed where the choices say so."""
        return np.where(np.abs(array) < self.smallest, self.format.type(0), array) if self.smallest else array

    def store(self, array: Array) -> Array:
        stored = np.asarray(array).astype(self.storage)
        if self.smallest and self.storage != np.float16:
            stored = np.where(np.abs(stored) < self.smallest, self.storage.type(0), stored)
        return stored.astype(self.format)

    def take(self, array: Array) -> Array:
        return self.store(array)

    def keep(self, array: Array) -> Array:
        """An intermediate result, stored or not."""
        stores = self.choices.stores
        return self.store(array) if stores == "all" or (stores == "some" and self.random.random() < 0.5) else array

    def sum(self, terms: Sequence[Array]) -> Array:
        """Sum of at least one term, each addition rounded."""
        terms = list(terms)
        match self.choices.order:
            case "reversed":
                terms.reverse()
            case "random":
                terms = [terms[index] for index in self.random.permutation(len(terms))]
            case "pairwise":
                while len(terms) > 1:
                    pairs = [self.done(left + right) for left, right in zip(terms[::2], terms[1::2], strict=False)]
                    terms = pairs + terms[2 * len(pairs) :]
            case "blocked":
                size = int(self.random.integers(1, 6))
                terms = [self._in_turn(terms[start : start + size]) for start in range(0, len(terms), size)]
            case "sequential":
                pass
        return self._in_turn(terms)

    def _in_turn(self, terms: list[Array]) -> Array:
        total = terms[0]
        for term in terms[1:]:
            total = self.done(total + term)
        return total

    def product(self, left: Array, right: Array, start: Array | None = None) -> Array:
        """[..., m, n] @ [..., n, p], with an accumulator that may start from something."""
        terms = [self.done(left[..., :, k, None] * right[..., None, k, :]) for k in range(left.shape[-1])]
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        empty = np.zeros((*batch, left.shape[-2], right.shape[-1]))
        if start is None:
            return self.sum(terms or [empty.astype(self.format)])
        start = np.broadcast_to(start, empty.shape).astype(self.format)
        if self.choices.bias == "first":
            return self._in_turn([start, *terms])
        return self.done(self.sum(terms or [empty.astype(self.format)]) + start)

    def exp(self, array: Array, rough: float) -> Array:
        """The exponential with an error of 30 units in the last place, or the relative error of fast kernels."""
        error = max(30 * self.unit, rough)
        match self.choices.exponential:
            case "exact":
                factor: Any = 1.0
            case "high":
                factor = 1 + error
            case "low":
                factor = 1 - error
            case "scattered":
                factor = 1 + error * self.random.uniform(-1, 1, array.shape)
        return self.done((np.exp(array.astype(np.float64)) * factor).astype(self.format))

    def linear(self, inputs: Array, name: str) -> Array:
        weight, bias = self.parameters[f"{name}_weight"], self.parameters.get(f"{name}_bias")
        if bias is None or self.choices.bias != "stored":
            return self.store(self.product(inputs, weight, bias))
        return self.store(self.done(self.store(self.product(inputs, weight)) + bias))

    def split(self, array: Array, heads: int) -> Array:
        return array.reshape(*array.shape[:2], heads, array.shape[2] // heads).swapaxes(1, 2)

    def join(self, array: Array) -> Array:
        joined = array.swapaxes(1, 2)
        return joined.reshape(*joined.shape[:2], joined.shape[2] * joined.shape[3])

    def factor(self, *, root: bool = False) -> Any:
        """The scale, or its square root, in the format of constants."""
        value = np.sqrt(self.signed[1]) if root else self.signed[1]
        held = self.storage.type(value) if self.choices.constant == "storage" else self.format.type(value)
        return self.format.type(held)

    # Forward ------------------------------------------------------------------------------------------------------

    def keys(self, role: str) -> Array:
        """Key or value heads [B, H, N, d], repeated for the query heads."""
        case = self.problem.case
        projected = self.linear(self.take(getattr(self.problem, role)), role)
        rows, shape = [projected], (case.batch, 1, projected.shape[2])
        if case.bias_kv:
            rows.append(np.broadcast_to(self.parameters["bias_k" if role == "key" else "bias_v"], shape))
        if case.zero_attention:
            rows.append(np.zeros(shape, self.format))
        heads = self.split(np.concatenate(rows, axis=1), case.num_kv_heads)
        return np.repeat(heads, case.num_heads // case.num_kv_heads, axis=1)

    def forward(self) -> None:
        case = self.problem.case
        self.query = self.split(self.linear(self.take(self.problem.query), "query"), case.num_heads)
        self.key, self.value = self.keys("key"), self.keys("value")
        sign, factor, root = self.format.type(self.signed[0]), self.factor(), self.factor(root=True)
        self.scaled_query, self.scaled_key, self.after = self.query, self.key, self.format.type(1)
        match self.choices.scale:
            case "query":
                self.scaled_query = self.keep(self.done(self.query * (sign * factor)))
            case "key":
                self.scaled_key = self.keep(self.done(self.key * (sign * factor)))
            case "split":
                self.scaled_query = self.keep(self.done(self.query * (sign * root)))
                self.scaled_key = self.keep(self.done(self.key * root))
            case "scores":
                self.after = sign * factor
        self.scores = self.scores_of()
        self.shift = np.where(self.blocked, -np.inf, self.scores).max(axis=-1, keepdims=True, initial=-np.inf)
        self.shift = np.where(np.isfinite(self.shift), self.shift, 0).astype(self.format)
        (self.flash_forward if self.choices.kernel == "flash" else self.plain_forward)()
        self.output = self.linear(self.join(self.context), "output")

    def scores_of(self) -> Array:
        case, mask = self.problem.case, self.problem.mask
        extra = ((0, 0), (0, 0), (0, 0), (0, case.extra_keys))
        blocked, bias = mask.blocked(), mask.bias()
        whole = np.broadcast_to(np.False_ if blocked is None else blocked, mask.shape)
        keys = self.scaled_key.swapaxes(-1, -2)
        if bias is None:
            self.blocked = np.pad(whole, extra)
            products = self.keep(self.product(self.scaled_query, keys))
            return self.keep(self.done(products * self.after))
        added = np.broadcast_to(self.take(bias), mask.shape)
        self.blocked = np.pad(whole | np.isneginf(added), extra)
        added = np.pad(np.where(np.isneginf(added), 0, added), extra)
        if self.choices.scale != "scores":
            return self.keep(self.product(self.scaled_query, keys, added))
        products = self.keep(self.product(self.scaled_query, keys))
        return self.keep(self.done(self.keep(self.done(products * self.after)) + added))

    def total(self, terms: Array) -> Array:
        """Sum over the last axis, kept."""
        columns = [terms[..., k] for k in range(terms.shape[-1])] or [np.zeros(terms.shape[:-1], self.format)]
        return self.sum(columns)[..., None]

    def plain_forward(self) -> None:
        powers = np.where(self.blocked, 0, self.exp(np.where(self.blocked, 0, self.scores - self.shift), 0.0))
        total = self.total(powers)
        total = np.where(total == 0, self.format.type(1), total)
        if self.choices.division == "quotient":
            weights = self.done(powers / total)
        else:
            weights = self.done(powers * self.done(1 / total))
        self.weights, self.given_weights = self.keep(weights), self.store(weights)
        self.context = self.keep(self.product(self.weights, self.value))

    def flash_forward(self) -> None:
        """Three blocks of keys, rescaled when the maximum grows; weights stay unnormalised until the end."""
        rough = 1.9e-4 if self.storage.itemsize == 2 else 0.0
        largest, total = np.full(self.shift.shape, -np.inf), np.zeros(self.shift.shape, self.format)
        context = np.zeros((*self.scores.shape[:3], self.value.shape[-1]), self.format)
        for keys in np.array_split(np.arange(self.scores.shape[-1]), 3):
            blocked, scores = self.blocked[..., keys], self.scores[..., keys]
            reached = np.where(blocked, -np.inf, scores).max(axis=-1, keepdims=True, initial=-np.inf)
            grown = np.maximum(largest, reached)
            shift = np.where(np.isfinite(grown), grown, 0).astype(self.format)
            powers = np.where(blocked, 0, self.exp(np.where(blocked, 0, scores - shift), rough)).astype(self.format)
            again = np.where(np.isfinite(largest), np.where(np.isfinite(largest), largest, 0).astype(self.format), 0)
            decay = self.exp((again.astype(self.format) - shift).astype(self.format), rough)
            decay = np.where(np.isfinite(largest), np.where(largest == grown, 1, decay), 0).astype(self.format)
            total = self.done(self.done(total * decay) + self.total(powers))
            context = self.done(self.done(context * decay) + self.product(self.keep(powers), self.value[..., keys, :]))
            largest = grown
        safe = np.where(total == 0, self.format.type(1), total)
        self.context = self.keep(self.done(context / safe))
        self.log_sum = self.done(self.shift + np.log(safe.astype(np.float64)).astype(self.format))
