"""Which pairs a folder asks for, in which order, and what a finished run says about the ledger."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import pytest

from conformance.adapter import Subject, adapter_of, load
from conformance.casefolder import case_files, cases_of, check_suite, faulty, readable
from conformance.errors import CaseFileError, Fault, LedgerError
from conformance.pair import conclude, crash_row
from conformance.suite import find_pair, idle_entries, pair_ids, pairs_of, select
from conformance.verdict import Agrees, Diverges, Errored, Worst
from tests.projects import Project
from tests.synthetic_runs import row

TWO = "include: [{name: one, tags: [shared-shape]}, {name: two}]"


def test_pairs_are_cases_in_file_order_and_subjects_as_announced(project: Project) -> None:
    path = project.cases("small", "fake/*", "absent/mha", body=TWO)
    selection = select(path, project.root, False)
    subjects = ["absent/mha", *load_order()]
    assert [pair.id for pair in selection.pairs] == [
        f"small/{case}[{subject}]"
        for case in ("one", "two")
        for subject in subjects
        if (case, subject) != ("two", "fake/slow")
    ]
    assert selection.left_out == {"fake/slow": 1}
    assert [pair.order[0] for pair in selection.pairs] == [0] * len(subjects) + [1] * (len(subjects) - 1)
    assert sorted(pair.order for pair in selection.pairs) == [pair.order for pair in selection.pairs]
    assert len(select(path, project.root, True).pairs) == 2 * len(subjects)
    first = selection.pairs[0]
    assert first.node == "cases/small.yaml::one[absent/mha]" and first.facts["S"] == 7


def load_order() -> list[str]:
    return list(adapter_of("fake/right").subjects)


def test_a_pair_is_found_by_its_id_and_by_its_node(project: Project) -> None:
    project.cases("small", "fake/slow", "fake/right", body=TWO)
    project.write("cases/faulty.yaml", "suite: faulty\n")
    files = case_files(project.root / "cases")
    ids = pair_ids(files, project.root)
    assert ids == ["small/one[fake/right]", "small/one[fake/slow]", "small/two[fake/right]", "small/two[fake/slow]"]
    for pair in pairs_of(files, project.root):
        assert find_pair(pair.id, files, project.root) == find_pair(pair.node, files, project.root) == pair
    assert find_pair("small/three[fake/right]", files, project.root) is None
    assert [pair.id for pair in pairs_of(files, project.root, full=False)] == [*ids[:3]]


def test_files_of_a_folder(project: Project) -> None:
    small = project.cases("small", "fake/right")
    other = small.rename(small.with_name("other.yml"))
    faults = project.write("cases/faulty.yaml", "suite: faulty\n")
    project.ledger({})
    project.write("cases/notes.txt", "")
    (project.root / "cases/folder.yaml").mkdir()
    gone = project.root / "cases/gone.yaml"
    gone.symlink_to("nowhere.yaml")
    files = case_files(project.root / "cases")
    assert files == (faults, gone, other)
    assert [path for path, _ in readable(files, project.root)] == [other]
    assert faulty(files, project.root) == (faults, gone)
    with pytest.raises(CaseFileError, match="cannot be read: No such file"):
        cases_of(gone, project.root)


def test_of_two_files_with_one_suite_the_later_is_wrong(project: Project) -> None:
    first = project.cases("first", "fake/right", suite="same")
    second = project.cases("second", "fake/right", suite="same")
    project.write("cases/faulty.yaml", "suite: faulty\n")
    assert check_suite(first, project.root) == cases_of(first, project.root)
    with pytest.raises(CaseFileError) as caught:
        check_suite(second, project.root)
    assert [fault.place for fault in caught.value.faults] == ["cases/second.yaml:1:8"]


def test_entries_that_a_run_proves_dead(project: Project) -> None:
    project.cases("small", "fake/limited", body=TWO)
    project.ledger({"subjects": ["fake/limited"]})
    rows = [
        row(
            f"small/{case}",
            "fake/limited",
            "unsupported",
            file="cases/small.yaml",
            node=f"cases/small.yaml::{case}[fake/limited]",
        )
        for case in ("one", "two")
    ]
    versions = {"fakelib": "1.5"}
    (dead,) = idle_entries(rows, versions, project.root, full=False)
    assert dead.id == "off"
    assert idle_entries(rows[:1], versions, project.root, full=False) == ()
    assert idle_entries(rows, {}, project.root, full=False) == ()
    assert idle_entries([], versions, project.root, full=False) == ()
    project.ledger({"subjects": ["gone/*"]})
    assert idle_entries(rows, versions, project.root, full=False) == ()


def test_a_sampled_pair_that_did_not_run_may_show_an_entry(project: Project) -> None:
    project.cases("small", "fake/slow", body=TWO)
    project.ledger({"subjects": ["fake/slow"]})
    one = row("small/one", "fake/slow", "unsupported", file="cases/small.yaml", node="cases/small.yaml::one[fake/slow]")
    assert idle_entries([one], {"fakelib": "1.5"}, project.root, full=True) == ()
    assert len(idle_entries([one], {"fakelib": "1.5"}, project.root, full=False)) == 1


def test_a_worker_that_died_leaves_a_row(project: Project) -> None:
    project.cases("small", "fake/right")
    (pair,) = pairs_of(case_files(project.root / "cases"), project.root)
    row = crash_row(pair, "worker 'gw0' crashed")
    assert (row.node, row.status, row.summary) == (pair.node, "errored", "Crash: worker 'gw0' crashed")


def test_subjects_are_made_once(project: Project) -> None:
    right = load("fake/right")
    assert load("fake/right") is right and isinstance(right, Subject)
    assert adapter_of("fake/right").missing == ()
    assert adapter_of("absent/mha").missing == ("a_framework_nobody_has",)
    with pytest.raises(KeyError):
        adapter_of("fake/wrong")


@pytest.mark.parametrize("verdict", [Agrees(), Diverges(()), Errored("E", "m", "t")])
def test_the_truth_of_a_verdict_means_nothing(verdict: Agrees | Diverges | Errored) -> None:
    with pytest.raises(TypeError, match="match on the type"):
        bool(verdict)


@pytest.mark.parametrize(
    ("error", "bound", "ratio"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 0.0, float("inf")),
        (1.0, 4.0, 0.25),
        (float("inf"), 1.0, float("inf")),
        (float("nan"), 1.0, float("inf")),
    ],
)
def test_ratios(error: float, bound: float, ratio: float) -> None:
    assert Worst((0,), 0.0, 0.0, error, bound).ratio == ratio


def test_faults_survive_the_way_between_workers() -> None:
    faults = (Fault("a.yaml", 2, 5, "it is wrong", "\tkey: valve", "value"), Fault("a.yaml", 3, 1, "so is this"))
    for error in (CaseFileError(faults), LedgerError(faults)):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and again.faults == faults
        assert str(again) == (
            "a.yaml:2:5: it is wrong\n    \tkey: valve\n    \t   ^\n    did you mean value?\na.yaml:3:1: so is this"
        )


def test_a_long_line_is_shown_around_its_fault() -> None:
    line = "x" * 300 + "HERE" + "y" * 300
    shown = str(Fault("a.yaml", 1, 301, "wrong", line)).splitlines()
    assert len(shown[1]) == 4 + 120
    assert shown[1][shown[2].index("^") :].startswith("HERE")


def test_paths_of_pairs_do_not_depend_on_the_folder_that_is_current(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project.cases("small", "fake/right")
    monkeypatch.chdir(project.site)
    (pair,) = select(path, project.root, True).pairs
    assert Path(pair.case.source.file) == Path("cases/small.yaml")


def test_what_an_import_makes_is_left_to_itself_by_the_collector(project: Project) -> None:
    project.cases("small", "fake/right")
    (pair,) = pairs_of(case_files(project.root / "cases"), project.root)
    before = gc.get_freeze_count()
    try:
        assert conclude(pair, ()).row.status == "agrees"
        assert gc.get_freeze_count() > before and gc.isenabled()
    finally:
        gc.unfreeze()
