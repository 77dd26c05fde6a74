"""Ill-formed calls through the front door: what pytest, the run and the commands say of refusing and accepting."""

from __future__ import annotations

import json

import pytest

from conformance.cli import main
from tests.projects import Project, output_of, row_of
from tests.report_pages import Page

MASK = "{explicit: {pattern: random, axes: TS}}"
BODY = f"include: [{{name: one, ill_formed: integer-mask, mask: {MASK}}}]"
SUBJECTS = ("fake/right", "fake/raising", "fake/lenient", "fake/careless")
ACCEPTED = {
    "id": "lenient",
    "subjects": ["fake/lenient"],
    "when": {"ill_formed": "integer-mask"},
    "shows": {"call": ["accepted"]},
    "reason": "Integers are read as Booleans.",
}


def test_refusing_passes_accepting_fails_and_an_accident_is_an_error(project: Project) -> None:
    project.cases("small", *SUBJECTS, body=BODY)
    result = project.pytest_here()
    result.assert_outcomes(passed=2, failed=2)
    assert project.statuses() == {
        "one[fake/right]": "agrees",
        "one[fake/raising]": "agrees",
        "one[fake/lenient]": "new",
        "one[fake/careless]": "errored",
    }
    told = "the ill-formed call (integer-mask) was accepted; the output, float32[2, 5, 16], is the answer to the "
    assert told + "well-formed call" in output_of(result)
    (finding,) = row_of(project, "fake/lenient").findings
    assert (finding["output"], finding["kind"]) == ("call", "accepted")


def test_type_and_message_of_a_refusal_are_kept(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.cases("small", *SUBJECTS, body=BODY)
    project.pytest_here()
    refusal = "explicit mask must be Boolean, got int64; an additive mask is a separate argument"
    refusals = {
        "fake/right": f"raised ValueError: {refusal}",
        "fake/raising": "raised RuntimeError: no kernel for this problem",
    }
    stored = (project.run().folder / "results.jsonl").read_text("utf-8")
    page = Page((project.run().folder / "report.html").read_text("utf-8"))
    monkeypatch.chdir(project.root)
    for subject, message in refusals.items():
        assert row_of(project, subject).summary == message
        assert json.dumps(message) in stored
        assert message in page.index["values"]
        capsys.readouterr()
        assert main(["explain", f"small/one[{subject}]"]) == 0
        assert f"agrees: {message}" in capsys.readouterr().out


def test_what_is_accepted_is_pinned_and_a_refusal_makes_the_pin_stale(project: Project) -> None:
    project.cases("small", "fake/lenient", body=BODY)
    project.ledger(ACCEPTED)
    project.pytest_here().assert_outcomes(xfailed=1, passed=1)
    row = row_of(project, "fake/lenient")
    assert (row.status, row.entries) == ("known", ("lenient",))
    assert "is the answer to the well-formed call" in row.findings[0]["message"]
    project.cases("small", "fake/right", body=BODY)
    project.ledger(ACCEPTED | {"subjects": ["fake/right"]})
    project.pytest_here().assert_outcomes(failed=1, passed=1)
    assert row_of(project, "fake/right").status == "stale"
