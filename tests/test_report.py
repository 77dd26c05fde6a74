"""The report through its front door: a run goes in, HTML or lines of text come out."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.report import pack, render
from conformance.report.elements import fields_of, row_ratio, worst_elements
from conformance.report.model import view_of
from conformance.report.render import write_report
from conformance.report.terminal import explain_lines, summary_lines
from conformance.report.text import number_text, ratio_text
from conformance.store import Row, Run
from conformance.verdict import Worst
from tests.synthetic_runs import (
    HEADER,
    arrays,
    finding,
    measure,
    row,
    run_of,
    with_tensors,
)

HOSTILE = (
    "</script><script>window.harm=1</script><img src=x onerror=window.harm=1> "
    "\u2028\u202egnp.\u05d0 \x1b[2J & \"q\" 'r'"
)


class Page(HTMLParser):
    """The parts of a page that the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._words: list[str] = []
        self._inside: list[str] = []
        self.feed(text)
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = [tag, dict(attrs).get("id") or dict(attrs).get("type") or ""]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = []

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self._words.append(data)
        elif self._inside[0] == "script":
            self.scripts[self._inside[1]] = self.scripts.get(self._inside[1], "") + data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def index(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.scripts["index"])
        return decoded

    def detail(self, number: int) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(self.scripts[f"detail-{number}"])))
        return decoded


def page_of(run: Run, **options: Any) -> Page:
    path = run.folder / "deep" / "report.html"
    write_report(run, path, **options)
    return Page(path.read_text(encoding="utf-8"))


def mixed_run(folder: Path) -> Run:
    ledger = {
        "reason": "softmax over nothing",
        "link": "https://example.org/1",
        "versions": "beta <2",
        "since": "2026-01",
    }
    return run_of(
        folder,
        [
            row("a"),
            with_tensors(folder, row("a", "beta/mha", "new"), arrays()),
            row("b", "beta/mha", "known", ledger=ledger, findings=(finding("nan-blocked-row"),)),
            row("c", "beta/mha", "errored", summary="TypeError: no such argument", traceback="Traceback …"),
            row("d", "beta/mha", "stale", summary="it agrees now", ledger=ledger),
            row("e", "beta/mha", "unsupported", summary="no such mask"),
        ],
    )


def test_the_first_screen_says_what_was_found(tmp_path: Path) -> None:
    page = page_of(mixed_run(tmp_path))
    assert "1 new divergence, 1 error, 1 stale ledger entry." in page.text
    for words in ("1 agree", "1 new", "1 known", "1 stale", "1 unsupported", "1 errored"):
        assert words in page.text
    assert "no such mask" in page.text
    assert "softmax over nothing" in page.text
    assert "TypeError" in page.text
    assert {"href": "https://example.org/1", "rel": "noreferrer"} in page.attributes("a")


def test_the_matrix_shows_the_most_severe_status_and_its_worst_ratio(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        [
            row("a", measures=(measure(ratio=0.9),)),
            row("b", status="known", findings=(finding(),)),
            row("c", status="known", findings=(finding(worst={"index": [0], "error": 2.0, "bound": 0.1}),)),
            row("a", "beta/mha", measures=(measure(ratio=0.25),)),
        ],
    )
    view = view_of(run)
    diverging, agreeing = view.matrix["cases/plain.yaml", "alpha/mha"], view.matrix["cases/plain.yaml", "beta/mha"]
    assert (diverging.status, ratio_text(diverging.ratio), diverging.title) == ("known", "20", "2 known, 1 agrees")
    assert (agreeing.status, agreeing.ratio) == ("agrees", 0.25)
    cells = [attributes for attributes in page_of(run).attributes("a") if "×" in (attributes.get("title") or "")]
    assert cells[0]["title"] == "plain × alpha/mha: 2 known, 1 agrees"
    assert cells[0]["href"] == "#q=file%3A%3Dcases/plain.yaml%20subject%3A%3Dalpha/mha"


def test_divergences_are_grouped_by_what_they_share_with_the_worst_first(tmp_path: Path) -> None:
    far = finding(worst={"index": [0, 0, 0], "expected": 0.0, "actual": 9.0, "error": 9.0, "bound": 0.1})
    rows = [
        row("known", status="known"),
        row("near", status="new", facts={"mask": "causal"}),
        row("far", status="new", facts={"mask": "causal"}, findings=(far,)),
        row("half", status="new", facts={"mask": "causal", "dtype": "float16"}),
        row("other", "beta/mha", status="new", findings=(finding("row-sum"),)),
        row("error", status="errored", summary="ValueError: bad"),
    ]
    families = view_of(run_of(tmp_path, rows)).families
    assert [(family.status, family.subject, family.kind, family.count) for family in families] == [
        ("new", "alpha/mha", "value", 3),
        ("new", "beta/mha", "row-sum", 1),
        ("errored", "alpha/mha", "ValueError", 1),
        ("known", "alpha/mha", "value", 1),
    ]
    first = families[0]
    assert [(group.mask, group.dtype, len(group.entries)) for group in first.groups] == [
        ("causal", "float32", 2),
        ("causal", "float16", 1),
    ]
    assert first.worst.row.case == "far"
    assert first.dtypes == (("float32", 2), ("float16", 1))


