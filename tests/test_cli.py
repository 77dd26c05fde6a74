"""The command line: what each command prints, its exit status, and that none imports a framework without need."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.casefile import SCHEMA_FILE
from conformance.cli import main
from conformance.store import latest_run
from tests.projects import Project, forget

ROOT = Path(__file__).parent.parent
SMALL = "include: [{name: one, check: [output]}, {name: two, check: [output]}]"


@pytest.fixture
def command(project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command in the project's folder; exit status, output and errors."""
    monkeypatch.chdir(project.root)

    def run(*arguments: str) -> tuple[int, str, str]:
        forget()
        capsys.readouterr()
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_sound_files_and_the_ledger_are_counted(project: Project, command: Any) -> None:
    project.cases("first", "fake/right", body=SMALL)
    project.cases("second", "fake/right")
    project.ledger({})
    files = ("cases/first.yaml", "cases/known_divergences.yaml", "cases/second.yaml")
    status, out, err = command("check", *files)
    assert (status, err) == (0, "")
    assert out.splitlines() == [f"{files[0]}: 2 cases", f"{files[1]}: 1 known divergences", f"{files[2]}: 1 cases"]


def test_faults_are_printed_and_the_other_files_are_checked_too(project: Project, command: Any) -> None:
    project.cases("first", "fake/right", body="include: [{name: one, dtyp: float32}]")
    project.cases("second", "fake/right")
    project.cases("third", "fake/right", suite="second")
    project.ledger({"when": {"dtyp": "float32"}})
    status, out, err = command("check", *(f"cases/{name}.yaml" for name in ("first", "second", "third")))
    assert (status, out) == (1, "cases/second.yaml: 1 cases\n")
    assert "cases/first.yaml:5:23: unknown key 'dtyp'\n    include:" in err and "did you mean dtype?" in err
    assert "cases/third.yaml:1:8: the suite 'second' is already in cases/second.yaml" in err
    status, out, err = command("check", "cases/known_divergences.yaml")
    assert (status, out) == (1, "") and "did you mean dtype?" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cases", "cases: is a folder: name the files in it"),
        ("cases/gone.yaml", "cases/gone.yaml: does not exist"),
        ("cases/known_divergences.yaml", "cases/known_divergences.yaml: does not exist"),
    ],
)
def test_what_is_no_file_is_wrong_usage(project: Project, command: Any, name: str, message: str) -> None:
    project.cases("small", "fake/right")
    assert command("check", name, "cases/small.yaml") == (2, "cases/small.yaml: 1 cases\n", message + "\n")


def test_subjects_are_listed_with_what_is_missing(project: Project, command: Any) -> None:
    status, out, _ = command("subjects")
    assert status == 0
    lines = out.splitlines()
    assert lines[:2] == [
        "absent (missing a_framework_nobody_has: pip install a-framework-nobody-has)",
        "  absent/mha",
    ]
    assert "fake (installed)" in lines and "  fake/right" in lines and "  fake/slow  sampled by default" in lines
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["absent", "fake", *sorted(_shipped())]


def _shipped() -> set[str]:
    return {"jax", "keras", "numpy", "torch"}


def test_the_schema_is_that_of_the_package(command: Any) -> None:
    status, out, _ = command("schema")
    assert status == 0 and json.loads(out) == json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("subject", "status", "shown"),
    [
        ("fake/right", 0, "status: agrees\nversions: fakelib 1.5\n"),
        ("fake/limited", 0, "status: unsupported\n"),
        ("absent/mha", 0, "status: missing\nsmall/one[absent/mha]: a_framework_nobody_has is not installed"),
        ("fake/off", 1, "status: known\n"),
        ("fake/off-in-weights", 1, "status: new\n"),
        ("fake/raising", 1, "status: errored\n"),
        ("fake/slow", 0, "status: agrees\n"),
    ],
)
def test_a_pair_is_run_again(project: Project, command: Any, subject: str, status: int, shown: str) -> None:
    project.cases("small", subject)
    project.ledger({})
    for given in (f"small/one[{subject}]", f"cases/small.yaml::one[{subject}]"):
        found, out, err = command("repro", given)
        assert (found, err) == (status, "") and out.startswith(shown)
        assert f"python -m conformance repro 'small/one[{subject}]'" in out


def test_an_unknown_pair_is_wrong_usage(project: Project, command: Any) -> None:
    project.cases("small", "fake/right", body=SMALL)
    project.write("cases/faulty.yaml", "suite: faulty\n")
    status, out, err = command("repro", "small/on[fake/right]")
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert lines[0] == "the folder cases holds no pair 'small/on[fake/right]'"
    assert lines[1] == "  did you mean 'small/one[fake/right]'?"
    assert lines[-1] == "  faulty.yaml has faults: python -m conformance check cases/faulty.yaml"
    assert command("repro", "small/one[fake/right]", "--cases", "nowhere")[0] == 2


