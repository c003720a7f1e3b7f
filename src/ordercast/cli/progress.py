"""What a person sees while work goes on: on a terminal lines that are redrawn, elsewhere a plain line a second."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Final

PLAIN_INTERVAL_S: Final = 1.0
REDRAW_INTERVAL_S: Final = 0.1


class Progress:
    """Writes to standard error, so that standard output carries results only."""

    __slots__ = ("_is_terminal", "_next_s", "_shown", "_stream")

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._shown = 0  # lines that will be redrawn
        self._next_s = 0.0

    def note(self, text: str) -> None:
        """A line that stays."""
        self._erase()
        print(text, file=self._stream, flush=True)

    def live(self, lines: Sequence[str], summary: str) -> None:
        """Lines that the next ones replace; where nothing can be redrawn, the summary. Too many are left out."""
        now_s = monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (REDRAW_INTERVAL_S if self._is_terminal else PLAIN_INTERVAL_S)
        if self._is_terminal:
            self._erase()
            self._shown = len(lines)
            print(*lines, sep="\n", file=self._stream, flush=True)
        else:
            print(summary, file=self._stream, flush=True)

    def close(self) -> None:
        """Leave nothing half drawn behind."""
        self._erase()
        self._stream.flush()

    def _erase(self) -> None:
        if self._shown:
            self._stream.write(f"\x1b[{self._shown}F\x1b[J")
            self._shown = 0


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows of equal length as aligned lines; `right` names the columns of numbers."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
