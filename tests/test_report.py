"""The report through its front door: a run goes in, HTML comes out."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.report import render
from conformance.report.model import view_of
from conformance.report.terminal import summary_lines
from conformance.report.text import ratio_text
from conformance.store import Row
from tests.report_pages import mixed_run, page_of
from tests.synthetic_runs import HEADER, HOSTILE, finding, measure, row, run_of


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
        row("error", "beta/mha", status="errored", summary="Crash: worker 'gw0' crashed"),
    ]
    families = view_of(run_of(tmp_path, rows)).families
    assert [(family.status, family.subject, family.kind, family.count) for family in families] == [
        ("new", "alpha/mha", "value", 3),
        ("new", "beta/mha", "row-sum", 1),
        ("errored", "alpha/mha", "ValueError", 1),
        ("errored", "beta/mha", "Crash", 1),
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
    assert {attributes.get("type") for attributes in page.attributes("script")} == {"text/plain", "module"}
    assert len(page.attributes("script")) == 3
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on") or name == "style"]
    assert not [a for a in page.attributes("a") if (a.get("href") or "").startswith("javascript")]
    assert "window.harm=1" in page.text
    raw = (tmp_path / "deep" / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in raw
    assert "<" not in page.scripts["index"]
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


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "Nothing was compared."),
        ([row()], "Every answer agrees with the reference."),
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
