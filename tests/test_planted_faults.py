"""The suite bites: each planted fault is caught by the default cases, and the control that carries none is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.run import judge
from conformance.spec import Case, Source
from conformance.verdict import Agrees, Diverges, Errored
from tests.conftest import CAUGHT
from tests.fault_hunting import CASE_FILES, cases_of, hunt
from tests.fault_stages import stage_of_planted
from tests.planted import CONTROL, FAULTS
from tests.planted.attention import Attention
from tests.planted.projection_faults import ReshapeWithTargetLength

MOST = 600  # cases judged for one fault
SQUARE = Case(
    id="planted-square",
    suite="planted",
    name="square",
    why="The notebook's fault cannot show where the lengths are equal.",
    source=Source("tests/test_planted_faults.py", 1),
    batch=2,
    target_length=4,
    source_length=4,
    embed_dim=8,
    num_heads=2,
    num_kv_heads=2,
    head_dim=4,
    value_head_dim=4,
    kdim=8,
    vdim=8,
    output_dim=8,
)


def test_faults_are_told_apart() -> None:
    names = [fault().name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 32
    for fault in FAULTS:
        assert fault().name.startswith("planted/")
        assert fault.__doc__, fault
        assert "\n" not in fault.__doc__


@pytest.mark.parametrize("file", [pytest.param(file, id=file.stem) for file in CASE_FILES])
def test_control_never_diverges(file: Path) -> None:
    wrong = {}
    for case in cases_of(file):
        if case.subjects:  # none of them is the control
            continue
        verdict = judge(case, CONTROL())
        if not isinstance(verdict, Agrees):
            wrong[case.id] = verdict
    assert not wrong


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name.split("/")[1]) for fault in FAULTS])
def test_fault_is_caught(fault: type[Attention], record_property: Callable[[str, object], None]) -> None:
    found = hunt(fault, CONTROL, most=MOST)
    assert found.kills, f"{fault.name} answered {found.judged} cases otherwise than the control; none of them showed it"
    assert len(found.kills) > 1, f"one case alone sees {fault.name}: {found.kills[0].case}"
    record_property(CAUGHT, "\t".join(found.row(fault.name, stage_of_planted(fault))))


@pytest.mark.parametrize("source_length", [3, 5, 8], ids=["shorter", "longer", "twice"])
def test_notebook_fault_shows_only_where_lengths_differ(source_length: int) -> None:
    assert isinstance(judge(SQUARE, CONTROL()), Agrees)
    assert isinstance(judge(SQUARE, ReshapeWithTargetLength()), Agrees)
    oblong = replace(SQUARE, id=f"planted-oblong-{source_length}", source_length=source_length)
    assert isinstance(judge(oblong, CONTROL()), Agrees)
    assert isinstance(judge(oblong, ReshapeWithTargetLength()), Diverges | Errored)
