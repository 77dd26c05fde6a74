"""YAML files validated by a pydantic model, every fault located: file, line, column, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from conformance.casefile.hints import nearest, nearest_key
from conformance.casefile.yamltree import LINE_BREAK, Flaw, Node, parse
from conformance.errors import CaseFileError, Fault, LocatedError

Loc = tuple[int | str, ...]
M = TypeVar("M", bound=BaseModel)
MAX_BYTES = 4 * 2**20
WORD = "word"  # tag, in a union, of the member that is a word where another is a mapping
NOT_BLANK = r"\S"  # pattern of text that must say something


@dataclass(frozen=True)
class Document:
    """A YAML file and the position of everything in it.

    A *loc* is the path to a value as pydantic writes it: ``("include", 0, "mask", "causal")``. Elements that are not in
    the file (the name of a union's member, a missing key) are stepped over, so every loc has a position.
    """

    file: str
    lines: tuple[str, ...]
    root: Node

    def node(self, loc: Sequence[int | str]) -> Node:
        """The value at ``loc``, or the innermost value around it that exists."""
        return self._steps(loc)[-1][1]

    def exists(self, loc: Sequence[int | str]) -> bool:
        """Whether every element of ``loc`` is in the file."""
        return len(self._steps(loc)) == len(loc) + 1

    def line(self, loc: Sequence[int | str]) -> int:
        """Line, from 1, of the value at ``loc``; of its key where it has one."""
        key, value = self._steps(loc)[-1]
        return (key or value).line

    def fault(
        self, loc: Sequence[int | str], message: str, suggestion: str | None = None, *, on_key: bool = False
    ) -> Fault:
        """A fault at the value at ``loc``, or at its key."""
        key, value = self._steps(loc)[-1]
        node = key if on_key and key is not None else value
        return fault_at(self.file, self.lines, node.line, node.column, message, suggestion)

    def _steps(self, loc: Sequence[int | str]) -> list[tuple[Node | None, Node]]:
        """Key and value of every element of ``loc`` that is in the file, the root first."""
        steps: list[tuple[Node | None, Node]] = [(None, self.root)]
        for element in loc:
            inner = steps[-1][1].value
            if isinstance(inner, dict) and element in inner:
                steps.append(inner[element])
            elif isinstance(inner, list) and isinstance(element, int) and element < len(inner):
                steps.append((None, inner[element]))
        return steps


def fault_at(
    file: str, lines: Sequence[str], line: int, column: int, message: str, suggestion: str | None = None
) -> Fault:
    """A fault with the text of its line."""
    return Fault(file, line, column, message, lines[line - 1] if line <= len(lines) else "", suggestion)


def shown_path(path: Path, root: Path | None = None) -> str:
    """``path`` relative to ``root`` (the working directory when None), with forward slashes; absolute when outside."""
    absolute, base = path.absolute(), (root or Path.cwd()).absolute()
    return (absolute.relative_to(base) if absolute.is_relative_to(base) else absolute).as_posix()


def read_document(path: Path, root: Path | None = None) -> tuple[Document | None, tuple[Fault, ...]]:
    """Read a YAML file whose top level is a mapping. Faults of the YAML itself come beside the document, which is
    None when they leave nothing to go on. Raises OSError when the file cannot be read at all."""
    file = shown_path(path, root)
    raw = path.read_bytes()
    if len(raw) > MAX_BYTES:
        return None, (Fault(file, 1, 1, f"the file has {len(raw):,} bytes; at most {MAX_BYTES:,} are read"),)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = LINE_BREAK.split(raw[: error.start].decode("utf-8", "replace").removeprefix("\ufeff"))
        message = f"the file is not UTF-8: byte 0x{raw[error.start]:02X} cannot stand here"
        return None, (Fault(file, len(before), len(before[-1]) + 1, message),)
    lines = tuple(LINE_BREAK.split(text))
    tree, flaws = parse(text)
    faults = tuple(_fault_of(file, lines, flaw) for flaw in flaws)
    if tree is None:
        return None, faults or (Fault(file, 1, 1, "the file is empty"),)
    if not isinstance(tree.value, dict):
        message = (
            "the file is empty" if tree.value is None else f"expected keys with values, got {describe(tree.plain)}"
        )
        return None, (*faults, fault_at(file, lines, tree.line, tree.column, message))
    return Document(file, lines, tree), faults


def load_located(
    path: Path, model: type[M], *, root: Path | None = None, error: type[LocatedError] = CaseFileError
) -> tuple[M, Document]:
    """A YAML file as an instance of ``model``, and the positions of its values.

    Raises ``error`` with every fault of the file, ordered by position.
    """
    document, faults = read_document(path, root)
    if document is None:
        raise error(in_order(faults))
    instance, problems = validate(document, model)
    faults += tuple(fault for _, fault in problems)
    if instance is None or faults:
        raise error(in_order(faults))
    return instance, document


def in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Faults by position, each once."""
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: (fault.file, fault.line, fault.column)))


