"""Reports opened and filtered in headless Chromium, by the clock of the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_OPENED = """async () => {
  while (!(%s)) await new Promise(requestAnimationFrame);
  document.documentElement.offsetHeight;
  return performance.now();
}"""
_DONE = """(action) => {
  const start = performance.now();
  %s;
  document.documentElement.offsetHeight;
  return performance.now() - start;
}"""


@dataclass(frozen=True)
class Kind:
    """How one kind of report says that it can be used, and how it is filtered; times end with the layout."""

    ready: str  # an expression in JavaScript
    act: str  # statements that filter by ``action``
    actions: Sequence[str]


OURS = Kind(
    ready="document.documentElement?.dataset.ready",
    act="""const box = document.getElementById("query");
  box.value = action;
  box.dispatchEvent(new Event("input"))""",
    actions=("s", "subject:torch", "kind:value dtype:float16", "is:known", "is:agrees", "causal", "-mask:none", ""),
)
PYTEST_HTML = Kind(
    ready='document.querySelectorAll("#results-table tbody").length >= %d',
    act="document.querySelector(`input[data-test-result=${action}]`).click()",
    actions=("passed", "skipped"),  # seconds each
)


@dataclass(frozen=True)
class Visit:
    """Milliseconds from navigation to the first use and of the slowest filtering, and bytes of JavaScript's heap."""

    opened: float
    filtered: float
    heap: float


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser. Raises FileNotFoundError without Chromium."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    if found is None:
        raise FileNotFoundError("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def visit(browser: Browser, path: Path, kind: Kind) -> Visit:
    """Open a report in a context of its own, and filter it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri(), wait_until="commit", timeout=120_000)
    opened = page.evaluate(_OPENED % kind.ready)
    heap = _heap(context.new_cdp_session(page))
    filtered = max(page.evaluate(_DONE % kind.act, action) for action in kind.actions)
    context.close()
    return Visit(float(opened), float(filtered), heap)


def _heap(session: Any) -> float:
    """Bytes that JavaScript uses, after a collection of garbage."""
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize"))
