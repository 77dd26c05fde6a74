"""The command line: ``python -m conformance``. No command imports a framework unless it runs one."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.environment import one_thread_each
from conformance.errors import ConformanceError

if TYPE_CHECKING:
    from conformance.pair import Pair
    from conformance.store import Run

EXIT_OK, EXIT_DIVERGES, EXIT_USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 faults or a divergence, 2 wrong usage."""
    one_thread_each(os.environ)
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
        sys.stdout.flush()
    except ConformanceError as error:
        return _complain(str(error), EXIT_DIVERGES)
    except BrokenPipeError:  # whoever reads has seen enough, as head does; nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    return status


def _parser() -> argparse.ArgumentParser:
    about = "A differential conformance suite for multi-head attention."
    parser = argparse.ArgumentParser(prog="python -m conformance", description=about)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=run)
        return made

    check = command("check", _check, "validate case files and the ledger without running anything")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")
    command("subjects", _subjects, "list the subjects and whether their framework is installed")
    report = command("report", _report, "write the HTML report of a run again")
    report.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    report.add_argument("--against", type=Path, metavar="OLD", help="folder of the run to compare it with")
    for name, run, text in (
        ("repro", _repro, "run one pair again, or write it as a script that needs only NumPy and the framework"),
        ("explain", _explain, "show what is known about one pair of the newest run"),
    ):
        made = command(name, run, text)
        made.add_argument("id", metavar="ID", help="such as 'suite/case[framework/subject]'")
        if name == "repro":
            made.add_argument("--cases", type=Path, default=Path("cases"), help="folder of case files (default: cases)")
            made.add_argument("--script", action="store_true", help="print the script instead of running the pair")
        else:
            made.add_argument("--run", type=Path, help="folder of a run (default: the newest in reports/)")
    diff = command("diff", _diff, "compare two runs: what is new, fixed, worse and better, with factors")
    diff.add_argument("old", type=Path, help="folder of a run")
    diff.add_argument("new", type=Path, nargs="?", help="folder of a run (default: the newest in reports/)")
    diff.add_argument("--all", action="store_true", help="name every pair, not the first ten of each kind")
    page = command("divergences", _divergences, "print the known divergences as a page, with where a run showed them")
    page.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    page.add_argument("--cases", type=Path, default=Path("cases"), help="folder with the ledger (default: cases)")
    rows = command("csv", _csv, "print the rows of a run as CSV, without their tensors")
    rows.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    schema = command("schema", _schema, "print the JSON Schema of case files, or of the lines of results.jsonl")
    schema.add_argument("--results", action="store_true", help="that of a line of results.jsonl")
    return parser


def _check(options: argparse.Namespace) -> int:
    from conformance.errors import LocatedError

    status = EXIT_OK
    for given in options.files:
        path: Path = given.absolute()
        if not path.is_file():
            what = "is a folder: name the files in it" if path.is_dir() else "does not exist"
            status = max(status, _complain(f"{given}: {what}", EXIT_USAGE))
            continue
        try:
            print(f"{given}: {_checked(path, Path.cwd())}")
        except LocatedError as error:
            status = max(status, _complain(str(error), EXIT_DIVERGES))
    return status


def _checked(path: Path, root: Path) -> str:
    """What a sound file holds. Raises LocatedError for one that is not."""
    from conformance.casefolder import LEDGER, check_suite
    from conformance.errors import CaseFileError

    if path.name != LEDGER:
        from conformance.suite import check_subjects, constraint_faults

        check_subjects(path, root)
        cases, idle = check_suite(path, root), constraint_faults(path, root)
        if idle:
            raise CaseFileError(idle)
        return f"{len(cases)} cases"
    from conformance.ledgerfile import ledger_of

    return f"{len(ledger_of(path.parent, root))} known divergences"


def _subjects(options: argparse.Namespace) -> int:
    from conformance.adapter import adapters

    for adapter in adapters():
        state = "installed" if not adapter.missing else f"missing {', '.join(adapter.missing)}: {adapter.install}"
        print(f"{adapter.framework} ({state})")
        for name in adapter.subjects:
            print(f"  {name}{'  sampled by default' if name in adapter.slow else ''}")
    return EXIT_OK


