"""``benchmarks/soundness.py``: a slice of it on every run of the tests, and whether it would report a violation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from benchmarks import soundness
from benchmarks.soundness_draws import POOL, REGIMES, case_text, definition, drawn_case
from benchmarks.soundness_ledger import unaccounted
from benchmarks.soundness_tally import OUTSIDE, Tally
from conformance import cli
from conformance.adapter import adapter_of, load
from conformance.casefile import read_case_file
from conformance.facts import facts_of
from conformance.pair import Pair
from conformance.run import Outcome, examine
from conformance.spec import MASK_PARTS, NUMPY_DTYPES, Data
from conformance.tensors import fingerprint, problem_of
from conformance.verdict import Diverges, Finding, Kind
from conformance.vocabulary import Alignment, Axes, Calls, Dtype, Layout, MaskRoute, Pattern, Sharing
from tests.drawn_problems import case_like
from tests.projects import Project, entry, output_of

ROOT = Path(__file__).parent.parent


def run(*arguments: Any) -> int:
    return soundness.main([str(argument) for argument in arguments])


def statuses(report: Path, subject: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(report.read_text())["subjects"][subject]["pairs"]
    return found


@pytest.mark.parametrize(("pattern", "least"), [("numpy/*", 1500), ("torch/*", 3000)])
def test_no_drawn_comparison_lies_outside_its_bound(
    pattern: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)  # where the ledger's file name begins
    report = tmp_path / "report.json"
    arguments = ("--subjects", pattern, "--comparisons", least, "--seed", 7, "--into", tmp_path / "found")
    status = run(*arguments, "--json", report)
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert not (tmp_path / "found").exists()
    data = json.loads(report.read_text())
    assert data["comparisons"] >= least and data["violations"] == 0
    assert sum(row["comparisons"] for row in data["quantiles"]) == data["comparisons"]
    assert {row["dtype"] for row in data["quantiles"]} == set(get_args(Dtype))
    assert {row["outputs"] for row in data["quantiles"]} == {"output", "weights", "gradients"}
    shares = {row["not_judged"] for row in data["quantiles"] if row["dtype"] == "float16"}
    assert 0 < max(shares) < 1  # large scores overflow there, and count neither as elements nor as comparisons
    largest = [row["quantiles"]["max"] for row in data["quantiles"] if row["quantiles"]]
    assert 0.5 < max(largest) <= 1  # rounding comes near the bound somewhere
    assert re.search(r"bfloat16 +gradients +\d+ +\d+ +\d+\.\d% +0\.\d{3}", printed)


def test_a_draw_follows_from_its_seed_and_number_alone() -> None:
    assert definition(3, 8, pooled=False) == definition(3, 8, pooled=False)
    assert definition(3, 8, pooled=False) != definition(4, 8, pooled=False)
    assert definition(3, 8, pooled=False) != definition(3, 9, pooled=False)


def test_more_comparisons_begin_with_the_same(tmp_path: Path, project: Project) -> None:
    files = []
    for count in (20, 60):
        into = tmp_path / str(count)
        assert run("--subjects", "fake/worthless", "--comparisons", count, "--into", into) == 1
        files.append({path.name: path.read_text() for path in (into / "cases").iterdir()})
    few, many = files
    assert len(few) < len(many) and few.items() <= many.items()


def test_draws_of_the_pool_share_their_forms_and_not_their_numbers() -> None:
    first, again = (definition(1, number, pooled=True) for number in (5, 5 + POOL))
    data = {"mask", "data"}
    assert {name: first[name] for name in first.keys() - data} == {name: again[name] for name in again.keys() - data}
    assert [first["mask"] == "none" or sorted(first["mask"])] == [again["mask"] == "none" or sorted(again["mask"])]
    assert {definition(1, number, pooled=True)["data"]["regime"] for number in range(5, 40 * POOL, POOL)} > {"normal"}


def _values(found: Any, name: str) -> Iterator[Any]:
    """What stands under a key, however deep."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key == name:
                yield value
            yield from _values(value, name)