def validate(document: Document, model: type[M]) -> tuple[M | None, tuple[tuple[Loc, Fault], ...]]:
    """An instance of ``model``, or None and everything the model refuses, with its loc."""
    try:
        return model.model_validate(document.root.plain), ()
    except ValidationError as error:
        return None, tuple(_refusals(document, model, error))


def _refusals(document: Document, model: type[BaseModel], error: ValidationError) -> Iterator[tuple[Loc, Fault]]:
    for details in error.errors(include_url=False):
        loc: Loc = (*details["loc"], *details.get("ctx", {}).get("path", ()))
        message, suggestion = _explained(details, model)
        on_key = details["type"] == "extra_forbidden" or loc[-1] == "[key]"
        yield loc, document.fault(loc, message, suggestion, on_key=on_key)


def _explained(details: ErrorDetails, model: type[BaseModel]) -> tuple[str, str | None]:
    """pydantic's error in this project's words, and what was probably meant."""
    given, context = details["input"], details.get("ctx", {})
    name = next((str(part) for part in reversed(details["loc"]) if isinstance(part, str)), "")
    match details["type"]:
        case "extra_forbidden":
            return f"unknown key {name!r}", nearest_key(model, details["loc"])
        case "missing":
            return f"the key {name!r} is missing", None
        case "literal_error":
            allowed = re.findall(r"'([^']*)'", context["expected"])
            expected = ", ".join(allowed) or str(context["expected"])
            keys = ", or keys with values" if details["loc"][-1] == WORD else ""
            return f"{describe(given)} is not one of: {expected}{keys}", _word(given, allowed)
        case "string_pattern_mismatch" if context["pattern"] == NOT_BLANK:
            return "must not be empty", None
        case "list_type":
            return f"expected a list, got {describe(given)}", None if given is None else f"[{_yaml(given)}]"
        case kind:
            return _PHRASES.get(kind, "{msg}").format_map(
                {"given": describe(given), "msg": details["msg"]} | context
            ), None


_PHRASES: Mapping[str, str] = {
    "int_type": "expected a whole number, got {given}",
    "float_type": "expected a number, got {given}",
    "bool_type": "expected true or false, got {given}",
    "string_type": "expected text, got {given}",
    "model_type": "expected keys with values, got {given}",
    "dict_type": "expected keys with values, got {given}",
    "greater_than": "must be more than {gt}, got {given}",
    "greater_than_equal": "must be at least {ge}, got {given}",
    "less_than": "must be less than {lt}, got {given}",
    "less_than_equal": "must be at most {le}, got {given}",
    "finite_number": "must be finite, got {given}",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "{given} does not have the form {pattern}",
    "value_error": "{error}",
}


def _word(given: Any, allowed: Sequence[str]) -> str | None:
    return nearest(given, allowed) if isinstance(given, str) else None


def describe(value: Any) -> str:
    """A short description of a YAML value for a message."""
    match value:
        case None:
            return "an empty value"
        case bool():
            return str(value).lower()
        case dict():
            return "keys with values"
        case list():
            return "a list"
        case str():
            return repr(value if len(value) <= 40 else value[:37] + "…")
        case _:
            return str(value)


def _yaml(value: Any) -> str:
    return "{…}" if isinstance(value, dict) else describe(value).strip("'")


def _fault_of(file: str, lines: Sequence[str], flaw: Flaw) -> Fault:
    return fault_at(file, lines, flaw.line, flaw.column, flaw.message)
