"""What frameworks keep of their compilations from one run to the next: where it lies and how much it may be.

Compiled code is kept by the frameworks' own caches, whose keys are theirs: the program, its options and the compiler.
The folder is one for each machine and for what the environment tells the compilers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from conformance.adapter import CACHE_VARIABLE
from conformance.environment import machine_key

LIMIT = 1 << 30  # bytes, of all machines together


def offer(environment: MutableMapping[str, str], root: Path | None) -> None:
    """Tell the adapters of this process which folder to use, or that they are to use none."""
    if root is None:
        environment.pop(CACHE_VARIABLE, None)
    else:
        environment[CACHE_VARIABLE] = str(root / machine_key())


def prune(root: Path, limit: int = LIMIT) -> int:
    """Delete what was not used for longest until at most ``limit`` bytes are left; how many bytes that was."""
    files = sorted(_files(root), reverse=True)
    kept, deleted = 0, 0
    for _, size, path in files:
        kept += size
        if kept > limit:
            path.unlink(missing_ok=True)
            deleted += size
    return deleted


def _files(root: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, size and path of every file; one that another run deletes meanwhile is passed over."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            yield max(status.st_atime, status.st_mtime), status.st_size, path
