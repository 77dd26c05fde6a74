"""What several answers under dropout reveal about which weights were kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.dropout.kept import Kept
from conformance.dropout.scene import Scene
from conformance.expectation import Expectation
from conformance.reference import join_heads, split_heads
from conformance.spec import Array


@dataclass(frozen=True)
class Masks:
    """What was kept, draw by draw.

    An outcome is whether one weight came through. It is told where the half of a weight that is kept lies outside the
    bounds of both outcomes, which does not depend on the outcome. Where the output is dropped too, a weight comes
    through an output element if both were kept.
    """

    kept: tuple[Kept, ...]  # the factors of each draw
    outcomes: Array  # bool [draws, B, H, T, S]
    told: Array  # bool [B, H, T, S]
    chance: float  # that an outcome is True
    odd: tuple[int, ...]  # draws in which some weight came through neither 0 nor whole


def from_output(scene: Scene, outputs: Sequence[Array], dropped: bool) -> Masks:
    """The masks that the outputs [B, T, Do] of ``revealing`` data show; ``dropped`` tells whether they are dropped."""
    seen = np.stack([_twice(scene, output) for output in outputs])  # [draws, 2, B, H, T, S]
    whole, bound, told = _whole(scene, dropped)
    through = np.abs(seen) > whole / 2
    kept = tuple(_factors(scene, one, told, dropped) for one in through)
    wrong = told & ~((seen == 0) | (np.abs(seen - whole) <= bound))
    chance = scene.keep**2 if dropped else scene.keep
    return Masks(kept, through[:, 0], told[0], chance, _draws(wrong))


def from_weights(scene: Scene, returned: Sequence[Array]) -> Masks:
    """The masks that returned weights [B, H, T, S + E] show if they are those after dropout. A row that sees nothing
    shows none, whatever its weights."""
    everything = scene.everything[0]
    whole, bound = everything.values["dropped_weights"], everything.bounds["dropped_weights"]
    told = whole > 2 * bound
    seen = np.stack([weights.astype(whole.dtype) for weights in returned])
    through = np.abs(seen) > whole / 2
    wrong = ~((seen == 0) | (np.abs(seen - whole) <= bound) | np.isinf(bound) | scene.forward.fully_blocked)
    kept = tuple(Kept(scene.weights(one, told)) for one in through)
    return Masks(kept, through, told, scene.keep, _draws(wrong))


def copies(scene: Scene, outputs: Sequence[Array]) -> tuple[int, int]:
    """How many weights in the outputs of ``revealing`` data have one copy there and the other not, and of how many.

    Dropping a weight takes both copies, dropping output takes one.
    """
    whole, _, told = _whole(scene, dropped=False)
    both = told[0] & _whole(scene, dropped=True)[2][0]
    through = np.stack([_twice(scene, output) for output in outputs]) > whole / 2
    return int(((through[:, 0] != through[:, 1]) & both).sum()), int(both.sum()) * len(outputs)


def _whole(scene: Scene, dropped: bool) -> tuple[Array, Array, Array]:
    """What the output shows of each weight that is kept, its bound, and whether the half of it decides."""
    expectation: Expectation = scene.everything[dropped]
    whole = _twice(scene, expectation.values["attn_output"])
    bound = _twice(scene, expectation.bounds["attn_output"])
    return whole, bound, np.broadcast_to((whole > 2 * bound).all(axis=0), whole.shape)


def _twice(scene: Scene, output: Array) -> Array:
    """[B, T, Do] → [2, B, H, T, S]: both copies of each weight."""
    case, dtype = scene.problem.case, scene.forward.attn_output.dtype
    heads = split_heads(output.astype(dtype), case.num_heads)
    S = case.source_length
    return np.stack([heads[..., :S], heads[..., S : 2 * S]])


def _factors(scene: Scene, through: Array, told: Array, dropped: bool) -> Kept:
    """Factors from what came through, [2, B, H, T, S]."""
    if not dropped:
        return Kept(scene.weights(through[0], told[0]))
    seen = through.any(axis=0) & told[0]  # a weight of which neither copy is there may have been kept all the same
    case = scene.problem.case
    rest = case.value_head_dim - 2 * case.source_length

    def columns(copies: Array) -> Array:  # [2, B, H, T, S] → [B, T, H·Dhv]
        return join_heads(np.pad(np.concatenate([*copies], axis=-1), ((0, 0), (0, 0), (0, 0), (0, rest))))

    return Kept(scene.weights(seen, seen), scene.output(columns(through), columns(np.stack([seen, seen]))))


def _draws(wrong: Array) -> tuple[int, ...]:
    return tuple(int(draw) for draw in np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1)))
