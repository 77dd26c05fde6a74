"""Dropout in training: several answers to one call, judged against what each of them reveals, and against chance.

Each weight must come through exactly 0, or times 1/(1 − p) within the bound, with probability 1 − p and independently
of every other. Where an answer reveals which did (:mod:`conformance.dropout.masks`), it is compared with the reference
under the same dropout, gradients included, and what came through is counted. Where it does not, it must lie in the
range that any dropout can reach, and the mean over the draws near the answer without dropout
(:mod:`conformance.dropout.means`). All that is left to chance takes
:data:`~conformance.dropout.chances.FALSE_ALARM` together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from conformance.compare import Judgement, compare, row_sums, worst_element
from conformance.dropout.chances import FALSE_ALARM, allowed, surprise
from conformance.dropout.masks import Masks, copies, from_output, from_weights
from conformance.dropout.means import means_of, output_dropped
from conformance.dropout.scene import Scene
from conformance.expectation import Expectation
from conformance.policy import ENVELOPE, Policy
from conformance.problem import Problem
from conformance.seeds import seed_of
from conformance.spec import Array, Case
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Finding

DRAWS = 8
ALARM = FALSE_ALARM / 7  # of one question: at most seven are asked of one case
AXES = ("calls", "samples", "heads", "queries", "keys")  # over which dropout is independent
NUMBERS = ("value", "row-sum", "blocked-weight", "inexact")
UNREADABLE = ("missing", "shape", "nonfinite", "nan-blocked-row")
Answer = dict[str, Array | None]


@dataclass(frozen=True)
class _Convention:
    """What a subject does where there is no agreement; ``masks`` where its answers reveal any."""

    output_dropped: bool
    weights_after: bool
    masks: Masks | None


def draws_of(problem: Problem) -> list[Problem]:
    """The same call several times, each with a seed of its own."""
    return [replace(problem, seed=seed_of(problem.case, draw)) for draw in range(DRAWS)]


@lru_cache(maxsize=16)
def _scene(case: Case, policy: Policy) -> Scene:
    """What the answers of every subject of one policy are held against."""
    return Scene(problem_of(case), policy)


def judge_draws(case: Case, answers: Sequence[Answer], policy: Policy) -> Judgement:
    """The verdict on one answer for each of :func:`draws_of`.

    Raises ValueError when a case is too small to tell whether the output is dropped as well as the weights.
    """
    scene = _scene(case, policy)
    broken = _broken(scene, answers)
    if broken is not None:
        return broken
    convention = _convention(scene, answers)
    shown = _compared(scene, answers, convention)
    chances = list(_chances(scene, answers, convention))
    found = [finding for _, finding in chances if finding is not None]
    if isinstance(shown.verdict, Diverges):
        found = [*shown.verdict.findings, *found]
    if case.expect == "observe":
        found += _observed(convention)
    if found:
        return replace(shown, verdict=Diverges(tuple(found), shown.verdict.measures))
    note = "; ".join([*(note for note, _ in chances), f"false alarm ≤ {FALSE_ALARM:g}"])
    return replace(shown, verdict=Agrees(shown.verdict.measures, note))


def _broken(scene: Scene, answers: Sequence[Answer]) -> Judgement | None:
    """The first draw that is not all there and finite: it has nothing to reveal. Weights are then judged by structure
    alone, since whether they are those after dropout is not known."""
    expectation = scene.anything[1]
    for answer in answers:
        if all(_readable(expectation, name, array) for name, array in answer.items()):
            continue
        verdict = compare(expectation, answer, scene.policy)
        if isinstance(verdict, Diverges) and any(one.kind in UNREADABLE for one in verdict.findings):
            found = [one for one in verdict.findings if one.output != "attn_weights" or one.kind not in NUMBERS]
            return Judgement(replace(verdict, findings=tuple(found)), expectation, answer)
    return None


def _readable(expectation: Expectation, name: str, array: Array | None) -> bool:
    if array is None or array.shape != expectation.values[name].shape:
        return False
    return bool(np.isfinite(array.astype(np.float64)).all())


def _convention(scene: Scene, answers: Sequence[Answer]) -> _Convention:
    outputs, returned = _arrays(answers, "attn_output"), _arrays(answers, "attn_weights")
    shown = None if not returned or _before(scene, returned) else from_weights(scene, returned)
    after = shown is not None and not shown.odd
    if scene.problem.case.data.regime == "revealing":
        differing, told = copies(scene, outputs)
        if _enough(scene, told):
            return _Convention(differing > 0, after, from_output(scene, outputs, differing > 0))
        wide = _scene(scene.problem.case, ENVELOPE)
        if not _enough(wide, copies(wide, outputs)[1]):
            raise ValueError("too few weights to tell whether the output is dropped too: choose larger sizes")
        # An accuracy below the envelope's may leave nothing to be told; what is left is what ordinary data show.
    dropped = output_dropped(scene, outputs, ALARM)
    if shown is None or not after:
        return _Convention(dropped, after, None)
    if dropped:
        unknown = scene.output(kept=np.array(True), told=np.array(False))
        shown = replace(shown, kept=tuple(replace(one, output=unknown) for one in shown.kept))
    return _Convention(dropped, after, shown)


def _enough(scene: Scene, told: int) -> bool:
    """Whether so many weights would show that the output is dropped too, if it is."""
    return bool((1 - 2 * scene.problem.case.dropout * scene.keep**2) ** told <= ALARM)


def _arrays(answers: Sequence[Answer], name: str) -> list[Array]:
    return [array for answer in answers if (array := answer.get(name)) is not None]


def _before(scene: Scene, returned: Sequence[Array]) -> bool:
    """Whether returned weights are those before dropout, in every draw and every row that sees something. Where their
    bounds are so wide that 0 is within, their sums tell."""
    expectation, blocked = scene.everything[0], scene.forward.fully_blocked
    values, bound = expectation.values["attn_weights"], expectation.bounds["attn_weights"]
    near = (np.abs(weights.astype(values.dtype) - values) <= bound for weights in returned)
    ones, allowance = row_sums(expectation, scene.policy)
    sums = (np.abs(weights.astype(values.dtype).sum(axis=-1) - ones) <= allowance for weights in returned)
    return all(bool((one | np.isinf(bound) | blocked).all() and two.all()) for one, two in zip(near, sums, strict=True))


def _compared(scene: Scene, answers: Sequence[Answer], convention: _Convention) -> Judgement:
    """The first draw that diverges from the reference under the same dropout, among those worth the reference; or the
    first draw of all."""
    masks = convention.masks
    draws = range(len(answers)) if masks is None else dict.fromkeys((0, *masks.odd[:1]))
    judged: list[Judgement] = []
    for draw in draws:
        expectation = scene.anything[convention.output_dropped] if masks is None else scene.expected(masks.kept[draw])
        if convention.weights_after:
            expectation = _after(expectation)
        judged.append(Judgement(compare(expectation, answers[draw], scene.policy), expectation, answers[draw]))
    return next((one for one in judged if isinstance(one.verdict, Diverges)), judged[0])


def _after(expectation: Expectation) -> Expectation:
    """The expectation of a subject that returns its weights as dropout left them."""
    values, bounds = expectation.values, expectation.bounds
    return replace(
        expectation,
        values=values | {"attn_weights": values["dropped_weights"]},
        bounds=bounds | {"attn_weights": bounds["dropped_weights"]},
        weights_after_dropout=True,
    )


def _chances(scene: Scene, answers: Sequence[Answer], convention: _Convention) -> Iterator[tuple[str, Finding | None]]:
    """What was asked of chance: a note on each question, and a finding where chance does not explain the answer."""
    if convention.masks is None:
        yield from _means(scene, _arrays(answers, "attn_output"), convention.output_dropped)
        return
    masks = convention.masks
    trials = int(masks.told.sum()) * len(masks.outcomes)
    count = int((masks.outcomes & masks.told).sum())
    note = f"{count} of {trials} weights came through, {_range(trials, masks.chance)}"
    share = masks.chance
    if surprise(count, trials, masks.chance) >= ALARM:
        yield note, None
    else:
        yield note, Finding("attn_output", "dropout-rate", note, abs(count - round(trials * share)), trials)
        share = count / trials  # what comes through too often is not for that reason alike
    for axis in range(len(AXES)):
        yield from _shared(masks, axis, share)


def _range(trials: int, chance: float) -> str:
    least, most = allowed(trials, chance, ALARM)
    return f"{least} to {most} allowed"


def _shared(masks: Masks, axis: int, share: float) -> Iterator[tuple[str, Finding | None]]:
    """Outcomes apart along an axis: how often two are alike, if a ``share`` of all is True. All distances take one
    alarm together; the first that chance does not explain is told."""
    told = np.broadcast_to(masks.told, masks.outcomes.shape)
    ways = list(_matchings(masks.outcomes.shape[axis]))
    for first, second in ways:
        both = told.take(first, axis) & told.take(second, axis)
        alike = both & (masks.outcomes.take(first, axis) == masks.outcomes.take(second, axis))
        trials, count, chance = int(both.sum()), int(alike.sum()), share**2 + (1 - share) ** 2
        if surprise(count, trials, chance) < ALARM / len(ways):
            apart = f"{AXES[axis]} {second[0] - first[0]} apart"
            least, most = allowed(trials, chance, ALARM / len(ways))
            text = f"{apart} are not dropped independently: {count} of {trials} pairs alike, {least} to {most} allowed"
            yield text, Finding("attn_output", "dropout-shared", text, abs(count - round(trials * chance)), trials)
            return


def _matchings(length: int) -> Iterator[tuple[Array, Array]]:
    """Pairs of indices 1 to 8, 16, 32, … apart, so that none is in two pairs at once: two ways for each distance."""
    for apart in range(1, length):
        if apart <= 8 or apart.bit_count() == 1:
            first = np.arange(length - apart)
            for odd in (0, 1):
                own = first[first // apart % 2 == odd]
                if own.size:
                    yield own, own + apart


def _means(scene: Scene, outputs: Sequence[Array], dropped: bool) -> Iterator[tuple[str, Finding | None]]:
    """The mean over all draws, along the answer without dropout and element by element."""
    means = means_of(scene, outputs, dropped, ALARM)
    note = f"the mean of {len(outputs)} draws is off by {means.along:+.1%}, ±{means.along_strays:.1%} allowed"
    far = ~(np.abs(means.mean - means.expected) <= means.strays)
    if not abs(means.along) <= means.along_strays:
        yield note, Finding("attn_output", "dropout-mean", note, means.mean.size, means.mean.size)
    elif far.any():
        worst = worst_element(means.expected, means.mean, means.strays, far)
        text = "the mean over the draws is not the output without dropout"
        yield note, Finding("attn_output", "dropout-mean", text, int(far.sum()), far.size, worst)
    else:
        yield note, None


def _observed(convention: _Convention) -> Iterator[Finding]:
    """What the subject does where there is no agreement, other than the contract has it."""
    if convention.output_dropped:
        text = "the output is dropped as well as the weights"
        yield Finding("attn_output", "output-dropout", text)
    if convention.weights_after:
        text = "the weights come back as dropout left them"
        yield Finding("attn_weights", "weights-after-dropout", text)
