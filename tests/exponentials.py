"""How far the exponential inside each framework's softmax is off, in units of roundoff of its format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from conformance.policy import FORMATS
from conformance.spec import Array

KEYS = 16  # of a row of scores, the first of which is the largest
LOWEST = {"float32": -80.0, "float64": -600.0}  # above what underflows
Softmax = Callable[[Array], Array]


def numpy_softmax() -> Softmax:
    def softmax(scores: Array) -> Array:
        return np.exp(scores)

    return softmax


def torch_softmax() -> Softmax:
    import torch

    return lambda scores: np.asarray(torch.softmax(torch.from_numpy(scores), -1))


def tensorflow_softmax(compiled: bool = False) -> Softmax:
    import tensorflow as tf

    call: Any = tf.function(tf.nn.softmax, jit_compile=True) if compiled else tf.nn.softmax
    return lambda scores: np.asarray(call(scores))


def jax_softmax() -> Softmax:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    call = jax.jit(jax.nn.softmax)
    return lambda scores: np.asarray(call(scores))


SOFTMAX: Mapping[str, Callable[[], Softmax]] = {  # by a subject whose softmax it is
    "numpy/reference": numpy_softmax,
    "torch/sdpa-math": torch_softmax,
    "keras/mha": tensorflow_softmax,
    "keras/mha@xla": lambda: tensorflow_softmax(compiled=True),
    "jax/dpa@jit": jax_softmax,
}
DIVISION = 2.0  # units: each of the two weights of a quotient was divided by their sum, or multiplied by its reciprocal


def scores_below_zero(dtype: str, rows: int) -> Array:
    """[rows, KEYS]: uniform and logarithmic over the range of exp; the first of each row is 0."""
    random = np.random.default_rng(2026)
    lowest, count = LOWEST[dtype], rows * KEYS // 2
    uniform = random.uniform(lowest, 0, count)
    graded = -np.exp(random.uniform(np.log(1e-6), np.log(-lowest), rows * KEYS - count))
    scores = np.concatenate([uniform, graded]).reshape(rows, KEYS)
    scores[:, 0] = 0
    return scores.astype(dtype)


def exponential_units(softmax: Softmax, dtype: str, rows: int = 40_000) -> float:
    """Largest relative error of P_j / P_0 against exp(s_j), which has no sum in it, in units of roundoff."""
    scores = scores_below_zero(dtype, rows)
    weights = softmax(scores).astype(np.longdouble)
    error = np.abs(weights / weights[:, :1] / np.exp(scores.astype(np.longdouble)) - 1)
    return float(error.max()) / FORMATS[dtype].unit_roundoff
