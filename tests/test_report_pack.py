"""What a page carries: tensors, details and reproducers, within the room it has."""

from __future__ import annotations

import base64
import math
import zlib
from pathlib import Path

import numpy as np
import pytest

from conformance.report import pack, render
from conformance.report.text import number_text
from conformance.store import Row
from tests.report_pages import mixed_run, page_of
from tests.synthetic_runs import arrays, finding, large_run, row, run_of, with_tensors


def test_tensors_of_a_divergence_survive_the_way_into_the_page(tmp_path: Path) -> None:
    page = page_of(mixed_run(tmp_path))
    detail = page.detail(1)
    data = zlib.decompress(base64.b64decode(page.scripts["tensors-1"]))
    assert [output["name"] for output in detail["outputs"]] == ["attn_output", "attn_weights"]
    given = arrays()
    for output in detail["outputs"]:
        size = math.prod(output["shape"])
        planes = np.frombuffer(data, output["kind"], 4 * size, output["at"]).reshape(4, *output["shape"])
        expected, actual = given[f"{output['name']}/expected"], given[f"{output['name']}/actual"]
        np.testing.assert_array_equal(planes[0], expected.astype(np.float32))
        np.testing.assert_array_equal(planes[1], actual.astype(np.float32))
        np.testing.assert_array_equal(planes[2], (actual - expected).astype(np.float32))
        np.testing.assert_array_equal(planes[3], given[f"{output['name']}/bound"].astype(np.float32))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(detail["blocked"]["bits"]), np.uint8))
    shape = detail["blocked"]["shape"]
    np.testing.assert_array_equal(bits[: math.prod(shape)].reshape(shape), given["blocked"])
    assert detail["worst"][0] == ["attn_output", [1, 2, 3], number_text(given["attn_output/expected"][1, 2, 3]),
                                  "NaN", "NaN", "1e-7", "∞"]  # fmt: skip
    assert detail["worst"][1][:2] == ["attn_weights", [0, 1, 2, 4]]
    assert len(detail["worst"]) == 2


def test_magnitudes_below_float32_keep_their_value(tmp_path: Path) -> None:
    tiny = {"attn_output/expected": np.array([[[1e-310]]]), "attn_output/actual": np.array([[[3e-310]]])}
    made = with_tensors(tmp_path, row("tiny", status="new"), {**tiny, "attn_output/bound": np.array([[[5e-311]]])})
    page = page_of(run_of(tmp_path, [made]))
    (output,) = page.detail(0)["outputs"]
    assert output["kind"] == "<f8"
    data = np.frombuffer(zlib.decompress(base64.b64decode(page.scripts["tensors-0"])), "<f8")
    np.testing.assert_array_equal(data, [1e-310, 3e-310, 3e-310 - 1e-310, 5e-311])


def test_tensors_are_kept_for_new_rows_and_the_worst_of_each_group(tmp_path: Path) -> None:
    worse = finding(worst={"index": [0, 0, 0], "expected": 0.0, "actual": 9.0, "error": 9.0, "bound": 0.1})
    rows = [
        with_tensors(tmp_path, row("known-near", status="known"), arrays()),
        with_tensors(tmp_path, row("known-far", status="known", findings=(worse,)), arrays()),
        with_tensors(tmp_path, row("new-near", status="new"), arrays()),
        with_tensors(tmp_path, row("new-far", status="new", findings=(worse,)), arrays()),
    ]
    page = page_of(run_of(tmp_path, rows))
    assert sorted(name for name in page.scripts if name.startswith("tensors")) == [
        "tensors-1",
        "tensors-2",
        "tensors-3",
    ]
    assert page.detail(0)["note"] == "group"
    assert page.detail(0)["blocked"] is not None


def test_every_family_has_one_heat_map_before_any_has_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def known(case: str, kind: str, mask: str) -> Row:
        made = row(case, status="known", findings=(finding(kind),), facts={"mask": mask})
        return with_tensors(tmp_path, made, arrays())

    rows = [known("a", "nonfinite", "none"), known("b", "nonfinite", "causal"), known("c", "value", "none")]
    rows.append(with_tensors(tmp_path, row("d", status="new", facts={"mask": "window"}), arrays()))
    size = len(page_of(run_of(tmp_path, rows[:1])).scripts["tensors-0"])
    monkeypatch.setattr(pack, "TENSOR_BUDGET", 3 * size + 50)
    assert {name for name in page_of(run_of(tmp_path, rows)).scripts if name.startswith("tensors")} == {
        "tensors-0",
        "tensors-2",
        "tensors-3",
    }


def test_tensors_that_do_not_fit_are_left_out_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "TENSOR_BUDGET", 1_000)
    made = with_tensors(tmp_path, row("large", status="new"), arrays(target=40, source=40))
    page = page_of(run_of(tmp_path, [made]))
    assert "tensors-0" not in page.scripts
    assert page.detail(0)["note"] == "size"
    assert page.detail(0)["worst"]
    assert "Heat maps of 1 row were left out" in page.text


def test_a_large_output_is_cut_to_the_face_of_its_worst_element(tmp_path: Path) -> None:
    given = arrays(batch=3, heads=4, target=70, source=70)
    made = with_tensors(tmp_path, row("large", status="new", findings=(finding(output="attn_weights"),)), given)
    page = page_of(run_of(tmp_path, [made]))
    output = page.detail(0)["outputs"][0]
    assert (output["name"], output["full"]) == ("attn_weights", [3, 4, 70, 70])
    assert (output["shape"], output["origin"]) == ([1, 1, 70, 70], [0, 1, 0, 0])
    data = zlib.decompress(base64.b64decode(page.scripts["tensors-0"]))
    planes = np.frombuffer(data, output["kind"], 4 * 4900, output["at"]).reshape(4, 70, 70)
    np.testing.assert_array_equal(planes[1], given["attn_weights/actual"][0, 1].astype(np.float32))


def test_outputs_of_different_shapes_are_not_drawn(tmp_path: Path) -> None:
    given = {"attn_output/expected": np.zeros((2, 3)), "attn_output/actual": np.zeros((3, 2))}
    given["attn_output/bound"] = np.zeros((2, 3))
    shape = finding("shape", worst=None)
    page = page_of(run_of(tmp_path, [with_tensors(tmp_path, row("s", status="new", findings=(shape,)), given)]))
    assert page.detail(0)["outputs"] == []
    assert "—" in page.text


def test_the_reproducer_is_asked_for_diverging_rows_only(tmp_path: Path) -> None:
    asked: list[str] = []

    def reproducer(given: Row) -> str | None:
        asked.append(given.status)
        return "import numpy" if given.status == "new" else None

    page = page_of(mixed_run(tmp_path), reproducer=reproducer)
    assert sorted(asked) == ["errored", "known", "new", "stale"]
    assert page.detail(1)["reproducer"] == "import numpy"
    assert page.detail(2)["reproducer"] is None
    assert page_of(mixed_run(tmp_path)).detail(1)["reproducer"] is None


def test_ten_thousand_rows_fit_into_six_megabytes(tmp_path: Path) -> None:
    page = page_of(large_run(tmp_path))
    assert (tmp_path / "deep" / "report.html").stat().st_size < 6_000_000
    index = page.index
    assert len(index["rows"]) == 10_000
    assert len(index["listed"]) == render.ROWS_IN_HTML
    assert "more cases of this kind" in page.text
    last = index["rows"][-1]
    assert index["values"][last[6]] == "cases/file-9.yaml::case-999-float16[alpha/s9]"
    case = index["cases"][last[0]]
    assert index["values"][case[6 + index["keys"].index("T")]] == 999
