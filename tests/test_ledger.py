"""Known divergences: what an entry covers, when it applies, what a verdict is held against, and faults of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import LedgerError
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
from conformance.ledgerfile import read_ledger
from conformance.verdict import Agrees, Diverges, Errored, Finding, Kind, Measure
from tests.projects import entry
from tests.synthetic_runs import row

FACTS: Mapping[str, Any] = {"dtype": "float32", "S": 7, "scale": 1.0, "bias": True, "mask": "causal+window"}
SUBJECTS = ("torch/mha", "torch/sdpa", "jax/dpa@jit")
WRITTEN = """known:
  - id: one
    subjects: [torch/*]
    when: {dtype: float32}
    unless: {S: 1}
    cases: [causal/*]
    shows: {output: [value]}
    versions: {torch: "==2.13.*"}
    reason: >-
      It is known
      for this reason.
    link: https://example.org
    since: 2026-01-01
"""


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
            New("beyond value: output: nonfinite", (VALUE,)),
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


def ledger_of(folder: Path, text: str) -> Any:
    path = folder / "known_divergences.yaml"
    path.write_text(text, encoding="utf-8")
    return read_ledger(path, SUBJECTS, FACTS, folder)


def test_an_entry_as_it_is_written(tmp_path: Path) -> None:
    (one,) = ledger_of(tmp_path, WRITTEN)
    assert (one.id, one.file, one.line) == ("one", "known_divergences.yaml", 2)
    assert one.reason == "It is known for this reason."
    assert (one.subjects, one.cases, one.when, one.unless) == (
        ("torch/*",),
        ("causal/*",),
        {"dtype": "float32"},
        {"S": 1},
    )
    assert one.shows == {"output": ("value",)}
    assert one.as_data()["link"] == "https://example.org"


def test_no_file_is_an_empty_ledger(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "known_divergences.yaml", (), ()) == ()


@pytest.mark.parametrize(
    ("old", "new", "place", "message", "suggestion"),
    [
        ("[torch/*]", "[torch/mah]", "3:16", "no subject is called 'torch/mah'", "torch/mha"),
        ("[torch/*]", "[zzz]", "3:16", "no subject is called 'zzz'", None),
        ("{dtype:", "{dtyp:", "4:12", "'dtyp' is not a fact of a case", "dtype"),
        ("{S: 1}", "{s: 1}", "5:14", "'s' is not a fact of a case", None),
        ("output: [value]", "output: [vlaue]", "7:22", "'vlaue' is not one of: ", "value"),
        ("output: [value]", "outputs: [value]", "7:13", "'outputs' is not one of: ", "output"),
        ('"==2.13.*"', "2.13", "8:23", "expected text, got 2.13", None),
        ('"==2.13.*"', "~2", "8:23", "'~2' is not a version specifier such as '==2.13.*'", None),
        ("id: one", "id: One", "2:9", "'One' does not have the form ", None),
        ("    since:", "    sinec:", "13:5", "unknown key 'sinec'", "since"),
        ("    shows: {output: [value]}\n", "", "2:9", "an entry needs either shows or accuracy, and not both", None),
        (
            "    link:",
            "    accuracy: {softmax: float32}\n    link:",
            "2:9",
            "an entry needs either shows or accuracy, and not both",
            None,
        ),
        (
            "    link:",
            "    message: x\n    link:",
            "12:14",
            "a message is held only against what is raised, and call does not show raised",
            None,
        ),
    ],
)
def test_faults_are_located(
    tmp_path: Path, old: str, new: str, place: str, message: str, suggestion: str | None
) -> None:
    assert WRITTEN.count(old) == 1
    with pytest.raises(LedgerError) as caught:
        ledger_of(tmp_path, WRITTEN.replace(old, new))
    faults = [fault for fault in caught.value.faults if fault.message.startswith(message)]
    assert [(f"{fault.line}:{fault.column}", fault.suggestion) for fault in faults] == [(place, suggestion)]


def test_a_message_must_be_a_pattern(tmp_path: Path) -> None:
    raised = WRITTEN.replace("{output: [value]}", "{call: [raised]}").replace(
        "    link:", "    message: '('\n    link:"
    )
    with pytest.raises(LedgerError, match="not a regular expression: missing"):
        ledger_of(tmp_path, raised)


def test_an_id_stands_once(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="the id 'one' is already used on line 2") as caught:
        ledger_of(tmp_path, WRITTEN + WRITTEN.removeprefix("known:\n"))
    assert caught.value.faults[0].place == "known_divergences.yaml:14:9"


def test_an_entry_of_accuracy(tmp_path: Path) -> None:
    (one,) = ledger_of(tmp_path, WRITTEN.replace("shows: {output: [value]}", "accuracy: {softmax: float32}"))
    assert (one.shows, one.accuracy) == ({}, {"softmax": "float32"})
