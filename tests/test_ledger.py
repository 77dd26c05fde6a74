"""Known divergences: what an entry covers, when it applies, and what a verdict is held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from conformance.ledger import (
    Known,
    New,
    Recognition,
    Stale,
    category_of,
    never_shown,
    recognise,
    unmatched,
    unused,
)
from conformance.verdict import Agrees, Diverges, Errored, Finding, Kind, Measure
from tests.projects import entry
from tests.synthetic_runs import row

FACTS: Mapping[str, Any] = {"dtype": "float32", "S": 7, "scale": 1.0, "bias": True, "mask": "causal+window"}


def measure(output: str) -> Measure:
    return Measure(output, 1, 0, 1, 0.0, 0.0, 0.0, (), 0.0, True)


def diverges(*findings: tuple[str, Kind], judged: tuple[str, ...] = ()) -> Diverges:
    return Diverges(tuple(Finding(name, kind, "") for name, kind in findings), tuple(map(measure, judged)))


@pytest.mark.parametrize(
    ("when", "covered"),
    [
        ({}, True),
        ({"dtype": "float32"}, True),
        ({"dtype": "float*"}, True),
        ({"dtype": ["float64", "float32"]}, True),
        ({"dtype": "float64"}, False),
        ({"mask": "*window*", "S": 7}, True),
        ({"mask": "*window*", "S": 8}, False),
        ({"S": "7"}, False),
        ({"S": [1, 7]}, True),
        ({"scale": 1}, True),
        ({"bias": True}, True),
        ({"bias": False}, False),
        ({"bias": 1}, False),
        ({"scale": True}, False),
    ],
)
def test_conditions(when: dict[str, Any], covered: bool) -> None:
    assert entry(when=when).covers("causal/a", FACTS, "fake/off") is covered
    assert entry(unless=when).covers("causal/a", FACTS, "fake/off") is (not covered or not when)


def test_subjects_and_cases_are_patterns() -> None:
    assert entry(subjects=("torch/*", "fake/*")).covers("causal/a", FACTS, "fake/off")
    assert not entry(subjects=("torch/*",)).covers("causal/a", FACTS, "fake/off")
    assert entry(cases=("window/*", "causal/*")).covers("causal/a", FACTS, "fake/off")
    assert not entry(cases=("window/*",)).covers("causal/a", FACTS, "fake/off")


def test_all_of_unless_must_hold_to_take_a_pair_out() -> None:
    assert entry(unless={"dtype": "float32", "S": 8}).covers("causal/a", FACTS, "fake/off")
    assert not entry(unless={"dtype": "float32", "S": 7}).covers("causal/a", FACTS, "fake/off")


@pytest.mark.parametrize(
    ("wanted", "version", "applies"),
    [
        ("==2.13.*", "2.13.0", True),
        ("==2.13.*", "2.13.0+cpu", True),
        ("==2.13.*", "2.14.0", False),
        (">=2.13", "2.14.0.dev20261101", True),
        ("==2.13.*", "a-branch-of-mine", False),
        ("==2.13.*", None, False),
    ],
)
def test_versions(wanted: str, version: str | None, applies: bool) -> None:
    versions = {} if version is None else {"torch": version}
    assert entry(versions={"torch": wanted}).applies(versions) is applies


def test_all_versions_of_an_entry_count() -> None:
    both = entry(versions={"keras": "==3.*", "tensorflow": "==2.21.*"})
    assert both.applies({"keras": "3.15", "tensorflow": "2.21.0"})
    assert not both.applies({"keras": "3.15", "tensorflow": "2.20.0"})


VALUE = entry(id="value", shows={"output": ("value",)})
WEIGHTS = entry(id="weights", shows={"weights": ("row-sum", "value")})
RAISED = entry(id="raised", shows={"call": ("raised",)}, message="no kernel")
PINNED = entry(id="pinned", shows={"call": ("as-contract",)})
ERROR = Errored("RuntimeError", "no kernel\nhere", "")


@pytest.mark.parametrize(
    ("verdict", "entries", "expected"),
    [
        (Agrees((measure("attn_output"),)), (), None),
        (Agrees((measure("attn_output"),)), (VALUE,), Stale(VALUE, "output should show value and shows agreement")),
        (Agrees((measure("attn_weights"),)), (VALUE,), None),
        (diverges(("attn_output", "value")), (VALUE,), Known((VALUE,))),
        (diverges(("attn_output", "value")), (), New()),
        (
            diverges(("attn_output", "nonfinite")),
            (VALUE,),
            Stale(VALUE, "output should show value and shows nonfinite"),
        ),
        (
            diverges(("attn_output", "value"), ("attn_output", "nonfinite")),
            (VALUE,),
            New("beyond value: attn_output: nonfinite", (VALUE,)),
        ),
        (
            diverges(("attn_output", "value"), ("attn_weights", "row-sum")),
            (VALUE, WEIGHTS),
            Known((VALUE, WEIGHTS)),
        ),
        (diverges(("attn_output", "value")), (VALUE, WEIGHTS), Known((VALUE,))),
        (
            diverges(("attn_output", "value"), judged=("attn_weights",)),
            (VALUE, WEIGHTS),
            Stale(WEIGHTS, "weights should show row-sum or value and shows agreement"),
        ),
        (ERROR, (), New()),
        (ERROR, (VALUE, RAISED), Known((RAISED,))),
        (ERROR, (VALUE,), New()),
        (Errored("TypeError", "x\ny", ""), (RAISED,), Stale(RAISED, "the message does not match 'no kernel': x")),
        (Agrees(), (RAISED,), Stale(RAISED, "call should show raised and shows agreement")),
        (diverges(("call", "accepted")), (VALUE, RAISED), Stale(RAISED, "call should show raised and shows accepted")),
        (diverges(("query.gradient", "nonfinite")), (entry(shows={"gradients": ("nonfinite",)}),), "known"),
    ],
)
def test_a_verdict_is_held_against_entries(
    verdict: Agrees | Diverges | Errored, entries: tuple[Any, ...], expected: Recognition | str | None
) -> None:
    assert recognise(verdict, entries) == (Known(entries) if expected == "known" else expected)


@pytest.mark.parametrize(
    ("verdict", "entries", "expected"),
    [
        (Agrees((measure("attn_output"),)), (), New()),
        (Agrees((measure("attn_output"),)), (PINNED,), Known((PINNED,))),
        (
            Agrees((measure("attn_output"),)),
            (VALUE,),
            Stale(VALUE, "output should show value and shows agreement"),
        ),
        (diverges(("attn_output", "value")), (VALUE,), Known((VALUE,))),
        (diverges(("attn_output", "value")), (), New()),
        (
            diverges(("attn_output", "value")),
            (PINNED,),
            Stale(PINNED, "call should show as-contract and shows agreement"),
        ),
        (ERROR, (PINNED,), Stale(PINNED, "call should show as-contract and shows raised")),
    ],
)
def test_behaviour_that_is_observed_is_pinned(
    verdict: Agrees | Diverges | Errored, entries: tuple[Any, ...], expected: Recognition
) -> None:
    assert recognise(verdict, entries, observed=True) == expected


@pytest.mark.parametrize(
    ("output", "category"),
    [
        ("attn_output", "output"),
        ("attn_weights", "weights"),
        ("query_weight.gradient", "gradients"),
        ("call", "call"),
    ],
)
def test_categories(output: str, category: str) -> None:
    assert category_of(Finding(output, "value", "")) == category


def test_entries_that_cover_nothing() -> None:
    first, second = entry(id="first", subjects=("fake/off",)), entry(id="second", subjects=("gone/*",))
    pairs = [("causal/a", FACTS, "fake/right"), ("causal/a", FACTS, "fake/off"), ("causal/b", FACTS, "fake/off")]
    assert unused([first, second], pairs) == (second,)
    assert unused([first], pairs) == ()
    assert unused([first, second], []) == (first, second)


def test_case_patterns_that_match_nothing() -> None:
    some = entry(cases=("causal/*", "cuasal/*"))
    assert list(unmatched([some, entry()], ["causal/a"])) == [(some, "cuasal/*")]


def test_entries_that_no_row_shows() -> None:
    one = entry(when={"dtype": "float32"})
    rows = [row(subject="fake/off", status="unsupported"), row(subject="fake/off", facts={"dtype": "float64"})]
    versions = {"fakelib": "1.5"}
    assert never_shown([one], rows, versions) == (one,)
    assert never_shown([one], [*rows, row(subject="fake/off", status="known", entries=("off",))], versions) == ()
    assert never_shown([one], rows, {"fakelib": "2.0"}) == ()
    assert never_shown([one], rows[1:], versions) == ()
    assert never_shown([one], [row(subject="fake/off", status="missing")], versions) == ()


def gradient_finding(name: str) -> Diverges:
    return Diverges((Finding(f"{name}.gradient", "value", "off"),))


def test_an_entry_speaks_of_no_gradient_that_it_does_not_name() -> None:
    named = entry(shows={"gradients": ("value",)}, gradients_of=("value", "output_weight"))
    assert isinstance(recognise(gradient_finding("value"), [named]), Known)
    assert isinstance(recognise(gradient_finding("query"), [named]), New)
    assert isinstance(recognise(gradient_finding("query"), [named], sharing="self"), Known)
    assert isinstance(recognise(gradient_finding("key"), [named], sharing="key-value"), Known)


def test_the_gradient_of_the_output_bias_must_be_named() -> None:
    general = entry(shows={"gradients": ("value",)})
    assert isinstance(recognise(gradient_finding("query_weight"), [general]), Known)
    assert isinstance(recognise(gradient_finding("output_bias"), [general]), New)
    named = entry(shows={"gradients": ("value",)}, gradients_of=("output_bias",))
    assert isinstance(recognise(gradient_finding("output_bias"), [named]), Known)


def test_an_accident_is_never_known() -> None:
    raised = entry(shows={"call": ("raised",)}, message=".*")
    assert isinstance(recognise(Errored("RuntimeError", "no kernel", ""), [raised]), Known)
    assert isinstance(recognise(Errored("NameError", "no kernel", "", accident=True), [raised]), New)
