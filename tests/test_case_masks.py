"""Every case carries the mask that its name tells: names and masks are built from the same words, separately."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.casefile import read_case_file
from conformance.casefolder import case_files
from conformance.spec import Case

CASES = case_files(Path(__file__).parent.parent / "cases")
WORDS = {
    "query_padding": ("query-padding",),
    "window": ("window",),
    "explicit": ("explicit",),
    "additive": ("additive.",),
}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_name_of_a_case_tells_the_parts_of_its_mask(path: Path) -> None:
    for case in read_case_file(path):
        for part, words in WORDS.items():
            if any(f"{word}" in case.name for word in words) and _masked(case):
                assert part in case.mask.parts, f"{case.id} has {case.mask}"


def _masked(case: Case) -> bool:
    """Masks given by ``defaults`` are not in the name; ill-formed calls name the fault as well."""
    return case.ill_formed is None


def test_masks_of_different_blocks_are_not_mixed_up(tmp_path: Path) -> None:
    blocks = "\n".join(
        f"  - {{name: b{number}, why: w, matrix: {{mask: [{{explicit: {{pattern: rows, indices: [{number}]}}}}]}}}}"
        for number in range(5)
    )
    file = tmp_path / "many.yaml"
    file.write_text(f"suite: many\nwhy: each block has a mask of its own\nmatrices:\n{blocks}\n", encoding="utf-8")
    indices = [case.mask.explicit.indices for case in read_case_file(file) if case.mask.explicit]
    assert indices == [(0,), (1,), (2,), (3,), (4,)]
