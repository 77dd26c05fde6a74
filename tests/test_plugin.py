"""What pytest shows and records: every status, faulty files, interruptions, workers, and other people's projects."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from conformance import casefolder, plugin, session
from conformance.store import NAME, Row
from tests.projects import Project

LEDGER = "cases/known_divergences.yaml"
TWO = "include: [{name: one}, {name: two, mask: {causal: top-left}}]"
STOPPING = "include: [{name: before}, {name: stop}, {name: after}]"


def output_of(result: pytest.RunResult) -> str:
    return "\n".join([*result.outlines, *result.errlines])


def row_of(project: Project, subject: str) -> Row:
    (row,) = [row for row in project.run().rows if row.subject == subject]
    return row


def test_agreement_passes(project: Project) -> None:
    project.cases("small", "fake/right", body=TWO)
    result = project.run_pytest("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["cases/small.yaml::one?fake/right? PASSED*"])
    assert result.ret == pytest.ExitCode.OK
    assert project.statuses() == {"one[fake/right]": "agrees", "two[fake/right]": "agrees"}


def test_a_known_divergence_is_an_expected_failure_with_its_reason(project: Project) -> None:
    project.cases("small", "fake/off")
    project.ledger({})
    result = project.run_pytest("-rx")
    result.assert_outcomes(xfailed=1, passed=1)
    result.stdout.fnmatch_lines(["XFAIL cases/small.yaml::one?fake/off? - off: A constant is added to one element*"])
    row = row_of(project, "fake/off")
    assert (row.status, row.entries, row.ledger and row.ledger["line"]) == ("known", ("off",), 3)


def test_a_new_divergence_fails_in_one_screenful(project: Project) -> None:
    project.cases("small", "fake/off")
    result = project.run_pytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*_ small/one?fake/off? _*",
            "small/one?fake/off?: value: attn_output lies outside the bound",
            "  value: attn_output lies outside the bound; 1 of 160 elements",
            "    worst at attn_output[[]1, 2, 3[]]",
            "    expected *, actual *",
            "    error *, bound *, ratio *",
            "  case written at cases/small.yaml:5",
            "  reproduce: python -m conformance repro 'small/one?fake/off?'",
        ],
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    worst = row_of(project, "fake/off").findings[0]["worst"]
    assert worst["index"] == [1, 2, 3]
    assert worst["error"] == pytest.approx(1, abs=1e-5) and worst["ratio"] > 1000
    assert project.run().tensors(row_of(project, "fake/off"))["attn_output/actual"].shape == (2, 5, 16)


@pytest.mark.parametrize(
    ("subject", "shows", "why"),
    [
        ("fake/right", {"output": ["value"]}, "output should show value and shows agreement"),
        ("fake/off", {"output": ["nonfinite", "shape"]}, "output should show nonfinite or shape and shows value"),
        ("fake/off", {"output": ["value"], "weights": ["value"]}, "weights should show value and shows agreement"),
        ("fake/raising", {"call": ["accepted"]}, "call should show accepted and shows raised"),
    ],
)
def test_a_stale_entry_fails_and_is_named_by_file_and_line(
    project: Project, subject: str, shows: dict[str, list[str]], why: str
) -> None:
    project.cases("small", subject)
    project.ledger({"subjects": [subject], "shows": shows})
    result = project.run_pytest()
    result.assert_outcomes(failed=1, passed=1)
    assert f"the ledger entry off ({LEDGER}:3) is stale: {why}" in output_of(result)
    row = row_of(project, subject)
    assert (row.status, row.entries) == ("stale", ("off",))


def test_entries_compose_and_what_is_beyond_them_is_new(project: Project) -> None:
    project.cases("small", "fake/off-in-weights")
    output = {"subjects": ["fake/off-*"]}
    weights = {"id": "weights", "subjects": ["fake/off-in-*"], "shows": {"weights": ["value", "row-sum"]}}
    project.ledger(output, weights)
    project.run_pytest().assert_outcomes(xfailed=1, passed=1)
    row = row_of(project, "fake/off-in-weights")
    assert row.entries == ("off", "weights")
    assert "off: A constant" in row.summary and "weights: A constant" in row.summary
    project.ledger(output)
    project.run_pytest().assert_outcomes(failed=1, passed=1)
    row = row_of(project, "fake/off-in-weights")
    assert (row.status, row.entries, row.ledger) == ("new", ("off",), None)
    assert "beyond off: weights: " in row.summary


def test_limits_are_skipped_with_their_reason(project: Project) -> None:
    project.cases("small", "fake/limited", "absent/mha")
    result = project.run_pytest("-rs")
    result.assert_outcomes(skipped=2)
    shown = output_of(result)
    assert "it has never been written (https://example.org/limits)" in shown
    assert "a_framework_nobody_has is not installed: pip install a-framework-nobody-has" in shown
    assert project.statuses() == {"one[absent/mha]": "missing", "one[fake/limited]": "unsupported"}
    missing = [item for item in project.run().header.missing if item["framework"] == "absent"]
    assert missing == [
        {
            "framework": "absent",
            "modules": ["a_framework_nobody_has"],
            "install": "pip install a-framework-nobody-has",
        }
    ]


def test_what_a_subject_raises_is_kept_with_its_traceback(project: Project) -> None:
    project.cases("small", "fake/raising", "fake/unmade", body=TWO)
    result = project.run_pytest()
    result.assert_outcomes(failed=4)
    assert "RuntimeError: no kernel" in output_of(result)
    rows = {row.node.partition("::")[2]: row for row in project.run().rows}
    raising, unmade = rows["one[fake/raising]"], rows["two[fake/unmade]"]
    assert (raising.status, raising.summary) == ("errored", "RuntimeError: no kernel")
    assert raising.traceback is not None and "in attend" in raising.traceback
    assert raising.traceback.rstrip().endswith("RuntimeError: no kernel\nfor this problem")
    assert (unmade.status, unmade.summary) == ("errored", "ImportError: the shared library is broken, attempt 1")
    assert unmade.traceback is not None and "in __init__" in unmade.traceback


DEEP = """
from adapters.numpy_reference import NumpyReference
from conformance.adapter import Adapter

