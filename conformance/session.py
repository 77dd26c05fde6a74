"""The run that one pytest process takes part in: its folder, its rows, and at the end the report."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance import compilecache, environment
from conformance.adapter import adapter_of, adapters, load
from conformance.pair import Conclusion, Pair, crash_row
from conformance.run import policy_of
from conformance.store import Header, Recorder, Row, Run, combine, finished_runs
from conformance.suite import SAMPLED, find_pair, idle_entries
from conformance.verdict import Diverges, Verdict

if TYPE_CHECKING:
    from conformance.report.changes import Comparison

KEPT_RUNS = 10
SCRIPTS_OF_A_KIND = 3
SUMMARY_WIDTH = 100  # columns, where the terminal has as many
LARGEST_SCRIPT = 90_000  # characters of a reproducer that is stored; the command line writes the larger ones anew
DIVERGING = ("new", "stale", "known", "errored")


@dataclass
class RunSession:
    """State of a run in one process. The controller of pytest-xdist records only crashes, and combines what workers
    wrote."""

    folder: Path
    root: Path
    process: str
    full: bool
    started: datetime
    page: Path | None = None  # to which a summary in Markdown is appended
    cache: Path | None = None  # folder of what frameworks compiled
    durations: int | None = None  # how many of the dearest subjects and suites the summary lists, 0 for all
    recorder: Recorder | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    scripts: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    summary: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)  # ledger entries that a whole run never showed

    @classmethod
    def of(cls, config: pytest.Config, folder: Path, started: datetime) -> RunSession:
        worker: Mapping[str, Any] = getattr(config, "workerinput", {})
        page, cache = config.getoption("summary"), _cache_of(config)
        compilecache.offer(os.environ, cache)
        config.add_cleanup(lambda: compilecache.offer(os.environ, None))
        return cls(
            folder,
            config.rootpath,
            worker.get("workerid", "main"),
            config.getoption("full"),
            started,
            None if page is None else config.invocation_params.dir / page,
            cache,
            config.getoption("durations", None),
        )

    def record(self, pair: Pair, conclusion: Conclusion) -> None:
        """Write the row of a pair; the folder is made with the first one."""
        row, tensors, script = conclusion.row, None, None
        if row.status in DIVERGING:
            tensors, script = conclusion.outcome.tensors, _script(pair) if self._wants_script(row) else None
            row = replace(row, bound=_bound(pair, conclusion.outcome.verdict))
        recorder = self._recorder()
        recorder.learn(conclusion.versions)
        recorder.record(row, tensors, script)

    def crashed(self, node: str, message: str) -> None:
        """Write the row of a pair during which a worker died."""
        pair = find_pair(node, [self.root / node.partition("::")[0]], self.root)
        if pair is not None:
            self._recorder().record(crash_row(pair, message))

    def sample(self, left_out: Mapping[str, int]) -> None:
        """Count pairs that were left out because their subject is slow."""
        for subject, count in left_out.items():
            self.left_out[subject] = self.left_out.get(subject, 0) + count

    def finish(self, controller: bool, complete: bool) -> None:
        """Close this process's rows; in the controller, combine all rows and write the report."""
        if self.recorder is not None:
            self.recorder.close()
        if controller and self.folder.is_dir():
            from conformance.report.earlier import comparison, earlier_run

            run = combine(self.folder, self.header(complete))
            against = earlier_run(run)
            self.summary = publish(run, self.folder / "report.html", self.page, comparison(run, against))
            if self.durations is not None:
                from conformance.report.costs import cost_lines

                self.summary += cost_lines(run.rows, self.durations)
            self.idle = [
                f"{entry.file}:{entry.line}: the ledger entry {entry.id} was not shown by any pair that it covers: "
                "remove or correct it"
                for entry in idle_entries(run.rows, run.header.versions, self.root, self.full)
            ]
            _forget_old_runs(self.folder, against)
            if self.cache is not None:
                compilecache.prune(self.cache)

    def header(self, complete: bool) -> Header:
        """The header without what workers noted: versions of subjects, and pairs that were left out."""
        return Header(
            started=self.started.isoformat(timespec="seconds"),
            command=shlex.join(["pytest", *sys.argv[1:]]),
            complete=complete,
            versions=environment.engine_versions(),
            environment=environment.describe(self.root),
            missing=tuple(
                {"framework": adapter.framework, "modules": list(adapter.missing), "install": adapter.install}
                for adapter in adapters()
                if adapter.missing
            ),
            wall_seconds=time.time() - self.started.timestamp(),
        )

    def _wants_script(self, row: Row) -> bool:
        """Scripts hold all numbers of a case: of known divergences of one kind, a few are enough."""
        if row.status != "known":
            return True
        kind = (row.subject, row.entries, row.facts["dtype"], row.facts["mask"])
        self.scripts[kind] += 1
        return self.scripts[kind] <= SCRIPTS_OF_A_KIND

    def _recorder(self) -> Recorder:
        if self.recorder is None:
            sampled = [
                {
                    "subject": subject,
                    "left_out": count,
                    "reason": SAMPLED.format(tag=adapter_of(subject).slow[subject]),
                }
                for subject, count in self.left_out.items()
            ]
            self.recorder = Recorder(self.folder, self.process, sampled)
        return self.recorder


def _cache_of(config: pytest.Config) -> Path | None:
    """A folder in pytest's own cache, which ``--cache-clear`` empties; None where the user wants none."""
    if config.getoption("no_cache") or not hasattr(config, "cache"):
        return None
    return Path(config.cache.mkdir("compiled"))


def publish(run: Run, path: Path, page: Path | None = None, compared: Comparison | None = None) -> list[str]:
    """Write a run's HTML report, and append its summary to ``page``; the lines of the terminal summary.

    ``compared`` is the comparison with an earlier run.
    """
    from conformance.report.markdown import append_summary
    from conformance.report.render import write_report
    from conformance.report.terminal import summary_lines

    run = replace(run, header=replace(run.header, since=compared.sentence if compared else ""))
    write_report(run, path, run.script, compared)
    if page is not None:
        append_summary(run, page)
    return summary_lines(run, path, min(SUMMARY_WIDTH, shutil.get_terminal_size((SUMMARY_WIDTH, 0)).columns))


def _script(pair: Pair) -> str | None:
    """The reproducer, written while the framework is loaded and the reference is at hand. It is an aid: what goes
    wrong in writing it must not cost the row."""
    from conformance.reproducer import script_of

    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = script_of(pair)
        if script is not None and len(script) <= LARGEST_SCRIPT:
            return script
    return None


def _bound(pair: Pair, verdict: Verdict) -> dict[str, Any] | None:
    """The worst element's bound as a formula, likewise an aid."""
    from conformance.formula import formula_of

    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(verdict, Diverges):
            return formula_of(pair.case, policy_of(load(pair.subject)), verdict.findings)
    return None


def _forget_old_runs(own: Path, against: Path | None) -> None:
    """Keep the newest runs only, and in any case this one and that with which it was compared."""
    for old in finished_runs(own.parent)[:-KEPT_RUNS]:
        if old not in (own, against):
            shutil.rmtree(old)
