"""Single-edit mutants of a module: each operator, constant, axis, dtype, comparison, call and statement, one at a time.

The operators are fixed and the source is walked in order, so nobody chooses the faults. Annotations, decorators,
docstrings, imports and the messages of exceptions are left as they are.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from os.path import commonprefix
from types import CodeType
from typing import Any

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
DTYPES = {"float64": "float32", "float32": "float16", "compute": "storage", "storage": "compute", "gradient": "storage"}
WIDTHS = {"wide": "stored", "stored": "wide"}  # local names of two dtypes
ARRAY_METHODS = ("all", "any", "astype", "copy", "expand", "flatten", "masked_fill", "max", "repeat_interleave")
ARRAY_METHODS += ("reshape", "softmax", "sum", "swapaxes", "to", "transpose", "view")
LARGE = 1e9  # what is written for −inf
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
        for new in _edits(node, place, names):
            first = place.scope[-1] if place.scope else tree
            line = node.lineno - getattr(first, "lineno", 1)  # type: ignore[attr-defined]  # walked nodes have one
            scope = ".".join(getattr(part, "name", "") for part in place.scope)
            edit = f"+{line}: {' → '.join(_apart(_text(node, place), _text(new, place)))}"
            seen[scope + edit] = count = seen.get(scope + edit, 0) + 1
            edit += f" #{count}" if count > 1 else ""
            yield Mutant(module, scope, _target(place.statement), edit, partial(_compiled, module, tree, node, new, place))


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
    start = len(commonprefix([before, after]))
    end = len(commonprefix([before[start:][::-1], after[start:][::-1]]))
    return _cut(before, start, end), _cut(after, start, end)


def _cut(text: str, start: int, end: int) -> str:
    """The text without all but ``AROUND`` characters of the first ``start`` and the last ``end``."""
    head, tail = max(start - AROUND, 0), min(len(text) - end + AROUND, len(text))
    middle = text[head:tail]
    if len(middle) > SHORT:
        middle = f"{middle[: SHORT // 2]}…{middle[1 - SHORT // 2 :]}"
    return ("…" if head else "") + middle + ("…" if tail < len(text) else "")


def _edits(node: ast.AST, place: _Place, names: frozenset[str]) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(op)]())
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp():
            yield from _signed(node)
        case ast.Constant():
            yield from _constants(node, names)
        case ast.Attribute(attr=attr) if attr in DTYPES:
            yield _with(node, attr=DTYPES[attr])
        case ast.Attribute(attr="T", value=value):
            yield value
        case ast.Name(id=name, ctx=ast.Load()) if WIDTHS.get(name) in names:
            yield _with(node, id=WIDTHS[name])
        case ast.Call():
            yield from _called(node)
        case ast.Slice():
            yield from _sliced(node)
        case ast.IfExp(test=test) | ast.If(test=test):
            if not _negated_already(test):
                yield _with(node, test=ast.UnaryOp(ast.Not(), test))
            if isinstance(node, ast.If) and not node.orelse:
                yield ast.Pass()
        case ast.comprehension(ifs=[test]) if not _negated_already(test):
            yield _with(node, ifs=[ast.UnaryOp(ast.Not(), test)])
        case ast.Expr() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)]) if name in place.bound:
            yield ast.Pass()


def _with(node: Any, **changes: Any) -> Any:
    """A copy of a node with other fields; what is below it stays shared."""
    return type(node)(**{**dict(ast.iter_fields(node)), **changes})


def _negated_already(test: ast.expr) -> bool:
    """Whether an edit of the condition itself negates it."""
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not)
    return isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED_BY_COMPARISON)


def _compared(node: ast.Compare) -> Iterator[ast.AST]:
    for index, op in enumerate(node.ops):
        yield _with(node, ops=[*node.ops[:index], COMPARISONS[type(op)](), *node.ops[index + 1 :]])


def _signed(node: ast.UnaryOp) -> Iterator[ast.AST]:
    """−1 → −2 and 0, −inf → −1e9 and 0; any other sign, ``not`` or ``~`` is dropped."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)):
            yield _with(node, operand=ast.Constant(value + 1))
            yield ast.Constant(0)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Attribute(attr="inf")):
            yield _with(node, operand=ast.Constant(LARGE))
            yield ast.Constant(0.0)
        case _:
            yield node.operand


def _constants(node: ast.Constant, names: frozenset[str]) -> Iterator[ast.AST]:
    """n → n + 1, 1 → 0, True ↔ False, and the names of dtypes."""
    match node.value:
        case bool(value):
            yield ast.Constant(not value)
        case int(value) | float(value):
            yield ast.Constant(value + 1)
            if value == 1:
                yield ast.Constant(value - 1)
        case str(value) if value in DTYPES:
            yield ast.Constant(DTYPES[value])


def _called(node: ast.Call) -> Iterator[ast.AST]:
    """The call is dropped for what it is made on, and neighbouring arguments among the first three change places."""
    function, arguments = node.func, node.args
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in ARRAY_METHODS and isinstance(function, ast.Attribute):
        yield function.value
        return
    if name[:1].isupper() or hasattr(builtins, name) or not arguments or isinstance(arguments[0], ast.Starred):
        return
    yield from arguments[1:] if name == "where" else arguments[:1]
    for index in range(min(len(arguments), 3) - 1):
        one, other = arguments[index : index + 2]
        yield _with(node, args=[*arguments[:index], other, one, *arguments[index + 2 :]])


def _sliced(node: ast.Slice) -> Iterator[ast.AST]:
    """[:n] ↔ [n:], [:n] → [:n − 1], [m:n] → [m:]."""
    if node.upper is None:
        if node.lower is not None:
            yield ast.Slice(upper=node.lower)
        return
    yield ast.Slice(lower=node.lower or node.upper)
    if not isinstance(node.upper, ast.Constant):
        yield ast.Slice(lower=node.lower, upper=ast.BinOp(node.upper, ast.Sub(), ast.Constant(1)))
