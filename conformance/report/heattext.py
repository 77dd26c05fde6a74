"""Heat maps and masks in characters: one face, the last two axes of an output at one sample (and head).

A cell is a character, on a colour where the terminal knows colours. A face with more rows or columns than there is room
for is shown in tiles, each the largest of its elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.report.canvas import Canvas, Colour, ramp
from conformance.report.elements import Element, Field
from conformance.report.text import plural, ratio_text
from conformance.spec import Array

ROWS = 20
MARGIN = 6  # columns for indent and the numbers of rows
DECADES = 3  # of error/bound on either side of 1 that colours tell apart
STOPS: tuple[Colour, ...] = ((127, 168, 207), (188, 210, 228), (243, 240, 232), (229, 138, 60), (143, 22, 18))
NOT_FINITE, SHUT = (96, 24, 120), (176, 180, 184)
LEVELS = (  # the largest error/bound, its shade, its sign on a colour, what it means
    (0.1, "·", "·", "≤ 0.1"),
    (1.0, "░", "-", "≤ 1"),
    (10.0, "▒", "+", "≤ 10"),
    (1000.0, "▓", "*", "≤ 1000"),
    (math.inf, "█", "#", "> 1000"),
)
ENDLESS, BLOCKED, OPEN, PARTLY = "∞", "/", "·", "+"
_SOURCES = re.compile(r"\b(key|value)\b")  # and their gradients, not those of their weights
SHOWN = 8  # blocked rows that are named


@dataclass(frozen=True)
class Tiling:
    """How a face is cut to fit: elements of a tile down and across, and characters of a cell."""

    down: int
    across: int
    wide: int

    @classmethod
    def of(cls, shape: tuple[int, int], canvas: Canvas) -> Tiling:
        room = max(canvas.width - MARGIN, 1)
        return cls(math.ceil(shape[0] / ROWS), math.ceil(shape[1] / room), 2 if 2 * shape[1] <= room else 1)

    def reduced(self, reduce: np.ufunc, face: Array) -> Array:
        """One value for each tile."""
        rows, columns = (range(0, size, step) for size, step in zip(face.shape, (self.down, self.across), strict=True))
        reduced: Array = reduce.reduceat(reduce.reduceat(face, rows, axis=0), columns, axis=1)
        return reduced

    @property
    def note(self) -> str:
        """What a cell stands for, when it is more than one element."""
        return "" if self.down == self.across == 1 else f"  a cell is {self.down} × {self.across} elements"

    def lines(self, cells: Sequence[Sequence[str]]) -> Iterator[str]:
        """The cells, each :attr:`wide` characters, with the indices of rows and columns."""
        step = 5 if self.wide == 2 else 10
        ticks = (str(place * self.across).ljust(step * self.wide) for place in range(0, len(cells[0]), step))
        yield f"{'':{MARGIN}}{''.join(ticks)}".rstrip()
        for place, row in enumerate(cells):
            yield f"{place * self.down:>{MARGIN - 1}} {''.join(row)}"


def heat_lines(field: Field, element: Element, blocked: Array | None, canvas: Canvas) -> list[str]:
    """error/bound of the face that holds an element, with a legend; nothing for an output without axes.

    ``blocked`` is bool [B, H, T, S + E]: blocked positions of the weights are marked, and in outputs with a target axis
    the targets to which every head blocks every key. One that lies outside its bound shows that first.
    """
    if not field.expected.ndim or not field.expected.size:
        return []
    leading = element.index[:-2]
    ratio = np.atleast_2d(field.ratio[leading])
    tiling = Tiling.of((ratio.shape[0], ratio.shape[1]), canvas)
    tops = tiling.reduced(np.maximum, ratio)
    shut = tiling.reduced(np.logical_and, _shut(field, leading, blocked, ratio.shape))
    names = _axes(field)
    places = [f"{name} {place}" for name, place in zip(names, leading, strict=False)]
    axes = f"{names[-2]} ↓ {names[-1]} →" if len(names) > 1 else f"{names[-1]} →"
    cells = [
        [_cell(float(top), bool(closed), tiling.wide, canvas) for top, closed in zip(*pair, strict=True)]
        for pair in zip(tops, shut, strict=True)
    ]
    note = f"{tiling.note}, the largest of them" if tiling.note else ""
    head = f"  {', '.join([field.output, *places])}  {axes}  worst {ratio_text(element.ratio)}{note}"
    return [head, *tiling.lines(cells), f"  {_legend(canvas, bool(shut.any()))}"]


def mask_lines(blocked: Array, place: tuple[int, int], canvas: Canvas) -> list[str]:
    """The mask of one sample and head; nothing where nothing is blocked. ``blocked`` is bool [B, H, T, S + E]."""
    if not blocked.size or not blocked.any():
        return []
    face = np.asarray(blocked[place], bool)
    alike = int((blocked == face).all(axis=(2, 3)).sum())
    faces = blocked.shape[0] * blocked.shape[1]
    rows = np.flatnonzero(face.all(axis=1))
    named = f"{', '.join(map(str, rows[:SHOWN]))}{' …' if rows.size > SHOWN else ''}"
    closed = f"; {'row' if rows.size == 1 else 'rows'} {named} fully" if rows.size else ""
    whose = "every sample and head" if alike == faces else f"sample {place[0]}, head {place[1]}"
    others = f" and {plural(alike - 1, 'other face')}" if 1 < alike < faces else ""
    tiling = Tiling.of((face.shape[0], face.shape[1]), canvas)
    every, some = tiling.reduced(np.logical_and, face), tiling.reduced(np.logical_or, face)
    signs = np.where(every, BLOCKED, np.where(some, PARTLY, OPEN))
    legend = f"  {BLOCKED} blocked  {OPEN} attended to" + (f"  {PARTLY} some of each" if (some & ~every).any() else "")
    return [
        f"  {whose}{others}  T ↓ S →  {int(face.sum())} of {face.size} blocked{closed}{tiling.note}",
        *tiling.lines([[str(sign) * tiling.wide for sign in row] for row in signs]),
        legend,
    ]


def _axes(field: Field) -> list[str]:
    """Names of an output's axes: letters of the legend in spec.py where they are known."""
    rank = field.expected.ndim
    if field.output == "attn_weights" and rank == 4:
        return ["sample", "head", "T", "S"]
    if rank == 3:
        return ["sample", "S" if _SOURCES.search(field.output) else "T", "D"]
    return [*("axis" for _ in range(rank - 2)), "row", "column"][-rank:]


