"""Visits to a report in a browser, with every network request refused."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route


@dataclass
class Visit:
    """An open report, with what went wrong in it."""

    page: Page
    faults: list[str] = field(default_factory=list)

    @property
    def hash(self) -> str:
        return str(self.page.evaluate("decodeURIComponent(location.hash)"))

    def listed(self) -> list[str]:
        return self.page.locator("#divergences tr[data-row]:visible .case").all_inner_texts()

    def open_first(self) -> None:
        self.page.locator("#divergences tr[data-row] a").first.click()
        self.page.wait_for_selector("#case .stage canvas")


def absent() -> str | None:
    """Why there is no browser to test in, or None."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed: pip install playwright"
    if shutil.which("chromium") is None:
        return "chromium is not installed: apt-get install chromium"
    return None


def need(reason: str | None) -> None:
    """Skip for a reason; in CI, where the report must be tested, fail for it."""
    if reason and os.environ.get("CI"):
        pytest.fail(f"{reason} (CI must test the report in a browser)")
    if reason:
        pytest.skip(reason)


class Visitor:
    """Opens pages and closes them; a fault in any page fails the test that opened it."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._visits: list[Visit] = []

    def __call__(self, path: Path, fragment: str = "", **options: Any) -> Visit:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = self._browser.new_context(accept_downloads=True, **options)
        visit = Visit(context.new_page())
        self._visits.append(visit)

        def judge(route: Route) -> None:
            if route.request.url.startswith(("file:", "data:", "blob:")):
                route.continue_()
                return
            visit.faults.append(f"asked the network for {route.request.url}")
            route.abort()

        context.route("**/*", judge)
        visit.page.on("pageerror", lambda error: visit.faults.append(str(error)))
        visit.page.on("console", lambda message: visit.faults.append(message.text) if message.type == "error" else None)
        visit.page.goto(f"{path.as_uri()}{fragment}")
        if options.get("java_script_enabled", True):
            visit.page.wait_for_selector("html[data-ready]")
        return visit

    def close(self) -> list[str]:
        for visit in self._visits:
            visit.page.context.close()
        return [fault for visit in self._visits for fault in visit.faults]
