"""The pytest plugin: a YAML file in a folder named ``cases`` is a test file, a (case, subject) pair is a test.

This module imports nothing heavy: it is loaded in every pytest run of an environment, also in those of other
projects, which it leaves alone. The engine is imported when the first case file is met.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.environment import one_thread_each

if TYPE_CHECKING:
    from conformance.session import RunSession

CASES = "cases"
ENDINGS = (".yaml", ".yml")
FOLDER = "conformance_folder"
PROGRESS = "conformance_progress"
STATUS = "conformance_status"  # of a failing pair, among the properties of its report


@dataclass(frozen=True)
class Place:
    """Where and since when a run records."""

    folder: Path
    started: datetime


_PLACE: pytest.StashKey[Place] = pytest.StashKey()
_RUN: pytest.StashKey[RunSession] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attention-conformance")
    group.addoption("--full", action="store_true", help="give slow subjects every case instead of the stated sample")
    group.addoption("--no-cache", action="store_true", help="compile all anew: neither use nor fill the compile cache")
    group.addoption("--summary", metavar="FILE", default=None, help="append a summary in Markdown, for a CI job's page")
    group.addoption(
        "--reports", metavar="DIR", default=None, help="folder for runs and reports (default: ROOT/reports)"
    )
    group.addoption(
        "--progress",
        choices=("auto", "line", "off"),
        default="auto",
        help="instead of dots, in a run of case files alone: a line that a terminal rewrites and a log gets every 30 s "
        "unless -v is given (auto); the rewritten line in any case (line); dots (off)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Settle the folder of this run; it is made with the first row."""
    _refuse_misread_paths(config)
    _refuse_unwritable(config)
    started = datetime.now(UTC)
    reports = config.invocation_params.dir / (config.getoption("reports") or config.rootpath / "reports")
    own = str(reports / started.strftime("%Y%m%d-%H%M%S.%f"))
    config.stash[_PLACE] = Place(Path(getattr(config, "workerinput", {}).get(FOLDER, own)), started)


def _refuse_misread_paths(config: pytest.Config) -> None:
    """Raise UsageError where pytest, which looks for its settings before it knows the options of plugins, took the
    value of one for a test path: it then misses the settings of this folder, and so which tests are meant."""
    words, here = config.invocation_params.args, config.invocation_params.dir
    for option, value in pairwise(words):
        path = here / value
        if option in ("--reports", "--summary") and path.exists() and not path.resolve().is_relative_to(here.resolve()):
            raise pytest.UsageError(f"write {option}={value}: after a blank, pytest takes what exists for a test path")


def _refuse_unwritable(config: pytest.Config) -> None:
    """Raise UsageError where the folder of runs, or the summary, can neither be written nor made: after a run it is
    too late to say so."""
    for option in ("reports", "summary"):
        value = config.getoption(option)
        if value is None:
            continue
        path = config.invocation_params.dir / value
        nearest = next(part for part in (path, *path.parents) if os.access(part, os.F_OK))
        is_file = option == "summary" and nearest == path
        if not os.access(nearest, os.W_OK) or nearest.is_dir() == is_file:
            raise pytest.UsageError(f"--{option}={value} cannot be written: see {nearest}")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not _is_case_file(file_path):
        return None
    one_thread_each(os.environ)
    from conformance.items import collector_for

    return collector_for(file_path, parent)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each worker of pytest-xdist the folder of this run."""
    node.workerinput[FOLDER] = str(node.config.stash[_PLACE].folder)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, put cases for which frameworks compile the same side by side, whatever their files."""
    if _RUN in config.stash and hasattr(config, "workerinput"):
        from conformance.items import in_compile_order

        items[:] = in_compile_order(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    _show_progress(session.config, [item.nodeid for item in session.items])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    _show_progress(node.config, ids)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a framework in one worker: it is imported, and its functions compiled, once."""
    if config.getvalue("dist") != "load" or not _asks_for_cases(config):
        return None
    from conformance.scheduler import FrameworkScheduling

    return FrameworkScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport, sched: Any) -> None:
    """A worker that dies while it runs a pair leaves no row: the controller writes it."""
    config: pytest.Config = sched.config
    if _is_case_file(config.rootpath / crashitem.partition("::")[0]):
        session_of(config).crashed(crashitem, str(report.longrepr))


@pytest.hookimpl(trylast=True)  # after pytest-xdist has taken its workers down
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    controller = not hasattr(config, "workerinput")
    if _RUN not in config.stash and not (controller and config.stash[_PLACE].folder.is_dir()):
        return
    run = session_of(config)
    stopped = bool(session.shouldstop or session.shouldfail)
    run.finish(controller, complete=exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not stopped)
    if run.idle and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is None or not run.summary:
        return
    terminalreporter.section("attention conformance")
    for line in run.summary:
        terminalreporter.write_line(line)
    for line in run.idle:
        terminalreporter.write_line(f"FAILED {line}", red=True)


def session_of(config: pytest.Config) -> RunSession:
    """The run that this pytest process takes part in, made when first needed."""
    if _RUN not in config.stash:
        one_thread_each(os.environ)
        from conformance.session import RunSession

        place = config.stash[_PLACE]
        config.stash[_RUN] = RunSession.of(config, place.folder, place.started)
    return config.stash[_RUN]


def _show_progress(config: pytest.Config, nodes: Sequence[str]) -> None:
    """Show how far a run has come, if it is one of case files alone; with pytest-xdist, the controller does."""
    if hasattr(config, "workerinput") or not nodes or config.pluginmanager.has_plugin(PROGRESS):
        return
    if all(_is_case_file(config.rootpath / file) for file in {node.partition("::")[0] for node in nodes}):
        from conformance.progress import progress_of

        shown = progress_of(config, nodes)
        if shown is not None:
            config.pluginmanager.register(shown, PROGRESS)


def _is_case_file(path: Path) -> bool:
    return path.suffix in ENDINGS and path.parent.name == CASES


def _asks_for_cases(config: pytest.Config) -> bool:
    """Whether the arguments name a case file, a folder of them, or a folder above one."""
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        folder = path if path.name == CASES else path / CASES
        if _is_case_file(path) or any(next(folder.glob(f"*{ending}"), None) for ending in ENDINGS):
            return True
    return False
