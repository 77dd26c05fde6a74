"""Is the bound sound? Random comparisons over every subject: none may lie outside its bound, save as the ledger says.

::

    python benchmarks/soundness.py --comparisons 200000 --seed 1

A comparison is one output (attn_output, attn_weights or one gradient) of one subject on one drawn case. The exit status
is 1 when anything lies outside the ledger; each such case is written as a case file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a script, this folder stands there instead

from conformance.environment import one_thread_each


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, compare, print the quantiles; returns 0, 1 for violations, or 2 when no subject matches."""
    one_thread_each(os.environ)
    options = _parser().parse_args(arguments)
    from benchmarks.page import PAGE, Table
    from benchmarks.soundness_run import Session
    from benchmarks.soundness_tally import page_lines, table

    session = Session.of(options.subjects, options.cases, options.into, options.seed)
    if not session.free and not session.pooled:
        print(f"no subject that can run here is like {options.subjects!r}", file=sys.stderr)
        return 2
    print("\n".join(session.introduction()), flush=True)
    session.run(options.comparisons, options.seconds)
    data = session.as_data()
    print("\n".join(["", *table(data), "", *session.summary()]))
    if options.write:
        found = Table("soundness", lambda: page_lines(data))
        PAGE.write_text(found.put(PAGE.read_text("utf-8"), "\n".join(found.lines()) + "\n"), "utf-8")
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 1 if session.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=2000, help="stop after so many (default: 2000)")
    parser.add_argument("--seconds", type=float, help="stop after so many seconds, whatever was reached")
    parser.add_argument("--seed", type=int, default=1, help="draw N of a seed is the same in every run (default: 1)")
    parser.add_argument("--subjects", default="*", metavar="PATTERN", help="such as 'torch/*' (default: all)")
    parser.add_argument("--cases", type=Path, default=Path("cases"), help="folder with the ledger (default: cases)")
    parser.add_argument(
        "--into", type=Path, default=Path("reports/soundness"), help="where violations are written as case files"
    )
    parser.add_argument("--write", action="store_true", help="put the largest ratios into docs/tolerance.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="save counts and quantiles")
    return parser


if __name__ == "__main__":
    sys.exit(main())
