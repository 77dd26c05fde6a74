"""The first screen in a browser: who agrees with whom, what changed, and how it fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.report.render import PATTERNS_SHOWN, write_report
from tests.browsing import Visitor
from tests.synthetic_runs import HEADER, arrays, finding, row, run_of, with_tensors

pytest_plugins = ("tests.report_fixtures",)
SUBJECTS = [f"alpha/subject-{number}" for number in range(19)]


def test_a_pattern_filters_to_its_cases(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    lines = seen.page.locator("#agreement li")
    first = lines.first.inner_text()
    assert "new value" in first
    assert "1 other agrees" in first
    last = lines.filter(has_text="alpha/mha = beta/mha")
    assert "nan-blocked-row" in last.inner_text()
    assert "no subject agrees" in last.inner_text()
    last.locator("a.count").click()
    assert (
        seen.page.locator("#query").input_value() == f"pattern:{lines.all_inner_texts().index(last.inner_text()) + 1}"
    )
    assert seen.page.locator("#matched").inner_text() == "2 of 259 pairs"
    assert seen.listed() == ["b", "b"]
    assert last.locator("a.count").get_attribute("aria-current") == "true"


def test_further_patterns_are_folded_and_everything_can_be_read_without_scripts(visit: Visitor, tmp_path: Path) -> None:
    kinds = [f"kind-{number}" for number in range(PATTERNS_SHOWN + 2)]
    rows = [
        one for kind in kinds for one in (row(kind, "beta/x", "known", findings=(finding(kind),)), row(kind, "alpha/y"))
    ]
    write_report(run_of(tmp_path, rows), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html", java_script_enabled=False)
    assert seen.page.locator("#agreement li:visible").count() == PATTERNS_SHOWN
    seen.page.locator("#agreement > details > summary", has_text="2 further patterns, 2 cases").click()
    assert seen.page.locator("#agreement li:visible").count() == PATTERNS_SHOWN + 2


def test_the_case_page_takes_its_clusters_from_the_run(visit: Visitor, tmp_path: Path) -> None:
    near, far = (finding(worst={"index": [0], "error": size, "bound": 1.0}) for size in (3.0, 9.0))
    rows = [
        row("a", "x/one", "known", findings=(near,)),
        row("a", "x/two", "known", findings=(far,)),
        row("a", "x/three", "known", findings=(finding(worst={"index": [0], "error": 5.0, "bound": 1.0}),)),
        row("a", "x/four"),
    ]
    write_report(run_of(tmp_path, rows), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html", f"#row={rows[0].node}")
    seen.page.wait_for_selector("#case .clusters")
    assert seen.page.locator("#case .clusters div").all_inner_texts() == ["x/two = x/three", "x/one", "x/four"]


def test_changed_rows_are_listed_and_found(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    told = "1 newly failing, 1 no longer failing, 1 worse, 1 added, 1 not run this time"
    assert f"Since 20260101-000000.000000: {told}." in seen.page.locator(".masthead").inner_text()
    assert told in seen.page.locator("#since h2").inner_text()
    for words, number in (
        ("changed:yes", 3),
        ("changed:new", 1),
        ("changed:fixed,worse", 2),
        ("changed:no is:stale", 1),
        ("changed:added", 1),
        ("changed:gone", 0),
    ):
        seen.page.locator("#query").fill(words)
        assert seen.page.locator("#matched").inner_text() == f"{number} of 259 pairs", words
    seen.page.locator("#since a", has_text="a[beta/mha]").click()
    seen.page.wait_for_selector("#case h1")
    assert "new since 20260101-000000.000000" in seen.page.locator("#case").inner_text()


def test_a_run_without_an_earlier_one_says_nothing_of_changes(visit: Visitor, tmp_path: Path) -> None:
    write_report(run_of(tmp_path, [row(), row("b")]), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html")
    assert "Since" not in seen.page.locator("body").inner_text()
    assert seen.page.locator("[aria-label=changed]").count() == 0


def test_sampled_subjects_take_one_line(visit: Visitor, tmp_path: Path) -> None:
    sampled = tuple({"subject": subject, "left_out": 7, "reason": "too slow"} for subject in SUBJECTS)
    write_report(run_of(tmp_path, [row()], replace(HEADER, sampled=sampled)), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html")
    notice = seen.page.locator(".masthead details")
    box = notice.bounding_box()
    assert box is not None
    assert box["height"] < 40
    said = f"Slow subjects that were left out of some cases: {len(SUBJECTS)}"
    assert notice.locator("summary").inner_text() == said, "a selection may leave out the rest of theirs"
    notice.locator("summary").click()
    assert "alpha/subject-18: 7 left out; too slow" in notice.inner_text()


@pytest.mark.parametrize("ratio", [4.3e-3, 7.1e10, 1.0001])
def test_nineteen_subjects_fit_on_1280_pixels_and_scroll_on_fewer(visit: Visitor, tmp_path: Path, ratio: float) -> None:
    worst = finding(worst={"index": [0], "error": ratio, "bound": 1.0})
    rows = [
        row("a", subject, "known", findings=(worst,), file="cases/batch_composition.yaml", framework=subject[6:])
        for subject in SUBJECTS
    ]
    rows = [replace(one, framework=f"f{number // 5}") for number, one in enumerate(rows)]
    write_report(run_of(tmp_path, rows), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html")
    sizes = (
        "(() => { const box = document.querySelector('#matrix .scroll'); return [box.scrollWidth, box.clientWidth] })()"
    )
    wanted, given = seen.page.evaluate(sizes)
    assert wanted <= given
    lines = seen.page.evaluate(
        """() => [...document.querySelectorAll(".matrix td a, .worst, td.number")].filter((e) => e.checkVisibility())
          .map((e) => { const range = document.createRange(); range.selectNodeContents(e.lastChild);
            return new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size; })"""
    )
    assert lines
    assert max(lines) == 1
    narrow = visit(tmp_path / "report.html", viewport={"width": 380, "height": 800})
    wanted, given = narrow.page.evaluate(sizes)
    assert wanted > given
    narrow.page.locator("#matrix .scroll").focus()
    narrow.page.keyboard.press("End")
    assert narrow.page.locator("#matrix .scroll").get_attribute("tabindex") == "0"


@pytest.mark.parametrize(
    ("relation", "words", "note"),
    [
        ("none", ["expected", "actual"], ""),
        ("keys-permuted", ["other call", "this call"], "compared with each other, not with the reference"),
        ("conservation", ["conserved", "actual"], "must keep"),
    ],
)
def test_a_relation_names_its_two_sides(
    visit: Visitor, tmp_path: Path, relation: str, words: list[str], note: str
) -> None:
    made = row("a", status="new", facts={"relation": relation}, findings=(finding("relation"),))
    write_report(run_of(tmp_path, [with_tensors(tmp_path, made, arrays())]), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html")
    seen.open_first()
    assert seen.page.locator(".worst-elements th").all_inner_texts()[1:3] == words
    assert seen.page.locator(".tabs[aria-label=View] button").all_inner_texts()[1:3] == words
    assert note in seen.page.locator("[aria-label='Where it differs']").inner_text()
    seen.page.locator(".worst-elements a").first.click()
    seen.page.wait_for_selector(".readout b")
    assert seen.page.locator(".readout i").all_inner_texts()[:2] == words
    seen.page.locator(".tabs button", has_text="signed error").click()
    assert f"{words[1]} − {words[0]}" in seen.page.locator(".heat-legend").inner_text()
