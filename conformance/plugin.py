"""The pytest plugin: a YAML file in a folder named ``cases`` is a test file, a (case, subject) pair is a test.

This module imports nothing heavy: it is loaded in every pytest run of an environment, also in those of other
projects. The engine is imported when the first case file is met.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.environment import one_thread_each

if TYPE_CHECKING:
    from conformance.session import RunSession

CASES = "cases"
WORKER = "PYTEST_XDIST_WORKER"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attention-conformance")
    group.addoption("--full", action="store_true", help="give slow subjects every case instead of the stated sample")
    group.addoption("--reports", metavar="DIR", default=None, help="folder for runs and reports (default: ROOT/reports)")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in (".yaml", ".yml") or file_path.parent.name != CASES:
        return None
    one_thread_each(os.environ)
    from conformance.items import collector_for

    return collector_for(file_path, parent)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each worker of pytest-xdist the folder of this run."""
    one_thread_each(os.environ)
    node.workerinput["conformance_folder"] = str(_session(node.config).folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a framework in one worker: it is imported, and its functions compiled, once."""
    if config.getvalue("dist") != "load":
        return None
    from conformance.scheduler import FrameworkScheduling

    return FrameworkScheduling(config, log)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash.get(_KEY, None)
    if run is not None:
        stopped = bool(session.shouldstop or session.shouldfail)
        run.finish(controller=WORKER not in os.environ, complete=exitstatus in (0, 1) and not stopped)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(_KEY, None)
    if run is not None and run.summary:
        terminalreporter.section("attention conformance")
        for line in run.summary:
            terminalreporter.write_line(line)


_KEY: pytest.StashKey[RunSession] = pytest.StashKey()


def _session(config: pytest.Config) -> RunSession:
    """The run that this pytest process takes part in, made when first needed."""
    if _KEY not in config.stash:
        from conformance.session import RunSession

        config.stash[_KEY] = RunSession.of(config)
    return config.stash[_KEY]
