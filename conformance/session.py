"""The run that one pytest process takes part in: its folder, its rows, and at the end the report."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from conformance import environment
from conformance.adapter import adapters
from conformance.ledger import installed
from conformance.pair import Conclusion
from conformance.store import Header, Recorder, Run, combine

KEPT_RUNS = 10


@dataclass
class RunSession:
    """State of a run in one process. The controller of pytest-xdist records nothing and combines what workers wrote."""

    folder: Path
    root: Path
    process: str
    full: bool
    started: datetime
    recorder: Recorder | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, config: pytest.Config) -> RunSession:
        worker: Mapping[str, Any] = getattr(config, "workerinput", {})
        started = datetime.now(UTC)
        reports = Path(config.getoption("reports") or config.rootpath / "reports")
        own = str(reports / started.strftime("%Y%m%d-%H%M%S.%f"))
        folder = Path(worker.get("conformance_folder", own))
        return cls(folder, config.rootpath, worker.get("workerid", "main"), config.getoption("full"), started)

    def record(self, conclusion: Conclusion) -> None:
        """Write the row of a pair; the folder is made with the first one."""
        if self.recorder is None:
            self.recorder = Recorder(self.folder, self.process)
        kept = conclusion.row.status in ("new", "stale", "known")
        self.recorder.record(conclusion.row, conclusion.outcome.tensors if kept else None)

    def sample(self, left_out: Mapping[str, int]) -> None:
        """Count pairs that were left out because their subject is slow."""
        for subject, count in left_out.items():
            self.left_out[subject] = self.left_out.get(subject, 0) + count

    def finish(self, controller: bool, complete: bool) -> None:
        """Close this process's rows; in the controller, combine all rows and write the report."""
        if self.recorder is not None:
            self.recorder.close()
        if self.folder.is_dir() and self.left_out:
            (self.folder / f"sampled-{self.process}.json").write_text(json.dumps(self.left_out), encoding="utf-8")
        if controller and self.folder.is_dir():
            run = combine(self.folder, self.header(complete))
            self.summary = publish(run, self.folder / "report.html", self.root)
            _forget_old_runs(self.folder.parent)

    def header(self, complete: bool) -> Header:
        from conformance.suite import SAMPLED

        missing = [adapter for adapter in adapters() if adapter.missing]
        found = [module for adapter in adapters() for module in adapter.modules]
        sampled = self._sampled()
        return Header(
            started=self.started.isoformat(timespec="seconds"),
            command=shlex.join(["pytest", *sys.argv[1:]]),
            complete=complete,
            versions=environment.engine_versions() | installed(found),
            environment=environment.describe(self.root),
            missing=tuple(
                {"framework": adapter.framework, "modules": list(adapter.missing), "install": adapter.install}
                for adapter in missing
            ),
            sampled=tuple(
                {"subject": subject, "left_out": count, "reason": SAMPLED} for subject, count in sampled.items()
            ),
            wall_seconds=time.time() - self.started.timestamp(),
        )

    def _sampled(self) -> dict[str, int]:
        """Counts of left-out pairs; every worker collects everything, so any one of them has the full count."""
        for path in sorted(self.folder.glob("sampled-*.json")):
            self.left_out = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
        return dict(sorted(self.left_out.items()))


def publish(run: Run, path: Path, root: Path) -> list[str]:
    """Write a run's HTML report; the lines of the terminal summary."""
    from conformance.report.render import write_report
    from conformance.report.terminal import summary_lines
    from conformance.reproducer import reproducer_for

    write_report(run, path, reproducer_for(root))
    return summary_lines(run, path)


def _forget_old_runs(reports: Path) -> None:
    """Keep the newest runs only."""
    import shutil

    runs = sorted(path for path in reports.iterdir() if path.is_dir() and (path / "results.jsonl").exists())
    for old in runs[:-KEPT_RUNS]:
        shutil.rmtree(old)
