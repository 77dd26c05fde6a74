"""Reproducers in JAX: the projections and the call between them as one would write it in a bug report. Pure text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapters.jax_masks import JaxMask
from adapters.scripting import (
    SAMPLE,
    arrays_of,
    block,
    bracketed,
    by_sample,
    called,
    judged_parameters,
    numpy_input,
    polarity,
)
from conformance.adapter import Script
from conformance.problem import Problem
from conformance.spec import Case

HEAD = (
    "import jax",
    "import jax.numpy as jnp",
    "",
    'jax.config.update("jax_platforms", "cpu")',
    'jax.config.update("jax_enable_x64", True)  # without it float64 is silently float32',
    "",
    "",
)


@dataclass(frozen=True)
class JaxCall:
    """What differs between subjects, and the mask of the call; ``varying`` masks have an axis for the sample in
    front."""

    mask: JaxMask
    masks: Mapping[str, Any]
    varying: frozenset[str]
    compiled: bool
    textbook: bool


def jax_script(problem: Problem, call: JaxCall) -> Script:
    """Projections, attention, and ``jax.vjp`` where gradients are asked for."""
    case = problem.case
    body = [*_arguments(problem, call), *_answer(problem, call), *_actual(problem, call)]
    masks = {name: array for name, array in call.masks.items() if name != "scale"}
    lines = [*HEAD, *_attend(problem, call), *_answer_function(case, call), *_kept(problem, masks)]
    return Script("\n".join([*lines, "", *called(case, body, "np.concatenate")]), arrays_of(masks))


def _attend(problem: Problem, call: JaxCall) -> list[str]:
    """The function that is differentiated."""
    case = problem.case
    heads = {"query": case.num_heads, "key": case.num_kv_heads, "value": case.num_kv_heads}
    widths = {"query": case.head_dim, "key": case.head_dim, "value": case.value_head_dim}
    lines = [
        f"{role} = heads({_projected(case, _input(source), role)}, {heads[role]}, {widths[role]})"
        for role, source in zip(heads, problem.input_names, strict=True)
    ]
    lines += _recipe(case, call) if call.textbook else _operator(case, call)
    lines.append(f"joined = context.reshape(*context.shape[:-2], {case.num_heads * case.value_head_dim})")
    output = _projected(case, "joined", "output")
    return [
        "def heads(projected, number, width):",
        "    return projected.reshape(*projected.shape[:-1], number, width)",
        "",
        "",
        *block("def attend(inputs, parameters, masks)", lines),
        f"    return {output}{', attn_weights' if call.textbook else ''}",
        "",
        "",
    ]


def _input(name: str) -> str:
    return f'inputs["{name}"]'


def _projected(case: Case, array: str, role: str) -> str:
    product = f'{array} @ parameters["{role}_weight"]'
    return f'{product} + parameters["{role}_bias"]' if case.bias else product


def _operator(case: Case, call: JaxCall) -> list[str]:
    options = [] if case.scale is None else [f"scale={case.scale!r}"]
    options += ["is_causal=True"] if call.mask.is_causal else []
    if call.mask.local_window_size is not None:
        options.append(f"local_window_size={call.mask.local_window_size!r}")
    return bracketed("context = jax.nn.dot_product_attention(", ["query", "key", "value", *options, "**masks"], ")")


def _recipe(case: Case, call: JaxCall) -> list[str]:
    """softmax(where(mask, Q Kᵀ · scale, −1e9)) V, in float32 for 16-bit storage.

    A mask that blocks nothing and a bias of zeros, which the subject passes, are passed here too: without them XLA
    fuses otherwise, and results differ by a unit in the last place.
    """
    shared_by = case.num_heads // case.num_kv_heads
    grouped = [f"{name} = jnp.repeat({name}, {shared_by}, axis=2)" for name in ("key", "value") if shared_by > 1]
    wide, narrow, widen = "", "", []
    if case.storage in ("float16", "bfloat16"):
        wide, narrow = ".astype(jnp.float32)", f".astype(jnp.{case.storage})"
        widen = [f"query, key, value = query{wide}, key{wide}, value{wide}"]
    lines = [*grouped, *widen, f'scores = jnp.einsum("bthd,bshd->bhts", query, key) * {case.effective_scale!r}']
    if "bias" in call.masks:
        lines.append(f'scores = scores + masks["bias"]{wide}')
    if "mask" in call.masks:
        lines.append('scores = jnp.where(masks["mask"], scores, -1e9)')
    return [
        *lines,
        f"attn_weights = jax.nn.softmax(scores, axis=-1){narrow}",
        f'context = jnp.einsum("bhts,bshd->bthd", attn_weights{wide}, value){narrow}',
    ]


def _answer_function(case: Case, call: JaxCall) -> list[str]:
    """``answer``: the forward pass alone, or with its gradients."""
    decorator = ["@jax.jit"] if call.compiled else []
    if not case.wants_gradients:
        return [
            *decorator,
            *block("def answer(inputs, parameters, masks)", ["return attend(inputs, parameters, masks)"]),
            "",
            "",
        ]
    has_aux = ", has_aux=True" if call.textbook else ""
    left = "attn_output, pull_back, attn_weights" if call.textbook else "attn_output, pull_back"
    results = "attn_output, attn_weights" if call.textbook else "attn_output"
    lines = [
        "def forward(inputs, parameters):",
        "    return attend(inputs, parameters, masks)",
        "",
        f"{left} = jax.vjp(forward, inputs, parameters{has_aux})",
        f"return {results}, *pull_back(cotangent)",
    ]
    return [*decorator, *block("def answer(inputs, parameters, masks, cotangent)", lines), "", ""]


def _kept(problem: Problem, masks: Mapping[str, Any]) -> list[str]:
    """Parameters and masks, which are the same for every call."""
    narrowed = _narrowed(problem.case)
    names = [f'"{name}"' for name in problem.parameters.present]
    lines = [
        *bracketed("names = [", names, "]"),
        f"parameters = {{name: jnp.asarray(data[name]{narrowed}) for name in names}}",
    ]
    for name, mask in arrays_of(masks).items():
        floats = mask.dtype.kind not in "biu"
        meaning = "" if name.endswith("_lengths") else f"  # {polarity(mask, attends=True)}"
        lines.append(f'{name} = jnp.asarray(data["{name}"]{narrowed if floats else ""}){meaning}')
    return lines


def _arguments(problem: Problem, call: JaxCall) -> list[str]:
    case = problem.case
    inputs = [f'"{name}": jnp.asarray({numpy_input(case, name)}{_narrowed(case)})' for name in problem.distinct_inputs]
    masks = [
        f'"{name}": {name}[sample]' if name in call.varying else f'"{name}": {name}'
        for name in call.masks
        if name != "scale"
    ]
    return [*bracketed("inputs = {", inputs, "}"), *bracketed("masks = {", masks, "}")]


def _answer(problem: Problem, call: JaxCall) -> list[str]:
    case = problem.case
    left = ["attn_output", "attn_weights"] if call.textbook else ["attn_output"]
    arguments = ["inputs", "parameters", "masks"]
    if case.wants_gradients:
        left += ["of_inputs", "of_parameters"]
        sample = SAMPLE if by_sample(case) else ""
        arguments.append(f'jnp.asarray(data["cotangent"]{sample}{_narrowed(case)})')
    return bracketed(f"{', '.join(left)} = answer(", arguments, ")")


def _actual(problem: Problem, call: JaxCall) -> list[str]:
    outputs = ["attn_output", "attn_weights"] if call.textbook else ["attn_output"]
    lines = bracketed("actual = {", [f'"{name}": np.asarray({name})' for name in outputs], "}")
    if not problem.case.wants_gradients:
        return lines
    gradients = "{**of_inputs, **of_parameters}" if judged_parameters(problem) else "of_inputs"
    return [
        *lines,
        *block(f"for name, gradient in {gradients}.items()", ['actual[name + ".gradient"] = np.asarray(gradient)']),
    ]


def _narrowed(case: Case) -> str:
    return ", jnp.bfloat16" if case.storage == "bfloat16" else ""
