"""Reproducer scripts: they need NumPy and the framework alone, and show exactly the divergence that the engine sees."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.adapter import Scripted, adapter_of, adapters, load
from conformance.facts import facts_of
from conformance.pair import Pair
from conformance.reproducer import inputs_of, portable, samples_of, script_of
from conformance.run import examine
from conformance.spec import Additive, Array, Case, Data, Explicit, Mask, Outputs, Padding, Window
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored, Finding
from tests.pytorch_oracle import case_of, inference_case

FRAMEWORKS = ("torch", "keras", "jax")
SUBJECTS = tuple(name for adapter in adapters() if adapter.framework in FRAMEWORKS for name in adapter.subjects)
FORWARD: dict[str, Any] = {"check": ("output", "weights")}
BLOCKED = Mask(key_padding=Padding((0, 5)))
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

KINDS: dict[str, Case] = {
    "plain": case_of(),
    "causal": case_of(mask=Mask(causal="top-left"), **FORWARD),
    "square-causal": case_of(size=(2, 5, 5, 12, 3), mask=Mask(causal="top-left"), **FORWARD),
    "padding": case_of(mask=Mask(key_padding=Padding((7, 3)), query_padding=Padding((5, 2))), **FORWARD),
    "window": case_of(mask=Mask(window=Window(1, 1)), **FORWARD),
    "explicit-heads": case_of(mask=Mask(explicit=Explicit("random", "BHTS"), key_padding=Padding((7, 5))), **FORWARD),
    "dense": case_of(mask=Mask(causal="bottom-right", key_padding=Padding((7, 6))), mask_route="dense", **FORWARD),
    "additive-route": case_of(mask=Mask(causal="top-left"), mask_route="additive", dtype="bfloat16", **FORWARD),
    "additive": case_of(mask=Mask(additive=Additive("1HTS"), key_padding=Padding((4, 7)))),
    "float16": case_of(dtype="float16"),
    "bfloat16": case_of(dtype="bfloat16", mask=Mask(key_padding=Padding((7, 3)))),
    "float64": case_of(dtype="float64", mask=Mask(causal="bottom-right")),
    "mixed": case_of(dtype="mixed_bfloat16"),
    "self": inference_case(dtype="float16"),
    "self-inference": inference_case(mask=Mask(key_padding=Padding((6, 2))), **FORWARD),
    "self-inference-blocked": inference_case(mask=Mask(key_padding=Padding((6, 0))), **FORWARD),
    "key-value": case_of(sharing="key-value"),
    "repeated": case_of(calls="repeated", mask=Mask(key_padding=Padding((7, 3)))),
    "one-sample": case_of(calls="one-sample-at-a-time", mask=Mask(explicit=Explicit("random", "BTS"))),
    "one-sample-shared-mask": case_of(calls="one-sample-at-a-time", mask=Mask(causal="top-left"), layout="transposed"),
    "transposed": case_of(layout="transposed"),
    "negative-stride": case_of(layout="negative-stride", dtype="bfloat16"),
    "broadcast": case_of(layout="broadcast"),
    "no-bias": case_of(bias=False),
    "widths": case_of(kdim=5, vdim=9),
    "scale": case_of(scale=0.25),
    "grouped": case_of(num_kv_heads=1),
    "extra-keys": case_of(bias_kv=True, zero_attention=True),
    "exact": case_of(data=Data("equal"), mask=Mask(explicit=Explicit("keys", "TS", indices=(1,)))),
    "blocked": case_of(mask=BLOCKED),
    "blocked-float16": case_of(mask=BLOCKED, dtype="float16"),
    "blocked-dense": case_of(mask=BLOCKED, mask_route="dense"),
    "blocked-additive": case_of(mask=BLOCKED, mask_route="additive"),
    "blocked-repeated": case_of(mask=BLOCKED, calls="repeated"),
    "blocked-one-sample": case_of(mask=BLOCKED, calls="one-sample-at-a-time"),
} | {
    f"ill-formed-{fault}": case_of(ill_formed=fault, expect="raises", check=("output",), mask=mask)
    for fault, mask in (
        ("value-longer-than-key", Mask()),
        ("query-width", Mask()),
        ("zero-heads", Mask()),
        ("integer-mask", Mask(explicit=Explicit("random", "TS"))),
        ("mask-rank-1", Mask(explicit=Explicit("random", "TS"))),
        ("mask-source-too-long", Mask(explicit=Explicit("random", "TS"))),
        ("padding-mask-as-attention-mask", Mask(key_padding=Padding((7, 3)))),
    )
}  # fmt: skip
EXECUTED: dict[str, tuple[tuple[str, str], ...]] = {
    "torch": (
        *((kind, "torch/mha@weights") for kind in ("plain", "blocked", "blocked-additive", "exact", "one-sample")),
        *((kind, "torch/textbook") for kind in ("blocked", "blocked-float16", "blocked-repeated", "mixed", "bfloat16")),
        *((kind, "torch/mha@inference") for kind in ("self-inference", "self-inference-blocked")),
        *((kind, "torch/sdpa-math") for kind in ("float64", "ill-formed-integer-mask", "grouped")),
        *((kind, "torch/handwritten") for kind in ("extra-keys", "ill-formed-zero-heads", "transposed")),
        ("blocked-dense", "torch/mha@seq-first"),
        ("bfloat16", "torch/sdpa-flash"),
        ("self", "torch/packed"),
        ("ill-formed-query-width", "torch/mha"),
        ("blocked-one-sample", "torch/mha"),
    ),
    "keras": (
        *((kind, "keras/mha") for kind in ("plain", "blocked", "ill-formed-mask-rank-1", "ill-formed-query-width")),
        *((kind, "keras/mha@scores") for kind in ("blocked-float16", "blocked-one-sample", "ill-formed-integer-mask")),
        ("blocked-repeated", "keras/gqa"),
        ("bfloat16", "keras/gqa"),
        ("mixed", "keras/mha@scores"),
        ("causal", "keras/mha@graph"),
    ),
    "jax": (
        *(
            (kind, "jax/textbook")
            for kind in ("plain", "blocked", "blocked-one-sample", "bfloat16", "blocked-repeated")
        ),
        *((kind, "jax/dpa@jit") for kind in ("blocked", "float16", "window", "ill-formed-integer-mask")),
        ("ill-formed-query-width", "jax/dpa@jit"),
    ),
}


def pair_of(kind: str, subject: str) -> Pair:
    case = replace(KINDS[kind], id=f"tests/{kind}", name=kind, why='a "reason" \\ of two words')
    return Pair(case, facts_of(case), subject, adapter_of(subject), (0, 0))


def supported(kind: str, subject: str) -> bool:
    return load(subject).unsupported(KINDS[kind]) is None


@cache
def script_text(kind: str, subject: str) -> str:
    script = script_of(pair_of(kind, subject))
    assert script is not None
    return script


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_subject_of_a_framework_writes_a_script_for_every_kind_it_answers(subject: str) -> None:
    written = 0
    for kind in KINDS:
        if not supported(kind, subject):
            assert script_of(pair_of(kind, subject)) is None
            continue
        tree = compile(script_text(kind, subject), kind, "exec", ast.PyCF_ONLY_AST)
        assert imported(tree) <= {"base64", "io", "sys", "os", "math", "dataclasses", "unittest", "numpy", *MODULES}
        written += 1
    assert written >= 10


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


COMPILED = {"keras/mha@graph", "keras/mha@xla", "jax/dpa", "jax/dpa@jit", "jax/textbook"}
FEW = ("float16", "repeated", "one-sample-shared-mask", "additive", "ill-formed-query-width")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_script_computes_what_the_subject_computes(subject: str) -> None:
    compared = 0
    for kind in FEW if subject in COMPILED else KINDS:
        if not supported(kind, subject):
            continue
        case = KINDS[kind]
        answers, raised = attended(case, subject)
        actual, raised_by_script = executed(case, subject)
        assert raised_by_script == raised, (kind, subject)
        if case.ill_formed is None and raised is None:
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
