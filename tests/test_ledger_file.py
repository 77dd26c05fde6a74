"""The ledger as it is written: its entries, and every fault where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.casefolder import LEDGER
from conformance.errors import LedgerError
from conformance.ledgerfile import read_ledger

FACTS = ("dtype", "S", "scale", "bias", "mask")
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


def test_what_is_raised_needs_a_message(tmp_path: Path) -> None:
    text = LEDGER_HEAD.format(extra="    shows: {call: [raised]}")
    assert "needs a message" in faults_of(tmp_path, text)


def test_gradients_are_named_as_they_are(tmp_path: Path) -> None:
    text = LEDGER_HEAD.format(extra="    shows: {gradients: [value]}\n    gradients_of: [valeu]")
    found = faults_of(tmp_path, text)
    assert "'valeu' has no gradient" in found
    assert "did you mean value?" in found


LEDGER_HEAD = """known:
  - id: one
    subjects: [numpy/*]
{extra}
    versions: {{numpy: ">=2"}}
    reason: a reason of more than twenty characters
    since: 2026-01-01
"""


def faults_of(folder: Path, text: str) -> str:
    path = folder / LEDGER
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LedgerError) as raised:
        read_ledger(path, ["numpy/reference"], ["dtype"], folder)
    return str(raised.value)
