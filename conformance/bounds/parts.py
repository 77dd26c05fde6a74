"""Where the bound of one element comes from: an additive list of what each stage adds, with the numbers of its rule.

Let E_k be the bound if every implementation held the outcomes of the first k stages exactly, all other rules as they
are. E_0 is the bound, and after the last stage nothing is left: E_K = 0. Every rule is monotone in the errors of its
operands, so E_(k−1) − E_k ≥ 0: it is what stage k adds, carried through all that follows it, and the differences sum to
the bound. The graph that is walked is the one of the bound itself (:mod:`conformance.bounds.noted`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from conformance.bounds.noted import Note, Step, Walk
from conformance.bounds.running_error import NOT_JUDGED
from conformance.bounds.stages import BACKWARD, FORWARD, Stage, stage_of
from conformance.policy import Policy
from conformance.reference import Reference
from conformance.spec import Array, Case

Number = int | float
_QUERY_ROWS = ("query", "scores", "attn_weights", "context")  # arrays of these stages are [B, (H,) T, ...]
_ALONE = "error of b as given"  # 0 + b is b: no term of the sum can differ from 0
_VISIBLE = 1e-3  # share of a rounding from which the absolute error near zero is worth a symbol


@dataclass(frozen=True)
class Term:
    """A term of the last operation of an output: its symbols, their values, and what it comes to."""

    text: str
    amount: float
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class Part:
    """What one stage adds to a bound.

    ``error`` is that of its own outcome where all before it is exact, ``numbers`` are those of its rule: at the element
    itself for the last stage, else the largest (``largest``) among the elements that lead to it.
    """

    stage: str
    rule: str
    adds: float
    error: float
    numbers: Mapping[str, Number]
    largest: bool


@dataclass(frozen=True)
class Breakdown:
    """The bound of one element. Parts and terms that add nothing are left out, so a bound of 0 has none, nor has one
    that is infinite."""

    bound: float
    parts: tuple[Part, ...]
    terms: tuple[Term, ...]


def parts_of(case: Case, reference: Reference, policy: Policy, output: str, index: tuple[int, ...]) -> Breakdown:
    """Where the bound of ``output[index]`` comes from, without dropout."""
    gradient = output.endswith(".gradient")
    walk = Walk(case, reference if gradient else replace(reference, backward=None), policy, output)
    names = (*FORWARD, *BACKWARD, output) if gradient else FORWARD[: FORWARD.index(output) + 1]
    error, notes = walk.with_exact((), (output,))
    bound = float(error[index])
    if bound >= NOT_JUDGED:
        return Breakdown(np.inf, (), ())
    terms = tuple(_terms(stage_of(case, output), notes[output], index))
    return Breakdown(bound, tuple(_parts(walk, names, bound, index)), terms)


def _parts(walk: Walk, names: Sequence[str], bound: float, index: tuple[int, ...]) -> Iterator[Part]:
    """The parts in the order of the stages."""
    if bound and float(walk.with_exact(names[:-1])[0][index]) == bound:  # as for the gradient of the output's bias
        exactly, names = names[:-1], names[-1:]
    else:
        exactly = ()
    error, notes = walk.with_exact(exactly, names[:1])
    for name, following in zip(names, (*names[1:], ""), strict=True):
        left = float(error[index])
        if left == 0:
            return
        exactly, note = (*exactly, name), notes[name]
        error, notes = walk.with_exact(exactly, (following,))
        if adds := left - float(error[index]):
            yield _part(stage_of(walk.case, name), adds, note, walk.output, index)


def _part(stage: Stage, adds: float, note: Note, output: str, index: tuple[int, ...]) -> Part:
    """A stage's part, from the note of the walk in which all that comes before it is exact."""
    last = stage.name == output
    steps = _alike(note) if last else note.steps
    placed = [(step, _place(step.own, stage.name, output, index)) for step in steps]
    found = [(step, place, float(step.own[place])) for step, place in placed if place is not None]
    first = next((place for place, (step, _, _) in enumerate(found) if step.kind != "store"), 0)
    casts, stores = (
        [own for step, _, own in some if step.kind == "store" and own > 0] for some in (found[:first], found[first:])
    )
    rules = [(own, step, place) for step, place, own in found if step.kind != "store"]
    numbers: dict[str, Number] = {}
    if rules:
        _, step, place = max(rules, key=lambda rule: rule[0])
        numbers = {**stage.constants, **_numbers(stage, step, place, last)}
    if stores:
        numbers["½ ulp"] = max(stores)
    worst = _place(note.error, stage.name, output, index)
    error = 0.0 if worst is None else float(note.error[worst])
    if numbers.get("n") == 0:
        return Part(stage.label, _ALONE, adds, error, {}, not last)
    near_zero = ["n·φ"] if "φ" in numbers else []
    rule = " + ".join([stage.rule, *near_zero, *_stored(len(stores)), *(["casts"] if casts else [])])
    return Part(stage.label, rule, adds, error, numbers, not last)


