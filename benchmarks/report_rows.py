"""The rows that reports are measured on: those of a recorded run, or ten thousand made like them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.store import Row, Run, Status, read_run, write_results
from tests.synthetic_runs import HEADER, arrays, finding, measure, row, with_tensors

FILES, SUBJECTS, NEW = 30, 19, 300
SHARES: dict[Status, float] = {"agrees": 0.72, "known": 0.14, "unsupported": 0.14}  # those of a whole run
OUTPUTS = ("attn_output", "attn_weights", *(f"{name}.gradient" for name in ("query", "key", "value", "output_bias")))
MASKS = ("none", "causal", "key-padding", "key-padding+causal", "window", "explicit", "additive")
DTYPES = ("float32", "float16", "bfloat16", "float64")
WHY = "The bias is scaled together with the scores, is broadcast over the wrong axis, or is cast to another dtype"
REASON = "A row in which every key is blocked has no softmax: the subject answers it with NaN, as it says itself"
SCRIPT_BYTES = 30_000  # before base64; the mean of a run


def sampled(folder: Path, count: int, into: Path) -> Run:
    """``count`` rows of a recorded run, evenly spaced (all of them for 0), as a run in ``into`` that shares its tensors
    and scripts."""
    run = read_run(folder)
    places = np.unique(np.linspace(0, len(run.rows) - 1, count or len(run.rows)).astype(int))
    for name in ("tensors", "scripts"):
        (into / name).symlink_to((folder / name).resolve())
    return _written(replace(run, folder=into, rows=tuple(run.rows[place] for place in places)))


def synthetic(count: int, into: Path) -> Run:
    """``count`` rows in the proportions of a whole run, :data:`NEW` of them new, with tensors and scripts."""
    for name in ("tensors", "scripts"):
        (into / name).mkdir()
    random = np.random.default_rng(1)
    statuses = random.choice(np.array(list(SHARES), object), count, p=list(SHARES.values()))
    statuses[random.choice(count, min(NEW, count), replace=False)] = "new"
    rows = [_row(number, status, random, into) for number, status in enumerate(statuses)]
    return _written(Run(into, HEADER, tuple(rows)))


def _written(run: Run) -> Run:
    write_results(run.folder, run.header, run.rows)
    return run


def _row(number: int, status: Status, random: np.random.Generator, folder: Path) -> Row:
    case, subject = divmod(number, SUBJECTS)
    topic = f"topic{case % FILES:02}"
    facts: dict[str, Any] = {f"property{place:02}": bool(case >> place & 1) for place in range(30)}
    facts |= {"mask": MASKS[case % len(MASKS)], "dtype": DTYPES[case % len(DTYPES)], "T": case % 40, "S": case % 70}
    found = tuple(_findings(random)) if status in ("new", "known") else ()
    summaries = {"known": f"entry{subject}: {REASON}", "unsupported": REASON}
    made = row(
        f"{topic}/case-{facts['mask']}-{facts['dtype']}-T{case}",
        f"framework{subject % 4}/subject{subject}",
        status,
        file=f"cases/{topic}.yaml",
        line=case,
        suite=topic,
        why=f"{WHY} ({case})",
        facts=facts,
        findings=found,
        measures=tuple(_measures(random)) if status != "unsupported" else (),
        ledger={"id": f"entry{subject}", "reason": REASON, "since": "2026-01-01"} if status == "known" else None,
        summary=summaries.get(status, found[0]["message"] if found else ""),
    )
    return _with_files(made, random, folder) if found else made


def _findings(random: np.random.Generator) -> Iterator[dict[str, Any]]:
    for output in random.choice(OUTPUTS, 3, replace=False):
        kind = str(random.choice(["value", "blocked-weight", "nan-blocked-row", "row-sum"]))
        worst = {"index": [1, 2, 3], "expected": 0.25, "actual": 0.75, "error": random.random(), "bound": 0.1}
        yield finding(kind, str(output), worst=worst, message=f"{output} lies outside its bound in rows that see a key")


def _measures(random: np.random.Generator) -> Iterator[dict[str, Any]]:
    for output in OUTPUTS:
        yield measure(output, float(random.random()))


def _with_files(made: Row, random: np.random.Generator, folder: Path) -> Row:
    """The row with tensors of a usual size, and as its script so much as a script of them would hold."""
    given = arrays(target=9, source=11, heads=4, width=16)
    noise = {name: array + 1e-3 * random.standard_normal() for name, array in given.items() if array.dtype != bool}
    stored = with_tensors(folder, made, given | noise)
    data = base64.b64encode(random.bytes(SCRIPT_BYTES)).decode("ascii")
    (folder / "scripts" / f"{made.key}.py").write_text(f'data = """\n{data}\n"""\n', "utf-8")
    return stored
