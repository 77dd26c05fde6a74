"""What a value comparison costs here, and in the attention tests of the libraries themselves.

``python -m benchmarks.peers`` runs, several times in turn: each peer's tests that are installed, ``pytest -n auto`` on
some case files with an empty cache folder, and again with the full one; each in fresh processes, start-up included. A
value comparison is one output of one call compared as a whole. The table gives medians of CPU milliseconds for each.

The wheels of PyTorch and JAX ship no tests of their layers; ``--pytorch`` and ``--jax`` name checkouts of their
sources. ONNX is no dependency: ``pip install --no-deps --target FOLDER onnx expecttest`` with ``PYTHONPATH=FOLDER``
keeps the environment (expecttest is what PyTorch's samples import). The exit status is 1 when the second run is not
ahead of every peer; with ``--files all`` also when it costs more than 2 ms for each comparison.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.floor import PYTEST, values_in
from benchmarks.page import PERFORMANCE, ROOT, Table
from benchmarks.peer_tests import COUNTED, PEERS
from benchmarks.processes import Cost, cost_of
from conformance.casefolder import case_files
from conformance.store import latest_run, read_run

FILES = ("causal", "cross_attention", "gradients", "key_padding", "precision")
TARGET = 2.0  # CPU milliseconds for each value comparison of the whole matrix, second run
FIRST, SECOND = "this suite, first run", "this suite, second run"


@dataclass(frozen=True)
class Peer:
    """Tests that ``benchmarks.peer_tests`` knows by ``key``, or the reason why they cannot run."""

    key: str
    name: str
    folder: Path | None = None
    missing: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.key,) if self.folder is None else (self.key, str(self.folder))


@dataclass
class Figure:
    """What the rounds found of one side: CPU seconds and value comparisons of each."""

    name: str
    seconds: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    missing: str | None = None

    def add(self, cost: Cost, count: int) -> None:
        """Note a round; one without comparisons says why the side is left out."""
        if not count or cost.code not in (0, 1):  # 1: tests failed, and were run
            last = cost.output.strip().rpartition("\n")[2]
            self.missing = f"its tests ended with status {cost.code} and {count} comparisons: {last}"
        self.seconds.append(cost.cpu)
        self.counts.append(count)

    @property
    def each(self) -> list[float]:
        """CPU milliseconds for each value comparison, of every round."""
        return [1000 * seconds / count for seconds, count in zip(self.seconds, self.counts, strict=True)]

    def line(self) -> str:
        if self.missing is not None:
            return f"| {self.name} | — | — | — | {self.missing} |"
        least, most = (f"{value:.3g}" for value in (min(self.each), max(self.each)))
        count, seconds = median(self.counts), median(self.seconds)
        return f"| {self.name} | {count:,.0f} | {seconds:.1f} | {median(self.each):.3g} | {least} to {most} |"


def peers_of(pytorch: Path | None, jax: Path | None) -> Iterator[Peer]:
    """Every peer; PyTorch and JAX by checkouts of their sources."""
    yield Peer("onnx", "ONNX: node tests of Attention, reference evaluator", missing=_absent("onnx"))
    yield Peer("torch-samples", "PyTorch: samples of SDPA and MHA", missing=_absent("torch", "expecttest"))
    yield _keras("keras", "Keras: tests of its attention layers, TensorFlow")
    yield _checkout("torch", "PyTorch: tests of MultiheadAttention", pytorch, "--pytorch")
    yield _checkout("jax", "JAX: tests of dot_product_attention", jax, "--jax")


def _keras(key: str, name: str) -> Peer:
    absent, found = _absent("keras", "tensorflow"), find_spec("keras")
    if absent is not None or found is None or found.origin is None:
        return Peer(key, name, missing=absent)
    folder = Path(found.origin).parent / "src" / "layers" / "attention"
    shipped = (folder / "multi_head_attention_test.py").exists()
    return Peer(key, name, folder, None if shipped else "this release ships no tests")


def _checkout(key: str, name: str, folder: Path | None, option: str) -> Peer:
    reason = f"the wheel ships no such tests; name a checkout of its sources with `{option}`"
    return Peer(key, name, folder, _absent(key) or (reason if folder is None else None))


def _absent(*modules: str) -> str | None:
    missing = " ".join(name for name in modules if find_spec(name) is None)
    return f"not installed: `pip install --no-deps --target FOLDER {missing}`, `PYTHONPATH=FOLDER`" if missing else None


def count_of(output: str) -> int:
    """What the last line of ``benchmarks.peer_tests`` says; 0 when it came to no last line."""
    _, found, count = output.rpartition(COUNTED)
    return int(count) if found else 0


def measured(peers: Sequence[Peer], files: Sequence[str], options: argparse.Namespace) -> list[Figure]:
    """Figures of all rounds: those of this suite first."""
    figures = [Figure(FIRST), Figure(SECOND), *(Figure(peer.name, missing=peer.missing) for peer in peers)]
    for _ in range(options.rounds):
        for peer, figure in zip(peers, figures[2:], strict=True):
            if figure.missing is None:
                cost = cost_of((sys.executable, "-m", "benchmarks.peer_tests", *peer.arguments), ROOT)
                figure.add(cost, count_of(cost.output))
        with tempfile.TemporaryDirectory() as folder:
            for figure in figures[:2]:
                figure.add(*_own(files, Path(folder), options))
    return figures


def _own(files: Sequence[str], folder: Path, options: argparse.Namespace) -> tuple[Cost, int]:
    """One run of this suite; what it compiles is kept in ``folder``."""
    places = (f"--reports={folder / 'runs'}", "-o", f"cache_dir={folder / 'cache'}")
    chosen = () if options.subjects is None else ("-k", options.subjects)
    cost = cost_of((*PYTEST, "-q", "-n", options.workers, *places, *chosen, *files), ROOT)
    found = latest_run(folder / "runs")
    return cost, 0 if found is None else values_in(read_run(found))


def missed(figures: Sequence[Figure], whole: bool) -> list[str]:
    """Targets that are missed, in words."""
    own, others = figures[1], [figure for figure in figures[2:] if figure.missing is None]
    broken = [f"{figure.name}: {figure.missing}" for figure in figures[:2] if figure.missing is not None]
    if broken:
        return broken
    each = median(own.each)
    slow = [f"{each:.3g} ms for each comparison, {TARGET:g} are allowed"] if whole and each > TARGET else []
    ahead = (figure for figure in others if median(figure.each) <= each)
    return slow + [f"{figure.name} needs {median(figure.each):.3g} ms, this suite {each:.3g}" for figure in ahead]


def lines_of(figures: Sequence[Figure], files: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """The table."""
    names = "all case files" if "all" in options.files else ", ".join(Path(name).stem for name in files)
    subjects = "all subjects" if options.subjects is None else f"subjects like `{options.subjects}`"
    yield f"This suite: {names}; {subjects}, `-n {options.workers}`. Rounds: {options.rounds}."
    yield ""
    yield "| tests | value comparisons | CPU s | CPU ms for each, median | range |"
    yield "|---|---:|---:|---:|---|"
    yield from (figure.line() for figure in figures)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--workers", default="auto", help="as for pytest -n")
    made.add_argument("--files", nargs="+", metavar="FILE", default=[f"cases/{name}.yaml" for name in FILES],
                      help=f"case files, or all (default: {', '.join(FILES)})")  # fmt: skip
    made.add_argument("--subjects", metavar="EXPRESSION", help="as for pytest -k (default: all subjects)")
    made.add_argument("--peers", nargs="+", metavar="PEER", choices=PEERS, default=list(PEERS),
                      help=f"which peers (default: all of {', '.join(PEERS)})")  # fmt: skip
    made.add_argument("--pytorch", type=Path, metavar="FOLDER", help="a checkout of PyTorch's sources")
    made.add_argument("--jax", type=Path, metavar="FOLDER", help="a checkout of JAX' sources")
    made.add_argument("--write", action="store_true", help=f"put the table into {PERFORMANCE.relative_to(ROOT)}")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    whole = "all" in options.files
    files = [str(path.relative_to(ROOT)) for path in case_files(ROOT / "cases")] if whole else options.files
    known = peers_of(*(path and path.absolute() for path in (options.pytorch, options.jax)))
    peers = [peer for peer in known if peer.key in options.peers]
    figures = measured(peers, files, options)
    text = "\n".join(lines_of(figures, files, options)) + "\n"
    print(text, end="")
    for line in (found := missed(figures, whole)):
        print(line, file=sys.stderr)
    if options.write:
        table = Table("peers", lambda: iter(text.splitlines()))
        PERFORMANCE.write_text(table.put(PERFORMANCE.read_text("utf-8"), text), "utf-8")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
