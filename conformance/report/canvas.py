"""What a terminal can show: its width, and whether it knows colours.

The user's word comes first: NO_COLOR (https://no-color.org), then FORCE_COLOR (0 none, 3 those of 24 bits, anything
else 256), then TERM=dumb, then whether the stream is a terminal at all. COLORTERM and TERM say how many it knows.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Literal

Colour = tuple[int, int, int]  # red, green, blue from 0 to 255
Depth = Literal[0, 8, 24]  # bits of a colour; 0 where there are none
WIDTH = 100  # columns of what is no terminal
DARK, LIGHT = (0, 0, 0), (255, 255, 255)  # one of them has a contrast of 4.5 on any colour
CUBE = (0, 95, 135, 175, 215, 255)  # intensities of the 6 × 6 × 6 colours that begin at number 16 of the 256


@dataclass(frozen=True)
class Canvas:
    """Where text goes; without colours unless told otherwise."""

    width: int = WIDTH
    depth: Depth = 0

    def on(self, text: str, colour: Colour) -> str:
        """The text on a background, in whichever of dark and light is the more readable; as it is without colours."""
        if not self.depth:
            return text
        if self.depth == 24:
            front, back = ("2;" + ";".join(map(str, shown)) for shown in (ink(colour), colour))
        else:
            red, green, blue = (min(range(6), key=lambda step: abs(CUBE[step] - part)) for part in colour)
            front = f"5;{16 if ink((CUBE[red], CUBE[green], CUBE[blue])) == DARK else 231}"
            back = f"5;{16 + 36 * red + 6 * green + blue}"
        return f"\x1b[38;{front};48;{back}m{text}\x1b[0m"


PLAIN = Canvas()


def canvas_of(stream: IO[str], environment: Mapping[str, str]) -> Canvas:
    """What a stream can show."""
    return Canvas(shutil.get_terminal_size((WIDTH, 24)).columns, _depth(stream, environment))


def _depth(stream: IO[str], environment: Mapping[str, str]) -> Depth:
    forced, terminal = environment.get("FORCE_COLOR", ""), environment.get("TERM", "")
    if environment.get("NO_COLOR") or forced == "0":
        return 0
    if not forced and (terminal == "dumb" or not stream.isatty()):
        return 0
    if forced == "3" or environment.get("COLORTERM") in ("truecolor", "24bit") or terminal.endswith("-direct"):
        return 24
    return 8 if forced or "256color" in terminal else 0


def ramp(value: float, stops: Sequence[Colour]) -> Colour:
    """The colour at −1 … 1 between stops that are evenly spaced; values beyond the ends get theirs."""
    place = (min(max(value, -1.0), 1.0) + 1) / 2 * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    red, green, blue = (
        round(start + (end - start) * (place - low)) for start, end in zip(stops[low], stops[low + 1], strict=True)
    )
    return (red, green, blue)


def ink(background: Colour) -> Colour:
    """Dark or light, whichever has the larger contrast on a background."""
    return max((DARK, LIGHT), key=lambda colour: contrast(colour, background))


def contrast(one: Colour, other: Colour) -> float:
    """Contrast of two colours, 1 to 21 (WCAG 2.1, relative luminance of sRGB)."""
    lower, higher = sorted((_luminance(one), _luminance(other)))
    return (higher + 0.05) / (lower + 0.05)


def _luminance(colour: Colour) -> float:
    parts = (part / 255 for part in colour)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
