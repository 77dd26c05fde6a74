"""The parts of a mask as arrays: True blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conformance.masks import axes_shape, explicit_array, mask_arrays
from conformance.problem import MaskArrays
from conformance.spec import Additive, Array, Explicit, Mask, Padding, Window
from conformance.vocabulary import Alignment
from tests.drawn_problems import case_like

FLOAT32 = np.dtype(np.float32)


def arrays_of(mask: Mask, **sizes: Any) -> MaskArrays:
    return mask_arrays(case_like("masks", mask=mask, **sizes), FLOAT32)


def drawing(array: Array | None) -> list[str]:
    """Rows of a mask, # where it blocks."""
    assert array is not None and array.dtype == np.bool_
    return ["".join("#" if blocked else "." for blocked in row) for row in array]


@pytest.mark.parametrize(
    ("alignment", "target", "source", "rows"),
    [
        ("top-left", 3, 4, [".###", "..##", "...#"]),
        ("bottom-right", 3, 4, ["..##", "...#", "...."]),
        ("top-left", 4, 2, [".#", "..", "..", ".."]),
        ("bottom-right", 4, 2, ["##", "##", ".#", ".."]),
        ("bottom-right", 3, 3, [".##", "..#", "..."]),
    ],
)
def test_causal(alignment: Alignment, target: int, source: int, rows: list[str]) -> None:
    arrays = arrays_of(Mask(causal=alignment), target_length=target, source_length=source)
    assert drawing(arrays.causal) == rows


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        (Window(0, 0), [".####", "#.###", "##.##"]),
        (Window(1, 0), [".####", "..###", "#..##"]),
        (Window(0, 2), ["...##", "#...#", "##..."]),
        (Window(1, 0, "bottom-right"), ["#..##", "##..#", "###.."]),
        (Window(9, 9), [".....", ".....", "....."]),
    ],
)
def test_window(window: Window, rows: list[str]) -> None:
    assert drawing(arrays_of(Mask(window=window), source_length=5).window) == rows


def test_padding_on_either_side_and_its_lengths() -> None:
    right = arrays_of(Mask(key_padding=Padding((1, 4)), query_padding=Padding((0, 3))))
    assert drawing(right.key_padding) == [".###", "...."] and drawing(right.query_padding) == ["###", "..."]
    assert right.key_lengths is not None and right.key_lengths.tolist() == [1, 4]
    assert right.key_lengths.dtype == np.int32 and right.query_lengths is not None
    left = arrays_of(Mask(key_padding=Padding((1, 4), side="left")))
    assert drawing(left.key_padding) == ["###.", "...."]
    assert left.key_lengths is None and left.query_lengths is None  # lengths say nothing of padding on the left


@pytest.mark.parametrize(
    ("explicit", "blocked"),
    [
        (Explicit("rows", "TS", indices=(1,)), np.array([[0] * 4, [1] * 4, [0] * 4])),
        (Explicit("keys", "TS", indices=(0, 3)), np.array([[1, 0, 0, 1]] * 3)),
        (Explicit("keys", "B11S", indices=(2,)), np.array([[[[0, 0, 1, 0]]]] * 2)),
        (Explicit("heads", "1HTS", indices=(1,)), np.array([[[[0] * 4] * 3, [[1] * 4] * 3]])),
        (Explicit("samples", "BTS", indices=(0,)), np.array([[[1] * 4] * 3, [[0] * 4] * 3])),
        (Explicit("everything", "1TS"), np.ones((1, 3, 4))),
        (Explicit("block-diagonal", "TS", block=2), np.array([[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]])),
        (Explicit("block-diagonal", "1TS", block=1), np.array([1 - np.eye(3, 4)])),
        (Explicit("literal", "1TS", values=(((0, 1, 0, 1), (1, 0, 0, 0), (0, 0, 0, 1)),)), None),
    ],
)
def test_patterns(explicit: Explicit, blocked: Array | None) -> None:
    found = explicit_array(case_like("patterns"), explicit)
    expected = np.array(explicit.values) if blocked is None else blocked
    assert found.dtype == np.bool_ and found.tolist() == expected.astype(bool).tolist()
    assert found.flags.writeable


@pytest.mark.parametrize("axes", ["TS", "1TS", "BTS", "B1S", "BHTS", "B1TS", "B11S", "1HTS"])
def test_a_random_mask_leaves_each_row_a_key_and_fills_its_axes(axes: Any) -> None:
    case = case_like("random", target_length=40, source_length=30, batch=3)
    found = explicit_array(case, Explicit("random", axes, density=0.6))
    assert found.shape == axes_shape(case, axes) and not found.all(axis=-1).any()
    assert 0.3 < found.mean() < 0.75
    np.testing.assert_array_equal(found, explicit_array(case, Explicit("random", axes, density=0.6)))
    assert explicit_array(case_like("random", source_length=0), Explicit("random", axes)).shape[-1] == 0


def test_random_masks_depend_on_the_id_of_their_case() -> None:
    explicit = Explicit("random", "BHTS")
    one, two = (explicit_array(case_like(name), explicit) for name in ("one", "two"))
    assert not np.array_equal(one, two)


def test_an_additive_part_is_normal_or_written_with_infinities_where_asked() -> None:
    large = arrays_of(Mask(additive=Additive("BHTS", 5.0)), target_length=30, source_length=30).additive
    assert large is not None and large.dtype == FLOAT32 and 4 < large.std() < 6
    infinite = arrays_of(Mask(additive=Additive("TS", 1.0, minus_inf=Explicit("rows", "TS", indices=(2,))))).additive
    assert infinite is not None and np.isneginf(infinite).tolist() == [[False] * 4, [False] * 4, [True] * 4]
    values = tuple(float(number) for number in range(12))
    written = arrays_of(Mask(additive=Additive("TS", values=values))).additive
    assert written is not None and written.tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_parts_that_are_absent_are_none_and_the_shape_is_always_there() -> None:
    arrays = arrays_of(Mask())
    assert arrays.shape == (2, 2, 3, 4) and arrays.blocked() is None and arrays.bias() is None
    assert arrays.float_mask(FLOAT32) is None
    assert arrays.causal is arrays.window is arrays.explicit is arrays.additive is arrays.key_padding is None


def test_all_parts_block_together() -> None:
    mask = Mask(key_padding=Padding((4, 2)), causal="top-left", explicit=Explicit("heads", "1HTS", indices=(1,)))
    arrays = arrays_of(mask)
    union = arrays.blocked()
    assert union is not None
    whole = np.broadcast_to(union, arrays.shape)
    assert whole[:, 1].all() and drawing(whole[0, 0]) == [".###", "..##", "...#"] and drawing(whole[1, 0])[2] == "..##"
    causal = arrays.blocked("causal")
    assert causal is not None and causal.shape == (1, 1, 3, 4)


def test_a_float_mask_is_the_bias_with_infinities() -> None:
    arrays = arrays_of(Mask(causal="top-left", additive=Additive("TS", values=tuple([2.0] * 12))))
    found = arrays.float_mask(FLOAT32)
    assert found is not None and found[0, 0, 0].tolist() == [2, -np.inf, -np.inf, -np.inf]
    only = arrays_of(Mask(causal="top-left")).float_mask(FLOAT32)
    assert only is not None and only[0, 0, 0].tolist() == [0, -np.inf, -np.inf, -np.inf]
