"""What the documents quote is true: examples run, messages are the real ones, names exist, numbers are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
from pydantic import BaseModel

from conformance import vocabulary
from conformance.casefile import model as casemodel
from conformance.casefile import read_case_file
from conformance.casefile import sizes as casesizes
from conformance.casefolder import case_files
from conformance.cli import main
from conformance.deviations.graph import _LINEAR
from conformance.deviations.rules import LIMIT
from conformance.deviations.statistics import JUDGED
from conformance.errors import CaseFileError
from conformance.policy import ENVELOPE
from conformance.refusal import ACCIDENTS
from conformance.report.text import UNEXPLAINED
from conformance.run import judge
from conformance.spec import Case, Literals
from conformance.store import Status
from conformance.verdict import Agrees, Diverges, Errored, Kind

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CASE_GUIDE = ROOT / "docs" / "writing-a-case.md"
ADAPTER_GUIDE = ROOT / "docs" / "writing-an-adapter.md"
CONTRACT = ROOT / "docs" / "contract.md"
TOLERANCE = ROOT / "docs" / "tolerance.md"
LITERALS = (
    *(
        vocabulary.Regime,
        vocabulary.Layout,
        vocabulary.Sharing,
        vocabulary.Calls,
        vocabulary.Relation,
        vocabulary.MaskRoute,
        vocabulary.Axes,
        vocabulary.Pattern,
    ),
    *(vocabulary.Dtype, vocabulary.IllFormed, vocabulary.Check, vocabulary.Alignment, vocabulary.Side),
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


class Block(NamedTuple):
    """A fenced block: the words after the fence, its text, and where it is."""

    info: str
    text: str
    place: str


def blocks(path: Path, info: str) -> list[Block]:
    """The blocks of a document whose fence is followed by just these words."""
    found = re.finditer(r"^```([^\n]*)\n(.*?)^```$", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [
        Block(match[1], match[2], f"{path.name}:{match.string[: match.start()].count(chr(10)) + 1}")
        for match in found
        if match[1] == info
    ]


def every(info: str, *paths: Path) -> list[Any]:
    return [pytest.param(block, id=block.place) for path in paths for block in blocks(path, info)]


def the(path: Path, info: str) -> str:
    (block,) = blocks(path, info)
    return block.text


def cases_of(folder: Path, text: str, name: str = "short_prompts") -> tuple[Case, ...]:
    path = folder / "cases" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")
    return read_case_file(path, folder)


# Cases ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", every("yaml", README, CASE_GUIDE))
def test_case_examples_are_valid_and_agree_with_the_numpy_subjects(tmp_path: Path, block: Block) -> None:
    from adapters.numpy_reference import ADAPTER

    for case in cases_of(tmp_path, block.text):
        for construct in ADAPTER.subjects.values():
            verdict = judge(case, construct())
            assert isinstance(verdict, Agrees), (case.id, verdict)


def test_the_guide_counts_the_cases_of_its_example(tmp_path: Path) -> None:
    first = blocks(CASE_GUIDE, "yaml")[0]
    count = len(cases_of(tmp_path, first.text))
    assert f"cases/short_prompts.yaml: {count} cases" in CASE_GUIDE.read_text("utf-8")
    assert first.text.partition("\n")[0] == "# yaml-language-server: $schema=../conformance/schema/casefile.json"


def test_the_broken_example_has_the_faults_that_the_guide_shows(tmp_path: Path) -> None:
    with pytest.raises(CaseFileError) as caught:
        cases_of(tmp_path, the(CASE_GUIDE, "yaml broken"))
    assert str(caught.value).strip() == the(CASE_GUIDE, "text faults").strip()


def test_a_written_answer_that_is_wrong_stops_the_case(tmp_path: Path) -> None:
    from adapters.numpy_reference import NumpyReference

    text = next(block.text for block in blocks(CASE_GUIDE, "yaml") if "attn_output: [[[5]]]" in block.text)
    (right,) = cases_of(tmp_path, text)
    (wrong,) = cases_of(tmp_path, text.replace("attn_output: [[[5]]]", "attn_output: [[[6]]]"))
    assert right == replace(wrong, literals=Literals(wrong.literals.given, right.literals.expected))
    assert isinstance(judge(right, NumpyReference()), Agrees)
    verdict = judge(wrong, NumpyReference())
    assert isinstance(verdict, Errored)
    assert the(CASE_GUIDE, "text disagreement").strip() in verdict.message


def test_the_guide_names_every_key_and_every_word() -> None:
    text = CASE_GUIDE.read_text("utf-8")
    keys = {name for model in models() for name in model.model_fields}
    words = {word for literal in LITERALS for word in get_args(literal)}
    outputs = {"attn_output", "attn_weights", "raises"} | set(casemodel.GivenKeys.model_fields)
    missing = [name for name in sorted(keys - outputs | words) if not re.search(rf"`{name}\b|\b{name}[`:]", text)]
    assert not missing


def models() -> list[type[BaseModel]]:
    found = [model for model in vars(casemodel).values() if isinstance(model, type) and issubclass(model, BaseModel)]
    assert casemodel.FileKeys in found
    return found


def test_the_guide_states_the_default_sizes() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", CASE_GUIDE.read_text("utf-8"), re.MULTILINE))
    assert {name: int(size) for name, size in rows.items()} == {
        "batch": casesizes.BATCH,
        "target_length": casesizes.TARGET_LENGTH,
        "source_length": casesizes.SOURCE_LENGTH,
        "embed_dim": casesizes.EMBED_DIM,
        "num_heads": casesizes.NUM_HEADS,
    }


# Commands -------------------------------------------------------------------------------------------------------------


def python(folder: Path, *arguments: str, path: Path | None = None) -> str:
    """Output of ``python -m conformance …`` run in a folder; whatever its exit status."""
    environment = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    command = [sys.executable, "-m", "conformance", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    ).stdout


def holds(transcript: str, output: str) -> None:
    """Each quoted line is a line of the output, in that order; ``…`` stands for lines that are left out."""
    lines = iter(output.splitlines())
    for quoted in transcript.strip().splitlines()[1:]:
        assert quoted == "…" or any(line == quoted for line in lines), (quoted, output)


def repro_id(transcript: str) -> str:
    found = re.match(r"\$ python -m conformance repro '(.*)'\n", transcript)
    assert found is not None
    return found[1]


def test_the_repro_that_the_case_guide_shows_is_real(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    cases_of(tmp_path, blocks(CASE_GUIDE, "yaml")[0].text.replace("[3, 1, 2]", "[3, 0, 2]"))
    (tmp_path / "cases" / "known_divergences.yaml").symlink_to(ROOT / "cases" / "known_divergences.yaml")
    transcript = the(CASE_GUIDE, "text repro")
    holds(transcript, python(tmp_path, "repro", repro_id(transcript)))


@pytest.fixture(scope="module")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adapter guide's module on a path of its own, announced as its pyproject.toml says."""
    folder = tmp_path_factory.mktemp("third-party")
    (folder / "scipy_attention.py").write_text(the(ADAPTER_GUIDE, "python"), "utf-8")
    project = tomllib.loads(the(ADAPTER_GUIDE, "toml"))
    assert project["tool"]["setuptools"]["py-modules"] == ["scipy_attention"]
    name, number = project["project"]["name"], project["project"]["version"]
    info = folder / f"{name.replace('-', '_')}-{number}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n", "utf-8")
    groups = project["project"]["entry-points"]
    text = "".join(
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups.items()
    )
    (info / "entry_points.txt").write_text(text, "utf-8")
    return folder


