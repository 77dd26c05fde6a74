"""How pytest-xdist hands pairs to workers: a framework that compiles stays in one worker."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

from conformance.adapter import adapter_of


class FrameworkScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Scopes are a whole framework where it compiles for each shape, its slow subjects apart; elsewhere one case file
    of one framework.

    Scopes with many pairs are handed out first, so workers end together. A pair during which a worker died is not
    tried again: the next worker would die too.
    """

    def remove_node(self, node: Any) -> str | None:
        """Take a worker out, and hand the rest of its pairs to others; the pair during which it died, if it did."""
        units: dict[str, dict[str, bool]] = self.assigned_work[node]
        crashed = next((name for unit in units.values() for name, done in unit.items() if not done), None)
        for scope, unit in list(units.items()):
            if crashed in unit:
                unit[crashed] = True
            if all(unit.values()):
                del units[scope]  # nothing to hand on
        super().remove_node(node)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        subject = name.rpartition("[")[2].rstrip("]")
        try:
            adapter = adapter_of(subject)
        except KeyError:
            return file
        if not adapter.slow:
            return f"{adapter.framework} {file}"
        return subject if subject in adapter.slow else adapter.framework
