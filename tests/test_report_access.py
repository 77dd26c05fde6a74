"""The report for everyone: contrast, names, keys, paper, narrow screens, and time."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from conformance.report.render import write_report
from tests.browsing import Visitor, need
from tests.synthetic_runs import large_run

pytest_plugins = ("tests.report_fixtures",)
WIDTHS = (380, 1280)
SCHEMES = ("light", "dark")

# The contrast of every visible text against the colour that stands behind it, by the formula of WCAG 2.
CONTRAST = """
() => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map((c) => top[c] * top[3] + under[c] * (1 - top[3]));
  const behind = (element) => {
    const stack = [];
    for (let e = element; e; e = e.parentElement) stack.unshift(rgba(getComputedStyle(e).backgroundColor));
    return stack.reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const failures = []; let seen = 0;
  for (const element of document.body.querySelectorAll("*")) {
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !element.checkVisibility() || element.closest("script, style, .aside, .skip")) continue;
    seen += 1;
    const paper = behind(element);
    const ink = over(rgba(getComputedStyle(element).color), paper);
    const [low, high] = [light(paper), light(ink)].sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) failures.push(`${ratio.toFixed(2)} ${element.className} ${element.textContent.slice(0, 30)}`);
  }
  return { seen, failures };
}
"""


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_is_legible_and_nothing_sticks_out(visit: Visitor, report: Path, width: int, scheme: str) -> None:
    seen = visit(report, viewport={"width": width, "height": 800}, color_scheme=scheme)
    seen.page.evaluate("for (const box of document.querySelectorAll('details')) box.open = true")
    for screen in ("overview", "case"):
        if screen == "case":
            seen.open_first()
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        found = seen.page.evaluate(CONTRAST)
        assert found["seen"] > 60
        assert found["failures"] == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("screen", ["overview", "case", "help"])
def test_axe_finds_nothing(visit: Visitor, report: Path, screen: str, scheme: str) -> None:
    package = importlib.util.find_spec("axe_playwright_python")
    need(None if package else "axe is not installed: pip install axe-playwright-python")
    assert package is not None
    assert package.origin is not None
    seen = visit(report, color_scheme=scheme)
    seen.page.evaluate("for (const box of document.querySelectorAll('details')) box.open = true")
    if screen == "case":
        seen.open_first()
    elif screen == "help":
        seen.page.keyboard.press("?")
    seen.page.evaluate((Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = seen.page.evaluate("axe.run(document)")
    assert len(found["passes"]) > 15
    assert [(item["id"], item["nodes"][0]["html"]) for item in found["violations"]] == []


def test_whatever_can_be_reached_has_a_name_and_a_visible_focus(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.open_first()
    nameless = seen.page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, canvas, [tabindex='0']")]
          .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    headings = seen.page.evaluate(
        "[...document.querySelectorAll('h1, h2')].filter((e) => e.checkVisibility()).map((e) => e.tagName)"
    )
    assert headings.count("H1") == 1
    seen.page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert seen.page.evaluate(outline) == "solid"


def test_paper_shows_no_controls(visit: Visitor, report: Path) -> None:
    seen = visit(report)
    seen.page.emulate_media(media="print")
    assert not seen.page.locator(".finder").is_visible()
    assert seen.page.locator(".matrix").is_visible()


def test_ten_thousand_rows_open_and_filter_quickly(visit: Visitor, tmp_path: Path) -> None:
    write_report(large_run(tmp_path), tmp_path / "large.html")
    started = time.perf_counter()
    seen = visit(tmp_path / "large.html")
    assert time.perf_counter() - started < 3
    rounds = [
        seen.page.evaluate(
            """() => ["subject:s1", "dtype:float16 kind:value", "mask:causal is:known", "T:=7", "is:agrees", ""]
          .map((words) => {
          const query = document.getElementById("query"); const begun = performance.now();
          query.value = words; query.dispatchEvent(new Event("input")); document.body.offsetHeight;
          return performance.now() - begun; })"""
        )
        for _ in range(6)
    ]
    spent = [min(times) for times in zip(*rounds, strict=True)]  # what the page costs, not what else the machine does
    assert max(spent) < 100, spent
