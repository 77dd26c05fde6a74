"""Known divergences as data, strict in both directions.

An entry says which subjects, on which cases, show which kinds of findings, in which versions, and why. A pair that
diverges otherwise is new; a pair that an entry covers and that does not show what it says is stale.

An entry of ``accuracy`` says instead that a subject reaches only the accuracy of a wider policy (a softmax in float32
for float64 inputs): rounding may still land inside the bound, so a pair it covers may agree, but what lies outside
must lie inside the bound of that policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, cast

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from conformance.policy import Policy, Precision
from conformance.store import Row
from conformance.verdict import Agrees, Diverges, Errored, Finding, Kind, Verdict


@dataclass(frozen=True)
class Entry:
    """A known divergence; ``line`` is where its id stands in ``file``."""

    id: str
    file: str
    line: int
    subjects: tuple[str, ...]
    when: Mapping[str, Any]
    unless: Mapping[str, Any]
    cases: tuple[str, ...]
    shows: Mapping[str, tuple[str, ...]]
    accuracy: Mapping[str, Precision]
    gradients_of: tuple[str, ...]
    message: str | None
    versions: Mapping[str, str]
    reason: str
    link: str | None
    since: str

    def covers(self, case: str, facts: Mapping[str, Any], subject: str) -> bool:
        """Whether the entry speaks about this pair, whatever is installed. What a subject answers is no concern of a
        relation, which compares it with itself: only entries that show ``relation`` or the call speak of one."""
        return (
            (facts.get("relation", "none") == "none" or self._speaks_of_relations)
            and any(fnmatchcase(subject, pattern) for pattern in self.subjects)
            and (not self.cases or any(fnmatchcase(case, pattern) for pattern in self.cases))
            and all(_holds(facts[name], wanted) for name, wanted in self.when.items())
            and not (self.unless and all(_holds(facts[name], wanted) for name, wanted in self.unless.items()))
        )

    @property
    def _speaks_of_relations(self) -> bool:
        return bool(self.accuracy) or "call" in self.shows or any("relation" in kinds for kinds in self.shows.values())

    def accounts_for(self, finding: Finding, sharing: str) -> bool:
        """Whether the entry says that this may be found. Without ``gradients_of`` it speaks of every gradient but the
        output bias's, which depends on the cotangent alone."""
        category = category_of(finding)
        if finding.kind not in self.shows.get(category, ()):
            return False
        if category != "gradients":
            return True
        name = finding.output.removesuffix(".gradient")
        if not self.gradients_of:
            return name != "output_bias"
        return name in {_SHARED.get(sharing, {}).get(one, one) for one in self.gradients_of}

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Whether the versions that run are those the entry was written for."""
        return all(name in versions and _within(versions[name], wanted) for name, wanted in self.versions.items())

    def as_data(self) -> dict[str, Any]:
        """The entry as plain values, for the store."""
        return asdict(self)


# Inputs that are one object have one gradient, under the first name.
_SHARED = {"self": {"key": "query", "value": "query"}, "key-value": {"value": "key"}, "query-key": {"key": "query"}}


@dataclass(frozen=True)
class Known:
    """The findings are what the entries say."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Stale:
    """An entry covers the pair, and the pair does not show what it says."""

    entry: Entry
    why: str


@dataclass(frozen=True)
class New:
    """Nothing in the ledger accounts for the findings, or for those beyond what ``entries`` say."""

    why: str = ""
    entries: tuple[Entry, ...] = ()


Recognition = Known | Stale | New


def recognise(
    verdict: Agrees | Diverges | Errored, entries: Sequence[Entry], observed: bool = False, sharing: str = "separate"
) -> Recognition | None:
    """Hold a verdict against the entries that cover its pair; None when it agrees and no entry says otherwise.

    Accidents of the program (a NameError, say) are never known: no entry can be about them. ``sharing`` tells under
    which name a shared input's gradient stands. An ``observed`` case has no right answer: agreeing with the contract
    is a behaviour like others, to be pinned too.
    """
    if isinstance(verdict, Errored) and verdict.accident:
        return New()
    found = _shown(verdict)
    shown = found or ({"call": ("as-contract",)} if observed else {})
    if isinstance(verdict, Errored) or "call" in found:
        entries = [entry for entry in entries if "call" in entry.shows]  # nothing else was reached
    else:
        judged = judged_categories(verdict)
        entries = [entry for entry in entries if _speaks_of(entry, judged)]
    for entry in entries:
        missing = _missing(entry, verdict, shown)
        if missing:
            return Stale(entry, missing)
    if not shown:
        return None
    findings = verdict.findings if isinstance(verdict, Diverges) else _stand_ins(shown)
    left = [one for one in findings if not any(entry.accounts_for(one, sharing) for entry in entries)]
    extra = list(dict.fromkeys(f"{one.output}: {one.kind}" for one in left))
    if not extra:
        return Known(tuple(entries))
    beyond = f"beyond {', '.join(entry.id for entry in entries)}: {'; '.join(extra)}" if entries else ""
    return New(beyond, tuple(entries))