def test_text_of_a_run_is_only_ever_text(tmp_path: Path) -> None:
    hostile = row(
        HOSTILE,
        f"beta/{HOSTILE}",
        "new",
        file=f"cases/{HOSTILE}.yaml",
        why=HOSTILE,
        summary=HOSTILE,
        traceback=HOSTILE,
        facts={"mask": HOSTILE, "dtype": HOSTILE, HOSTILE: HOSTILE},
        findings=(finding(HOSTILE, HOSTILE, message=HOSTILE),),
        ledger={"reason": HOSTILE, "link": "javascript:alert(1)", HOSTILE: HOSTILE},
    )
    header = replace(
        HEADER,
        command=HOSTILE,
        versions={HOSTILE: HOSTILE},
        environment={HOSTILE: [HOSTILE]},
        missing=({"framework": HOSTILE, "install": HOSTILE},),
        sampled=({"subject": HOSTILE, "left_out": 1, "reason": HOSTILE},),
    )
    rows = [hostile, row("plain", status="unsupported", summary=HOSTILE), row(HOSTILE + "2", summary=HOSTILE)]
    page = page_of(run_of(tmp_path, rows, header), reproducer=lambda _: HOSTILE)
    assert "img" not in {tag for tag, _ in page.tags}
    assert {attributes.get("type") for attributes in page.attributes("script")} == {
        "application/json",
        "text/plain",
        "module",
    }
    assert len(page.attributes("script")) == 3
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert not [a for a in page.attributes("a") if (a.get("href") or "").startswith("javascript")]
    assert "window.harm=1" in page.text
    raw = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in raw
    assert "\u2028" not in page.scripts["index"]
    assert page.detail(0)["reproducer"] == HOSTILE


def test_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    page = page_of(run_of(tmp_path, [row("odd", why="\udc80", summary="\udc80", status="errored")]))
    assert "\\udc80" in page.text


def test_nothing_is_fetched_and_only_the_page_s_own_script_may_run(tmp_path: Path) -> None:
    page = page_of(mixed_run(tmp_path))
    fetching = [tag for tag, attributes in page.tags if "src" in attributes]
    assert not fetching
    assert [link["href"] for link in page.attributes("link")] == ["data:,"]
    (policy,) = (meta["content"] for meta in page.attributes("meta") if "http-equiv" in meta)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


def test_scripts_join_into_one_module() -> None:
    names = re.findall(r"^(?:async )?(?:function|const|let|class) +(\w+)", render.module(), re.MULTILINE)
    assert len(names) == len(set(names))
    assert not re.search(r"^\s*(?:import|export)\b", render.module(), re.MULTILINE)
    assert "</script" not in render.module().lower()
    assert sorted(path.name for path in (render.HERE / "assets").glob("*.js")) == sorted(render.SCRIPTS)
    assert sorted(path.name for path in (render.HERE / "assets").glob("*.css")) == sorted(render.STYLES)


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
    assert index["values"][last[-1]] == "cases/file-9.yaml::case-999-float16[alpha/s9]"
    case = index["cases"][last[0]]
    assert index["values"][case[5 + index["keys"].index("T")]] == 999


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


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "Nothing was compared."),
        ([row()], "None: 1 row agreed with the reference."),
        ([row(status="errored", summary="boom")], "1 error."),
        ([row(status="unsupported", summary="no")], "No subject answered any case."),
        ([row(status="known")], "Nothing new: every divergence is known."),
    ],
)
def test_every_kind_of_run_has_a_page(tmp_path: Path, rows: list[Row], words: str) -> None:
    run = run_of(tmp_path, rows)
    assert words in page_of(run).text
    assert summary_lines(run, None)


def test_an_interrupted_run_is_called_partial(tmp_path: Path) -> None:
    run = run_of(tmp_path, [row()], replace(HEADER, complete=False))
    assert "Partial. This run was interrupted; the page shows the 1 row" in page_of(run).text
    assert any(line.startswith("PARTIAL") for line in summary_lines(run, None))
    assert "Partial" not in page_of(run_of(tmp_path, [row()])).text


