"""The commands that read a run: ``report``, ``explain``, ``diff``, ``divergences``, ``csv`` and ``badge``.

Each takes the parsed options and returns the exit status. Raises UsageError for what does not exist. What a command
needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UsageError
from conformance.exits import DIVERGES, OK, unknown

if TYPE_CHECKING:
    from conformance.store import Run


def report(options: argparse.Namespace) -> int:
    from conformance.report.earlier import comparison, earlier_run
    from conformance.session import publish

    run = _run_of(options.run)
    try:
        compared = comparison(run, options.against or earlier_run(run))
    except (OSError, ValueError) as error:
        raise UsageError(f"{options.against} is not a run: {error}") from error
    print("\n".join(publish(run, run.folder / "report.html", compared=compared)))
    return OK


def explain(options: argparse.Namespace) -> int:
    from conformance.report.canvas import canvas_of
    from conformance.report.explain import explain_lines

    run = _run_of(options.run)
    rows = [row for row in run.rows if options.id in (f"{row.case}[{row.subject}]", row.node)]
    if not rows:
        ids = [f"{row.case}[{row.subject}]" for row in run.rows]
        raise unknown("pair", options.id, ids, f"the run {run.folder}")
    print("\n".join(explain_lines(run, rows[0], canvas_of(sys.stdout, os.environ))))
    return OK


def diff(options: argparse.Namespace) -> int:
    from conformance.report.differences import difference_lines, differences, is_worse

    old, new = _run_of(options.old), _run_of(options.new)
    print("\n".join(difference_lines(old, new, shown=len(new.rows) + len(old.rows) if options.all else 10)))
    return DIVERGES if is_worse(differences(old, new)) else OK


def divergences(options: argparse.Namespace) -> int:
    from conformance.ledgerfile import ledger_of
    from conformance.report.divergences import divergences_page

    run = _run_of(options.run)
    print(divergences_page(ledger_of(options.cases.absolute(), Path.cwd()), run), end="")
    return OK


def csv(options: argparse.Namespace) -> int:
    from conformance.report.tabular import csv_lines

    sys.stdout.writelines(csv_lines(_run_of(options.run)))
    return OK


def badge(options: argparse.Namespace) -> int:
    from conformance.report.badge import badges

    if options.all is not None:
        if options.run is not None:
            raise UsageError("badge --all takes no subject: name the folder of a run at most")
        return _write_badges(options.all, _run_of(Path(options.subject) if options.subject else None))
    if options.subject is None:
        raise UsageError("badge needs a subject, or --all and a folder to write into")
    run = _run_of(options.run)
    drawn = badges(run)
    if options.subject not in drawn:
        raise unknown("subject", options.subject, list(drawn), f"the run {run.folder}")
    print(drawn[options.subject], end="")
    return OK


def _write_badges(folder: Path, run: Run) -> int:
    from conformance.report.badge import badges, file_names

    drawn = badges(run)
    folder.mkdir(parents=True, exist_ok=True)
    for subject, name in file_names(drawn).items():
        (folder / name).write_text(drawn[subject], encoding="utf-8")
        print(folder / name)
    return OK


def _run_of(folder: Path | None) -> Run:
    from conformance.store import latest_run, read_run

    found = folder or latest_run(Path("reports"))
    if found is None:
        raise UsageError("no run in reports/: run pytest first, or name the folder of a run")
    try:
        return read_run(found)
    except (OSError, ValueError) as error:
        raise UsageError(f"{found} is not a run: {error}") from None
