"""What the tolerances that others use by default say of an answer, beside the suite's own verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from conformance.expectation import expected
from conformance.measure import ASSERT_CLOSE
from conformance.policy import ENVELOPE
from conformance.problem import Outputs
from conformance.relations.check import expectations
from conformance.spec import NUMPY_DTYPES, Array, Case

Answers = list[Outputs] | None  # of every call that a case makes; None where one raised


class Opinion(Enum):
    """What a judge says of a faulty answer, from the least useful to the most."""

    PASSES = "no"
    CRIES_WOLF = "wolf"  # rejects it, and rejects the right answer of the same case as well
    SEES = "yes"  # rejects it, and passes the right answer


@dataclass(frozen=True)
class Judge:
    """Tolerances by dtype, (rtol, atol), and whether a wrong dtype is rejected."""

    tolerances: Mapping[str, tuple[float, float]]
    strict: bool = True

    def passes(self, actual: Array | None, wanted: Array) -> bool:
        """Whether an answer passes: both as arrays of one dtype, the wanted numbers rounded to it."""
        if actual is None or actual.shape != wanted.shape or (self.strict and actual.dtype != wanted.dtype):
            return False
        relative, absolute = self.tolerances[wanted.dtype.name]
        with np.errstate(invalid="ignore", over="ignore"):
            given, right = actual.astype(np.float64), wanted.astype(np.float64)
            near = np.abs(given - right) <= absolute + relative * np.abs(right)
        return bool((near | (given == right)).all())


def _both(tolerances: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    return {name: (tolerance, tolerance) for name, tolerance in tolerances.items()}


JUDGES = {
    "assert_close": Judge(ASSERT_CLOSE),  # torch.testing.assert_close
    "jax": Judge(_both({"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2})),  # public_test_util
    "allclose(1e-2)": Judge(_both(dict.fromkeys(NUMPY_DTYPES, 1e-2)), strict=False),  # rtol = atol
}


def opinions(case: Case, judged: tuple[dict[str, Array | None], ...], right: Answers) -> tuple[Opinion, ...]:
    """What each judge says of the outputs of each call by name, given the right answers to the same calls.

    They are given the suite's reference: of a relation that of its first call, and of dropout that without it, since
    they know no other; so they reject the right answer as well. An ill-formed call that was accepted leaves nothing
    to compare.
    """
    if not judged:
        return (Opinion.PASSES,) * len(JUDGES)
    calls = 1 if case.relation is not None else len(judged)
    faulty, control = judged[:calls], [named(outputs) for outputs in (right or [])[:calls]]
    wanted = _wanted(case)
    found = []
    for judge in JUDGES.values():
        if all(judge.passes(array, wanted[name]) for outputs in faulty for name, array in outputs.items()):
            found.append(Opinion.PASSES)
        elif control and all(judge.passes(one.get(name), wanted[name]) for one in control for name in judged[0]):
            found.append(Opinion.SEES)
        else:
            found.append(Opinion.CRIES_WOLF)
    return tuple(found)


def _wanted(case: Case) -> dict[str, Array]:
    """The reference in the dtype in which each output comes back."""
    expectation = expected(case, ENVELOPE)[1] if case.relation is None else expectations(case, ENVELOPE)[0]
    with np.errstate(over="ignore"):
        return {
            name: values.astype(NUMPY_DTYPES[case.storage if name.endswith(".gradient") else case.compute])
            for name, values in expectation.values.items()
        }


def named(outputs: Outputs) -> dict[str, Array | None]:
    """Outputs by the names under which they are judged."""
    gradients = {f"{name}.gradient": array for name, array in outputs.gradients.items()}
    return {"attn_output": outputs.attn_output, "attn_weights": outputs.attn_weights, **gradients}
