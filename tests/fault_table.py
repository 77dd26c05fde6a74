"""The table of all faults, planted and mutated, as ``docs/faults.md``: ``python -m tests.fault_table``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.conftest import HEADER
from tests.equivalent_mutants import arguments, excuses
from tests.fault_hunting import ENOUGH, TIERS, Hunt, hunt
from tests.fault_stages import STAGES, stage_of_mutant, stage_of_planted
from tests.mutated import control, mutated
from tests.other_judges import JUDGES, Opinion
from tests.planted import CONTROL, FAULTS

FAULTS_PAGE = Path(__file__).parent.parent / "docs" / "faults.md"
ORIGINS = ("planted", "mutants")
INTRODUCTION = f"""# The faults that the cases catch

Written by `python -m tests.fault_table`; two runs write the same. `make test` hunts the same faults and fails where one
goes unseen, where one case alone sees it, or where this page does not name it.

*Planted* faults are attention as people have got it wrong (`tests/planted/`). *Mutants* are single edits that
`tests/mutator.py` makes to the source of `numpy/per-head` and of `torch/handwritten` (with its packed form), in the
order of the source and by fixed rules, so that nobody chooses them. A mutant is named by its module, its function, the
line within the function, and the edit.

Cases are tried from the cheapest on, counted in multiply-adds of the forward pass, until {ENOUGH} have killed the
fault. *Judged* are the cases up to there in which the fault answers some call otherwise than the correct subject. The
smallest killing case is shown with what it saw first; *errored* means that the call raised.

The last three columns say whether other judges would have seen the fault in any of those killing cases, given the same
reference: `torch.testing.assert_close` and JAX's test utilities (`jax._src.public_test_util`) with their default
tolerances, and `allclose` with rtol = atol = 0.01. *yes*: it rejects the faulty answer and passes the right one.
*wolf*: it rejects both, so its word is worth nothing. *no*: it passes the faulty answer. A call that raises is seen by
everyone; an ill-formed call that is accepted, by none of the three. Of a relation they judge the first call; of answers
under dropout they know the one without it, so they reject the right ones too.
"""


def names() -> Iterator[str]:
    """Every fault, in the order of the page."""
    yield from (fault.name for fault in FAULTS)
    yield from (fault.mutant.name for fault in mutated())


def named_in(page: str) -> list[str]:
    """The faults that a page names, sorted into the order of :func:`names`."""
    found = Counter(re.findall(r"^\| ``? ?(.+?) ?``? \|", page, re.MULTILINE))
    return [name for name in names() for _ in range(found.pop(_cell(name), 0))] + list(found.elements())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join([_line(header), "|" + "---|" * len(header), *(_line([f"`{row[0]}`", *row[1:]]) for row in rows)])


def _hunts() -> Iterator[tuple[str, str, str, Hunt]]:
    """Whether planted or mutant, name, stage and hunt of every fault."""
    for planted in FAULTS:
        yield "planted", planted.name, stage_of_planted(planted), hunt(planted, CONTROL)
    for fault in mutated():
        found = hunt(fault.maker(), control(fault.family))
        yield "mutants", fault.mutant.name, stage_of_mutant(fault.mutant), found


def page() -> str:
    """The page. Raises ValueError where a fault goes unseen without an argument, or is killed in spite of one."""
    killed, wrong = [], []
    for origin, name, stage, found in _hunts():
        if bool(found.kills) is (name in arguments()):
            wrong.append(name)
        elif found.kills:
            killed.append((origin, name, stage, found))
    if wrong:
        raise ValueError("unseen, or wrongly called equivalent:\n" + "\n".join(wrong))
    parts = [INTRODUCTION, "## In short\n", _summary([(origin, stage, found) for origin, _, stage, found in killed])]
    for origin in ORIGINS:
        rows = [found.row(name, stage) for source, name, stage, found in killed if source == origin]
        parts += [f"\n## {origin.capitalize()}\n", _table(HEADER, rows)]
    equal = [[name, argument] for name, argument in excuses()]
    parts += ["\n## Mutants that are no fault\n", "No input within the contract can tell these from the original.\n"]
    return "\n".join([*parts, _table(["mutant", "why"], equal)]) + "\n"


def _summary(killed: list[tuple[str, str, Hunt]]) -> str:
    """Counts by tier, by stage, and of what other judges see, for planted faults and for mutants."""
    groups: list[tuple[str, Callable[[str, Hunt], bool]]] = [("all", _in_any)]
    groups += [(f"first seen by {tier}", partial(_in_tier, tier)) for tier in dict.fromkeys(TIERS.values())]
    groups += [(f"in {stage}", partial(_in_stage, stage)) for stage in STAGES]
    groups.append(("answer in some killing case; of these", _returns))
    for index, judge in enumerate(JUDGES):
        groups += [(f"{judge}: {opinion.value}", partial(_of_opinion, index, opinion)) for opinion in Opinion]
    rows = [["argued to be no fault, not counted below", "0", str(len(arguments()))]]
    for title, holds in groups:
        counts = [sum(holds(stage, found) for of, stage, found in killed if of == origin) for origin in ORIGINS]
        rows.append([title, *map(str, counts)])
    return "\n".join([_line(["", *ORIGINS]), "|---|---|---|", *map(_line, rows)])


def _in_any(stage: str, found: Hunt) -> bool:
    return True


def _in_tier(tier: str, stage: str, found: Hunt) -> bool:
    return found.kills[0].tier == tier


def _in_stage(wanted: str, stage: str, found: Hunt) -> bool:
    return stage == wanted


def _returns(stage: str, found: Hunt) -> bool:
    """Whether some killing case got an answer: an exception needs no judge."""
    return any(kill.kind != "errored" for kill in found.kills)


def _of_opinion(judge: int, opinion: Opinion, stage: str, found: Hunt) -> bool:
    return _returns(stage, found) and found.opinion(judge) is opinion


if __name__ == "__main__":
    FAULTS_PAGE.write_text(page(), "utf-8")
