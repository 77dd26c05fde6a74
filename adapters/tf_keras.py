"""Keras' attention layers on the TensorFlow backend: eager, with scores, as a graph, through XLA, and grouped.

A layer is built once for its static options and a program is compiled once for its signature; weights, masks and
data are arguments of both, so one compilation serves every mask of a shape.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from adapters.tf_keras_masks import MaskArguments, mask_arguments, unsupported_mask
from adapters.tf_keras_program import LayerOptions, Program, ProgramKey, frameworks, generator_states, neutral_variables
from conformance.adapter import Adapter, Script
from conformance.policy import Policy
from conformance.problem import Outputs, Problem
from conformance.spec import Case, Unsupported

Mode = Literal["eager", "graph", "xla"]
MHA_DOCS = "https://keras.io/api/layers/attention_layers/multi_head_attention/"
GQA_DOCS = "https://keras.io/api/layers/attention_layers/group_query_attention/"
LAYERS_KEPT, PROGRAMS_KEPT = 16, 32
# Softmax and its sums are operators of their own, no flash kernel. Neither Eigen nor oneDNN states the error of the
# exponential in tf.nn.softmax; a quotient of two weights was measured to be off by up to 6.8 units of roundoff, two of
# them from its divisions (docs/tolerance.md).
EIGEN = Policy(flash=False, exponential_units=8)
# XLA budgets 6 ULP for exp in float32 and 1 in float64 on CPU (xla/codegen/intrinsic/accuracy/accuracy_budget.h).
XLA = Policy(flash=False, exponential_units=12)


class KerasMha:
    """``keras.layers.MultiHeadAttention`` called eagerly, scores not returned: Keras takes its route through
    ``ops.dot_product_attention``.

    Gradients come from ``tf.GradientTape``. Where the tape returns None (its documented default for a source that is
    not connected to the output, ``UnconnectedGradients.NONE``), that gradient is left out, so that it shows as
    missing: writing zeros would be this module's answer, not TensorFlow's. The cotangent is cast to the output's
    dtype, which TensorFlow demands.

    An ill-formed call asks whether the forward call raises: no gradient is computed, and the layer is a fresh one
    built for the shapes of the call, as Keras builds on a first call, since only building compares the lengths of
    key and value.
    """

    name = "keras/mha"
    gives_weights: bool = False
    gives_gradients: bool = True
    mode: Mode = "eager"
    policy: Policy = EIGEN
    documentation = MHA_DOCS
    layer_name = "MultiHeadAttention"  # of keras.layers

    def __init__(self) -> None:
        self._tensorflow, self._keras = frameworks()
        self._window_option = "sliding_window" in inspect.signature(self._layer_class().__init__).parameters
        self._layer = lru_cache(maxsize=LAYERS_KEPT)(self._build_layer)
        self._program = lru_cache(maxsize=PROGRAMS_KEPT)(self._build_program)

    @property
    def compilations(self) -> int:
        """How often a layer was built or a program made anew."""
        return int(self._program.cache_info().misses)

    def versions(self) -> Mapping[str, str]:
        return {"keras": self._keras.__version__, "tensorflow": self._tensorflow.__version__}

    def unsupported(self, case: Case) -> Unsupported | None:
        reason = _unsupported(case) or unsupported_mask(case) or self._unsupported_layer(case)
        return None if reason is None else Unsupported(reason, self.documentation)

    def attend(self, problem: Problem) -> Outputs:
        """Run the layer on the problem; results in the dtype that TensorFlow gives them."""
        tensor = self._tensorflow.convert_to_tensor
        masks = mask_arguments(problem, self._window_option)
        inputs = {name: tensor(array) for name, array in problem.distinct_inputs.items()}
        arguments = {name: tensor(array) for name, array in masks.arrays.items()}
        program = self._program_of(problem, masks, {**inputs, **arguments})
        if problem.case.ill_formed != "zero-heads":  # such a layer has no room for any parameter
            program.assign(problem.parameters)
        program.seed(problem.seed)
        with warnings.catch_warnings():  # a sole key is a case like any other; Keras wonders whether it is meant
            warnings.filterwarnings("ignore", message="You are using a softmax over axis", category=UserWarning)
            output, weights, gradients = program.step(inputs, arguments, tensor(problem.cotangent))
        return Outputs(
            attn_output=output.numpy(),
            attn_weights=None if weights is None else weights.numpy(),
            gradients=program.named_gradients(problem, gradients),
        )

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The same call with NumPy, TensorFlow and Keras alone."""
        from adapters.tf_keras_script import KerasCall, keras_script

        sizes = self._sizes(LayerOptions.of(problem.case))
        call = KerasCall(self.layer_name, sizes, self.mode, self.gives_weights, self._window_option)
        return keras_script(problem, samples, call)

    def parameter_count(self, case: Case) -> int:
        """Number of scalars in the weights of the layer that answers the case."""
        return sum(int(np.prod(weight.shape)) for weight in self._layer(LayerOptions.of(case)).weights)

    def _unsupported_layer(self, case: Case) -> str | None:
        if case.num_kv_heads != case.num_heads and case.ill_formed != "zero-heads":
            return "MultiHeadAttention has as many key and value heads as query heads; grouped heads are another layer"
        return None

    def _layer_class(self) -> Any:
        return getattr(self._keras.layers, self.layer_name)

    def _sizes(self, options: LayerOptions) -> dict[str, int]:
        """Constructor arguments that the two layers name differently."""
        return {
            "num_heads": options.num_heads,
            "key_dim": options.head_dim,
            "value_dim": options.value_head_dim,
            "output_shape": options.output_dim,
        }

    def _new_layer(self, options: LayerOptions) -> Any:
        chosen: dict[str, Any] = {"use_bias": options.bias, "dropout": options.dropout}
        if options.sliding_window is not None:
            chosen["sliding_window"] = options.sliding_window
        return self._layer_class()(**self._sizes(options), **chosen, dtype=self._keras.DTypePolicy(options.dtype))

    def _build_layer(self, options: LayerOptions) -> Any:
        layer = self._new_layer(options)
        layer.build(
            query_shape=(None, None, options.embed_dim),
            value_shape=(None, None, options.vdim),
            key_shape=(None, None, options.kdim),
        )
        return layer

    def _program_of(self, problem: Problem, masks: MaskArguments, tensors: Mapping[str, Any]) -> Program:
        case, options = problem.case, LayerOptions.of(problem.case, masks.sliding_window)
        compiled = self.mode != "eager"
        key = ProgramKey(
            options=options,
            input_names=problem.input_names,
            use_causal_mask=masks.use_causal_mask,
            gradients=case.wants_gradients and case.ill_formed is None,
            training=case.mode == "train",
            signature=tuple((name, tuple(t.shape), t.dtype.name) for name, t in tensors.items() if compiled),
        )
        if case.ill_formed is None:
            return self._program(key)
        layer = self._new_layer(options)
        shapes = (problem.query.shape, problem.value.shape, problem.key.shape)
        widths = (options.embed_dim, options.vdim, options.kdim)  # as declared, whatever the arrays have
        query, value, key_ = ((*shape[:-1], width) for shape, width in zip(shapes, widths, strict=True))
        layer.build(query_shape=query, value_shape=value, key_shape=key_)
        return self._new_program(layer, key)

    def _build_program(self, key: ProgramKey) -> Program:
        return self._new_program(self._layer(key.options), key)

    def _new_program(self, layer: Any, key: ProgramKey) -> Program:
        variables = neutral_variables(layer)

        def call(inputs: Mapping[str, Any], masks: Mapping[str, Any]) -> tuple[Any, Any]:
            query, keys, value = (inputs[name] for name in key.input_names)
            answer = layer(
                query=query,
                value=value,
                key=keys,
                **masks,
                use_causal_mask=key.use_causal_mask,
                return_attention_scores=self.gives_weights,
                training=key.training,
            )
            return answer if self.gives_weights else (answer, None)

        def step(inputs: Mapping[str, Any], masks: Mapping[str, Any], cotangent: Any) -> tuple[Any, Any, list[Any]]:
            if not key.gradients:
                return (*call(inputs, masks), [])
            sources = [*inputs.values(), *(variable.value for variable in variables.values())]
            with self._tensorflow.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                output, weights = call(inputs, masks)
            cotangent = self._tensorflow.cast(cotangent, output.dtype)
            return output, weights, tape.gradient(output, sources, output_gradients=cotangent)

        return Program(variables, generator_states(layer), self._compiled(step))

    def _compiled(self, step: Callable[..., Any]) -> Callable[..., Any]:
        if self.mode == "eager":
            return step
        function: Callable[..., Any] = self._tensorflow.function(step, jit_compile=self.mode == "xla")
        return function


