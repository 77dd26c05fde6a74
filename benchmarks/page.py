"""The pages that quote measured tables, and where each stands in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tolerance.md"
PERFORMANCE = ROOT / "docs" / "performance.md"


@dataclass(frozen=True)
class Table:
    """A measured table, and the place between two comments of the page where it stands."""

    name: str
    lines: Callable[[], Iterator[str]]

    @property
    def place(self) -> re.Pattern[str]:
        return re.compile(rf"(<!-- measured: {self.name} -->\n).*?(<!-- end -->)", re.DOTALL)

    def put(self, page: str, text: str) -> str:
        return self.place.sub(lambda found: found[1] + text + found[2], page)
