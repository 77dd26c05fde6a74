"""Views on the outputs of a relation's calls: what both sides are compared in, for the engine to compute and for a
script to write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from conformance.spec import Array

BATCHED = ("attn_output", "attn_weights", "query.gradient", "key.gradient", "value.gradient")
Named = Mapping[str, Array]  # outputs of one call by name, or their bounds


class View(Protocol):
    """Linear and free of rounding, or a sum, so that the same view on the calls' bounds bounds it."""

    def __call__(self, outputs: Sequence[Named]) -> dict[str, Array]:
        """What is seen of the outputs of each call."""
        ...

    def written(self, calls: Sequence[str], name: str) -> str:
        """One output as an expression, where expressions ``calls`` give the outputs of each call by name."""
        ...


class Change(Protocol):
    """One output in another form."""

    def __call__(self, array: Array) -> Array: ...
    def written(self, array: str) -> str: ...


@dataclass(frozen=True)
class Taken:
    """Indices of an axis in another order."""

    order: Array
    axis: int

    def __call__(self, array: Array) -> Array:
        """The array with the axis in that order."""
        taken: Array = array.take(self.order, self.axis)
        return taken

    def written(self, array: str) -> str:
        """As an expression."""
        return f"{array}.take({self.order.tolist()}, {self.axis})"


@dataclass(frozen=True)
class Padded:
    """Zeros before index ``at`` of an axis."""

    at: int
    count: int
    axis: int

    def __call__(self, array: Array) -> Array:
        """The array with the zeros."""
        return np.insert(array, [self.at] * self.count, np.zeros((), array.dtype), axis=self.axis)

    def written(self, array: str) -> str:
        """As an expression."""
        return f"np.insert({array}, {[self.at] * self.count}, 0, {self.axis})"


@dataclass(frozen=True)
class Summed:
    """The sum along an axis, which stays."""

    axis: int

    def __call__(self, array: Array) -> Array:
        """The sum."""
        summed: Array = array.sum(axis=self.axis, keepdims=True)
        return summed

    def written(self, array: str) -> str:
        """As an expression."""
        return f"{array}.sum({self.axis}, keepdims=True)"


@dataclass(frozen=True)
class Seen:
    """The outputs of one call, some of them changed."""

    changes: Mapping[str, Change] = field(default_factory=dict)

    def __call__(self, outputs: Sequence[Named]) -> dict[str, Array]:
        """Every output."""
        return {
            name: self.changes[name](array) if name in self.changes else array for name, array in outputs[0].items()
        }

    def written(self, calls: Sequence[str], name: str) -> str:
        """As an expression."""
        array = f'{calls[0]}["{name}"]'
        return self.changes[name].written(array) if name in self.changes else array


@dataclass(frozen=True)
class Together:
    """The outputs of calls with single samples as one batch; gradients of parameters are sums over samples."""

    def __call__(self, outputs: Sequence[Named]) -> dict[str, Array]:
        """Every output."""

        def joined(name: str) -> Array:
            arrays = [one[name] for one in outputs]
            return np.concatenate(arrays) if name in BATCHED else np.sum(arrays, axis=0)

        return {name: joined(name) for name in outputs[0]}

    def written(self, calls: Sequence[str], name: str) -> str:
        """As an expression."""
        arrays = ", ".join(f'{call}["{name}"]' for call in calls)
        return f"np.concatenate([{arrays}])" if name in BATCHED else f"np.sum([{arrays}], axis=0)"


@dataclass(frozen=True)
class Told:
    """What must come out, known without a call. A script finds it in ``data``."""

    arrays: Named

    def __call__(self, outputs: Sequence[Named]) -> dict[str, Array]:
        """What must come out."""
        return dict(self.arrays)

    def written(self, calls: Sequence[str], name: str) -> str:
        """As an expression, with what is beyond float64."""
        return f'data["{name}.expected"] + data["{name}.rest"].astype(np.longdouble)'
