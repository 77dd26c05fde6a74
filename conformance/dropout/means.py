"""Whether the mean of several answers under dropout is the answer without: dropout must not shift what is expected.

Each element of an answer is a sum over keys of heads, with one independent coin each (and one more for the element
itself where output is dropped), so the inequalities of :mod:`conformance.dropout.chances` apply with ranges that
follow from the weights, the values and the output projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from conformance.dropout.chances import divergence, radius
from conformance.dropout.scene import Scene
from conformance.reference import join_heads
from conformance.spec import Array


@dataclass(frozen=True)
class Means:
    """The mean output over the draws beside its expectation.

    ``strays`` is how far chance, and rounding, may carry each element; ``along`` is the mean's deviation along the
    undropped output, relative to that output (−p where nothing is rescaled), and ``along_strays`` how far that may go.
    """

    mean: Array  # [B, T, Do]
    expected: Array
    strays: Array
    along: float
    along_strays: float


def output_dropped(scene: Scene, outputs: Sequence[Array], alarm: float) -> bool:
    """Whether to allow for output that is dropped too: where a share of p is 0, or where that cannot be told.

    To allow for it is always sound. Not to is wrong with a chance of at most ``alarm``.
    """
    case, reached = scene.problem.case, scene.everything[1].values["attn_output"] != 0
    trials = int(reached.sum()) * len(outputs)
    if np.exp(-trials * divergence(case.dropout / 2, case.dropout)) > alarm:
        return True
    zeros = sum(int(((output == 0) & reached).sum()) for output in outputs)
    return zeros > trials * case.dropout / 2


def means_of(scene: Scene, outputs: Sequence[Array], dropped: bool, alarm: float) -> Means:
    """The mean of the outputs; each of its two tests takes half of ``alarm``. Allows for ``dropped`` output.

    An element that may overflow is not judged: its mean counts as expected.
    """
    keep, draws = scene.keep, len(outputs)
    shares, bias = _shares(scene)
    reach = np.abs(shares).sum(axis=(1, 3))  # [B, T, Do]
    expected = scene.forward.attn_output.astype(np.float64)
    rounding = _rounding(scene, dropped)
    judged = np.isfinite(rounding)
    centred = np.where(judged, expected - bias, 0)
    largest = (np.abs(bias) + reach / keep) / keep  # of an element before its own coin
    squares = np.einsum("bhtse,bhtse->bte", shares, shares) / keep**2
    along = np.einsum("bhtse,bte->bhts", shares, centred) / keep
    along_squares = float((along**2).sum())
    if dropped:
        squares = squares / keep**2 + largest**2
        along = np.einsum("bhtse,bte->bhts", np.abs(shares), np.abs(centred)) / keep**2
        along_squares = float((along**2).sum() + ((centred * largest) ** 2).sum())
    mean = np.where(judged, np.mean([output.astype(np.float64) for output in outputs], axis=0), expected)
    norm = float((centred**2).sum()) or 1.0
    strays = np.sqrt(squares) * radius(1.0, draws, alarm / 2 / max(mean.size, 1)) + rounding
    strays = np.where(reach > 0, strays, np.inf)  # where nothing is attended to, no chance is taken
    along_strays = radius(along_squares, draws, alarm / 2) + float(
        (np.abs(centred) * np.where(judged, rounding, 0)).sum()
    )
    return Means(mean, expected, strays, float((centred * (mean - expected)).sum()) / norm, along_strays / norm)


def _shares(scene: Scene) -> tuple[Array, Array]:
    """What each weight adds to each output element, [B, H, T, S + E, Do], and the output bias."""
    forward, case = scene.forward, scene.problem.case
    weight = forward.parameters["output_weight"].astype(np.float64)
    by_head = weight.reshape(case.num_heads, case.value_head_dim, -1)
    values = np.einsum("bhsd,hde->bhse", forward.value.astype(np.float64), by_head)
    shares = np.einsum("bhts,bhse->bhtse", forward.attn_weights.astype(np.float64), values)
    return shares, np.asarray(forward.parameters.get("output_bias", 0.0), np.float64)


def _rounding(scene: Scene, dropped: bool) -> Array:
    """The part of the bound under any dropout that is rounding: what is left without the range of the coins, as the
    bound carries it through the sum over keys and then the sum over head columns."""
    keep, bound, forward = scene.keep, scene.anything[dropped].bounds["attn_output"], scene.forward
    weights, values = forward.attn_weights.astype(np.float64), np.abs(forward.value).astype(np.float64)
    joined = join_heads(weights @ values)
    coins = joined @ np.abs(forward.parameters["output_weight"]).astype(np.float64) / (2 * keep)
    if dropped:
        middle = np.abs(scene.anything[0].values["attn_output"]).astype(np.float64)
        coins = (middle + 2 * coins) / (2 * keep)
    return np.maximum(bound - coins, 0)
