"""Case files: YAML → validated cases, or everything that is wrong with the file, each fault where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from conformance.casefile.hints import nearest
from conformance.casefile.located import Document, Loc, fault_at, in_order, read_document, validate
from conformance.casefile.matrix import expand
from conformance.casefile.model import CaseKeys, FileKeys
from conformance.casefile.yamltree import LINE_BREAK, Node
from conformance.errors import CaseFileError, Fault
from conformance.spec import Case

SCHEMA_FILE = Path(__file__).parent.parent / "schema" / "casefile.json"


def read_case_file(path: Path, root: Path | None = None) -> tuple[Case, ...]:
    """The cases of a file, in order. ``file`` in each case's source is relative to ``root`` (the working directory).

    Raises CaseFileError with every fault of the file, ordered by position; OSError when it cannot be read.
    """
    document, faults = read_document(path, root)
    if document is None:
        raise CaseFileError(in_order(faults))
    keys, refused = validate(document, FileKeys)
    tainted: set[str] | None = None
    if keys is None:
        faults += tuple(fault for _, fault in refused)
        tainted = _prune(document, [loc for loc, _ in refused])
        keys, _ = validate(document, FileKeys)
    elif faults:
        tainted = set()
    cases: tuple[Case, ...] = ()
    if keys is not None:
        cases, found = expand(keys, document, tainted)
        faults += found
    if faults:
        raise CaseFileError(in_order(faults))
    return cases


def duplicate_suites(cases: Iterable[Case], root: Path | None = None) -> tuple[Fault, ...]:
    """A fault for each file whose suite an earlier file has too. ``cases`` are those of all files, in order; their
    files are relative to ``root``."""
    homes: dict[str, str] = {}
    faults: dict[tuple[str, str], Fault] = {}
    for case in cases:
        file = case.source.file
        home = homes.setdefault(case.suite, file)
        if home != file and (case.suite, file) not in faults:
            faults[case.suite, file] = _suite_fault(file, f"the suite {case.suite!r} is already in {home}", root)
    return tuple(faults.values())


def _suite_fault(file: str, message: str, root: Path | None) -> Fault:
    lines = LINE_BREAK.split(((root or Path.cwd()) / file).read_text("utf-8-sig"))
    for number, line in enumerate(lines, 1):
        found = re.match(r"[\s{]*[\"']?suite[\"']?\s*:\s*", line)
        if found:
            return fault_at(file, lines, number, found.end() + 1, message)
    return fault_at(file, lines, 1, 1, message)


def _prune(document: Document, refused: list[Loc]) -> set[str]:
    """Take out of a document what was refused, in the smallest pieces that can be missed, so that the rest can be
    checked too. Returns the fields whose defaults are then unknown."""
    tainted: set[str] = set()
    doomed: list[tuple[Node, Node]] = []
    for loc in refused:
        piece = _piece(document, loc)
        if "defaults" in piece[:3] or (len(piece) > 1 and piece[-2] == "matrix"):
            name = str(piece[-1])
            tainted |= {name, nearest(name, CaseKeys.model_fields) or name}
        if piece in (("suite",), ("why",)) or not piece:
            continue
        doomed.append((document.node(piece[:-1]), document.node(piece)))
    for around, node in doomed:
        match around.value:
            case dict() as mapping:
                around.value = {name: pair for name, pair in mapping.items() if pair[1] is not node}
            case list() as items:
                around.value = [item for item in items if item is not node]
    _patch(document)
    return tainted


def _piece(document: Document, loc: Loc) -> Loc:
    """What to take out so that the value at ``loc`` is gone: one value of an axis, one default, one entry of
    ``include``, one key; a whole matrix for an exclusion, since without it other combinations would be wrong."""
    loc = tuple(_present(document, loc))
    start = 2 if loc[:1] == ("matrices",) else 0
    match loc[start:]:
        case ("matrix", str(), int(), *_):
            return loc[: start + 3]
        case ("matrix", str(), *_) | ("defaults", str(), *_):
            return loc[: start + 2]
        case ("exclude", *_):
            return loc[:start] or ("matrix",)
        case ("include", int(), *_):
            return loc[:2]
        case (str(), *_):
            return loc[: start + 1]
        case _:
            return loc


def _present(document: Document, loc: Loc) -> Iterator[int | str]:
    """The elements of ``loc`` that are in the file."""
    node = document.root
    for element in loc:
        match node.value:
            case dict() as mapping if element in mapping:
                node = mapping[element][1]
            case list() as items if isinstance(element, int) and element < len(items):
                node = items[element]
            case _:
                continue
        yield element


def _patch(document: Document) -> None:
    """Put words where required ones are missing or refused, and drop what pruning has emptied."""
    mapping = document.root.value
    for name in ("suite", "why"):
        node = mapping[name][1] if name in mapping else None
        if node is None or not isinstance(node.value, str) or not re.fullmatch(r"[A-Za-z0-9._+-]+", node.value):
            mapping[name] = (document.root, Node(1, 1, "unreadable"))
    for name in ("matrix", "matrices", "include", "exclude"):
        if name in mapping and not _without_gaps(mapping[name][1]):
            del mapping[name]


def _without_gaps(node: Node) -> bool:
    """Drop empty axes, and matrices without axes; whether anything is left."""
    match node.value:
        case dict() as mapping:
            node.value = {name: pair for name, pair in mapping.items() if pair[1].value not in ([], {})}
        case list() as items:
            node.value = [item for item in items if not _is_hollow(item)]
    return bool(node.value)


def _is_hollow(block: Node) -> bool:
    return isinstance(block.value, dict) and "matrix" in block.value and not _without_gaps(block.value["matrix"][1])


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft-07, which editors read) of a case file."""
    schema: dict[str, Any] = _draft_07(FileKeys.model_json_schema())
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | schema | {"title": "Attention conformance cases"}


def _draft_07(value: Any) -> Any:
    """Rewrite pydantic's 2020-12 schema: ``definitions``, and no keys beside a ``$ref``, which draft-07 ignores."""
    if isinstance(value, list):
        return [_draft_07(item) for item in value]
    if isinstance(value, str):
        return value.replace("#/$defs/", "#/definitions/")
    if not isinstance(value, dict):
        return value
    renamed = {
        {"$defs": "definitions"}.get(name, name): _draft_07(item)
        for name, item in value.items()
        if not (name == "default" and item is None)
    }
    if "$ref" in renamed and len(renamed) > 1:
        return {"allOf": [{"$ref": renamed.pop("$ref")}], **renamed}
    return renamed
