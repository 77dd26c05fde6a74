"""Faults of arithmetic: a correct implementation that is a little too inexact somewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from conformance.spec import Array
from tests.planted.attention import Attention
from tests.planted.setting import Setting, Tape


@dataclass(frozen=True)
class Fault:
    """A subject with one fault, and the dtypes in which it is one."""

    label: str
    dtypes: tuple[str, ...]
    subject: Attention


class WrongScale(Attention):
    """The scale is off by a relative error, forward and backward."""

    def __init__(self, relative: float) -> None:
        self.relative = relative

    def scale(self, setting: Setting) -> float:
        return super().scale(setting) * (1 + self.relative)


class ScaleInFloat32(Attention):
    """The constant 1/√Dh passes through float32."""

    def scale(self, setting: Setting) -> float:
        return float(np.float32(super().scale(setting)))


class WrongGradientScale(Attention):
    """The gradients of queries and keys are 1 % too large."""

    def scores_backward(self, setting: Setting, tape: Tape, scores: Array) -> tuple[Array, Array]:
        query, key = super().scores_backward(setting, tape, scores)
        return query * query.dtype.type(1.01), key * key.dtype.type(1.01)


class RoughExponential(Attention):
    """The weights of the softmax are off by independent relative errors up to ``relative``."""

    def __init__(self, relative: float) -> None:
        self.relative = relative

    def softmax(self, setting: Setting, masked: Array) -> Array:
        random = np.random.default_rng(1)
        powers = np.exp(masked - self.shift(setting, masked))
        powers = powers * (1 + random.uniform(-self.relative, self.relative, powers.shape)).astype(powers.dtype)
        total = powers.sum(axis=-1, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1, total).astype(powers.dtype))


class LargeDenominator(Attention):
    """The usual guard against division by 0, added to every denominator."""

    def softmax(self, setting: Setting, masked: Array) -> Array:
        powers = np.exp(masked - self.shift(setting, masked))
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + masked.dtype.type(1e-6)))


class SoftmaxInFloat32(Attention):
    """The softmax of a float64 layer in float32."""

    def softmax(self, setting: Setting, masked: Array) -> Array:
        return super().softmax(setting, masked.astype(np.float32)).astype(masked.dtype)


class NarrowProduct(Attention):
    """Some products take operands rounded to a narrower format."""

    def __init__(self, where: str, narrow: Callable[[Array], Array]) -> None:
        self.where, self.narrow = where, narrow

    def narrowed(self, setting: Setting, left: Array, right: Array) -> Array:
        return super().product(setting, self.narrow(left), self.narrow(right))

    def product(self, setting: Setting, left: Array, right: Array) -> Array:
        return (self.narrowed if self.where == "everywhere" else super().product)(setting, left, right)

    def aggregate(self, setting: Setting, weights: Array, value: Array) -> Array:
        product = self.narrowed if self.where == "P V" else self.product
        return setting.keep(product(setting, weights, value))

    def weight_gradient(self, setting: Setting, inputs: Array, outputs: Array) -> Array:
        left, right = inputs.reshape(-1, inputs.shape[-1]), outputs.reshape(-1, outputs.shape[-1])
        product = self.narrowed if self.where == "dW" else self.product
        return setting.keep(product(setting, left.T, right))


class WrongChannel(Attention):
    """One channel of the context is 1 % too large."""

    def aggregate(self, setting: Setting, weights: Array, value: Array) -> Array:
        context = super().aggregate(setting, weights, value).copy()
        context[..., 0] *= context.dtype.type(1.01)
        return setting.keep(context)


def tf32(array: Array) -> Array:
    """Rounded to the 11 significand bits of TensorFloat-32."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32) + np.uint32(1 << 12)
    return (bits & ~np.uint32((1 << 13) - 1)).view(np.float32)


def float32(array: Array) -> Array:
    return array.astype(np.float32).astype(array.dtype)


BOTH = ("float64", "float32")
FAULTS = (
    Fault("none: the control", BOTH, Attention()),
    Fault("scale + 1 %", BOTH, WrongScale(1e-2)),
    Fault("scale + 0.1 %", BOTH, WrongScale(1e-3)),
    Fault("scale + 1e-5", BOTH, WrongScale(1e-5)),
    Fault("scale + 1e-13", ("float64",), WrongScale(1e-13)),
    Fault("scale held in float32", ("float64",), ScaleInFloat32()),
    Fault("exp off by 1e-5", BOTH, RoughExponential(1e-5)),
    Fault("denominator + 1e-6", BOTH, LargeDenominator()),
    Fault("softmax in float32", ("float64",), SoftmaxInFloat32()),
    Fault("P V in float32", ("float64",), NarrowProduct("P V", float32)),
    Fault("dW in float32", ("float64",), NarrowProduct("dW", float32)),
    Fault("TF32 everywhere", ("float32",), NarrowProduct("everywhere", tf32)),
    Fault("TF32 in P V", ("float32",), NarrowProduct("P V", tf32)),
    Fault("TF32 in dW", ("float32",), NarrowProduct("dW", tf32)),
    Fault("dQ and dK + 1 %", BOTH, WrongGradientScale()),
    Fault("one channel of the context + 1 %", BOTH, WrongChannel()),
)
