"""Every mutant of two hand-written subjects is killed by the shipped cases, or is equivalent for a reason given."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from conformance.adapter import load
from conformance.verdict import Kind
from tests.conftest import CAUGHT, HEADER
from tests.equivalent_mutants import arguments, excuses
from tests.fault_hunting import TIERS, answers, cheapest_first, hunt, same
from tests.fault_stages import STAGES, stage_of_mutant, stage_of_planted
from tests.fault_table import FAULTS_PAGE, named_in, names
from tests.mutated import FAMILIES, Family, Fault, control, mutated
from tests.mutator import mutants
from tests.other_judges import JUDGES, Opinion, named, opinions
from tests.planted import CONTROL, FAULTS

SPARSE = 6  # an equivalent mutant is tried on every sixth case here; ``python -m tests.fault_table`` tries all
DROPOUT = "numpy_core.kept_by_dropout"  # answers None, or factors of 1, where the probability is 0
FUNCTIONS = dict.fromkeys(fault.mutant.function for fault in mutated())
SOURCE = '''
"""A module."""
import math


def scaled(query: int = 2, *, axis: int | None = None) -> float:
    """A function."""
    if axis is None or not query:
        raise ValueError("no axis " + str(1 + 1))
    total = sum(query[:3]).max(axis=-1)
    total = total.T * math.sqrt(4.0) - math.inf
    return -math.inf if total <= 0 else total
'''
EDITS = [
    "+0: 2 → 3",
    "+2: if axis is None or not query: raise Valu… → if not (axis is None o…ot query): raise Valu…",
    "+2: if axis is None or not… axis ' + str(1 + 1)) → nothing",
    "+2: axis is None or not query → axis is None and (not query)",
    "+2: axis is None → axis is not None",
    "+2: not query → query",
    "+4: sum(query[:3]).max(axis=-1) → sum(query[:3])",
    "+4: :3 → 3:",
    "+4: 3 → 4",
    "+4: axis=-1 → axis=-2",
    "+4: axis=-1 → axis=0",
    "+5: total = total.T * math.sqrt(4.0) - math.inf → nothing",
    "+5: total.T * math.sqrt(4.0) - math.inf → total.T * math.sqrt(4.0) + math.inf",
    "+5: total.T * math.sqrt(4.0) → total.T / math.sqrt(4.0)",
    "+5: total.T → total",
    "+5: math.sqrt(4.0) → 4.0",
    "+5: 4.0 → 5.0",
    "+6: -math.inf if total <= 0 else total → -math.inf if not total <= 0 else total",
    "+6: total <= 0 → total < 0",
    "+6: 0 → 1",
    "+6: -math.inf → -1000000000.0",
    "+6: -math.inf → 0.0",
]


def test_mutator_edits_once_in_order() -> None:
    found = list(mutants("module", SOURCE))
    assert [mutant.edit for mutant in found] == EDITS
    shipped = compile(ast.parse(SOURCE), "module", "exec")
    codes = [mutant.code() for mutant in found]
    assert shipped not in codes
    assert len(set(codes)) == len(codes)
    assert [mutant.name for mutant in mutants("module", SOURCE)] == [mutant.name for mutant in found]


def test_names_tell_mutants_apart() -> None:
    found = [fault.mutant.name for fault in mutated()]
    assert len(found) == len(set(found)) >= 100
    assert Counter(fault.family.subject for fault in mutated()).keys() == {family.subject for family in FAMILIES}


def test_shipped_modules_are_left_alone() -> None:
    import adapters.numpy_core as shipped

    before = dict(vars(shipped))
    fault = next(fault for fault in mutated() if fault.mutant.function == "numpy_core._softmax")
    made = fault.maker()()
    assert vars(shipped) == before
    assert type(made).__module__ == "adapters.numpy_reference"
    assert not isinstance(made, type(control(fault.family)()))


@pytest.mark.parametrize("family", [pytest.param(family, id=family.subject) for family in FAMILIES])
def test_without_a_fault_the_answers_are_those_of_the_shipped_subject(family: Family) -> None:
    """Which agrees in all cases, as ``make compare`` sees to."""
    made, shipped = control(family)(), load(family.subject)
    for problem in cheapest_first()[::SPARSE]:
        if shipped.unsupported(problem.case) is None:
            assert same(answers(problem, made), answers(problem, shipped)), problem.case.id


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_mutant_is_killed(function: str, record_property: Callable[[str, object], None]) -> None:
    survivors, alone, stale = [], [], []
    for fault in (fault for fault in mutated() if fault.mutant.function == function):
        name = fault.mutant.name
        step = SPARSE if name in arguments() and function != DROPOUT else 1
        found = hunt(fault.maker(), control(fault.family), step=step, dropout=function == DROPOUT)
        if name in arguments():
            stale += [name] if found.kills else []
        elif not found.kills:
            survivors.append(name)
        else:
            alone += [f"{name}: {found.kills[0].case}"] if len(found.kills) == 1 else []
            record_property(CAUGHT, "\t".join(found.row(name, stage_of_mutant(fault.mutant))))
    assert not survivors, "no case sees these"
    assert not alone, "one case alone sees these"
    assert not stale, "listed as equivalent, and killed"


def test_equivalent_mutants_exist_once() -> None:
    listed = Counter(name for name, _ in excuses())
    assert not {name for name, count in listed.items() if count > 1}
    assert not listed.keys() - {fault.mutant.name for fault in mutated()}
    assert all(argument for _, argument in excuses())


def test_every_stage_has_a_fault() -> None:
    killed: list[Fault] = [fault for fault in mutated() if fault.mutant.name not in arguments()]
    found = {stage_of_mutant(fault.mutant) for fault in killed} | {stage_of_planted(fault) for fault in FAULTS}
    assert found == set(STAGES)


def test_every_kind_has_a_tier() -> None:
    assert set(get_args(Kind)) <= set(TIERS)


def test_other_judges_know_a_relation_by_its_first_call() -> None:
    problem = next(one for one in cheapest_first() if one.case.relation == "conservation")
    right = answers(problem, CONTROL())
    assert right is not None
    judged = tuple(named(outputs) for outputs in right)
    wrong = judged[0] | {"attn_output": right[0].attn_output + 1}
    assert opinions(problem.case, judged, right)[-1] is Opinion.PASSES
    assert opinions(problem.case, (wrong, *judged[1:]), right)[-1] is Opinion.SEES
    assert opinions(problem.case, (wrong, *judged[1:]), None)[-1] is Opinion.CRIES_WOLF


def test_other_judges_know_no_answer_under_dropout() -> None:
    problem = next(one for one in cheapest_first() if one.case.drops)
    right = answers(problem, CONTROL())
    assert right is not None and len(right) > 1
    judged = tuple(named(outputs) for outputs in right)
    assert set(opinions(problem.case, judged, right)) == {Opinion.CRIES_WOLF}


def test_page_names_every_fault() -> None:
    """``python -m tests.fault_table`` writes the page anew."""
    assert named_in(FAULTS_PAGE.read_text("utf-8")) == list(names())
    assert HEADER[-len(JUDGES) :] == list(JUDGES)


def test_page_is_linked() -> None:
    root = Path(__file__).parent.parent
    assert "faults.md" in (root / "docs" / "tolerance.md").read_text("utf-8")
