"""Reproducers in PyTorch: each subject's call as one would write it in a bug report. Pure text, no framework needed."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.pytorch_masks import mha_masks, module_masks, sdpa_masks
from adapters.pytorch_script_plan import ROLES, Plan, dtype_option, names_of
from adapters.scripting import block, bracketed, masks_by_call, options
from conformance.adapter import Script
from conformance.problem import Problem

HEADS = "def heads(projected, number):  # [B, L, H * Dh] -> [B, H, L, Dh]"
SPLIT = ["    return projected.unflatten(-1, (number, projected.shape[-1] // number)).transpose(-3, -2)"]
TEXTBOOK_SPLIT = [
    "    batch, length, width = projected.shape",
    "    return projected.view(batch, length, number, width // number).transpose(1, 2)",
]
MODULES = Path(__file__).with_name("pytorch_modules.py")
MODULE_IMPORTS = ("import math", "from dataclasses import dataclass", "", "import torch.nn.functional as F")
MODULE_PARTS = (
    *("Widths", "split_heads", "join_heads", "Projections", "HandwrittenAttention", "PackedAttention"),
    *("masked_softmax", "_merge", "_append", "_key_padding", "_mask"),
)


def mha_script(
    problem: Problem, samples: Sequence[Problem], *, weights: bool, batch_first: bool = True, inference: bool = False
) -> Script:
    """``nn.MultiheadAttention``; ``inference`` in evaluation and inference mode, and proving that its fast path ran."""
    case, names = problem.case, names_of(problem)
    masks, varying = masks_by_call(problem, samples, mha_masks)
    defaults: dict[str, Any] = {"bias": True, "kdim": case.embed_dim, "vdim": case.embed_dim, "add_bias_kv": False}
    given: dict[str, Any] = {"bias": case.bias, "kdim": case.kdim, "vdim": case.vdim, "add_bias_kv": case.bias_kv}
    given |= {"add_zero_attn": case.zero_attention, "batch_first": batch_first, "dropout": case.dropout}
    sizes = [str(case.embed_dim), str(case.num_heads)]
    defaults |= {"add_zero_attn": False, "batch_first": False, "dropout": 0.0}
    chosen = options(given, defaults) + dtype_option(case)
    roles = [names[role] if batch_first else f"{names[role]}_first" for role in ROLES]
    wanted = ["need_weights=True", "average_attn_weights=False"] if weights else ["need_weights=False"]
    left = "attn_output, attn_weights" if weights else "attn_output, _"
    swapped = [
        f"{name}_first = {name}" + (".transpose(0, 1)" if getattr(problem, name).ndim == 3 else "")
        for name in dict.fromkeys(names.values())
        if not batch_first
    ]
    call = bracketed(f"{left} = module(", [*roles, *_passed(masks, varying), *wanted], ")")
    fast = 'mock.patch("torch._native_multi_head_attention", wraps=torch._native_multi_head_attention) as fast_path'
    return Plan(
        problem,
        [
            *bracketed("module = torch.nn.MultiheadAttention(", sizes + chosen, ")"),
            *["module.eval()"] * (case.mode == "evaluate"),
        ],
        _mha_state(problem),
        masks,
        [*swapped, *call],
        weights=weights,
        gradients=not inference,
        imports=["from unittest import mock"] * inference,
        contexts=["torch.inference_mode()", fast] if inference else [],
        after=["fast_path.assert_called()"] * inference
        + ["attn_output = attn_output.transpose(0, 1)"] * (not batch_first),
    ).script()


def sdpa_script(problem: Problem, samples: Sequence[Problem], backend: str) -> Script:
    """``scaled_dot_product_attention`` with one backend between ``nn.Linear`` projections."""
    case = problem.case
    masks, varying = masks_by_call(problem, samples, sdpa_masks)
    arguments = [*_heads(problem), *_passed(masks, varying)]
    arguments += options({"scale": case.scale, "enable_gqa": case.num_heads != case.num_kv_heads},
                         {"scale": None, "enable_gqa": False})  # fmt: skip
    call = [
        *block(
            f"with sdpa_kernel([SDPBackend.{backend}])",
            bracketed("context = F.scaled_dot_product_attention(", arguments, ")"),
        ),
        "attn_output = module.output(context.transpose(1, 2).flatten(2))",
    ]
    imports = ["import torch.nn.functional as F", "from torch.nn.attention import SDPBackend, sdpa_kernel"]
    build, state = _linears(problem, SPLIT)
    return Plan(
        problem, build, state, masks, call, attends=True, imports=imports
    ).script()  # fmt: skip


def textbook_script(problem: Problem, samples: Sequence[Problem]) -> Script:
    """The textbook recipe with −1e9 where the mask blocks."""
    masks, varying = masks_by_call(problem, samples, module_masks)
    text = {name: f"{name}[sample]" if name in varying else name for name in masks}
    call = [f"{role} = {split}" for role, split in zip(("queries", "keys", "values"), _heads(problem), strict=True)]
    call.append("scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])")
    if "key_padding" in masks:
        call.append(f"scores = scores.masked_fill({text['key_padding']}[:, None, None, :], -1e9)")
    if "blocked" in masks:
        axes = masks["blocked"].ndim - ("blocked" in varying)
        call.append(f"scores = scores.masked_fill({text['blocked']}{'[:, None]' if axes == 3 else ''}, -1e9)")
    call.append("attn_weights = scores.softmax(dim=-1)")
    if problem.case.dropout:
        dropout = f"{problem.case.dropout!r}, training={problem.case.mode == 'train'}"
        call.append(f"attn_weights = torch.nn.functional.dropout(attn_weights, {dropout})")
    call.append("attn_output = module.output((attn_weights @ values).transpose(1, 2).flatten(2))")
    build, state = _linears(problem, TEXTBOOK_SPLIT)
    return Plan(
        problem, build, state, masks, call, weights=True, imports=["import math"]
    ).script()  # fmt: skip


def module_script(problem: Problem, samples: Sequence[Problem], name: str, widths: Mapping[str, Any]) -> Script:
    """A module of this project, with its source: what diverges would be that source itself."""
    masks, varying = masks_by_call(problem, samples, module_masks)
    packed = name == "PackedAttention"
    source = _source([part for part in MODULE_PARTS if packed or part != "PackedAttention"])
    settings = [f"{option}={value!r}" for option, value in widths.items()]
    names = names_of(problem)
    present = problem.parameters.present
    roles = [[role] for role in (*ROLES, "output")] if not packed else [[*ROLES], ["output"]]
    state = {
        f"{'packed' if len(group) > 1 else group[0]}_projection.{kind}": [f"{role}_{kind}" for role in group]
        for group in roles
        for kind in ("weight", "bias")
        if kind == "weight" or problem.case.bias
    } | {extra: [extra] for extra in ("bias_k", "bias_v") if extra in present}
    call = bracketed(
        "attn_output, attn_weights = module(", [*(names[role] for role in ROLES), *_passed(masks, varying)], ")"
    )
    build = ["", "", *source, "", "", *bracketed(f"module = {name}(Widths(", settings, "))")]
    build += ["module.eval()"] * (problem.case.mode == "evaluate")
    imports = [*MODULE_IMPORTS, "from torch import Tensor, nn"]
    return Plan(
        problem, build, state, masks, call, weights=True, imports=imports
    ).script()  # fmt: skip


def _mha_state(problem: Problem) -> dict[str, list[str]]:
    """Tensors of ``nn.MultiheadAttention`` and the parameters they are made of: packed when all widths are equal."""
    case, present = problem.case, problem.parameters.present
    state: dict[str, list[str]] = {}
    if case.kdim == case.vdim == case.embed_dim:
        state["in_proj_weight"] = [f"{role}_weight" for role in ROLES]
    else:
        state |= {f"{role[0]}_proj_weight": [f"{role}_weight"] for role in ROLES}
    if case.bias:
        state |= {"in_proj_bias": [f"{role}_bias" for role in ROLES], "out_proj.bias": ["output_bias"]}
    extra: dict[str, list[str]] = {name: [name] for name in ("bias_k", "bias_v") if name in present}
    return state | {"out_proj.weight": ["output_weight"]} | extra


def _linears(problem: Problem, split: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Lines that define how heads are split and make a module with one ``nn.Linear`` for each projection, and its
    tensors."""
    case, present = problem.case, problem.parameters.present
    lines = ["", "", HEADS, *split, "", "", "module = torch.nn.Module()"]
    state: dict[str, list[str]] = {}
    for role in (*ROLES, "output"):
        sizes = [str(size) for size in present[f"{role}_weight"].shape]
        arguments = [*sizes, *options({"bias": case.bias}, {"bias": True}), *dtype_option(case)]
        lines.append(f"module.{role} = torch.nn.Linear({', '.join(arguments)})")
        state |= {f"{role}.{kind}": [f"{role}_{kind}"] for kind in ("weight", "bias") if f"{role}_{kind}" in present}
    return lines, state