def _report(options: argparse.Namespace) -> int:
    from conformance.report.earlier import comparison, earlier_run
    from conformance.session import publish

    run = _run_of(options.run)
    if run is None:
        return EXIT_USAGE
    try:
        compared = comparison(run, options.against or earlier_run(run))
    except (OSError, ValueError) as error:
        return _complain(f"{options.against} is not a run: {error}", EXIT_USAGE)
    print("\n".join(publish(run, run.folder / "report.html", compared=compared)))
    return EXIT_OK


def _repro(options: argparse.Namespace) -> int:
    from conformance.ledgerfile import ledger_of
    from conformance.pair import conclude, screenful
    from conformance.reproducer import script_of

    pair = _pair_of(options)
    if pair is None:
        return EXIT_USAGE
    if options.script:
        script = script_of(pair)
        if script is None:
            return _complain(f"{pair.subject} gives no script for this case", EXIT_USAGE)
        print(script)
        return EXIT_OK
    conclusion = conclude(pair, ledger_of(options.cases.absolute(), Path.cwd()))
    print(f"status: {conclusion.row.status}")
    if conclusion.versions:
        print("versions:", ", ".join(f"{name} {number}" for name, number in conclusion.versions.items()))
    print(screenful(pair, conclusion.row, conclusion.outcome.verdict))
    return EXIT_OK if conclusion.row.status in ("agrees", "unsupported", "missing") else EXIT_DIVERGES


def _explain(options: argparse.Namespace) -> int:
    from conformance.report.terminal import explain_lines

    run = _run_of(options.run)
    if run is None:
        return EXIT_USAGE
    rows = [row for row in run.rows if options.id in (f"{row.case}[{row.subject}]", row.node)]
    if not rows:
        ids = [f"{row.case}[{row.subject}]" for row in run.rows]
        return _unknown(options.id, ids, f"the run {run.folder}")
    print("\n".join(explain_lines(run, rows[0])))
    return EXIT_OK


def _diff(options: argparse.Namespace) -> int:
    from conformance.report.differences import difference_lines, differences, is_worse

    runs = [_run_of(options.old), _run_of(options.new)]
    old, new = runs
    if old is None or new is None:
        return EXIT_USAGE
    print("\n".join(difference_lines(old, new, shown=len(new.rows) + len(old.rows) if options.all else 10)))
    return EXIT_DIVERGES if is_worse(differences(old, new)) else EXIT_OK


def _divergences(options: argparse.Namespace) -> int:
    from conformance.ledgerfile import ledger_of
    from conformance.report.divergences import divergences_page

    run = _run_of(options.run)
    if run is None:
        return EXIT_USAGE
    print(divergences_page(ledger_of(options.cases.absolute(), Path.cwd()), run), end="")
    return EXIT_OK


def _csv(options: argparse.Namespace) -> int:
    from conformance.report.tabular import csv_lines

    run = _run_of(options.run)
    if run is None:
        return EXIT_USAGE
    sys.stdout.writelines(csv_lines(run))
    return EXIT_OK


def _schema(options: argparse.Namespace) -> int:
    from conformance.casefile import json_schema
    from conformance.report.tabular import results_schema

    print(json.dumps(results_schema() if options.results else json_schema(), indent=2))
    return EXIT_OK


def _run_of(folder: Path | None) -> Run | None:
    from conformance.store import latest_run, read_run

    found = folder or latest_run(Path("reports"))
    if found is None:
        _complain("no run in reports/: run pytest first, or name the folder of a run", EXIT_USAGE)
        return None
    try:
        return read_run(found)
    except (OSError, ValueError) as error:
        _complain(f"{found} is not a run: {error}", EXIT_USAGE)
        return None


def _pair_of(options: argparse.Namespace) -> Pair | None:
    from conformance.casefolder import case_files, faulty
    from conformance.suite import find_pair, pair_ids

    root, files = Path.cwd(), case_files(options.cases.absolute())
    pair = find_pair(options.id, files, root)
    if pair is None:
        _unknown(options.id, pair_ids(files, root), f"the folder {options.cases}")
        for path in faulty(files, root):
            _complain(f"  {path.name} has faults: python -m conformance check {options.cases / path.name}", EXIT_USAGE)
    return pair


def _unknown(given: str, known: Sequence[str], where: str) -> int:
    from difflib import get_close_matches

    _complain(f"{where} holds no pair {given!r}", EXIT_USAGE)
    for near in get_close_matches(given, known, 3):
        _complain(f"  did you mean {near!r}?", EXIT_USAGE)
    return EXIT_USAGE


def _complain(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status
