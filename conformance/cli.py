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
from conformance.errors import ConformanceError, UsageError
from conformance.exits import DIVERGES, OK, USAGE, unknown
from conformance.report import commands as reporting

if TYPE_CHECKING:
    from conformance.pair import Pair


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 faults or a divergence, 2 wrong usage."""
    one_thread_each(os.environ)
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
        sys.stdout.flush()
    except UsageError as error:
        return _complain(str(error), USAGE)
    except ConformanceError as error:
        return _complain(str(error), DIVERGES)
    except BrokenPipeError:  # whoever reads has seen enough, as head does; nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
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
    report = command("report", reporting.report, "write the HTML report of a run again")
    report.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    report.add_argument("--against", type=Path, metavar="OLD", help="folder of the run to compare it with")
    for name, run, text in (
        ("repro", _repro, "run one pair again, or write it as a script that needs only NumPy and the framework"),
        ("explain", reporting.explain, "show what is known about one pair of the newest run"),
    ):
        made = command(name, run, text)
        made.add_argument("id", metavar="ID", help="such as 'suite/case[framework/subject]'")
        if name == "repro":
            made.add_argument("--cases", type=Path, default=Path("cases"), help="folder of case files (default: cases)")
            made.add_argument("--script", action="store_true", help="print the script instead of running the pair")
        else:
            made.add_argument("--run", type=Path, help="folder of a run (default: the newest in reports/)")
    diff = command("diff", reporting.diff, "compare two runs: what is new, fixed, worse and better, with factors")
    diff.add_argument("old", type=Path, help="folder of a run")
    diff.add_argument("new", type=Path, nargs="?", help="folder of a run (default: the newest in reports/)")
    diff.add_argument("--all", action="store_true", help="name every pair, not the first ten of each kind")
    page = command(
        "divergences", reporting.divergences, "print the known divergences as a page, with where a run showed them"
    )
    page.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    page.add_argument("--cases", type=Path, default=Path("cases"), help="folder with the ledger (default: cases)")
    rows = command("csv", reporting.csv, "print the rows of a run as CSV, without their tensors")
    rows.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    badge = command("badge", reporting.badge, "print an SVG badge of how a subject fared in a run")
    badge.add_argument("subject", nargs="?", metavar="SUBJECT", help="such as 'framework/subject'; not with --all")
    badge.add_argument("run", nargs="?", type=Path, help="folder of a run (default: the newest in reports/)")
    badge.add_argument("--all", type=Path, metavar="DIR", help="write one for each subject into a folder")
    schema = command("schema", _schema, "print the JSON Schema of case files, or of the lines of results.jsonl")
    schema.add_argument("--results", action="store_true", help="that of a line of results.jsonl")
    return parser


def _check(options: argparse.Namespace) -> int:
    from conformance.errors import LocatedError

    status = OK
    for given in options.files:
        path: Path = given.absolute()
        if not path.is_file():
            what = "is a folder: name the files in it" if path.is_dir() else "does not exist"
            status = max(status, _complain(f"{given}: {what}", USAGE))
            continue
        try:
            print(f"{given}: {_checked(path, Path.cwd())}")
        except LocatedError as error:
            status = max(status, _complain(str(error), DIVERGES))
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
    return OK


def _repro(options: argparse.Namespace) -> int:
    from conformance.ledgerfile import ledger_of
    from conformance.pair import conclude, screenful
    from conformance.reproducer import script_of

    pair = _pair_of(options)
    if options.script:
        script = script_of(pair)
        if script is None:
            raise UsageError(f"{pair.subject} gives no script for this case")
        print(script)
        return OK
    conclusion = conclude(pair, ledger_of(options.cases.absolute(), Path.cwd()))
    print(f"status: {conclusion.row.status}")
    if conclusion.versions:
        print("versions:", ", ".join(f"{name} {number}" for name, number in conclusion.versions.items()))
    print(screenful(pair, conclusion.row, conclusion.outcome.verdict))
    return OK if conclusion.row.status in ("agrees", "unsupported", "missing") else DIVERGES


def _schema(options: argparse.Namespace) -> int:
    from conformance.casefile import json_schema
    from conformance.report.tabular import results_schema

    print(json.dumps(results_schema() if options.results else json_schema(), indent=2))
    return OK


def _pair_of(options: argparse.Namespace) -> Pair:
    from conformance.casefolder import case_files, faulty
    from conformance.suite import find_pair, pair_ids

    root, files = Path.cwd(), case_files(options.cases.absolute())
    pair = find_pair(options.id, files, root)
    if pair is not None:
        return pair
    command = "python -m conformance check"
    broken = [f"  {path.name} has faults: {command} {options.cases / path.name}" for path in faulty(files, root)]
    missed = unknown("pair", options.id, pair_ids(files, root), f"the folder {options.cases}")
    raise UsageError("\n".join([str(missed), *broken]))


def _complain(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status
