"""Refusals are the frameworks' own: what is raised at an ill-formed call comes from the framework, or from this
project's own implementation, and never from the code that hands arrays over."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from conformance.adapter import Adapter, announced, load
from conformance.refusal import ACCIDENTS
from conformance.suite import pairs_of
from conformance.tensors import problem_of

ROOT = Path(__file__).parent.parent
FILE = ROOT / "cases" / "ill_formed.yaml"
# Implementations of this project, and projections around operators in C++, which leave no frame of their own.
OWN = {
    "numpy": ("numpy_checks.py",),
    "torch": ("pytorch_modules.py", "pytorch_recipes.py"),
}
BROUGHT_ALONG = {"jax": ("opt_einsum",)}
ALONE_IN_RUNNING = ("keras/mha@graph", "keras/mha@xla")  # they wrap what keras/mha calls, and compile each case
SUBJECTS = [
    pytest.param(name, adapter, id=name, marks=pytest.mark.skipif(bool(adapter.missing), reason=adapter.install))
    for name, adapter in announced()
    if adapter.framework in ("numpy", "torch", "keras", "jax") and name not in ALONE_IN_RUNNING
]


@cache
def homes(framework: str, modules: tuple[str, ...]) -> tuple[Path, ...]:
    """Where a refusal may come from: the packages of the framework, and files of this project."""
    names = () if framework == "numpy" else (*modules, *BROUGHT_ALONG.get(framework, ()))
    specs = [importlib.util.find_spec(name) for name in names]
    packages = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]
    return (*packages, *(ROOT / "adapters" / name for name in OWN.get(framework, ())))


def origin(error: BaseException) -> Path:
    """The file of the innermost frame."""
    return Path(traceback.extract_tb(error.__traceback__)[-1].filename)


def raised_by(call: Callable[[], Any]) -> BaseException | None:
    """What the call raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:  # noqa: BLE001  # whatever is raised is traced to its origin
            return error
    return None


@pytest.mark.parametrize(("name", "adapter"), SUBJECTS)
def test_every_refusal_comes_from_the_implementation(name: str, adapter: Adapter) -> None:
    subject, elsewhere, asked = load(name), {}, 0
    for pair in pairs_of([FILE], ROOT):
        if pair.subject != name or subject.unsupported(pair.case) is not None:
            continue
        asked += 1
        problem = problem_of(pair.case)
        error = raised_by(partial(subject.attend, problem))
        if error is None:
            continue
        assert not isinstance(error, ACCIDENTS), (pair.case.name, error)
        if not any(origin(error).is_relative_to(home) for home in homes(adapter.framework, adapter.modules)):
            elsewhere[pair.case.name] = f"{origin(error)}: {error}"
    assert asked >= 10
    assert not elsewhere


def test_code_that_hands_arrays_over_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above bites: an adapter that reshapes a mask as if it were well-formed raises on its own."""
    pytest.importorskip("torch")
    masks: ModuleType = importlib.import_module("adapters.pytorch_masks")
    monkeypatch.setattr(masks, "_mha_axes", lambda mask: np.broadcast_to(mask.explicit, mask.shape))
    case = next(pair.case for pair in pairs_of([FILE], ROOT) if pair.case.ill_formed == "mask-heads")
    error = raised_by(lambda: load("torch/mha").attend(problem_of(case)))
    assert error is not None
    assert not any(origin(error).is_relative_to(home) for home in homes("torch", ("torch",)))
