"""What a case file means: values, defaults, masks, literal numbers, and the schema that editors read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from conformance.casefile import SCHEMA_FILE, duplicate_suites, json_schema
from conformance.casefolder import case_files
from conformance.spec import Additive, Case, Data, Explicit, Mask, Padding, Source, Window
from conformance.tensors import problem_of
from tests.casefiles import case_of, cases_of

SHIPPED = case_files(Path(__file__).parent.parent / "cases")


def sizes_of(case: Case) -> tuple[int, ...]:
    return (
        *(case.batch, case.target_length, case.source_length, case.embed_dim, case.num_heads, case.num_kv_heads),
        *(case.head_dim, case.value_head_dim, case.kdim, case.vdim, case.output_dim),
    )


def test_unstated_sizes_are_the_documented_ones(tmp_path: Path) -> None:
    case = case_of(tmp_path, "include: [{name: plain}]")
    assert sizes_of(case) == (2, 5, 7, 16, 4, 4, 4, 4, 16, 16, 16)
    assert (case.dtype, case.mask, case.data, case.expect) == ("float32", Mask(), Data(), "agree")
    assert case.check == ("output", "weights", "gradients")


def test_unstated_sizes_follow_from_stated_ones(tmp_path: Path) -> None:
    case = case_of(tmp_path, "include: [{name: a, embed_dim: 24, num_heads: 6, num_kv_heads: 2, value_head_dim: 5}]")
    assert sizes_of(case) == (2, 5, 7, 24, 6, 2, 4, 5, 24, 24, 24)


def test_head_dim_frees_embed_dim_from_num_heads(tmp_path: Path) -> None:
    case = case_of(tmp_path, "include: [{name: a, embed_dim: 7, num_heads: 2, head_dim: 3, kdim: 6, output_dim: 11}]")
    assert sizes_of(case) == (2, 5, 7, 7, 2, 2, 3, 3, 6, 7, 11)


def test_a_case_knows_its_suite_its_reason_and_its_line(tmp_path: Path) -> None:
    text = "suite: causal\nwhy: order matters\ninclude:\n  - {name: a}\n  - name: b\n    why: another\n"
    first, second = cases_of(tmp_path, text)
    assert (first.id, first.suite, first.why) == ("causal/a", "causal", "order matters")
    assert first.source == Source("cases/file.yaml", 4, entry=True)
    assert (second.why, second.source.line) == ("another", 5)


@pytest.mark.parametrize(
    ("written", "mask"),
    [
        ("none", Mask()),
        ("{key_padding: {lengths: [7, 3]}}", Mask(key_padding=Padding((7, 3), "right"))),
        ("{key_padding: {lengths: [0, 7], side: left}}", Mask(key_padding=Padding((0, 7), "left"))),
        ("{key_padding: {last: 2}}", Mask(key_padding=Padding((5, 5), "right"))),
        ("{key_padding: {first: 7}}", Mask(key_padding=Padding((0, 0), "left"))),
        ("{query_padding: {last: 1}}", Mask(query_padding=Padding((4, 4), "right"))),
        ("{causal: bottom-right}", Mask(causal="bottom-right")),
        ("{is_causal: true}", Mask(causal="top-left")),
        ("{is_causal: false, key_padding: {last: 0}}", Mask(key_padding=Padding((7, 7)))),
        ("{window: {before: 1, after: 0, align: bottom-right}}", Mask(window=Window(1, 0, "bottom-right"))),
        ("{explicit: {pattern: random, axes: BHTS}}", Mask(explicit=Explicit("random", "BHTS"))),
        (
            "{explicit: {pattern: heads, axes: 1HTS, indices: [3]}}",
            Mask(explicit=Explicit("heads", "1HTS", indices=(3,))),
        ),
        ("{additive: {axes: BTS, magnitude: 3}}", Mask(additive=Additive("BTS", 3.0))),
        (
            "{additive: {axes: B1S, minus_inf: {pattern: keys, indices: [1]}}}",
            Mask(additive=Additive("B1S", minus_inf=Explicit("keys", "B1S", indices=(1,)))),
        ),
    ],
)
def test_masks(tmp_path: Path, written: str, mask: Mask) -> None:
    assert case_of(tmp_path, f"include: [{{name: a, mask: {written}}}]").mask == mask


def test_a_written_mask_is_literal(tmp_path: Path) -> None:
    text = "include: [{name: a, target_length: 2, source_length: 2, mask: {explicit: {values: [[0, 1], [1, 0]]}}}]"
    mask = case_of(tmp_path, text).mask
    assert mask == Mask(explicit=Explicit("literal", "TS", values=((0, 1), (1, 0))))


def test_a_bias_may_be_minus_infinity(tmp_path: Path) -> None:
    text = "include: [{name: a, target_length: 1, source_length: 2, mask: {additive: {values: [[-.inf, 0.5]]}}}]"
    mask = case_of(tmp_path, text).mask
    assert mask.additive is not None
    assert mask.additive.values == ((-math.inf, 0.5),)


def test_data_is_a_regime_or_more(tmp_path: Path) -> None:
    text = """
        defaults: {mask: {key_padding: {last: 2}}}
        include:
          - {name: a, data: tiny}
          - {name: b, data: {regime: large, magnitude: 1e-5}}
          - {name: c, expect: observe, data: {poison: .inf}}
          - {name: d, expect: observe, data: {poison: .nan}}
        """
    a, b, c, d = cases_of(tmp_path, "suite: s\nwhy: because" + "\n".join(line[8:] for line in text.split("\n")))
    assert (a.data, b.data, c.data) == (Data("tiny"), Data("large", 1e-5), Data("normal", 1.0, math.inf))
    assert d.data.poison is not None
    assert math.isnan(d.data.poison)


def test_ill_formed_calls_get_the_sizes_that_make_them_so_and_raise(tmp_path: Path) -> None:
    ways = "zero-heads, embed-dim-not-divisible, query-width, heads-not-divisible-by-kv-heads, null"
    zero, uneven, width, grouped, none = cases_of(tmp_path, f"suite: s\nwhy: w\nmatrix: {{ill_formed: [{ways}]}}\n")
    assert (zero.num_heads, zero.num_kv_heads) == (0, 0)
    assert uneven.embed_dim % uneven.num_heads != 0
    assert sizes_of(width) == sizes_of(none)
    assert (grouped.num_heads, grouped.num_kv_heads) == (4, 3)
    assert [case.expect for case in (zero, uneven, width, grouped, none)] == [*["raises"] * 4, "agree"]
    for case in (zero, uneven, width, grouped, none):
        problem_of(case)


def test_scopes_add_tags_and_restrict_subjects(tmp_path: Path) -> None:
    text = """suite: s