def test_the_guides_adapter_is_found_beside_the_shipped_ones(third_party: Path) -> None:
    pytest.importorskip("scipy")
    listed = python(ROOT, "subjects", path=third_party)
    assert "scipy (installed)\n  scipy/softmax\n" in listed
    assert "numpy/reference" in listed


def test_the_guides_adapter_finds_what_the_guide_says(third_party: Path) -> None:
    pytest.importorskip("scipy")
    transcript = the(ADAPTER_GUIDE, "text repro")
    holds(transcript, python(ROOT, "repro", repro_id(transcript), path=third_party))


def test_the_guides_adapter_agrees_on_ordinary_cases(third_party: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(third_party))
    subject = __import__("scipy_attention").ADAPTER.subjects["scipy/softmax"]()
    for file in ("causal", "key_padding", "additive_bias", "worked_example", "scale"):
        for case in read_case_file(ROOT / "cases" / f"{file}.yaml", ROOT):
            if subject.unsupported(case) is None:
                verdict = judge(case, subject)
                blocked = isinstance(verdict, Diverges) and {f.kind for f in verdict.findings} == {"nan-blocked-row"}
                assert isinstance(verdict, Agrees) or blocked, (case.id, verdict)


def test_the_guides_adapter_accepts_integer_masks_and_raises_without_keys(
    third_party: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(third_party))
    subject = __import__("scipy_attention").ADAPTER.subjects["scipy/softmax"]()
    ill_formed = read_case_file(ROOT / "cases" / "ill_formed.yaml", ROOT)
    verdict = judge(next(case for case in ill_formed if case.ill_formed == "integer-mask"), subject)
    assert isinstance(verdict, Diverges)
    assert [finding.kind for finding in verdict.findings] == ["accepted"]
    lengths = read_case_file(ROOT / "cases" / "lengths.yaml", ROOT)
    empty = judge(
        next(case for case in lengths if case.source_length == 0 and case.batch and case.target_length), subject
    )
    assert not isinstance(empty, Agrees)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_targets_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = path.read_text("utf-8")
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = set(re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.MULTILINE))
    assert {"check", "subjects", "repro"} <= offered
    assert set(re.findall(r"python -m conformance (\w+)", text)) <= offered
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"compare", "test", "lint"} <= targets
    assert set(re.findall(r"(?:`|^\$ )make ([a-z]+)", text, re.MULTILINE)) <= targets


