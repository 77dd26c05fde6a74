"""How far a run has come: one line instead of a dot for each of many thousand pairs.

In a terminal the line is rewritten in place, at most ten times a second; elsewhere, as in the log of a CI job, one is
printed every 30 seconds. What diverges and is not known is named at once on a line that stays. Everything else that
pytest prints, and every file that it writes, is as it would be without.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TextIO

import pytest

from conformance.plugin import STATUS
from conformance.report.text import clipped, one_line

REWRITTEN_EVERY, PRINTED_EVERY = 0.1, 30.0  # seconds
NAMED = 25  # divergences with a line of their own; pytest lists all of them at the end
FAILING = ("new", "errored", "stale", "failed")
CRASHED = "???"  # the stage of pytest-xdist's report on a pair during which its worker died
LEAST = 8  # columns that are worth a word on what runs
HERE = "main"  # the worker of a run without pytest-xdist
Status = tuple[str, str, str | tuple[str, Any]]  # category, letter, word


def progress_of(config: pytest.Config, nodes: Sequence[str]) -> Progress | None:
    """The plugin that shows progress over some node ids, or None where there is nothing to show it on or no wish to."""
    wish, reporter = config.getoption("progress"), config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or wish == "off" or (wish == "auto" and config.get_verbosity() > 0):
        return None
    reporter.showfspath = False  # the name of a file, after which its dots would follow
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    parallel = config.pluginmanager.has_plugin("dsession")
    return Progress(reporter, sys.stdout, Tally(len(set(nodes))), wish == "line" or terminal, parallel)


@dataclass
class Tally:
    """What is known of a run that goes on; times in seconds."""

    total: int
    clock: Callable[[], float] = time.monotonic
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    running: dict[str, str] = field(default_factory=dict)  # by worker, what it was last heard of with
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def take(self, report: pytest.TestReport) -> str:
        """Count a report; the status of a pair that fails, when it is its first failure, else nothing."""
        if report.passed and report.when != "call":
            return ""
        first, known = report.nodeid not in self.done, hasattr(report, "wasxfail")
        self.done.add(report.nodeid)
        self.counts["known"] += first and known and report.skipped
        if not report.failed or report.nodeid in self.failed:
            return ""
        self.failed.add(report.nodeid)
        status = "errored" if report.when == CRASHED else str(dict(report.user_properties).get(STATUS, "failed"))
        self.counts[status] += 1
        return status

    @property
    def elapsed(self) -> float:
        return self.clock() - self.started

    @property
    def words(self) -> Iterator[str]:
        """How far it is, what was found, how long it took, and how long the rest takes at the same pace."""
        done = len(self.done)
        yield f"{100 * done // self.total:3d} % {done:,}/{self.total:,}"
        yield f"new {self.counts['new']:,}"
        yield from (f"{status} {self.counts[status]:,}" for status in FAILING[1:] if self.counts[status])
        yield f"known {self.counts['known']:,}"
        rest = f", {clock_text(self.elapsed / done * (self.total - done))} left" if done else ""
        yield f"{clock_text(self.elapsed)}{rest}"

    @property
    def workers(self) -> str:
        """``gw0 torch/mha causal · gw1 jax/dpa window``."""
        return " · ".join(
            label if worker == HERE else f"{worker} {label}" for worker, label in sorted(self.running.items())
        )


class Progress:
    """Hooks of pytest, in the process that speaks to the user, of a run of case files alone."""

    def __init__(self, reporter: Any, stream: TextIO, tally: Tally, rewritten: bool, parallel: bool) -> None:
        self.tally = tally
        self._reporter, self._stream, self._rewritten, self._parallel = reporter, stream, rewritten, parallel
        self._shown = 0  # characters of the line that stands in the terminal
        self._next = tally.clock() + (0.0 if rewritten else PRINTED_EVERY)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """A pair is counted as ever, without a letter."""
        category, _, _ = yield
        return category, "", ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self._parallel:
            self.tally.running[HERE] = _label(nodeid)
            self._show()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._parallel and report.when != CRASHED:
            self.tally.running[report.node.gateway.id] = _label(report.nodeid)
        status = self.tally.take(report)
        if status:
            self._name(status, report)
        if report.when != CRASHED:  # of which pytest-xdist has more to say
            self._show(at_once=bool(status) or len(self.tally.done) == self.tally.total)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        """Before pytest 9, the last of them is when 100 % is written."""
        if len(self.tally.done) == self.tally.total:
            self._clear()

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.tally.running.pop(node.gateway.id, None)
        self._clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self) -> None:
        self._clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Leave the terminal, and the words for a status, to what is printed at the end."""
        self._clear()
        session.config.pluginmanager.unregister(self)

    def _name(self, status: str, report: pytest.TestReport) -> None:
        """A line that stays, about a pair that fails."""
        self._clear()
        number = len(self.tally.failed)
        if number <= NAMED:
            self._reporter.write_line(clipped(f"{status:<8} {_found(report)}", self._width), red=True)
        elif number == NAMED + 1:
            self._reporter.write_line("more are counted here, and listed at the end")

    def _show(self, at_once: bool = False) -> None:
        now = self.tally.clock()
        if not self._rewritten:
            if now >= self._next:
                self._reporter.write_line(self._line(str))
                self._next = now + PRINTED_EVERY
        elif at_once or now >= self._next:
            length = len(self._line(str))
            self._write("\r" + self._line(self._coloured) + " " * (self._shown - length))
            self._shown = max(length, self._shown)
            self._next = now + REWRITTEN_EVERY

    def _line(self, styled: Callable[[str], str]) -> str:
        words = [*self.tally.words]
        while len(words) > 1 and len("  ".join(words)) > self._width:  # a line that breaks cannot be rewritten
            words.pop()
        room = self._width - len("  ".join(words)) - 2
        running = [clipped(one_line(self.tally.workers), room)] if room > LEAST and self.tally.running else []
        return "  ".join([*map(styled, words), *running])

    def _coloured(self, word: str) -> str:
        name, _, number = word.partition(" ")
        writer = self._reporter.config.get_terminal_writer()
        return str(writer.markup(word, red=True, bold=True)) if name in FAILING and number != "0" else word

    def _clear(self) -> None:
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        """To the terminal itself: pytest would take the line for text that has to be finished before its own."""
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()

    @property
    def _width(self) -> int:
        """Columns that a line may take without being broken."""
        return shutil.get_terminal_size().columns - 1


def clock_text(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _label(node: str) -> str:
    """Subject and topic of a pair: ``torch/mha causal`` of ``cases/causal.yaml::T3[torch/mha]``."""
    file, _, name = node.partition("::")
    return f"{name.rpartition('[')[2].removesuffix(']')} {PurePosixPath(file).stem}"


def _found(report: pytest.TestReport) -> str:
    """The first line of a failure that is text; of another one, whose first line would say little, the node id."""
    text = report.longrepr if isinstance(report.longrepr, str) else report.nodeid
    return one_line(text.partition("\n")[0])
