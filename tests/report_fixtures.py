"""Fixtures of the tests in a browser: the browser, a way to visit pages, and a report to look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.report.changes import Comparison, Outcome, outcomes_of
from conformance.report.render import write_report
from conformance.store import Run
from tests.browsing import Visitor, absent, need
from tests.report_pages import taken_apart
from tests.synthetic_runs import HOSTILE, arrays, finding, row, run_of, with_tensors

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LEDGER = {"reason": "softmax over nothing", "link": "https://example.org/1", "versions": "beta <2", "since": "2026-01"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need(absent())
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    assert visitor.close() == []


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    causal = {"mask": "causal", "dtype": "float16"}
    blocked = finding("nan-blocked-row")
    rows = [
        row("a", facts=causal),
        with_tensors(folder, row("a", "beta/mha", "new", facts=causal, bound=taken_apart()), arrays()),
        row("b", "beta/mha", "known", ledger=LEDGER, findings=(blocked,), file="cases/blocked.yaml"),
        row("b", "alpha/mha", "known", ledger=LEDGER, findings=(blocked,), file="cases/blocked.yaml"),
        row("c", "beta/mha", "errored", summary=HOSTILE, traceback=HOSTILE, why=HOSTILE),
        row("=SUM(1)", "beta/mha", "stale", summary="it agrees now", ledger=LEDGER),
        row("e", "beta/mha", "unsupported", summary="no such mask"),
        row("g", summary="raised ValueError: lengths differ", measures=()),
        row("g", "beta/mha", summary="raised TypeError: no such mask", measures=()),
        *(row(f"f{number}") for number in range(250)),
    ]
    path = folder / "report.html"
    run = run_of(folder, rows)
    write_report(run, path, lambda given: f"import numpy  # {given.case}", earlier(run))
    return path


def earlier(run: Run) -> Comparison:
    """The run compared with one in which ``b[beta/mha]`` had failed, ``f0`` was better, ``f1`` was not there and
    ``old`` was."""
    now = outcomes_of(run)
    node = "cases/plain.yaml::{}[alpha/mha]".format
    old = {key: outcome for key, outcome in now.items() if key not in (node("f1"), "cases/plain.yaml::a[beta/mha]")}
    old |= {
        "cases/blocked.yaml::b[beta/mha]": Outcome("b[beta/mha]", "new", 5.0),
        node("f0"): Outcome("f0[alpha/mha]", "agrees", 0.1),
        node("old"): Outcome("old[alpha/mha]", "agrees", 0.1),
    }
    return Comparison.of("20260101-000000.000000", old, now)
