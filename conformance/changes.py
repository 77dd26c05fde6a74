"""What changed since the run before: pairs by their node ids, compared by what became of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from conformance.store import RESULTS, Run, finished_runs

DIVERGING = frozenset({"new", "stale", "errored"})


def since_last_run(run: Run) -> str:
    """One sentence about the newest earlier run in the same folder of runs; empty when there is none."""
    earlier = [folder for folder in finished_runs(run.folder.parent) if folder.name < run.folder.name]
    if not earlier:
        return ""
    return sentence(statuses(earlier[-1]), {row.node: row.status for row in run.rows})


def sentence(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Pairs that began or ceased to diverge from what is known, that changed otherwise, and that came or went."""
    shared = [node for node in new if node in old]
    changes = Counter(change(old[node], new[node]) for node in shared)
    counts = {
        "newly failing": changes["new"],
        "no longer failing": changes["fixed"],
        "otherwise changed": changes["changed"],
        "added": len(new) - len(shared),
        "not run this time": len(old) - len(shared),
    }
    told = [f"{count:,} {name}" for name, count in counts.items() if count]
    return ", ".join(told) or "nothing changed"


def statuses(folder: Path) -> dict[str, str]:
    """Status of every row of a run by node id, read without making rows; lines that cannot be read are passed over."""
    found: dict[str, str] = {}
    with (folder / RESULTS).open("rb") as stream:
        next(stream, None)  # the header
        for line in stream:
            try:
                row = json.loads(line)
                found[row["node"]] = row["status"]
            except (ValueError, KeyError, TypeError):
                continue
    return found


def change(old: str, new: str) -> Literal["new", "fixed", "changed", "same"]:
    """What two statuses of a pair say: it began or ceased to diverge from what is known, or changed otherwise."""
    if (old in DIVERGING) != (new in DIVERGING):
        return "new" if new in DIVERGING else "fixed"
    return "same" if old == new else "changed"
