"""Reproducer scripts: they need NumPy and the framework alone, and show exactly the divergence that the engine sees."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from conformance.adapter import Script, Scripted, Subject, adapter_of, adapters, load
from conformance.calls import limit_of
from conformance.facts import facts_of
from conformance.pair import Pair
from conformance.problem import Outputs, Problem
from conformance.reproducer import samples_of, script_of
from conformance.run import examine
from conformance.script_relation import relation_script
from conformance.script_text import inputs_of, portable
from conformance.spec import Array, Case
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored, Finding
from conformance.vocabulary import Relation
from tests.reproducer_kinds import EXECUTED, KINDS

FRAMEWORKS = ("torch", "keras", "jax")
SUBJECTS = tuple(name for adapter in adapters() if adapter.framework in FRAMEWORKS for name in adapter.subjects)
WORST = re.compile(r"^(\S+)\[([\d, ]*)\]: expected (\S+), actual (\S+), error (\S+), bound (\S+), ratio (\S+);")
RUNNER = """
import contextlib, io, json, sys
results = []
for number in range(int(sys.argv[1])):
    name = f"script{number}.py"
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(open(name, encoding="utf-8").read(), name, "exec"), {"__name__": "__main__"})
        except SystemExit as leave:
            code = leave.code
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
            code = "raised"
    results.append([code, out.getvalue()])
assert not any(name.split(".")[0] in ("conformance", "adapters") for name in sys.modules)
print(json.dumps(results))
"""


def pair_of(kind: str, subject: str) -> Pair:
    case = KINDS[kind]
    return Pair(case, facts_of(case), subject, adapter_of(subject), (0, 0))


def supported(kind: str, subject: str) -> bool:
    return limit_of(KINDS[kind], load(subject)) is None


@cache
def script_text(kind: str, subject: str) -> str:
    script = script_of(pair_of(kind, subject))
    assert script is not None
    return script


@pytest.mark.parametrize("kind", KINDS)
def test_every_subject_that_answers_a_kind_writes_a_script_for_it(kind: str) -> None:
    written = 0
    for subject in SUBJECTS:
        if not supported(kind, subject):
            assert script_of(pair_of(kind, subject)) is None
            continue
        tree = compile(script_text(kind, subject), kind, "exec", ast.PyCF_ONLY_AST)
        assert imported(tree) <= {"base64", "io", "sys", "os", "math", "dataclasses", "unittest", "numpy", *MODULES}
        written += 1
    assert written >= 2


MODULES = ("torch", "tensorflow", "keras", "jax")


def imported(tree: ast.AST) -> set[str]:
    """Top-level names of the modules that a script imports."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_script_shows_what_the_engine_sees_with_neither_engine_nor_adapter(framework: str, tmp_path: Path) -> None:
    pairs = EXECUTED[framework]
    answers = run_scripts([script_text(*pair) for pair in pairs], tmp_path)
    seen: set[object] = set()
    for (kind, subject), (code, output) in zip(pairs, answers, strict=True):
        verdict = examine(KINDS[kind], load(subject)).verdict
        where = f"{kind}[{subject}]: {verdict}\n{output}"
        assert code == {Agrees: 0, Diverges: 1, Errored: "raised"}[type(verdict)], where
        shown = {match[1]: match.groups()[1:] for match in map(WORST.match, output.splitlines()) if match}
        assert shown == (worst_by_output(verdict) if isinstance(verdict, Diverges) else {}), where
        seen.add(code)
    assert {0, 1} <= seen


class Shifted:
    """A subject and its script, whose numbers depend on what no relation lets them depend on."""

    def __init__(self, inner: Subject) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def attend(self, problem: Problem) -> Outputs:
        outputs = self.inner.attend(problem)
        parameters = problem.parameters.present
        shift = problem.key.ravel()[0] + parameters["key_weight"].ravel()[0] + parameters["key_bias"][0]
        shift += problem.key.shape[1]
        gradients = {name: array + shift for name, array in outputs.gradients.items()}
        assert outputs.attn_weights is not None
        return Outputs(outputs.attn_output + shift, outputs.attn_weights + shift, gradients)

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        assert isinstance(self.inner, Scripted)
        script = self.inner.script(problem, samples)
        return replace(script, code=script.code + SHIFT)


SHIFT = """
shift = data["key"].ravel()[0] + data["key_weight"].ravel()[0] + data["key_bias"][0] + data["key"].shape[1]
actual = {name: array.detach().numpy() + np.float32(shift) for name, array in actual.items()}"""


def test_a_script_shows_how_each_relation_is_broken(tmp_path: Path) -> None:
    subject = Shifted(load("torch/mha@weights"))
    kinds = [kind for kind, case in KINDS.items() if case.relation and case.dtype == "float32"]
    scripts = [relation_script(pair_of(kind, "torch/mha@weights"), subject, subject) for kind in kinds]
    for kind, (code, output) in zip(kinds, run_scripts(scripts, tmp_path), strict=True):
        verdict = examine(KINDS[kind], subject).verdict
        assert isinstance(verdict, Diverges), kind
        shown = {match[1]: match.groups()[1:] for match in map(WORST.match, output.splitlines()) if match}
        assert {"attn_output", "value.gradient"} <= shown.keys(), (kind, output)
        assert shown == worst_by_output(verdict), (kind, output)
        assert code == 1
    assert {KINDS[kind].relation for kind in kinds} == set(get_args(Relation))


