"""Subjects with one mutant in place: an adapter's modules made anew, the mutated one among them.

The modules of the process stay as they are. The new ones are kept nowhere but in the subject, and what one of them
imports from another is the new one.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from conformance.adapter import Adapter, Subject
from tests.mutator import Mutant, mutants


@dataclass(frozen=True)
class Family:
    """The modules that make a subject, each after those it imports, and those of them to mutate."""

    subject: str
    modules: tuple[str, ...]
    mutated: tuple[str, ...]
    packed: bool | None = None  # functions of ``PackedAttention`` alone, or all but those

    def make(self, codes: Mapping[str, CodeType]) -> Callable[[], Subject]:
        """The subject's constructor, with the given code for some of its modules."""
        made: dict[str, ModuleType] = {}

        def imported(name: str, *arguments: Any, **options: Any) -> Any:
            return made[name] if name in made else builtins.__import__(name, *arguments, **options)

        for name in self.modules:
            importlib.import_module(name)  # dataclasses look their module up by its name
            module = ModuleType(name)
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": imported}
            exec(codes.get(name) or _shipped(name), vars(module))
            made[name] = module
        adapter: Adapter = vars(made[self.modules[-1]])["ADAPTER"]
        return partial(_seeded, adapter.subjects[self.subject])


FAMILIES = (
    Family(
        "numpy/per-head",
        ("adapters.numpy_core", "adapters.numpy_per_head", "adapters.numpy_reference"),
        ("adapters.numpy_core", "adapters.numpy_per_head"),
    ),
    Family(
        "torch/handwritten",
        ("adapters.pytorch_modules", "adapters.pytorch"),
        ("adapters.pytorch_modules",),
        packed=False,
    ),
    Family(
        "torch/packed",
        ("adapters.pytorch_modules", "adapters.pytorch"),
        ("adapters.pytorch_modules",),
        packed=True,
    ),
)


def _seeded(constructor: Callable[[], Subject]) -> Subject:
    """A subject whose parameters that a fault leaves unset, which PyTorch draws, are always the same."""
    subject = constructor()
    if "torch" in subject.versions():
        import torch

        torch.manual_seed(0)
    return subject


@cache
def _source(name: str) -> str:
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    return Path(found.origin).read_text("utf-8")


@cache
def _shipped(name: str) -> CodeType:
    return compile(_source(name), name, "exec")


@dataclass(frozen=True)
class Fault:
    """A mutant and the subject that carries it."""

    mutant: Mutant
    family: Family

    def maker(self) -> Callable[[], Subject]:
        """Makes the subject with the fault."""
        return self.family.make({self.mutant.module: self.mutant.code()})


@cache
def control(family: Family) -> Callable[[], Subject]:
    """Makes the subject without a fault, in the same way."""
    return family.make({})


@cache
def mutated() -> tuple[Fault, ...]:
    """Every mutant of every family."""
    return tuple(
        Fault(mutant, family)
        for family in FAMILIES
        for name in family.mutated
        for mutant in mutants(name, _source(name))
        if family.packed in (None, mutant.scope.startswith("PackedAttention"))
    )
