"""A (case, subject) pair: run it, hold it against the ledger, and say it as a row and as one screenful of text."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from conformance.adapter import Adapter, Subject, load
from conformance.ledger import Entry, Known, New, Recognition, Stale, accuracy_class, recognise
from conformance.run import Outcome, errored, examine, judged_again, policy_of, unsupported_reason
from conformance.spec import Case, Unsupported
from conformance.store import Row, Status
from conformance.verdict import Agrees, Diverges, Errored, Finding, Verdict

FINDINGS_SHOWN = 4
TRACEBACK_SHOWN = 12  # lines; the row keeps all


@dataclass(frozen=True)
class Pair:
    """One case for one subject; ``order`` as in :class:`conformance.store.Row`."""

    case: Case
    facts: Mapping[str, Any]
    subject: str
    adapter: Adapter
    order: tuple[int, int]

    @property
    def id(self) -> str:
        """What ``repro`` and ``explain`` take: ``suite/name[framework/subject]``."""
        return f"{self.case.id}[{self.subject}]"

    @property
    def node(self) -> str:
        return f"{self.case.source.file}::{self.case.name}[{self.subject}]"


@dataclass(frozen=True)
class Conclusion:
    """What became of a pair: its row, its outcome with the tensors, and the versions that its subject reports."""

    row: Row
    outcome: Outcome
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Loaded:
    subject: Subject
    versions: Mapping[str, str]


def conclude(pair: Pair, ledger: Sequence[Entry]) -> Conclusion:
    """Run a pair and hold its verdict against the ledger."""
    if pair.adapter.missing:
        reason = f"{', '.join(pair.adapter.missing)} is not installed: {pair.adapter.install}"
        return Conclusion(_row(pair, "missing", reason, Outcome(Unsupported(reason)), ()), Outcome(Unsupported(reason)))
    loaded = _loaded(pair.subject)
    if isinstance(loaded, Errored):
        return Conclusion(_row(pair, "errored", _first_line(loaded), Outcome(loaded), ()), Outcome(loaded))
    outcome = examine(pair.case, loaded.subject)
    entries = entries_for(pair, ledger, loaded.versions)
    status, summary, shown = _status(pair, outcome, loaded.subject, entries)
    return Conclusion(_row(pair, status, summary, outcome, shown), outcome, loaded.versions)


def entries_for(pair: Pair, ledger: Sequence[Entry], versions: Mapping[str, str]) -> list[Entry]:
    """The entries that speak of a pair in these versions."""
    covering = (entry for entry in ledger if entry.covers(pair.case.id, pair.facts, pair.subject))
    return [entry for entry in covering if entry.applies(versions)]


def crash_row(pair: Pair, message: str) -> Row:
    """The row of a pair during which the process died; ``message`` is all that is known."""
    verdict = Errored("Crash", message, message)
    return _row(pair, "errored", _first_line(verdict), Outcome(verdict), ())


@cache
def _loaded(name: str) -> _Loaded | Errored:
    """A subject, or what its construction raised: a framework that cannot be imported is tried once in a process."""
    try:
        with warnings.catch_warnings(), _uncollected():
            warnings.simplefilter("ignore")  # what an import warns about is not a verdict, and must not become an error
            subject = load(name)
            return _Loaded(subject, {str(name): str(number) for name, number in subject.versions().items()})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return errored(error)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector of cycles from the hundred thousands of objects that a framework's import makes: now, and,
    since these live as long as the process, ever after."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _status(
    pair: Pair, outcome: Outcome, subject: Subject, entries: Sequence[Entry]
) -> tuple[Status, str, tuple[Entry, ...]]:
    verdict = outcome.verdict
    if isinstance(verdict, Unsupported):
        return "unsupported", unsupported_reason(verdict), ()
    observed = pair.case.expect == "observe"
    match _recognised(pair, outcome, verdict, subject, entries):
        case None:
            return "agrees", verdict.note if isinstance(verdict, Agrees) else "", ()
        case Known(entries=shown):
            prefix = f"observed: {_first_line(verdict)}. " if observed else ""
            return "known", prefix + "; ".join(f"{entry.id}: {entry.reason}" for entry in shown), shown
        case Stale(entry=entry, why=why):
            return "stale", f"the ledger entry {entry.id} ({entry.file}:{entry.line}) is stale: {why}", (entry,)
        case New(why=why, entries=partly):
            status: Status = "errored" if isinstance(verdict, Errored) else "new"
            unpinned = "not pinned in the ledger: " if observed else ""
            return status, unpinned + _first_line(verdict) + (f" ({why})" if why else ""), partly
    raise AssertionError("unreachable")


def _recognised(
    pair: Pair, outcome: Outcome, verdict: Agrees | Diverges | Errored, subject: Subject, entries: Sequence[Entry]
) -> Recognition | None:
    """Hold an outcome against the ledger. Where entries of accuracy explain part of a divergence, the rest of it is
    what the same outputs show under the wider policy."""
    observed = pair.case.expect == "observe"
    shows = [entry for entry in entries if entry.shows]
    classes = [entry for entry in entries if entry.accuracy]
    if not classes or not isinstance(verdict, Diverges) or not outcome.judged:
        return recognise(verdict, shows, observed, pair.case.sharing)
    try:
        rest = judged_again(pair.case, outcome, accuracy_class(policy_of(subject), classes))
    except ValueError as error:
        names = ", ".join(entry.id for entry in classes)
        return New(f"the accuracy of {names} leaves nothing to judge: {error}", tuple(classes))
    if isinstance(rest, Diverges) and rest.findings == verdict.findings:
        return recognise(verdict, shows, observed, pair.case.sharing)
    match recognise(rest, shows, observed, pair.case.sharing):
        case None:
            return Known(tuple(classes))
        case Known(entries=shown):
            return Known((*shown, *classes))
        case New(why=why, entries=partly):
            return New(why or f"beyond the accuracy of {', '.join(entry.id for entry in classes)}", (*partly, *classes))
        case stale:
            return stale


def _first_line(verdict: Verdict) -> str:
    match verdict:
        case Errored(exception=exception, message=message):
            return f"{exception}: {message.splitlines()[0]}"
        case Diverges(findings=findings):
            return f"{findings[0].kind}: {findings[0].message}"
        case Agrees():
            return "as the contract would have it"
        case Unsupported():
            return unsupported_reason(verdict)


def _row(pair: Pair, status: Status, summary: str, outcome: Outcome, entries: Sequence[Entry]) -> Row:
    verdict, case = outcome.verdict, pair.case
    return Row(
        node=pair.node,
        order=pair.order,
        file=case.source.file,
        line=case.source.line,
        suite=case.suite,
        case=case.id,
        why=case.why,
        subject=pair.subject,
        framework=pair.adapter.framework,
        status=status,
        summary=summary,
        facts=pair.facts,
        findings=tuple(_finding(finding) for finding in verdict.findings) if isinstance(verdict, Diverges) else (),
        measures=_measures(verdict),
        ledger=entries[0].as_data() if entries and status in ("known", "stale") else None,
        traceback=verdict.traceback if isinstance(verdict, Errored) else None,
        seconds=outcome.seconds,
        entries=tuple(entry.id for entry in entries),
    )


def _measures(verdict: Verdict) -> tuple[dict[str, Any], ...]:
    """Measures as plain values, four digits of each number: they are most of what a run stores."""
    if not isinstance(verdict, Agrees | Diverges):
        return ()
    return tuple({name: _short(value) for name, value in vars(one).items()} for one in verdict.measures)


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain values, with the ratio of its worst element."""
    data = asdict(finding)
    if finding.worst is not None:
        data["worst"]["ratio"] = finding.worst.ratio
    return data


