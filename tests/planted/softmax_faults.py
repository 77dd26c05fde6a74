"""Faults of the softmax, of the weights that come back, and of number formats."""

from __future__ import annotations

import numpy as np

from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Setting

TILE = 64


class NoMaxSubtraction(Attention):
    """exp is taken of the scores themselves: it overflows, or every power of a very negative row vanishes."""

    name = "planted/no-max-subtraction"

    def shift(self, setting: Setting, masked: Array) -> Array:
        return np.zeros((), masked.dtype)


class MaxOfWholeBatch(Attention):
    """One maximum is subtracted from the whole tensor, so a row far below it vanishes."""

    name = "planted/max-of-whole-batch"

    def shift(self, setting: Setting, masked: Array) -> Array:
        return super().shift(setting, masked.reshape(1, -1)).reshape(1, 1, 1, 1)


class MaxBeforeMask(Attention):
    """The maximum is taken before the mask: a huge score at a blocked key makes the allowed ones vanish."""

    name = "planted/max-before-mask"

    def mask(self, setting: Setting, scores: Array) -> Array:
        largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        return super().mask(setting, scores - np.where(np.isneginf(largest), 0, largest))

    def shift(self, setting: Setting, masked: Array) -> Array:
        return np.zeros((), masked.dtype)


class WrongAxis(Attention):
    """Softmax runs over the queries instead of the keys."""

    name = "planted/softmax-over-queries"

    def softmax(self, setting: Setting, masked: Array) -> Array:
        return super().softmax(setting, masked.swapaxes(-1, -2)).swapaxes(-1, -2)


class BlockedRowUniform(Attention):
    """A fully blocked row attends to all keys alike."""

    name = "planted/blocked-row-uniform"

    def softmax(self, setting: Setting, masked: Array) -> Array:
        weights = super().softmax(setting, masked)
        empty = np.isneginf(masked).all(axis=-1, keepdims=True)
        return np.where(empty, 1 / max(masked.shape[-1], 1), weights).astype(masked.dtype)


class BlockedRowNan(Attention):
    """A fully blocked row is 0/0."""

    name = "planted/blocked-row-nan"

    def softmax(self, setting: Setting, masked: Array) -> Array:
        weights = super().softmax(setting, masked)
        return np.where(np.isneginf(masked).all(axis=-1, keepdims=True), np.nan, weights).astype(masked.dtype)


class VeryNegativeClamped(Attention):
    """Scores below −100 are lifted to −100, a running maximum that starts too high."""

    name = "planted/very-negative-clamped"

    def mask(self, setting: Setting, scores: Array) -> Array:
        return super().mask(setting, np.maximum(scores, -100))


class LastTileDropped(Attention):
    """Only for S > 64: the keys after the last full tile of 64 are never read."""

    name = "planted/last-tile-dropped"

    def mask(self, setting: Setting, scores: Array) -> Array:
        masked, source = super().mask(setting, scores), setting.mask.shape[3]
        if source > TILE:
            masked[..., source - source % TILE : source] = -np.inf
        return masked


class TilesNotRescaled(Attention):
    """Only for S > 64: an online softmax does not rescale earlier tiles when the running maximum grows."""

    name = "planted/tiles-not-rescaled"

    def shift(self, setting: Setting, masked: Array) -> Array:
        if masked.shape[-1] <= TILE:
            return super().shift(setting, masked)
        running = np.maximum.accumulate(masked, axis=-1)
        ends = np.minimum((np.arange(masked.shape[-1]) // TILE + 1) * TILE, masked.shape[-1]) - 1
        return np.where(np.isneginf(running[..., ends]), 0, running[..., ends]).astype(masked.dtype)


class WeightsAveraged(Attention):
    """Weights come back as the mean over heads, [B, T, S], as a default argument asks."""

    name = "planted/weights-averaged"

    def returned_weights(self, setting: Setting, weights: Array) -> Array:
        return np.asarray(weights.mean(axis=1).astype(setting.storage))


class WeightsAveragedAndExpanded(Attention):
    """Weights come back as the mean over heads, repeated to the right shape."""

    name = "planted/weights-averaged-and-expanded"

    def returned_weights(self, setting: Setting, weights: Array) -> Array:
        return np.broadcast_to(weights.mean(axis=1, keepdims=True), weights.shape).astype(setting.storage)


class WeightsInFloat32(Attention):
    """Weights come back in float32 for 16-bit inputs."""

    name = "planted/weights-in-float32"

    def returned_weights(self, setting: Setting, weights: Array) -> Array:
        return weights.astype(np.promote_types(setting.arithmetic, np.float32))


class SoftmaxInFloat32(Attention):
    """Softmax runs in float32 for float64 inputs."""

    name = "planted/softmax-in-float32"

    def softmax(self, setting: Setting, masked: Array) -> Array:
        return super().softmax(setting, masked.astype(np.float32)).astype(masked.dtype)


class SoftmaxInStorage(Attention):
    """Scores and softmax stay in 16 bits for 16-bit inputs, every step of the sum rounded."""

    name = "planted/softmax-in-storage"

    def softmax(self, setting: Setting, masked: Array) -> Array:
        stored = setting.keep(masked)
        if setting.storage.itemsize > 2:
            return super().softmax(setting, stored)
        powers = setting.keep(np.exp(setting.keep(stored - self.shift(setting, stored))))
        total = np.zeros(powers.shape[:-1], powers.dtype)
        for column in range(powers.shape[-1]):
            total = setting.keep(total + powers[..., column])
        return setting.keep(powers / np.where(total == 0, 1, total)[..., None])


class AccumulationInStorage(Attention):
    """Matrix products of 16-bit inputs are summed in 16 bits, one term after another."""

    name = "planted/accumulation-in-storage"

    def product(self, setting: Setting, left: Array, right: Array) -> Array:
        if setting.storage.itemsize > 2:
            return super().product(setting, left, right)
        total = setting.keep(np.zeros(()))
        for term in range(left.shape[-1]):
            total = setting.keep(total + setting.keep(left[..., :, term, None] * right[..., None, term, :]))
        shape = np.matmul(left[..., :0], right[..., :0, :]).shape
        return np.broadcast_to(total, shape).astype(setting.arithmetic)


class ProductsInTf32(Attention):
    """Products of float32 inputs are taken with 10-bit mantissas, as TF32 does."""

    name = "planted/products-in-tf32"

    def product(self, setting: Setting, left: Array, right: Array) -> Array:
        if setting.storage != np.float32:
            return super().product(setting, left, right)
        return np.asarray(super().product(setting, _tf32(left), _tf32(right)))


def _tf32(array: Array) -> Array:
    """Round to ten explicit bits of mantissa, ties to even."""
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(mantissa * 2048) / 2048, exponent).astype(array.dtype)