def test_the_terminal_says_the_same_in_few_lines(tmp_path: Path) -> None:
    missing = ({"framework": "gamma", "modules": ["gamma"], "install": "pip install gamma==1.0"},)
    run = replace(mixed_run(tmp_path), header=replace(HEADER, missing=missing))
    lines = summary_lines(run, Path("reports/report.html"))
    assert lines[0] == "attention conformance · numpy 2.4.6 · alpha 1.0.0"
    assert lines[1] == "missing    gamma: pip install gamma==1.0"
    assert lines[2] == "verdict    1 agree, 1 new, 1 errored, 1 stale, 1 known, 1 unsupported"
    assert [line.split()[0] for line in lines[3:]] == ["NEW", "ERRORED", "STALE", "known", "report", "reproduce"]
    assert lines[3].split() == ["NEW", "beta/mha", "value", "1", "case", "worst", "5.00", "none;", "float32"]
    assert lines[-2] == "report     reports/report.html"
    assert lines[-1] == "reproduce  python -m conformance repro 'a[beta/mha]'"


def test_the_terminal_never_takes_more_than_25_lines(tmp_path: Path) -> None:
    rows = [row(f"c{place}", f"alpha/{'x' * place}", "new") for place in range(60)] + [row("k", status="known")]
    missing = tuple({"framework": f"f{place}", "install": "pip install f"} for place in range(9))
    versions = {f"package-{place}": "1.0" for place in range(40)}
    header = replace(HEADER, missing=missing, versions=versions, complete=False)
    lines = summary_lines(run_of(tmp_path, rows, header), Path("r.html"), width=80)
    assert len(lines) == 25
    copied = ("report", "reproduce", "missing")
    assert all(len(line) <= 80 for line in lines if not line.startswith(copied))
    assert re.search(r"and \d+ other groups \(\d+ new\) of \d+ cases", "\n".join(lines))


def test_the_terminal_is_safe_from_control_characters_and_shells(tmp_path: Path) -> None:
    odd = "x'; rm -rf y #\n\x1b[2J\u202e"
    run = run_of(tmp_path, [row(odd, f"beta/{odd}", "errored", summary=odd, traceback=odd, why=odd)])
    lines = summary_lines(run, None) + explain_lines(run, run.rows[0])
    assert not re.search(r"[\x00-\x1f\u202e]", "".join(lines))
    command = next(line for line in lines if line.startswith("reproduce")).removeprefix("reproduce").strip()
    assert len(shlex.split(command)) == 5


def test_a_case_is_explained_in_text(tmp_path: Path) -> None:
    run = mixed_run(tmp_path)
    text = "\n".join(explain_lines(run, run.rows[1]))
    assert "cases/plain.yaml:7" in text
    assert "B 2  T 3  S 5  H 2  D 8" in text
    assert "attn_output: value, 4 of 48, worst ratio 5.00" in text
    assert re.search(r"attn_output\[1, 2, 3\]: expected \S+, actual NaN, error NaN, bound 1e-7, ratio ∞", text)
    assert re.search(r"attn_weights\[0, 1, 2, 4\]: expected .* ratio 50\n", text)
    assert text.endswith("reproduce  python -m conformance repro 'a[beta/mha]'")
    assert "reason: softmax over nothing" in "\n".join(explain_lines(run, run.rows[2]))


@pytest.mark.parametrize(
    ("expected", "actual", "bound"),
    [
        (1.0, 1.0, 0.0),
        (1.0, 1.5, 0.25),
        (1.0, 1.1, 0.0),
        (1.0, math.nan, 1.0),
        (1.0, math.inf, math.inf),
        (2.0, 1.0, math.inf),
    ],
)
def test_ratios_follow_the_rule_of_the_verdict(expected: float, actual: float, bound: float) -> None:
    tensors = {f"o/{name}": np.array([value]) for name, value in
               (("expected", expected), ("actual", actual), ("bound", bound))}  # fmt: skip
    (field,) = fields_of(tensors)
    assert field.ratio[0] == Worst((0,), expected, actual, abs(actual - expected), bound).ratio


def test_worst_elements_without_tensors_come_from_the_findings() -> None:
    made = row(
        status="new", findings=(finding(), finding("nonfinite", worst={"index": [0], "error": "nan", "bound": 1}))
    )
    elements = worst_elements(made, {})
    assert [(element.ratio, element.index) for element in elements] == [(math.inf, (0,)), (5.0, (1, 2, 3))]
    assert row_ratio(made) == math.inf


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "—"), (0.0, "0"), (0.4142, "0.41"), (1.0, "1.00"), (1.0001, ">1.00"), (0.9999, "<1.00"), (9.996, "10"),
     (123.4, "123"), (9999.7, "1e4"), (2.5e6, "2.5e6"), (3e-5, "3e-5"), (math.inf, "∞"), (math.nan, "∞")],
)  # fmt: skip
def test_ratios_are_short(ratio: float | None, text: str) -> None:
    assert ratio_text(ratio) == text
