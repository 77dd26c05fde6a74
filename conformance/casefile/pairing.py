"""A small set of combinations that holds every pair of values: a greedy covering array, without randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

Row = Sequence[int | None]
Pair = tuple[int, int, int, int]  # axis, its value, a later axis, its value
PATIENCE = 20_000  # partial rows tried for one pair before giving up


class OutOfPatienceError(Exception):
    """Exclusions are so entangled that a pair could neither be placed nor shown to be impossible."""


def pairwise(counts: Sequence[int], allowed: Callable[[Row], bool]) -> list[tuple[int, ...]]:
    """Rows of value indices, one per axis, in ascending order, such that each pair of values of two axes that can
    occur in an allowed row does occur.

    ``counts`` are the numbers of values of at least two axes. ``allowed`` judges rows in which ``None`` is still open;
    it may only refuse what no completion can save. Raises OutOfPatienceError.
    """
    search = _Search(counts, allowed)
    rows: list[tuple[int, ...]] = []
    while search.uncovered:
        first, i, second, j = pair = next(iter(search.uncovered))
        row = [i if axis == first else j if axis == second else None for axis in range(len(counts))]
        search.patience = PATIENCE
        complete = next(search.completions(row), None)
        if complete is None:
            search.cover(pair)  # no allowed row holds it
            continue
        rows.append(complete)
        for a, b in combinations(range(len(counts)), 2):
            search.cover((a, complete[a], b, complete[b]))
    return sorted(rows)


class _Search:
    """The pairs that no row holds yet, and the rows that would hold many of them."""

    def __init__(self, counts: Sequence[int], allowed: Callable[[Row], bool]) -> None:
        self.counts = counts
        self.allowed = allowed
        self.patience = PATIENCE
        self.uncovered: dict[Pair, None] = {
            (first, i, second, j): None
            for first, second in combinations(range(len(counts)), 2)
            for i in range(counts[first])
            for j in range(counts[second])
        }
        # How many uncovered pairs each value of each axis is part of.
        self.left = [[sum(counts) - count] * count for count in counts]

    def cover(self, pair: Pair) -> None:
        if pair in self.uncovered:
            del self.uncovered[pair]
            first, i, second, j = pair
            self.left[first][i] -= 1
            self.left[second][j] -= 1

    def completions(self, row: Row) -> Iterator[tuple[int, ...]]:
        """Allowed completions of a row, those first that cover more pairs, now or later."""
        self.patience -= 1
        if self.patience < 0:
            raise OutOfPatienceError
        if not self.allowed(row):
            return
        if None not in row:
            yield tuple(value for value in row if value is not None)
            return
        axis = list(row).index(None)

        def rank(value: int) -> tuple[int, int, int]:
            return -self.gain(row, axis, value), -self.left[axis][value], value

        for value in sorted(range(self.counts[axis]), key=rank):
            yield from self.completions([*row[:axis], value, *row[axis + 1 :]])

    def gain(self, row: Row, axis: int, value: int) -> int:
        """How many uncovered pairs a value makes with those already chosen."""
        return sum(
            ((axis, value, other, chosen) if axis < other else (other, chosen, axis, value)) in self.uncovered
            for other, chosen in enumerate(row)
            if chosen is not None
        )
