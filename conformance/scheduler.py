"""How pytest-xdist hands pairs to workers: a framework that compiles stays in one worker."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

from conformance.adapter import adapter_of


class FrameworkScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Scopes are a whole framework where it compiles for each shape, else one case file of one framework.

    Scopes with many pairs are handed out first, so workers end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        subject = name.rpartition("[")[2].rstrip("]")
        try:
            adapter = adapter_of(subject)
        except KeyError:
            return file
        return adapter.framework if adapter.slow else f"{adapter.framework} {file}"
