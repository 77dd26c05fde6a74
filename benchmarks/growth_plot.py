"""The plot of ``benchmarks/growth.py`` as SVG: time by comparisons, and memory of each worker over its pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from benchmarks.growth_runs import Growth, Memory

WIDTH, HEIGHT = 340, 240  # of a panel, with its margins
LEFT, RIGHT, TOP, BOTTOM = 58, 28, 34, 44
STYLE = """\
.paper { fill: #fff }
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.axis { stroke: #59636e; fill: none }
.grid { stroke: #d1d9e0 }
.line { fill: none; stroke-width: 2 }
.a { stroke: #0550ae } .b { stroke: #953800; stroke-dasharray: 6 3 }
.c { stroke: #59636e; stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0d1117 } text { fill: #f0f6fc } .axis, .c { stroke: #9198a1 } .grid { stroke: #3d444d }
  .a { stroke: #79c0ff } .b { stroke: #ffa657 }
}"""


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` on ``length`` pixels, by their logarithm if they are more than 0 throughout."""

    low: float
    high: float
    length: float
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        if self.low > 0:
            return self.length * log10(value / self.low) / log10(self.high / self.low)
        return self.length * value / self.high


def decades(values: Sequence[float], length: float) -> Axis:
    """An axis of whole powers of ten."""
    first, last = floor(log10(min(values))), ceil(log10(max(values)))
    powers = range(first, max(last, first + 1) + 1)
    return Axis(10.0**first, 10.0 ** powers[-1], length, tuple((10.0**power, f"{10**power:,}") for power in powers))


def from_zero(values: Sequence[float], length: float) -> Axis:
    """An axis from 0 with round steps."""
    most = max(values)
    step = next(step for power in range(9) for step in (10**power, 2 * 10**power, 5 * 10**power) if 4 * step >= most)
    high = step * ceil(most / step)
    return Axis(0, high, length, tuple((tick, f"{tick:,}") for tick in range(0, high + 1, step)))


@dataclass(frozen=True)
class Line:
    """A line of a panel: its name, its CSS class, and its points."""

    name: str
    look: str
    points: tuple[tuple[float, float], ...]


def panel(title: str, below: str, lines: Sequence[Line], across: Axis, up: Axis) -> Iterator[str]:
    """One panel, whose plotting area begins at (0, 0)."""
    yield f'<text class="title" x="0" y="-16">{title}</text>'
    for value, label in up.ticks:
        y = up.length - up.at(value)
        yield f'<path class="grid" d="M0 {y:.1f}H{across.length}"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for value, label in across.ticks:
        yield f'<text x="{across.at(value):.1f}" y="{up.length + 16}" text-anchor="middle">{label}</text>'
    yield f'<path class="axis" d="M0 0V{up.length}H{across.length}"/>'
    yield f'<text x="{across.length / 2}" y="{up.length + 34}" text-anchor="middle">{below}</text>'
    for number, line in enumerate(lines):
        places = (f"{across.at(x):.1f} {up.length - up.at(y):.1f}" for x, y in line.points)
        yield f'<path class="line {line.look}" d="M{"L".join(places)}"/>'
        y = up.length - 12 - 16 * (len(lines) - 1 - number)
        yield f'<path class="line {line.look}" d="M{across.length - 112} {y - 4}h24"/>'
        yield f'<text x="{across.length - 82}" y="{y}">{line.name}</text>'


def times(growths: Sequence[Growth]) -> Iterator[str]:
    """CPU and wall seconds by value comparisons, and the straight line through 0 and the last."""
    last = growths[-1]
    straight = tuple((one.values, last.cpu * one.values / last.values) for one in (growths[0], last))
    lines = [
        Line("CPU", "a", tuple((one.values, one.cpu) for one in growths)),
        Line("wall", "b", tuple((one.values, one.wall) for one in growths)),
        Line("proportional", "c", straight),
    ]
    seconds = [y for line in lines for _, y in line.points]
    across = decades([one.values for one in growths], WIDTH - LEFT - RIGHT)
    up = decades(seconds, HEIGHT - TOP - BOTTOM)
    return panel("Seconds", "value comparisons", lines, across, up)


def memory(workers: Sequence[Memory]) -> Iterator[str]:
    """Resident MiB of each worker of one run over the pairs that it has done."""
    lines = [
        Line(f"worker {number}", look, tuple(zip(one.pairs, (size / 2**20 for size in one.sizes), strict=True)))
        for number, (one, look) in enumerate(zip(workers, "ab", strict=False), 1)
    ]
    points = [point for line in lines for point in line.points]
    across = from_zero([x for x, _ in points], WIDTH - LEFT - RIGHT)
    up = from_zero([y for _, y in points], HEIGHT - TOP - BOTTOM)
    return panel("Memory of a worker, MiB", "pairs done", lines, across, up)


def plot(growths: Sequence[Growth]) -> str:
    """The whole picture; the memory is that of the largest run."""
    yielded = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT}" width="{2 * WIDTH}" role="img">',
        "<title>Time and memory of runs of growing size</title>",
        f"<style>{STYLE}</style>",
        '<rect class="paper" width="100%" height="100%"/>',
        f'<g transform="translate({LEFT} {TOP})">',
        *times(growths),
        f'</g><g transform="translate({WIDTH + LEFT} {TOP})">',
        *memory(growths[-1].workers),
        "</g></svg>",
    ]
    return "\n".join(yielded) + "\n"
