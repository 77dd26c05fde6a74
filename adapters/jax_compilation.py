"""What JAX compiled: kept on disk for the next process, forgotten in this one before it takes too much memory."""

from __future__ import annotations

from collections.abc import Hashable
from importlib.metadata import version
from typing import Any

from adapters.memory import give_back
from conformance.adapter import cache_folder

SIGNATURES_KEPT = 64


def keep_compilations(jax: Any) -> None:
    """Have JAX keep all that it compiles in its persistent cache, unless the user has settled where that lies."""
    folder = cache_folder("jaxlib", version("jaxlib"))
    if folder is None or jax.config.jax_compilation_cache_dir is not None:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


class Compilations:
    """The signatures for which a subject had JAX compile, each of which keeps some megabytes; ``count`` says how often
    it did."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._signatures: set[Hashable] = set()
        self.count = 0

    def make_room(self, signature: Hashable) -> None:
        """Before a call: where it is of one signature too many, have JAX forget all of them."""
        if signature in self._signatures:
            return
        if len(self._signatures) >= SIGNATURES_KEPT:
            self._signatures.clear()
            self._jax.clear_caches()
            give_back()
        self._signatures.add(signature)
        self.count += 1
