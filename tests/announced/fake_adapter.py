"""Subjects that behave in one way each, as a distribution of its own would announce them.

Tests copy this file beside a ``.dist-info`` folder, so that the subjects are found by entry point.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from adapters.numpy_reference import DECLARED, NumpyReference
from conformance.adapter import Adapter, Script
from conformance.problem import Outputs, Problem
from conformance.spec import Case, Unsupported
from conformance.tensors import problem_of


class Right:
    name = "fake/right"
    gives_weights = True
    gives_gradients = True

    def versions(self) -> Mapping[str, str]:
        return {"fakelib": "1.5"}

    def unsupported(self, case: Case) -> Unsupported | None:
        return None

    def attend(self, problem: Problem) -> Outputs:
        return NumpyReference().attend(problem)


class OffByOne(Right):
    """One element of the output is wrong."""

    name = "fake/off"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        wrong = outputs.attn_output.copy()
        wrong[1, 2, 3] += 1
        return replace(outputs, attn_output=wrong)

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        return Script("actual = {'attn_output': data['query']}")


class OffInWeights(OffByOne):
    """Output and weights are wrong."""

    name = "fake/off-in-weights"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        assert outputs.attn_weights is not None
        return replace(outputs, attn_weights=outputs.attn_weights + 1)

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        raise LookupError("no script today")


class Ordered(Right):
    """Where a key stands leaks into the output."""

    name = "fake/order"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        place = np.arange(problem.key.shape[1], dtype=problem.key.dtype)
        leak = (place @ problem.key)[:, None, :1]
        return replace(outputs, attn_output=outputs.attn_output + leak)


class Worthless(Right):
    """Everything that it gives is wrong."""

    name = "fake/worthless"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        gradients = {name: array + 1 for name, array in outputs.gradients.items()}
        return replace(outputs, attn_output=outputs.attn_output + 1, gradients=gradients)


class Single(Right):
    """Its output has the accuracy of float32, whatever the dtype."""

    name = "fake/single"

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        dtype = outputs.attn_output.dtype
        return replace(outputs, attn_output=outputs.attn_output.astype("float32").astype(dtype))


class OffScale(Right):
    """Its scale is off by a hundredth of a thousandth, which leaves every element of the output inside its bound."""

    name = "fake/scale"
    policy = DECLARED

    def attend(self, problem: Problem) -> Outputs:
        case = replace(problem.case, scale=problem.case.effective_scale * (1 + 1e-5))
        return super().attend(replace(problem, case=case))


class Raising(Right):
    name = "fake/raising"

    def attend(self, problem: Problem) -> Outputs:
        raise RuntimeError("no kernel\nfor this problem")


class Unsendable(Right):
    """What it raises holds what has no encoding, and what a terminal obeys."""

    name = "fake/unsendable"

    def attend(self, problem: Problem) -> Outputs:
        raise RuntimeError("no file \udcff\x1b[31m")


class Lenient(Right):
    """Answers an ill-formed call as if it were well-formed."""

    name = "fake/lenient"

    def attend(self, problem: Problem) -> Outputs:
        return super().attend(problem_of(replace(problem.case, ill_formed=None)))


class Careless(Right):
    """Stumbles over an ill-formed call by accident."""

    name = "fake/careless"

    def attend(self, problem: Problem) -> Outputs:
        raise AttributeError("no attribute 'ndim'")


class Limited(Right):
    name = "fake/limited"

    def unsupported(self, case: Case) -> Unsupported | None:
        return Unsupported("it has never been written", "https://example.org/limits")


class Unmade(Right):
    """Its framework cannot be imported, and says so with a warning first."""

    name = "fake/unmade"
    attempts = 0

    def __init__(self) -> None:
        type(self).attempts += 1
        raise ImportError(f"the shared library is broken, attempt {self.attempts}")


class Warned(Right):
    name = "fake/warning"

    def __init__(self) -> None:
        warnings.warn("deprecated import", DeprecationWarning, stacklevel=1)

    def attend(self, problem: Problem) -> Outputs:
        warnings.warn("deprecated call", DeprecationWarning, stacklevel=1)
        return super().attend(problem)


class Interrupted(Right):
    """Someone presses Ctrl-C while it answers the case ``stop``."""

    name = "fake/interrupted"

    def attend(self, problem: Problem) -> Outputs:
        if problem.case.name == "stop":
            raise KeyboardInterrupt
        return super().attend(problem)


class Dying(Right):
    """Its process ends while it answers the case ``stop``."""

    name = "fake/dying"

    def attend(self, problem: Problem) -> Outputs:
        if problem.case.name == "stop":
            os._exit(3)
        return super().attend(problem)


class Slow(Right):
    name = "fake/slow"


ADAPTER = Adapter(
    framework="fake",
    modules=("numpy",),
    install="pip install fakelib",
    subjects={
        subject.name: subject
        for subject in (
            Right,
            OffByOne,
            OffInWeights,
            Ordered,
            Worthless,
            Single,
            OffScale,
            Raising,
            Unsendable,
            Lenient,
            Careless,
            Limited,
            Unmade,
            Warned,
            Interrupted,
            Dying,
            Slow,
        )
    },
    slow={Slow.name: "shared-shape"},
)
ABSENT = Adapter(
    framework="absent",
    modules=("a_framework_nobody_has",),
    install="pip install a-framework-nobody-has",
    subjects={"absent/mha": Right},
)
