"""The constraint binds: cases that cannot fail for a part of their mask are found, refused or dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.binding import idle_parts
from conformance.casefile import read_case_file
from conformance.casefolder import case_files
from conformance.run import judge
from conformance.spec import Additive, Case, Data, Explicit, Mask, Padding, Source, Unsupported, Window
from tests.drawn_problems import case_like
from tests.planted import CONTROL
from tests.projects import Project, output_of

CASES = Path(__file__).parent.parent / "cases"


def masked(mask: Mask, **changes: Any) -> Case:
    return case_like("bound", mask=mask, **changes)


NOTHING = Explicit("literal", "TS", values=((0,) * 4,) * 3)


@pytest.mark.parametrize(
    ("case", "idle"),
    [
        (masked(Mask(causal="top-left")), ()),
        (masked(Mask(key_padding=Padding((4, 2)))), ()),
        (masked(Mask(key_padding=Padding((4, 4)))), ("key_padding",)),
        (masked(Mask(causal="top-left"), source_length=1), ("causal",)),
        (masked(Mask(causal="bottom-right", window=Window(9, 0, "bottom-right"))), ("causal", "window")),
        (masked(Mask(causal="top-left", window=Window(9, 9))), ("window",)),
        (masked(Mask(explicit=NOTHING, causal="top-left")), ("explicit",)),
        (masked(Mask(additive=Additive("TS", 0.0))), ("additive",)),
        (masked(Mask(additive=Additive("TS", 0.0, Explicit("keys", "TS", indices=(1,))))), ()),
        (masked(Mask(additive=Additive("TS", 1e-4)), dtype="float16"), ("additive",)),
        (masked(Mask(additive=Additive("TS", 1e-4)), dtype="float64"), ()),
        (masked(Mask(causal="top-left"), data=Data("equal"), check=("output",)), ("causal",)),
        (masked(Mask(causal="top-left"), data=Data("equal"), check=("weights",)), ()),
        (masked(Mask(key_padding=Padding((4, 2))), check=("gradients",)), ()),
        (masked(Mask(causal="top-left"), source_length=1, expect="observe"), ()),
        (masked(Mask(causal="top-left"), target_length=0), ()),
    ],
    ids=lambda value: str(value.mask) if isinstance(value, Case) else "+".join(value) or "all-bind",
)
def test_parts_that_cannot_show_are_found(case: Case, idle: tuple[str, ...]) -> None:
    assert idle_parts(case) == idle


@pytest.mark.parametrize("path", case_files(CASES), ids=lambda path: path.stem)
def test_every_default_case_can_fail_for_each_part_of_its_mask(path: Path) -> None:
    assert not {case.id: idle for case in read_case_file(path) if (idle := idle_parts(case))}


def test_a_generated_case_is_dropped_and_a_written_one_is_not() -> None:
    case = masked(Mask(causal="top-left"), source_length=1)
    verdict = judge(case, CONTROL())
    assert isinstance(verdict, Unsupported)
    assert "ignores its causal mask" in verdict.reason
    written = replace(case, source=replace(case.source, entry=True))
    assert not isinstance(judge(written, CONTROL()), Unsupported)


def test_a_written_case_that_proves_nothing_fails_where_it_stands(project: Project) -> None:
    body = """\
    matrix:
      source_length: [1, 3]
      mask: [{causal: top-left}]
    include:
      - {name: binds, mask: {causal: top-left}}
      - {name: idle, mask: {causal: top-left, key_padding: {lengths: [7, 7]}}}
    """
    project.cases("bound", "fake/right", body=body)
    result = project.pytest_here("-rs")
    text = output_of(result)
    assert result.ret == 1
    place = "cases/bound.yaml:10:1: idle cannot fail for its key_padding mask: the answer is the same without it"
    assert place in text
    statuses = project.statuses()
    assert statuses["S1-causal.top-left[fake/right]"] == "unsupported"
    assert {name for name, status in statuses.items() if status == "agrees"} == {
        "S3-causal.top-left[fake/right]",
        "binds[fake/right]",
        "idle[fake/right]",
    }
    assert "dropped: a subject that ignores its causal mask" in text


def test_the_file_where_a_case_stands_tells_written_from_generated(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("suite: s\nwhy: w\nmatrix: {batch: [1]}\ninclude: [{name: own}]\n")
    assert [case.source for case in read_case_file(path, tmp_path)] == [
        Source("one.yaml", 3),
        Source("one.yaml", 4, entry=True),
    ]


def test_what_a_part_changes_is_measured_and_not_guessed() -> None:
    """A bias that decides everything binds even where its pattern blocks nothing."""
    bias = Additive("TS", values=tuple(map(tuple, np.eye(3, 4).tolist())))
    assert idle_parts(masked(Mask(additive=bias))) == ()
