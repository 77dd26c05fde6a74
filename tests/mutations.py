"""The edits of :mod:`tests.mutator`: what may stand in the place of one node of a syntax tree.

Operators, comparisons, constants, axes, dtypes, signs, conditions, slices, calls, arguments and statements.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
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
ARRAY_METHODS: tuple[str, ...] = (
    "all",
    "any",
    "astype",
    "copy",
    "expand",
    "flatten",
    "masked_fill",
    "max",
    "repeat_interleave",
)
ARRAY_METHODS += ("reshape", "softmax", "sum", "swapaxes", "to", "transpose", "view")
LARGE = 1e9  # what is written for −inf


def edits(node: ast.AST, bound: frozenset[str], names: frozenset[str]) -> Iterator[ast.AST]:
    """What may stand in the place of a node: ``names`` are those of the module, ``bound`` those that its function has
    assigned before."""
    match node:
        case ast.Slice():
            yield from _sliced(node)
        case ast.expr():
            yield from _expressions(node, names)
        case ast.If(test=test):
            if not _negated_already(test):
                yield _with(node, test=ast.UnaryOp(ast.Not(), test))
            if not node.orelse:
                yield ast.Pass()
        case ast.comprehension(ifs=[test]) if not _negated_already(test):
            yield _with(node, ifs=[ast.UnaryOp(ast.Not(), test)])
        case ast.Expr() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Name(id=name)]) if name in bound:
            yield ast.Pass()


def _expressions(node: ast.expr, names: frozenset[str]) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Compare():
            yield from _compared(node)
        case ast.UnaryOp():
            yield from _signed(node)
        case ast.Constant(value=value):
            yield from map(ast.Constant, _constants(value))
        case ast.Attribute() | ast.Name():
            yield from _renamed(node, names)
        case ast.Call():
            yield from _called(node)
        case ast.IfExp(test=test) if not _negated_already(test):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))


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
            yield _with(node, operand=ast.Constant(next(_constants(value))))
            yield ast.Constant(0)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Attribute(attr="inf")):
            yield _with(node, operand=ast.Constant(LARGE))
            yield ast.Constant(0.0)
        case _:
            yield node.operand


def _constants(value: object) -> Iterator[Any]:
    """n → n + 1, 1 → 0, True ↔ False, and the names of dtypes."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value + 1
            if value == 1:
                yield value - 1
        case str() if value in DTYPES:
            yield DTYPES[value]


def _renamed(node: ast.Attribute | ast.Name, names: frozenset[str]) -> Iterator[ast.AST]:
    """A dtype becomes another one; ``.T`` is dropped."""
    match node:
        case ast.Attribute(attr="T", value=value):
            yield value
        case ast.Attribute(attr=attr) if attr in DTYPES:
            yield _with(node, attr=DTYPES[attr])
        case ast.Name(id=name, ctx=ast.Load()) if WIDTHS.get(name) in names:
            yield _with(node, id=WIDTHS[name])


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
