"""What is wrong with a case file is said all at once, where it stands, with what was probably meant."""

from __future__ import annotations

import pickle
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic import BaseModel

from conformance.casefile import read_case_file
from conformance.casefile.located import load_located
from conformance.errors import CaseFileError, ConformanceError, Fault, LedgerError
from tests.casefiles import HEAD, faults_of, places

FIVE = """\
suite: five
why: Five faults, of five kinds.
defaults: {batch: 2, num_haeds: 4}
matrix:
  dtype: [float32, flaot16]
  source_length: [3, 7]
  mask:
    - {is_casual: top-left}
    - {key_padding: {lengths: [5, 3]}}
  dtype: [float64]
"""


def test_five_faults_of_five_kinds_are_all_found(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, FIVE)
    assert [(fault.line, fault.column, fault.message, fault.suggestion) for fault in faults] == [
        (3, 22, "unknown key 'num_haeds'", "num_heads"),
        (
            *(5, 20, "'flaot16' is not one of: float64, float32, float16, bfloat16, mixed_float16, mixed_bfloat16"),
            "float16",
        ),
        (8, 8, "unknown key 'is_casual'", "is_causal"),
        (
            *(9, 32, "key_padding: length 5 is more than source_length 3 (case float32-S3-key-padding.5.3)"),
            None,
        ),
        (10, 3, "duplicate key 'dtype', first given in line 5", None),
    ]
    assert {fault.file for fault in faults} == {"cases/file.yaml"}


def test_a_fault_reads_like_a_compilers_message(tmp_path: Path) -> None:
    assert str(faults_of(tmp_path, FIVE)[2]) == (
        "cases/file.yaml:8:8: unknown key 'is_casual'\n"
        "        - {is_casual: top-left}\n"
        "           ^\n"
        "    did you mean is_causal?"
    )


def test_the_caret_of_a_long_line_stays_in_sight() -> None:
    fault = Fault("f", 1, 301, "m", "x" * 300 + "y" + "z" * 300)
    _, shown, caret = str(fault).split("\n")
    assert len(shown) <= 130
    assert shown[caret.index("^")] == "y"


def test_a_tab_before_the_fault_keeps_the_caret_in_place() -> None:
    assert str(Fault("f", 1, 3, "m", "\ta b")).split("\n")[2] == "    \t ^"


def test_the_error_survives_pickling(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, FIVE)
    for kind in (CaseFileError, LedgerError):
        copy = pickle.loads(pickle.dumps(kind(faults)))
        assert isinstance(copy, kind)
        assert isinstance(copy, ConformanceError)
        assert copy.faults == faults
        assert str(copy).count("did you mean") == 3


# The text after the two lines of HEAD, the faults' places (line, column), and a part of the first message.
YAML_FAULTS = {
    "bad syntax": ("matrix: {batch: [1}\n", [(3, 19)], "expected ',' or ']'"),
    "tag": ("include: [{name: !!python/name:os.system a}]\n", [(3, 18)], "tags such as !!python/name:os.system"),
    "merge key": ("x: &x {a: 1}\n", [(3, 1)], "unknown key 'x'"),
    "alias of itself": ("include: &a [*a]\n", [(3, 14)], "*a stands inside the value that it names"),
    "alias of nothing": ("include: [*a]\n", [(3, 11)], "*a names nothing"),
    "second document": ("---\nsuite: t\n", [(3, 1)], "a second document"),
    "key that is a list": ("[a, b]: 1\ninclude: [{name: a}]\n", [(3, 1)], "a key must be a word"),
    "control character": ("include: \x01\n", [(3, 10)], "U+0001"),
    "too deep": (f"include: {'[' * 60}{']' * 60}\n", [(3, 59)], "nested deeper than 50"),
}


@pytest.mark.parametrize("name", YAML_FAULTS)
def test_yaml_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    text, where, message = YAML_FAULTS[name]
    faults = faults_of(tmp_path, HEAD + text)
    assert places(faults) == where
    assert message in faults[0].message


def test_a_merge_key_is_refused(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, HEAD + "include:\n  - &a {name: a}\n  - {name: b, <<: *a}\n")
    assert places(faults) == [(5, 15)]
    assert "merge keys are not supported" in faults[0].message


