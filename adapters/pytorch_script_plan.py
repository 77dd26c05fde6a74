"""What the reproducers in PyTorch have in common: tensors, parameters, gradients and the calls. Pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.scripting import SAMPLE, arrays_of, block, bracketed, by_sample, called, judged_parameters, polarity
from conformance.adapter import Script
from conformance.problem import Problem
from conformance.spec import Array, Case

ROLES = ("query", "key", "value")
LAYOUTS = {
    "contiguous": "",
    "transposed": ".transpose(0, 1).contiguous().transpose(0, 1)",
    "negative-stride": "",  # PyTorch has no negative strides
    "broadcast": "[:1].expand({batch}, -1, -1)",
}


@dataclass(frozen=True)
class Plan:
    """What differs between subjects. ``state`` names the module's tensors, each made of neutral parameters side by
    side; ``call`` leaves ``attn_output`` and, where ``weights`` says so, ``attn_weights``."""

    problem: Problem
    build: Sequence[str]
    state: Mapping[str, Sequence[str]]
    masks: Mapping[str, Any]
    call: Sequence[str]
    weights: bool = False
    gradients: bool = True
    attends: bool = False  # what True means in a Boolean mask
    imports: Sequence[str] = ()
    contexts: Sequence[str] = ()
    after: Sequence[str] = ()

    @property
    def differentiated(self) -> bool:
        case = self.problem.case
        return self.gradients and case.wants_gradients and case.ill_formed is None

    def script(self) -> Script:
        """The script's code and the masks it finds in ``data``."""
        case = self.problem.case
        parameters = [name for names in self.state.values() for name in names]
        state = [f'"{tensor}": {self._stored(tensor)}' for tensor in self.state if self.state[tensor]]
        load = bracketed("module.load_state_dict({", state, "})") if parameters else []
        head = ["import torch", *self.imports, "", "torch.set_num_threads(1)", *self.build, *load, *self._masks()]
        lines = [*head, "", *called(case, self._body(), "torch.cat")]
        return Script("\n".join(lines), arrays_of(self.masks))

    def _masks(self) -> list[str]:
        """One line for each mask tensor."""
        device = '.to("meta")' if self.problem.case.ill_formed == "mask-device" else ""
        return [
            f'{name} = torch.from_numpy(data["{name}"]){cast(self.problem.case, mask)}{device}'
            f"  # {polarity(mask, self.attends)}"
            for name, mask in arrays_of(self.masks).items()
        ]

    def _stored(self, tensor: str) -> str:
        names = self.state[tensor]
        transposed = ".T" if names[0].endswith("_weight") else ""
        if len(names) > 1:
            axis = ", axis=1" if transposed else ""
            joined = ", ".join(f'data["{name}"]' for name in names)
            return f"torch.from_numpy(np.concatenate([{joined}]{axis}){transposed})"
        reshaped = ".reshape(1, 1, -1)" if tensor in self._three_axes else transposed
        return f'torch.from_numpy(data["{names[0]}"]{reshaped})'

    @property
    def _three_axes(self) -> tuple[str, ...]:
        """nn.MultiheadAttention keeps its extra rows as [1, 1, D]."""
        return ("bias_k", "bias_v") if "out_proj.weight" in self.state else ()

    def _body(self) -> list[str]:
        case, problem = self.problem.case, self.problem
        lines = ["module.zero_grad()"] if self.differentiated and case.calls == "repeated" else []
        watched = ".requires_grad_()" if self.differentiated else ""
        lines += [f"{name} = {input_of(case, name)}{watched}" for name in dict.fromkeys(names_of(problem).values())]
        contexts = list(self.contexts)
        if case.mixed:
            contexts.insert(0, f'torch.autocast("cpu", dtype=torch.{case.compute})')
        lines += block(f"with {', '.join(contexts)}" if contexts else "", self.call)
        lines += self.after
        outputs = {"attn_output": "attn_output"} | ({"attn_weights": "attn_weights"} if self.weights else {})
        if self.differentiated:
            cast = ".to(attn_output.dtype)" if case.compute == "bfloat16" or case.mixed else ""
            sample = SAMPLE if by_sample(case) else ""
            lines.append(f'attn_output.backward(torch.from_numpy(data["cotangent"]){sample}{cast})')
            outputs |= self._gradients()
        return lines + bracketed("actual = {", [f'"{name}": {text}' for name, text in outputs.items()], "}")

    def _gradients(self) -> dict[str, str]:
        found = {f"{name}.gradient": f"{name}.grad" for name in self.problem.case.input_gradients}
        parameters, judged = self.problem.parameters.present, judged_parameters(self.problem)
        for tensor, names in self.state.items():
            start = 0
            for name in names:
                width = parameters[name].shape[-1]
                rows = f"[{start}:{start + width}]" if len(names) > 1 else ""
                turned = ".T" if name.endswith("_weight") else ".flatten()" if tensor in self._three_axes else ""
                if name in judged:
                    found[f"{name}.gradient"] = f"module.{tensor}.grad{rows}{turned}"
                start += width
        return found


def names_of(problem: Problem) -> dict[str, str]:
    """For each role the name of the first role that has the same array: one array is one tensor."""
    return {role: next(other for other in ROLES if getattr(problem, other) is getattr(problem, role)) for role in ROLES}


def input_of(case: Case, name: str) -> str:
    """An input as a tensor, in the memory layout of the case."""
    layout = LAYOUTS[case.layout].format(batch=case.batch)
    narrowed = ".to(torch.bfloat16)" if case.storage == "bfloat16" else ""
    return f'torch.from_numpy(data["{name}"]){narrowed}{layout}{SAMPLE if by_sample(case) else ""}'


def cast(case: Case, mask: Array) -> str:
    """What brings a floating-point mask, which comes as float32, back to bfloat16."""
    return ".to(torch.bfloat16)" if case.storage == "bfloat16" and mask.dtype.kind not in "biu" else ""


def dtype_option(case: Case) -> list[str]:
    """The dtype of a module, float32 left out."""
    return [] if case.storage == "float32" else [f"dtype=torch.{case.storage}"]