def _terms(stage: Stage, note: Note, index: tuple[int, ...]) -> Iterator[Term]:
    """The last sum (or softmax) of an output and the stores that follow it."""
    steps = _alike(note)
    place = max(place for place, step in enumerate(steps) if step.kind != "store")
    last, joined = steps[place], sum(step.kind == "sum" for step in steps) > 1
    stage = stage.joined() if joined else stage
    stores = [own for step in steps[place + 1 :] if (own := float(step.own[index])) > 0]
    numbers = _numbers(stage, last, index, last=True)
    if numbers["n"] == 0:
        if (error := float(note.error[index])) > 0:
            yield Term(_ALONE, error, {})
        return
    rounding = stage.rounding + (" + n·φ" if "φ" in numbers else "")
    texts = (stage.inherited, rounding, *_stored(len(stores)))
    amounts = (float(last.inherited[index]), float(last.own[index]), sum(stores))
    for text, amount in zip(texts, amounts, strict=False):
        if amount != 0:
            yield Term(text, amount, numbers if text == rounding else {})


def _alike(note: Note) -> list[Step]:
    """The steps whose results have the shape of the stage's: not the casts of operands."""
    return [step for step in note.steps if step.error.shape == note.error.shape]


def _place(own: Array, stage: str, output: str, index: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where a step is largest among the elements that may lead to ``output[index]``: the index itself in the output's
    own stage, else anywhere in its sample and, where one query is all that matters, its query."""
    if stage == output:
        return index
    region = [slice(None)] * own.ndim
    if own.ndim >= 3 and not _of_parameter(output):
        region[0] = slice(index[0], index[0] + 1)
        if stage in _QUERY_ROWS and output in ("attn_output", "attn_weights"):
            region[-2] = slice(index[-2], index[-2] + 1)
    reached = np.full(own.shape, -1.0)
    reached[tuple(region)] = np.where(own < NOT_JUDGED, own, -1)[tuple(region)]  # what overflows leads nowhere judged
    if reached.max(initial=-1) < 0:
        return None
    return tuple(int(axis) for axis in np.unravel_index(int(np.argmax(reached)), own.shape))


def _of_parameter(output: str) -> bool:
    return output.endswith(".gradient") and output.removesuffix(".gradient") not in ("query", "key", "value")


def _numbers(stage: Stage, step: Step, place: tuple[int, ...], last: bool) -> dict[str, Number]:
    """The numbers of a step's rule at one place, by symbol."""
    n, magnitude = (np.broadcast_to(array, step.error.shape)[place] for array in (step.roundings, step.magnitude))
    found: dict[str, Number] = {"n": int(n), "u": step.arithmetic.unit_roundoff}
    if step.exponents is not None:
        own = {"P": float(magnitude)} if last else {}
        return own | {"τ": float(step.exponents[place[:-1]].max())} | found
    if step.arithmetic.underflow > _VISIBLE * found["u"] * float(magnitude):
        found["φ"] = step.arithmetic.underflow
    return found | {stage.magnitude: float(magnitude)}


def _stored(count: int) -> list[str]:
    return [] if not count else ["½ ulp" if count == 1 else f"{count} × ½ ulp"]
