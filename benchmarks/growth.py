"""Do time, memory and files grow with the number of comparisons, and with nothing else?

``python -m benchmarks.growth`` writes folders with a case file of a few forms and ever new numbers, enough for about
1,000, 10,000 and 100,000 value comparisons, and runs ``pytest -n 2`` in each. What is compiled is kept from a first run
that is not counted. The table gives CPU and wall seconds, the memory of the largest worker, and the sizes of what was
written; ``--write`` puts it and a plot into docs/. Linux alone, since memory is read from /proc.

The exit status is 1 when a target is missed: ten times the comparisons take at most 11 times as long, CPU and wall; no
worker has more than 1.5 GiB; and while a worker imports no further framework, it is at most a twentieth larger in the
second half of its pairs than in the first, where it warms up.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.growth_plot import plot
from benchmarks.growth_runs import SUBJECTS, Growth, run_of
from benchmarks.page import PERFORMANCE, ROOT, Table

SIZES = (1_000, 10_000, 100_000)
SLOWER, CREEP, LARGEST = 1.1, 1.05, 1.5 * 2**30
PICTURE = "performance-growth.svg"


def missed(growths: Sequence[Growth]) -> Iterator[str]:
    """Targets that are missed, in words."""
    for one in growths:
        if one.peak > LARGEST:
            yield f"{one.values:,} comparisons: a worker has {one.peak / 2**30:.2f} GiB, 1.5 are allowed"
    for less, more in pairwise(growths):
        size = more.values / less.values
        for name in ("cpu", "wall"):
            factor = getattr(more, name) / getattr(less, name)
            if factor > SLOWER * size:
                yield f"{size:.1f} times the comparisons take {factor:.1f} times as long ({name})"
    for number, worker in enumerate(growths[-1].workers, 1):
        if worker.creep > CREEP:
            yield f"worker {number} is {worker.creep:.2f} times as large in the second half of its pairs"


def lines_of(growths: Sequence[Growth]) -> Iterator[str]:
    """The table; ``worker`` is the memory of the largest."""
    yield "| comparisons | pairs | CPU s | wall s | CPU ms each | worker | controller | report.html | results.jsonl |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for one in growths:
        each = 1000 * one.cpu / one.values
        memory = f"{one.peak / 2**20:,.0f} MiB | {one.controller.peak / 2**20:,.0f} MiB"
        files = f"{one.report / 1e6:.2f} MB | {one.results / 1e6:.2f} MB"
        yield f"| {one.values:,} | {one.pairs:,} | {one.cpu:.1f} | {one.wall:.1f} | {each:.2f} | {memory} | {files} |"


def measured(sizes: Sequence[int], subjects: Sequence[str]) -> Iterator[Growth]:
    """A run for each size, after one that fills the cache and tells how many values one repetition has."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = run_of(1, folder / "first", subjects, folder / "cache")
        if not first.values:
            sys.exit(f"no subject like {' '.join(subjects)} compared anything here")
        for number, size in enumerate(sizes):
            repetitions = max(1, round(size / first.values))
            yield run_of(repetitions, folder / str(number), subjects, folder / "cache")


def write(growths: Sequence[Growth], text: str) -> None:
    """Put table and plot into the documents."""
    table = Table("growth", lambda: iter(text.splitlines()))
    PERFORMANCE.write_text(table.put(PERFORMANCE.read_text("utf-8"), text), "utf-8")
    PERFORMANCE.with_name(PICTURE).write_text(plot(growths), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N", help="about how many comparisons")
    parser.add_argument("--subjects", nargs="+", default=SUBJECTS, metavar="PATTERN",
                        help=f"as in a case file (default: {' '.join(SUBJECTS)})")  # fmt: skip
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also write the plot there, as SVG")
    parser.add_argument("--write", action="store_true", help=f"put table and plot into {PERFORMANCE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    growths = tuple(measured(sorted(options.sizes), options.subjects))
    text = "\n".join(lines_of(growths)) + "\n"
    print(text, end="")
    if options.plot is not None:
        options.plot.write_text(plot(growths), "utf-8")
    if options.write:
        write(growths, text)
    found = list(missed(growths))
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