class Deep(NumpyReference):
    name = "deep/one"
    def attend(self, problem): self.step0()
    def step20(self): raise OSError("at the bottom")
STEPS
ADAPTER = Adapter("deep", ("numpy",), "", {"deep/one": Deep})
"""


def test_a_long_traceback_is_cut_on_the_screen_only(project: Project) -> None:
    steps = "\n".join(f"    def step{number}(self): self.step{number + 1}()" for number in range(20))
    project.announce("deeplib", project.write("deep.py", DEEP.replace("STEPS", steps)), deep="deep:ADAPTER")
    project.cases("small", "deep/one")
    shown = output_of(project.run_pytest())
    trace = row_of(project, "deep/one").traceback
    assert trace is not None and "in step2\n" in trace and "in step2\n" not in shown
    assert "\n  …\n" in shown and "in step20\n" in shown and "OSError: at the bottom" in shown


def test_warnings_of_a_subject_are_not_verdicts(project: Project) -> None:
    project.cases("small", "fake/warning")
    project.run_pytest("-W", "error").assert_outcomes(passed=1)


def test_a_message_must_match_what_is_raised(project: Project) -> None:
    project.cases("small", "fake/raising")
    raised = {"subjects": ["fake/raising"], "shows": {"call": ["raised"]}}
    project.ledger(raised | {"message": "no kernel.*this"})
    project.run_pytest().assert_outcomes(xfailed=1, passed=1)
    project.ledger(raised | {"message": "out of memory"})
    result = project.run_pytest()
    result.assert_outcomes(failed=1, passed=1)
    assert "stale: the message does not match 'out of memory': no kernel" in output_of(result)


@pytest.mark.parametrize(
    ("subject", "shows", "status"),
    [
        ("fake/right", None, "new"),
        ("fake/right", {"call": ["as-contract"]}, "known"),
        ("fake/off", None, "new"),
        ("fake/off", {"output": ["value"]}, "known"),
        ("fake/right", {"output": ["value"]}, "stale"),
        ("fake/off", {"call": ["as-contract"]}, "stale"),
    ],
)
def test_an_observed_case_must_be_pinned(
    project: Project, subject: str, shows: dict[str, list[str]] | None, status: str
) -> None:
    project.cases("small", subject, body="include: [{name: one, expect: observe}]")
    if shows is not None:
        project.ledger({"subjects": [subject], "shows": shows})
    result = project.run_pytest()
    assert row_of(project, subject).status == status
    outcomes = result.parseoutcomes()
    assert outcomes.get("xfailed" if status == "known" else "failed") == 1
    if status == "new":
        assert "not pinned in the ledger: " in output_of(result)


def test_a_file_with_five_faults_shows_all_and_stops_no_other(project: Project) -> None:
    project.write(
        "cases/faulty.yaml",
        "suite: faulty\nwhy: It is wrong on purpose.\ninclude:\n"
        "  - {name: a, dtyp: float32}\n  - {name: b, num_heads: four}\n  - {name: c, dtype: flaot32}\n"
        "  - {name: d, mask: {causal: top-lift}}\n  - {name: e, batch: -1}\n",
    )
    project.cases("sound", "fake/right")
    result = project.run_pytest()
    result.assert_outcomes(failed=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    shown = output_of(result)
    places = re.findall(r"^cases/faulty\.yaml:(\d+):(\d+): ", shown, re.MULTILINE)
    assert places == [("4", "15"), ("5", "26"), ("6", "22"), ("7", "30"), ("8", "22")]
    assert re.findall(r"did you mean (\S+)\?", shown) == ["dtype", "float32", "top-left"]
    for line, column in places:
        written = (project.root / "cases/faulty.yaml").read_text().splitlines()[int(line) - 1]
        assert f"    {written}\n    {' ' * (int(column) - 1)}^\n" in shown
    assert "Traceback" not in shown and "conformance/" not in shown.partition("short test summary")[0].replace(
        str(project.root), ""
    ).replace("conformance/one", "")
    assert project.statuses() == {"one[fake/right]": "agrees"}


def test_two_files_must_not_share_a_suite(project: Project) -> None:
    project.cases("first", "fake/right", suite="same")
    project.cases("second", "fake/right", suite="same")
    result = project.run_pytest()
    result.assert_outcomes(failed=1, passed=1)
    assert "cases/second.yaml:1:8: the suite 'same' is already in cases/first.yaml" in output_of(result)
    assert "cases/second.yaml::case-file" in output_of(result)


def test_files_that_cannot_be_read_stop_no_other(project: Project) -> None:
    (project.root / "cases/absent.yaml").symlink_to(project.root / "nowhere.yaml")
    (project.root / "cases/folder.yaml").mkdir()
    project.cases("sound", "fake/right")
    project.run_pytest("cases/sound.yaml").assert_outcomes(passed=1)


def test_faults_of_the_ledger_are_located(project: Project) -> None:
    project.cases("small", "fake/off")
    project.ledger(
        {"subjects": ["fake/of"], "when": {"dtyp": "float32"}, "shows": {"output": ["valve"]}},
        {"id": "versions", "versions": {"fakelib": "one"}},
    )
    result = project.run_pytest()
    result.assert_outcomes(failed=2)
    assert re.findall(r"^(cases/known\S+): 'valve' is not one of: ", output_of(result), re.MULTILINE) == [
        f"{LEDGER}:{_line_of(project, 'valve')}:8"
    ]
    project.ledger({"subjects": ["fake/of"], "when": {"dtyp": "float32"}}, {"versions": {"fakelib": "one"}})
    shown = output_of(project.run_pytest())
    for words in (
        "no subject is called 'fake/of'",
        "did you mean fake/off?",
        "'dtyp' is not a fact of a case",
        "did you mean dtype?",
        "the id 'off' is already used on line 3",
        "'one' is not a version specifier such as '==2.13.*'",
    ):
        assert words in shown
    assert "the ledger has faults and was not used: cases/known_divergences.yaml:" in shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"when": {"dtype": "float64"}}, "matches no case and subject"),
        ({"cases": ["small/one", "small/gone*"]}, "matches no case with 'small/gone*'"),
    ],
)
def test_an_entry_that_matches_nothing_fails_and_is_named(
    project: Project, changes: dict[str, Any], message: str
) -> None:
    project.cases("small", "fake/off")
    project.ledger({}, {"id": "idle"} | changes)
    result = project.run_pytest()
    assert result.parseoutcomes()["failed"] == 1
    (line,) = [line for line in result.outlines if line.startswith(f"{LEDGER}:")]
    assert line == f"{LEDGER}:{_line_of(project, 'idle')}: the entry idle {message}"


def test_whether_an_entry_matches_cannot_be_told_beside_a_faulty_file(project: Project) -> None:
    project.write("cases/faulty.yaml", "suite: faulty\n")
    project.cases("small", "fake/off")
    project.ledger({})
    result = project.run_pytest(LEDGER)
    result.assert_outcomes(failed=1)
    assert "cannot be told while there are faults in faulty.yaml" in output_of(result)


def _line_of(project: Project, identifier: str) -> int:
    lines = (project.root / LEDGER).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f'"{identifier}"' in line)


def test_an_entry_that_a_whole_run_never_shows_fails_it(project: Project) -> None:
    project.cases("small", "fake/limited", "fake/right", body=TWO)
    project.ledger({"id": "dead", "subjects": ["fake/limited"]})
    result = project.run_pytest()
    result.assert_outcomes(passed=3, skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"FAILED {LEDGER}:3: the ledger entry dead was not shown by any pair that it covers" in output_of(result)


@pytest.mark.parametrize(
    ("subjects", "status", "words"),
    [
        (("fake/single",), "known", "class: A constant"),
        (("fake/right",), "agrees", "the ledger entry class was not shown by any pair"),
        (("fake/off",), "new", "beyond the accuracy of class"),
        (("fake/off-in-weights",), "new", "beyond off"),
    ],
)
def test_an_entry_of_accuracy(project: Project, subjects: tuple[str, ...], status: str, words: str) -> None:
    project.cases("small", *subjects, body="include: [{name: one, dtype: float64, check: [output, weights]}]")
    accuracy = {"id": "class", "subjects": [*subjects], "shows": {}, "accuracy": {"products": "float32"}}
    more: list[dict[str, Any]] = [{"subjects": [*subjects]}] if "fake/off-in-weights" in subjects else []
    project.ledger(accuracy, *more)
    result = project.run_pytest("-rx")
    row = row_of(project, subjects[0])
    assert row.status == status and words in output_of(result) + row.summary
    assert (result.ret == pytest.ExitCode.OK) is (status == "known")
    assert ("class" in row.entries) is (status != "agrees")


@pytest.mark.parametrize("arguments", [("-k", "one"), ("cases/small.yaml::one[fake/limited]",)])
def test_a_restricted_run_says_nothing_of_entries(project: Project, arguments: tuple[str, ...]) -> None:
    project.cases("small", "fake/limited", body=TWO)
    project.ledger({"id": "dead", "subjects": ["fake/limited"]})
    assert project.run_pytest(*arguments).ret == pytest.ExitCode.OK


def test_an_entry_for_other_versions_is_neither_held_nor_missed(project: Project) -> None:
    project.cases("small", "fake/limited", "fake/off")
    project.ledger({"subjects": ["fake/*"], "versions": {"fakelib": ">=2"}})
    result = project.run_pytest()
    result.assert_outcomes(failed=1, passed=1, skipped=1)
    assert row_of(project, "fake/off").status == "new"
    assert "was not shown" not in output_of(result)


def test_an_entry_of_unjudged_parts_is_dead(project: Project) -> None:
    project.cases("small", "fake/right", body="include: [{name: one, check: [output]}]")
    project.ledger({"subjects": ["fake/right"], "shows": {"weights": ["value"]}})
    result = project.run_pytest()
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_node_ids_and_lines(project: Project) -> None:
    project.cases("small", "fake/right", "fake/off", body="\n\n" + TWO.replace(", {name: two", ",\n  {name: two"))
    items, _ = project.pytester.inline_genitems("-p", "no:xdist")
    assert [item.nodeid for item in items] == [
        "cases/small.yaml::one[fake/right]",
        "cases/small.yaml::one[fake/off]",
        "cases/small.yaml::two[fake/right]",
        "cases/small.yaml::two[fake/off]",
    ]
    path, line, name = items[2].reportinfo()
    assert (Path(path), line, name) == (project.root / "cases/small.yaml", 7, "small/two[fake/right]")
    assert not (project.root / "reports").exists()


def test_a_file_a_node_and_a_keyword_can_be_chosen(project: Project) -> None:
    project.cases("small", "fake/right", "fake/slow", body=TWO.replace("two,", "two, tags: [shared-shape],"))
    project.cases("other", "fake/right", body=TWO)
    project.run_pytest("cases/small.yaml").assert_outcomes(passed=3)
    project.run_pytest("-k", "two and fake and not slow").assert_outcomes(passed=2, deselected=3)
    project.run_pytest("cases/other.yaml::two[fake/right]").assert_outcomes(passed=1)
    assert project.statuses() == {"two[fake/right]": "agrees"}


def test_slow_subjects_are_sampled_unless_all_is_asked_for(project: Project) -> None:
    project.cases("small", "fake/right", "fake/slow", body=TWO.replace("two,", "two, tags: [shared-shape],"))
    project.run_pytest().assert_outcomes(passed=3)
    (sampled,) = project.run().header.sampled
    assert (sampled["subject"], sampled["left_out"]) == ("fake/slow", 1)
    assert "shared-shape" in sampled["reason"]
    project.run_pytest("--full").assert_outcomes(passed=4)
    assert project.run().header.sampled == ()


def test_the_header_tells_what_the_subjects_run_on(project: Project) -> None:
    project.cases("small", "fake/right")
    project.run_pytest()
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
    project.run_pytest("-x").assert_outcomes(failed=1)
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
        run = project.pytest_apart if "-n" in arguments else project.run_pytest
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
    project.run_pytest()
    shutil.copytree(project.run().folder, kept)
    first = project.run().folder
    for _ in range(3):
        project.run_pytest()
    folders = sorted(path.name for path in (project.root / "reports").iterdir())
    assert len(folders) == 3 and first.name not in folders
    assert folders[-1] == "baseline", "a folder that someone named is theirs"
    assert all(NAME.fullmatch(name) for name in folders[:2])


def test_reports_may_go_elsewhere(project: Project) -> None:
    project.cases("small", "fake/right")
    project.run_pytest("--reports", "elsewhere")
    (folder,) = (project.root / "elsewhere").iterdir()
    assert {path.name for path in folder.iterdir()} == {"results.jsonl", "report.html"}


def test_the_summary_names_the_report(project: Project) -> None:
    project.cases("small", "fake/off")
    result = project.run_pytest()
    result.stdout.fnmatch_lines(["*attention conformance*", "report * *report.html", "reproduce *small/one*fake/off*"])


def test_a_script_is_kept_where_a_subject_gives_one(project: Project) -> None:
    small = "include: [{name: one, check: [output]}]"  # larger scripts are not kept
    project.cases("small", "fake/off", "fake/off-in-weights", "fake/right", body=small)
    project.run_pytest()
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
    project.run_pytest()
    run = project.run()
    assert [run.script(row) is None for row in run.rows] == [False, True]


def test_an_adapter_that_cannot_be_loaded_is_an_error_of_collection(project: Project) -> None:
    broken = project.write("broken_adapter.py", "raise ImportError('it needs something else')\n")
    project.announce("broken", broken, broken="broken_adapter:ADAPTER")
    project.cases("small", "fake/right")
    result = project.run_pytest()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    words = "the adapter 'broken' (broken_adapter:ADAPTER) cannot be loaded: ImportError: it needs something else"
    assert words in output_of(result)
    assert "Traceback" not in output_of(result)


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
