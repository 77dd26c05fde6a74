"""Whether the ledger accounts for what a drawn case shows.

The shipped cases hold each known divergence to what it shows there. Drawn data can hide one (a key that must not be
attended to, with the value of one that may) or make one way to answer a blocked row look like another (over equal
tokens the mean of all values is the unmasked answer). Here it matters only that nothing else is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.soundness_tally import OUTSIDE
from conformance.adapter import load
from conformance.errors import NothingJudged
from conformance.ledger import Entry, accuracy_class
from conformance.pair import Conclusion, Pair, entries_for
from conformance.run import Outcome, judged_again, policy_of
from conformance.verdict import Diverges, Errored, Finding, Kind

FINITE: tuple[Kind, ...] = ("uniform-blocked-row", "unmasked-blocked-row", "blocked-row")  # answers of a blocked row
NOT_JUDGED = "not judged"
HIDDEN = "known, hidden by the data"


def judged(pair: Pair, conclusion: Conclusion, ledger: Sequence[Entry]) -> str:
    """The status of a pair as in a run, save for a stale or new one: hidden where every finding is one that an entry
    for this pair tells of, else outside the ledger. Drawn numbers may also be too large for every bound."""
    status, verdict = conclusion.row.status, conclusion.outcome.verdict
    if isinstance(verdict, Errored) and verdict.exception == NothingJudged.__name__:
        return NOT_JUDGED
    if status not in ("new", "stale", "errored"):
        return status
    entries = entries_for(pair, ledger, conclusion.versions)
    if isinstance(verdict, Errored) or unaccounted(pair, conclusion.outcome, entries):
        return OUTSIDE
    return HIDDEN


def unaccounted(pair: Pair, outcome: Outcome, entries: Sequence[Entry]) -> list[Finding]:
    """The findings that no entry tells of, held to the accuracy that entries leave to the subject."""
    verdict = outcome.verdict
    classes = [entry for entry in entries if entry.accuracy]
    if isinstance(verdict, Diverges) and classes:
        verdict = judged_again(pair.case, outcome, accuracy_class(policy_of(load(pair.subject)), classes))
    findings = verdict.findings if isinstance(verdict, Diverges) else ()
    return [one for one in findings if not any(_tells_of(entry, one, pair.case.sharing) for entry in entries)]


def _tells_of(entry: Entry, finding: Finding, sharing: str) -> bool:
    kinds = FINITE if finding.kind in FINITE else (finding.kind,)
    return any(entry.accounts_for(replace(finding, kind=kind), sharing) for kind in kinds)
