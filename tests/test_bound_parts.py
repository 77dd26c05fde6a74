"""The parts of a bound: they sum to it, none is negative, and each is that of its stage."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import bounds_of
from conformance.bounds.parts import Breakdown, parts_of
from conformance.cli import main
from conformance.expectation import expected
from conformance.formula import formula_of
from conformance.policy import ENVELOPE, Policy
from conformance.reference import reference_of
from conformance.report.boundtext import bound_lines
from conformance.spec import Case, Data, Explicit, Literals, Mask, Padding
from conformance.tensors import problem_of
from conformance.verdict import Finding, Kind, Worst
from tests.drawn_problems import case_like, drawn_problem
from tests.projects import Project, row_of
from tests.report_pages import page_of

ROUNDED = 1e-13  # of the bound: sums, products and exp of the analysis itself are rounded in float64
OUTPUT = ["query projection, scaled", "key projection, scaled", "value projection", "scores", "softmax", "context"]
NARROW = Policy("storage", "storage", "storage", "storage", "storage", "storage", flash=False)


def parts(case: Case, output: str, index: tuple[int, ...], policy: Policy = ENVELOPE) -> Breakdown:
    return parts_of(case, reference_of(problem_of(case)), policy, output, index)


def adds(found: Breakdown) -> dict[str, float]:
    return {part.stage: part.adds for part in found.parts}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "mixed_bfloat16"])
def test_parts_sum_to_the_bound_and_none_is_negative(dtype: str) -> None:
    random = np.random.default_rng([77, *dtype.encode()])
    judged, several = 0, 0
    for draw in range(15):
        problem, policy = drawn_problem(random, dtype), (ENVELOPE, Policy(flash=False), NARROW)[draw % 3]
        if problem is None:
            continue
        reference = reference_of(problem)
        bounds = {name: bound for name, bound in bounds_of(problem.case, reference, policy).items() if bound.size}
        for name in random.permutation(sorted(bounds))[:3]:
            index = tuple(int(random.integers(length)) for length in bounds[name].shape)
            found = parts_of(problem.case, reference, policy, str(name), index)
            assert found.bound == bounds[name][index]
            amounts = [part.adds for part in found.parts]
            if np.isfinite(found.bound):
                assert sum(amounts) == pytest.approx(found.bound, rel=ROUNDED, abs=0), (name, problem.case)
                assert min(amounts, default=0) >= -ROUNDED * found.bound, (name, problem.case)
                terms = [term.amount for term in found.terms]
                assert sum(terms) == pytest.approx(found.bound, rel=1e-9, abs=0), (name, problem.case)
                judged, several = judged + bool(amounts), several + (len(amounts) > 3)
    assert judged >= 15 and several >= 8


def test_the_last_operation_has_the_numbers_of_its_element() -> None:
    case = case_like("numbers", dtype="float32")
    reference = reference_of(problem_of(case)).forward
    found = parts(case, "attn_output", (1, 2, 3))
    inherited, rounding, storing = found.terms
    terms = np.abs(reference.joined[1, 2]) * np.abs(reference.parameters["output_weight"][:, 3])
    magnitude = terms.sum() + abs(reference.parameters["output_bias"][3])
    assert rounding.numbers == {"n": 5, "u": 2.0**-24, "Σ|c||W| + |b|": pytest.approx(magnitude, rel=1e-3)}
    assert rounding.amount == pytest.approx(5 * 2.0**-24 * magnitude, rel=1e-3)
    assert (inherited.text, rounding.text) == ("Σ|W|·ε", "n·u·(Σ|c||W| + |b|)")
    half_ulp = np.spacing(np.float32(reference.attn_output[1, 2, 3])) / 2
    assert storing.text == "2 × ½ ulp" and half_ulp <= storing.amount <= 4.001 * half_ulp
    before = sum(part.adds for part in found.parts[:-1])
    assert before == pytest.approx(inherited.amount, rel=1e-3), "the last part is the rest"


def test_a_stage_is_told_by_what_its_own_rule_adds() -> None:
    case = case_like("stages", dtype="float32")
    plain = Policy(flash=False)
    one = parts(case, "attn_output", (0, 1, 2), plain)
    other = parts(case, "attn_output", (0, 1, 2), replace(plain, exponential_units=400.0))
    assert list(adds(one)) == [*OUTPUT, "output projection"]
    changed = {stage for stage, amount in adds(one).items() if adds(other)[stage] > 1.01 * amount}
    assert changed == {"softmax"}
    for stage in ("context", "output projection"):
        assert adds(other)[stage] == adds(one)[stage], "what comes before is exact there"
    wide = parts(case, "attn_output", (0, 1, 2), replace(plain, products="storage"))
    assert adds(wide) == adds(one), "the products of float32 are float32"
    rebuilt = parts(case, "query.gradient", (0, 1, 2))
    assert "weights rebuilt as exp(s − lse)" in adds(rebuilt)
    assert "weights rebuilt as exp(s − lse)" not in adds(parts(case, "query.gradient", (0, 1, 2), plain))


def test_stages_that_lead_nowhere_add_nothing() -> None:
    case = case_like("nowhere", dtype="float32")
    assert list(adds(parts(case, "attn_weights", (0, 0, 0, 0)))) == [*OUTPUT[:2], "scores", "softmax"]
    assert list(adds(parts(case, "output_bias.gradient", (1,)))) == ["gradient of output_bias"]
    assert "query projection, scaled" not in adds(parts(replace(case, scale=0.0), "attn_output", (0, 0, 0)))
    rows = case_like("rows", mask=Mask(explicit=Explicit("rows", "TS", indices=(1,))))
    assert parts(rows, "attn_output", (0, 1, 2)) == Breakdown(0.0, (), ())
    large = case_like("overflow", dtype="float16", data=Data("large", 40.0))
    index = np.argwhere(np.isinf(bounds_of(large, reference_of(problem_of(large)), ENVELOPE)["attn_output"]))[0]
    assert parts(large, "attn_output", tuple(map(int, index))) == Breakdown(np.inf, (), ())


def test_a_bias_that_nothing_is_added_to_errs_as_it_was_cast() -> None:
    case = case_like("alone", dtype="mixed_float16", mask=Mask(explicit=Explicit("rows", "TS", indices=(1,))))
    found = parts(case, "attn_output", (0, 1, 2))
    (part,), (term,) = found.parts, found.terms
    assert part.rule == term.text == "error of b as given" and not part.numbers
    bias = np.float16(problem_of(case).parameters.present["output_bias"][2])
    assert part.adds == term.amount == found.bound == pytest.approx(np.spacing(np.abs(bias)) / 2)


def formula(
    case: Case, kind: Kind = "value", output: str = "attn_output", bound: float | None = None
) -> dict[str, Any]:
    index = (0, 1, 2)
    if bound is None:
        bound = float(expected(case, ENVELOPE)[1].bounds[output][index])
    found = formula_of(case, ENVELOPE, [Finding("call", "raised", ""), finding(kind, output, index, bound)])
    assert found is not None
    return found


def finding(kind: Kind, output: str, index: tuple[int, ...], bound: float) -> Finding:
    return Finding(output, kind, "", 1, 1, Worst(index, 1.0, 2.0, 1.0, bound))


def test_a_bound_without_a_formula_says_why() -> None:
    case = case_like("why", dtype="float32")
    assert formula_of(case, ENVELOPE, [Finding("attn_output", "shape", "")]) is None
    for other, bound, words in (
        (replace(case, relation="keys-permuted"), 1.0, "both"),
        (replace(case, dropout=0.5, mode="train"), 1.0, "draw"),
        (case, 0.0, "exactly 1"),
    ):
        found = formula(other, bound=bound)
        assert words in found["note"] and not found["parts"] and found["bound"] == bound
    exact = formula(case, "inexact")
    assert "must be equal" in exact["note"] and exact["parts"]


def test_a_row_sum_has_the_formula_of_row_sums() -> None:
    case = case_like("sum", dtype="float16", mask=Mask(key_padding=Padding((3, 4))))
    bound = 2 * 2.0**-11 + 2 * 3 * 2.0**-24 + 7 * 2.0**-24
    found = formula(case, "row-sum", "attn_weights", bound)
    (part,) = found["parts"]
    assert part["numbers"] == {"n": 3, "u": 2.0**-24, "u_s": 2.0**-11, "φ": 2.0**-24}
    n, u, u_s, near_zero = part["numbers"].values()
    value = 2 * u_s + 2 * n * near_zero + (n + 4) * u / (1 - (n + 4) * u)
    assert part["adds"] == bound == pytest.approx(value, rel=1e-6)


def test_a_written_number_has_its_distance_as_a_part() -> None:
    case = case_like("written", dtype="float16")
    values = expected(case, ENVELOPE)[1].values["attn_output"]
    written = np.round(values, 4)
    numbers = tuple(tuple(map(tuple, sample)) for sample in written.tolist())
    found = formula(replace(case, literals=Literals(expected=(("attn_output", numbers),))))
    last = found["parts"][-1]
    assert last["stage"] == "number written in the case"
    assert last["adds"] == pytest.approx(abs(values - written)[0, 1, 2], rel=1e-6)
    assert sum(part["adds"] for part in found["parts"]) == pytest.approx(found["bound"], rel=ROUNDED)
    assert sum(term["amount"] for term in found["terms"]) == pytest.approx(found["bound"], rel=1e-9)


def test_from_a_case_file_to_results_terminal_and_page(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.cases("small", "fake/off", "fake/right")
    project.pytest_here()
    row, run = row_of(project, "fake/off"), project.run()
    assert row_of(project, "fake/right").bound is None
    assert row.bound is not None and row.bound["policy"] == {}
    worst = row.findings[0]["worst"]
    assert (row.bound["output"], row.bound["index"], row.bound["bound"]) == ("attn_output", [1, 2, 3], worst["bound"])
    assert sum(part["adds"] for part in row.bound["parts"]) == pytest.approx(worst["bound"], rel=ROUNDED)
    assert json.loads(json.dumps(row.bound)) == row.bound
    monkeypatch.chdir(project.root)
    capsys.readouterr()
    assert main(["explain", "small/one[fake/off]"]) == 0
    text = capsys.readouterr().out
    assert "\n".join(bound_lines(row)) in text
    for words in (
        "envelope",
        "= Σ|W|·ε + n·u·(Σ|c||W| + |b|) + 2 × ½ ulp",
        "with n = ",
        "u = 2⁻²⁴",
        "output projection",
    ):
        assert words in text
    (detail,) = [page_of(run).detail(place) for place, one in enumerate(run.rows) if one.subject == "fake/off"]
    assert detail["bound"]["bound"] == detail["bound"]["sum"] == detail["worst"][0][5]
    assert [part["stage"] for part in detail["bound"]["parts"]] == [*OUTPUT, "output projection"]
    assert sum(part["width"] for part in detail["bound"]["parts"]) == pytest.approx(100, abs=1)
