"""The seam between the engine and implementations: the Subject protocol and the registry of adapters.

An adapter is a module with one :class:`Adapter` named ``ADAPTER``, announced under the entry-point group
``attention_conformance.adapters``. Listing subjects imports no framework: a subject's constructor does that.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from conformance.spec import Case, Outputs, Problem, Unsupported

ENTRY_POINT_GROUP = "attention_conformance.adapters"


@runtime_checkable
class Subject(Protocol):
    """One implementation in one mode.

    ``gives_weights`` and ``gives_gradients`` say whether it returns attention weights and gradients; what it says it
    gives and then leaves out is a divergence, what it does not give is not judged.
    """

    name: str
    gives_weights: bool
    gives_gradients: bool

    def versions(self) -> Mapping[str, str]:
        """Versions of the packages this subject runs on, by distribution name."""
        ...

    def unsupported(self, case: Case) -> Unsupported | None:
        """The documented reason why this subject cannot answer the case, or None."""
        ...

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises what the framework raises."""
        ...


@dataclass(frozen=True)
class Adapter:
    """The subjects of one framework.

    ``modules`` are the import names that must be found for the subjects to run, ``install`` is the command that
    adds them, ``subjects`` maps each subject's name to a constructor without arguments. A subject listed in ``slow``
    answers, by default, only cases tagged ``shared-shape`` because each new shape costs it a compilation.
    """

    framework: str
    modules: tuple[str, ...]
    install: str
    subjects: Mapping[str, Callable[[], Subject]]
    slow: frozenset[str] = frozenset()

    @property
    def missing(self) -> tuple[str, ...]:
        """Import names that are not installed here."""
        return tuple(module for module in self.modules if importlib.util.find_spec(module) is None)


@cache
def adapters() -> tuple[Adapter, ...]:
    """Every announced adapter, ordered by framework name."""
    found = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    loaded = [found[name].load() for name in sorted(found)]
    return tuple(sorted(loaded, key=lambda adapter: adapter.framework))


@cache
def adapter_of(subject: str) -> Adapter:
    """The adapter that announces a subject; KeyError when there is none."""
    for adapter in adapters():
        if subject in adapter.subjects:
            return adapter
    raise KeyError(subject)


@cache
def load(subject: str) -> Subject:
    """Construct a subject, importing its framework; the same object for the same name within a process."""
    return adapter_of(subject).subjects[subject]()
