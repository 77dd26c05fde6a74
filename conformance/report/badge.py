"""How a subject fared in a run, as a badge: an SVG of one line, the colour that of the most severe status.

The text says what the colour says, and white on each colour has a contrast of 4.5 or more (WCAG 2.1, AA). A badge has
no script, no style sheet, no reference and no id, so several may stand in one page.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape

from conformance.report.entry import SEVERITY
from conformance.report.text import one_line
from conformance.store import Run, Status

HEIGHT, SIZE, PAD, CORNER = 20, 11, 7, 3  # pixels
LEFT = "#3d444d"
COLOURS: Mapping[Status, str] = {
    "new": "#b42318",
    "errored": "#b42318",
    "stale": "#a84300",
    "known": "#175cd3",
    "agrees": "#1a7033",
    "unsupported": "#57606a",
    "missing": "#57606a",
}
ASIDE: tuple[Status, ...] = ("unsupported", "missing")  # said in the title alone, unless there is nothing else
WIDTHS = (  # advances in pixels at 11 pixels, about those of Verdana and DejaVu Sans
    (frozenset("ijl.,:;'|!I"), 3.6),
    (frozenset(" ftr()[]/-·\\`"), 4.6),
    (frozenset("mwMW@%&"), 9.6),
    (frozenset("ABCDEFGHJKLNOPQRSTUVXYZ_+=<>~#"), 7.9),
)
OTHER, FULL = 6.9, 11.0
_FORBIDDEN = re.compile(r"[\ufffe\uffff]")  # in XML, besides what one_line has made visible
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def badges(run: Run) -> dict[str, str]:
    """The badge of each subject, in the order of the run."""
    counts: dict[str, Counter[Status]] = {}
    for row in run.rows:
        counts.setdefault(row.subject, Counter())[row.status] += 1
    return {subject: badge(subject, found) for subject, found in counts.items()}


def badge(subject: str, counts: Mapping[Status, int]) -> str:
    """The badge as the text of an SVG file. ``counts`` are rows by status, at least one of them."""
    name = _FORBIDDEN.sub("\ufffd", one_line(subject))
    worst = next(status for status in SEVERITY if counts.get(status))
    said = [status for status in _order(counts) if status not in ASIDE] or _order(counts)
    message = " · ".join(_words(status, counts) for status in said)
    title = escape(f"{name}: {', '.join(_words(status, counts) for status in _order(counts))}")
    left, right = width_of(name) + 2 * PAD, width_of(message) + 2 * PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right:g}" height="{HEIGHT}" '
        f'role="img" aria-label="{title}">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{left + right:g}" height="{HEIGHT}" rx="{CORNER}" fill="{COLOURS[worst]}"/>\n'
        f'<path d="{_rounded_left(left)}" fill="{LEFT}"/>\n'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{SIZE}">\n'
        f"{_text(name, PAD)}{_text(message, left + PAD)}</g>\n</svg>\n"
    )


def file_names(subjects: Iterable[str]) -> dict[str, str]:
    """A name for the badge of each subject that any file system takes; no two are alike, in whatever case."""
    plain = {subject: _UNSAFE.sub("-", subject).strip("-.") for subject in subjects}
    taken = Counter(name.casefold() for name in plain.values())
    return {
        subject: f"{name}.svg" if name and taken[name.casefold()] == 1 else f"{name or 'badge'}-{_hash(subject)}.svg"
        for subject, name in plain.items()
    }


def width_of(text: str) -> float:
    """About how wide the text is, in pixels."""
    return round(sum(map(_advance, text)), 1)


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return FULL
    return next((width for characters, width in WIDTHS if character in characters), OTHER)


def _order(counts: Mapping[Status, int]) -> list[Status]:
    """What gives cause for action first, then agreement, then what the ledger knows."""
    order: tuple[Status, ...] = ("new", "errored", "stale", "agrees", "known", *ASIDE)
    return [status for status in order if counts.get(status)]


def _words(status: Status, counts: Mapping[Status, int]) -> str:
    return f"{counts[status]:,} {'agree' if status == 'agrees' else status}"


def _rounded_left(width: float) -> str:
    arc = f"A{CORNER},{CORNER} 0 0 1"
    return f"M{CORNER},0 H{width:g} V{HEIGHT} H{CORNER} {arc} 0,{HEIGHT - CORNER} V{CORNER} {arc} {CORNER},0 Z"


def _text(text: str, x: float) -> str:
    """The text fitted to the width that was reckoned for it, whatever the font."""
    return f'<text x="{x:g}" y="14" textLength="{width_of(text):g}">{escape(text)}</text>\n'


def _hash(subject: str) -> str:
    return hashlib.sha256(subject.encode(errors="backslashreplace")).hexdigest()[:8]
