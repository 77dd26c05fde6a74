"""The cost of a comparison beside the cost of its numerical calls alone.

``python -m benchmarks.floor`` runs, several times in turn, a straight script that makes the calls of the default
comparison (``benchmarks/floor_calls.py``), then ``pytest -n auto`` with an empty cache folder, then again with the full
one. Medians and ratios are printed, with the targets; ``--write`` puts them into docs/performance.md. Exit status 1
when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.page import PERFORMANCE, ROOT, Table
from benchmarks.processes import Cost, cost_of
from conformance.casefolder import case_files
from conformance.report.costs import JUDGING
from conformance.store import Run, latest_run, read_run

PYTEST = (sys.executable, "-m", "pytest")
CONFORMANCE = (sys.executable, "-m", "conformance")


@dataclass(frozen=True)
class Round:
    """The straight script, the first run, and the second with what the first one cached."""

    floor: Cost
    first: Cost
    second: Cost
    run: Run  # what the second recorded
    of_first: Run


@dataclass(frozen=True)
class Figure:
    """One figure: its name, its values in the rounds, its unit, and the largest that is allowed."""

    name: str
    values: tuple[float, ...]
    unit: str = ""
    target: float | None = None

    @property
    def value(self) -> float:
        return median(self.values)

    @property
    def missed(self) -> bool:
        return self.target is not None and self.value > self.target

    def line(self) -> str:
        """A line of a table in Markdown."""
        least, most = (f"{value:.3g}" for value in (min(self.values), max(self.values)))
        spread = least if least == most else f"{least} to {most}"
        target = "" if self.target is None else f"≤ {self.target:g}{self.unit}: {'missed' if self.missed else 'held'}"
        return f"| {self.name} | {self.value:.3g}{self.unit} | {spread} | {target} |"


def measured(files: Sequence[str], workers: str) -> Round:
    """One round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        floor = _succeeded(cost_of((sys.executable, "-m", "benchmarks.floor_calls", *files), ROOT), (0,))
        command = (*PYTEST, "-q", "-n", workers, f"--reports={folder / 'runs'}", "-o", f"cache_dir={folder / 'cache'}")
        costs, runs = [], []
        for _ in range(2):
            costs.append(_succeeded(cost_of((*command, *files), ROOT), (0, 1)))
            found = latest_run(folder / "runs")
            assert found is not None  # noqa: S101  # pytest has just written it
            runs.append(read_run(found))
        return Round(floor, costs[0], costs[1], runs[1], runs[0])


def figures_of(rounds: Sequence[Round]) -> Iterator[Figure]:
    """What is measured of whole comparisons."""

    def each(figure: Callable[[Round], float]) -> tuple[float, ...]:
        return tuple(figure(one) for one in rounds)

    yield Figure("straight script, CPU", each(lambda one: one.floor.cpu), " s")
    yield Figure("first run, CPU", each(lambda one: one.first.cpu), " s")
    yield Figure("second run, CPU", each(lambda one: one.second.cpu), " s")
    yield Figure("first run / script, CPU", each(lambda one: one.first.cpu / one.floor.cpu), target=1.15)
    yield Figure("first run / script, wall", each(lambda one: one.first.wall / one.floor.wall), target=0.65)
    yield Figure("second run / first run, CPU", each(lambda one: one.second.cpu / one.first.cpu), target=0.35)
    values = each(lambda one: 1000 * one.second.cpu / values_in(one.run))
    yield Figure("second run, CPU for each value comparison", values, " ms", target=2)
    share = each(lambda one: engine_seconds(one.of_first) / one.first.cpu)
    yield Figure("reference, bounds and comparison / first run", share, target=0.25)
    share = each(lambda one: engine_seconds(one.run) / one.second.cpu)
    yield Figure("reference, bounds and comparison / second run", share)
    yield Figure("largest process, first run", each(lambda one: one.first.memory / 2**30), " GiB", target=1.5)


def start_up() -> Iterator[Figure]:
    """What commands cost that run no framework, and collection for 10,000 pairs."""
    with tempfile.TemporaryDirectory() as name:
        collected = _succeeded(cost_of((*PYTEST, "--collect-only", "-q", f"--reports={name}"), ROOT), (0,))
        count = int(collected.output.splitlines()[-1].split()[0])
        only = _succeeded(cost_of((*PYTEST, "--collect-only", "-q", "cases/worked_example.yaml"), ROOT), (0,))
        yield Figure("collecting 10,000 pairs, CPU", ((collected.cpu - only.cpu) * 10_000 / count,), " s", target=1)
        small = (*PYTEST, "-q", f"--reports={name}", "cases/worked_example.yaml", "-k", "numpy")
        _succeeded(cost_of(small, ROOT), (0, 1))
        recorded = latest_run(Path(name))
        for words in (("--help",), ("check", "cases/causal.yaml"), ("report", str(recorded))):
            cost = _succeeded(cost_of((*CONFORMANCE, *words), ROOT), (0,))
            yield Figure(f"`python -m conformance {words[0]}`, CPU", (cost.cpu,), " s", target=0.5)


def values_in(run: Run) -> int:
    """How many outputs were compared with a reference."""
    return sum(len(row.measures) for row in run.rows)


def engine_seconds(run: Run) -> float:
    """CPU seconds of the stages that are this suite's own."""
    return sum(row.seconds.get(stage, 0.0) for row in run.rows for stage in JUDGING)


def lines_of(figures: Sequence[Figure], rounds: Sequence[Round]) -> Iterator[str]:
    """The table."""
    run = rounds[0].run
    files = ", ".join(Path(file).stem for file in dict.fromkeys(row.file for row in run.rows))
    yield f"{len(run.rows):,} pairs, {values_in(run):,} value comparisons; {len(rounds)} rounds. Case files: {files}."
    yield ""
    yield "| figure | median | range | target |"
    yield "|---|---|---|---|"
    yield from (figure.line() for figure in figures)


def _succeeded(cost: Cost, codes: Sequence[int]) -> Cost:
    if cost.code not in codes:
        sys.exit(f"a command ended with status {cost.code}:\n{cost.output[-2000:]}")
    return cost


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", default="auto", help="as for pytest -n")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="case files (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    options = parser.parse_args(arguments)
    files = options.files or [str(path.relative_to(ROOT)) for path in case_files(ROOT / "cases")]
    rounds = [measured(files, options.workers) for _ in range(options.rounds)]
    figures = [*figures_of(rounds), *start_up()]
    text = "\n".join(lines_of(figures, rounds)) + "\n"
    print(text, end="")
    if options.json is not None:
        options.json.write_text(json.dumps({figure.name: figure.values for figure in figures}, indent=1))
    if options.write:
        table = Table("floor", lambda: iter(text.splitlines()))
        PERFORMANCE.write_text(table.put(PERFORMANCE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