def test_a_pair_is_written_as_a_script(project: Project, command: Any) -> None:
    project.cases("small", "fake/off", "fake/right", body=SMALL)
    status, out, _ = command("repro", "small/one[fake/off]", "--script")
    assert status == 0
    compile(out, "script", "exec")
    assert command("repro", "small/one[fake/right]", "--script") == (
        2,
        "",
        "fake/right gives no script for this case\n",
    )


def test_faults_of_the_ledger_stop_a_pair(project: Project, command: Any) -> None:
    project.cases("small", "fake/off")
    project.ledger({"when": {"dtyp": "float32"}})
    status, out, err = command("repro", "small/one[fake/off]")
    assert (status, out) == (1, "") and "did you mean dtype?" in err and "Traceback" not in err


def test_an_adapter_that_cannot_be_loaded_is_named(project: Project, command: Any) -> None:
    broken = project.write("odd_adapter.py", "ADAPTER = 'odd'\n")
    project.announce("oddlib", broken, odd="odd_adapter:ADAPTER")
    message = "the adapter 'odd' (odd_adapter:ADAPTER) is a str, not an Adapter\n"
    assert command("subjects") == (1, "", message)


def test_two_adapters_cannot_have_one_subject(project: Project, command: Any) -> None:
    again = project.write("again_adapter.py", "from fake_adapter import ADAPTER\nagain = ADAPTER\n")
    project.announce("againlib", again, fake="again_adapter:again")
    assert command("subjects") == (1, "", "two adapters announce the subject 'fake/right'\n")


def test_a_run_is_reported_and_explained(project: Project, command: Any) -> None:
    status, out, err = command("report")
    assert (status, out) == (2, "") and err.startswith("no run in reports/: run pytest first")
    assert command("explain", "small/one[fake/off]")[0] == 2
    project.cases("small", "fake/off", "fake/raising", body=SMALL)
    project.pytest_here()
    folder = latest_run(project.root / "reports")
    assert folder is not None
    page = folder / "report.html"
    written = page.read_text(encoding="utf-8")
    page.unlink()
    status, out, err = command("report")
    assert (status, err) == (0, "") and str(page.relative_to(project.root)) in out
    assert page.read_text(encoding="utf-8") == written, "scripts included"
    assert command("report", str(folder))[0] == 0
    status, out, err = command("explain", "small/one[fake/off]")
    assert (status, err) == (0, "") and "attn_output[1, 2, 3]" in out.replace(" , ", ", ")
    status, out, _ = command("explain", "cases/small.yaml::two[fake/raising]", "--run", str(folder))
    assert status == 0 and "RuntimeError: no kernel" in out
    status, out, err = command("explain", "small/one[fake/of]")
    assert (status, out) == (2, "") and "did you mean 'small/one[fake/off]'?" in err


@pytest.mark.parametrize("text", [None, "", "[]\n", '{"schema": 9}\n'])
def test_what_is_no_run_is_wrong_usage(project: Project, command: Any, text: str | None) -> None:
    folder = project.write("odd/results.jsonl", text or "").parent
    if text is None:
        (folder / "results.jsonl").unlink()
    for arguments in (("report", "odd"), ("explain", "a[b]", "--run", "odd")):
        status, out, err = command(*arguments)
        assert (status, out) == (2, "") and err.startswith("odd is not a run: ")


@pytest.mark.parametrize("arguments", [(), ("repr",), ("repro",), ("check",)])
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python -m conformance")


def test_the_package_can_be_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["conformance", "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "conformance" / "__main__.py"), run_name="__main__")
    assert stopped.value.code == 0
    commands = re.findall(r"^    (\w+)\b", capsys.readouterr().out, re.MULTILINE)
    reading = ["report", "repro", "explain", "diff", "divergences", "csv", "badge"]
    assert commands == ["check", "subjects", *reading, "schema"]


PROBE = """
import sys
from conformance.cli import main
for arguments in {commands!r}:
    try:
        assert main(arguments) == 0, arguments
    except SystemExit as stopped:
        assert not stopped.code
loaded = {{"torch", "tensorflow", "keras", "jax", "jaxlib", "fakelib_runtime"}} & set(sys.modules)
assert not loaded, loaded
"""


def test_commands_that_run_nothing_import_no_framework(project: Project) -> None:
    """The run that is reported holds a divergence, whose script needs its framework only when it is recorded."""
    project.cases("small", "fake/off", body=SMALL)
    project.pytest_here()
    shipped = [str(ROOT / "cases" / name) for name in ("causal.yaml", "known_divergences.yaml")]
    commands = [["--help"], ["subjects"], ["schema"], ["report"], ["check", *shipped]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])}
    for extra in ("fake_adapter",):
        (project.site / f"{extra}.py").write_text(
            (project.site / f"{extra}.py")
            .read_text()
            .replace('name = "fake/right"', 'name = "fake/right"\n    def __init__(self): import fakelib_runtime')
        )
    result = subprocess.run(
        [sys.executable, "-c", PROBE.format(commands=commands)],
        cwd=project.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "usage: python -m conformance" in result.stdout and "causal.yaml: " in result.stdout
