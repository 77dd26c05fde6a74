"""Known divergences as data, strict in both directions.

An entry says which subjects, on which cases, show which kinds of findings, in which versions, and why. A pair that
diverges otherwise is new; a pair that an entry covers and that does not show what it says is stale.

An entry of ``accuracy`` says instead that a subject reaches only the accuracy of a wider policy (a softmax in float32
for float64 inputs): rounding may still land inside the bound, so a pair it covers may agree, but what lies outside
must lie inside the bound of that policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field

from conformance.errors import Fault, LedgerError
from conformance.located import Document, load_located
from conformance.policy import Policy, Precision
from conformance.verdict import Agrees, Diverges, Errored, Finding, Kind, Verdict

FILE_NAME = "known_divergences.yaml"
Category = Literal["call", "output", "weights", "gradients"]
PolicyField = Literal[
    "products", "batched_products", "softmax", "softmax_gradient", "weight_gradients", "bias_gradients", "scale"
]
Condition = str | int | float | bool | list[str | int | float | bool]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EntryModel(_Strict):
    """One known divergence as it is written."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    subjects: list[str] = Field(min_length=1)
    when: dict[str, Condition] = Field(default_factory=dict)
    unless: dict[str, Condition] = Field(default_factory=dict)
    cases: list[str] = Field(default_factory=list)
    shows: dict[Category, list[Kind]] = Field(default_factory=dict)
    accuracy: dict[PolicyField, Precision] = Field(default_factory=dict)
    message: str | None = None
    versions: dict[str, str] = Field(min_length=1)
    reason: str = Field(min_length=20)
    link: str | None = None
    since: str


class LedgerModel(_Strict):
    known: list[EntryModel]


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
    message: str | None
    versions: Mapping[str, str]
    reason: str
    link: str | None
    since: str

    def covers(self, case: str, facts: Mapping[str, Any], subject: str) -> bool:
        """Whether the entry speaks about this pair, whatever is installed."""
        return (
            any(fnmatchcase(subject, pattern) for pattern in self.subjects)
            and (not self.cases or any(fnmatchcase(case, pattern) for pattern in self.cases))
            and all(_holds(facts[name], wanted) for name, wanted in self.when.items())
            and not (self.unless and all(_holds(facts[name], wanted) for name, wanted in self.unless.items()))
        )

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Whether the versions that run are those the entry was written for."""
        return all(
            name in versions and SpecifierSet(wanted).contains(versions[name], prereleases=True)
            for name, wanted in self.versions.items()
        )

    def as_data(self) -> dict[str, Any]:
        """The entry as plain values, for the store."""
        return asdict(self)


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
    """Nothing in the ledger accounts for the findings."""

    why: str = ""


Recognition = Known | Stale | New


def recognise(
    verdict: Agrees | Diverges | Errored, entries: Sequence[Entry], observed: bool = False
) -> Recognition | None:
    """Hold a verdict against the entries that cover its pair; None when it agrees and no entry says otherwise.

    An ``observed`` case has no right answer: agreeing with the contract is a behaviour like others, to be pinned too.
    """
    shown = _shown(verdict) or ({"call": ("as-contract",)} if observed else {})
    if isinstance(verdict, Errored) or "call" in shown:
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
    allowed = {(category, kind) for entry in entries for category, kinds in entry.shows.items() for kind in kinds}
    extra = [f"{category}: {kind}" for category, kinds in shown.items() for kind in kinds]
    extra = [text for text in extra if tuple(text.split(": ")) not in allowed]
    if not extra:
        return Known(tuple(entries))
    beyond = f"beyond {', '.join(entry.id for entry in entries)}: {'; '.join(extra)}" if entries else ""
    return New(beyond)


def accuracy_class(policy: Policy, entries: Sequence[Entry]) -> Policy:
    """The policy widened by what the entries of accuracy say; the same policy when there is none."""
    for entry in entries:
        policy = replace(policy, **entry.accuracy)
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


def read_ledger(path: Path, subjects: Iterable[str], facts: Iterable[str], root: Path | None = None) -> tuple[Entry, ...]:
    """Entries of a ledger file, empty when there is no file. ``subjects`` and ``facts`` are the names that may be used.

    Raises LedgerError with every fault: unknown subjects, facts or kinds, repeated ids, bad version specifiers.
    """
    if not path.exists():
        return ()
    model, document = load_located(path, LedgerModel, root=root, error=LedgerError)
    faults = list(_faults(model, document, tuple(subjects), tuple(facts)))
    if faults:
        raise LedgerError(tuple(sorted(faults)))
    return tuple(_entry(written, document, index) for index, written in enumerate(model.known))


def unused(entries: Sequence[Entry], pairs: Iterable[tuple[str, Mapping[str, Any], str]]) -> tuple[Entry, ...]:
    """Entries that cover none of the (case id, facts, subject) pairs."""
    left = dict.fromkeys(range(len(entries)))
    for case, facts, subject in pairs:
        for index in [index for index in left if entries[index].covers(case, facts, subject)]:
            del left[index]
        if not left:
            break
    return tuple(entries[index] for index in left)


def installed(distributions: Iterable[str]) -> dict[str, str]:
    """Versions of the installed ones among the named distributions."""
    found = {}
    for name in distributions:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _entry(written: EntryModel, document: Document, index: int) -> Entry:
    line = document.line(("known", index, "id"))
    return Entry(
        written.id,
        document.file,
        line,
        tuple(written.subjects),
        written.when,
        written.unless,
        tuple(written.cases),
        {category: tuple(kinds) for category, kinds in written.shows.items()},
        written.accuracy,
        written.message,
        written.versions,
        " ".join(written.reason.split()),
        written.link,
        written.since,
    )


def _faults(model: LedgerModel, document: Document, subjects: tuple[str, ...], facts: tuple[str, ...]) -> Iterable[Fault]:
    seen: dict[str, int] = {}
    for index, entry in enumerate(model.known):
        place: tuple[str | int, ...] = ("known", index)
        line = document.line((*place, "id"))
        if entry.id in seen:
            yield document.fault((*place, "id"), f"the id {entry.id!r} is already used on line {seen[entry.id]}")
        seen.setdefault(entry.id, line)
        if bool(entry.shows) == bool(entry.accuracy):
            yield document.fault((*place, "id"), "an entry needs either shows or accuracy, and not both")
        for number, pattern in enumerate(entry.subjects):
            if not any(fnmatchcase(subject, pattern) for subject in subjects):
                message = f"no subject is called {pattern!r}"
                yield document.fault((*place, "subjects", number), message, _nearest(pattern, subjects))
        for part in ("when", "unless"):
            for name in getattr(entry, part):
                if name not in facts:
                    message = f"{name!r} is not a fact of a case"
                    yield document.fault((*place, part, name), message, _nearest(name, facts), on_key=True)
        for name, wanted in entry.versions.items():
            try:
                SpecifierSet(wanted)
            except InvalidSpecifier:
                message = f"{wanted!r} is not a version specifier such as '==2.13.*'"
                yield document.fault((*place, "versions", name), message)


def _nearest(name: str, known: tuple[str, ...]) -> str | None:
    found = get_close_matches(name, known, 1)
    return found[0] if found else None


def _holds(fact: Any, wanted: Any) -> bool:
    """Whether a fact is the wanted value, one of several, or like a pattern with ``*``."""
    if isinstance(wanted, list):
        return any(_holds(fact, one) for one in wanted)
    if isinstance(wanted, str) and isinstance(fact, str):
        return fnmatchcase(fact, wanted)
    return type(fact) is type(wanted) and bool(fact == wanted)