def test_aliases_that_multiply_are_stopped_early(tmp_path: Path) -> None:
    lines = ["a0: &a0 [0, 0]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    faults = faults_of(tmp_path, "\n".join(lines))
    assert [fault.line for fault in faults] == [6]
    assert faults[0].message == "expanding *a4 makes more than 200,000 values"


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", (1, 1), "the file is empty"),
        (b"# nothing\n", (1, 1), "the file is empty"),
        (b"- a\n- b\n", (1, 1), "expected keys with values, got a list"),
        (b"suite: s\nwhy: caf\xe9\n", (2, 9), "the file is not UTF-8: byte 0xE9"),
        (b"\xff\xfes\x00", (1, 1), "the file is not UTF-8"),
        (b"#" * (5 * 2**20), (1, 1), "at most 4,194,304 are read"),
    ],
)
def test_files_that_hold_no_cases(tmp_path: Path, content: bytes, place: tuple[int, int], message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(content)
    with pytest.raises(CaseFileError) as caught:
        read_case_file(path, tmp_path)
    (fault,) = caught.value.faults
    assert ((fault.line, fault.column), fault.file) == (place, "a.yaml")
    assert message in fault.message


# One entry of ``include`` with a name, the column of the fault in `  - {name: a, …}`, and the message.
CASE_FAULTS = [
    ("batch: -1", 22, "must be at least 0, got -1"),
    ("batch: 99999999", 22, "must be at most 16777216, got 99999999"),
    ("batch: 2.0", 22, "expected a whole number, got 2.0"),
    ("batch: '2'", 22, "expected a whole number, got '2'"),
    ("bias: 1", 21, "expected true or false, got 1"),
    ("scale: .inf", 22, "must be finite, got inf"),
    ("batch: null", 22, "expected a whole number, got an empty value"),
    ("dtype: float8", 22, "'float8' is not one of: float64"),
    ("mask: causal", 21, "'causal' is not one of: none, or keys with values"),
    ("mask: {}", 21, "must not be empty"),
    ("num_heads: 0", 26, "num_heads 0 makes a call ill-formed"),
    ("num_heads: 5", 26, "embed_dim 16 is not divisible by num_heads 5"),
    ("num_kv_heads: 3", 29, "num_heads 4 is not divisible by num_kv_heads 3"),
    ("ill_formed: zero-heads, num_heads: 2", 50, "ill_formed zero-heads needs num_heads 0"),
    ("ill_formed: integer-mask", 27, "needs a mask with explicit"),
    ("ill_formed: mask-heads, mask: {explicit: {pattern: random}}", 27, "needs an explicit mask with an axis H"),
    ("ill_formed: key-rank, sharing: key-value", 27, "needs inputs of their own, not sharing key-value"),
    (
        "ill_formed: padding-mask-as-attention-mask, batch: 5, mask: {key_padding: {last: 2}}",
        27,
        "with batch = target_length a [B, S] mask is a well-formed [T, S] mask",
    ),
    ("ill_formed: heads-not-divisible-by-kv-heads, num_kv_heads: 2", 74, "num_kv_heads that do not divide num_heads 4"),
    ("ill_formed: embed-dim-not-divisible, embed_dim: 8", 63, "embed_dim 8 is divisible by num_heads 4"),
    ("ill_formed: query-width, expect: agree", 48, "an ill-formed call has no answer to agree with"),
    ("expect: {raises: true}", 23, "only an ill-formed call raises"),
    ("expect: {raises: false}", 32, "false is not one of: True"),
    ("target_length: 20000, source_length: 20000", 30, "too large: scores would have 3,200,000,000 elements"),
    ("sharing: self", 24, "sharing self needs equal lengths, not target_length 5 and source_length 7"),
    ("sharing: key-value, vdim: 8", 24, "sharing key-value needs kdim = vdim, not 16 and 8"),
    ("data: literal", 21, "data literal needs given numbers"),
    ("data: {poison: 1e3}", 21, "poison needs a mask"),
    ("data: one-hot, head_dim: 1", 21, "data one-hot needs"),
    ("mask: {key_padding: {lengths: [7]}}", 45, "1 lengths for a batch of 2"),
    ("mask: {key_padding: {lengths: [7, 8]}}", 49, "length 8 is more than source_length 7"),
    ("mask: {key_padding: {last: 8}}", 42, "last 8 is more than source_length 7"),
    ("mask: {query_padding: {first: 6}}", 45, "first 6 is more than target_length 5"),
    ("mask: {key_padding: {last: 1, first: 1}}", 35, "give exactly one of: lengths, last, first"),
    ("mask: {key_padding: {last: 1, side: left}}", 51, "side goes with lengths"),
    ("mask: {causal: top-left, is_causal: true}", 51, "give causal or is_causal, not both"),
    ("mask: {window: {before: 1}}", 30, "the key 'after' is missing"),
    ("mask: {explicit: {pattern: rows, indices: [0, 5]}}", 61, "index 5 is not below target_length 5"),
    ("mask: {explicit: {pattern: rows, axes: B1S, indices: [0]}}", 54, "needs T (target_length) among the axes"),
    ("mask: {explicit: {pattern: heads, axes: 1HTS}}", 32, "the pattern heads needs indices"),
    ("mask: {explicit: {pattern: random, block: 2}}", 57, "block means nothing for the pattern random"),
    ("mask: {explicit: {axes: TS}}", 32, "the key 'pattern' is missing"),
    ("mask: {explicit: {values: [[0, 1], [1, 0]]}}", 41, "values have shape [2, 2], the axes TS mean [5, 7]"),
    ("mask: {explicit: {values: [[0, 1], [1]]}}", 50, "ragged: this has shape [1], the first of its list has [2]"),
    ("mask: {explicit: {values: [[0, 2]]}}", 46, "a Boolean mask holds 0 or 1, not 2"),
    ("mask: {additive: {values: [[0, x]]}}", 46, "expected numbers or lists of numbers"),
    ("mask: {additive: {values: [[.inf]]}}", 43, "a bias may be finite or −.inf, not inf"),
    ("mask: {additive: {minus_inf: {pattern: rows, axes: BTS, indices: [0]}}}", 66, "minus_inf has the axes of"),
    ("given: {query: [[1, 2]]}", 30, "query has shape [1, 2], the case needs [2, 5, 16] = [batch, target_length"),
    ("bias: false, given: {key_bias: [1]}", 46, "key_bias is given, but bias is false"),
    ("given: {bias_k: [1]}", 31, "bias_k is given, but bias_kv is false"),
    ("sharing: self, source_length: 5, embed_dim: 1, num_heads: 1, given: {value: [[[1]]]}", 91, "value is shared"),
    ("data: tiny, num_heads: 1, given: {query: [[[1]]]}", 21, "numbers are given, so data is literal, not tiny"),
    ("expected: {attn_output: [[[1]]]}, batch: 3", 39, "attn_output has shape [1, 1, 1], the case needs [3, 1, 1]"),
    ("check: [output], source_length: 1, expected: {attn_weights: [[[[1]]]]}", 75, "attn_weights is expected, but"),
    ("subjects: [torch/mha]", 25, "subjects needs a reason: give subjects_why"),
    ("subjects: [torch], subjects_why: x", 26, "'torch' does not have the form"),
    ("why: ' '", 20, "must not be empty"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "column", "message"), CASE_FAULTS, ids=[keys for keys, _, _ in CASE_FAULTS])
def test_faults_of_a_case(tmp_path: Path, keys: str, column: int, message: str) -> None:
    faults = faults_of(tmp_path, f"{HEAD}include:\n  - {{name: a, {keys}}}\n")
    assert message in faults[0].message
    assert places(faults)[0] == (4, column)
    assert len(faults) == 1, [str(fault) for fault in faults]


MATRIX_FAULTS = [
    ("matrix: {dtype: []}", [(3, 17)], "must not be empty"),
    ("matrix: {}", [(3, 9)], "must not be empty"),
    ("matrix: {dtype: float32}", [(3, 17)], "expected a list, got 'float32'"),
    ("matrix: {name: [a]}", [(3, 10)], "unknown key 'name'"),
    ("matrix: {sizes: [{}]}", [(3, 18)], "must not be empty"),
    ("matrix: {batch: [1, 2, 1]}", [(3, 24)], "the same value as in line 3"),
    ("matrix: {mask: [{is_causal: true}, {causal: top-left}]}", [(3, 36)], "the same value as in line 3"),
    ("matrix: {batch: [1], sizes: [{batch: 2}]}", [(3, 22)], "batch is given by another axis too"),
    ("exclude: [{batch: 1}]\ninclude: [{name: a}]", [(3, 1)], "exclude without a matrix"),
    ("matrix: {batch: [1, 2]}\nexclude: [{batch: 1}, {batch: 3}]", [(4, 23)], "this excludes nothing"),
    ("matrix: {batch: [1, 2], vdim: [3, 4]}\ncombine: pairwise\nexclude: [{embed_dim: 3}]", [(5, 11)], "excludes"),
    ("matrix: {batch: [1]}\nexclude: [{batch: 1}]", [(4, 1)], "everything is excluded"),
    ("matrix: {batch: [1]}\nexclude: [{}]", [(4, 11)], "must not be empty"),
    ("include: [{name: a}, {name: a}]", [(3, 22)], "the name is already taken in line 3"),
    ("include: [{why: b}]", [(3, 11)], "this case needs a name"),
    ("matrices: [{name: a}]", [(3, 12)], "the key 'matrix' is missing"),
    ("tags: []\nmatrix: {batch: [1]}", [(3, 7)], "must not be empty"),
    ("", [(1, 1)], "the file has no cases"),
    ("matrix: {is_casual: [true]}", [(3, 10)], "unknown key 'is_casual'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "message"), MATRIX_FAULTS, ids=[text for text, _, _ in MATRIX_FAULTS])
def test_faults_of_a_file(tmp_path: Path, text: str, where: list[tuple[int, int]], message: str) -> None:
    faults = faults_of(tmp_path, HEAD + text)
    assert places(faults) == where, [str(fault) for fault in faults]
    assert message in faults[0].message


def test_a_key_of_another_place_is_suggested_with_its_place(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, HEAD + "include: [{name: a, is_casual: true}]")
    assert fault.suggestion == "is_causal (a key of mask)"


def test_required_keys_that_are_missing_do_not_hide_the_rest(tmp_path: Path) -> None:
    faults = faults_of(tmp_path, "why:\nmatrix: {num_heads: [3]}\n")
    assert [fault.message.split(" (")[0] for fault in faults] == [
        "the key 'suite' is missing",
        "expected text, got an empty value",
        "embed_dim 16 is not divisible by num_heads 3: state head_dim, or that it is ill_formed",
    ]
    assert places(faults) == [(1, 1), (1, 1), (2, 22)]


def test_what_follows_from_a_fault_is_not_a_fault(tmp_path: Path) -> None:
    """The misspelt default would have made 18 divisible; the refused values are all that the exclusion matched."""
    text = """
        defaults: {num_haeds: 3}
        matrices:
          - matrix: {embed_dim: [18], dtype: [flaot16, float32]}
            exclude: [{dtype: float16}]
          - matrix: {source_length: [1, 7], mask: [{key_padding: {last: 2}}]}
            exclude: [{source_length: one}]
        """
    faults = faults_of(tmp_path, HEAD + dedent(text).lstrip())
    assert places(faults) == [(3, 12), (5, 39), (8, 31)]


def test_one_fault_in_many_cases_is_said_once_at_the_value_that_causes_it(tmp_path: Path) -> None:
    text = """
        defaults: {mask: {key_padding: {lengths: [7, 3]}}}
        matrix:
          dtype: [float64, float32, float16]
          source_length: [7, 5]
        """
    (fault,) = faults_of(tmp_path, HEAD + dedent(text).lstrip())
    assert (fault.line, fault.column) == (6, 22)
    assert fault.message == "key_padding: length 7 is more than source_length 5 (case float64-S5, and 2 more)"


class Shelf(BaseModel):
    books: list[int]


def test_other_files_are_loaded_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "shelf.yaml"
    path.write_text("# shelf\nbooks:\n  - 1\n  - 2\n")
    shelf, document = load_located(path, Shelf, root=tmp_path)
    assert shelf.books == [1, 2]
    assert [document.line(loc) for loc in ((), ("books",), ("books", 1), ("books", 7))] == [2, 2, 4, 2]
    assert str(document.fault(("books", 1), "torn")) == "shelf.yaml:4:5: torn\n      - 2\n        ^"
    path.write_text("books: [1, x]\n")
    with pytest.raises(LedgerError, match=r"shelf\.yaml:1:12: "):
        load_located(path, Shelf, root=tmp_path, error=LedgerError)


@pytest.mark.parametrize("poison", [".nan", ".inf", "-.inf"])
def test_poison_that_is_not_finite_is_observed(tmp_path: Path, poison: str) -> None:
    case = "mask: {key_padding: {last: 2}}, data: {poison: " + poison + "}"
    (fault,) = faults_of(tmp_path, f"suite: s\nwhy: because\ninclude:\n  - {{name: one, {case}}}\n")
    assert "expect observe" in fault.message
    assert fault.line == 4
