"""What a command costs with all of its processes: CPU seconds, wall seconds, and the memory of the largest."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux: what a command leaves behind is ours to wait for


@dataclass(frozen=True)
class Cost:
    """``cpu`` and ``wall`` in seconds, ``memory`` in bytes; ``code`` is the exit status and ``output`` what was
    printed."""

    cpu: float
    wall: float
    memory: int
    code: int
    output: str


def cost_of(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command in a folder, with variables added to the environment, and wait for every process it leaves."""
    reader = [sys.executable, "-m", "benchmarks.processes", *command]
    added = dict(environment or {})
    paths = [str(Path(__file__).resolve().parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # of an outer run
    own = {**inherited, "PYTHONPATH": os.pathsep.join(paths), **added}
    done = subprocess.run(reader, cwd=folder, env=own, capture_output=True, text=True, check=False)
    output, _, figures = done.stdout.rstrip("\n").rpartition("\n")
    cpu, wall, memory, code = figures.split()
    return Cost(float(cpu), float(wall), int(memory), int(code), output)


def main(command: Sequence[str]) -> None:
    """Run the command as the only child of this process and print its cost on the last line."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    started = time.perf_counter()
    code = subprocess.run(command, check=False).returncode
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    print(used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss * unit, code, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
