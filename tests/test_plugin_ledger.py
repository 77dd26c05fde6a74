"""How pytest holds a run against the ledger: stale and dead entries, composed ones, faults, and accuracy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance import pair
from tests.projects import Project, output_of, row_of

LEDGER = "cases/known_divergences.yaml"
TWO = "include: [{name: one}, {name: two, mask: {causal: top-left}}]"


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
    result = project.pytest_here()
    result.assert_outcomes(failed=1, passed=1)
    assert f"the ledger entry off ({LEDGER}:3) is stale: {why}" in output_of(result)
    row = row_of(project, subject)
    assert (row.status, row.entries) == ("stale", ("off",))


def test_entries_compose_and_what_is_beyond_them_is_new(project: Project) -> None:
    project.cases("small", "fake/off-in-weights")
    output = {"subjects": ["fake/off-*"]}
    weights = {"id": "weights", "subjects": ["fake/off-in-*"], "shows": {"weights": ["value", "row-sum"]}}
    project.ledger(output, weights)
    project.pytest_here().assert_outcomes(xfailed=1, passed=1)
    row = row_of(project, "fake/off-in-weights")
    assert row.entries == ("off", "weights")
    assert "off: A constant" in row.summary and "weights: A constant" in row.summary
    project.ledger(output)
    project.pytest_here().assert_outcomes(failed=1, passed=1)
    row = row_of(project, "fake/off-in-weights")
    assert (row.status, row.entries, row.ledger) == ("new", ("off",), None)
    assert "beyond off: attn_weights: " in row.summary


def test_a_message_must_match_what_is_raised(project: Project) -> None:
    project.cases("small", "fake/raising")
    raised = {"subjects": ["fake/raising"], "shows": {"call": ["raised"]}}
    project.ledger(raised | {"message": "no kernel.*this"})
    project.pytest_here().assert_outcomes(xfailed=1, passed=1)
    project.ledger(raised | {"message": "out of memory"})
    result = project.pytest_here()
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
    result = project.pytest_here()
    assert row_of(project, subject).status == status
    outcomes = result.parseoutcomes()
    assert outcomes.get("xfailed" if status == "known" else "failed") == 1
    if status == "new":
        assert "not pinned in the ledger: " in output_of(result)


def test_faults_of_the_ledger_are_located(project: Project) -> None:
    project.cases("small", "fake/off")
    project.ledger(
        {"subjects": ["fake/of"], "when": {"dtyp": "float32"}, "shows": {"output": ["valve"]}},
        {"id": "versions", "versions": {"fakelib": "one"}},
    )
    result = project.pytest_here()
    result.assert_outcomes(failed=2)
    assert re.findall(r"^(cases/known\S+): 'valve' is not one of: ", output_of(result), re.MULTILINE) == [
        f"{LEDGER}:{_line_of(project, 'valve')}:8"
    ]
    project.ledger({"subjects": ["fake/of"], "when": {"dtyp": "float32"}}, {"versions": {"fakelib": "one"}})
    shown = output_of(project.pytest_here())
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
    result = project.pytest_here()
    assert result.parseoutcomes()["failed"] == 1
    (line,) = [line for line in result.outlines if line.startswith(f"{LEDGER}:")]
    assert line == f"{LEDGER}:{_line_of(project, 'idle')}: the entry idle {message}"


def test_whether_an_entry_matches_cannot_be_told_beside_a_faulty_file(project: Project) -> None:
    project.write("cases/faulty.yaml", "suite: faulty\n")
    project.cases("small", "fake/off")
    project.ledger({})
    result = project.pytest_here(LEDGER)
    result.assert_outcomes(failed=1)
    assert "cannot be told while there are faults in faulty.yaml" in output_of(result)


def _line_of(project: Project, identifier: str) -> int:
    lines = (project.root / LEDGER).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if f'"{identifier}"' in line)


def test_an_entry_that_a_whole_run_never_shows_fails_it(project: Project) -> None:
    project.cases("small", "fake/limited", "fake/right", body=TWO)
    project.ledger({"id": "dead", "subjects": ["fake/limited"]})
    result = project.pytest_here()
    result.assert_outcomes(passed=3, skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"FAILED {LEDGER}:3: the ledger entry dead was not shown by any pair that it covers" in output_of(result)


CLASS: dict[str, Any] = {"id": "class", "subjects": ["fake/*"], "shows": {}, "accuracy": {"products": "float32"}}


@pytest.mark.parametrize(
    ("subject", "others", "status", "shown", "words"),
    [
        ("fake/single", [], "known", ("class",), "class: A constant"),
        ("fake/right", [], "agrees", (), "the ledger entry class was not shown by any pair"),
        ("fake/off", [], "new", ("class",), "beyond the accuracy of class"),
        ("fake/off", [{}], "known", ("off", "class"), "off: A constant"),
        ("fake/off-in-weights", [{"subjects": ["fake/*"]}], "new", ("off", "class"), "beyond off"),
        ("fake/single", [{"subjects": ["fake/*"]}], "stale", ("off",), "output should show value"),
    ],
)
def test_an_entry_of_accuracy(
    project: Project, subject: str, others: list[dict[str, Any]], status: str, shown: tuple[str, ...], words: str
) -> None:
    project.cases("small", subject, body="include: [{name: one, dtype: float64, check: [output, weights]}]")
    project.ledger(CLASS, *others)
    result = project.pytest_here("-rx")
    row = row_of(project, subject)
    assert (row.status, row.entries) == (status, shown)
    assert words in output_of(result) + row.summary
    assert (result.ret == pytest.ExitCode.OK) is (status == "known")


def test_an_entry_of_accuracy_that_changes_nothing_explains_nothing(project: Project) -> None:
    project.cases("small", "fake/single", body="include: [{name: one, dtype: float64, check: [output]}]")
    project.ledger(CLASS | {"accuracy": {"softmax_gradient": "float32"}})
    project.pytest_here()
    row = row_of(project, "fake/single")
    assert (row.status, row.entries) == ("new", ())


@pytest.mark.parametrize("arguments", [("-k", "one"), ("cases/small.yaml::one[fake/limited]",)])
def test_a_restricted_run_says_nothing_of_entries(project: Project, arguments: tuple[str, ...]) -> None:
    project.cases("small", "fake/limited", body=TWO)
    project.ledger({"id": "dead", "subjects": ["fake/limited"]})
    assert project.pytest_here(*arguments).ret == pytest.ExitCode.OK


def test_an_entry_for_other_versions_is_neither_held_nor_missed(project: Project) -> None:
    project.cases("small", "fake/limited", "fake/off")
    project.ledger({"subjects": ["fake/*"], "versions": {"fakelib": ">=2"}})
    result = project.pytest_here()
    result.assert_outcomes(failed=1, passed=1, skipped=1)
    assert row_of(project, "fake/off").status == "new"
    assert "was not shown" not in output_of(result)


def test_an_entry_of_unjudged_parts_is_dead(project: Project) -> None:
    project.cases("small", "fake/right", body="include: [{name: one, check: [output]}]")
    project.ledger({"subjects": ["fake/right"], "shows": {"weights": ["value"]}})
    result = project.pytest_here()
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_an_accuracy_that_leaves_nothing_to_judge_explains_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> None:
        raise ValueError("every bound overflows")

    monkeypatch.setattr(pair, "judged_again", nothing)
    project.cases("small", "fake/single", body="include: [{name: one, dtype: float64, check: [output]}]")
    project.ledger({"subjects": ["fake/single"], "shows": {}, "accuracy": {"softmax": "float32"}})
    assert project.pytest_here().ret == 1
    (found,) = project.run().rows
    assert found.status == "new"
    assert "the accuracy of off leaves nothing to judge: every bound overflows" in found.summary
