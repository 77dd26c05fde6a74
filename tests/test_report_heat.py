"""Heat maps and masks in the terminal, and which terminals get colours."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.cli import main
from conformance.report.canvas import CUBE, PLAIN, Canvas, canvas_of, contrast
from conformance.report.elements import Field
from conformance.report.explain import explain_lines
from conformance.report.heattext import LEVELS, heat_lines, mask_lines
from conformance.spec import Array
from conformance.store import write_results
from tests.synthetic_runs import arrays, row, run_of, with_tensors

STYLE = re.compile(r"\x1b\[([\d;]*)m")
COLOURED = re.compile(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m([^\x1b]+)\x1b\[0m")


def drawn(ratio: Array, index: tuple[int, ...], blocked: Array | None = None, **options: Any) -> list[str]:
    """The map of an output whose error/bound is given."""
    canvas, output = options.pop("canvas", PLAIN), options.pop("output", "attn_output")
    field = Field(output, np.zeros(ratio.shape), ratio, np.ones(ratio.shape))
    return heat_lines(field, field.element(int(np.ravel_multi_index(index, ratio.shape)), ratio), blocked, canvas)


def cells(lines: list[str], wide: int = 2) -> list[list[str]]:
    """The cells between the indices of columns and the legend."""
    rows = [STYLE.sub("", line)[6:] for line in lines[2:-1]]
    return [[row[place : place + wide] for place in range(0, len(row), wide)] for row in rows]


def test_a_cell_tells_error_over_bound_from_a_tenth_to_infinity() -> None:
    ratio = np.zeros((2, 2, 7))
    ratio[1, 1] = [0, 0.1, 1, 1.0001, 10.5, 1001, math.inf]
    lines = drawn(ratio, (1, 1, 6))
    assert lines[0] == "  attn_output, sample 1  T ↓ D →  worst ∞"
    assert lines[1] == "      0         5"
    assert lines[2:4] == ["    0 " + "·" * 14, "    1 ····░░▒▒▓▓██∞∞"]
    assert lines[4].endswith("· ≤ 0.1  ░ ≤ 1  ▒ ≤ 10  ▓ ≤ 1000  █ > 1000  ∞ not finite or no error allowed")
    assert len(lines) == 5


def test_blocked_cells_are_marked_but_hide_no_error() -> None:
    ratio, blocked = np.zeros((1, 2, 2, 3)), np.zeros((1, 2, 2, 3), bool)
    blocked[0, 1] = [[False, True, True], [True, True, True]]
    ratio[0, 1, 0, 2] = 5
    lines = drawn(ratio, (0, 1, 0, 2), blocked, output="attn_weights")
    assert lines[0] == "  attn_weights, sample 0, head 1  T ↓ S →  worst 5.00"
    assert cells(lines) == [["··", "//", "▒/"], ["//", "//", "//"]] and lines[-1].endswith("  / blocked")
    blocked[0, 0, 1] = True
    lines = drawn(np.zeros((1, 2, 4)), (0, 0, 0), blocked)
    assert cells(lines) == [["··"] * 4, ["//"] * 4], "a target is blocked where every head blocks every key"


@pytest.mark.parametrize(("name", "axes"), [("query", "T ↓ D"), ("key", "S ↓ D"), ("key_weight", "row ↓ column")])
def test_axes_have_their_letters(name: str, axes: str) -> None:
    shape = (1, 2, 3) if "D" in axes else (2, 3)
    assert f"  {axes} →  " in drawn(np.zeros(shape), (0,) * len(shape), output=f"{name}.gradient")[0]
    assert drawn(np.full(3, 7.0), (1,), output="bias.gradient")[2] == "    0 ▒▒▒▒▒▒"


def test_what_is_too_large_is_shown_by_the_largest_of_each_tile() -> None:
    ratio = np.zeros((1, 41, 200))
    ratio[0, 40, 199], ratio[0, 3, 5] = 50, 5
    lines = drawn(ratio, (0, 40, 199), canvas=Canvas(width=80))
    assert lines[0].endswith("  a cell is 3 × 3 elements, the largest of them")
    shown = cells(lines, 1)
    assert len(shown) == 14 and all(len(row) == 67 for row in shown) and max(map(len, lines[1:-1])) <= 80
    assert shown[13][66] == "▓" and shown[1][1] == "▒"
    assert sum(sign != "·" for row in shown for sign in row) == 2
    assert lines[1].split() == [str(30 * place) for place in range(7)]


@pytest.mark.parametrize("depth", [8, 24])
def test_colour_is_added_to_characters_and_never_alone(depth: Any) -> None:
    ratio = np.array([[[1e-9, 0.01, 1, 40, 1e9, math.inf]]])
    lines = drawn(ratio, (0, 0, 5), canvas=Canvas(100, depth))
    assert cells(lines) == [[f"{sign} " for sign in "··-*#∞"]]
    styles = STYLE.findall(lines[2])[::2]
    assert len(set(styles)) == 6 if depth == 24 else all(style.startswith("38;5;") for style in styles)
    assert all(sign in STYLE.sub("", lines[-1]) for sign in "·-+*#∞") and len(LEVELS) + 1 == 6
    for *parts, text in COLOURED.findall("".join(lines)):
        red, green, blue, *ground = map(int, parts)
        assert contrast((red, green, blue), (ground[0], ground[1], ground[2])) >= 4.5, text


def test_colours_of_256_are_the_nearest_of_the_cube() -> None:
    assert Canvas(80, 8).on("x", (CUBE[5], CUBE[0], CUBE[2])).endswith(f"48;5;{16 + 36 * 5 + 2}mx\x1b[0m")
    assert Canvas(80, 8).on("x", (100, 115, 250)).endswith(f"48;5;{16 + 36 * 1 + 6 * 1 + 5}mx\x1b[0m")
    assert Canvas(80, 8).on("x", (255, 255, 0)).startswith("\x1b[38;5;16;"), "black on yellow"
    assert PLAIN.on("x", (1, 2, 3)) == "x"


@pytest.mark.parametrize(
    ("terminal", "environment", "depth"),
    [
        (True, {"TERM": "xterm-256color"}, 8),
        (True, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 24),
        (True, {"TERM": "xterm-direct"}, 24),
        (True, {"TERM": "vt100"}, 0),
        (True, {}, 0),
        (True, {"TERM": "dumb", "COLORTERM": "truecolor"}, 0),
        (True, {"TERM": "xterm-256color", "NO_COLOR": "1"}, 0),
        (True, {"TERM": "xterm-256color", "NO_COLOR": ""}, 8),
        (True, {"TERM": "xterm-256color", "FORCE_COLOR": "0"}, 0),
        (False, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 0),
        (False, {"FORCE_COLOR": "1"}, 8),
        (False, {"FORCE_COLOR": "3", "TERM": "dumb"}, 24),
        (False, {"FORCE_COLOR": "3", "NO_COLOR": "1"}, 0),
    ],
)
def test_colours_are_for_terminals_that_have_them(terminal: bool, environment: Mapping[str, str], depth: int) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    assert canvas_of(Stream(), environment).depth == depth


def test_a_mask_is_drawn_for_one_sample_and_head() -> None:
    causal = ~np.tri(3, 4, dtype=bool)
    blocked = np.broadcast_to(causal, (2, 2, 3, 4))
    picture = ["      0", "    0 ··//////", "    1 ····////", "    2 ······//", "  / blocked  · attended to"]
    assert mask_lines(blocked, (1, 0), PLAIN) == ["  every sample and head  T ↓ S →  6 of 12 blocked", *picture]
    padded = blocked.copy()
    padded[1, :, 2] = True
    lines = mask_lines(padded, (1, 0), PLAIN)
    assert lines[0] == "  sample 1, head 0 and 1 other face  T ↓ S →  9 of 12 blocked; row 2 fully"
    assert mask_lines(np.zeros((1, 1, 2, 2), bool), (0, 0), PLAIN) == []
    large = mask_lines(~np.tri(200, dtype=bool)[None, None], (0, 0), Canvas(60))
    assert large[0].endswith("  a cell is 10 × 4 elements") and "+ some of each" in large[-1]
    assert len(large) == 23 and max(map(len, large[1:])) <= 60


@pytest.fixture
def kept(tmp_path: Path) -> Any:
    """A run with the tensors of one row, and that row."""
    blocked = np.zeros((2, 2, 3, 5), bool)
    blocked[:, :, :, 4] = True
    made = with_tensors(tmp_path, row("a", "beta/mha", "new"), arrays() | {"blocked": blocked})
    write_results(tmp_path, run_of(tmp_path, []).header, [made])
    return run_of(tmp_path, [made])


def test_explain_draws_where_it_differs(kept: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(["explain", "a[beta/mha]", "--run", str(kept.folder)]) == 0
    plain = capsys.readouterr().out
    assert plain == "\n".join(explain_lines(kept, kept.rows[0])) + "\n"
    heat, mask, environment = (plain.index(f"\n{title}\n") for title in ("heat map", "mask", "environment"))
    assert heat < mask < environment
    assert re.search(r"attn_output, sample 1 .* worst ∞\n.*\n.*\n.*\n    2 (··){3}∞∞(··){4}\n", plain[heat:mask])
    assert plain[mask:].count("········//") == 3
    assert "  versions: numpy 2.4.6, alpha 1.0.0\n" in plain and "  command: pytest cases\n" in plain
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "3")
    assert main(["explain", "a[beta/mha]", "--run", str(kept.folder)]) == 0
    coloured = capsys.readouterr().out
    assert STYLE.sub("", coloured) != coloured and "∞ " in STYLE.sub("", coloured)


@pytest.mark.parametrize("gone", [True, False], ids=["never kept", "lost"])
def test_explain_does_without_tensors(kept: Any, gone: bool) -> None:
    made = replace(kept.rows[0], tensors=None) if gone else kept.rows[0]
    (kept.folder / kept.rows[0].tensors).unlink()
    text = "\n".join(explain_lines(kept, made))
    assert "no heat map: the tensors of this row were not kept" in text
    assert "attn_output[1, 2, 3]: expected 0.25" in text and "\nheat map\n" not in text
