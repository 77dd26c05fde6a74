"""What a run notes about its machine."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from conformance import environment


def test_threads_are_limited_unless_the_user_decided() -> None:
    variables = {"MKL_NUM_THREADS": "4"}
    environment.one_thread_each(variables)
    assert variables == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "4"}


def test_settings_that_change_numbers_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*environment.THREAD_VARIABLES, *environment.NUMERIC_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    found = environment.describe(tmp_path)
    assert found["variables"] == {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"}
    assert found["python"].startswith("3.") and found["cores"] >= 1


CPU = """processor : 0
model name : Some CPU: the second
flags : fpu avx avx2 sse4_2 fma amx_bf16

"""
ARM = """processor : 0
Features : fp asimd sve bf16
"""


@pytest.mark.parametrize(
    ("text", "model", "features"),
    [
        (CPU, "Some CPU: the second", ["avx", "avx2", "fma", "amx_bf16"]),
        (ARM, "from the system", ["asimd", "sve", "bf16"]),
        ("", "from the system", []),
        (None, "from the system", []),
    ],
)
def test_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, model: str, features: list[str]
) -> None:
    path = tmp_path / "cpuinfo"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(environment, "CPU_INFO", path)
    monkeypatch.setattr(platform, "processor", lambda: "from the system")
    assert environment.describe(tmp_path)["cpu"] == {"model": model, "features": features}


def test_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.describe(tmp_path)["commit"] == "unknown"
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    commit = environment.describe(tmp_path)["commit"]
    assert len(commit) >= 7 and int(commit, 16) >= 0


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 5)])
def test_no_commit_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert environment.describe(tmp_path)["commit"] == "unknown"


def test_versions_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"attention-conformance", "numpy", "ml_dtypes", "pytest"} == environment.engine_versions().keys()

    def absent(name: str) -> str:
        if name == "numpy":
            return "2.0"
        raise PackageNotFoundError(name)

    monkeypatch.setattr(environment, "version", absent)
    assert environment.engine_versions() == {"numpy": "2.0"}
