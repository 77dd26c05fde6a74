"""Whole runs: interrupted, parallel, sampled, pruned; and other people's projects."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from conformance import casefolder, plugin, session
from conformance.store import NAME, Row
from tests.projects import Project, output_of

TWO = "include: [{name: one}, {name: two, mask: {causal: top-left}}]"
STOPPING = "include: [{name: before}, {name: stop}, {name: after}]"


def test_slow_subjects_are_sampled_unless_all_is_asked_for(project: Project) -> None:
    project.cases("small", "fake/right", "fake/slow", body=TWO.replace("two,", "two, tags: [shared-shape],"))
    project.pytest_here().assert_outcomes(passed=3)
    (sampled,) = project.run().header.sampled
    assert (sampled["subject"], sampled["left_out"]) == ("fake/slow", 1)
    assert "shared-shape" in sampled["reason"]
    project.pytest_here("--full").assert_outcomes(passed=4)
    assert project.run().header.sampled == ()


def test_the_header_tells_what_the_subjects_run_on(project: Project) -> None:
    project.cases("small", "fake/right")
    project.pytest_here()
    header = project.run().header
    assert header.complete and header.versions["fakelib"] == "1.5"
    assert {"attention-conformance", "numpy", "pytest"} <= header.versions.keys()
    assert "torch" not in header.versions, "no subject on it was loaded"
    assert header.environment["variables"]["OMP_NUM_THREADS"]
    assert header.command.startswith("pytest") and header.wall_seconds > 0


def test_ctrl_c_keeps_the_rows_and_marks_the_run(project: Project) -> None:
    project.cases("small", "fake/interrupted", body=STOPPING)
    result = project.pytest_apart("-p", "no:xdist")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = project.run()
    assert not run.header.complete
    assert [row.case for row in run.rows] == ["small/before"]
    assert (run.folder / "report.html").stat().st_size > 1000
    assert "PARTIAL" in output_of(result)


def test_the_first_failure_can_end_the_run(project: Project) -> None:
    project.cases("small", "fake/off", body=TWO)
    project.pytest_here("-x").assert_outcomes(failed=1)
    assert not project.run().header.complete
    assert len(project.run().rows) == 1


def test_a_worker_that_dies_keeps_the_other_rows_and_leaves_one_of_its_own(project: Project) -> None:
    project.cases("small", "fake/dying", "fake/right", body=STOPPING)
    result = project.pytest_apart("-n", "2")
    assert result.parseoutcomes()["failed"] == 1
    assert project.statuses() == {
        f"{case}[fake/{subject}]": "errored" if (case, subject) == ("stop", "dying") else "agrees"
        for case in ("before", "stop", "after")
        for subject in ("dying", "right")
    }
    summary = row_of_node(project, "stop[fake/dying]").summary
    assert re.fullmatch(r"Crash: worker 'gw\d' crashed while running .*", summary)
    assert project.run().header.sampled == ()


def test_what_no_encoding_has_is_no_end_of_a_worker(project: Project) -> None:
    project.cases("small", "fake/right", "fake/unsendable", body=TWO)
    result = project.pytest_apart("-n", "2")
    result.assert_outcomes(passed=2, failed=2)
    assert len(project.run().rows) == 4 and project.run().header.complete
    assert "RuntimeError: no file \\udcff␛[31m" in output_of(result) and "\x1b[31m" not in output_of(result)


def row_of_node(project: Project, name: str) -> Row:
    (row,) = [row for row in project.run().rows if row.node.endswith(f"::{name}")]
    return row


SHUFFLE = """
def pytest_collection_modifyitems(items):
    items.reverse()
