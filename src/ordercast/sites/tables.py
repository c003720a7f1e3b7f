"""One table of a TOML file, read key by key. What is wrong raises `UsageError` with file, line and what to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from ordercast.errors import UsageError
from ordercast.sites.lines import KeyLines, KeyPath

T = TypeVar("T")

MAX_FILE: Final = 1 << 20  # bytes; a thousand daemons take a tenth of it

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)\Z")
_AT_END: Final = " (at end of document)"


def read_text(path: str | Path) -> str:
    """The text of a configuration file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE:
        raise UsageError(f"{path} has more than {MAX_FILE >> 20} MiB: this is no configuration of sites")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: a byte that is no UTF-8; save the file as UTF-8") from error


class TomlTable:
    """One table, and where it stands."""

    __slots__ = ("_lines", "_path", "_values", "name")

    def __init__(self, name: str, lines: KeyLines, path: KeyPath, values: dict[str, Any]) -> None:
        self.name = name  # of the file
        self._lines = lines
        self._path = path
        self._values = values

    @classmethod
    def document(cls, text: str, name: str) -> TomlTable:
        """The root of a TOML text."""
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            what = str(error)
            match = _AT_LINE.search(what)
            line = int(match[1]) if match is not None else text.rstrip("\n").count("\n") + 1
            what = _AT_LINE.sub("", what).removesuffix(_AT_END)
            raise UsageError(f"{name}:{line}: this is no TOML: {what[:1].lower()}{what[1:]}") from None
        return cls(name, KeyLines(text), (), values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def wrong(self, text: str, *below: str | int) -> NoReturn:
        """Refuse this table, or what stands `below` it."""
        raise UsageError(f"{self.name}:{self.line(*below)}: {text}")

    def line(self, *below: str | int) -> int:
        return self._lines.of((*self._path, *below))

    def only(self, known: Sequence[str], what: str) -> None:
        """Refuse keys that are not known: a slip of the finger must not leave a default in place."""
        for key in self._values:
            if key not in known:
                self.wrong(f"{what} has no key {key!r}; its keys are {', '.join(known)}", key)

    # Tables below. ---------------------------------------------------------------------------------------------------

    def table(self, key: str) -> TomlTable:
        """The table `[key]`; an empty one where it is missing."""
        values = self._values.get(key, {})
        if not isinstance(values, dict):
            self.wrong(f"{key!r} is a table; write [{'.'.join(self._name_of(key))}]", key)
        return TomlTable(self.name, self._lines, (*self._path, key), values)

    def tables(self, key: str) -> Iterator[TomlTable]:
        """The tables `[[key]]`, in their order."""
        values = self._values.get(key, [])
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            self.wrong(f"{key!r} is a list of tables; write [[{'.'.join(self._name_of(key))}]] for each", key)
        for index, each in enumerate(values):
            yield TomlTable(self.name, self._lines, (*self._path, key, index), each)

    def _name_of(self, key: str) -> list[str]:
        return [part for part in (*self._path, key) if isinstance(part, str)]

    # Values. ---------------------------------------------------------------------------------------------------------

    def text(self, key: str, default: str | None = None) -> str:
        value = self._values.get(key, default)
        if value is None:
            self.wrong(f'{key!r} is missing; add {key} = "…"')
        if not isinstance(value, str):
            self.wrong(f"{key!r} is a text in quotes, not {value!r}", key)
        return value

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.wrong(f"{key!r} is a whole number from {least} to {most}, not {value!r}", key)
        return value

    def read(self, key: str, default: T, parse: Callable[[object], T]) -> T:
        """A value in the form that `parse` knows; it raises `ValueError` with what to write."""
        if key not in self._values:
            return default
        try:
            return parse(self._values[key])
        except ValueError as error:
            self.wrong(f"{key!r}: {error}", key)

    def texts(self, key: str, count: int) -> tuple[str, ...]:
        """So many texts."""
        values = self._values.get(key)
        if not isinstance(values, list) or len(values) != count or not all(isinstance(each, str) for each in values):
            self.wrong(f"{key!r} is a list of {count} names, not {values!r}", key)
        return tuple(values)

    def directions(self, what: str) -> tuple[tuple[str, str], ...]:
        """The pairs of sites that a link or pipe is about: `between = ["a", "b"]` means both directions."""
        if "between" in self._values:
            if "from" in self._values or "to" in self._values:
                self.wrong("'between' means both directions; leave out 'from' and 'to', or write them only", "between")
            one, other = self.texts("between", 2)
            return (one, other), (other, one)
        if "from" not in self._values and "to" not in self._values:
            ways = 'between = ["a", "b"] for both directions, or from = "a" and to = "b" for one'
            self.wrong(f"a {what} names its sites: write {ways}")
        return ((self.text("from"), self.text("to")),)