def test_the_readme_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    offered = re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.MULTILINE)
    text = README.read_text("utf-8")
    assert [name for name in offered if f"python -m conformance {name}" not in text] == []


def test_the_readme_names_options_that_pytest_takes() -> None:
    command = [sys.executable, "-m", "pytest", "--help"]
    offered = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for option in re.findall(r"`pytest (--\w+)", README.read_text("utf-8")):
        assert f"  {option}" in offered


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", path.read_text("utf-8"))
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text)
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_quoted_paths_exist(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    quoted = re.findall(r"`((?:\.ci|adapters|cases|conformance|docs|reports|tests)/[\w./-]*|\w+\.(?:toml|txt))`", text)
    invented = {"cases/short_prompts.yaml", "scipy_attention.py"}
    reports = {"reports/"}  # made by the first run
    assert [name for name in quoted if name not in invented | reports and not (ROOT / name).exists()] == []


def test_the_contract_names_every_kind_of_blocked_row_and_every_accident() -> None:
    text = CONTRACT.read_text("utf-8")
    kinds = [kind for kind in get_args(Kind) if kind.endswith("blocked-row")]
    assert [name for name in [*kinds, *(error.__name__ for error in ACCIDENTS)] if f"`{name}`" not in text] == []


@pytest.mark.parametrize("path", [README, CONTRACT], ids=lambda path: path.name)
def test_tables_of_verdicts_are_complete(path: Path) -> None:
    rows = re.findall(r"^\| (\w+) \|", path.read_text("utf-8"), re.MULTILINE)
    assert [
        status for status in get_args(Status) if status.removesuffix("s") not in {row.removesuffix("s") for row in rows}
    ] == []


def test_the_readme_quotes_the_failure_of_the_adapter_guide() -> None:
    lines = [line for line in the(ADAPTER_GUIDE, "text repro").splitlines() if line.startswith("blocked-rows/")]
    assert lines
    assert [block.text.strip() for block in blocks(README, "text") if block.text.strip() in lines]


# Numbers --------------------------------------------------------------------------------------------------------------


def test_the_derivation_states_the_policy_of_the_envelope() -> None:
    text = " ".join(TOLERANCE.read_text("utf-8").split())
    assert f"c_exp = {ENVELOPE.exponential_units:g} units" in text
    assert f"ρ_exp = {ENVELOPE.exponential_relative * 1e4:g}·10⁻⁴" in text
    assert f"r = {ENVELOPE.rescalings} for the rescalings" in text
    assert ENVELOPE.flash
    assert {ENVELOPE.products, ENVELOPE.softmax, ENVELOPE.softmax_gradient} == {"wide"}


def test_the_derivation_states_the_limits_of_statistics() -> None:
    text = " ".join(TOLERANCE.read_text("utf-8").split())
    assert f"In float64 and float32 it may be at most {LIMIT:g}" in text and JUDGED == ("float64", "float32")
    assert f"The limit of {LIMIT:g} leaves room" in text
    assert f"more than {UNEXPLAINED:g} is marked as unexplained" in text
    assert f"by {_LINEAR:g} or more in the log domain, at {LIMIT:g} σ" in text


# The project's own files ----------------------------------------------------------------------------------------------


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_direct_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    named = {pin.partition("==")[0].lower().replace("_", "-") for pin in pins}
    stated = [*project()["project"]["dependencies"]]
    stated += [item for extra in project()["project"]["optional-dependencies"].values() for item in extra]
    wanted = {re.split(r"[^\w.-]", item)[0].lower().replace("_", "-") for item in stated} - {"attention-conformance"}
    assert wanted == named


def test_the_changelog_speaks_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert "## [Unreleased]" in text or f"## [{project()['project']['version']}]" in text


def test_continuous_integration_runs_the_targets_in_order() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    wanted = ["lint", "test", "compare"]
    assert re.findall(r"^make (\w+)$", script, re.MULTILINE) == wanted
    assert script.rstrip().endswith("make compare")
    assert re.findall(r"- run: make (\w+)\b", workflow, re.MULTILINE) == ["environment", *wanted]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_page_of_coverage_names_every_case_file_and_no_other() -> None:
    page = (ROOT / "docs" / "coverage.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", page))
    files = {path.stem for path in case_files(ROOT / "cases")}
    others = {"scaled_dot_product_attention", "why", "slow", "is_casual", "check", "sample"}
    assert named == files | others, "a case file is gone, new, or misspelt"
