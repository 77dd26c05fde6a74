"""Which module may know which: the engine names no framework, adapters need little of the engine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from conformance.adapter import ENTRY_POINT_GROUP

ROOT = Path(__file__).parent.parent
ENGINE = sorted((ROOT / "conformance").rglob("*.py"))
ADAPTERS = sorted((ROOT / "adapters").glob("*.py"))
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "jaxlib")
ANNOUNCED = sorted(
    point.module for point in entry_points(group=ENTRY_POINT_GROUP) if point.module.startswith("adapters.")
)
NAMED = re.compile(rf"\b({'|'.join(FRAMEWORKS)})\b", re.IGNORECASE)
# What an adapter may use of the engine. These modules too run on Python 3.10 with NumPy and ml_dtypes alone.
SHARED = (
    "conformance.spec",
    "conformance.problem",
    "conformance.vocabulary",
    "conformance.adapter",
    "conformance.policy",
    "conformance.errors",
)
OLD_ENOUGH = [*ADAPTERS, *(ROOT / f"{name.replace('.', '/')}.py" for name in SHARED)]
SINCE_3_11 = {
    *("tomllib", "wsgiref.types", "asyncio.TaskGroup", "asyncio.timeout", "contextlib.chdir", "datetime.UTC"),
    *("enum.StrEnum", "enum.ReprEnum", "enum.verify", "enum.member", "enum.nonmember", "enum.global_enum"),
    *("typing.Self", "typing.LiteralString", "typing.Never", "typing.NotRequired", "typing.Required"),
    *("typing.assert_never", "typing.assert_type", "typing.reveal_type", "typing.Unpack", "typing.TypeVarTuple"),
    *("typing.override", "itertools.batched", "math.exp2", "math.cbrt", "hashlib.file_digest", "operator.call"),
    *("inspect.getmembers_static", "warnings.deprecated", "string.Template.get_identifiers", "re.NOFLAG"),
}
BUILT_IN_SINCE_3_11 = {"ExceptionGroup", "BaseExceptionGroup", "EncodingWarning.add_note"}


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Dotted names of all that is imported: ``from a import b`` gives ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def words(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names and texts of a module with their lines. What documents is not code."""
    documents = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documents:
                yield node.lineno, text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text) | ast.keyword(arg=str(text)):
                yield node.lineno, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield node.lineno, text


def enclosed(tree: ast.Module) -> set[ast.AST]:
    """Nodes inside functions, and inside ``if TYPE_CHECKING``."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if checking or isinstance(node, ast.FunctionDef | ast.Lambda):
            found.update(ast.walk(node))
    return found


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_the_engine_names_no_framework(path: Path) -> None:
    """Environment variables such as JAX_ENABLE_X64 are settings of the machine, noted and never acted upon; the words
    of a name are not taken apart, so they pass."""
    assert [(line, text) for line, text in words(tree_of(path)) if NAMED.search(text)] == []


@pytest.mark.parametrize("path", [*ENGINE, *ADAPTERS], ids=name_of)
def test_nothing_knows_the_case_files_the_tests_or_the_reports(path: Path) -> None:
    roots = {name.partition(".")[0] for name, _ in imports(tree_of(path))}
    assert not roots & {"cases", "tests", "reports"}
    if path in ENGINE:
        assert "adapters" not in roots, "the engine finds adapters by entry point"


@pytest.mark.parametrize("path", ADAPTERS, ids=name_of)
def test_adapters_need_only_the_value_types_of_the_engine(path: Path) -> None:
    for name, _ in imports(tree_of(path)):
        if name.startswith("conformance"):
            assert name.rpartition(".")[0] in SHARED or name in SHARED, name


@pytest.mark.parametrize("module", ANNOUNCED)
def test_announced_modules_import_frameworks_inside_functions(module: str) -> None:
    """A module may import its framework at the top if only functions import the module: the announced ones may not."""
    reached, waiting = {module}, [module]
    while waiting:
        tree = tree_of(ROOT / f"{waiting.pop().replace('.', '/')}.py")
        inside = enclosed(tree)
        for name, node in imports(tree):
            assert name.partition(".")[0] not in FRAMEWORKS or node in inside, ast.unparse(node)
            other = name.rpartition(".")[0]
            if other.startswith("adapters.") and node not in inside and other not in reached:
                reached.add(other)
                waiting.append(other)


@pytest.mark.parametrize("path", OLD_ENOUGH, ids=name_of)
def test_what_runs_beside_old_releases_is_python_3_10(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 10))
    assert not {name for name, _ in imports(tree)} & SINCE_3_11
    assert not any(name.partition(".")[0] == "tomllib" for name, _ in imports(tree))
    dotted = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not dotted & SINCE_3_11
    assert not {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & BUILT_IN_SINCE_3_11
    assert not [node for node in ast.walk(tree) if type(node).__name__ in ("TryStar", "TypeAlias")]


@pytest.mark.parametrize("path", [ROOT / f"{name.replace('.', '/')}.py" for name in SHARED], ids=name_of)
def test_what_adapters_share_needs_numpy_alone(path: Path) -> None:
    for name, _ in imports(tree_of(path)):
        root = name.partition(".")[0]
        known = root in sys.stdlib_module_names or root in ("numpy", "ml_dtypes")
        assert known or name in SHARED or name.rpartition(".")[0] in SHARED, name


def test_announcing_subjects_imports_no_framework() -> None:
    probe = (
        "import sys\nfrom conformance.adapter import adapters\n"
        "assert {adapter.framework for adapter in adapters()} >= {'torch', 'keras', 'jax', 'numpy'}\n"
        f"print(sorted(set({FRAMEWORKS!r}) & set(sys.modules)))\n"
        "print(sorted(name for name in ('pydantic', 'ruamel.yaml', 'jinja2', 'pytest') if name in sys.modules))\n"
    )
    shown = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["[]", "[]"]
