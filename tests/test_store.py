"""What a run stores: rows of several processes, cut lines, headers, tensors, and what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import store
from conformance.store import (
    RESULTS,
    Recorder,
    Row,
    combine,
    finished_runs,
    latest_run,
    read_run,
    write_results,
)
from tests.synthetic_runs import HEADER, arrays, row


def recorded(folder: Path, process: str, *rows: Row, **options: Any) -> Recorder:
    recorder = Recorder(folder, process, **options)
    for one in rows:
        recorder.record(one)
    return recorder


def test_rows_of_several_processes_come_back_in_matrix_order(tmp_path: Path) -> None:
    rows = [
        row("a", "alpha/x", order=(0, 0)),
        row("a", "beta/x", order=(0, 1)),
        row("b", "alpha/x", order=(1, 0), entries=("one", "two")),
        row("z", "alpha/x", order=(0, 0), file="cases/zeta.yaml"),
    ]
    recorded(tmp_path, "gw1", rows[3], rows[1]).close()
    recorded(tmp_path, "gw0", rows[2], rows[0]).close()
    run = combine(tmp_path, HEADER)
    assert run.rows == tuple(rows)
    assert read_run(tmp_path) == run
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]


def test_the_last_row_of_a_pair_counts(tmp_path: Path) -> None:
    first, again = row(summary="first"), row(summary="again")
    recorded(tmp_path, "main", first, again).close()
    assert combine(tmp_path, HEADER).rows == (again,)


def test_a_row_is_on_disk_as_soon_as_it_is_recorded(tmp_path: Path) -> None:
    recorder = recorded(tmp_path, "main", row())
    assert len((tmp_path / "rows-main.jsonl").read_text().splitlines()) == 1
    recorder.close()


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path, cut: int) -> None:
    recorded(tmp_path, "main", row("a"), row("b", summary="ends in a wide character: ∞")).close()
    path = tmp_path / "rows-main.jsonl"
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.index("∞".encode()) + 1] if cut == 3 else raw[:-cut])
    assert [one.case for one in combine(tmp_path, HEADER).rows] == ["a"]


def test_a_run_that_was_killed_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "20260102-030405.000000"
    killed = [recorded(folder, process, row(process)) for process in ("gw1", "gw0")]
    killed[0].learn({"beta": "2"})
    files = sorted(folder.iterdir())
    run = read_run(folder)
    assert [one.case for one in run.rows] == ["gw0", "gw1"] and run.header.versions == {"beta": "2"}
    assert run.header.started == "2026-01-02T03:04:05+00:00" and not run.header.complete
    assert sorted(folder.iterdir()) == files, "a run that goes on still needs them"
    for one in killed:
        one.close()


def test_versions_and_samples_are_gathered_from_all_processes(tmp_path: Path) -> None:
    sampled = [{"subject": "beta/slow", "left_out": 3, "reason": "slow"}]
    first, second = (recorded(tmp_path, name, row(name), sampled=sampled) for name in ("gw0", "gw1"))
    first.learn({"zeta": "1"})
    second.learn({"beta": "2"})
    second.learn({"beta": "2"})
    (tmp_path / "note-gw2.new").write_text('{"cut')
    for recorder in (first, second):
        recorder.close()
    header = combine(tmp_path, HEADER).header
    assert header.versions == {"numpy": "2.4.6", "alpha": "1.0.0", "beta": "2", "zeta": "1"}
    assert list(header.versions)[2:] == ["beta", "zeta"]
    assert header.sampled == tuple(sampled)
    assert read_run(tmp_path).header == header
    assert [path.name for path in tmp_path.iterdir()] == [RESULTS]


def test_tensors_come_back_and_their_names_do_not_depend_on_the_process(tmp_path: Path) -> None:
    stored = []
    for process in ("gw0", "gw7"):
        recorder = Recorder(tmp_path / process, process)
        recorder.record(row("other"), None)
        recorder.record(row(), arrays())
        recorder.close()
        run = combine(tmp_path / process, HEADER)
        kept = next(one for one in run.rows if one.tensors is not None)
        stored.append(kept.tensors)
        for name, array in run.tensors(kept).items():
            np.testing.assert_array_equal(array, arrays()[name])
            assert array.dtype == arrays()[name].dtype
        assert [run.tensors(one) for one in run.rows if one != kept] == [{}]
    assert stored[0] == stored[1]


def test_large_outputs_are_stored_in_less_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGE", 3)
    recorder = Recorder(tmp_path, "main")
    recorder.record(row(), {"a": np.zeros(4), "b": np.zeros(3), "blocked": np.zeros(9, bool)})
    recorder.close()
    run = combine(tmp_path, HEADER)
    dtypes = {name: array.dtype.name for name, array in run.tensors(run.rows[0]).items()}
    assert dtypes == {"a": "float32", "b": "float64", "blocked": "bool"}


def test_a_script_is_found_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "main")
    recorder.record(row("a"), script="print('∞')\n")
    recorder.record(row("b"))
    recorder.close()
    run = combine(tmp_path, HEADER)
    assert [run.script(one) for one in run.rows] == ["print('∞')\n", None]


def test_numbers_that_are_not_finite_and_numpy_scalars_survive(tmp_path: Path) -> None:
    worst = {"error": float("inf"), "actual": float("-inf"), "bound": np.float64(0.5), "index": (np.int64(1),)}
    write_results(tmp_path, HEADER, [row(findings=({"worst": worst},), facts={"big": np.bool_(True)})])
    (one,) = read_run(tmp_path).rows
    assert one.findings == ({"worst": {"error": np.inf, "actual": -np.inf, "bound": 0.5, "index": [1]}},)
    assert one.facts["big"] is True


def test_mappings_that_are_no_dict_are_stored_as_one(tmp_path: Path) -> None:
    class Facts(dict[str, Any]):
        pass

    write_results(tmp_path, HEADER, [replace(row(), seconds=Facts(subject=1.5))])
    assert read_run(tmp_path).rows[0].seconds == {"subject": 1.5}


def test_what_json_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="complex cannot be stored"):
        write_results(tmp_path, HEADER, [row(facts={"odd": 1j})])


def test_plain_values_of_other_mappings() -> None:
    class Other(Mapping[str, int]):
        def __getitem__(self, key: str) -> int:
            return 1

        def __iter__(self) -> Any:
            return iter("a")

        def __len__(self) -> int:
            return 1

    assert store._plain(Other()) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]\n", "has schema None; this version reads schema 1"),
        ('{"schema": 2}\n', "has schema 2; this version reads schema 1"),
        ('{"schema": 1, "started": "now"}\n', r"results\.jsonl:1: not a header"),
        ("HEADER\n{}\n", r"results\.jsonl:2: not a row"),
        ('HEADER\n{"node": \n', "Expecting value"),
        ("HEADER\n[1]\n", r"results\.jsonl:2: not a row"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write_results(tmp_path, HEADER, [])
    header = (tmp_path / RESULTS).read_text().rstrip("\n")
    (tmp_path / RESULTS).write_text(text.replace("HEADER", header))
    with pytest.raises(ValueError, match=message):
        read_run(tmp_path)


def test_a_folder_without_results_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path)


def test_the_newest_run(tmp_path: Path) -> None:
    assert latest_run(tmp_path) is None and latest_run(tmp_path / "nowhere") is None
    names = ("20260102-000000.000000", "20260101-000000.000000", "20260103-000000.000000", "baseline")
    for name in names:
        (tmp_path / name).mkdir()
        if name != names[2]:
            (tmp_path / name / RESULTS).write_text("")
    assert latest_run(tmp_path) == tmp_path / names[0]
    assert [path.name for path in finished_runs(tmp_path)] == [names[1], names[0]]


def test_each_line_is_json(tmp_path: Path) -> None:
    write_results(tmp_path, HEADER, [row("a"), row("b")])
    lines = [json.loads(line) for line in (tmp_path / RESULTS).read_text().splitlines()]
    assert [line.get("schema", line.get("case")) for line in lines] == [1, "a", "b"]
