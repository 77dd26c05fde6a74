"""Does a large report stay small and quick? Ten thousand rows, beside what pytest-html makes of the same rows.

::

    python -m benchmarks.report --run reports/20260101-120000.000000

Without ``--run`` the rows are made up, in the proportions of a whole run. Both reports are opened in turn in headless
Chromium; the table gives medians of three rounds. The exit status is 1 when this suite's report misses a target.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.page import PERFORMANCE, ROOT, Table
from benchmarks.report_rows import sampled, synthetic
from benchmarks.report_visits import OURS, PYTEST_HTML, Visit, chromium, visit
from conformance.report.render import write_report
from conformance.store import Run

ROWS, ROUNDS = 10_000, 3
OPENED, FILTERED, SIZE = 3_000, 100, 6_000_000  # milliseconds, milliseconds, bytes


@dataclass(frozen=True)
class Figures:
    """What is measured of one report: bytes, CPU seconds to write it, and its visits."""

    size: int
    written: float
    visits: tuple[Visit, ...]

    def middle(self, name: str) -> float:
        """The median of one figure over the visits."""
        return float(median(getattr(one, name) for one in self.visits))

    def missed(self) -> list[str]:
        """Targets that are missed, in words."""
        held = (
            (self.size, SIZE, "the file has {:,.0f} bytes, {:,.0f} are allowed"),
            (self.middle("opened"), OPENED, "it opens in {:,.0f} ms, {:,.0f} are allowed"),
            (self.middle("filtered"), FILTERED, "it filters in {:,.0f} ms, {:,.0f} are allowed"),
        )
        return [text.format(found, target) for found, target, text in held if found >= target]


def measured(run: Run, folder: Path) -> tuple[Figures, Figures]:
    """Our report and that of pytest-html of one run, written into ``folder`` and opened in turn."""
    own, other = folder / "report.html", folder / "pytest-html.html"
    own_seconds, other_seconds = _write_own(run, own), _write_other(run, other)
    counted = replace(PYTEST_HTML, ready=PYTEST_HTML.ready % len(run.rows))
    with chromium() as browser:
        rounds = [(visit(browser, own, OURS), visit(browser, other, counted)) for _ in range(ROUNDS)]
    of_own, of_other = zip(*rounds, strict=True)
    return (
        Figures(own.stat().st_size, own_seconds, of_own),
        Figures(other.stat().st_size, other_seconds, of_other),
    )


def _write_own(run: Run, path: Path) -> float:
    start = time.process_time()
    write_report(run, path, run.script)
    return time.process_time() - start


def _write_other(run: Run, path: Path) -> float:
    """CPU seconds by which a replay of the run takes longer with the report than without."""
    without = _replay(run, path.parent)
    return _replay(run, path.parent, f"--html={path}", "--self-contained-html") - without


def _replay(run: Run, folder: Path, *options: str) -> float:
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    plugins = ["-p", "no:attention_conformance", "-p", "no:cacheprovider", "-p", "benchmarks.report_replay"]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", *plugins, f"--replay={run.folder}", *options]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    start = _seconds_of_children()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest-html could not be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return _seconds_of_children() - start


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines(rows: int, own: Figures, other: Figures) -> Iterator[str]:
    """The table, in Markdown."""
    shown: list[tuple[str, str, Callable[[Figures], str]]] = [
        ("size of the file", "< 6 MB", lambda one: f"{one.size / 1e6:.2f} MB"),
        ("from navigation to use", "< 3 s", lambda one: f"{one.middle('opened') / 1e3:.2f} s"),
        ("slowest filtering, layout included", "< 100 ms", lambda one: f"{one.middle('filtered'):.0f} ms"),
        ("heap of JavaScript", "", lambda one: f"{one.middle('heap') / 1e6:.0f} MB"),
        ("CPU time to write it", "", lambda one: f"{one.written:.1f} s"),
    ]
    yield f"| {rows:,} rows | target | this report | pytest-html {version('pytest-html')} |"
    yield "|---|---:|---:|---:|"
    for name, target, text in shown:
        yield f"| {name} | {target} | {text(own)} | {text(other)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="a recorded run to take rows of; else made-up rows")
    parser.add_argument("--rows", type=int, default=ROWS, help="how many; 0 for all of a recorded run (10,000)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = synthetic(options.rows, folder) if options.run is None else sampled(options.run, options.rows, folder)
        own, other = measured(run, folder)
    table = Table("report", lambda: lines(len(run.rows), own, other))
    text = "\n".join(table.lines()) + "\n"
    print(text, end="")
    if options.write:
        PERFORMANCE.write_text(table.put(PERFORMANCE.read_text("utf-8"), text), "utf-8")
    missed = own.missed()
    print(*missed, sep="\n", file=sys.stderr, end="\n" if missed else "")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