why: w
tags: [slow]
defaults: {tags: [wide], check: [output], subjects: [torch/*], subjects_why: others lack it}
matrix: {batch: [1]}
matrices:
  - {tags: [block], defaults: {expect: observe, scale: 0.5}, check: [weights], matrix: {batch: [3]}}
include:
  - {name: a, tags: [slow, own], subjects: [jax/dpa@jit], subjects_why: a reason, bias: false}
"""
    first, second, third = cases_of(tmp_path, text)
    assert (first.tags, second.tags, third.tags) == (
        ("slow", "wide"),
        ("slow", "wide", "block"),
        ("slow", "wide", "own"),
    )
    assert (first.subjects, second.subjects, third.subjects) == (("torch/*",), ("torch/*",), ("jax/dpa@jit",))
    assert (first.check, second.check, third.check) == (("output",), ("weights",), ("output",))
    assert (second.expect, second.scale, third.expect, third.scale) == ("observe", 0.5, "agree", None)
    assert not third.bias


WORKED = """include:
  - name: worked
    num_heads: 1
    bias: false
    given:
      query: [[[1]]]
      key: [[[1.0986122886681098], [0]]]
      value: [[[4, 1], [8, 2]]]
      query_weight: [[1, 2]]
      output_weight: [[1], [0], [1]]
    expect: {attn_weights: [[[[0.75, 0.25]]]]}
    expected: {attn_output: [[[5]]]}
"""


def test_literal_numbers_give_the_sizes_that_are_not_stated(tmp_path: Path) -> None:
    case = case_of(tmp_path, WORKED)
    assert sizes_of(case) == (1, 1, 2, 1, 1, 1, 2, 3, 1, 2, 1)
    assert case.data.regime == "literal"
    assert dict(case.literals.expected) == {"attn_output": (((5.0,),),), "attn_weights": ((((0.75, 0.25),),),)}
    problem = problem_of(case)
    assert problem.value.tolist() == [[[4, 1], [8, 2]]]
    assert problem.parameters.query_weight.tolist() == [[1, 2]]
    assert problem.parameters.value_weight.shape == (2, 3)  # not given, so drawn
    assert np.isfinite(problem.parameters.value_weight).all()
    assert hash(case) == hash(case_of(tmp_path, WORKED))


def test_literal_numbers_win_over_defaults_and_lose_to_the_entry(tmp_path: Path) -> None:
    text = "defaults: {batch: 3, kdim: 5}\ninclude: [{name: a, num_heads: 1, given: {query: [[[1, 2]]]}}]"
    assert (case_of(tmp_path, text).batch, case_of(tmp_path, text).kdim, case_of(tmp_path, text).embed_dim) == (1, 5, 2)


def test_equal_copies_are_given_once(tmp_path: Path) -> None:
    text = "include: [{name: a, num_heads: 1, source_length: 1, sharing: equal-copies, given: {query: [[[1, 2]]]}}]"
    problem = problem_of(case_of(tmp_path, text))
    assert problem.query.tolist() == problem.key.tolist() == problem.value.tolist() == [[[1, 2]]]
    assert problem.key is not problem.query


def test_words_that_other_yaml_readers_turn_into_something_else(tmp_path: Path) -> None:
    (case,) = cases_of(tmp_path, "suite: off\nwhy: 'no'\ninclude: [{name: on, tags: [yes, y], scale: 1e-5}]\n")
    assert (case.suite, case.why, case.name, case.tags, case.scale) == ("off", "no", "on", ("yes", "y"), 1e-5)


def test_aliases_stand_for_what_they_name(tmp_path: Path) -> None:
    text = "include:\n  - {name: a, mask: &mask {causal: top-left}}\n  - {name: b, mask: *mask, dtype: float64}\n"
    first, second = cases_of(tmp_path, "suite: s\nwhy: w\n" + text)
    assert first.mask == second.mask == Mask(causal="top-left")


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    (case,) = cases_of(tmp_path, "\ufeffsuite: s\r\nwhy: w\r\ninclude:\r\n  - {name: a}\r\n")
    assert (case.id, case.source.line) == ("s/a", 4)


def test_two_files_with_one_suite_are_found(tmp_path: Path) -> None:
    text = "# a comment\nwhy: w\nsuite:  twice\ninclude: [{name: a}, {name: b}]\n"
    cases = cases_of(tmp_path, text)
    (tmp_path / "cases" / "file.yaml").rename(tmp_path / "cases" / "first.yaml")
    again = cases_of(tmp_path, text)
    first = [Case(**{**vars(case), "source": Source("cases/first.yaml", 4)}) for case in cases]
    assert duplicate_suites(cases, tmp_path) == ()
    (fault,) = duplicate_suites([*first, *again], tmp_path)
    assert (fault.file, fault.line, fault.column) == ("cases/file.yaml", 3, 9)
    assert fault.message == "the suite 'twice' is already in cases/first.yaml"
    assert fault.source_line == "suite:  twice"


def test_the_committed_schema_is_current() -> None:
    """``python -m conformance schema > conformance/schema/casefile.json`` renews it."""
    assert json.loads(SCHEMA_FILE.read_text("utf-8")) == json_schema()


def test_the_schema_is_of_a_draft_that_editors_read() -> None:
    text = SCHEMA_FILE.read_text("utf-8")
    assert json.loads(text)["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert not any(newer in text for newer in ("$defs", "prefixItems", "unevaluated", "dependentRequired"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_schema_accepts_every_shipped_case_file(path: Path) -> None:
    validator = pytest.importorskip("jsonschema").Draft7Validator(json_schema())
    if path.stem != "known_divergences":
        assert not [error.message for error in validator.iter_errors(YAML(typ="safe", pure=True).load(path))]


@pytest.mark.parametrize(
    "change",
    [
        {"wyh": 1},
        {"suite": 3},
        {"matrix": {"dtype": ["flaot16"]}},
        {"matrix": {"mask": [{"is_casual": True}]}},
        {"matrix": {}},
    ],
)
def test_the_schema_refuses_what_the_suite_refuses(change: dict[str, Any]) -> None:
    validator = pytest.importorskip("jsonschema").Draft7Validator(json_schema())
    good: dict[str, Any] = {"suite": "s", "why": "w", "matrix": {"mask": ["none", {"is_causal": True}]}}
    assert validator.is_valid(good)
    assert not validator.is_valid(good | change)
