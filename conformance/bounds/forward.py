"""The error bound of the forward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from conformance.bounds.running_error import (
    NOT_JUDGED,
    OVERFLOW,
    Pair,
    Rules,
    absolute,
    capped,
    exact,
    factors,
    term_count,
)
from conformance.bounds.softmax_error import exponent_error, normalised, softmax_hull, sum_error, widest_exponent
from conformance.extended import roundoff
from conformance.policy import FORMATS, Format, Policy
from conformance.reference import Forward, join_heads, split_heads
from conformance.spec import Array, Case

Result = TypeVar("Result")
_LEAST_SCALE = 1e-300  # below it the products before the scale are not followed by their quotient


@lru_cache(maxsize=1)
def _shared(reference: Forward) -> dict[Any, Any]:
    """What the policies of one reference have in common. It is large, so only that of the last reference is kept."""
    return {}


@dataclass(frozen=True)
class Stages:
    """Pairs of the forward pass that the backward pass needs again; shapes as in the reference."""

    query_scaled: Pair  # √c · query
    key_scaled: Pair
    value: Pair
    scores: Pair
    held_weights: Pair  # as they enter the sum over values, perhaps not yet normalised
    attn_weights: Pair  # as they are returned
    dropped_weights: Pair  # after dropout, as they may be returned
    context: Pair
    joined: Pair
    attn_output: Pair


@dataclass(frozen=True)
class ForwardGraph:
    """The forward graph of one case under one policy."""

    case: Case
    reference: Forward
    policy: Policy
    rules: Rules
    terms: Array  # [B, H, T, 1], unblocked keys of each row
    rules_type: ClassVar[type[Rules]] = Rules

    @classmethod
    def of(cls, case: Case, forward: Forward, policy: Policy) -> Self:
        rules = cls.rules_type(FORMATS[case.compute], roundoff(forward.query.dtype))
        return cls(case, forward, policy, rules, (~forward.blocked).sum(axis=-1, keepdims=True))

    def run(self) -> Stages:
        """Every stage in order."""
        reference, rules = self.reference, self.rules
        query, key, value, scores = self.once("scores", ("products", "batched_products", "scale"), self.up_to_scores)
        unstored = self.softmax(scores)
        stored = rules.store(unstored)
        weights = self.handed_on("attn_weights", stored)
        held = rules.store(unstored, 1.0) if self.policy.flash else stored  # perhaps not yet divided
        held = self.handed_on("attn_weights", held)
        kept = reference.kept
        arithmetic = self.arithmetic("batched_products")
        drift = self.drift(held) if kept.weights is None else None  # what dropout leaves of a row has any sum
        entering = self.dropped(held, kept.weights)
        context = rules.product(entering, value, reference.context, arithmetic, drift=drift)
        context = self.handed_on("context", rules.store(rules.rounded(context, arithmetic, self.rescalings)))
        joined = Pair(reference.joined, join_heads(context.error))
        output = self.dropped(self.linear(joined, "output", reference.undropped_output), kept.output)
        output = self.handed_on("attn_output", output)
        dropped = self.dropped(weights, kept.weights)
        return Stages(query, key, value, scores, held, weights, dropped, context, joined, output)

    def up_to_scores(self) -> tuple[Pair, Pair, Pair, Pair]:
        """Query and key, times √c each, value, and scores."""
        query = self.handed_on("query", self.scaled("query"))
        key = self.handed_on("key", self.scaled("key"))
        value = self.handed_on("value", self.heads("value"))
        return query, key, value, self.handed_on("scores", self.scores(query, key))

    def handed_on(self, stage: str, pair: Pair) -> Pair:
        """What a stage of either graph hands on, here all of it. :mod:`conformance.bounds.parts` asks what the bound
        would be if some stages were exact."""
        return pair

    # What the stages share ----------------------------------------------------------------------------------------

    def arithmetic(self, stage: str) -> Format:
        """The format that the policy gives a stage."""
        return self.policy.format(getattr(self.policy, stage), self.rules.storage)

    def given(self, array: Array) -> Pair:
        """An input or parameter: as it is, or cast to the low format of a mixed policy."""
        return self.rules.store(exact(array)) if self.case.mixed else self.rules.given(array)

    def once(self, what: str, depends: tuple[str, ...], compute: Callable[[], Result]) -> Result:
        """What is the same under all policies that give some stages the same formats: computed for the first."""
        key, shared = (what, type(self.rules), *map(self.arithmetic, depends)), _shared(self.reference)
        if key not in shared:
            shared[key] = compute()
        found: Result = shared[key]
        return found

    def parameter(self, name: str) -> Pair:
        return self.given(self.reference.parameters[name])

    def input(self, name: str) -> Pair:
        return self.given(self.reference.inputs[name])

    @cached_property
    def roots(self) -> tuple[float, float]:
        """Factors of query and key whose product is the scale."""
        scale = float(self.reference.scale)
        root = float(np.sqrt(abs(scale)))
        return (-root if scale < 0 else root), root

    @cached_property
    def root_error(self) -> float:
        """Relative error of √c: 0 for a power of two, else that of the format in which the constant is held."""
        root = self.roots[1]
        return 0.0 if root == 0 or np.log2(root).is_integer() else self.arithmetic("scale").unit_roundoff

    def holdings(self, power: float) -> tuple[float, ...]:
        """The factor √c to a power, by which another placement of the scale differs; none where c is next to 0."""
        root = self.roots[1]
        return (root**power,) if root**2 > _LEAST_SCALE else ()

    def lost(self, left: Array, right: Array) -> Array:
        """Where a product may overflow before it meets a scale next to 0, of which nothing else would be left."""
        if self.holdings(1):
            return np.zeros((), np.bool_)
        return np.asarray(2 * (absolute(left) @ absolute(right)) > self.rules.storage.largest)

    @property
    def rescalings(self) -> int:
        return self.policy.rescalings if self.policy.flash else 0

    def exponential(self, softmax: Format) -> float:
        """Relative error of one exp, with the reference's own."""
        relative = self.policy.exponential_relative if self.rules.storage.significand < 20 and self.policy.flash else 0
        return self.policy.exponential_units * softmax.unit_roundoff + relative + 4 * self.rules.reference_roundoff

    def dropped(self, pair: Pair, factor: Pair | None) -> Pair:
        """After dropout: times a factor that two roundings made, 1 − p and its inverse, and stored."""
        if factor is None:
            return pair
        after = self.rules.times(pair, factor, factors(2, self.rules.storage))
        return self.rules.store(after, 1.0) if self.policy.flash else self.rules.store(after)

    def drift(self, weights: Pair) -> Array:
        """How far the sum of each row of normalised weights may be from that of the reference, [B, H, T, 1]."""
        softmax = self.arithmetic("softmax")
        roundings = sum_error(self.terms, self.rules.storage, softmax, self.rules.roundoff(softmax), self.rescalings)
        return np.asarray(np.minimum(weights.error.sum(axis=-1, keepdims=True), roundings))

    # Stages -------------------------------------------------------------------------------------------------------

    def linear(self, inputs: Pair, name: str, value: Array) -> Pair:
        """x W + b, with the bias inside the accumulator, or added after a store."""
        rules, weight = self.rules, self.parameter(f"{name}_weight")
        if f"{name}_bias" not in self.reference.parameters:
            return rules.store(rules.product(inputs, weight, value, self.arithmetic("products")))
        bias = self.parameter(f"{name}_bias")
        before = value - bias.value
        product = rules.store(rules.product(inputs, weight, before, self.arithmetic("products"), addend=bias))
        error = rules.store(Pair(value, product.error)).error
        nothing = term_count(inputs, weight) == 0
        return Pair(value, np.where(nothing, bias.error, error) if np.count_nonzero(nothing) else error)  # 0 + b is b

    def heads(self, name: str) -> Pair:
        """The projection of an input, its extra rows appended, split and repeated as the reference does."""
        case, reference = self.case, self.reference
        heads: Array = getattr(reference, name)
        own = case.num_heads if name == "query" else case.num_kv_heads
        length = reference.inputs[name].shape[1]
        first = heads[:, :: case.num_heads // own, :length]
        projected = self.linear(self.input(name), name, join_heads(first))
        error = np.repeat(split_heads(projected.error, own), case.num_heads // own, axis=1)
        return Pair(heads, np.concatenate([error, self.given(heads[:, :, length:]).error], axis=2))

    def scaled(self, name: str) -> Pair:
        """√c · query or √c · key. The scale before, after or on either side of the product rounds no more than
        this, but it may hold c · query."""
        factor = self.roots[0 if name == "query" else 1]
        return self.rules.store(self.rules.scaled(self.heads(name), factor, self.root_error), *self.holdings(1))

    def scores(self, query: Pair, key: Pair) -> Pair:
        """Scaled scores with the additive bias; the products may be held before the scale."""
        reference, rules = self.reference, self.rules
        arithmetic, unscaled = self.arithmetic("batched_products"), self.holdings(-2)
        bias = None if reference.bias is None else self.given(reference.bias)
        value = reference.scores if bias is None else reference.scores - bias.value
        products = rules.product(
            query, key.transposed(), value, arithmetic, addend=bias, holding=max(1.0, *unscaled, 0.0)
        )
        stored = rules.store(products, *unscaled)
        lost = self.lost(reference.query, reference.key.swapaxes(-1, -2))
        stored = Pair(reference.scores, np.where(lost, OVERFLOW, stored.error))
        return stored if bias is None else rules.store(stored)

    def softmax(self, scores: Pair) -> Pair:
        """Softmax before it is stored; a row with a score that may overflow, even a blocked one, is not judged:
        an additive −inf meets +inf there."""
        reference, arithmetic = self.reference, self.arithmetic("softmax")
        if self.rules.casts(arithmetic):
            cast = Rules(arithmetic, self.rules.reference_roundoff)
            scores = cast.store(scores)
        weights = reference.attn_weights
        hull = softmax_hull(weights, self.exponents(scores, arithmetic), widest_exponent(arithmetic))
        error = normalised(self.rules, weights, hull, self.terms, arithmetic, self.rescalings)
        overflows = (scores.error >= NOT_JUDGED).any(axis=-1, keepdims=True)
        error = np.where(reference.blocked, 0, error)
        return Pair(weights, capped(np.where(overflows, OVERFLOW, error)))

    def exponents(self, scores: Pair, arithmetic: Format) -> Array:
        """Error τ of each exp(s − max s) in the log domain."""
        exponential = self.exponential(arithmetic) * (1 + self.rescalings)
        return exponent_error(self.rules, scores, self.reference.blocked, arithmetic, exponential)
