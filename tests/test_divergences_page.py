"""The page of known divergences says what the ledger says, and the committed one is that of today's ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.cli import main
from conformance.ledgerfile import ledger_of
from conformance.report.divergences import SEEN, divergences_page
from tests.projects import Project, entry
from tests.synthetic_runs import row, run_of

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "reports" / "DIVERGENCES.md"


def from_the_ledger(page: str) -> list[str]:
    """The lines that do not come from a run."""
    _, _, body = page.partition("\n## ")
    return [line for line in body.splitlines() if not line.startswith((SEEN, "- Again: "))]


def test_the_committed_page_is_that_of_the_ledger(tmp_path: Path) -> None:
    page = divergences_page(ledger_of(ROOT / "cases", ROOT), run_of(tmp_path, []))
    assert from_the_ledger(PAGE.read_text("utf-8")) == from_the_ledger(page), (
        "run pytest -n auto, then python -m conformance divergences > reports/DIVERGENCES.md"
    )


def test_the_committed_page_says_where_every_entry_was_seen() -> None:
    page = PAGE.read_text("utf-8")
    assert page.count(f"\n{SEEN}") == page.count("\n### ") > 0
    assert "Tested: " in page and "torch" in page and "keras" in page and "jax" in page


def test_an_entry_is_shown_with_its_conditions_and_its_pairs(tmp_path: Path) -> None:
    known = entry(
        id="off",
        when={"dtype": ["float16", "bfloat16"], "bias": True},
        unless={"mask": "none"},
        cases=("small/*",),
        link="https://example.org/1",
        reason="A constant\n  is added to one element.",
    )
    other = entry(id="wide", subjects=("more/one",), shows={}, accuracy={"softmax": "float32"})
    shown = row(status="known", subject="fake/off", entries=("off",))
    again = replace(shown, subject="fake/other")
    page = divergences_page([known, other], run_of(tmp_path, [shown, again, replace(shown, status="stale")]))
    section = page.partition("### off\n")[2].partition("\n## more")[0]
    assert "A constant is added to one element." in section
    assert "- Where: dtype `float16` or `bfloat16`; bias `True`; case `small/*`" in section
    assert "- Not where: mask `none`" in section
    assert "- Shows: output `value`" in section
    assert "- Versions: fakelib ==1.*; since 2026-01-01" in section
    assert "- Upstream: <https://example.org/1>" in section
    assert f"{SEEN}2 pairs of `fake/off`, `fake/other`" in section
    assert f"python -m conformance repro '{shown.case}[fake/off]'" in section
    assert "- Accuracy reached: softmax in float32" in page and page.count(SEEN) == 1


def test_the_command_prints_the_page_of_a_run(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.cases("small", "fake/off")
    project.ledger({})
    assert project.pytest_here().ret == 0
    folder = project.run().folder
    capsys.readouterr()
    assert main(["divergences", str(folder), "--cases", str(project.root / "cases")]) == 0
    printed = capsys.readouterr().out
    assert "### off\n" in printed
    assert f"{SEEN}1 pairs of `fake/off`" in printed
