"""What frameworks keep of their compilations: where, how much, and that it changes no answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance import compilecache, environment
from conformance.adapter import CACHE_VARIABLE, adapter_of, cache_folder
from tests.projects import Project, output_of


def test_adapters_learn_of_the_folder_and_of_its_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    assert cache_folder("compiler", "1.0") is None
    compilecache.offer(os.environ, tmp_path)
    assert cache_folder("compiler", "1.0") == tmp_path / environment.machine_key() / "compiler-1.0"
    assert (tmp_path / environment.machine_key() / "compiler-1.0").is_dir()
    compilecache.offer(os.environ, None)
    assert cache_folder("compiler", "1.0") is None


def test_another_machine_or_setting_is_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    own = environment.machine_key()
    assert own == environment.machine_key()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    flagged = environment.machine_key()
    monkeypatch.setattr(environment, "CPU_INFO", Path(os.devnull))
    assert len({own, flagged, environment.machine_key()}) == 3


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "old")):
        path = tmp_path / "machine" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert compilecache.prune(tmp_path, limit=1000) == 0
    assert compilecache.prune(tmp_path, limit=250) == 100
    assert sorted(path.name for path in (tmp_path / "machine").iterdir()) == ["middle", "new"]
    assert compilecache.prune(tmp_path / "absent") == 0


@pytest.mark.parametrize("subject", ["jax/dpa@jit", "keras/mha@xla"])
def test_a_second_run_answers_from_the_cache_and_alike(project: Project, subject: str) -> None:
    skip_without(subject)
    project.pytester.makeini(SETTINGS)
    project.cases("small", subject, body=CASE)
    seen = []
    for options in (["--no-cache"], [], [], ["--no-cache"]):
        result = project.pytest_apart(*options)
        assert result.ret == 0, output_of(result)
        (row,) = project.run().rows
        seen.append((row.status, row.findings, row.measures))
        assert bool(kept(project)) == (len(seen) > 1)
    assert seen[0][0] in ("agrees", "known")
    assert all(one == seen[0] for one in seen)


def test_what_was_cut_short_is_compiled_anew(project: Project) -> None:
    skip_without("jax/dpa@jit")
    project.pytester.makeini(SETTINGS)
    project.cases("small", "jax/dpa@jit", body=CASE)
    assert project.pytest_apart().ret == 0
    before = project.run().rows[0].measures
    for path in kept(project):
        path.write_bytes(path.read_bytes()[:50])
    assert project.pytest_apart().ret == 0
    assert project.run().rows[0].measures == before


CASE = "include: [{name: one, tags: [sample]}]"
SETTINGS = "[pytest]\nfilterwarnings = error\n"  # pytest's cache, which projects of tests are without, is on


def kept(project: Project) -> list[Path]:
    """Files in the compile cache."""
    return [path for path in (project.root / ".pytest_cache" / "d" / "compiled").rglob("*") if path.is_file()]


def skip_without(subject: str) -> None:
    """Skip where a framework is not installed; it is not imported here, two in one process may not get along."""
    if adapter_of(subject).missing:
        pytest.skip(f"{subject} needs {', '.join(adapter_of(subject).missing)}")
