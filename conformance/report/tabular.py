"""The rows of a run for other programs: as CSV, and the JSON Schema of the lines of ``results.jsonl``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from conformance.report.elements import row_ratio
from conformance.report.text import visible
from conformance.store import Header, Row, Run

RESULTS_SCHEMA = Path(__file__).parent.parent / "schema" / "results.json"
COLUMNS = ("node", "suite", "case", "subject", "framework", "status", "kinds", "ratio", "summary", "entries", "seconds")


def csv_lines(run: Run) -> Iterator[str]:
    """A line of column names, then one for each row: its facts follow the columns of every row."""
    facts = list(dict.fromkeys(name for row in run.rows for name in row.facts if name not in COLUMNS))
    yield _line([*COLUMNS, *facts])
    for row in run.rows:
        yield _line([*_cells(row), *(row.facts.get(name, "") for name in facts)])


def _cells(row: Row) -> list[Any]:
    kinds = dict.fromkeys(str(finding["kind"]) for finding in row.findings)
    ratio = row_ratio(row)
    names = [row.node, row.suite, row.case, row.subject, row.framework, row.status]
    found = [" ".join(kinds), "" if ratio is None else f"{ratio:.4g}", row.summary]
    return [*names, *found, " ".join(row.entries), f"{sum(row.seconds.values()):.4g}"]


def _line(cells: list[Any]) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerow(cells)
    return visible(stream.getvalue().removesuffix("\r\n")) + "\r\n"


def results_schema() -> dict[str, Any]:
    """The JSON Schema of a line: the first is the run itself, each other one a case for a subject."""
    adapter: TypeAdapter[Any] = TypeAdapter(Header | Row)
    schema = adapter.json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A line of results.jsonl"} | schema