def screenful(pair: Pair, row: Row, verdict: Verdict) -> str:
    """The failure as pytest shows it: what, where, by how much, and the command that reproduces it."""
    lines = [f"{pair.id}: {row.summary}"]
    if isinstance(verdict, Diverges):
        for finding in verdict.findings[:FINDINGS_SHOWN]:
            amount = f"{finding.count} of {finding.total} elements"
            lines.append(f"  {finding.kind}: {finding.message}; {amount}")
            if finding.worst is not None:
                worst = finding.worst
                lines += [
                    f"    worst at {finding.output}[{', '.join(map(str, worst.index))}]",
                    f"    expected {worst.expected:.9g}, actual {worst.actual:.9g}",
                    f"    error {worst.error:.3g}, bound {worst.bound:.3g}, ratio {worst.ratio:.3g}",
                ]
        if len(verdict.findings) > FINDINGS_SHOWN:
            lines.append(f"  and {len(verdict.findings) - FINDINGS_SHOWN} more findings")
    if isinstance(verdict, Errored):
        trace = verdict.traceback.rstrip().splitlines()
        cut = ["  …"] if len(trace) > TRACEBACK_SHOWN else []
        lines += [*cut, *(f"  {line}" for line in trace[-TRACEBACK_SHOWN:])]
    lines += [
        f"  case written at {pair.case.source.file}:{pair.case.source.line}",
        f"  reproduce: python -m conformance repro '{pair.id}'",
    ]
    return "\n".join(lines)
