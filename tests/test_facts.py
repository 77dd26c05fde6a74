"""Facts of a case: the words that conditions of the ledger and the report's search use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.facts import fact_names, facts_of
from tests.casefiles import case_of


def facts(folder: Path, written: str) -> dict[str, Any]:
    return facts_of(case_of(folder, f"include: [{{name: a, {written}}}]"))


def test_the_facts_of_a_plain_case(tmp_path: Path) -> None:
    assert facts(tmp_path, "batch: 2") == {
        "suite": "s",
        "dtype": "float32",
        **dict(zip("BTSDHK", (2, 5, 7, 16, 4, 4), strict=True)),
        **dict.fromkeys(("Dh", "Dhv"), 4),
        **dict.fromkeys(("kdim", "vdim", "output_dim"), 16),
        "lengths": "T<S",
        "batch_heads": "different",
        "heads_are_length": False,
        "empty": "none",
        "widths": "plain",
        "mask": "none",
        "route": "native",
        "data": "normal",
        "poison": "none",
        "layout": "contiguous",
        "sharing": "separate",
        "calls": "once",
        "mode": "evaluate",
        "dropout": 0.0,
        "drops": False,
        "relation": "none",
        "bias": True,
        "bias_kv": False,
        "zero_attention": False,
        "scale": "default",
        "ill_formed": "none",
        "expect": "agree",
        "gradients": True,
        "blocked_rows": "none",
        "blocked_by": "none",
        "blocked_queries": "none",
        "causal": "none",
        "axes": "none",
        **dict.fromkeys(("key_padding", "query_padding", "window", "explicit", "additive"), False),
    }


def test_names_are_those_of_any_case(tmp_path: Path) -> None:
    assert fact_names() == tuple(facts(tmp_path, "mask: {causal: top-left}"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("target_length: 7", {"lengths": "T=S"}),
        ("batch: 4", {"batch_heads": "equal"}),
        ("target_length: 4", {"heads_are_length": True}),
        ("batch: 1, num_heads: 1", {"batch_heads": "one"}),
        ("target_length: 9", {"lengths": "T>S"}),
        ("target_length: 0", {"lengths": "T<S", "empty": "target", "blocked_rows": "none"}),
        ("batch: 0, target_length: 0", {"empty": "batch+target"}),
        ("source_length: 0", {"empty": "source", "blocked_rows": "all"}),
        ("kdim: 6", {"widths": "own", "kdim": 6}),
        ("num_kv_heads: 2", {"widths": "own", "K": 2}),
        ("scale: 0.5", {"scale": 0.5}),
        ("check: [output]", {"gradients": False}),
        ("mask: {causal: bottom-right}", {"causal": "bottom-right", "mask": "causal"}),
        (
            "mask: {window: {before: 1, after: 1}, key_padding: {last: 1}}",
            {"window": True, "key_padding": True, "mask": "key-padding+window"},
        ),
        ("mask: {explicit: {pattern: random, axes: B1TS}}", {"axes": "B1TS", "explicit": True}),
    ],
)
def test_facts_follow_the_case(tmp_path: Path, written: str, expected: dict[str, Any]) -> None:
    found = facts(tmp_path, written)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("written", "rows", "by"),
    [
        ("mask: {key_padding: {lengths: [7, 0]}}", "some", "boolean"),
        ("mask: {key_padding: {lengths: [0, 0]}}", "all", "boolean"),
        ("mask: {key_padding: {lengths: [7, 3]}}", "none", "none"),
        ("mask: {key_padding: {lengths: [0, 0]}}, bias_kv: true", "none", "none"),
        ("mask: {causal: bottom-right}, target_length: 9", "some", "boolean"),
        ("mask: {explicit: {pattern: heads, indices: [1], axes: BHTS}}", "heads", "boolean"),
        ("mask: {explicit: {pattern: everything}}", "all", "boolean"),
        ("mask: {additive: {minus_inf: {pattern: rows, indices: [0]}}}", "some", "minus-inf"),
        ("mask: {additive: {minus_inf: {pattern: rows, indices: [0]}}}, dtype: bfloat16", "some", "minus-inf"),
        (
            "mask: {key_padding: {last: 3}, additive: {minus_inf: {pattern: keys, indices: [0, 1, 2, 3]}}}",
            "all",
            "both",
        ),
        (
            "mask: {explicit: {pattern: rows, indices: [1]}, additive: {minus_inf: {pattern: rows, indices: [0]}}}",
            "some",
            "minus-inf",
        ),
        (
            "mask: {explicit: {pattern: keys, indices: [1]}, additive: {minus_inf: {pattern: rows, indices: [0]}}}",
            "some",
            "both",
        ),
        (
            "mask: {explicit: {pattern: rows, indices: [0]}, additive: {minus_inf: {pattern: rows, indices: [0]}}}",
            "some",
            "boolean",
        ),
    ],
)
def test_blocked_rows(tmp_path: Path, written: str, rows: str, by: str) -> None:
    found = facts(tmp_path, written)
    assert (found["blocked_rows"], found["blocked_by"]) == (rows, by)


@pytest.mark.parametrize(
    ("mask", "queries"),
    [
        ("{query_padding: {lengths: [2, 5]}}", "past-the-end"),
        ("{query_padding: {lengths: [2, 5]}, additive: {minus_inf: {pattern: rows, indices: [4]}}}", "others"),
        ("{query_padding: {last: 1}, explicit: {pattern: rows, axes: TS, indices: [4]}}", "past-the-end"),
        ("{query_padding: {first: 1}}", "others"),
        ("{key_padding: {lengths: [0, 7]}}", "others"),
        ("{key_padding: {lengths: [1, 7]}}", "none"),
    ],
)
def test_whose_the_blocked_rows_are(tmp_path: Path, mask: str, queries: str) -> None:
    assert facts(tmp_path, f"mask: {mask}")["blocked_queries"] == queries
