"""How pairs are handed to workers: the scheduler told, event by event, what pytest-xdist's controller would tell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from conformance import scheduler
from conformance.scheduler import AHEAD, FrameworkScheduling, scope_of, scopes_of
from tests.projects import Project


@dataclass(eq=False)
class Node:
    """A worker that runs, in order, what it has in hand: a pair only when it knows the next, or that none follows."""

    name: str
    hand: list[int] = field(default_factory=list)
    ran: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Any:
        return SimpleNamespace(id=self.name)

    def send_runtest_some(self, places: list[int]) -> None:
        assert places and not self.shutting_down
        self.hand += places

    def shutdown(self) -> None:
        self.shutting_down = True

    def run(self, scheduling: FrameworkScheduling, duration: float = 0.001) -> bool:
        """One pair, if the worker can begin one."""
        if len(self.hand) < (1 if self.shutting_down else 2):
            return False
        place = self.hand.pop(0)
        self.ran.append(place)
        scheduling.mark_test_complete(self, place, duration)
        return True


@dataclass
class Reports:
    texts: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.texts.append(str(report.longrepr))


def scheduled(count: int) -> tuple[FrameworkScheduling, list[Node], Reports]:
    reports = Reports()
    config: Any = SimpleNamespace(getvalue={"tx": [f"{count}*popen"]}.get, hook=reports)
    return FrameworkScheduling(config, print), [Node(f"gw{number}") for number in range(count)], reports


def started(collection: list[str], count: int = 2) -> tuple[FrameworkScheduling, list[Node], Reports]:
    scheduling, nodes, reports = scheduled(count)
    for node in nodes:
        scheduling.add_node(node)
        assert not scheduling.collection_is_completed
    for node in nodes:
        scheduling.add_node_collection(node, collection)
    assert scheduling.collection_is_completed
    scheduling.schedule()
    return scheduling, nodes, reports


def run_all(scheduling: FrameworkScheduling, nodes: list[Node], durations: dict[str, float] | None = None) -> None:
    """Every worker in turn, each as often as a slower one runs one pair, until none can go on."""
    going = True
    while going:
        went = [node.run(scheduling, (durations or {}).get(node.name, 0.001)) for node in nodes]
        going = any(went)


def pairs(subject: str, count: int, file: str = "a") -> list[str]:
    return [f"cases/{file}.yaml::{number}[{subject}]" for number in range(count)]


def test_scopes_are_frameworks_that_compile_then_files(project: Project) -> None:
    assert scope_of("cases/a.yaml::one[fake/right]") == ("fake", "")
    assert scope_of("cases/a.yaml::one[fake/slow]") == ("fake/slow", "")
    assert scope_of("cases/a.yaml::one[absent/mha]") == ("absent", "cases/a.yaml")
    assert scope_of("cases/a.yaml::case-file") == ("", "cases/a.yaml")
    collection = [
        *pairs("absent/mha", 5),
        *pairs("fake/right", 2),
        *pairs("absent/mha", 6, "b"),
        *pairs("fake/slow", 1),
    ]
    assert [list(scope.left) for scope in scopes_of(collection)] == [[5, 6], [13], [*range(7, 13)], [*range(5)]]


def test_every_pair_runs_once_and_a_framework_in_one_worker(project: Project) -> None:
    collection = [*pairs("fake/right", 60), *pairs("absent/mha", 40), *pairs("absent/mha", 50, "b")]
    scheduling, nodes, _ = started(collection)
    run_all(scheduling, nodes)
    assert sorted(nodes[0].ran + nodes[1].ran) == list(range(150))
    assert set(range(60)) <= set(nodes[0].ran)
    assert scheduling.tests_finished and not scheduling.has_pending
    assert all(node.shutting_down for node in nodes)


def test_a_worker_goes_on_with_the_framework_that_it_has(project: Project) -> None:
    collection = [*pairs("fake/right", 60), *pairs("fake/slow", 30), *pairs("absent/mha", 40)]
    collection += pairs("absent/mha", 50, "b")
    scheduling, nodes, _ = started(collection)
    run_all(scheduling, nodes)
    assert set(range(90)) == {place for place in nodes[0].ran if place < 90}
    assert nodes[0].ran[:90] == [*range(90)] and nodes[1].ran == [*range(130, 180), *range(90, 130)]


def test_a_worker_without_work_takes_half_of_what_takes_longest(project: Project) -> None:
    scheduling, nodes, _ = started([*pairs("fake/right", 400), *pairs("absent/mha", 4)])
    run_all(scheduling, nodes, {"gw0": 1.0})
    assert sorted(nodes[0].ran + nodes[1].ran) == list(range(404))
    assert len([place for place in nodes[1].ran if place < 400]) > 100


def test_little_work_is_not_split(project: Project) -> None:
    scheduling, nodes, _ = started([*pairs("fake/right", 400), *pairs("absent/mha", 4)])
    run_all(scheduling, nodes, {"gw0": scheduler.LEAST_SECONDS / 1000})
    assert len(nodes[1].ran) == 4


def test_a_pair_that_ends_its_worker_is_not_handed_on(project: Project) -> None:
    collection = [*pairs("fake/right", 30), *pairs("absent/mha", 30)]
    scheduling, (first, second), _ = started(collection)
    for _ in range(3):
        first.run(scheduling)
    assert scheduling.remove_node(first) == collection[3]
    clone = Node("gw2")
    scheduling.add_node(clone)
    scheduling.add_node_collection(clone, collection)
    scheduling.schedule()
    run_all(scheduling, [second, clone])
    assert sorted([*first.ran, *second.ran, *clone.ran]) == [place for place in range(60) if place != 3]


def test_a_worker_that_replaces_the_last_one_gets_what_is_left(project: Project) -> None:
    collection = [*pairs("fake/right", 30), *pairs("absent/mha", 1)]
    scheduling, (first, second), _ = started(collection)
    run_all(scheduling, [second])
    assert scheduling.remove_node(second) is None
    assert scheduling.remove_node(first) == collection[0]
    clone = Node("gw2")
    scheduling.add_node(clone)
    scheduling.add_node_collection(clone, collection)
    assert scheduling.collection_is_completed
    scheduling.schedule()
    run_all(scheduling, [clone])
    assert clone.ran == [*range(1, 30)]


def test_a_worker_that_ends_as_it_should_has_left_nothing(project: Project) -> None:
    scheduling, nodes, _ = started(pairs("fake/right", AHEAD + 3), count=1)
    run_all(scheduling, nodes)
    assert scheduling.remove_node(nodes[0]) is None
    assert scheduling.nodes == []


def test_a_worker_that_collected_otherwise_is_reported_and_left_out(project: Project) -> None:
    scheduling, nodes, reports = scheduled(2)
    for node, count in zip(nodes, (5, 4), strict=True):
        scheduling.add_node(node)
        scheduling.add_node_collection(node, pairs("fake/right", count))
    scheduling.schedule()
    run_all(scheduling, nodes)
    assert nodes[0].ran == [*range(5)] and nodes[1].ran == []
    assert nodes[1].shutting_down
    assert "Different tests were collected between gw0 and gw1" in reports.texts[0]
