"""How large rms(error/σ) is on correct subjects, and what the bound and the statistics each find.

``python -m benchmarks.calibration`` prints the tables that docs/tolerance.md quotes; ``--write`` puts them there. The
figures of subjects are those of a recorded run of the default cases.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks.faults import FAULTS, Fault, WrongScale
from benchmarks.page import PAGE, ROOT, Table
from conformance.adapter import load
from conformance.bounds.outputs import bounds_of
from conformance.compare import judged_outputs
from conformance.deviations.graph import deviations_of
from conformance.deviations.rules import LIMIT
from conformance.expectation import Expectation, expected
from conformance.measure import measures_of
from conformance.policy import ENVELOPE, Policy
from conformance.problem import Problem
from conformance.reference import reference_of
from conformance.run import policy_of
from conformance.spec import Case, Mask
from conformance.store import Row, latest_run, read_run
from conformance.verdict import Measure
from tests.drawn_problems import case_like
from tests.exponentials import SOFTMAX, exponential_units
from tests.planted.attention import Attention

PLAIN = Policy(flash=False, exponential_units=4)  # of the planted subjects, which are NumPy
LENGTHS, SEEDS = (7, 16, 33, 64, 128, 256), (1, 2)
STEPS = tuple(digit * 10.0**exponent for exponent in range(-16, 0) for digit in (1, 3))
JUDGES: Mapping[str, Callable[[Measure], bool]] = {
    "bound": lambda measure: measure.max_ratio > 1,
    "statistics": lambda measure: measure.rms is not None and measure.rms > LIMIT,
    "assert_close": lambda measure: not measure.assert_close,
}


def square(dtype: str, length: int, head_dim: int, seed: int) -> Case:
    """Self-attention of 4 heads under a causal mask, standard normal data."""
    width = 4 * head_dim
    sizes = {"batch": 1, "target_length": length, "source_length": length, "embed_dim": width, "num_heads": 4}
    mask = Mask(causal="top-left")
    return case_like(f"square-{length}-{seed}", dtype=dtype, head_dim=head_dim, mask=mask, **sizes)


def measures(problem: Problem, expectation: Expectation, subject: Attention) -> tuple[Measure, ...]:
    """What the planted subject's outputs measure, whatever they are judged."""
    with np.errstate(all="ignore"):
        outputs = subject.attend(problem)
        names = (*problem.case.input_gradients, *problem.parameters.present)
        judged = judged_outputs(expectation.case.check, outputs, gives_weights=True, gradients=names)
        return measures_of(expectation, {name: array for name, array in judged.items() if array is not None})


# Tables ---------------------------------------------------------------------------------------------------------------


def faults_table() -> Iterator[str]:
    """Share of cases in which some output is flagged."""
    yield "| fault | float64: bound / statistics / assert_close | float32: bound / statistics / assert_close |"
    yield "|---|---|---|"
    for fault in FAULTS:
        cells = (shares(fault, dtype) if dtype in fault.dtypes else "—" for dtype in ("float64", "float32"))
        yield f"| {fault.label} | {' | '.join(cells)} |"


def shares(fault: Fault, dtype: str) -> str:
    found = [measures(*planted(dtype, length, 8, seed), fault.subject) for length in LENGTHS for seed in SEEDS]
    flagged = (np.mean([any(map(judge, each)) for each in found]) for judge in JUDGES.values())
    return " / ".join(f"{100 * share:.0f} %" for share in flagged)


@cache
def planted(dtype: str, length: int, head_dim: int, seed: int) -> tuple[Problem, Expectation]:
    with np.errstate(all="ignore"):
        return expected(square(dtype, length, head_dim, seed), PLAIN)


def resolution_table() -> Iterator[str]:
    """The smallest relative error of the scale that is flagged for each of three seeds: by the output alone, by any."""
    yield "| dtype, tokens × heads × width | bound | statistics | assert_close |"
    yield "|---|---|---|---|"
    for dtype in ("float64", "float32"):
        for length, head_dim in ((16, 8), (128, 32)):
            found = {name: [resolution(dtype, length, head_dim, judge, only) for only in (True, False)]
                     for name, judge in JUDGES.items()}  # fmt: skip
            cells = " | ".join(" / ".join(f"{step:.0e}" for step in steps) for steps in found.values())
            yield f"| {dtype}, {length} × 4 × {head_dim} | {cells} |".replace("e-0", "e-")


