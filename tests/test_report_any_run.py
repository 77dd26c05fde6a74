"""Any run makes a page that reads right and holds together, whatever is in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.report.changes import Comparison, outcomes_of
from conformance.report.render import write_report
from conformance.store import Header, Row, Run
from tests.browsing import Visitor
from tests.synthetic_runs import HEADER, HOSTILE, finding, row, run_of

pytest_plugins = ("tests.report_fixtures",)
LENGTH = 10_000
MISSING = replace(HEADER, missing=({"framework": "beta", "modules": ["beta"], "install": "pip install beta"},))
BROKEN: Any = {"summary": "TypeError: no such argument", "measures": ()}
# Headings of sections without a word below them.
EMPTY = """() => [...document.querySelectorAll("section")].filter((section) => section.checkVisibility())
  .filter((section) => section.innerText.trim() === section.querySelector("h2").innerText.trim())
  .map((section) => section.innerText)"""
RUNS: dict[str, tuple[list[Row], Header, str, list[str]]] = {
    "agreeing": (
        [row(), row(subject="beta/mha")],
        HEADER,
        "Every answer agrees with the reference.",
        ["None: 2 rows agreed with the reference."],
    ),
    "errors": (
        [row(status="errored", **BROKEN), row(subject="beta/mha", status="errored", **BROKEN)],
        HEADER,
        "2 errors.",
        ["No answer agrees with the reference.", "alpha/mha = beta/mha errored TypeError"],
    ),
    "interrupted": (
        [row()],
        replace(HEADER, complete=False),
        "Every answer agrees",
        ["the page shows the 1 row it had"],
    ),
    "stopped at once": ([], replace(HEADER, complete=False), "Nothing was compared.", ["before it had recorded a row"]),
    "one subject": ([row(), row("b", status="new")], HEADER, "1 new divergence.", ["1 agree"]),
    "missing framework": (
        [row(), row(subject="beta/mha", status="missing", summary="beta is not installed", measures=())],
        MISSING,
        "Every answer agrees",
        ["beta was not compared: it is not installed. Add it with pip install beta"],
    ),
    "unsupported": (
        [row(status="unsupported", summary="no such mask", measures=())],
        HEADER,
        "No subject answered any case.",
        ["None: no case was answered.", "No answer agrees"],
    ),
    "empty": ([], HEADER, "Nothing was compared.", ["Environment"]),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", RUNS)
def test_every_run_reads_right(visit: Visitor, tmp_path: Path, name: str, scheme: str) -> None:
    rows, header, title, words = RUNS[name]
    write_report(run_of(tmp_path, rows, header), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html", viewport={"width": 380, "height": 800}, color_scheme=scheme)
    assert title in seen.page.locator("h1").inner_text()
    text = " ".join(seen.page.locator("body").inner_text().split())
    for some in words:
        assert some in text
    assert seen.page.evaluate(EMPTY) == []
    assert ("Who agrees with whom" in text) == (name == "errors")
    assert ("Case files × subjects" in text) == bool(rows)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 380


def hostile_run(folder: Path, text: str) -> Run:
    facts = {"mask": text, "dtype": text, text: text, "note": text}
    shared: dict[str, Any] = {"file": f"cases/{text}.yaml", "why": text, "summary": text, "facts": facts}
    new = row(text, f"beta/{text}", "new", **shared, traceback=text, findings=(finding(text, text, message=text),))
    rows = [
        replace(new, ledger={"reason": text, "link": f"https://{text}", text: text}, framework=text),
        row(text, f"alpha/{text}", **shared),
        row(f"u{text}", status="unsupported", summary=text),
        row(f"e{text}", f"beta/{text}", "errored", summary=text, traceback=text),
    ]
    header = replace(
        HEADER,
        command=text,
        versions={text: text},
        environment={text: [text]},
        missing=({"framework": text, "install": text},),
        sampled=({"subject": text, "left_out": 1, "reason": text},),
    )
    return run_of(folder, rows, header)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("x" * LENGTH, 380),
        ("x" * LENGTH, 1280),
        ("many words " * (LENGTH // 11), 380),
        ((HOSTILE * LENGTH)[:LENGTH], 380),
        ("\u05d0\u05d1\u202e\u2067" * (LENGTH // 4), 380),
    ],
    ids=["one word", "one word, wide", "words", "markup", "right to left"],
)
def test_no_text_breaks_the_layout(visit: Visitor, tmp_path: Path, text: str, width: int) -> None:
    run = hostile_run(tmp_path, text)
    now = outcomes_of(run)
    changed = {node: outcome._replace(status="stale", ratio=0.1) for node, outcome in now.items()}
    compared = Comparison.of(text[:200], changed, now)
    write_report(run, tmp_path / "report.html", lambda _: text, compared)
    seen = visit(tmp_path / "report.html", viewport={"width": width, "height": 800})
    reach: Callable[[], Any] = lambda: seen.page.evaluate(  # noqa: E731
        """() => { for (const box of document.querySelectorAll("details")) box.open = true;
          return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]; }"""
    )
    wide, high = reach()
    assert wide == width
    assert high < 12_000
    seen.page.locator("#divergences tr[data-row] a").first.click()
    seen.page.wait_for_selector("#case .command")
    seen.page.wait_for_selector("#case [aria-label=Traceback]")
    wide, high = reach()
    assert wide == width
    assert high < 6_000
    assert seen.page.locator("#case img, #case script, #overview img").count() == 0
    assert seen.page.evaluate("window.harm === undefined")
    message = seen.page.locator("#case .why").evaluate("(element) => element.textContent")
    assert len(message) >= len(text)
