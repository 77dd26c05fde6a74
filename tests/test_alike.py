"""Who agrees with whom: on one case, and over a whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.report.alike import clusters
from conformance.report.model import View, view_of
from conformance.store import Row
from tests.report_pages import page_of
from tests.synthetic_runs import finding, row, run_of


def of(ratio: float, kind: str = "value", output: str = "attn_output") -> dict[str, Any]:
    return finding(kind, output, worst={"index": [0], "error": ratio, "bound": 1.0})


def diverging(subject: str, *findings: dict[str, Any], case: str = "one", status: Any = "known", **more: Any) -> Row:
    return row(case, subject, status, findings=findings, **more)


def parted(folder: Path, rows: list[Row]) -> list[list[str]]:
    view = view_of(run_of(folder, rows))
    return [[entry.row.subject for entry in cluster] for cluster in clusters(view.entries)]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([of(4.0)], [of(8.0)], True),
        ([of(4.0)], [of(8.1)], False),
        ([of(float("inf"))], [of(float("inf"))], True),
        ([of(float("inf"))], [of(1e300)], False),
        ([of(4.0)], [of(4.0, "nonfinite")], False),
        ([of(4.0)], [of(4.0, output="attn_weights")], False),
        ([of(4.0), of(2.0, "nonfinite")], [of(2.0, "nonfinite"), of(4.0)], True),
        ([of(4.0)], [of(4.0), of(4.0)], True),
        ([finding(worst=None)], [finding(worst=None)], True),
        ([finding(worst=None)], [of(4.0)], False),
    ],
)
def test_findings_and_ratios_tell_who_diverges_alike(tmp_path: Path, one: Any, other: Any, alike: bool) -> None:
    found = parted(tmp_path, [diverging("a/x", *one), diverging("b/x", *other)])
    assert len(found) == (1 if alike else 2)


def test_clusters_come_in_order_of_severity(tmp_path: Path) -> None:
    rows = [
        row("one", "a/agrees"),
        row("one", "a/refuses", summary="raised ValueError"),
        row("one", "a/too"),
        row("one", "a/unsupported", "unsupported", summary="one reason"),
        row("one", "a/unable", "unsupported", summary="another"),
        diverging("a/known", of(4.0)),
        diverging("a/new", of(4.0), status="new"),
        diverging("a/newer", of(5.0), status="new"),
    ]
    assert parted(tmp_path, rows) == [
        ["a/new", "a/newer"],
        ["a/known"],
        ["a/agrees", "a/too"],
        ["a/refuses"],
        ["a/unsupported", "a/unable"],
    ]


def mixed(folder: Path) -> View:
    """Two cases of one pattern, the second without one of its subjects; one of another; one that fails."""
    rows = [
        *(row(case, "a/right") for case in ("one", "two", "three", "four")),
        *(diverging("b/x", of(4.0), case=case) for case in ("one", "two", "three")),
        *(diverging("b/y", of(4.0), case=case) for case in ("one", "two")),
        row("three", "b/y"),
        diverging("c/z", of(9.0, "nonfinite"), case="one"),
        row("three", "c/z"),
        diverging("c/z", of(9.0), case="four", status="new"),
    ]
    return view_of(run_of(folder, rows))


def test_patterns_gather_cases_and_put_what_fails_first(tmp_path: Path) -> None:
    found = [
        (len(pattern.cases), [part.subjects for part in pattern.parts], pattern.agreeing)
        for pattern in mixed(tmp_path).patterns
    ]
    assert found == [
        (1, [("c/z",)], ("a/right",)),
        (2, [("b/x", "b/y"), ("c/z",)], ("a/right",)),
        (1, [("b/x",)], ("a/right", "b/y", "c/z")),
    ]


def test_the_page_writes_patterns_as_text(tmp_path: Path) -> None:
    page = page_of(mixed(tmp_path).run)
    for words in (
        "2 cases ≠ unlike them b/x = b/y value",
        "nonfinite",
        "1 other agrees a/right",
        "a/right = b/y = c/z",
    ):
        assert words in page.text
    assert {"class": "count", "href": "#q=pattern:2"} in page.attributes("a")
    assert [case[5] for case in page.index["cases"]] == [2, 2, 3, 1]
    alone = page_of(run_of(tmp_path, [diverging("b/x", of(4.0))]))
    assert "agreement" not in [section.get("id") for section in alone.attributes("section")]
