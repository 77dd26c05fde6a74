"""View model → one HTML file that opens from disk and asks the network for nothing.

Styles and scripts stand inside the file and are named by their hashes in a content security policy, so that no text of
a run, however it is written, can run as code. Scripts are plain modules; they become one by dropping their import
lines, which is why their top-level names are distinct.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from conformance.report.changes import KINDS, Comparison
from conformance.report.entry import DIVERGING, MEANINGS, SEVERITY, SYMBOLS
from conformance.report.index import deflated_json, index_of, plain
from conformance.report.model import View, view_of
from conformance.report.pack import Packed, Reproducer, packed
from conformance.report.text import clipped, plural, ratio_text, visible
from conformance.store import Run

HERE = Path(__file__).parent
ROWS_IN_HTML = 1_500  # diverging rows written as HTML; the others are listed by the page's scripts
CHANGES_SHOWN = 20  # of each kind, written as HTML; the search box lists all
PATTERNS_SHOWN = 8  # the others are folded
STYLES = ("base.css", "overview.css", "sections.css", "case.css")
SCRIPTS = (
    "dom.js",
    "data.js",
    "state.js",
    "search.js",
    "chips.js",
    "overview.js",
    "download.js",
    "tensors.js",
    "colour.js",
    "heatmap.js",
    "sides.js",
    "maskpicture.js",
    "panels.js",
    "bound.js",
    "others.js",
    "heatsection.js",
    "casepage.js",
    "keys.js",
    "main.js",
)
MARKS = {"new": "✕", "fixed": "✓", "worse": "↑", "better": "↓", "changed": "≠", "added": "+", "gone": "−"}
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def write_report(
    run: Run, path: Path, reproducer: Reproducer | None = None, comparison: Comparison | None = None
) -> None:
    """Write the report of a run to ``path``, creating its folder.

    ``reproducer`` gives the text of a script that shows one row's divergence, or None where there is none; it is asked
    for diverging rows only. ``comparison`` is that with an earlier run. Raises OSError when the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(view_of(run, comparison), reproducer), encoding="utf-8", errors="backslashreplace")


def page(view: View, reproducer: Reproducer | None = None) -> str:
    """The report as HTML text."""
    style, script = Markup(stylesheet()), Markup(module())
    store: Packed = packed(view, reproducer)
    shown = [entry.number for entry in view.diverging[:ROWS_IN_HTML]]
    words = {"listed": shown, "symbols": SYMBOLS, "meanings": MEANINGS}
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            run=view.run,
            header=view.run.header,
            shown=frozenset(shown),
            packed=store,
            index=deflated_json(index_of(view) | words),
            style=style,
            script=script,
            policy=_policy(style, script),
            statuses=SEVERITY,
            diverging=DIVERGING,
            columns=_columns(view),
            symbols=SYMBOLS,
            meanings=MEANINGS,
            kinds=KINDS,
            marks=MARKS,
            changes_shown=CHANGES_SHOWN,
            patterns_shown=PATTERNS_SHOWN,
        )
    )


def stylesheet() -> str:
    return "\n".join(_asset(name) for name in STYLES)


def module() -> str:
    """All scripts as one module, in the order of their dependence."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _asset(name))) for name in SCRIPTS)


def _asset(name: str) -> str:
    return (HERE / "assets" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"ratio": ratio_text, "plural": plural, "stem": _stem, "local": _local, "flat": _flat}
    environment.filters["short"] = _short
    return environment


def _finalize(value: Any) -> Any:
    """Control characters made visible in every value that a template writes."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _stem(file: str) -> str:
    """The topic of a case file: its name without folder and ending."""
    return file.rpartition("/")[2].removesuffix(".yaml").removesuffix(".yml") or file


def _short(value: Any, length: int = 200) -> str:
    """Text for the first screen, which a text of any length must not break; a case's page has the whole."""
    return clipped(str(value), length)


def _local(subject: str, framework: str) -> str:
    """A subject's name without its framework."""
    return subject.removeprefix(f"{framework}/") or subject


def _columns(view: View) -> list[tuple[str, list[str]]]:
    """Subjects by framework, both in the order of the run."""
    frameworks = {entry.row.subject: entry.row.framework for entry in view.entries}
    columns: dict[str, list[str]] = {}
    for subject in view.subjects:
        columns.setdefault(frameworks[subject], []).append(subject)
    return list(columns.items())


def _flat(value: Any) -> str:
    """A recorded value as one line of text."""
    match plain(value):
        case dict() as mapping:
            return ", ".join(f"{key} {_flat(item)}" for key, item in mapping.items()) or "none"
        case list() as items:
            return ", ".join(map(_flat, items)) or "none"
        case None:
            return "—"
        case bool() as flag:
            return "yes" if flag else "no"
        case other:
            return str(other)