def test_every_option_of_a_well_formed_case_is_drawn() -> None:
    drawn = [definition(2, number, pooled=False) for number in range(1500)]
    options: dict[str, Any] = {
        "dtype": get_args(Dtype),
        "sharing": get_args(Sharing),
        "mask_route": get_args(MaskRoute),
        "layout": get_args(Layout),
        "calls": get_args(Calls),
        "causal": get_args(Alignment),
        "align": get_args(Alignment),
        "axes": get_args(Axes),
        "pattern": get_args(Pattern),
        "regime": REGIMES,
    }
    for name, words in options.items():
        assert {value for one in drawn for value in _values(one, name)} == set(words), name
    assert {part for one in drawn if one["mask"] != "none" for part in one["mask"]} == set(MASK_PARTS)
    together = [sorted(one["mask"]) for one in drawn if one["mask"] != "none" and len(one["mask"]) == 2]
    assert len({tuple(pair) for pair in together}) == 15  # every pair of parts
    for name in ("bias", "bias_kv", "zero_attention"):
        assert {one.get(name) for one in drawn} >= {True, False}
    lengths = [one[name] for one in drawn for name in ("target_length", "source_length")]
    assert min(lengths) == 1 and 400 < max(lengths) <= 512 and np.median(lengths) < 32
    assert {1, 64, 128} < {one["head_dim"] for one in drawn}
    assert any(one["num_kv_heads"] < one["num_heads"] for one in drawn)
    magnitudes = [one["data"]["magnitude"] for one in drawn]
    assert 1e-3 <= min(magnitudes) < 2e-3 and 500 < max(magnitudes) <= 1024


def test_every_draw_is_a_case_file(tmp_path: Path) -> None:
    made = [drawn_case(5, number, tmp_path, pooled=number % 2 == 0) for number in range(120)]
    possible = [one for one in made if one is not None]
    assert len(possible) > 100  # the others have numbers that their sizes or their format cannot hold
    assert len({case.id for case, _ in possible}) == len(possible)


