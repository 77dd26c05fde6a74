"""The seam between the engine and implementations: the Subject protocol and the registry of adapters.

An adapter is a module with one :class:`Adapter` named ``ADAPTER``, announced under the entry-point group
``attention_conformance.adapters``. Listing subjects imports no framework: a subject's constructor does that.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

from conformance.errors import AdapterError
from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case, Unsupported

ENTRY_POINT_GROUP = "attention_conformance.adapters"
CACHE_VARIABLE = "ATTENTION_CONFORMANCE_CACHE"


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
class Script:
    """A call in the framework's own words, for someone who has neither this project nor the case.

    ``code`` finds NumPy as ``np``, and ``data``: query, key, value (each array once where inputs are shared), the
    cotangent and the parameters by name, and ``arrays``; bfloat16 comes as float32. It leaves ``actual``: outputs by
    name (``attn_output``, ``attn_weights``, ``query.gradient``, …), as NumPy arrays or the framework's tensors.
    """

    code: str
    arrays: Mapping[str, Array] = field(default_factory=dict)


@runtime_checkable
class Scripted(Protocol):
    """What a subject offers that can write its call as a script."""

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The call of :meth:`Subject.attend`, as often as ``problem.case.calls`` asks. ``samples`` are the samples of
        the problem as problems of their own where each is a call, and empty otherwise.

        Raises NotImplementedError for a problem whose call cannot be written down.
        """
        ...


@dataclass(frozen=True)
class Adapter:
    """The subjects of one framework.

    ``modules`` are the import names that must be found for the subjects to run, ``install`` is the command that
    adds them, ``subjects`` maps each subject's name to a constructor without arguments. ``slow`` maps
    a subject to the tag of the cases that it answers by default, because each new shape or form of mask costs it a
    compilation: ``shared-shape`` for two small shapes, ``sample`` for a part of those.
    """

    framework: str
    modules: tuple[str, ...]
    install: str
    subjects: Mapping[str, Callable[[], Subject]]
    slow: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> tuple[str, ...]:
        """Import names that are not installed here."""
        return tuple(module for module in self.modules if not _found(module))


def _found(module: str) -> bool:
    """Whether a module can be imported, by its parents' word; looking it up imports no more than those."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent is missing, or there is a module without a spec
        return False


@cache
def adapters() -> tuple[Adapter, ...]:
    """Every announced adapter, ordered by framework name.

    Raises AdapterError when one cannot be loaded, is no :class:`Adapter`, or has a subject that another one has.
    """
    found = {(point.name, point.value): point for point in entry_points(group=ENTRY_POINT_GROUP)}
    loaded = sorted((_loaded(found[key]) for key in sorted(found)), key=lambda adapter: adapter.framework)
    homes: dict[str, Adapter] = {}
    for adapter in loaded:
        for subject in adapter.subjects:
            if subject in homes:
                raise AdapterError(f"two adapters announce the subject {subject!r}")
            homes[subject] = adapter
    return tuple(loaded)


def announced() -> Iterator[tuple[str, Adapter]]:
    """Every announced subject with its adapter, ordered by adapter, then as the adapter lists them."""
    for adapter in adapters():
        for name in adapter.subjects:
            yield name, adapter


def _loaded(point: EntryPoint) -> Adapter:
    try:
        adapter = point.load()
    except Exception as error:
        message = f"the adapter {point.name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
        raise AdapterError(message) from error
    if not isinstance(adapter, Adapter):
        raise AdapterError(f"the adapter {point.name!r} ({point.value}) is a {type(adapter).__name__}, not an Adapter")
    return adapter


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


def cache_folder(*names: str) -> Path | None:
    """A folder in which a framework may keep what it compiled for later processes; None where no cache is wanted.

    ``names`` say what it is good for, such as the compiler and its version; the machine is in the path already. The
    folder is made here. What is in it may be deleted, or cut short, at any time.
    """
    root = os.environ.get(CACHE_VARIABLE)
    if not root:
        return None
    folder = Path(root, "-".join(names))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