class KerasMhaScores(KerasMha):
    """The same layer asked for its scores: Keras takes its other route, einsum and its own masked softmax."""

    name = "keras/mha@scores"
    gives_weights = True


class KerasMhaGraph(KerasMha):
    """The same call as ``keras/mha`` inside ``tf.function``, without XLA."""

    name = "keras/mha@graph"
    mode = "graph"


class KerasMhaXla(KerasMha):
    """The same call as ``keras/mha`` inside ``tf.function(jit_compile=True)``."""

    name = "keras/mha@xla"
    mode = "xla"
    policy = XLA


class KerasGqa(KerasMha):
    """``keras.layers.GroupQueryAttention`` called eagerly, scores not returned."""

    name = "keras/gqa"
    documentation = GQA_DOCS
    layer_name = "GroupQueryAttention"

    def _unsupported_layer(self, case: Case) -> str | None:
        if case.value_head_dim != case.head_dim:
            return "GroupQueryAttention has one head_dim for queries, keys and values"
        if case.output_dim != case.embed_dim:
            return "GroupQueryAttention projects back to the width of the query and has no output_shape"
        return None

    def _sizes(self, options: LayerOptions) -> dict[str, int]:
        return {
            "head_dim": options.head_dim,
            "num_query_heads": options.num_heads,
            "num_key_value_heads": options.num_kv_heads,
        }


def _unsupported(case: Case) -> str | None:
    """Limits that both layers share, masks apart."""
    if case.scale is not None:
        return "Keras' attention layers derive the scale from the head width and take none"
    if case.bias_kv:
        return "Keras' attention layers have no bias row for keys and values"
    if case.zero_attention:
        return "Keras' attention layers have no zero-attention row"
    if case.ill_formed == "embed-dim-not-divisible":
        return "Keras takes the head width as its own argument and never divides the model width by heads"
    return None


SUBJECTS: tuple[type[KerasMha], ...] = (KerasMha, KerasMhaScores, KerasMhaGraph, KerasMhaXla, KerasGqa)
ADAPTER = Adapter(
    framework="keras",
    modules=("tensorflow", "keras"),
    install="pip install 'attention-conformance[keras]'",
    subjects={subject.name: subject for subject in SUBJECTS},
    slow={KerasMhaGraph.name: "shared-shape", KerasMhaXla.name: "sample"},
)