def test_an_error_above_its_bound_is_written_as_a_case_that_fails_again(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of this subject has the accuracy of float32, so only float64 shows it."""
    into, report = project.root / "reports" / "soundness" / "cases", project.root / "report.json"
    assert run("--subjects", "fake/single", "--comparisons", 200, "--seed", 4, "--json", report) == 1
    printed = capsys.readouterr().out
    files = sorted(into.iterdir())
    assert 0 < len(files) == statuses(report, "fake/single")[OUTSIDE]
    assert statuses(report, "fake/single")["agrees"] > len(files)

    numbers = re.findall(r"VIOLATION soundness-4-free-(\d+)/drawn\[fake/single\]\n", printed)
    assert len(numbers) == len(files)
    drawn = drawn_case(4, int(numbers[0]), project.root, pooled=False)
    file = into / f"soundness-4-free-{numbers[0]}.yaml"
    assert drawn is not None and drawn[1] == file.read_text()
    (case,) = read_case_file(file.relative_to(project.root), project.root)
    assert case.dtype == "float64"
    assert fingerprint(problem_of(case)) == fingerprint(problem_of(drawn[0]))
    assert isinstance(examine(case, load("fake/single")).verdict, Diverges)

    command = f"python -m conformance repro '{case.id}[fake/single]' --cases reports/soundness/cases"
    assert command in printed
    assert cli.main(["check", str(file)]) == 0
    assert cli.main(["repro", f"{case.id}[fake/single]", "--cases", str(into)]) == 1
    assert "value: attn_output lies outside the bound" in capsys.readouterr().out
    result = project.pytest_here(str(file), "-k", "fake and (single or right)")
    result.assert_outcomes(failed=1, passed=1)
    assert "lies outside the bound" in output_of(result)


def test_a_subject_that_raises_is_a_violation(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--subjects", "fake/raising", "--comparisons", 1) == 1  # and it ends although nothing can be compared
    assert "RuntimeError: no kernel" in capsys.readouterr().out


def test_a_subject_that_cannot_be_made_is_a_violation(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--subjects", "fake/unmade", "--comparisons", 1) == 1
    assert "ImportError: the shared library is broken" in capsys.readouterr().out


def test_what_the_ledger_tells_of_is_no_violation(project: Project) -> None:
    report = project.root / "report.json"
    shows = {"output": ["value", "inexact", "blocked-row", "uniform-blocked-row"], "gradients": ["value", "inexact"]}
    shows["gradients"] += ["blocked-weight"]
    project.ledger({"subjects": ["fake/worthless"], "shows": shows}, {"id": "bias", **_output_bias(shows)})
    run("--subjects", "fake/worthless", "--comparisons", 150, "--json", report)
    found = statuses(report, "fake/worthless")
    assert found["known"] > 5 and found.get(OUTSIDE, 0) < found["known"]
    rows = json.loads(report.read_text())["quantiles"]
    assert sum(row["known"] for row in rows) > 100


def _output_bias(shows: dict[str, list[str]]) -> dict[str, Any]:
    return {"subjects": ["fake/worthless"], "shows": {"gradients": shows["gradients"]}, "gradients_of": ["output_bias"]}


def test_a_known_divergence_that_the_data_hide_is_no_violation_either(project: Project) -> None:
    report = project.root / "report.json"
    project.ledger({"subjects": ["fake/right"], "shows": {"output": ["value"]}})
    assert run("--subjects", "fake/right", "--comparisons", 30, "--json", report) == 0
    assert set(statuses(report, "fake/right")) == {"known, hidden by the data"}


@pytest.mark.parametrize(
    ("kind", "told"),
    [("blocked-row", True), ("uniform-blocked-row", True), ("nan-blocked-row", False), ("value", False)],
)
def test_over_data_alike_one_answer_of_a_blocked_row_is_like_another(kind: Kind, told: bool) -> None:
    case = case_like("alike")
    pair = Pair(case, facts_of(case), "numpy/reference", adapter_of("numpy/reference"), (0, 0))
    finding = Finding("attn_output", kind, "in a fully blocked row")
    entries = [entry(subjects=("numpy/*",), shows={"output": ("uniform-blocked-row",)})]
    left = unaccounted(pair, Outcome(Diverges((finding,))), entries)
    assert left == ([] if told else [finding])


def test_an_output_of_which_nothing_is_judged_is_no_comparison() -> None:
    case = case_like("overflow", dtype="float16", data=Data("large", 40.0))
    pair = Pair(case, facts_of(case), "numpy/reference", adapter_of("numpy/reference"), (0, 0))
    tally = Tally()
    tally.add(pair, examine(case, load("numpy/reference")), "agrees")
    rows = {row["outputs"]: row for row in tally.as_data()["quantiles"]}
    assert rows["weights"]["comparisons"] == 0 and rows["weights"]["not_judged"] == 1
    assert 0 < rows["gradients"]["comparisons"] < 11  # that of the output bias is a sum of cotangents alone
    assert tally.comparisons == sum(row["comparisons"] for row in rows.values())


def test_a_pattern_that_no_subject_is_like_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--subjects", "nobody/*") == 2
    assert "nobody/*" in capsys.readouterr().err


def test_the_time_may_be_over_at_once(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--subjects", "fake/slow", "--seconds", 0) == 0
    printed = capsys.readouterr().out
    assert f"with {POOL} forms and ever new data: fake/slow" in printed and "0 comparisons in 0 s" in printed


def test_the_text_of_a_draw_names_the_command_that_drew_it() -> None:
    text = case_text(9, 2, definition(9, 2, pooled=False), pooled=False)
    assert text.startswith("suite: soundness-9-free-2\nwhy: Drawn by benchmarks/soundness.py --seed 9")
    assert NUMPY_DTYPES[definition(9, 2, pooled=False)["dtype"].removeprefix("mixed_")]
