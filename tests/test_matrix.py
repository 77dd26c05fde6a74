"""Matrices: which cases there are, in which order, under which names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path

import pytest

from conformance.casefile.pairing import OutOfPatienceError, pairwise
from tests.casefiles import HEAD, cases_of, faults_of, names_of

ROOT = Path(__file__).parent.parent


def test_a_product_runs_through_the_last_axis_first(tmp_path: Path) -> None:
    text = "matrix: {target_length: [3, 1], source_length: [5, 2], dtype: [float32, bfloat16]}"
    assert names_of(tmp_path, text) == [
        *("T3-S5-float32", "T3-S5-bfloat16", "T3-S2-float32", "T3-S2-bfloat16"),
        *("T1-S5-float32", "T1-S5-bfloat16", "T1-S2-float32", "T1-S2-bfloat16"),
    ]


def test_names_spell_every_field(tmp_path: Path) -> None:
    text = """
        matrix:
          batch: [3]
          target_length: [5]
          source_length: [5]
          embed_dim: [12]
          num_heads: [4]
          num_kv_heads: [2]
          head_dim: [8]
          value_head_dim: [3]
          kdim: [12]
          vdim: [12]
          output_dim: [5]
          dtype: [mixed_float16]
          mask: [{key_padding: {lengths: [5, 3, 0]}, causal: top-left}]
          mask_route: [dense]
          data: [{regime: large, magnitude: 1e5, poison: 1000}]
          layout: [negative-stride]
          sharing: [self]
          calls: [repeated]
          bias: [false]
          bias_kv: [true]
          zero_attention: [false]
          scale: [0.5]
          ill_formed: [null]
          check: [[output, weights]]
          expect: [observe]
        """
    assert names_of(tmp_path, text) == [
        (
            "B3-T5-S5-D12-H4-K2-Dh8-Dhv3-Dk12-Dv12-Do5-mixed_float16-key-padding.5.3.0+causal.top-left-dense-"
            "large.x100000.poison-1000-negative-stride-self-repeated-no-bias-bias-kv-no-zero-attention-scale0.5-"
            "well-formed-output+weights-observe"
        )
    ]


MASKS = [
    *("none", "{causal: top-left}", "{causal: bottom-right}", "{window: {before: 1, after: 0}}"),
    *("{window: {before: 0, after: 1}}", "{window: {before: 1, after: 0, align: bottom-right}}"),
    *("{key_padding: {last: 2}}", "{key_padding: {first: 2}}", "{query_padding: {last: 2}}"),
    *("{key_padding: {lengths: [5, 5]}}", "{key_padding: {lengths: [5, 5], side: left}}", "{key_padding: {last: 5}}"),
    *("{query_padding: {lengths: [5, 5]}}", "{key_padding: {last: 2}, causal: top-left}"),
    *("{explicit: {pattern: random}}", "{explicit: {pattern: random, density: 0.5}}"),
    *("{explicit: {pattern: everything}}", "{key_padding: {lengths: [5, 4]}}"),
    *("{explicit: {pattern: random, axes: BTS}}", "{explicit: {pattern: rows, indices: [1]}}"),
    *("{explicit: {pattern: rows, indices: [1, 2]}}", "{explicit: {pattern: keys, indices: [1]}}"),
    *("{explicit: {pattern: block-diagonal, block: 2}}", "{explicit: {pattern: block-diagonal, block: 3}}"),
    *("{explicit: {axes: 1TS, values: [[[0, 1], [1, 0]]]}}", "{explicit: {axes: 1TS, values: [[[1, 0], [0, 1]]]}}"),
    *("{additive: {axes: TS}}", "{additive: {axes: TS, magnitude: 2}}", "{additive: {axes: BHTS}}"),
    *("{additive: {minus_inf: {pattern: everything}}}", "{additive: {values: [[1, 0], [0, 1]]}}"),
]  # fmt: skip


def test_every_mask_has_a_name_of_its_own(tmp_path: Path) -> None:
    text = "include:\n" + "".join(
        f"  - {{target_length: {length}, source_length: {length}, mask: {mask}}}\n"
        for mask in MASKS
        for length in [2 if "values" in mask else 7]
    )
    names = names_of(tmp_path, text)
    assert len(set(names)) == len(MASKS)
    assert all(re.fullmatch(r"[A-Za-z0-9._+-]+", name) for name in names)
    assert names[0] == "T7-S7-unmasked"
    assert names[7] == "T7-S7-first2"


def test_many_lengths_become_a_digest(tmp_path: Path) -> None:
    text = "matrix: {batch: [9], mask: [{key_padding: {lengths: [1, 2, 3, 4, 5, 6, 7, 1, %d]}}]}"
    first, second = names_of(tmp_path, text % 2) + names_of(tmp_path, text % 3)
    assert re.fullmatch(r"B9-key-padding\.[0-9a-f]{8}", first)
    assert first != second


def test_new_values_change_no_name(tmp_path: Path) -> None:
    before = names_of(tmp_path, "matrix: {dtype: [float32], source_length: [3], mask: [none]}")
    after = names_of(
        tmp_path, "matrix: {dtype: [float64, float32], source_length: [1, 3], mask: [none, {causal: top-left}]}"
    )
    assert before == ["float32-S3-unmasked"]
    assert set(before) < set(after)


def test_sizes_that_vary_together_are_one_axis(tmp_path: Path) -> None:
    text = """
        matrix:
          sizes: [{source_length: 5, target_length: 3}, {target_length: 9}]
          num_heads: [1, 2]
        """
    assert names_of(tmp_path, text) == ["T3-S5-H1", "T3-S5-H2", "T9-H1", "T9-H2"]
    assert [case.source_length for case in cases_of(tmp_path, (tmp_path / "cases/file.yaml").read_text())] == [
        5,
        5,
        7,
        7,
    ]


def test_blocks_come_in_order_with_their_names_and_lines(tmp_path: Path) -> None:
    text = """
