"""Runs of any size for ``benchmarks/growth.py``: a folder with one case file, and what a run in it took."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.floor import PYTEST, values_in
from benchmarks.processes import cost_of
from conformance.store import RESULTS, latest_run, read_run

SUBJECTS = ("numpy/*", "torch/*", "keras/mha", "jax/dpa@jit")
SIZES = ({"target_length": 4, "source_length": 6}, {"target_length": 7, "source_length": 7})
MASKS = (
    "none",
    {"causal": "top-left"},
    {"key_padding": {"lengths": [3, 6]}},
    {"explicit": {"pattern": "random", "axes": "TS"}},
)
REGIMES = ("normal", "tiny", "coherent", "dominant-key", "equal")
# Each process notes its resident memory in KiB, now and at most, with every twentieth pair that is done and at its end;
# also how many frameworks it has imported.
CONFTEST = """\
import json
import os
import sys
from pathlib import Path

FRAMEWORKS = ("torch", "tensorflow", "jax")
PROCESS = os.environ.get("PYTEST_XDIST_WORKER", "main")
STEP, DONE = 20, []


def note():
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    sizes = [int(found[name].split()[0]) for name in ("VmRSS", "VmHWM")]
    with Path(__file__).with_name(f"memory-{PROCESS}.jsonl").open("a") as stream:
        imported = sum(name in sys.modules for name in FRAMEWORKS)
        stream.write(json.dumps([len(DONE), *sizes, imported]) + "\\n")


def pytest_runtest_logfinish(nodeid):
    DONE.append(None)
    if len(DONE) % STEP == 1:
        note()


def pytest_unconfigure():
    note()
"""


@dataclass(frozen=True)
class Memory:
    """Resident memory of one process, in bytes, and the number of frameworks in it, after so many pairs; and the most
    that it ever was."""

    pairs: tuple[int, ...]
    sizes: tuple[int, ...]
    frameworks: tuple[int, ...]
    peak: int

    @property
    def creep(self) -> float:
        """The largest size in the second half of its longest time with the same frameworks, as a multiple of the
        largest in the first half, which has the warm-up: a worker that takes over others' pairs imports their
        framework."""
        number = max(set(self.frameworks), key=self.frameworks.count)
        sizes = [size for size, imported in zip(self.sizes, self.frameworks, strict=True) if imported == number]
        half = (len(sizes) + 1) // 2
        return max(sizes[half:], default=0) / max(sizes[:half])


@dataclass(frozen=True)
class Growth:
    """A run: value comparisons, pairs, seconds, bytes of what was written, and memory."""

    values: int
    pairs: int
    cpu: float
    wall: float
    report: int
    results: int
    controller: Memory
    workers: tuple[Memory, ...]

    @property
    def peak(self) -> int:
        """Memory of the largest worker, in bytes."""
        return max((worker.peak for worker in self.workers), default=0)


def run_of(repetitions: int, folder: Path, subjects: Sequence[str], cache: Path) -> Growth:
    """Write the cases of so many repetitions into ``folder`` and run them in two workers. Raises SystemExit when that
    fails, or records nothing."""
    (folder / "cases").mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / "conftest.py").write_text(CONFTEST, "utf-8")
    (folder / "cases" / "growth.yaml").write_text(case_file(repetitions, subjects), "utf-8")
    cost = cost_of((*PYTEST, "-q", "-n", "2", "--tb=no", "-o", f"cache_dir={cache}"), folder, {"OMP_NUM_THREADS": "1"})
    found = latest_run(folder / "reports")
    if found is None or cost.code not in (0, 1):
        sys.exit(f"pytest ended with status {cost.code}:\n{cost.output[-2000:]}")
    run = read_run(found)
    sizes = [(found / name).stat().st_size for name in ("report.html", RESULTS)]
    workers = tuple(memory_of(path) for path in sorted(folder.glob("memory-gw*.jsonl")))
    controller = memory_of(folder / "memory-main.jsonl")
    return Growth(values_in(run), len(run.rows), cost.cpu, cost.wall, sizes[0], sizes[1], controller, workers)


def case_file(repetitions: int, subjects: Sequence[str]) -> str:
    """Cases of the same few forms with ever new numbers, as YAML."""
    data = [{"regime": REGIMES[number % len(REGIMES)], "magnitude": 1 + number / 1024} for number in range(repetitions)]
    content = {
        "suite": "growth",
        "why": "The same few forms with ever new numbers, so that only the number of comparisons grows.",
        "subjects": list(subjects),
        "subjects_why": "Subjects that are quick for each pair, one that builds layers, and one that compiles.",
        "defaults": {"batch": 2, "embed_dim": 16, "num_heads": 4},
        "matrix": {"sizes": SIZES, "mask": MASKS, "data": data},
    }
    return json.dumps(content)  # which is YAML


def memory_of(path: Path) -> Memory:
    """What a process noted."""
    pairs, sizes, peaks, imported = zip(*map(json.loads, path.read_text("utf-8").splitlines()), strict=True)
    return Memory(pairs, tuple(1024 * size for size in sizes), imported, 1024 * max(peaks))
