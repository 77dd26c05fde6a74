"""Text that the reproducer scripts of all frameworks are made of. Imports no framework.

A script's code finds NumPy as ``np`` and the arrays of the problem in ``data``, and leaves a dictionary ``actual`` of
outputs by name (``attn_output``, ``attn_weights``, ``query.gradient``, …), as NumPy arrays or the framework's tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.problem import Problem
from conformance.spec import Array, Case

LINE = 110
SAMPLE = "[sample : sample + 1]"
LAYOUTS = {
    "contiguous": "{0}",
    "transposed": "{0}.swapaxes(0, 1).copy().swapaxes(0, 1)",
    "negative-stride": "{0}[:, ::-1].copy()[:, ::-1]",
    "broadcast": "np.broadcast_to({0}[:1], {0}.shape)",
}


def indented(lines: Sequence[str]) -> list[str]:
    """The lines one level deeper."""
    return ["    " + line if line else line for line in lines]


def block(header: str, lines: Sequence[str]) -> list[str]:
    """A compound statement; an empty header leaves the lines as they are."""
    return [f"{header}:", *indented(lines)] if header else list(lines)


def bracketed(opening: str, items: Sequence[str], closing: str) -> list[str]:
    """``opening`` and ``closing`` around items: on one line where they fit, else one line each."""
    line = f"{opening}{', '.join(items)}{closing}"
    return [line] if len(line) <= LINE else [opening, *indented([f"{item}," for item in items]), closing]


def options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as text, those that equal their default left out."""
    return [f"{name}={value!r}" for name, value in given.items() if value != defaults.get(name, ...)]


def numpy_input(case: Case, name: str) -> str:
    """An input as a NumPy expression, in the memory layout of the case, and one sample of it where the calls are so."""
    laid_out = LAYOUTS[case.layout].format(f'data["{name}"]')
    return laid_out + SAMPLE if by_sample(case) else laid_out


def by_sample(case: Case) -> bool:
    """Whether each sample is a call of its own."""
    return case.calls == "one-sample-at-a-time" and case.batch > 0


def called(case: Case, body: Sequence[str], concatenate: str) -> list[str]:
    """The body that leaves ``actual``, run as often as the case asks; ``concatenate`` joins a list of arrays."""
    if by_sample(case):
        loop = block(f"for sample in range({case.batch})", [*body, "parts.append(actual)"])
        together = f"actual = {{name: {concatenate}([part[name] for part in parts]) for name in parts[0]}}"
        return ["parts = []", *loop, together]
    if case.calls == "repeated":
        return ["for _ in range(2):  # the second answer counts", *indented(body)]
    return list(body)


def masks_by_call(
    problem: Problem, samples: Sequence[Problem], masks_of: Callable[[Problem], Mapping[str, Any]]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Mask arguments, arrays and flags, by name, and the names of those with an axis for the sample in front.

    ``masks_of`` gives them for one call; without ``samples`` there is one call, of the whole problem.
    """
    if not samples:
        return dict(masks_of(problem)), frozenset()
    calls = [masks_of(sample) for sample in samples]
    varying = frozenset(
        name
        for name, first in calls[0].items()
        if isinstance(first, np.ndarray) and any(not np.array_equal(first, call[name]) for call in calls[1:])
    )
    found = {name: np.stack([call[name] for call in calls]) if name in varying else calls[0][name] for name in calls[0]}
    return found, varying


def arrays_of(masks: Mapping[str, Any]) -> dict[str, Array]:
    """The arrays among mask arguments."""
    return {name: mask for name, mask in masks.items() if isinstance(mask, np.ndarray)}


def judged_parameters(problem: Problem) -> tuple[str, ...]:
    """Parameters whose gradient is judged: all of them, save that samples called alone have none."""
    return () if by_sample(problem.case) else tuple(problem.parameters.present)


def polarity(mask: Array, attends: bool) -> str:
    """A comment saying what the numbers of a mask mean."""
    if mask.dtype != np.bool_:
        return "added to the scores" if mask.dtype.kind not in "iu" else "integers"
    return "True = may attend" if attends else "True = may not attend"
