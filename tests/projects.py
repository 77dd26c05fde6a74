"""Projects that tests of the plugin and of the command line write: case files, a ledger, and an announced adapter."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

import conformance.report.render
import conformance.report.terminal
import conformance.reproducer
import conformance.session  # noqa: F401  pytester forgets what its runs import: loaded here, they are loaded once
from conformance import adapter, casefolder, ledgerfile, pair, suite
from conformance.ledger import Entry
from conformance.store import Row, Run, latest_run, read_run

FAKE = Path(__file__).parent / "announced" / "fake_adapter.py"
WHY = "Each case here is for a subject of the tests."
ENTRY: dict[str, Any] = {
    "id": "off",
    "subjects": ["fake/off"],
    "shows": {"output": ["value"]},
    "versions": {"fakelib": "==1.*"},
    "reason": "A constant is added to one element of the output.",
    "since": "2026-01-01",
}


class Project:
    """A folder with ``cases/``, and a folder of an installed distribution that announces the fake adapters."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.root, self._monkeypatch = pytester, pytester.path, monkeypatch
        self.site = pytester.path / "site"
        (self.root / "cases").mkdir()
        pytester.makeini(
            "[pytest]\nfilterwarnings =\n    error\n"
            # pytest within pytest: the outer one has imported what the inner one would rewrite
            "    ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning\n"
            "addopts = --strict-markers -p no:cacheprovider -p no:randomly -p no:hypothesispytest\n"
        )
        for name in ("CI", "BUILD_NUMBER"):  # with these, pytest repeats every failure in full in its summary
            monkeypatch.delenv(name, raising=False)
        self.announce("fakelib", FAKE, fake="fake_adapter:ADAPTER", absent="fake_adapter:ABSENT")
        inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(self.site), *inherited]))
        monkeypatch.syspath_prepend(self.site)

    def announce(self, distribution: str, module: Path, **points: str) -> None:
        """Install a distribution whose entry points are adapters."""
        info = self.site / f"{distribution}-1.5.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{adapter.ENTRY_POINT_GROUP}]", *lines, ""]))
        shutil.copy(module, self.site / module.name)
        forget()

    def cases(self, name: str, *subjects: str, body: str = "include: [{name: one}]", suite: str | None = None) -> Path:
        """Write a case file for some subjects."""
        head = f"suite: {suite or name}\nwhy: {WHY}\nsubjects: [{', '.join(subjects)}]\nsubjects_why: {WHY}\n"
        return self.write(f"cases/{name}.yaml", head + dedent(body))

    def ledger(self, *entries: dict[str, Any]) -> Path:
        """Write a ledger; each entry is :data:`ENTRY` with changes, its id on a line of its own."""
        items = [json.dumps(ENTRY | changes, indent=1) for changes in entries]
        text = "known:\n" + "\n".join("  - " + indent(item, "    ").lstrip() for item in items)
        return self.write(f"cases/{casefolder.LEDGER}", text)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        forget()
        return path

    def pytest_here(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process, as if nothing had been read before."""
        forget()
        with self._monkeypatch.context() as context:
            context.delenv("PYTEST_ADDOPTS", raising=False)
            return self.pytester.runpytest_inprocess("-p", "no:xdist", *arguments)

    def pytest_apart(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own, with pytest-xdist."""
        return self.pytester.runpytest_subprocess(*arguments)

    def run(self) -> Run:
        """What the last run recorded."""
        folder = latest_run(self.root / "reports")
        assert folder is not None
        return read_run(folder)

    def statuses(self) -> dict[str, str]:
        return {row.node.partition("::")[2]: row.status for row in self.run().rows}


def output_of(result: pytest.RunResult) -> str:
    return "\n".join([*result.outlines, *result.errlines])


def row_of(project: Project, subject: str) -> Row:
    """The only row of a subject in the last run."""
    (row,) = [row for row in project.run().rows if row.subject == subject]
    return row


def forget() -> None:
    """Empty what a process keeps of case files, ledgers and adapters."""
    kept: tuple[Any, ...] = (adapter.adapters, adapter.adapter_of, adapter.load, pair._loaded)
    for function in (*kept, casefolder.cases_of, suite.select, ledgerfile.ledger_of):
        function.cache_clear()


def project_of(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    yield Project(pytester, monkeypatch)
    monkeypatch.undo()
    forget()


def entry(**changes: Any) -> Entry:
    """An entry of the ledger with changes to :data:`ENTRY`."""
    values = (
        {"when": {}, "unless": {}, "cases": (), "accuracy": {}, "gradients_of": (), "message": None, "link": None}
        | ENTRY
        | changes
    )
    return Entry(file="cases/known_divergences.yaml", line=2, **values)
