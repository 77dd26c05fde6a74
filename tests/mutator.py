"""Single-edit mutants of a module, in the order of its source: see :mod:`tests.mutations` for the edits.

The source is walked from its beginning, so nobody chooses the faults. Annotations, decorators, docstrings, imports and
the messages of exceptions are left as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from types import CodeType

from tests.mutations import edits

SHORT = 44  # characters of one side of an edit
AROUND = 12  # characters kept before and after what differs


@dataclass(frozen=True)
class Mutant:
    """One edit of one module; ``code`` compiles it."""

    module: str
    scope: str  # the function it lies in, with its classes
    target: str  # the first name that its statement assigns, else the kind of the statement
    edit: str  # the line within the function, and what becomes of what
    code: Callable[[], CodeType]

    @property
    def function(self) -> str:
        """Module and function."""
        return f"{self.module.rpartition('.')[2]}.{self.scope}"

    @property
    def name(self) -> str:
        """Stable while the function is."""
        return self.function + self.edit


@dataclass(frozen=True)
class _Place:
    """Where a node is: in a field of its parent, or at an index of that field, and what is around it."""

    parent: ast.AST
    field: str
    index: int | None
    scope: tuple[ast.AST, ...]
    statement: ast.stmt
    bound: frozenset[str]  # names that the function has assigned before

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module in the order of its source; equal names are numbered."""
    tree = ast.parse(source)
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    seen: dict[str, int] = {}
    for node, place in list(_walk(tree)):
        for new in edits(node, place.bound, names):
            first = place.scope[-1] if place.scope else tree
            line = node.lineno - getattr(first, "lineno", 1)  # type: ignore[attr-defined]  # walked nodes have one
            scope = ".".join(getattr(part, "name", "") for part in place.scope)
            edit = f"+{line}: {' → '.join(_apart(_text(node, place), _text(new, place)))}"
            seen[scope + edit] = count = seen.get(scope + edit, 0) + 1
            edit += f" #{count}" if count > 1 else ""
            yield Mutant(
                module, scope, _target(place.statement), edit, partial(_compiled, module, tree, node, new, place)
            )


def _compiled(module: str, tree: ast.Module, node: ast.AST, new: ast.AST, place: _Place) -> CodeType:
    """The module with one node in the place of another; the tree is as before when it is done."""
    place.put(ast.fix_missing_locations(ast.copy_location(new, node)))
    try:
        return compile(tree, module, "exec")
    finally:
        place.put(node)


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, _Place]]:
    for index, statement in enumerate(tree.body):
        yield from _below(statement, _Place(tree, "body", index, (), statement, frozenset()))


def _below(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """The node and those below it that may be edited, each with its place."""
    if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_docstring(node):
        return
    yield node, place
    if isinstance(node, ast.Raise) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)):
        return
    scope, bound = place.scope, place.bound
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        scope += (node,)
    if isinstance(node, ast.FunctionDef):
        bound = frozenset(argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg))
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "simple"):
            continue
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if not isinstance(child, ast.AST):
                continue
            statement = child if isinstance(child, ast.stmt) else place.statement
            yield from _below(child, _Place(node, field, index, scope, statement, bound))
            if isinstance(child, ast.stmt):
                bound |= {name.id for name in ast.walk(child) if isinstance(name, ast.Name) and _stores(name)}


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _target(statement: ast.stmt) -> str:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for name in ast.walk(targets[0]) if targets[0] is not None else ():
        if isinstance(name, (ast.Name, ast.Attribute)):
            return name.id if isinstance(name, ast.Name) else name.attr
    return type(statement).__name__.lower()


def _text(node: ast.AST, place: _Place) -> str:
    """The node on one line; a keyword argument with its name."""
    if isinstance(node, ast.Pass):
        return "nothing"
    text = " ".join(ast.unparse(node).split())
    return f"{place.parent.arg}={text}" if isinstance(place.parent, ast.keyword) else text


def _apart(before: str, after: str) -> tuple[str, str]:
    """Both sides of an edit, long ones cut to what differs and a little around it."""
    if max(len(before), len(after)) <= SHORT:
        return before, after
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    return _cut(before, start, end), _cut(after, start, end)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _cut(text: str, start: int, end: int) -> str:
    """The text without all but ``AROUND`` characters of the first ``start`` and the last ``end``."""
    head, tail = max(start - AROUND, 0), min(len(text) - end + AROUND, len(text))
    middle = text[head:tail]
    if len(middle) > SHORT:
        middle = f"{middle[: SHORT // 2]}…{middle[1 - SHORT // 2 :]}"
    return ("…" if head else "") + middle + ("…" if tail < len(text) else "")