def resolution(dtype: str, length: int, head_dim: int, judge: Callable[[Measure], bool], output_only: bool) -> float:
    for step in STEPS:
        found = (scaled(dtype, length, head_dim, seed, step) for seed in (1, 2, 3))
        shown = (each[:1] if output_only else each for each in found)
        if all(any(map(judge, each)) for each in shown):
            return step
    return float("inf")


@cache
def scaled(dtype: str, length: int, head_dim: int, seed: int, relative: float) -> tuple[Measure, ...]:
    return measures(*planted(dtype, length, head_dim, seed), WrongScale(relative))


def subjects_table(rows: Iterable[Row]) -> Iterator[str]:
    """Largest rms(error/σ) of outputs that are right, or have a finding of statistics alone. Rows with a known
    divergence are not: it may lie within the bound of an output, and not of another."""
    largest: dict[tuple[str, str, str], float] = defaultdict(float)
    judged = 0
    for row in rows:
        if row.status not in ("agrees", "new"):
            continue
        wrong = {found["output"] for found in row.findings if found["kind"] != "statistics"}
        for measure in row.measures:
            if measure["rms"] is not None and measure["output"] not in wrong:
                judged += 1
                kind = "gradients" if measure["output"].endswith(".gradient") else measure["output"]
                place = (row.subject, row.facts["dtype"].removeprefix("mixed_"), kind)
                largest[place] = max(largest[place], measure["rms"])
    dtypes, kinds = ("float64", "float32", "float16", "bfloat16"), ("attn_output", "attn_weights", "gradients")
    yield f"| subject | {' | '.join(f'{dtype}: output / weights / gradients' for dtype in dtypes)} |"
    yield "|---|---|---|---|---|"
    for subject in sorted({subject for subject, _, _ in largest}):
        found = [[largest.get((subject, dtype, kind)) for kind in kinds] for dtype in dtypes]
        cells = [" / ".join("—" if size is None else f"{size:.1f}" for size in sizes) for sizes in found]
        yield f"| {subject} | {' | '.join(cells)} |"
    yield ""
    yield f"({judged:,} outputs.)"


def exponentials_table() -> Iterator[str]:
    """Error of exp inside softmax, measured and declared, and what declaring it is worth."""
    yield "| subject | exp measured: float64 / float32 | declared | envelope's bound / own | envelope's σ / own |"
    yield "|---|---|---|---|---|"
    for name, make in SOFTMAX.items():
        softmax, policy = make(), policy_of(load(name))
        units = " / ".join(f"{exponential_units(softmax, dtype):.1f}" for dtype in ("float64", "float32"))
        bound, deviation = (" / ".join(f"{factor:.2f}" for factor in each) for each in sharpening(policy))
        yield f"| {name} | {units} | {policy.exponential_units:g} | {bound} | {deviation} |"


def sharpening(policy: Policy) -> Iterator[list[float]]:
    """How many times as large the envelope's bound and σ are as the policy's: geometric means over the elements of the
    weights, of the output and of the gradients, in float32."""
    for compute in (bounds_of, deviations_of):
        ratios: dict[str, list[float]] = defaultdict(list)
        for length in LENGTHS:
            case = square("float32", length, 8, 1)
            reference = reference_of(planted("float32", length, 8, 1)[0])
            with np.errstate(all="ignore"):
                wide, own = compute(case, reference, ENVELOPE), compute(case, reference, policy)
            for name, array in own.items():
                judged = (array > 0) & np.isfinite(array) & np.isfinite(wide[name])
                kind = "gradients" if name.endswith(".gradient") else name
                ratios[kind] += list((wide[name][judged] / array[judged]).ravel())
        yield [geometric_mean(ratios[kind]) for kind in ("attn_weights", "attn_output", "gradients")]


# The page -------------------------------------------------------------------------------------------------------------


def tables(runs: Sequence[Path] = ()) -> tuple[Table, ...]:
    return (
        Table("subjects", lambda: subjects_table(row for run in runs for row in read_run(run).rows)),
        Table("faults", faults_table),
        Table("resolution", resolution_table),
        Table("exponentials", exponentials_table),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("tables", nargs="*", help="which tables; all by default")
    parser.add_argument("--run", nargs="+", type=Path, metavar="FOLDER", help="recorded runs; the newest by default")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    newest = latest_run(ROOT / "reports")
    for table in tables(options.run or ([newest] if newest else [])):
        if options.tables and table.name not in options.tables:
            continue
        text = "\n".join(table.lines()) + "\n"
        print(text, flush=True)
        if options.write:
            page = PAGE.read_text("utf-8")
            PAGE.write_text(table.put(page, text), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
