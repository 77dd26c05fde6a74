"""What pytest shows and records: every status, faulty files, node ids, and adapters that do not load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.projects import Project, output_of, row_of

TWO = "include: [{name: one}, {name: two, mask: {causal: top-left}}]"


def test_agreement_passes(project: Project) -> None:
    project.cases("small", "fake/right", body=TWO)
    result = project.pytest_here("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["cases/small.yaml::one?fake/right? PASSED*"])
    assert result.ret == pytest.ExitCode.OK
    assert project.statuses() == {"one[fake/right]": "agrees", "two[fake/right]": "agrees"}


def test_a_known_divergence_is_an_expected_failure_with_its_reason(project: Project) -> None:
    project.cases("small", "fake/off")
    project.ledger({})
    result = project.pytest_here("-rx")
    result.assert_outcomes(xfailed=1, passed=1)
    result.stdout.fnmatch_lines(["XFAIL cases/small.yaml::one?fake/off? - off: A constant is added to one element*"])
    row = row_of(project, "fake/off")
    assert (row.status, row.entries, row.ledger and row.ledger["line"]) == ("known", ("off",), 3)


def test_a_new_divergence_fails_in_one_screenful(project: Project) -> None:
    project.cases("small", "fake/off")
    result = project.pytest_here()
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


def test_limits_are_skipped_with_their_reason(project: Project) -> None:
    project.cases("small", "fake/limited", "absent/mha")
    result = project.pytest_here("-rs")
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
    result = project.pytest_here()
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
    shown = output_of(project.pytest_here())
    trace = row_of(project, "deep/one").traceback
    assert trace is not None and "in step2\n" in trace and "in step2\n" not in shown
    assert "\n  …\n" in shown and "in step20\n" in shown and "OSError: at the bottom" in shown


def test_of_many_findings_the_first_are_shown(project: Project) -> None:
    project.cases("small", "fake/worthless")
    shown = output_of(project.pytest_here())
    count = len(row_of(project, "fake/worthless").findings)
    assert count > 4 and f"  and {count - 4} more findings\n" in shown
    assert shown.count("    worst at ") == 4


def test_warnings_of_a_subject_are_not_verdicts(project: Project) -> None:
    project.cases("small", "fake/warning")
    project.pytest_here().assert_outcomes(passed=1)  # the project makes warnings errors


def test_a_file_with_five_faults_shows_all_and_stops_no_other(project: Project) -> None:
    project.write(
        "cases/faulty.yaml",
        "suite: faulty\nwhy: It is wrong on purpose.\ninclude:\n"
        "  - {name: a, dtyp: float32}\n  - {name: b, num_heads: four}\n  - {name: c, dtype: flaot32}\n"
        "  - {name: d, mask: {causal: top-lift}}\n  - {name: e, batch: -1}\n",
    )
    project.cases("sound", "fake/right")
    result = project.pytest_here()
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
    result = project.pytest_here()
    result.assert_outcomes(failed=1, passed=1)
    assert "cases/second.yaml:1:8: the suite 'same' is already in cases/first.yaml" in output_of(result)
    assert "cases/second.yaml::case-file" in output_of(result)


def test_files_that_cannot_be_read_stop_no_other(project: Project) -> None:
    (project.root / "cases/absent.yaml").symlink_to(project.root / "nowhere.yaml")
    (project.root / "cases/folder.yaml").mkdir()
    project.cases("sound", "fake/right")
    project.pytest_here("cases/sound.yaml").assert_outcomes(passed=1)


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
    project.pytest_here("cases/small.yaml").assert_outcomes(passed=3)
    project.pytest_here("-k", "two and fake and not slow").assert_outcomes(passed=2, deselected=3)
    project.pytest_here("cases/other.yaml::two[fake/right]").assert_outcomes(passed=1)
    assert project.statuses() == {"two[fake/right]": "agrees"}


def test_an_adapter_that_cannot_be_loaded_is_an_error_of_collection(project: Project) -> None:
    broken = project.write("broken_adapter.py", "raise ImportError('it needs something else')\n")
    project.announce("broken", broken, broken="broken_adapter:ADAPTER")
    project.cases("small", "fake/right")
    result = project.pytest_here()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    words = "the adapter 'broken' (broken_adapter:ADAPTER) cannot be loaded: ImportError: it needs something else"
    assert words in output_of(result)
    assert "Traceback" not in output_of(result)


def test_a_mistyped_subject_is_a_fault_with_a_suggestion(project: Project) -> None:
    project.cases("small", "fake/rihgt")
    shown = output_of(project.pytest_here())
    assert "cases/small.yaml:5:1: no subject is called 'fake/rihgt'" in shown
    assert "did you mean fake/right?" in shown
