"""Names and numbers of groups, and sets of them that are known by their signature (docs/design/gms.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.parts.runs import Runs, sequence_of
from ordercast.wire.gms import Signature

MAX_GROUPS: Final = 1 << 24  # names that one service numbers; about 200 bytes each
MAX_SETS: Final = 1_024  # signatures that are known; the oldest goes, and its names are asked for again
SIGNED_NAMES: Final = 64  # smaller sets are not worth a signature: their names are sent at once


class NumberedNames:
    """Numbers are given in the order of asking, from 1 on, and never again for another name."""

    __slots__ = ("_names", "_numbers", "_sets")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = [""]  # by number; 0 is no group
        self._sets: dict[Signature, Runs] = {}  # numbers, in the order of their names

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, name: str) -> int:
        return self._numbers.get(name, 0)

    def name(self, number: int) -> str:
        return self._names[number] if 0 < number < len(self._names) else ""

    @property
    def all(self) -> list[str]:
        """By number, from 1 on."""
        return self._names[1:]

    @property
    def sets(self) -> dict[Signature, Runs]:
        return self._sets

    def has_room(self, names: Sequence[str]) -> bool:
        return len(self._numbers) + len(names) <= MAX_GROUPS or (
            len(self._numbers) + sum([name not in self._numbers for name in names]) <= MAX_GROUPS
        )

    def give(self, names: Sequence[str]) -> Runs:
        """The numbers of these names, in their order; names without one get the next ones."""
        numbers, known = self._numbers, self._names
        found = []
        for name in names:
            number = numbers.get(name)
            if number is None:
                number = numbers[name] = len(known)
                known.append(name)
            found.append(number)
        return sequence_of(found)

    def look_up(self, names: Sequence[str]) -> Runs:
        """The same without giving any; 0 for those that have none."""
        return sequence_of([self._numbers.get(name, 0) for name in names])

    def remember(self, signature: Signature, numbers: Runs) -> None:
        if signature.count >= SIGNED_NAMES and signature not in self._sets:
            self._sets[signature] = numbers
            while len(self._sets) > MAX_SETS:
                del self._sets[next(iter(self._sets))]

    def known(self, signature: Signature) -> Runs | None:
        return self._sets.get(signature)