def _heads(problem: Problem) -> list[str]:
    """Projected query, key and value, split into heads."""
    case, names = problem.case, names_of(problem)
    numbers = (case.num_heads, case.num_kv_heads, case.num_kv_heads)
    return [f"heads(module.{role}({names[role]}), {number})" for role, number in zip(ROLES, numbers, strict=True)]


def _passed(masks: Mapping[str, Any], varying: frozenset[str]) -> list[str]:
    """Masks and flags as keyword arguments; what is None or False is left out."""
    found = []
    for name, mask in masks.items():
        if isinstance(mask, np.ndarray):
            found.append(f"{name}={name}[sample]" if name in varying else f"{name}={name}")
        elif mask:
            found.append(f"{name}={mask!r}")
    return found


def _source(names: Sequence[str]) -> list[str]:
    """The source of classes and functions of this project's modules, without what only its adapter calls."""
    text = MODULES.read_text(encoding="utf-8")
    lines, kept = text.splitlines(), []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name not in names:
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        left_out = {
            number
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef) and child.name == "slots"
            for number in range(child.lineno - 1, (child.end_lineno or child.lineno) + 1)
        }
        kept += ["", "", *(lines[n - 1] for n in range(first, (node.end_lineno or first) + 1) if n not in left_out)]
    return kept[2:]
