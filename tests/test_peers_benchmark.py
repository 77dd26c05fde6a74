"""``benchmarks/peers.py``: comparisons are counted, an absent peer gives its reason, a missed target is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.page import PERFORMANCE, ROOT
from benchmarks.peers import Figure, missed, peers_of
from benchmarks.processes import Cost

TESTS = """\
import numpy as np

def test_something_else():
    np.testing.assert_allclose(np.zeros(2), np.zeros(2))

def testDotProductAttention():
    np.testing.assert_allclose(1.0, 1.0)
    np.testing.assert_array_equal((2, 3), (2, 3))
    for _ in range({count}):
        np.testing.assert_allclose(np.zeros(2), np.zeros(2))
"""


@pytest.mark.parametrize(("count", "ahead"), [(1, True), (2_000, False)])
def test_a_run_is_held_against_a_peer(count: int, *, ahead: bool, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "nn_test.py").write_text(TESTS.format(count=count), "utf-8")
    chosen = ["--peers", "jax", "torch", "--jax", str(tmp_path), "--files", "cases/key_padding.yaml", "--subjects"]
    command = [sys.executable, "-m", "benchmarks.peers", "--rounds", "1", "--workers", "0", *chosen, "numpy/reference"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    counts = dict(re.findall(r"^\| (.+?) \| ([\d,]+) \|", done.stdout, re.MULTILINE))
    assert counts["JAX: tests of dot_product_attention"] == f"{count:,}", done.stdout + done.stderr
    assert counts["this suite, first run"] == counts["this suite, second run"] != "0"
    assert re.search(r"PyTorch: tests of MultiheadAttention \| — .*(`--pytorch`|not installed)", done.stdout)
    assert ("JAX: tests of dot_product_attention needs" in done.stderr) is not ahead
    assert done.returncode == int(not ahead), done.stderr


def figure(name: str, each: float) -> Figure:
    """A side that needs so many milliseconds for each of 1,000 comparisons."""
    return Figure(name, [each], [1000])


def test_each_missed_target_is_told() -> None:
    first, second, peer, absent = figure("first", 9), figure("second", 2.5), figure("peer", 2.6), Figure("absent")
    absent.missing = "not installed"
    assert missed([first, second, peer, absent], whole=False) == []
    assert missed([first, second, peer, absent], whole=True) == ["2.5 ms for each comparison, 2 are allowed"]
    assert missed([first, second, figure("peer", 2.4)], whole=False) == ["peer needs 2.4 ms, this suite 2.5"]


def test_a_peer_that_compares_nothing_is_left_out_with_the_reason() -> None:
    broken = Figure("peer")
    broken.add(Cost(1.0, 1.0, 1, 2, "collected\nno such file\n"), 0)
    assert broken.line() == "| peer | — | — | — | its tests ended with status 2 and 0 comparisons: no such file |"
    assert missed([figure("first", 2), figure("second", 1), broken], whole=True) == []
    assert missed([figure("first", 2), broken], whole=True)


def test_tests_that_are_not_shipped_are_skipped_with_the_reason() -> None:
    reasons = {peer.key: peer.missing for peer in peers_of(None, None)}
    assert all(reasons[key] for key in ("torch", "jax"))
    given = {peer.key: peer.folder for peer in peers_of(Path("one"), Path("two"))}
    assert (given["torch"], given["jax"]) == (Path("one"), Path("two"))


def test_the_page_quotes_a_run_that_is_ahead_of_every_peer() -> None:
    section = PERFORMANCE.read_text("utf-8").partition("<!-- measured: peers -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| (.+?) \| [\d,]+ \| [\d.]+ \| ([\d.e+]+) \|", section, re.MULTILINE)
    each = {name: float(text) for name, text in rows}
    assert len(each) >= 3
    own = each.pop("this suite, second run")
    each.pop("this suite, first run")
    assert all(own < other for other in each.values())
