"""Runs made of the store's own types, for the tests of the report: no framework, no comparison."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.spec import Array
from conformance.store import Header, Row, Run, Status

HEADER = Header(
    started="2026-03-01T09:30:00Z",
    command="pytest cases",
    complete=True,
    versions={"numpy": "2.4.6", "alpha": "1.0.0"},
    environment={"cpu": "x86-64, avx2", "threads": 2, "flags": {"tf32": False}},
)
HOSTILE = (
    "</script /><script>window.harm=1</script><img src=x onerror=window.harm=1> "
    "\u2028\u202egnp.\u05d0 \x1b[2J & \"q\" 'r'"
)
FACTS: Mapping[str, Any] = {
    "dtype": "float32",
    "mask": "none",
    "route": "native",
    "data": "normal",
    "layout": "contiguous",
    "sharing": "separate",
    "calls": "once",
    "check": ["output", "weights"],
    "blocked_rows": 0,
    "B": 2,
    "T": 3,
    "S": 5,
    "H": 2,
    "D": 8,
}


def finding(kind: str = "value", output: str = "attn_output", **changes: Any) -> dict[str, Any]:
    """A recorded finding whose worst element is five times its bound."""
    worst = {"index": [1, 2, 3], "expected": 0.25, "actual": 0.75, "error": 0.5, "bound": 0.1}
    return {
        "output": output,
        "kind": kind,
        "message": f"{output} is off",
        "count": 4,
        "total": 48,
        "worst": worst,
    } | changes


def measure(output: str = "attn_output", ratio: float = 0.4) -> dict[str, Any]:
    return {
        "output": output,
        "elements": 48,
        "not_judged": 0,
        "bit_equal": 40,
        "max_abs_error": 1e-7,
        "max_ulp": 1.5,
        "max_ratio": ratio,
        "max_ratio_index": [0, 0, 0],
        "p99_ratio": ratio / 2,
        "assert_close": True,
        "rms": 2 * ratio,
    }


def row(case: str = "T3-S5", subject: str = "alpha/mha", status: Status = "agrees", **changes: Any) -> Row:
    """A row; ``facts`` are added to :data:`FACTS`, every other change replaces a field."""
    file = changes.pop("file", "cases/plain.yaml")
    facts = {**FACTS, **changes.pop("facts", {})}
    found = (finding(),) if status in ("new", "known") else ()
    made = Row(
        node=f"{file}::{case}[{subject}]",
        order=(0, 0),
        file=file,
        line=7,
        suite="plain",
        case=case,
        why="a plain case",
        subject=subject,
        framework=subject.partition("/")[0],
        status=status,
        summary=found[0]["message"] if found else "",
        facts=facts,
        findings=found,
        measures=(measure(),) if status == "agrees" else (),
    )
    return replace(made, **changes)


def run_of(folder: Path, rows: Sequence[Row], header: Header = HEADER) -> Run:
    return Run(folder=folder, header=header, rows=tuple(rows))


def with_tensors(folder: Path, made: Row, arrays: Mapping[str, Array]) -> Row:
    """The row with its arrays stored as the store does."""
    name = f"{hashlib.sha256(made.node.encode()).hexdigest()[:16]}.npz"
    with zipfile.ZipFile(folder / name, "w") as archive:
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w") as stream:
                np.lib.format.write_array(stream, array)
    return replace(made, tensors=name)


def arrays(batch: int = 2, target: int = 3, source: int = 5, heads: int = 2, width: int = 8) -> dict[str, Array]:
    """Output and weights of which attn_output[1, 2, 3] is NaN and attn_weights[0, 1, 2, 4] is 50 times its bound."""
    random = np.random.default_rng(0)
    output = random.normal(size=(batch, target, width))
    weights = random.dirichlet(np.ones(source), size=(batch, heads, target))
    actual_output, actual_weights = output + 1e-8, weights.copy()
    actual_output[1, 2, 3] = np.nan
    actual_weights[0, 1, 2, 4] += 5e-5
    blocked = np.zeros((batch, heads, target, source), bool)
    blocked[1, :, 2, :] = True
    return {
        "attn_output/expected": output,
        "attn_output/actual": actual_output,
        "attn_output/bound": np.full_like(output, 1e-7),
        "attn_weights/expected": weights,
        "attn_weights/actual": actual_weights,
        "attn_weights/bound": np.full_like(weights, 1e-6),
        "blocked": blocked,
    }


def large_run(folder: Path) -> Run:
    """Ten thousand rows, of which two thousand diverge."""
    rows = [
        row(
            f"case-{case}-{dtype}",
            f"alpha/s{subject}",
            "known" if subject < 2 else "agrees",
            file=f"cases/file-{case % 10}.yaml",
            why=f"length {case} is past an edge",
            facts={"T": case, "dtype": dtype, "mask": ("none", "causal", "key-padding+causal")[case % 3]},
        )
        for case in range(1000)
        for dtype in ("float16",)
        for subject in range(10)
    ]
    return run_of(folder, rows)