include: [{name: last}, {dtype: float64, batch: 3}]
matrices:
  - {name: b, matrix: {batch: [1]}, why: reason}
  - matrix: {batch: [1]}
matrix: {dtype: [float16]}
"""
    cases = cases_of(tmp_path, HEAD + text)
    assert [(case.id, case.source.line) for case in cases] == [
        *(("s/float16", 8), ("s/b-B1", 6), ("s/B1", 7), ("s/last", 4), ("s/B3-float64", 4)),
    ]  # fmt: skip
    assert [case.why for case in cases] == ["because", "reason", "because", "because", "because"]


def test_defaults_go_from_the_outside_in(tmp_path: Path) -> None:
    text = """
        defaults: {batch: 3, target_length: 4, source_length: 6}
        matrices: [{defaults: {batch: 5, target_length: 8}, matrix: {batch: [1]}}]
        """
    names_of(tmp_path, text)
    (case,) = cases_of(tmp_path, (tmp_path / "cases/file.yaml").read_text())
    assert (case.batch, case.target_length, case.source_length) == (1, 8, 6)


AXES = "matrix: {source_length: [1, 7], mask: [none, {causal: top-left}, {causal: top-left, key_padding: {last: 1}}]}\n"


@pytest.mark.parametrize(
    ("exclude", "left_out"),
    [
        ("{source_length: 1, mask: {causal: top-left}}", {"S1-causal.top-left", "S1-last1+causal.top-left"}),
        ("{mask: none}", {"S1-unmasked", "S7-unmasked"}),
        ("{mask: {is_causal: true, key_padding: {}}}", {"S1-last1+causal.top-left", "S7-last1+causal.top-left"}),
        ("{source_length: 1, batch: 2}", {"S1-unmasked", "S1-causal.top-left", "S1-last1+causal.top-left"}),
        ("{source_length: 1, kdim: 16, mask: none, data: normal}", {"S1-unmasked"}),
    ],
)  # fmt: skip
def test_an_exclusion_matches_all_that_it_states(tmp_path: Path, exclude: str, left_out: set[str]) -> None:
    everything = names_of(tmp_path, AXES)
    rest = names_of(tmp_path, f"{AXES}exclude: [{exclude}]")
    assert rest == [name for name in everything if name not in left_out]
    assert len(rest) == len(everything) - len(left_out)


def test_what_is_excluded_need_not_be_possible(tmp_path: Path) -> None:
    text = """
        matrix: {embed_dim: [16, 18], num_heads: [4, 6]}
        exclude: [{embed_dim: 16, num_heads: 6}, {head_dim: 4, embed_dim: 18}]
        """
    assert names_of(tmp_path, text) == ["D16-H4", "D18-H6"]


def pairs_of(rows: Sequence[Sequence[object]]) -> set[tuple[int, object, int, object]]:
    return {(a, row[a], b, row[b]) for row in rows for a, b in combinations(range(len(row)), 2)}


@pytest.mark.parametrize(
    ("counts", "enough"), [([3, 3, 3, 3], 12), ([4] * 9, 30), ([2] * 10, 12), ([5, 4, 3, 2, 2, 4], 26), ([1, 7, 1], 7)]
)
def test_pairwise_holds_every_pair_in_few_rows(counts: list[int], enough: int) -> None:
    rows = pairwise(counts, lambda _: True)
    everything = {
        (a, i, b, j) for a, b in combinations(range(len(counts)), 2) for i in range(counts[a]) for j in range(counts[b])
    }
    assert pairs_of(rows) == everything
    assert len(rows) <= enough
    assert rows == sorted(set(rows))


def test_pairwise_loses_no_pair_to_an_exclusion() -> None:
    """Every pair that some allowed row holds is held, though the forbidden triple spoils the obvious rows."""

    def allowed(row: Sequence[int | None]) -> bool:
        return tuple(row[:3]) != (0, 0, 0) and tuple(row[1:3]) != (1, 1) and (row[0], row[3]) != (2, 0)

    possible = [row for row in product(range(3), repeat=4) if allowed(row)]
    rows = pairwise([3] * 4, allowed)
    assert set(rows) <= set(possible)
    assert pairs_of(rows) == pairs_of(possible)
    assert len(rows) < len(possible) / 2


def test_pairwise_gives_up_aloud() -> None:
    with pytest.raises(OutOfPatienceError):
        pairwise([6] * 9, lambda row: None in row)


def test_pairwise_in_a_file_obeys_exclusions_of_derived_sizes(tmp_path: Path) -> None:
    text = """
        matrix: {embed_dim: [8, 16], num_heads: [2, 4], dtype: [float64, float32, float16], bias: [true, false]}
        combine: pairwise
        exclude: [{head_dim: 2}, {dtype: float64, bias: false}]
        """
    names = names_of(tmp_path, text)
    assert all("D8-H4" not in name and "float64-no-bias" not in name for name in names)
    pairs = {pair for name in names for pair in combinations(name.replace("no-bias", "without").split("-"), 2)}
    assert len(pairs) == 3 + 6 + 4 + 6 + 4 + 5
    assert len(names) < 3 * 5


def test_pairwise_of_one_axis_is_that_axis(tmp_path: Path) -> None:
    assert names_of(tmp_path, "matrix: {batch: [1, 2]}\ncombine: pairwise") == ["B1", "B2"]


def test_a_matrix_too_large_is_refused_before_it_is_built(tmp_path: Path) -> None:
    numbers = list(range(1, 60))
    text = f"matrix: {{batch: {numbers}, kdim: {numbers}, vdim: {numbers}, output_dim: {numbers}}}"
    (fault,) = faults_of(tmp_path, HEAD + text)
    assert fault.message == "12,117,361 combinations; at most 100,000 are expanded"
    assert fault.suggestion == "combine: pairwise"
    assert 59 * 59 <= len(names_of(tmp_path, text + "\ncombine: pairwise")) <= 59 * 59 * 1.3


def test_ten_thousand_cases_take_less_than_a_second(tmp_path: Path) -> None:
    lengths = f"source_length: {list(range(1, 51))}, target_length: {list(range(1, 51))}"
    text = f"matrix: {{{lengths}, mask: [none, {{causal: top-left}}], bias: [true, false]}}"
    started = time.process_time()
    cases = cases_of(tmp_path, HEAD + text)
    assert time.process_time() - started < 1
    assert len(cases) == 10_000
    assert len({case.id for case in cases}) == 10_000


SCRIPT = """
import sys, time
from pathlib import Path
from conformance.casefile import read_case_file
print([case.id for case in read_case_file(Path(sys.argv[1]))])
print(sorted({"torch", "jax", "tensorflow", "keras"} & set(sys.modules)), file=sys.stderr)
"""


def test_names_and_order_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """Two processes with different hash seeds agree, and neither imports a framework."""
    names_of(
        tmp_path,
        "matrix: {dtype: [float64, float32], mask: [none, {causal: top-left}], batch: [1, 2, 3]}\ncombine: pairwise",
    )
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "cases/file.yaml")]
    runs = [
        subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].stdout.count("s/float") >= 6
    assert [run.stderr.strip() for run in runs] == ["[]", "[]"]