def accuracy_class(policy: Policy, entries: Sequence[Entry]) -> Policy:
    """The policy widened by what the entries of accuracy say; the same policy when there is none."""
    for entry in entries:
        changes: dict[str, Any] = dict(entry.accuracy)
        policy = replace(policy, **changes)
    return policy


def category_of(finding: Finding) -> str:
    """Which part of an answer a finding is about."""
    if finding.output.endswith(".gradient"):
        return "gradients"
    return {"attn_output": "output", "attn_weights": "weights"}.get(finding.output, "call")


def judged_categories(verdict: Agrees | Diverges) -> frozenset[str]:
    """Parts of the answer that were looked at."""
    findings = verdict.findings if isinstance(verdict, Diverges) else ()
    names = [measure.output for measure in verdict.measures] + [finding.output for finding in findings]
    return frozenset(category_of(Finding(name, "value", "")) for name in names) | {"call"}


def _shown(verdict: Verdict) -> dict[str, tuple[str, ...]]:
    match verdict:
        case Errored():
            return {"call": ("raised",)}
        case Diverges(findings=findings):
            kinds: dict[str, dict[str, None]] = {}
            for finding in findings:
                kinds.setdefault(category_of(finding), {})[finding.kind] = None
            return {category: tuple(found) for category, found in kinds.items()}
        case _:
            return {}


def _stand_ins(shown: Mapping[str, tuple[str, ...]]) -> tuple[Finding, ...]:
    """What an exception, or an observed agreement, shows, as findings."""
    return tuple(Finding(category, cast("Kind", kind), "") for category, kinds in shown.items() for kind in kinds)


def _speaks_of(entry: Entry, judged: frozenset[str]) -> bool:
    return any(category in judged for category in entry.shows)


def _missing(entry: Entry, verdict: Agrees | Diverges | Errored, shown: Mapping[str, tuple[str, ...]]) -> str:
    """What the entry says and the verdict does not show; empty when it is all there."""
    if isinstance(verdict, Errored) and entry.message and not re.search(entry.message, verdict.message, re.DOTALL):
        return f"the message does not match {entry.message!r}: {verdict.message.splitlines()[0]}"
    judged = {"call"} if isinstance(verdict, Errored) else judged_categories(verdict)
    for category, kinds in entry.shows.items():
        found = shown.get(category, ())
        if category in judged and not any(kind in found for kind in kinds):
            return f"{category} should show {' or '.join(kinds)} and shows {', '.join(found) or 'agreement'}"
    return ""


def unused(entries: Sequence[Entry], pairs: Iterable[tuple[str, Mapping[str, Any], str]]) -> tuple[Entry, ...]:
    """Entries that cover none of the (case id, facts, subject) pairs."""
    left = dict.fromkeys(range(len(entries)))
    for case, facts, subject in pairs:
        for index in [index for index in left if entries[index].covers(case, facts, subject)]:
            del left[index]
        if not left:
            break
    return tuple(entries[index] for index in left)


def unmatched(entries: Sequence[Entry], cases: Sequence[str]) -> Iterator[tuple[Entry, str]]:
    """Entries with each of their ``cases`` patterns that no case id is like."""
    for entry in entries:
        for pattern in entry.cases:
            if not any(fnmatchcase(case, pattern) for case in cases):
                yield entry, pattern


def never_shown(entries: Sequence[Entry], rows: Iterable[Row], versions: Mapping[str, str]) -> tuple[Entry, ...]:
    """Entries for these versions that cover rows, none of which shows the entry or is stale because of it."""
    covered: set[str] = set()
    shown: set[str] = set()
    for row in rows:
        shown.update(row.entries)
        if row.status != "missing":
            left = [entry for entry in entries if entry.id not in covered]
            covered.update(entry.id for entry in left if entry.covers(row.case, row.facts, row.subject))
    return tuple(one for one in entries if one.id in covered - shown and one.applies(versions))


def _within(version: str, wanted: str) -> bool:
    """Whether a version is one that a specifier asks for; one that is no version is not."""
    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _holds(fact: Any, wanted: Any) -> bool:
    """Whether a fact is the wanted value, one of several, or like a pattern with ``*``."""
    if isinstance(wanted, list):
        return any(_holds(fact, one) for one in wanted)
    if isinstance(wanted, str) and isinstance(fact, str):
        return fnmatchcase(fact, wanted)
    if isinstance(fact, bool) or isinstance(wanted, bool):
        return fact is wanted
    return bool(fact == wanted)