"""


def test_workers_and_order_change_nothing(project: Project) -> None:
    for name in ("first", "second", "third"):
        project.cases(name, "fake/right", "fake/off", "fake/raising", "fake/slow", "absent/mha", body=TWO)
    project.ledger({"when": {"causal": "none"}})
    project.write("site/shuffle.py", SHUFFLE)
    seen = []
    for arguments in ((), (), ("-n", "auto"), ("-n", "4", "-p", "shuffle"), ("-p", "shuffle")):
        run = project.pytest_apart if "-n" in arguments else project.pytest_here
        assert run(*arguments).ret == pytest.ExitCode.TESTS_FAILED
        rows = [json.loads(line) for line in (project.run().folder / "results.jsonl").read_text().splitlines()[1:]]
        header = project.run().header
        assert header.sampled[0]["left_out"] == 6 and header.versions["fakelib"] == "1.5" and header.complete
        seen.append([{key: value for key, value in row.items() if key != "seconds"} for row in rows])
        shutil.rmtree(project.root / "reports")
    assert len(seen[0]) == 3 * 2 * 4
    assert [row["status"] for row in seen[0][:8]] == [
        *("missing", "agrees", "known", "errored"),
        *("missing", "agrees", "new", "errored"),
    ]
    assert all(rows == seen[0] for rows in seen)


def test_only_the_newest_runs_are_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "KEPT_RUNS", 2)
    project.cases("small", "fake/right")
    kept = project.write("reports/baseline", "").parent / "baseline"
    kept.unlink()
    project.pytest_here()
    shutil.copytree(project.run().folder, kept)
    first = project.run().folder
    for _ in range(3):
        project.pytest_here()
    folders = sorted(path.name for path in (project.root / "reports").iterdir())
    assert len(folders) == 3 and first.name not in folders
    assert folders[-1] == "baseline", "a folder that someone named is theirs"
    assert all(NAME.fullmatch(name) for name in folders[:2])


def test_reports_may_go_elsewhere(project: Project) -> None:
    project.cases("small", "fake/right")
    project.pytest_here("--reports", "elsewhere")
    (folder,) = (project.root / "elsewhere").iterdir()
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "report.html"}


@pytest.mark.parametrize("option", ["--reports", "--summary"])
def test_a_path_that_pytest_would_misread_is_refused(
    project: Project, tmp_path_factory: pytest.TempPathFactory, option: str
) -> None:
    project.cases("small", "fake/right")
    there = tmp_path_factory.mktemp("there")
    value = str(there if option == "--reports" else there / "page.md")
    (there / "page.md").touch()
    result = project.pytest_apart(option, value)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"write {option}={value}: after a blank" in str(result.stderr)
    assert project.pytest_apart(f"{option}={value}").ret == pytest.ExitCode.OK
    assert (there / "page.md").read_text() if option == "--summary" else any(there.glob("2*/report.html"))


@pytest.mark.parametrize("option", ["--reports=small.txt/runs", "--reports=small.txt", "--summary=cases"])
def test_what_cannot_be_written_is_refused_before_the_run(project: Project, option: str) -> None:
    project.cases("small", "fake/right")
    project.write("small.txt", "")
    result = project.pytest_here(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{option} cannot be written*"])


def test_the_summary_keeps_within_a_narrow_terminal(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.cases("small", "fake/right", "fake/off")
    monkeypatch.setenv("COLUMNS", "50")
    lines = output_of(project.pytest_here()).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("attention conformance"))
    shown = [line for line in lines[start:] if line.startswith(("attention", "  ", "verdict", "NEW", "missing"))]
    assert any(line.startswith("NEW") for line in shown)
    assert all(len(line) <= 50 for line in shown if not line.startswith("missing")), shown


def test_the_summary_names_the_report(project: Project) -> None:
    project.cases("small", "fake/off")
    result = project.pytest_here()
    result.stdout.fnmatch_lines(["*attention conformance*", "report * *report.html", "reproduce *small/one*fake/off*"])


def test_a_script_is_kept_where_a_subject_gives_one(project: Project) -> None:
    small = "include: [{name: one, check: [output]}]"  # larger scripts are not kept
    project.cases("small", "fake/off", "fake/off-in-weights", "fake/right", body=small)
    project.pytest_here()
    run = project.run()
    scripts = {row.subject: run.script(row) for row in run.rows}
    assert scripts["fake/right"] is None and scripts["fake/off-in-weights"] is None
    script = scripts["fake/off"]
    assert script is not None and "actual = {'attn_output': data['query']}" in script
    compile(script, "script", "exec")


def test_of_known_divergences_few_scripts_are_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SCRIPTS_OF_A_KIND", 1)
    project.cases("small", "fake/off", body="include: [{name: one, check: [output]}, {name: two, check: [output]}]")
    project.ledger({})
    project.pytest_here()
    run = project.run()
    assert [run.script(row) is None for row in run.rows] == [False, True]


def test_other_projects_are_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\naddopts = -p no:cacheprovider -p no:randomly -p no:hypothesispytest\n"
    )  # it imports NumPy
    (pytester.path / "data").mkdir()
    (pytester.path / "data" / "foreign.yaml").write_text("suite: [unclosed")
    (pytester.path / "cases").mkdir()
    (pytester.path / "cases" / "notes.txt").write_text("no case file")
    pytester.makepyfile(
        """
        import os, sys

        def test_nothing_is_imported():
            heavy = {"numpy", "pydantic", "ruamel.yaml", "conformance.suite", "conformance.session"}
            assert not heavy & set(sys.modules)
            assert "conformance.plugin" in sys.modules

        def test_no_setting_is_touched():
            assert "OMP_NUM_THREADS" not in os.environ
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        pytester.runpytest_subprocess().assert_outcomes(passed=2)
        result = pytester.runpytest_subprocess("-n", "2", "-v")
    result.assert_outcomes(passed=2)
    assert "scheduling tests via LoadScheduling" in output_of(result)
    assert not (pytester.path / "reports").exists()


def test_a_framework_stays_in_one_worker_where_it_is_slow(project: Project) -> None:
    project.cases("small", "fake/right")
    result = project.pytest_apart("-n", "1", "-v", "cases/small.yaml::one[fake/right]")
    assert "scheduling tests via FrameworkScheduling" in output_of(result)
    assert result.parseoutcomes() == {"passed": 1}
    result = project.pytest_apart("-n", "1", "-v", "--dist", "loadfile")
    assert "scheduling tests via LoadFileScheduling" in output_of(result)


def test_the_plugin_and_the_engine_mean_the_same_files() -> None:
    assert plugin.ENDINGS == casefolder.ENDINGS
