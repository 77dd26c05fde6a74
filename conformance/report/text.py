"""Numbers and untrusted text as people read them, the same in the terminal and on the page."""

from __future__ import annotations

import math
import re
from typing import Any

UNEXPLAINED = 20.0  # rms(error/σ) that roundings do not add up to; correct 16-bit subjects stay below it
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BREAK = re.compile(r"[\t\n\r\v\f\x85\u2028\u2029]+")
_DIRECTION = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def number(value: Any) -> float | None:
    """A float from a recorded JSON value (``"inf"`` and ``"nan"`` included), or None when it is no number."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def ratio_text(ratio: float | None) -> str:
    """An error/bound ratio in at most six characters: ``0.41``, ``123``, ``2.5e6``, ``∞``; ``—`` for no number."""
    if ratio is None:
        return "—"
    if not math.isfinite(ratio):
        return "∞"
    if ratio == 0:
        return "0"
    if 0.995 < ratio < 1.005 and ratio != 1:  # two decimals would hide on which side of the bound it lies
        return ">1.00" if ratio > 1 else "<1.00"
    if 0.01 <= ratio < 9.995:
        return f"{ratio:.2f}"
    if 9.995 <= ratio < 9999.5:
        return f"{ratio:.0f}"
    mantissa, exponent = f"{ratio:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def rms_text(rms: float | None) -> str:
    """rms(error/σ) of an output, and whether rounding cannot explain it: no finding in 16 bits, but it shows."""
    return ratio_text(rms) + (", unexplained" if rms is not None and rms > UNEXPLAINED else "")


def number_text(value: float | None, dtype: str = "float32") -> str:
    """A value with as many digits as its dtype can hold: 17 for float64, 9 for the others."""
    if value is None:
        return "—"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.17g}" if dtype == "float64" else f"{value:.9g}"


def brief_text(value: float | None) -> str:
    """A magnitude (error, bound) with three digits."""
    if value is None or not math.isfinite(value):
        return number_text(value)
    return re.sub(r"e([+-])0+", r"e\1", f"{value:.3g}").replace("e+", "e")


def plural(count: int, noun: str) -> str:
    """``1 case``, ``1,200 cases``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def visible(text: str) -> str:
    """The text with control characters and lone surrogates made visible; newlines and tabs stay."""
    return _CONTROL.sub(_picture, text)


def one_line(text: str) -> str:
    """The text for one line of a terminal: no line breaks, nothing that moves the cursor or reverses the line."""
    joined = _BREAK.sub(" ", text)
    return _DIRECTION.sub(lambda found: f"\\u{ord(found.group()):04x}", visible(joined))


def clipped(text: str, width: int) -> str:
    """The text cut to ``width`` characters, the last of them an ellipsis when something was cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found.group())
    return chr(0x2400 + code) if code < 0x20 else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
