"""Who may import whom: the engine no framework, adapters only the shared value types, and nothing the tests."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "jaxlib"}
ENGINE = sorted((ROOT / "conformance").rglob("*.py"))
ADAPTERS = sorted((ROOT / "adapters").glob("*.py"))
# What adapters may take from the engine, and what they and the shared modules may take from elsewhere.
VALUE_TYPES = {"conformance.spec", "conformance.adapter", "conformance.policy"}
PORTABLE = {"numpy", "ml_dtypes"}
NEWER_THAN_3_10 = {
    ("tomllib", ""),
    ("datetime", "UTC"),
    ("enum", "StrEnum"),
    *(
        ("typing", name)
        for name in ("Self", "assert_never", "LiteralString", "Never", "NotRequired", "Unpack", "override")
    ),
}


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import anywhere in a file; an empty name where a module is imported."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                yield from ((module, alias.name) for alias in names)
            case ast.ImportFrom():
                pytest.fail(f"{path}:{node.lineno}: relative imports hide who imports whom")


def reached(modules: set[str]) -> list[Path]:
    """Files of the engine that these modules of it import, themselves included."""
    found: set[str] = set()
    while modules - found:
        module = min(modules - found)
        found.add(module)
        modules |= {name for name, _ in imports(file_of(module)) if name.partition(".")[0] == "conformance"}
    return sorted(map(file_of, found))


def file_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def tops(path: Path) -> set[str]:
    return {module.partition(".")[0] for module, _ in imports(path)}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


SHARED = reached(set(VALUE_TYPES))


@pytest.mark.parametrize("path", ENGINE, ids=named)
def test_the_engine_imports_no_framework_no_adapter_and_no_test(path: Path) -> None:
    assert not tops(path) & (FRAMEWORKS | {"adapters", "cases", "tests"})


@pytest.mark.parametrize("path", ADAPTERS, ids=named)
def test_adapters_import_the_value_types_of_the_engine_and_nothing_else_of_it(path: Path) -> None:
    taken = {module for module, _ in imports(path) if module.partition(".")[0] == "conformance"}
    assert taken <= VALUE_TYPES
    assert not tops(path) & {"cases", "tests"}


@pytest.mark.parametrize("path", [*ADAPTERS, *SHARED], ids=named)
def test_adapters_run_on_python_3_10_with_numpy_and_their_framework(path: Path) -> None:
    ast.parse(path.read_text("utf-8"), feature_version=(3, 10))
    assert tops(path) <= sys.stdlib_module_names | PORTABLE | FRAMEWORKS | {"adapters", "conformance"}
    assert not set(imports(path)) & NEWER_THAN_3_10


@pytest.mark.parametrize("path", [*ADAPTERS, *SHARED], ids=named)
def test_annotations_are_not_evaluated(path: Path) -> None:
    """Annotations may then use what Python 3.10 does not know."""
    if path.read_text("utf-8").strip():
        assert ("__future__", "annotations") in set(imports(path))


def test_no_framework_is_imported_by_listing_subjects_and_reading_cases() -> None:
    """In a process of its own: the plugin, the command line, every adapter and every case, but no subject."""
    program = f"""
import sys
import conformance.cli, conformance.plugin, conformance.items, conformance.report.render
from conformance.adapter import adapters
from conformance.casefile import read_case_file
from pathlib import Path
assert {{"torch", "keras", "jax", "numpy"}} <= {{adapter.framework for adapter in adapters()}}
for path in sorted(Path("cases").glob("*.yaml")):
    if path.name != "known_divergences.yaml":
        read_case_file(path)
found = [name for name in {sorted(FRAMEWORKS)!r} if name in sys.modules]
sys.exit(f"imported: {{found}}" if found else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
