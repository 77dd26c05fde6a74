"""The bound of a row's worst element as text: for the terminal, and for the page of the case."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.report.text import brief_text, number
from conformance.store import Row

MEANINGS = {
    "n": "terms and further roundings",
    "u": "unit roundoff of the arithmetic",
    "u_s": "that of the storage",
    "√c": "root of the scale",
    "ε": "error that an operand brings along",
    "τ": "error of exp(s − max s) in the log domain",
    "φ": "error of one operation near zero",
    "½ ulp": "storing",
}
LETTERS = "x input, W and b of a projection, q k v heads, P weights, c context, dO cotangent, dy the gradient of y"
SECTION = "docs/tolerance.md, “Where a bound comes from”"
_SYMBOL = re.compile(r"½ ulp|√c|(?<![^\W\d])(?:u_s|[nuετφ])(?![^\W\d])")
_CONSTANT = ("n", "u", "u_s", "φ", "√c")
_DIGITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def bound_lines(row: Row) -> list[str]:
    """The formula, its numbers and the parts of the bound, for a terminal; no lines for a row without."""
    shown = bound_shown(row)
    if shown is None:
        return []
    lines = ["", f"the bound of {shown['place']}, {shown['policy']}"]
    lines += [f"  {shown['note']}"] if shown["note"] else []
    lines += [f"  {shown['bound']} = {shown['symbols']}"] if shown["symbols"] else []
    lines += [f"  = {shown['values']}"] if shown["values"] else []
    lines += [f"  with {shown['numbers']}"] if shown["numbers"] else []
    for part in shown["parts"]:
        lines.append(f"  {part['share']:>6}  {part['adds']:<9} {part['stage']}: {part['rule']}")
        lines += [f"{'':19}{part['numbers']}"] if part["numbers"] else []
    if shown["parts"]:
        lines += [f"  {'100 %':>6}  {shown['sum']:<9} sum of the parts", f"  {shown['legend']}", f"  {SECTION}"]
    return lines


def bound_shown(row: Row) -> dict[str, Any] | None:
    """All that a page shows of a row's bound, numbers as text; None for a row without."""
    if row.bound is None:
        return None
    bound, terms, parts = number(row.bound["bound"]) or 0.0, row.bound["terms"], row.bound["parts"]
    numbers = [text for term in terms for text in _numbers(term["numbers"], "=")]
    return {
        "place": f"{row.bound['output']}[{', '.join(map(str, row.bound['index']))}]",
        "policy": _policy(row.bound["policy"]),
        "note": row.bound["note"],
        "bound": brief_text(bound),
        "symbols": " + ".join(term["text"] for term in terms),
        "values": " + ".join(brief_text(number(term["amount"])) for term in terms) if len(terms) > 1 else "",
        "numbers": ", ".join(numbers),
        "parts": [_part(part, bound) for part in parts],
        "sum": brief_text(math.fsum(part["adds"] for part in parts)),
        "legend": _legend([*(term["text"] for term in terms), *(part["rule"] for part in parts)]),
        "section": SECTION,
    }


def _part(part: Mapping[str, Any], bound: float) -> dict[str, Any]:
    """A line of the table; ``width`` is the share in hundredths."""
    share = part["adds"] / bound if bound else 0.0
    relation = "≤" if part["largest"] else "="
    return {
        "stage": part["stage"],
        "rule": f"{part['rule']} {relation} {brief_text(part['error'])}",
        "numbers": ", ".join(_numbers(part["numbers"], relation)),
        "adds": brief_text(part["adds"]),
        "share": f"{share:.0%}".replace("%", " %") if share >= 0.005 else "<1 %",
        "width": round(100 * share, 1),
    }


def _numbers(numbers: Mapping[str, Any], relation: str) -> Iterator[str]:
    """``n = 9``, ``u = 2⁻²⁴``, ``Σ|q||k| ≤ 3.2``."""
    for symbol, value in numbers.items():
        yield f"{symbol} {'=' if symbol in _CONSTANT else relation} {_value(value)}"


def _value(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    if mantissa == 0.5 and not 0 <= exponent < 10:
        return f"2{str(exponent - 1).translate(_DIGITS)}"
    return brief_text(value)


def _legend(rules: Sequence[str]) -> str:
    """What the symbols mean that occur in some rules."""
    used = {symbol for rule in rules for symbol in _SYMBOL.findall(rule)}
    return "; ".join([*(f"{symbol}: {text}" for symbol, text in MEANINGS.items() if symbol in used), LETTERS]) + "."


def _policy(declared: Mapping[str, Any]) -> str:
    """The policy that the bound is of: that which the subject declares, or the envelope of all common choices."""
    if not declared:
        return "under the envelope of all common choices"
    return "under the declared policy " + ", ".join(f"{name} {_word(value)}" for name, value in declared.items())


def _word(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
