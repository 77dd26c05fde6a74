"""A small set of combinations that holds every pair of values: a greedy covering array, without randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

Row = list[int | None]
PATIENCE = 20_000  # partial rows tried for one pair before giving up


class OutOfPatienceError(Exception):
    """Exclusions are so entangled that a pair could neither be placed nor shown to be impossible."""


def pairwise(counts: Sequence[int], allowed: Callable[[Sequence[int | None]], bool]) -> list[tuple[int, ...]]:
    """Rows of value indices, one per axis, in ascending order, such that each pair of values of two axes that can
    occur in an allowed row does occur.

    ``counts`` are the numbers of values of at least two axes. ``allowed`` judges rows in which ``None`` is still open;
    it may only refuse what no completion can save. Raises OutOfPatienceError.
    """
    uncovered = {
        (first, i, second, j): None
        for first, second in combinations(range(len(counts)), 2)
        for i in range(counts[first])
        for j in range(counts[second])
    }
    rows: list[tuple[int, ...]] = []
    while uncovered:
        first, i, second, j = pair = next(iter(uncovered))
        row: Row = [None] * len(counts)
        row[first], row[second] = i, j
        complete = next(_completions(row, counts, uncovered, allowed, [PATIENCE]), None)
        if complete is None:
            del uncovered[pair]  # no allowed row holds it
            continue
        rows.append(complete)
        for a, b in combinations(range(len(counts)), 2):
            uncovered.pop((a, complete[a], b, complete[b]), None)
    return sorted(rows)


def _completions(
    row: Row,
    counts: Sequence[int],
    uncovered: dict[tuple[int, int, int, int], None],
    allowed: Callable[[Sequence[int | None]], bool],
    patience: list[int],
) -> Iterator[tuple[int, ...]]:
    """Allowed completions of a row, those that cover more open pairs first."""
    patience[0] -= 1
    if patience[0] < 0:
        raise OutOfPatienceError
    if not allowed(row):
        return
    if None not in row:
        yield tuple(value for value in row if value is not None)
        return
    axis = row.index(None)

    def gain(value: int) -> int:
        return sum(
            ((axis, value, other, chosen) if axis < other else (other, chosen, axis, value)) in uncovered
            for other, chosen in enumerate(row)
            if chosen is not None
        )

    for value in sorted(range(counts[axis]), key=lambda value: (-gain(value), value)):
        yield from _completions([*row[:axis], value, *row[axis + 1 :]], counts, uncovered, allowed, patience)
