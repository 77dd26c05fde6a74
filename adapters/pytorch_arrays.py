"""NumPy and PyTorch, both ways: arrays, parameters, gradients, and the proof of which operator ran.

Imported by a subject's constructor only. Shape legend in :mod:`conformance.spec`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor with the numbers, dtype, shape and strides of ``array``, in memory of its own.

    Negative strides, which PyTorch cannot represent, become contiguous. ``array`` may be read-only.
    """
    element = array.dtype.itemsize
    flat = torch.from_numpy(_viewed(np.array(array, order="C")))
    if array.dtype == ml_dtypes.bfloat16:
        flat = flat.view(torch.bfloat16)
    if array.size == 0 or array.flags.c_contiguous or any(stride < 0 for stride in array.strides):
        return flat
    strides = [stride // element for stride in array.strides]
    once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)
    stored = torch.empty_strided(flat[once].shape, strides, dtype=flat.dtype)
    return stored.copy_(flat[once]).expand(flat.shape)


def array_of(tensor: torch.Tensor) -> Array:
    """A NumPy copy in the tensor's own dtype; bfloat16 becomes ``ml_dtypes.bfloat16``.

    A tensor on the meta device has no numbers: each comes as NaN.
    """
    tensor = tensor.detach().contiguous()
    if tensor.is_meta:
        tensor = torch.full_like(tensor, torch.nan, device="cpu")
    if tensor.dtype == torch.bfloat16:
        return np.array(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.array(tensor.numpy())


def autocast(case: Case) -> contextlib.AbstractContextManager[Any]:
    """The mixed-precision policy of the case: autocast on the CPU, or nothing."""
    return torch.autocast("cpu", dtype=getattr(torch, case.compute)) if case.mixed else contextlib.nullcontext()


@contextlib.contextmanager
def seeded(problem: Problem) -> Iterator[None]:
    """PyTorch's random numbers from the seed of the problem inside, and as they were outside."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(problem.seed)
        yield


def _viewed(array: Array) -> Array:
    return array.view(np.int16) if array.dtype == ml_dtypes.bfloat16 else array


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # TorchDispatchMode is not annotated
    """Notes the name of every operator that reaches a backend, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(func.name())
        return func(*args, **(kwargs or {}))


class OtherPathRan(NotImplementedError):
    """The implementation that a subject is named after did not run: no answer and no refusal of that subject."""


@contextlib.contextmanager
def must_run(operator: str | None) -> Iterator[None]:
    """Raise :class:`OtherPathRan` unless the block ran ``operator`` (None: nothing to prove).

    What the block itself raises goes first.
    """
    with _Recorder() as recorder:
        yield
    if operator is not None and operator not in recorder.operators:
        raise OtherPathRan(f"expected {operator} to run; what ran: {', '.join(recorder.operators) or 'no operator'}")


def input_tensors(problem: Problem, *, with_gradients: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Query, key and value; arrays that are one object become tensors that are one object."""
    made: dict[int, torch.Tensor] = {}
    for array in (problem.query, problem.key, problem.value):
        if id(array) not in made:
            made[id(array)] = tensor_of(array).requires_grad_(with_gradients)
    return made[id(problem.query)], made[id(problem.key)], made[id(problem.value)]


@dataclass(frozen=True)
class Slot:
    """Where a neutral parameter lives: the framework's tensor by name, and its rows from ``start`` to ``stop``.

    PyTorch stores a weight as [out, in], the neutral layout as [in, out]; three-axis rows hold a vector.
    """

    tensor: str
    start: int = 0
    stop: int | None = None

    def neutral(self, stored: torch.Tensor) -> torch.Tensor:
        """The part of the framework's tensor, or of its gradient, as a view in the neutral layout."""
        part = stored[self.start : self.stop] if stored.dim() < 3 else stored.view(-1)
        return part.T if part.dim() == 2 else part


Slots = Mapping[str, Slot]


def load_parameters(module: torch.nn.Module, slots: Slots, problem: Problem) -> None:
    """Write the parameters of the problem into the module, in place."""
    owned = dict(module.named_parameters())
    with torch.no_grad():
        for name, array in problem.parameters.present.items():
            slots[name].neutral(owned[slots[name].tensor]).copy_(tensor_of(array))


def answer(
    problem: Problem,
    module: torch.nn.Module,
    slots: Slots,
    call: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
    *,
    gives_gradients: bool = True,
) -> Outputs:
    """Load parameters, call ``call(query, key, value)`` in the case's mode and policy, and differentiate if asked to.

    An ill-formed call that is accepted is not differentiated: its output may have any shape.
    """
    case = problem.case
    differentiate = gives_gradients and case.wants_gradients and case.ill_formed is None
    load_parameters(module, slots, problem)
    module.train(case.mode == "train")
    query, key, value = input_tensors(problem, with_gradients=differentiate)
    with autocast(case), seeded(problem) if case.drops else contextlib.nullcontext():
        attn_output, attn_weights = call(query, key, value)
    inputs = {"query": query, "key": key, "value": value}
    leaves = {name: inputs[name] for name in case.input_gradients}
    return Outputs(
        attn_output=array_of(attn_output),
        attn_weights=None if attn_weights is None else array_of(attn_weights),
        gradients=_gradients(problem, module, slots, attn_output, leaves) if differentiate else {},
    )


def _gradients(
    problem: Problem,
    module: torch.nn.Module,
    slots: Slots,
    attn_output: torch.Tensor,
    inputs: Mapping[str, torch.Tensor],
) -> dict[str, Array]:
    """Gradients of sum(attn_output · cotangent); a tensor the output does not depend on has gradient zero."""
    leaves = {**inputs, **dict(module.named_parameters())}
    cotangent = tensor_of(problem.cotangent).to(attn_output.dtype)
    found = torch.autograd.grad(attn_output, list(leaves.values()), cotangent, materialize_grads=True)
    by_name = dict(zip(leaves, found, strict=True))
    gradients = {name: array_of(by_name[name]) for name in inputs}
    for name in problem.parameters.present:
        gradients[name] = array_of(slots[name].neutral(by_name[slots[name].tensor]))
    return gradients