def worst_by_output(verdict: Diverges) -> dict[str, tuple[str, ...]]:
    """For each output, the worst element of its findings, in the words of a script."""
    found: dict[str, tuple[str, ...]] = {}
    for finding in sorted(verdict.findings, key=severity):
        if finding.worst is not None:
            worst = finding.worst
            numbers = (f"{worst.expected:.9g}", f"{worst.actual:.9g}", f"{worst.error:.3g}", f"{worst.bound:.3g}")
            name = "attn_weights.sum" if finding.kind == "row-sum" else finding.output
            found[name] = (", ".join(map(str, worst.index)), *numbers, f"{worst.ratio:.3g}")
    return found


def severity(finding: Finding) -> tuple[float, float]:
    worst = finding.worst
    return (0, 0) if worst is None else (worst.ratio, float(np.nan_to_num(worst.error, nan=np.inf)))


def run_scripts(scripts: list[str], folder: Path) -> list[tuple[Any, str]]:
    """Exit status, or ``raised``, and output of each script, all run by one isolated interpreter in ``folder``."""
    import json

    for number, script in enumerate(scripts):
        (folder / f"script{number}.py").write_text(script, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-I", "-W", "ignore", "-c", RUNNER, str(len(scripts))]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [(code, output) for code, output in json.loads(done.stdout.splitlines()[-1])]


EVERY_KIND = ("torch/", "keras/mha@scores")  # the others compile for each shape, or have the same text
FEW = ("float16", "repeated", "one-sample-shared-mask", "ill-formed-query-width")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_script_computes_what_the_subject_computes(subject: str) -> None:
    compared = 0
    for kind in KINDS if subject.startswith(EVERY_KIND) else FEW:
        if not supported(kind, subject) or KINDS[kind].relation is not None:
            continue
        case = KINDS[kind]
        answers, raised = attended(case, subject)
        actual, raised_by_script = executed(case, subject)
        assert raised_by_script == raised, (kind, subject)
        if case.ill_formed is not None:
            compared += 1  # what an accepted ill-formed call answers may be whatever lies in memory
            continue
        assert set(actual) == set(answers), (kind, subject)
        for name, wanted in answers.items():
            assert_same(actual[name], wanted, f"{kind}[{subject}]: {name}")
            compared += 1
    assert compared >= 3


def attended(case: Case, subject: str) -> tuple[dict[str, Array], str | None]:
    """The subject's outputs by name, its samples put together, or the name of what it raised."""
    problem = problem_of(case)
    try:
        parts = [named(load(subject).attend(sample)) for sample in samples_of(problem) or (problem,)]
    except Exception as error:  # noqa: BLE001  # whatever is raised must be raised by the script too
        return {}, type(error).__name__
    if len(parts) == 1:
        return parts[0], None
    whole = ("attn_output", "attn_weights", "query.gradient", "key.gradient", "value.gradient")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name in whole}, None


def named(outputs: Outputs) -> dict[str, Array]:
    weights = {} if outputs.attn_weights is None else {"attn_weights": outputs.attn_weights}
    gradients = {f"{name}.gradient": array for name, array in outputs.gradients.items()}
    return {"attn_output": outputs.attn_output} | weights | gradients


def executed(case: Case, subject: str) -> tuple[dict[str, Any], str | None]:
    """What the code of a script leaves in this process, or the name of what it raised."""
    problem, writer = problem_of(case), load(subject)
    assert isinstance(writer, Scripted)
    script = writer.script(problem, samples_of(problem))
    found: dict[str, Any] = {"np": np, "data": portable(inputs_of(problem) | dict(script.arrays))}
    try:
        exec(compile(script.code, "script", "exec"), found)  # running the text is what is tested
    except Exception as error:  # noqa: BLE001
        return {}, type(error).__name__
    return found["actual"], None


def assert_same(actual: Any, wanted: Array, where: str) -> None:
    """Shape, dtype and numbers, up to four units of roundoff of the largest: a compiler may fuse otherwise."""
    assert tuple(actual.shape) == wanted.shape, where
    assert str(actual.dtype).split(".")[-1] == wanted.dtype.name, where
    numbers = np.array(actual.tolist(), np.float64).reshape(wanted.shape)
    units = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
    largest = np.abs(wanted.astype(np.float64), where=np.isfinite(wanted), out=np.zeros(wanted.shape)).max(initial=0)
    tolerance = 4 * units[wanted.dtype.name] * largest
    np.testing.assert_allclose(numbers, wanted.astype(np.float64), rtol=0, atol=tolerance, err_msg=where)


def test_subjects_of_this_project_on_numpy_have_no_script() -> None:
    names = [name for adapter in adapters() if adapter.framework == "numpy" for name in adapter.subjects]
    assert names
    assert [script_of(pair_of("plain", name)) for name in names] == [None] * len(names)


def test_a_problem_that_cannot_be_written_down_has_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = load("torch/mha")

    def refuse(problem: Any, samples: Any) -> Any:
        raise NotImplementedError

    monkeypatch.setattr(subject, "script", refuse, raising=False)
    assert script_of(pair_of("plain", "torch/mha")) is None


def test_a_key_that_stays_wide_beside_narrow_inputs_has_no_script() -> None:
    pytest.importorskip("torch")
    case = replace(KINDS["ill-formed-mixed-dtypes"], dtype="bfloat16")
    pair = Pair(case, facts_of(case), "torch/mha", adapter_of("torch/mha"), (0, 0))
    assert script_of(pair) is None
    assert script_of(replace(pair, case=replace(case, ill_formed="key-width"))) is not None
