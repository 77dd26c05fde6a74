"""The pictures of the report that the README shows: its first screen and a case's page, in light and dark.

``python -m benchmarks.screenshots RUN ID`` takes them of a recorded run, the case's page being that of the pair with
that id. Look at them before you commit them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, ViewportSize, sync_playwright

from benchmarks.page import ROOT
from conformance.store import read_run

FOLDER = ROOT / "docs" / "pictures"
SIZE = ViewportSize(width=1240, height=900)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("id", help="such as 'suite/case[framework/subject]'")
    options = parser.parse_args(arguments)
    nodes = [row.node for row in read_run(options.run).rows if options.id == f"{row.case}[{row.subject}]"]
    if not nodes:
        parser.error(f"{options.run} holds no pair {options.id}")
    FOLDER.mkdir(exist_ok=True)
    address = (options.run / "report.html").resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(address)
            page.wait_for_selector("html[data-ready]")
            _take(page, f"report-{scheme}")
            page.goto(f"{address}#{urlencode({'row': nodes[0]})}")
            page.wait_for_selector("#case .stage canvas")
            page.evaluate("document.querySelector('#case [aria-label=\"Where it differs\"]').scrollIntoView()")
            _take(page, f"case-{scheme}")
        browser.close()
    return 0


def _take(page: Page, name: str) -> None:
    page.wait_for_timeout(300)  # until fonts and canvases are drawn
    page.screenshot(path=FOLDER / f"{name}.png")
    print(FOLDER / f"{name}.png")


if __name__ == "__main__":
    raise SystemExit(main())
