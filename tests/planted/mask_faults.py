"""Faults of masks: read wrongly, aligned wrongly, combined wrongly or forgotten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from conformance.problem import MaskArrays, Problem
from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Setting, check_call


class CausalOffByOne(Attention):
    """Each query also sees the next key: j ≤ i + 1."""

    name = "planted/causal-off-by-one"

    def read_mask(self, problem: Problem) -> MaskArrays:
        causal = problem.mask.causal
        later = None if causal is None else np.pad(causal, ((0, 0), (1, 0)))[:, :-1]
        return replace(problem.mask, causal=later)


class CausalExcludesItself(Attention):
    """A query does not see its own position: j < i."""

    name = "planted/causal-excludes-itself"

    def read_mask(self, problem: Problem) -> MaskArrays:
        causal = problem.mask.causal
        earlier = None if causal is None else np.pad(causal, ((0, 0), (0, 1)), constant_values=True)[:, 1:]
        return replace(problem.mask, causal=earlier)


class CausalBottomRight(Attention):
    """A top-left causal mask is aligned bottom-right: j ≤ i + S − T."""

    name = "planted/causal-bottom-right"

    def read_mask(self, problem: Problem) -> MaskArrays:
        return _aligned(problem, "top-left", problem.mask.shape[3] - problem.mask.shape[2])


class CausalTopLeft(Attention):
    """A bottom-right causal mask is aligned top-left, as ``tril(ones(T, S))`` gives it."""

    name = "planted/causal-top-left"

    def read_mask(self, problem: Problem) -> MaskArrays:
        return _aligned(problem, "bottom-right", 0)


class WindowIgnored(Attention):
    """The sliding window is accepted and not applied."""

    name = "planted/window-ignored"

    def read_mask(self, problem: Problem) -> MaskArrays:
        return replace(problem.mask, window=None)


class PaddingIgnored(Attention):
    """The key padding mask is accepted and not applied."""

    name = "planted/padding-ignored"

    def read_mask(self, problem: Problem) -> MaskArrays:
        return replace(problem.mask, key_padding=None)


class PaddingAppliedToQueries(Attention):
    """The key padding mask blocks query rows instead of keys."""

    name = "planted/padding-applied-to-queries"

    def read_mask(self, problem: Problem) -> MaskArrays:
        padding = problem.mask.key_padding
        if padding is None:
            return problem.mask
        target = problem.mask.shape[2]
        rows = np.pad(padding, ((0, 0), (0, target)))[:, :target]
        return replace(problem.mask, key_padding=None, query_padding=rows)


class PaddingReadAsTargetSource(Attention):
    """A [B, S] padding mask that was not expanded broadcasts as [T, S], which B = T lets pass."""

    name = "planted/padding-read-as-target-source"

    def read_mask(self, problem: Problem) -> MaskArrays:
        mask = problem.mask
        if mask.key_padding is None or mask.shape[0] != mask.shape[2]:
            return mask
        rows = mask.key_padding if mask.window is None else mask.key_padding | mask.window
        return replace(mask, key_padding=None, window=rows)


class PaddingReplacesCausal(Attention):
    """With both given, the padding mask replaces the causal one instead of joining it."""

    name = "planted/padding-replaces-causal"

    def read_mask(self, problem: Problem) -> MaskArrays:
        return problem.mask if problem.mask.key_padding is None else replace(problem.mask, causal=None)


class PolarityFlipped(Attention):
    """True is read as *may attend*."""

    name = "planted/polarity-flipped"

    def blocked(self, setting: Setting) -> Array:
        blocked = super().blocked(setting)
        return blocked if setting.mask.blocked() is None else ~blocked


class MaskOfAnotherSample(Attention):
    """Each sample is given the mask of the sample before it."""

    name = "planted/mask-of-another-sample"

    def blocked(self, setting: Setting) -> Array:
        return np.roll(super().blocked(setting), 1, axis=0)


class MaskOfFirstHead(Attention):
    """A mask with a head axis is applied as its first head to all heads."""

    name = "planted/mask-of-first-head"

    def blocked(self, setting: Setting) -> Array:
        return np.repeat(super().blocked(setting)[:, :1], setting.mask.shape[1], axis=1)


class MaskHeadMajor(Attention):
    """A [B, T, S] mask is tiled to [B·H, T, S] head by head where batch by batch is read."""

    name = "planted/mask-head-major"

    def blocked(self, setting: Setting) -> Array:
        blocked = super().blocked(setting)
        return blocked.swapaxes(0, 1).reshape(blocked.shape)


class MaskAlreadyApplied(Attention):
    """A stateful mask: a second call on the same problem goes unmasked."""

    name = "planted/mask-already-applied"

    def __init__(self) -> None:
        self._last = ""

    def blocked(self, setting: Setting) -> Array:
        blocked = super().blocked(setting)
        again, self._last = (self._last == setting.problem.case.id, setting.problem.case.id)
        return np.zeros_like(blocked) if again else blocked


class FillMinusTenThousand(Attention):
    """Blocked scores are overwritten with −1e4 instead of −∞, so a fully blocked row comes out uniform."""

    name = "planted/fill-minus-1e4"

    def fill(self, setting: Setting) -> float:
        return -1e4


class AddMinusTenThousand(Attention):
    """−1e4 is added to blocked scores, so a fully blocked row is answered as if nothing were masked."""

    name = "planted/add-minus-1e4"

    def mask(self, setting: Setting, scores: Array) -> Array:
        added, source = scores.copy(), setting.mask.shape[3]
        added[..., :source] += self.additive(setting) - np.float32(1e4) * self.blocked(setting)
        return added


class AdditiveMinusInfIgnored(Attention):
    """−∞ in an additive mask is replaced by 0, as a cleaning of non-finite numbers does."""

    name = "planted/additive-minus-inf-ignored"

    def additive(self, setting: Setting) -> Array:
        bias = super().additive(setting)
        return np.where(np.isneginf(bias), 0, bias).astype(bias.dtype)


class AdditiveIgnoredWithBooleans(Attention):
    """The additive bias is dropped whenever a Boolean mask is present."""

    name = "planted/additive-ignored-with-booleans"

    def additive(self, setting: Setting) -> Array:
        bias = super().additive(setting)
        return bias if setting.mask.blocked() is None else np.zeros_like(bias)


class AdditiveBiasScaled(Attention):
    """The bias is added before the scale, which therefore shrinks it too."""

    name = "planted/additive-bias-scaled"

    def additive(self, setting: Setting) -> Array:
        bias = super().additive(setting)
        return np.asarray(bias * bias.dtype.type(self.scale(setting)))


class IntegerMaskAccepted(Attention):
    """A mask of integers 0 and 1 is taken for Booleans."""

    name = "planted/integer-mask-accepted"

    def receive(self, problem: Problem) -> Problem:
        check_call(problem, mask_types=False)
        explicit = problem.mask.explicit
        booleans = None if explicit is None else explicit.astype(bool)
        return replace(problem, mask=replace(problem.mask, explicit=booleans))


def _aligned(problem: Problem, written: str, offset: int) -> MaskArrays:
    """The mask with its causal part at another offset, where the case writes that alignment."""
    if problem.case.mask.causal != written:
        return problem.mask
    target, source = problem.mask.shape[2:]
    return replace(problem.mask, causal=np.arange(source) > np.arange(target)[:, None] + offset)
