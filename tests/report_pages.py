"""Pages of the report as the tests read them."""

from __future__ import annotations

import base64
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from conformance.expectation import expected
from conformance.formula import formula_of
from conformance.policy import ENVELOPE
from conformance.report.render import write_report
from conformance.store import Run
from conformance.verdict import Finding, Worst
from tests.drawn_problems import case_like
from tests.synthetic_runs import arrays, finding, row, run_of, with_tensors


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
        return self._decoded("index")

    def detail(self, number: int) -> dict[str, Any]:
        return self._decoded(f"detail-{number}")

    def _decoded(self, name: str) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(self.scripts[name])))
        return decoded


def page_of(run: Run, **options: Any) -> Page:
    path = run.folder / "deep" / "report.html"
    write_report(run, path, **options)
    return Page(path.read_text(encoding="utf-8"))


def taken_apart() -> dict[str, Any]:
    """A recorded bound of attn_output[1, 2, 3], with the numbers of a small case."""
    case = case_like("parts", dtype="float32")
    bound = float(expected(case, ENVELOPE)[1].bounds["attn_output"][1, 2, 3])
    worst = Finding("attn_output", "value", "", worst=Worst((1, 2, 3), 0.0, 1.0, 1.0, bound))
    found = formula_of(case, ENVELOPE, [worst])
    assert found is not None
    return found


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
