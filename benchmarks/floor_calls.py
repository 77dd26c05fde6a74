"""The numerical calls of the default comparison, one after another: no pytest, no reference, no verdict.

``python -m benchmarks.floor_calls FILE…`` imports each framework once and makes, framework by framework, every call
that the pairs of the case files make, each compiled once for each key. What a framework raises is caught.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from conformance.adapter import adapters, load
from conformance.calls import calls_of, limit_of
from conformance.environment import one_thread_each
from conformance.problem import Problem
from conformance.spec import Case
from conformance.suite import compile_order, pairs_of
from conformance.tensors import problem_of


def main(files: Sequence[str]) -> None:
    """Make the calls and print how many they were."""
    root = Path.cwd()
    pairs = sorted(
        pairs_of([root / file for file in files], root, full=False), key=lambda pair: compile_order(pair.case)
    )
    count = 0
    for adapter in adapters():
        for pair in pairs:
            if pair.adapter is adapter and not adapter.missing:
                count += sum(1 for _ in _answers(pair.case, pair.subject))
    print(count)


def _answers(case: Case, name: str) -> Iterator[None]:
    subject = load(name)
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if limit_of(case, subject) is None:
            for call in _calls(case):
                subject.attend(call)
                yield


@cache
def _calls(case: Case) -> list[Problem]:
    return calls_of(problem_of(case))


if __name__ == "__main__":
    one_thread_each(os.environ)
    main(sys.argv[1:])
