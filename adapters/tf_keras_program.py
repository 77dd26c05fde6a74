"""What the Keras subjects stand on: loading TensorFlow quietly, keys of layers and programs, and parameters.

Keras keeps its parameters in a layout of its own (kernels [D, H, Dh], output kernel [H, Dhv, Do], biases [H, Dh]);
the neutral layout has the same elements in the same order, so a reshape is the whole translation.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from conformance.adapter import cache_folder
from conformance.problem import Parameters, Problem
from conformance.spec import Array, Case

BACKEND = "tensorflow"
XLA_CACHE = "--tf_xla_persistent_cache_directory"
ENVIRONMENT = {"KERAS_BACKEND": BACKEND, "TF_CPP_MIN_LOG_LEVEL": "3"}
Signature = tuple[tuple[str, tuple[int, ...], str], ...]


@dataclass(frozen=True)
class LayerOptions:
    """What a Keras layer is built for; its lengths and batch are free."""

    embed_dim: int
    kdim: int
    vdim: int
    output_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    bias: bool
    dtype: str
    dropout: float
    sliding_window: int | None

    @classmethod
    def of(cls, case: Case, sliding_window: int | None = None) -> LayerOptions:
        return cls(
            embed_dim=case.embed_dim,
            kdim=case.kdim,
            vdim=case.vdim,
            output_dim=case.output_dim,
            num_heads=case.num_heads,
            num_kv_heads=case.num_kv_heads,
            head_dim=case.head_dim,
            value_head_dim=case.value_head_dim,
            bias=case.bias,
            dtype=case.dtype,
            dropout=case.dropout,
            sliding_window=sliding_window,
        )


@dataclass(frozen=True)
class ProgramKey:
    """One call signature of one layer. ``signature`` names every tensor argument with its shape and dtype in compiled
    modes, and is empty in eager mode, where one Python function serves every shape."""

    options: LayerOptions
    input_names: tuple[str, str, str]
    use_causal_mask: bool
    gradients: bool
    training: bool
    signature: Signature


@dataclass(frozen=True)
class Program:
    """A layer's parameters by neutral name, the states of its random generators, and the function that runs the layer:
    (inputs, masks, cotangent) → (output, weights or None, gradients of the inputs and then of the parameters, or None
    for each)."""

    variables: Mapping[str, Any]
    generators: tuple[Any, ...]
    step: Callable[..., tuple[Any, Any, list[Any]]]

    def seed(self, seed: int) -> None:
        """Set every generator to where ``keras.random.SeedGenerator(seed)`` begins."""
        for state in self.generators:
            state.assign([seed, 0])

    def assign(self, parameters: Parameters) -> None:
        """Write the problem's parameters into the layer's variables."""
        for name, array in parameters.present.items():
            variable = self.variables[name]
            variable.assign(np.reshape(array, variable.shape))

    def named_gradients(self, problem: Problem, flat: list[Any]) -> dict[str, Array]:
        """Gradients by neutral name in the shapes of the arrays they belong to; unconnected ones left out."""
        if not flat:
            return {}
        arrays = {**problem.distinct_inputs, **problem.parameters.present}
        names = [*problem.distinct_inputs, *self.variables]
        found = {name: gradient for name, gradient in zip(names, flat, strict=True) if gradient is not None}
        return {name: gradient.numpy().reshape(arrays[name].shape) for name, gradient in found.items()}


def neutral_variables(layer: Any) -> dict[str, Any]:
    """The variables of a built layer by neutral name: ``…/query/kernel`` is ``query_weight``."""
    kinds = {"kernel": "weight", "bias": "bias"}
    found = {}
    for variable in layer.weights:
        projection, kind = variable.path.split("/")[-2:]
        found[f"{projection.removeprefix('attention_')}_{kinds[kind]}"] = variable
    return found


def generator_states(layer: Any) -> tuple[Any, ...]:
    """The states of a built layer's seed generators, two numbers each: a seed and a count. Without dropout, none."""
    return tuple(variable for variable in layer.variables if variable.path.endswith("seed_generator_state"))


@cache
def frameworks() -> tuple[Any, Any]:
    """TensorFlow and Keras, imported once with one thread for each of TensorFlow's pools.

    Raises RuntimeError when this process already runs Keras on another backend: Keras takes one for its lifetime.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    _require_backend(sys.modules.get("keras"))
    with _quiet_standard_error():
        tensorflow = importlib.import_module("tensorflow")
        _keep_compilations(tensorflow.__version__)
        keras = importlib.import_module("keras")
        _require_backend(keras)
        with contextlib.suppress(RuntimeError):  # raised when TensorFlow already ran something: its pools are fixed
            tensorflow.config.threading.set_intra_op_parallelism_threads(1)
            tensorflow.config.threading.set_inter_op_parallelism_threads(1)
        tensorflow.zeros(()).numpy()  # start the runtime, whose first greeting belongs to the silence
    tensorflow.get_logger().setLevel("ERROR")  # each new shape is meant to be traced; TensorFlow warns of that
    return tensorflow, keras


def _keep_compilations(version: str) -> None:
    """Have XLA keep what it compiles for TensorFlow, unless the user has settled where that lies. The flags are read
    once, when XLA is first needed."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    folder = cache_folder("tensorflow", version)
    if folder is None or XLA_CACHE in flags or " " in str(folder):  # the flags are separated by blanks
        return
    os.environ["TF_XLA_FLAGS"] = f"{flags} {XLA_CACHE}={folder}".lstrip()


def _require_backend(keras: Any) -> None:
    """Refuse a Keras that is loaded on something else than TensorFlow; ``None`` is a Keras not yet imported."""
    backend = BACKEND if keras is None else keras.config.backend()
    if backend != BACKEND:
        raise RuntimeError(
            f"the Keras subjects need the {BACKEND} backend and Keras is loaded here on {backend!r}: set "
            f"KERAS_BACKEND={BACKEND} before Keras is first imported, or run these subjects in a process of their own"
        )


@contextlib.contextmanager
def _quiet_standard_error() -> Iterator[None]:
    """Hold back what native code writes to standard error, and let it out if the block raises.

    TensorFlow's runtime greets before its log level is in force, so the variable alone does not silence it.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(kept, held.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
