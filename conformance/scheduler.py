"""How pytest-xdist hands pairs to workers: a framework that compiles stays in one worker while there is other work.

This is a scheduler in the sense of ``xdist.scheduler.protocol.Scheduling``, to which the controller tells which workers
there are and what they have done. A *scope* is what one worker should run in one go, in the order of collection: a
whole framework where it compiles for each shape, its slow subjects apart; elsewhere one case file of one framework.
Large scopes are begun first, and are handed out a few pairs at a time, so that a worker that runs out of work can take
over half of what another has not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from xdist.report import report_collection_diff
from xdist.workermanage import parse_tx_spec_config

from conformance.adapter import adapter_of

AHEAD = 8  # pairs that a worker has in hand: it begins one only when it knows the next
LEAST_SECONDS = 10.0  # of work left, below which it is not worth importing a framework once more


@dataclass
class _Scope:
    """Places of pairs in the collection that one worker should run, and what a pair took so far. ``framework`` is
    what they need, empty for what needs none."""

    left: deque[int]
    framework: str = ""
    done: int = 0
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float:
        """An estimate from what is done already, at least a millisecond for each pair."""
        return len(self.left) * max(self.seconds / max(self.done, 1), 1e-3)

    def halved(self) -> _Scope:
        """The second half of what is left, as a scope of its own."""
        half = [self.left.pop() for _ in range(len(self.left) // 2)]
        return _Scope(deque(reversed(half)), self.framework, self.done, self.seconds)


@dataclass
class _Worker:
    """``running`` holds what was sent and not reported yet, in order, with the scope of each; ``frameworks`` are those
    it was given work for; ``alike`` says whether it collected what the first one did, None before it has."""

    scope: _Scope = field(default_factory=lambda: _Scope(deque()))
    running: dict[int, _Scope] = field(default_factory=dict)
    frameworks: set[str] = field(default_factory=set)
    alike: bool | None = None


class FrameworkScheduling:
    """A pair during which a worker died is not tried again: the next worker would die too."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        self.config, self._log = config, log
        self._expected, self._collections = len(parse_tx_spec_config(config)), 0  # those of workers that left included
        self._workers: dict[Any, _Worker] = {}
        self._collection: list[str] | None = None
        self._waiting: deque[_Scope] = deque()

    # What the controller asks --------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        return list(self._workers)

    @property
    def collection_is_completed(self) -> bool:
        return self._collections >= self._expected

    @property
    def tests_finished(self) -> bool:
        """Whether no worker has a pair that it could begin only with more work behind it."""
        if self._collection is None or self._waiting:
            return False
        return not any(worker.scope.left or len(worker.running) > 1 for worker in self._workers.values())

    @property
    def has_pending(self) -> bool:
        return any(worker.running for worker in self._workers.values())

    # What the controller tells -------------------------------------------------------------------------------------

    def add_node(self, node: Any) -> None:
        self._workers[node] = _Worker()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """The first worker's collection is that of all; one that differs is reported and its worker gets no work."""
        if self._collection is None:
            self._collection = list(collection)
            self._waiting = deque(scopes_of(collection))
        self._collections += 1
        self._workers[node].alike = list(collection) == self._collection
        if not self._workers[node].alike:
            self._report_difference(node, collection)

    def schedule(self) -> None:
        for node in self.nodes:
            self._supply(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        scope = self._workers[node].running.pop(item_index)
        scope.done, scope.seconds = scope.done + 1, scope.seconds + duration
        self._supply(node)

    def remove_node(self, node: Any) -> str | None:
        """Take a worker out and put back what it has not run; the pair during which it died, if it did."""
        worker = self._workers.pop(node)
        crashed, *unrun = worker.running or (None,)
        scope = worker.scope
        scope.left.extendleft(reversed(unrun))
        if scope.left:
            self._waiting.appendleft(scope)
            self.schedule()
        return None if crashed is None or self._collection is None else self._collection[crashed]

    def mark_test_pending(self, item: str) -> NoReturn:
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> NoReturn:
        raise NotImplementedError

    # Handing out ---------------------------------------------------------------------------------------------------

    def _supply(self, node: Any) -> None:
        """Fill a worker's hand when half of it is gone. A worker with one pair, which it cannot begin before it knows
        the next, and for which there is none, is told to finish."""
        worker = self._workers[node]
        if node.shutting_down or worker.alike is None or len(worker.running) > AHEAD // 2:
            return
        sent: list[int] = []
        while worker.alike and len(worker.running) < AHEAD and (worker.scope.left or self._begin_scope(worker)):
            place = worker.scope.left.popleft()
            worker.running[place] = worker.scope
            sent.append(place)
        if sent:
            node.send_runtest_some(sent)
        if len(worker.running) <= 1:
            node.shutdown()

    def _begin_scope(self, worker: _Worker) -> bool:
        """Give a worker the next scope, or, once it would stand idle, half of what takes the others longest; whether
        there was one."""
        if self._waiting:
            worker.scope = min(self._waiting, key=lambda scope: self._strangeness(worker, scope))
            self._waiting.remove(worker.scope)
        elif len(worker.running) > 1:
            return False
        else:
            longest = max((other.scope for other in self._workers.values()), key=lambda scope: scope.seconds_left)
            if longest.seconds_left < LEAST_SECONDS:
                return False
            worker.scope = longest.halved()
        worker.frameworks.add(worker.scope.framework)
        return bool(worker.scope.left)

    def _strangeness(self, worker: _Worker, scope: _Scope) -> int:
        """0 for work with a framework that the worker has, 1 for one that nobody has, 2 for one that others have."""
        if scope.framework in worker.frameworks:
            return 0
        return 2 if any(scope.framework in other.frameworks for other in self._workers.values()) else 1

    def _report_difference(self, node: Any, collection: Sequence[str]) -> None:
        first = next(other for other, worker in self._workers.items() if worker.alike)
        text = report_collection_diff(self._collection, collection, first.gateway.id, node.gateway.id)
        self._log(text)
        report = pytest.CollectReport(nodeid=node.gateway.id, outcome="failed", longrepr=text, result=[])
        self.config.hook.pytest_collectreport(report=report)


def scopes_of(collection: Iterable[str]) -> list[_Scope]:
    """The scopes of a collection: those that compile first, then the largest."""
    found: dict[tuple[str, str], deque[int]] = {}
    for place, nodeid in enumerate(collection):
        found.setdefault(scope_of(nodeid), deque()).append(place)
    ranked = sorted(found.items(), key=lambda item: (not item[0][1], len(item[1])), reverse=True)
    return [_Scope(places, name.partition("/")[0]) for (name, _), places in ranked]


def scope_of(nodeid: str) -> tuple[str, str]:
    """What a pair's scope is: a subject or a framework, and the file, which is empty where all files are one scope."""
    file, _, name = nodeid.partition("::")
    subject = name.rpartition("[")[2].rstrip("]")
    try:
        adapter = adapter_of(subject)
    except KeyError:
        return "", file
    if not adapter.slow:
        return adapter.framework, file
    return (subject if subject in adapter.slow else adapter.framework), ""
