"""The machine and the settings that a run's numbers depend on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import MutableMapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
CPU_INFO = Path("/proc/cpuinfo")
NUMERIC_VARIABLES = (
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "TF_ENABLE_ONEDNN_OPTS",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "NVIDIA_TF32_OVERRIDE",
)


def one_thread_each(environment: MutableMapping[str, str]) -> None:
    """Keep numeric libraries at one thread in each process, unless the user decided otherwise.

    Workers share the cores already; with their default pools, contended calls cost many times more. Has effect only
    before those libraries are imported.
    """
    for name in THREAD_VARIABLES:
        environment.setdefault(name, "1")


def describe(root: Path) -> dict[str, Any]:
    """Environment of a run as plain values."""
    variables = {name: os.environ[name] for name in (*THREAD_VARIABLES, *NUMERIC_VARIABLES) if name in os.environ}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "variables": variables,
        "commit": _commit(root),
    }


def machine_key() -> str:
    """Short name of what compiled code depends on besides its compiler: the processor, and the compilers' settings."""
    settings = {name: os.environ.get(name) for name in NUMERIC_VARIABLES}
    told = json.dumps([platform.machine(), platform.system(), _cpu(), settings], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def engine_versions() -> dict[str, str]:
    """Versions of what the engine itself runs on."""
    found = {}
    for name in ("attention-conformance", "numpy", "ml_dtypes", "pytest"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu() -> dict[str, Any]:
    """Model name and the vector extensions that choose kernels, where the system tells them."""
    try:
        text = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"model": platform.processor() or "unknown", "features": []}
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    flags = fields.get("flags", fields.get("Features", "")).split()
    features = [flag for flag in flags if flag.startswith(("avx", "amx", "fma", "sve", "bf16", "asimd"))]
    return {"model": fields.get("model name") or platform.processor() or "unknown", "features": features}


def _commit(root: Path) -> str:
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return found.stdout.strip() or "unknown"
