"""What changed since an earlier run, and which run that is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import session
from conformance.cli import main
from conformance.report.changes import Comparison, Outcome, outcomes_of
from conformance.report.earlier import comparison, earlier_run, outcomes_in
from conformance.store import Header, Row, Run, write_results
from tests.projects import Project
from tests.report_pages import Page, page_of
from tests.synthetic_runs import HEADER, HOSTILE, finding, measure, row, run_of

OLD = {"a": "agrees", "b": "new", "c": "known", "d": "agrees", "gone": "agrees"}


def told(old: dict[str, str], new: dict[str, str]) -> str:
    runs = [{name: Outcome(name, status, None) for name, status in run.items()} for run in (old, new)]
    return Comparison.of("before", *runs).told


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (OLD, "nothing changed"),
        (OLD | {"a": "new"}, "1 newly failing"),
        (OLD | {"b": "agrees"}, "1 no longer failing"),
        (OLD | {"c": "stale", "d": "errored"}, "2 newly failing"),
        (OLD | {"c": "agrees"}, "1 otherwise changed"),
        (OLD | {"b": "errored"}, "1 otherwise changed"),
        (OLD | {"more": "new"}, "1 newly failing"),
        (OLD | {"more": "agrees"}, "1 added"),
        ({name: OLD[name] for name in "abcd"}, "1 not run this time"),
        ({"a": "new", "b": "new"}, "1 newly failing"),  # a run of a part does not tell what it left out
    ],
)
def test_each_change_is_told(new: dict[str, str], words: str) -> None:
    assert told(OLD, new) == words


def recorded(folder: Path, day: int, rows: Iterable[Row], header: Header = HEADER) -> Run:
    run = run_of(folder / f"202601{day:02}-000000.000000", list(rows), header)
    run.folder.mkdir()
    write_results(run.folder, header, run.rows)
    return run


def test_the_newest_earlier_run_that_covers_half_of_this_one_is_found(tmp_path: Path) -> None:
    many = [row(f"c{number}") for number in range(4)]
    whole = recorded(tmp_path, 1, many)
    half = recorded(tmp_path, 2, many[:2])
    recorded(tmp_path, 3, many[:1])  # too small
    recorded(tmp_path, 4, many, replace(HEADER, complete=False))  # did not come to its end
    recorded(tmp_path, 5, [row("other")])
    (tmp_path / "20260106-000000.000000").mkdir()
    (tmp_path / "20260106-000000.000000" / "results.jsonl").write_text("no run", encoding="utf-8")
    now = recorded(tmp_path, 7, many)
    recorded(tmp_path, 8, many)  # later
    assert earlier_run(now) == half.folder
    assert earlier_run(Run(now.folder, HEADER, tuple(many[2:]))) == whole.folder
    assert earlier_run(whole) is None


def test_a_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    rows = [
        row(measures=(measure(ratio=0.25),)),
        row("b", status="new", findings=(finding(), finding(worst={"error": float("nan"), "bound": 1.0}))),
        row("c", status="errored", summary="boom", measures=()),
        row(HOSTILE + '\\"'),
    ]
    run = recorded(tmp_path, 1, rows)
    with (run.folder / "results.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"node": "x"}\n[1]\n{"node": "y", "findings": [3]}\n{"node": "cut')
    assert outcomes_in(run.folder) == outcomes_of(run)
    assert earlier_run(Run(tmp_path / "20260102-000000.000000", HEADER, (rows[3],))) == run.folder
    compared = comparison(run, run.folder)
    assert compared is not None
    assert compared.sentence == "nothing changed since 20260101-000000.000000"


def test_the_page_lists_every_change_with_a_link_to_its_row(tmp_path: Path) -> None:
    same = [row(f"n{number}") for number in range(3)]
    old = [row("a", measures=(measure(ratio=0.1),)), row("b", status="new"), row("gone"), *same]
    now = recorded(tmp_path, 2, [row("a", measures=(measure(ratio=0.4),)), row("b"), row("more"), *same])
    before = recorded(tmp_path, 1, old)
    page = page_of(now, comparison=comparison(now, before.folder))
    for words in (
        "1 no longer failing, 1 worse, 1 added, 1 not run this time",
        "a[alpha/mha] agrees 0.10 → 0.40 ×4.00",
        "b[alpha/mha] new → agrees",
        "gone[alpha/mha]",
    ):
        assert words in page.text
    links = [link.get("href") for link in page.attributes("a")]
    assert "#row=cases/plain.yaml%3A%3Aa%5Balpha/mha%5D" in links
    assert not [link for link in links if "gone" in str(link)]
    changes = [*page.index["changes"], None]
    assert [changes[line[8] - 1] for line in page.index["rows"]] == ["worse", "fixed", "added", None, None, None]


def test_a_run_of_one_file_is_compared_with_the_last_whole_run(project: Project) -> None:
    one, other = project.cases("one", "fake/right"), project.cases("other", "fake/right")
    project.pytest_here().assert_outcomes(passed=2)
    whole = project.run().folder.name
    other.unlink()
    one.write_text(one.read_text(encoding="utf-8").replace("fake/right", "fake/right, fake/off"), encoding="utf-8")
    project.pytest_here().stdout.fnmatch_lines([f"changed*1 newly failing since {whole}*"])
    report = (project.run().folder / "report.html").read_text(encoding="utf-8")
    assert f"{whole}</bdi></a>: 1 newly failing." in report


def test_the_run_that_was_compared_is_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEPT_RUNS", 1)
    project.cases("one", "fake/right")
    project.cases("other", "fake/right")
    project.pytest_here()
    whole = project.run().folder
    project.pytest_here("cases/one.yaml")
    assert whole.is_dir()  # the newest run is another
    project.pytest_here("cases/one.yaml")
    assert not whole.is_dir()


def test_the_second_run_says_that_nothing_changed(project: Project) -> None:
    project.cases("small", "fake/right")
    project.pytest_here().assert_outcomes(passed=1)
    project.pytest_here().stdout.fnmatch_lines(["changed*nothing changed since*"])


def test_the_report_command_compares_with_any_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, now = recorded(tmp_path, 1, [row(status="new")]), recorded(tmp_path, 2, [row("x"), row("y"), row()])
    assert main(["report", str(now.folder)]) == 0
    assert "changed" not in capsys.readouterr().out  # the earlier run holds less than half of this one
    assert main(["report", str(now.folder), "--against", str(old.folder)]) == 0
    assert f"changed    1 no longer failing, 2 added since {old.folder.name}" in capsys.readouterr().out
    assert Page((now.folder / "report.html").read_text(encoding="utf-8")).index["since"] == old.folder.name
    assert main(["report", str(now.folder), "--against", str(tmp_path / "nowhere")]) == 2
