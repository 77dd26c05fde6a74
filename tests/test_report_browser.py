"""The report in a browser: what people do with it, with every network request refused."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from conformance.report.render import write_report
from tests.browsing import Visitor
from tests.report_pages import taken_apart
from tests.synthetic_runs import arrays, finding, row, run_of, with_tensors

pytest_plugins = ("tests.report_fixtures",)


def test_words_in_the_search_box_filter_every_part_of_the_page(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    query = seen.page.locator("#query")
    for words, cases in (
        ("subject:beta", ["a", "c", "=SUM(1)", "b"]),
        ("kind:nan subject:=alpha/mha", ["b"]),
        ("dtype:float16", ["a"]),
        ("mask:causal,none is:diverging -is:stale -file:blocked", ["a", "c"]),
        ("only:beta is:diverging", ["a", "c", "=SUM(1)"]),
        ('"it agrees now"', ["=SUM(1)"]),
        ("is:agrees", []),
    ):
        query.fill(words)
        seen.page.evaluate("for (const f of document.querySelectorAll('.family')) f.open = true")
        assert seen.listed() == cases, words
        assert f"q={words}" in seen.hash.replace("+", " ")
    assert seen.page.locator("#matched").inner_text() == "253 of 259 pairs"
    assert seen.page.locator("#others-rows tr").count() == 100
    seen.page.locator("#others-more").click()
    assert seen.page.locator("#others-rows tr").count() == 200


def test_chips_write_words(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    chip = seen.page.locator("#chips button", has_text="nan-blocked-row")
    chip.click()
    assert seen.page.locator("#query").input_value() == "kind:=nan-blocked-row"
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert seen.page.locator("#query").input_value() == ""


def test_a_chip_says_how_many_cases_it_finds(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    chips = seen.page.locator("#chips button").all()
    assert len(chips) > 10
    for chip in chips:
        chip.click()
        number = chip.locator(".n").inner_text()
        assert seen.page.locator("#matched").inner_text().split(" of ")[0] == number, chip.inner_text()
        chip.click()


def test_a_cell_of_the_matrix_filters(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.page.locator("td a[title^='blocked × beta/mha']").click()
    assert seen.page.locator("#query").input_value() == "file:=cases/blocked.yaml subject:=beta/mha"
    assert seen.listed() == ["b"]
    assert seen.page.locator(".matrix a[aria-current]").count() == 1


def test_a_case_page_shows_the_whole_case(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.open_first()
    text = seen.page.locator("#case").inner_text()
    for words in ("cases/plain.yaml:7", "a plain case", "causal", "float16", "attn_output is off",
                  "fully blocked row 2", "Who agrees with whom", "alpha/mha", "import numpy  # a"):  # fmt: skip
        assert words in text
    assert seen.page.locator(".mask-picture canvas").count() == 2
    assert seen.page.locator(".stage canvas").count() == 2
    seen.page.go_back()
    assert seen.page.locator("#overview").is_visible()
    assert not seen.page.locator("#case").is_visible()


def test_a_known_divergence_shows_its_ledger_entry(visit: Visitor, report: Path) -> None:
    seen = visit(report, "#row=cases/blocked.yaml::b[beta/mha]")
    seen.page.wait_for_selector("text=Known divergence")
    text = seen.page.locator("#case").inner_text()
    for words in ("softmax over nothing", "beta <2", "2026-01"):
        assert words in text
    assert seen.page.locator("#case a[href='https://example.org/1']").count() == 1


def test_refusals_of_an_ill_formed_call_stand_side_by_side(visit: Visitor, report: Path) -> None:
    seen = visit(report, "#row=cases/plain.yaml::g[alpha/mha]")
    seen.page.wait_for_selector("#case .clusters")
    text = seen.page.locator("#case").inner_text()
    assert text.count("raised ValueError: lengths differ") == 2  # what was found, and beside the others
    assert "raised TypeError: no such mask" in text
    assert "with the reference" not in text
    assert seen.page.locator("#case .message").all_inner_texts() == ["raised ValueError: lengths differ"]


def test_the_address_leads_back_to_the_element(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.open_first()
    link = seen.page.locator(".worst-elements a").nth(1)
    assert link.inner_text() == "attn_weights[0, 1, 2, 4]"
    link.click()
    readout = seen.page.locator(".readout")
    given = arrays()
    actual = np.float32(given["attn_weights/actual"][0, 1, 2, 4])
    seen.page.wait_for_selector(".readout:has-text('attn_weights[0, 1, 2, 4]')")
    assert "ratio 50" in readout.inner_text()
    assert f"actual {float(f'{actual:.9g}')}" in readout.inner_text()
    seen.page.locator(".tabs button", has_text="signed error").click()
    again = visit(report, seen.page.evaluate("location.hash"))
    again.page.wait_for_selector(".stage canvas")
    assert "attn_weights[0, 1, 2, 4]" in again.page.locator(".readout").inner_text()
    assert again.page.locator(".tabs button[aria-pressed=true]").all_inner_texts() == ["attn_weights", "signed error"]


def test_a_heat_map_can_be_read_with_keys_and_pointer(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.open_first()
    canvas, readout = seen.page.locator(".stage canvas").nth(1), seen.page.locator(".readout")
    canvas.focus()
    assert readout.inner_text().startswith("attn_output[1, 0, 0]")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        seen.page.keyboard.press(key)
    assert readout.inner_text().startswith("attn_output[1, 2, 3]")
    seen.page.wait_for_url(re.compile("element=1%2C2%2C3"))
    for words in ("actual NaN", "ratio ∞", "blocked"):
        assert words in readout.inner_text()
    assert (
        seen.page.locator("#said").inner_text() == readout.inner_text()
        or "NaN" in seen.page.locator("#said").inner_text()
    )
    canvas.hover(position={"x": 25, "y": 25})
    assert readout.inner_text().startswith("attn_output[1, 0, 0]")


def test_a_part_of_a_large_output_keeps_its_indices(visit: Visitor, tmp_path: Path) -> None:
    given = arrays(batch=3, heads=4, target=70, source=70)
    made = with_tensors(tmp_path, row("large", status="new", findings=(finding(output="attn_weights"),)), given)
    write_report(run_of(tmp_path, [made]), tmp_path / "report.html")
    seen = visit(tmp_path / "report.html")
    seen.open_first()
    assert "the whole output is 3 × 4 × 70 × 70" in seen.page.locator(".stage").inner_text()
    seen.page.locator(".worst-elements a", has_text="attn_weights[0, 1, 2, 4]").click()
    seen.page.wait_for_selector(".readout:has-text('[0, 1, 2, 4]')")
    assert "ratio 50" in seen.page.locator(".readout").inner_text()


def test_a_cell_is_painted_where_its_element_is(visit: Visitor, report: Path) -> None:
    seen = visit(report, device_scale_factor=1)
    seen.open_first()
    dark = seen.page.evaluate(
        """() => {
          const canvas = document.querySelectorAll(".stage canvas")[1], pen = canvas.getContext("2d");
          const found = [];
          for (let row = 0; row < 3; row += 1) for (let column = 0; column < 8; column += 1) {
            const corner = pen.getImageData(20 + column * 40 + 1, 20 + row * 20 + 1, 1, 1).data;
            if (corner[0] < 60 && corner[1] < 60 && corner[2] < 60) found.push([row, column]);
          }
          return found; }"""
    )
    assert dark == [[2, 3]]  # the one NaN of this sample


def test_every_view_paints_different_cells(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.open_first()
    pictures = set()
    for view in ("error / bound", "expected", "signed error", "attention weights"):
        seen.page.locator(".tabs button", has_text=view).click()
        pictures.add(seen.page.evaluate("document.querySelector('.stage canvas').toDataURL()"))
    assert len(pictures) == 4
    assert "output=attn_weights" in seen.hash


def test_keys_lead_through_the_report(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    press = seen.page.keyboard.press
    press("/")
    assert seen.page.evaluate("document.activeElement.id") == "query"
    seen.page.keyboard.type("is:diverging j?")
    assert seen.page.locator("#query").input_value() == "is:diverging j?"
    seen.page.locator("#query").fill("is:diverging")
    press("Escape")
    press("j")
    press("j")
    press("k")
    press("Enter")
    seen.page.wait_for_selector("#case h1")
    assert "row=cases/plain.yaml::a[beta/mha]" in seen.hash
    press("]")
    seen.page.wait_for_selector("#case h1 bdi:text-is('c')")
    press("[")
    seen.page.wait_for_selector("#case h1 bdi:text-is('a')")
    press("Escape")
    seen.page.wait_for_selector("#overview", state="visible")
    assert seen.page.evaluate("document.activeElement.innerText") == "a"
    assert seen.hash == "#q=is:diverging"
    press("?")
    assert seen.page.locator("#help").is_visible()
    press("Escape")
    assert not seen.page.locator("#help").is_visible()


def test_the_filter_can_be_downloaded(visit: Visitor, report: Path) -> None:
    seen = visit(report, "#q=is:diverging+subject:beta")
    with seen.page.expect_download() as download:
        seen.page.locator("[data-download=csv]").click()
    lines = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    assert [line["status"] for line in lines] == ["new", "errored", "stale", "known"]
    assert lines[0]["ratio"] == "5"
    assert lines[0]["dtype"] == "float16"
    assert lines[2]["case"] == "'=SUM(1)"
    with seen.page.expect_download() as download:
        seen.page.locator("[data-download=json]").click()
    records = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert [record["case"] for record in records] == ["a", "c", "=SUM(1)", "b"]
    assert records[0]["facts"]["mask"] == "causal"


def test_the_reproducer_can_be_copied(visit: Visitor, report: Path) -> None:
    seen = visit(report, permissions=["clipboard-read", "clipboard-write"])
    seen.open_first()
    seen.page.locator("[data-copy]").click()
    seen.page.wait_for_selector("text=Copied")
    assert seen.page.evaluate("navigator.clipboard.readText()") == "import numpy  # a"


def test_text_of_a_run_never_runs(visit: Visitor, report: Path) -> None:
    seen = visit(report, "#row=cases/plain.yaml::c[beta/mha]")
    seen.page.wait_for_selector("text=Traceback")
    assert seen.page.locator("#case img").count() == 0
    assert seen.page.evaluate("window.harm === undefined")
    assert "<script>window.harm=1</script>" in seen.page.locator("#case").inner_text()
    unknown = visit(report, "#row=<img src=x onerror=window.harm=1>")
    assert "No such case" in unknown.page.locator("#case").inner_text()
    assert unknown.page.evaluate("window.harm === undefined")


def test_the_tables_can_be_read_without_scripts(visit: Visitor, report: Path) -> None:
    seen = visit(report, java_script_enabled=False)
    assert "1 new divergence, 1 error, 1 stale ledger entry." in seen.page.locator("h1").inner_text()
    assert seen.page.locator(".matrix tbody tr").count() == 2
    assert seen.page.locator("#divergences tr[data-row]").count() == 5
    assert seen.page.locator("text=attn_output is off").first.is_visible()
    assert not seen.page.locator(".finder").is_visible()


def test_the_bound_is_taken_apart_on_the_page(visit: Visitor, report: Path) -> None:
    seen = visit(report, viewport={"width": 380, "height": 800})
    seen.open_first()
    panel, bound = seen.page.locator("section[aria-label='The bound']"), taken_apart()
    assert "attn_output[1, 2, 3]" in panel.inner_text() and "Σ|W|·ε" in panel.locator(".formula").inner_text()
    stages = panel.locator("tbody tr:not(.rule)")
    assert stages.locator("th").first.inner_text() == "query projection, scaled"
    added = [float(text) for text in stages.locator("td:nth-child(2)").all_inner_texts()]
    assert len(added) == len(bound["parts"]) == 7
    assert sum(added) == pytest.approx(bound["bound"], rel=0.01)
    assert float(panel.locator("tfoot td").first.inner_text()) == pytest.approx(bound["bound"], rel=0.01)
    widths = panel.locator(".share").evaluate_all("bars => bars.map((bar) => parseFloat(bar.style.width))")
    assert sum(widths) == pytest.approx(100, abs=0.5)
    box = panel.locator(".scroll")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), "all of it is read without scrolling sideways"
    seen.page.evaluate("location.hash = 'row=cases/blocked.yaml::b[beta/mha]'")
    seen.page.wait_for_selector("text=Known divergence")
    assert panel.count() == 0
