"""Metamorphic and conservation relations: what two calls must have in common, or what one call must keep.

A relation has two sides. Each makes its calls and looks at their outputs in a view, and both views must agree within
the sum of their bounds. No side needs the reference's values: the bounds alone come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from conformance.expectation import answer_of, sample_of
from conformance.extended import product
from conformance.problem import MaskArrays, Parameters, Problem
from conformance.reference import flat, join_heads, reference_of, sum_groups
from conformance.relations.masks import keys_taken, longer, permuted_heads
from conformance.relations.views import Named, Padded, Seen, Summed, Taken, Together, Told, View
from conformance.seeds import generator
from conformance.spec import Array, Case
from conformance.vocabulary import Relation as RelationName

APPENDED = 3  # blocked keys


@dataclass(frozen=True)
class Side:
    """Calls, and the view on their outputs that is compared. A side without calls knows what must come out, exactly."""

    problems: tuple[Problem, ...]
    view: View

    def bounds(self, bounds: Sequence[Named]) -> dict[str, Array]:
        """The bound of the view; ``bounds`` holds those of each call."""
        seen = self.view(bounds)
        return seen if self.problems else {name: np.zeros(array.shape) for name, array in seen.items()}


@dataclass(frozen=True)
class Relation:
    """Two sides that must agree in every output that both views have."""

    left: Side
    right: Side

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every call, the left side's first."""
        return self.left.problems + self.right.problems


@lru_cache(maxsize=256)
def relation_of(case: Case) -> Relation:
    """The relation that a case asks for.

    Raises ValueError where it cannot be built from the case.
    """
    if case.relation is None:
        raise ValueError(f"{case.id} asks for no relation")
    return _RELATIONS[case.relation](answer_of(case).problem)


def meaning_of(name: RelationName) -> str:
    """What a relation says, in a sentence."""
    return " ".join((_RELATIONS[name].__doc__ or "").split())


def _with_keys(problem: Problem, key: Array, value: Array, mask: MaskArrays, case: Case) -> Problem:
    """The problem with other keys and values; one object stays one object."""
    shared = problem.value is problem.key
    return replace(problem, case=case, key=key, value=key if shared else value, mask=mask)


def _keys_permuted(problem: Problem) -> Relation:
    """The order of keys means nothing: keys, values and the columns of the mask in another order."""
    count = problem.case.source_length
    order = generator(problem.case, "relation").permutation(count)
    if (order == np.arange(count)).all():
        order = order[::-1]
    case, mask = keys_taken(problem, order)
    key, value = (np.ascontiguousarray(array[:, order]) for array in (problem.key, problem.value))
    inverse = np.argsort(order)
    columns = np.concatenate([inverse, np.arange(count, count + problem.case.extra_keys)])
    keys = Taken(inverse, 1)
    back = Seen({"attn_weights": Taken(columns, 3), "key.gradient": keys, "value.gradient": keys})
    return Relation(Side((problem,), Seen()), Side((_with_keys(problem, key, value, mask, case),), back))


def _keys_appended(problem: Problem) -> Relation:
    """Keys that nobody may attend to change nothing, and have weight and gradients of exactly 0."""
    case = problem.case

    def with_more(name: str, array: Array) -> Array:
        shape = (case.batch, APPENDED, array.shape[2])
        more = 4 * generator(case, f"relation.{name}").standard_normal(shape)
        return np.concatenate([array, more.astype(array.dtype)], axis=1)

    key, value = with_more("key", problem.key), with_more("value", problem.value)
    longer_case, mask = longer(problem, APPENDED)
    end = case.source_length
    keys = Padded(end, APPENDED, 1)
    pad = Seen({"attn_weights": Padded(end, APPENDED, 3), "key.gradient": keys, "value.gradient": keys})
    return Relation(Side((problem,), pad), Side((_with_keys(problem, key, value, mask, longer_case),), Seen()))


def _batch_split(problem: Problem) -> Relation:
    """Samples know nothing of each other: a batch, and each sample alone."""
    samples = tuple(sample_of(problem, index) for index in range(problem.case.batch))
    return Relation(Side((problem,), Seen()), Side(samples, Together()))


def _heads_permuted(problem: Problem) -> Relation:
    """The order of heads means nothing: all heads, with their parameters and masks, in reverse order."""
    of_queries, of_keys = (np.arange(count)[::-1] for count in (problem.case.num_heads, problem.case.num_kv_heads))

    def moved(name: str, array: Array) -> Taken:
        """Blocks of columns (of rows, for the output weight) in reverse order: twice is as before."""
        heads = of_queries if name.startswith(("query", "output")) else of_keys
        axis = 0 if name == "output_weight" or array.ndim == 1 else 1
        width = array.shape[axis] // len(heads)
        return Taken((heads[:, None] * width + np.arange(width)).ravel(), axis)

    present = problem.parameters.present
    changes = {name: moved(name, array) for name, array in present.items() if name != "output_bias"}
    parameters = Parameters(**present | {name: change(present[name]) for name, change in changes.items()})
    other = replace(problem, parameters=parameters, mask=permuted_heads(problem, of_queries))
    back = {f"{name}.gradient": change for name, change in changes.items()}
    return Relation(Side((problem,), Seen()), Side((other,), Seen({**back, "attn_weights": Taken(of_queries, 1)})))


def _scores_shifted(problem: Problem) -> Relation:
    """A constant on all scores of a row changes nothing, and such is what the key bias adds: any other will do."""
    bias = problem.parameters.present["key_bias"]
    other = generator(problem.case, "relation").standard_normal(bias.shape)
    parameters = replace(problem.parameters, key_bias=other.astype(bias.dtype))
    return Relation(Side((problem,), Seen()), Side((replace(problem, parameters=parameters),), Seen()))


def _conservation(problem: Problem) -> Relation:
    """Weights sum to 1: one value at all keys is the answer of every row that sees a key; what flows back to the
    values of a sample adds up to what its rows send; and nothing flows back through the scores."""
    constant = np.ascontiguousarray(np.broadcast_to(problem.value[:, :1], problem.value.shape))
    problem = replace(problem, value=constant)
    reference = reference_of(problem)
    forward, parameters, seen = reference.forward, reference.forward.parameters, ~reference.forward.fully_blocked
    joined = join_heads(np.where(seen, forward.value[:, :, :1], 0))
    told = {"attn_output": product(joined, parameters["output_weight"]) + parameters.get("output_bias", 0)}
    if reference.backward is not None:
        sent = np.where(seen, reference.backward.context, 0).sum(axis=2, keepdims=True)
        rows = join_heads(sum_groups(sent, problem.case.num_kv_heads))  # [B, 1, K·Dhv]
        told |= {
            f"{name}.gradient": np.zeros_like(array)
            for name, array in reference.backward.gradients.items()
            if name.partition("_")[0] in ("query", "key")
        }
        told["value.gradient"] = product(rows, parameters["value_weight"].T)
        told["value_weight.gradient"] = product(flat(forward.inputs["value"][:, :1]).T, flat(rows))
        told["value_bias.gradient"] = flat(rows).sum(axis=0)
    return Relation(Side((problem,), Seen({"value.gradient": Summed(1)})), Side((), Told(told)))


_RELATIONS: Mapping[RelationName, Callable[[Problem], Relation]] = {
    "keys-permuted": _keys_permuted,
    "keys-appended": _keys_appended,
    "batch-split": _batch_split,
    "heads-permuted": _heads_permuted,
    "scores-shifted": _scores_shifted,
    "conservation": _conservation,
}