def _shut(field: Field, leading: tuple[int, ...], blocked: Array | None, shape: tuple[int, ...]) -> Array:
    """Which elements of a face are blocked, bool of its shape."""
    shut = np.zeros(shape, bool)
    names = _axes(field)
    if blocked is None:
        return shut
    if names[:2] == ["sample", "head"]:
        known = blocked[leading]
    elif names[:2] == ["sample", "T"]:
        known = blocked[leading].all(axis=(0, 2))[:, None]
    else:
        return shut
    rows, columns = min(len(shut), len(known)), shape[1] if known.shape[1] == 1 else min(shape[1], known.shape[1])
    shut[:rows, :columns] = known[:rows, :columns]
    return shut


def _cell(ratio: float, shut: bool, wide: int, canvas: Canvas) -> str:
    if shut and ratio <= 1:
        return canvas.on(BLOCKED * wide, SHUT)
    sign = _sign(ratio, canvas)
    if canvas.depth:
        text = sign.ljust(wide) if not shut else f"{sign}{BLOCKED}"[:wide]
    else:
        text = sign * wide if not shut else f"{sign}{BLOCKED}"[:wide]
    return canvas.on(text, _colour(ratio))


def _sign(ratio: float, canvas: Canvas) -> str:
    if not math.isfinite(ratio):
        return ENDLESS
    return next(sign if canvas.depth else shade for largest, shade, sign, _ in LEVELS if ratio <= largest)


def _colour(ratio: float) -> Colour:
    if not math.isfinite(ratio):
        return NOT_FINITE
    return ramp(math.log10(ratio) / DECADES if ratio > 0 else -1.0, STOPS)


def _legend(canvas: Canvas, shut: bool) -> str:
    shown = [0.01, 0.5, 5.0, 100.0, 1e4]  # one of each level
    words = [(_cell(ratio, False, 1, canvas), means) for ratio, (*_, means) in zip(shown, LEVELS, strict=True)]
    words.append((_cell(math.inf, False, 1, canvas), "not finite or no error allowed"))
    words += [(_cell(0.0, True, 1, canvas), "blocked")] if shut else []
    return "error/bound: " + "  ".join(f"{sign} {means}" for sign, means in words)
