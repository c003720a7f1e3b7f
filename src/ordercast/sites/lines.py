"""On which line of a TOML text a key stands. `tomllib` gives values without their places.

This is no second parser. It sees table headers, keys at the beginning of a line, and enough of the values to know where
they end: strings, comments and brackets. The text must be valid TOML, as `tomllib` has said before. What stands inside
a value (the keys of an inline table, the elements of an array) has the line on which that value begins; what the
scanner does not know has the line of the nearest table around it.
"""

from __future__ import annotations

import re
from typing import Final

KeyPath = tuple[str | int, ...]
"""Keys from the root of the document; the tables of an array are numbered from 0."""

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_KEY: Final = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
_ARRAY: Final = re.compile(rf"[ \t]*\[\[[ \t]*({_DOTTED})[ \t]*\]\]")
_TABLE: Final = re.compile(rf"[ \t]*\[[ \t]*({_DOTTED})[ \t]*\]")
_EACH: Final = re.compile(_PART)
# The next thing in a value that matters for where it ends; longest delimiters first.
_TOKEN: Final = re.compile(r"""(\"{3}|'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#.*|[\[\]{}])""")


class KeyLines:
    """The lines of one text."""

    __slots__ = ("_counts", "_found", "_table")

    def __init__(self, text: str) -> None:
        self._found: dict[KeyPath, int] = {}
        self._counts: dict[KeyPath, int] = {}  # tables so far of each array
        self._table: KeyPath = ()
        closing = ""  # the end of a string over several lines that is open
        depth = 0  # brackets of a value that are open
        for number, line in enumerate(text.split("\n"), start=1):
            rest = line
            if not closing and not depth:
                rest = self._begin(number, line)
            closing, depth = _follow(rest, closing, depth)

    def of(self, path: KeyPath) -> int:
        """The line of a key or table, or of the nearest one around it; 1 where there is none."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._found:
                return self._found[path[:end]]
        return 1

    def _begin(self, number: int, line: str) -> str:
        """Note what begins on a line; the part of it that is a value."""
        if match := _ARRAY.match(line):
            array = self._resolve(_keys(match[1]))
            count = self._counts.get(array, 0)
            self._counts[array] = count + 1
            self._table = (*array, count)
            self._found.setdefault(array, number)
            self._found[self._table] = number
            return ""
        if match := _TABLE.match(line):
            self._table = self._resolve(_keys(match[1]))
            self._note(self._table, 0, number)
            return ""
        if match := _KEY.match(line):
            self._note((*self._table, *_keys(match[1])), len(self._table), number)
            return line[match.end() :]
        return ""

    def _note(self, path: KeyPath, known: int, number: int) -> None:
        """A dotted key makes the tables that it goes through."""
        for end in range(known + 1, len(path) + 1):
            self._found.setdefault(path[:end], number)

    def _resolve(self, keys: list[str]) -> KeyPath:
        """The place of a table: below an array it belongs to the last table of that array."""
        path: KeyPath = ()
        for index, key in enumerate(keys):
            path = (*path, key)
            if index < len(keys) - 1 and path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path


def _keys(dotted: str) -> list[str]:
    return [part[1:-1] if part[0] in "\"'" else part for part in _EACH.findall(dotted)]


def _follow(text: str, closing: str, depth: int) -> tuple[str, int]:
    """What is open at the end of a line: the end of a string that is awaited, and how many brackets."""
    at = 0
    while at < len(text):
        if closing:
            end = _end_of_string(text, at, closing)
            if end < 0:
                return closing, depth
            at, closing = end, ""
            continue
        match = _TOKEN.search(text, at)
        if match is None:
            break
        at = match.end()
        word = match[0]
        if word in ('"""', "'''"):
            closing = word
        elif word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
    return closing, depth


def _end_of_string(text: str, at: int, closing: str) -> int:
    """Behind the end of a string over several lines; -1: it does not end on this line."""
    while at < len(text):
        if closing == '"""' and text[at] == "\\":
            at += 2
        elif text.startswith(closing, at):
            at += 3
            while at < len(text) and text[at] == closing[0]:
                at += 1  # up to two quotes may stand before the end
            return at
        else:
            at += 1
    return -1
