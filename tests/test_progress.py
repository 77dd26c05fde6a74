"""The progress line: in a terminal and in a log, with and without workers, and where it keeps out of the way."""

from __future__ import annotations

import os
import re
import sys
from xml.etree import ElementTree as ET

import pytest

from conformance import progress
from conformance.plugin import STATUS
from conformance.progress import Tally, clock_text
from tests.projects import Project, output_of
from tests.terminals import COLUMNS, run_in_terminal, screen_of

TWO = "include: [{name: one}, {name: two, mask: {causal: top-left}}]"
DOTS = re.compile(r"^(cases/\S+ )?[.FEsx]+( +\[ *\d+%\])?$", re.MULTILINE)
LINE = re.compile(r" known \d+  \d+:\d\d")
COUNTED = "new 1  errored 2  known 1"
OUTCOMES = {"failed": 3, "passed": 2, "xfailed": 1}


@pytest.fixture
def mixed(project: Project) -> Project:
    """Two pairs that agree, one new, one known and two errored."""
    project.cases("small", "fake/right", "fake/off", "fake/raising", body=TWO)
    project.ledger({"when": {"causal": "none"}})
    return project


def in_terminal(project: Project, *arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", *arguments]
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return run_in_terminal(
        command, project.root, inherited | {"TERM": "xterm-256color", "PY_COLORS": "1"} | environment
    )


@pytest.mark.parametrize("workers", [("-n", "0"), ("-q", "-n", "2")], ids=" ".join)
def test_a_terminal_shows_one_line_and_what_fails_at_once(mixed: Project, workers: tuple[str, ...]) -> None:
    status, written = in_terminal(mixed, *workers, "cases/small.yaml")
    assert status == pytest.ExitCode.TESTS_FAILED
    shown = [re.sub(r"\x1b\[[\d;]*m", "", part) for part in written.split("\r") if LINE.search(part)]
    pattern = rf"100 % 6/6  {COUNTED}  \d:\d\d, 0:00 left  (gw\d )?fake/\w+ small.*"
    assert re.fullmatch(pattern, shown[-1].rstrip())
    assert all(len(line) < COLUMNS for line in shown) and "\x1b[31m\x1b[1mnew 1\x1b[0m" in written
    screen = screen_of(written)
    assert not any(LINE.search(line) or DOTS.match(line) for line in screen), "the line makes room in the end"
    ends = next(place for place, line in enumerate(screen) if "FAILURES" in line)
    said = sorted(line for line in screen[:ends] if "small/" in line)
    assert [line.split(":")[0] for line in said] == [
        *("errored  small/one[fake/raising]", "errored  small/two[fake/raising]", "new      small/two[fake/off]"),
    ]
    assert "attention conformance" in "\n".join(screen[ends:]) and screen[-2].count("3 failed") == 1


def test_the_line_is_never_wider_than_the_terminal(mixed: Project) -> None:
    _, written = in_terminal(mixed, "-n", "0", "cases/small.yaml", COLUMNS="30")
    lines = [re.sub(r"\x1b\[[\d;]*m", "", part) for part in re.split(r"[\r\n]", written.partition("FAILURES")[0])]
    shown = [line for line in lines if re.match(r" *\d+ % \d/6", line)]
    assert shown[-1].rstrip() == "100 % 6/6  new 1  errored 2" and all(len(line) < 30 for line in shown)


def test_a_log_gets_a_line_now_and_then(mixed: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = mixed.pytest_here()
    monkeypatch.setattr(progress, "PRINTED_EVERY", 0.0)
    spoken = mixed.pytest_here()
    assert silent.parseoutcomes() == spoken.parseoutcomes() == OUTCOMES | {"passed": 3}, "the ledger's item too"
    assert not LINE.search(output_of(silent)) and "\r" not in output_of(spoken)
    for result in (silent, spoken):
        assert not DOTS.search(output_of(result))
        result.stdout.fnmatch_lines(["new      small/two?fake/off?: *", "*= FAILURES =*"])
    spoken.stdout.fnmatch_lines([f" 57 % 4/7  {COUNTED.replace('new 1  errored 2', 'new 0  errored 1')} *"])
    spoken.stdout.fnmatch_lines([f"100 % 7/7  {COUNTED}  0:??, 0:00 left  fake/raising small"])


def test_workers_report_to_a_log_too(mixed: Project) -> None:
    result = mixed.pytest_apart("-n", "2", "cases/small.yaml", "--junitxml", "unit.xml")
    assert result.parseoutcomes() == OUTCOMES
    assert not DOTS.search(output_of(result))
    result.stdout.fnmatch_lines(["new      small/two?fake/off?: *", "FAILED cases/small.yaml::two?fake/off?*"])
    cases = ET.parse(mixed.root / "unit.xml").findall(".//testcase")
    properties = {
        case.attrib["name"]: [(one.attrib["name"], one.attrib["value"]) for one in case.iter("property")]
        for case in cases
    }
    assert len(cases) == 6
    assert {name: found for name, found in properties.items() if found} == {
        "two[fake/off]": [(STATUS, "new")],
        "one[fake/raising]": [(STATUS, "errored")],
        "two[fake/raising]": [(STATUS, "errored")],
    }


def test_a_worker_that_dies_gets_its_lines(project: Project) -> None:
    project.cases("small", "fake/dying", "fake/right", body="include: [{name: before}, {name: stop}, {name: after}]")
    status, written = in_terminal(project, "-n", "2")
    screen = screen_of(written)
    assert status == pytest.ExitCode.TESTS_FAILED
    assert any(re.fullmatch(r"\[gw\d\] node down: Not properly terminated", line) for line in screen)
    assert any(re.fullmatch(r"replacing crashed worker gw\d", line) for line in screen)
    assert any(
        re.match(r"errored  worker 'gw\d' crashed while running 'cases/small.yaml::stop", line) for line in screen
    )
    assert "100 % 6/6  new 0  errored 1  known 0" in re.sub(r"\x1b\[[\d;]*m", "", written)


@pytest.mark.parametrize(
    ("arguments", "dots", "line"),
    [
        (("--progress", "off"), True, False),
        (("-v",), False, False),
        (("-v", "--progress", "line"), False, True),
        (("-p", "no:terminal"), False, False),
        (("--collect-only", "-q"), False, False),
        (("test_own.py",), True, False),
        ((), False, True),
    ],
)
def test_it_keeps_out_of_the_way(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], dots: bool, line: bool
) -> None:
    monkeypatch.setattr(progress, "PRINTED_EVERY", 0.0)
    project.cases("small", "fake/right")
    project.write("test_own.py", "def test_own():\n    pass\n")
    result = project.pytest_here(*arguments, "cases")
    assert result.ret == pytest.ExitCode.OK
    shown = output_of(result)
    assert (bool(DOTS.search(shown)), bool(LINE.search(shown))) == (dots, line)
    assert ("PASSED" in shown) == (arguments == ("-v",))


def test_a_terminal_that_cannot_go_back_is_written_to_as_a_log_is(project: Project) -> None:
    project.cases("small", "fake/right")
    status, written = in_terminal(project, "-p", "no:xdist", "cases", TERM="dumb")
    assert status == pytest.ExitCode.OK and "1 passed" in written
    assert not LINE.search(written) and not DOTS.search(written)


def test_many_divergences_are_named_up_to_a_point(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "NAMED", 2)
    project.cases("small", "fake/off", "fake/raising", body=TWO)
    shown = output_of(project.pytest_here()).partition("FAILURES")[0]
    assert len(re.findall(r"^(?:new|errored) +small/", shown, re.MULTILINE)) == 2
    assert shown.count("more are counted here") == 1


def test_the_rest_is_reckoned_at_the_pace_so_far() -> None:
    now = [100.0]
    tally = Tally(4, lambda: now[0])
    assert "left" not in " ".join(tally.words)
    report = pytest.TestReport("cases/a.yaml::x[f/s]", ("a", 1, "x"), {}, "passed", None, "setup")
    now[0] += 30
    assert tally.take(report) == "" and not tally.done
    report.when = "call"
    assert tally.take(report) == "" and [*tally.words][-1] == "0:30, 1:30 left"
    report.outcome, report.when = "failed", "teardown"
    assert tally.take(report) == "failed" and tally.take(report) == "", "once for each pair"
    assert [*tally.words][1:4] == ["new 0", "failed 1", "known 0"]
    assert [clock_text(seconds) for seconds in (7.9, 750, 3723)] == ["0:07", "12:30", "1:02:03"]
