"""Cuts a `spread.conf` into words with their lines: free white space, comments, quoted texts, braces."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from ordercast.errors import UsageError

PUNCTUATION: Final = "{}=;"
END: Final = ""  # the text of what stands after the last word

_WORD: Final = re.compile(r"""[^\s{}=;#"']+""")


class ConfWord(NamedTuple):
    """One word, or one sign of `PUNCTUATION`."""

    text: str
    line: int
    is_quoted: bool = False

    def is_sign(self, sign: str) -> bool:
        return self.text == sign and not self.is_quoted

    @property
    def is_end(self) -> bool:
        return not self.text and not self.is_quoted


class ConfWords:
    """The words of one file, taken one after the other."""

    __slots__ = ("_at", "_words", "name")

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self._words = _cut(text, name)
        self._at = 0

    @property
    def next(self) -> ConfWord:
        """The word that `take` gives; its text is empty at the end."""
        return self._words[self._at]

    def take(self) -> ConfWord:
        word = self._words[self._at]
        if not word.is_end:
            self._at += 1
        return word

    def skip(self, sign: str) -> bool:
        """Take this sign if it comes next."""
        is_next = self.next.is_sign(sign)
        if is_next:
            self._at += 1
        return is_next

    def expect(self, sign: str, where: str) -> None:
        word = self.take()
        if not word.is_sign(sign):
            found = repr(word.text) if not word.is_end else "the end of the file"
            self.wrong(word.line, f"{where} needs {sign!r} here, not {found}")

    def skip_value(self, line: int) -> None:
        """Take what belongs to a key that is not known: the rest of its line, and a block in braces."""
        self.skip("=")
        while not self.next.is_end and (self.next.line == line or self.next.is_sign("{")):
            word = self.take()
            line = max(line, word.line)
            if word.is_sign("{"):
                depth = 1
                while depth:
                    inner = self.take()
                    if inner.is_end:
                        self.wrong(word.line, "the brace that opens here is never closed")
                    depth += inner.is_sign("{") - inner.is_sign("}")
                    line = inner.line
            elif word.is_sign("}"):
                self.wrong(word.line, "there is nothing that this brace closes")

    def wrong(self, line: int, text: str) -> NoReturn:
        raise UsageError(f"{self.name}:{line}: {text}")


def _cut(text: str, name: str) -> list[ConfWord]:
    words: list[ConfWord] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        at = 0
        while at < len(line):
            char = line[at]
            if char == "#":
                break
            if char.isspace():
                at += 1
            elif char in PUNCTUATION:
                words.append(ConfWord(char, number))
                at += 1
            elif char in "\"'":
                stop = line.find(char, at + 1)
                if stop < 0:
                    raise UsageError(f"{name}:{number}: a text that begins with {char} has no end on its line")
                words.append(ConfWord(line[at + 1 : stop], number, True))
                at = stop + 1
            else:
                match = _WORD.match(line, at)
                assert match is not None
                words.append(ConfWord(match[0], number))
                at = match.end()
    words.append(ConfWord(END, len(lines)))
    return words
