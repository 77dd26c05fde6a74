"""Reproducers in Keras on TensorFlow: the layer's call as one would write it in a bug report. Pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.scripting import (
    SAMPLE,
    arrays_of,
    block,
    bracketed,
    by_sample,
    called,
    indented,
    judged_parameters,
    masks_by_call,
    numpy_input,
    polarity,
)
from adapters.tf_keras_masks import MaskArguments, mask_arguments
from conformance.adapter import Script
from conformance.problem import Problem
from conformance.spec import Case

DECORATORS = {"eager": "", "graph": "@tf.function", "xla": "@tf.function(jit_compile=True)"}
HEAD = ("import os", "", 'os.environ["KERAS_BACKEND"] = "tensorflow"', "import keras", "import tensorflow as tf", "")


@dataclass(frozen=True)
class KerasCall:
    """What differs between subjects: the layer's class and sizes, how it is run, whether scores are asked for."""

    layer: str
    sizes: Mapping[str, int]
    mode: str
    scores: bool
    window_option: bool


def keras_script(problem: Problem, samples: Sequence[Problem], call: KerasCall) -> Script:
    """The layer built, given its weights, and called; with a gradient tape where gradients are asked for."""
    static = mask_arguments(problem, call.window_option)
    masks, varying = masks_by_call(problem, samples, lambda one: mask_arguments(one, call.window_option).arrays)
    text = _Text(problem, call, static, masks, varying)
    lines = [
        *HEAD,
        *text.layer(),
        *text.masks_made(),
        *text.function(),
        "",
        *called(problem.case, text.body(), CONCATENATE),
    ]
    return Script("\n".join(lines), arrays_of(masks))


CONCATENATE = "np.concatenate"


@dataclass(frozen=True)
class _Text:
    problem: Problem
    call: KerasCall
    static: MaskArguments
    masks: Mapping[str, Any]
    varying: frozenset[str]

    @property
    def differentiated(self) -> bool:
        case = self.problem.case
        return case.wants_gradients and case.ill_formed is None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the distinct inputs."""
        return tuple(self.problem.distinct_inputs)

    @property
    def results(self) -> list[str]:
        """Names of what one call leaves."""
        weights = ["attn_weights"] if self.call.scores else []
        return ["attn_output", *weights, *(["gradients"] if self.differentiated else [])]

    def layer(self) -> list[str]:
        """The layer, built and with the problem's parameters."""
        case, problem = self.problem.case, self.problem
        options = [f"{name}={size}" for name, size in self.call.sizes.items()]
        options += [] if case.bias else ["use_bias=False"]
        options += [f"dropout={case.dropout}"] if case.dropout else []
        if self.static.sliding_window is not None:
            options.append(f"sliding_window={self.static.sliding_window}")
        options.append(f'dtype=keras.DTypePolicy("{case.dtype}")' if case.mixed else f'dtype="{case.dtype}"')
        lines = bracketed(f"layer = keras.layers.{self.call.layer}(", options, ")")
        shapes = {
            "query": (None, None, case.embed_dim),
            "value": (None, None, case.vdim),
            "key": (None, None, case.kdim),
        }
        if case.ill_formed is not None:  # only building compares the lengths of key and value
            shapes = {
                "query": (*problem.query.shape[:-1], case.embed_dim),
                "value": (*problem.value.shape[:-1], case.vdim),
                "key": (*problem.key.shape[:-1], case.kdim),
            }
        lines += bracketed("layer.build(", [f"{role}_shape={shape!r}" for role, shape in shapes.items()], ")")
        if case.ill_formed == "zero-heads":  # such a layer has no room for parameters
            return lines
        return [*lines, *self._parameters()]

    def _parameters(self) -> list[str]:
        names = [f'"{role}_{kind}"' for role in ("query", "key", "value", "output") for kind in ("weight", "bias")]
        kept = [name for name in names if name.strip('"') in self.problem.parameters.present]
        loop = "for name, weight in zip(parameters, layer.weights)"
        return [
            *bracketed("parameters = [", kept, "]"),
            f"layer.set_weights([data[name].reshape(weight.shape) {loop}])",
        ]

    def masks_made(self) -> list[str]:
        """One line for each mask tensor."""
        return [
            f'{name} = tf.constant(data["{name}"])  # {polarity(mask, attends=True)}'
            for name, mask in arrays_of(self.masks).items()
        ]

    def function(self) -> list[str]:
        """In compiled modes the function that is compiled."""
        if self.call.mode == "eager":
            return []
        arguments = [*self.inputs, *self.masks, *(["cotangent"] if self.differentiated else [])]
        lines = [*self._forward({name: name for name in self.masks}), f"return {', '.join(self.results)}"]
        return ["", "", DECORATORS[self.call.mode], f"def attend({', '.join(arguments)}):", *indented(lines), ""]

    def _forward(self, masks: Mapping[str, str]) -> list[str]:
        query, key, value = self.problem.input_names
        arguments = [f"query={query}", f"value={value}", f"key={key}"]
        arguments += [f"{name}={text}" for name, text in masks.items()]
        arguments += ["use_causal_mask=True"] if self.static.use_causal_mask else []
        arguments += ["return_attention_scores=True"] if self.call.scores else []
        left = "attn_output, attn_weights" if self.call.scores else "attn_output"
        answer = bracketed(f"{left} = layer(", [*arguments, f"training={self.problem.case.mode == 'train'}"], ")")
        if not self.differentiated:
            return answer
        watched = ", ".join(self.inputs)
        sources = f"[{watched}, *layer.trainable_variables]" if judged_parameters(self.problem) else f"[{watched}]"
        return [
            *block("with tf.GradientTape() as tape", [f"tape.watch([{watched}])", *answer]),
            f"gradients = tape.gradient(attn_output, {sources}, tf.cast(cotangent, attn_output.dtype))",
        ]

    def body(self) -> list[str]:
        """One call, from inputs to ``actual``."""
        case = self.problem.case
        passed = {name: f"{name}[sample]" if name in self.varying else name for name in self.masks}
        lines = [f"{name} = {_tensor(case, numpy_input(case, name))}" for name in self.inputs]
        if self.differentiated:
            lines.append(f"cotangent = {_tensor(case, _sampled(case))}")
        if self.call.mode == "eager":
            lines += self._forward(passed)
        else:
            arguments = [*self.inputs, *passed.values(), *(["cotangent"] if self.differentiated else [])]
            lines.append(f"{', '.join(self.results)} = attend({', '.join(arguments)})")
        outputs = [f'"{name}": {name}.numpy()' for name in self.results if name != "gradients"]
        return [*lines, *bracketed("actual = {", outputs, "}"), *(self._gradients() if self.differentiated else [])]

    def _gradients(self) -> list[str]:
        names = ", ".join(f'"{name}"' for name in self.inputs)
        shaped = ""
        if judged_parameters(self.problem):
            names, shaped = f"{names}, *parameters", ".reshape(data[name].shape)"
        return block(
            f"for name, gradient in zip([{names}], gradients)",
            block("if gradient is not None", [f'actual[name + ".gradient"] = gradient.numpy(){shaped}']),
        )


def _sampled(case: Case) -> str:
    return 'data["cotangent"]' + (SAMPLE if by_sample(case) else "")


def _tensor(case: Case, array: str) -> str:
    return f"tf.cast({array}, tf.bfloat16)" if case.storage == "bfloat16" else f"tf.constant({array})"
