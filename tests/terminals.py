"""A pseudo terminal to run a command in, and what would then stand on its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

COLUMNS, ROWS = 120, 40
_STYLE = re.compile(r"\x1b\[[\d;]*m")


def run_in_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit status, and all that the command wrote to a terminal of 120 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = b""
        while block := _read(ours):
            written += block
    os.close(ours)
    return process.returncode, written.decode("utf-8", "replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that nobody has the other end open any more
        return b""


def screen_of(written: str) -> list[str]:
    """The lines that stay on the screen: a carriage return goes back to the first column, colours are left out."""
    return [_overwritten(line).rstrip() for line in _STYLE.sub("", written).split("\n")]


def _overwritten(line: str) -> str:
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown
