"""YAML text → a tree that remembers where everything stands.

Built from ruamel.yaml's events, not from its constructors: nothing but mappings, lists and the scalars of YAML 1.2's
core schema can come out (``1e-5`` is a number, ``off`` a word), every duplicate key is found, and an alias costs no
more than the size of what it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

MAX_NODES = 200_000  # after aliases are expanded
MAX_DEPTH = 50
LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what ruamel.yaml counts as the end of a line
_INTEGER = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}  # fmt: skip


@dataclass(eq=False)
class Node:
    """A scalar, a list of nodes, or a mapping from key to (the key's own node, the value's node).

    ``line`` and ``column`` count from 1; ``size`` is the number of nodes in the tree below, aliases expanded.
    """

    line: int
    column: int
    value: Any
    size: int = 1

    @property
    def plain(self) -> Any:
        """The tree as dictionaries, lists and scalars."""
        match self.value:
            case dict() as mapping:
                return {name: value.plain for name, (_, value) in mapping.items()}
            case list() as items:
                return [item.plain for item in items]
            case scalar:
                return scalar


@dataclass(frozen=True)
class Flaw:
    """Something wrong with the YAML itself; line and column count from 1."""

    line: int
    column: int
    message: str


class _AbortError(Exception):
    """The rest of the text cannot be trusted; the flaw is already noted."""


def parse(text: str) -> tuple[Node | None, tuple[Flaw, ...]]:
    """The tree of a YAML document and its flaws: bad syntax (the first only), duplicate keys, tags, merge keys,
    aliases without end. The tree is None when the text is empty or when reading had to stop."""
    builder = _Builder()
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return None, (*builder.flaws, Flaw(line, column, ", ".join(filter(None, (error.problem, error.context)))))
    except ReaderError as error:
        before = LINE_BREAK.split(text[: error.position])
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return None, (*builder.flaws, Flaw(len(before), len(before[-1]) + 1, message))
    except _AbortError:
        return None, tuple(builder.flaws)
    return builder.root, tuple(builder.flaws)


@dataclass
class _Open:
    """A mapping or list whose end has not come; ``key`` waits for its value, ``None`` in a list."""

    node: Node
    anchor: str | None
    key: Node | None = None


@dataclass
class _Builder:
    flaws: list[Flaw] = field(default_factory=list)
    root: Node | None = None
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    documents: int = 0

    def take(self, event: Any) -> None:
        match event:
            case DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    self.stop(event, "a second document starts here; write one document per file")
                if event.version or event.tags:
                    self.flaw(event, "directives are not allowed")
            case ScalarEvent():
                self.check_tag(event)
                self.finish(self.node(event, _scalar(event)), event.anchor)
            case MappingStartEvent() | SequenceStartEvent():
                self.check_tag(event)
                if len(self.stack) >= MAX_DEPTH:
                    self.stop(event, f"nested deeper than {MAX_DEPTH} levels")
                self.stack.append(
                    _Open(self.node(event, {} if isinstance(event, MappingStartEvent) else []), event.anchor)
                )
            case MappingEndEvent() | SequenceEndEvent():
                ended = self.stack.pop()
                self.finish(ended.node, ended.anchor)
            case AliasEvent():
                self.finish(self.aliased(event), None)

    def node(self, event: Any, value: Any) -> Node:
        return Node(event.start_mark.line + 1, event.start_mark.column + 1, value)

    def aliased(self, event: AliasEvent) -> Node:
        name = str(event.anchor)
        if any(opened.anchor == name for opened in self.stack):
            self.stop(event, f"*{name} stands inside the value that it names")
        if name not in self.anchors:
            self.stop(event, f"*{name} names nothing: no &{name} stands before it")
        if sum(opened.node.size for opened in self.stack) + self.anchors[name].size > MAX_NODES:
            self.stop(event, f"expanding *{name} makes more than {MAX_NODES:,} values")
        return self.anchors[name]

    def finish(self, node: Node, anchor: str | None) -> None:
        """Give a complete node to the mapping or list it stands in."""
        if anchor is not None:
            self.anchors[anchor] = node
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.node.size += node.size
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self.pair(parent.node, parent.key, node)
            parent.key = None

    def pair(self, mapping: Node, key: Node, value: Node) -> None:
        if isinstance(key.value, dict | list):
            self.flaws.append(Flaw(key.line, key.column, "a key must be a word"))
            return
        name = key.value if isinstance(key.value, str) else _written(key.value)
        if name == "<<":
            self.flaws.append(
                Flaw(key.line, key.column, "merge keys are not supported; use defaults, or repeat the keys")
            )
        elif name in mapping.value:
            first = mapping.value[name][0].line
            self.flaws.append(Flaw(key.line, key.column, f"duplicate key {name!r}, first given in line {first}"))
        else:
            if value.value is None and value.line > key.line:  # nothing was written: the parser is a line ahead
                value = Node(key.line, key.column, None)
            mapping.value[name] = (key, value)

    def check_tag(self, event: Any) -> None:
        if event.tag is not None and str(event.tag) != "!":
            self.flaw(event, f"YAML tags such as {_short(str(event.tag))} are not allowed")

    def flaw(self, event: Any, message: str) -> None:
        self.flaws.append(Flaw(event.start_mark.line + 1, event.start_mark.column + 1, message))

    def stop(self, event: Any, message: str) -> None:
        self.flaw(event, message)
        raise _AbortError


def _scalar(event: ScalarEvent) -> Any:
    """The value of a scalar by YAML 1.2's core schema; what is quoted or tagged stays text."""
    text = str(event.value)
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _written(scalar: Any) -> str:
    match scalar:
        case None:
            return "null"
        case bool():
            return str(scalar).lower()
        case _:
            return str(scalar)


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")
