"""Badges: what they say, that any name can stand in one, and that each is readable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from conformance.cli import main
from conformance.report.badge import COLOURS, LEFT, badge, badges, file_names
from conformance.report.canvas import LIGHT, contrast
from conformance.store import Run, Status, write_results
from tests.synthetic_runs import HOSTILE, row, run_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    statuses: tuple[Status, ...] = ("agrees",) * 1200 + ("known",) * 3 + ("unsupported",)
    rows = [row(f"c{place}", "beta/mha", status) for place, status in enumerate(statuses)]
    rows += [row("c0", "alpha/mha", "new"), row("c1", "alpha/mha"), row("c0", HOSTILE, "missing")]
    made = run_of(tmp_path / "run", rows)
    made.folder.mkdir()
    write_results(made.folder, made.header, rows)
    return made


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_text_counts_the_rows_of_a_subject(run: Run) -> None:
    drawn = badges(run)
    assert list(drawn) == ["beta/mha", "alpha/mha", HOSTILE]
    assert texts(drawn["beta/mha"]) == ["beta/mha", "1,200 agree · 3 known"]
    assert texts(drawn["alpha/mha"]) == ["alpha/mha", "1 new · 1 agree"]
    assert texts(drawn[HOSTILE])[1] == "1 missing"
    title = ET.fromstring(drawn["beta/mha"]).findtext(f"{SVG}title")
    assert title == "beta/mha: 1,200 agree, 3 known, 1 unsupported"


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({"agrees": 9, "unsupported": 2}, "agrees"),
        ({"agrees": 9, "known": 1}, "known"),
        ({"known": 9, "stale": 1}, "stale"),
        ({"stale": 9, "errored": 1}, "errored"),
        ({"errored": 9, "new": 1}, "new"),
        ({"unsupported": 9}, "unsupported"),
    ],
)
def test_the_colour_is_that_of_the_most_severe_status(counts: dict[Status, int], status: Status) -> None:
    root = ET.fromstring(badge("alpha/mha", counts))
    assert [shape.attrib["fill"] for shape in (root[1], root[2])] == [COLOURS[status], LEFT]
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", root[0].text)
    ends = float(root.attrib["width"])
    for text in root.iter(f"{SVG}text"):
        assert 0 < float(text.attrib["x"]) < float(text.attrib["x"]) + float(text.attrib["textLength"]) < ends


@pytest.mark.parametrize("colour", [*COLOURS.values(), LEFT])
def test_white_is_readable_on_every_colour(colour: str) -> None:
    red, green, blue = bytes.fromhex(colour[1:])
    assert contrast(LIGHT, (red, green, blue)) >= 4.5


@pytest.mark.parametrize("name", [HOSTILE, "a\x00b\ud800\ufffe", "\"'<&>]]>", "", "注意/多头"])
def test_any_name_can_stand_in_a_badge(name: str) -> None:
    root = ET.fromstring(badge(name, {"agrees": 1}).encode())
    assert [element.tag.removeprefix(SVG) for element in root] == ["title", "rect", "path", "g"]
    assert {element.tag.removeprefix(SVG) for element in root[3]} == {"text"}
    assert not any(key.startswith("on") or "href" in key for element in root.iter() for key in element.attrib)


def test_file_names_are_safe_and_no_two_alike() -> None:
    subjects = ["torch/mha", "torch-mha", "jax/dpa@jit", "../../etc/passwd", "A", "a", "", "..", HOSTILE]
    names = file_names(subjects)
    assert names["jax/dpa@jit"] == "jax-dpa-jit.svg" and names["../../etc/passwd"] == "etc-passwd.svg"
    assert len({name.casefold() for name in names.values()}) == len(subjects)
    assert all(Path(name).name == name and name.isascii() and name[0] not in ".-" for name in names.values())
    assert file_names(reversed(subjects)) == names


def test_the_command_prints_one_or_writes_all(run: Run, tmp_path: Path, capsys: Any) -> None:
    assert main(["badge", "beta/mha", str(run.folder)]) == 0
    printed = capsys.readouterr().out
    assert printed == badges(run)["beta/mha"]
    assert main(["badge", "--all", str(tmp_path / "badges"), str(run.folder)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert Counter(path.read_text(encoding="utf-8") for path in written) == Counter(badges(run).values())
    assert {path.parent for path in written} == {tmp_path / "badges"}


def test_wrong_usage_says_what_is_meant(run: Run, tmp_path: Path, capsys: Any) -> None:
    folder = str(run.folder)
    for arguments, message in (
        (["beta/mah", folder], f"the run {folder} holds no subject 'beta/mah'\n  did you mean 'beta/mha'?\n"),
        ([], "badge needs a subject, or --all and a folder to write into\n"),
        (["--all", folder, "beta/mha", folder], "badge --all takes no subject: name the folder of a run at most\n"),
    ):
        assert main(["badge", *arguments]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and (shown.err == message or shown.err.startswith(message))
