"""One case in the terminal, as its page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.report.alike import Cluster, clusters
from conformance.report.boundtext import bound_lines
from conformance.report.canvas import PLAIN, Canvas
from conformance.report.elements import Element, fields_of, finding_ratio, row_ratio, worst_elements
from conformance.report.entry import SYMBOLS, Entry
from conformance.report.heattext import heat_lines, mask_lines
from conformance.report.terminal import reproduce_command
from conformance.report.text import brief_text, number, number_text, one_line, ratio_text, rms_text
from conformance.spec import Array
from conformance.store import Header, Row, Run

WIDTH = 100
UNUSED = ("none", "default", "no", "")
SIZES = ("B", "T", "S", "H", "K", "D", "Dh", "Dhv", "kdim", "vdim", "output_dim")


def explain_lines(run: Run, row: Row, canvas: Canvas = PLAIN) -> list[str]:
    """A case page as text: what the case is, its mask, what was found, where, the ledger entry, the environment."""
    ratio = row_ratio(row)
    lines = [f"{row.case} [{row.subject}]", f"{row.status}: {row.summary}" if row.summary else row.status]
    lines += [f"{row.file}:{row.line}", *([row.why] if row.why else []), ""]
    lines += list(_facts(row.facts))
    if ratio is not None:
        lines.append(f"worst ratio {ratio_text(ratio)}")
    if row.findings:
        lines += ["", "findings", *(line for finding in row.findings for line in _finding(finding))]
    lines = [*map(one_line, lines), *_located(run, row, canvas)]
    after = [*bound_lines(row), *_alike(run, row)]
    if row.measures:
        after += ["", "checked", *(_measure(measure) for measure in row.measures)]
    if row.ledger:
        after += ["", "ledger", *(f"  {key}: {_flat(value)}" for key, value in row.ledger.items() if _flat(value))]
    if row.traceback:
        after += ["", "traceback", *(f"  {line}" for line in row.traceback.splitlines())]
    after += ["", "environment", *_environment(run.header)]
    return [*lines, *map(one_line, after), "", f"reproduce  {reproduce_command(row)}"]


def _alike(run: Run, row: Row) -> Iterator[str]:
    """The subjects that ran the case, clustered by equal behaviour; nothing for one that ran alone."""
    case = [other for other in run.rows if (other.file, other.case) == (row.file, row.case)]
    if len(case) > 1:
        entries = (Entry(place, other, row_ratio(other)) for place, other in enumerate(case))
        yield from ["", "who agrees with whom", *map(_cluster, clusters(entries))]


def _cluster(cluster: Cluster) -> str:
    status, first = cluster[0].row.status, cluster[0]
    what = f" ({', '.join(first.kinds)} {ratio_text(first.ratio)})" if first.kinds else ""
    names = " = ".join(entry.row.subject for entry in cluster)
    return f"  {SYMBOLS[status]} {status}{what}: {names}"


def _located(run: Run, row: Row, canvas: Canvas) -> Iterator[str]:
    """Where a row differs, as far as its tensors were kept: the worst elements, the face of the worst, the mask."""
    tensors = run.tensors(row)
    elements = worst_elements(row, tensors) if row.findings else ()
    blocked = tensors.get("blocked")
    if elements:
        yield from ["", "worst elements"]
        yield from map(one_line, _elements(elements, row.facts))
    if elements and not tensors:
        yield from ["", "no heat map: the tensors of this row were not kept"]
    for drawn in fields_of(tensors):
        if elements and drawn.output == elements[0].output:
            yield from _titled("heat map", heat_lines(drawn, elements[0], blocked, canvas))
    if blocked is not None:
        yield from _titled("mask", mask_lines(blocked, _sample_and_head(elements[:1], blocked), canvas))


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield from ["", title, *lines] if lines else []


def _sample_and_head(worst: Sequence[Element], blocked: Array) -> tuple[int, int]:
    """The sample and head of an element of the weights, else the sample of an output and its first head."""
    index = worst[0].index if worst else ()
    weights, output = len(index) == 4, len(index) == 3
    return (index[0], index[1]) if weights else (index[0] if output else 0, 0)


def _facts(facts: Mapping[str, Any]) -> Iterator[str]:
    """Sizes, then what the case uses, then the names of what it does not, as on the page."""
    sizes = "  ".join(f"{name} {facts[name]}" for name in SIZES if facts.get(name) is not None)
    if sizes:
        yield sizes
    others = {key.replace("_", " "): _flat(value) for key, value in facts.items() if key not in SIZES}
    used = [f"{key}: {value}" for key, value in others.items() if value not in UNUSED]
    yield from _wrapped(used, "")
    yield from _wrapped([key for key, value in others.items() if value in UNUSED], "not used: ")


def _wrapped(words: Sequence[str], first: str) -> Iterator[str]:
    """Words in lines of at most :data:`WIDTH` characters, none of them broken."""
    line = first
    for word in words:
        longer = f"{line}{'' if line in ('', first) else ', '}{word}"
        if len(longer) > WIDTH and line not in ("", first):
            yield f"{line},"
            longer = word
        line = longer
    if line != first:
        yield line


def _environment(header: Header) -> Iterator[str]:
    facts = {"versions": header.versions, **header.environment, "command": header.command}
    yield from (f"  {name}: {_flat(value)}" for name, value in facts.items() if value)


def _flat(value: Any) -> str:
    """A recorded value on one line."""
    match value:
        case Mapping():
            return ", ".join(f"{name} {_flat(item)}" for name, item in value.items())
        case list() | tuple():
            return ", ".join(map(str, value))
        case bool():
            return "yes" if value else "no"
        case _:
            return "" if value is None else str(value)


def _finding(finding: Mapping[str, Any]) -> Iterator[str]:
    count = f"{finding.get('count', 1)} of {finding.get('total', 1)}"
    yield f"  {finding['output']}: {finding['kind']}, {count}, worst ratio {ratio_text(finding_ratio(finding))}"
    yield f"    {finding['message']}"


def _elements(elements: tuple[Element, ...], facts: Mapping[str, Any]) -> Iterator[str]:
    dtype, (expected, actual) = str(facts.get("dtype", "")), _sides(facts)
    for element in elements:
        yield (
            f"  {element.place}: {expected} {number_text(element.expected, dtype)}, {actual} "
            f"{number_text(element.actual, dtype)}, error {brief_text(element.error)}, bound "
            f"{brief_text(element.bound)}, ratio {ratio_text(element.ratio)}"
        )


def _sides(facts: Mapping[str, Any]) -> tuple[str, str]:
    """What the two values of an element are, in the words of the page (assets/sides.js)."""
    match facts.get("relation", "none"):
        case "none" | "" | None:
            return "expected", "actual"
        case "conservation":
            return "conserved", "actual"
        case _:
            return "other call", "this call"


def _measure(measure: Mapping[str, Any]) -> str:
    largest, error = number(measure.get("max_ratio")), number(measure.get("max_abs_error"))
    line = f"  {measure['output']}: largest ratio {ratio_text(largest)}, largest error {brief_text(error)}"
    rms = number(measure.get("rms"))
    return line if rms is None else f"{line}, rms(error/σ) {rms_text(rms)}"
