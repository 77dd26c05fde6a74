"""The errors this project raises itself, each carrying its data.

::

    ConformanceError
    ├── AdapterError          an announced adapter that cannot be used
    ├── NothingJudged         a case whose every bound overflows
    ├── UsageError            a command that names what does not exist
    └── LocatedError          faults found in a file, all of them at once
        ├── CaseFileError     a case file
        └── LedgerError       the ledger of known divergences
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW = 120  # characters of a source line that are shown around the fault


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that is wrong in a file. ``line`` and ``column`` count from 1, in characters.

    ``str(fault)`` reads like a compiler's message: ``file:line:column: message``, the source line, a caret under
    the column, and a suggestion when there is one.
    """

    file: str
    line: int
    column: int
    message: str
    source_line: str = ""
    suggestion: str | None = None

    @property
    def place(self) -> str:
        """``file:line:column``."""
        return f"{self.file}:{self.line}:{self.column}"

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.message}"]
        if self.source_line.strip():
            start = max(0, self.column - 1 - WINDOW // 2) if len(self.source_line) > WINDOW else 0
            shown = self.source_line[start : start + WINDOW]
            before = shown[: self.column - 1 - start]
            # A tab stays a tab, so that the caret lines up however wide the terminal draws it.
            lines += ["    " + shown, "    " + "".join("\t" if char == "\t" else " " for char in before) + "^"]
        if self.suggestion is not None:
            lines.append(f"    did you mean {self.suggestion}?")
        return "\n".join(lines)


class ConformanceError(Exception):
    """Root of this project's errors."""


class AdapterError(ConformanceError):
    """An announced adapter cannot be loaded, or announces a subject that another one has."""


class NothingJudged(ConformanceError):
    """No element of a case can be judged, so that agreeing would mean nothing."""


class UsageError(ConformanceError):
    """A command asks for a run, a pair or a subject that does not exist."""


class LocatedError(ConformanceError):
    """A file cannot be used. ``faults`` holds everything that is wrong with it, in order of position."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__(faults)  # the only argument, so that the exception can be pickled between workers
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class CaseFileError(LocatedError):
    """A case file has faults."""


class LedgerError(LocatedError):
    """The ledger has faults."""
