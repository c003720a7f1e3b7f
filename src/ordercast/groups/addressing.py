"""Groups that a message is for, by name: their numbers are looked up when the message is packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.groups.queued import NO_NUMBER

if TYPE_CHECKING:
    from ordercast.groups.shared import SharedGroups
    from ordercast.groups.stream import Stream


class GroupNames:
    """Groups that a message is for, by name."""

    __slots__ = ("_shared", "_stream", "names")

    def __init__(self, shared: SharedGroups, stream: Stream, names: Sequence[str]) -> None:
        self._shared = shared
        self._stream = stream
        self.names = tuple(names)

    def numbers(self) -> Sequence[int] | None:
        # Names that a bound kept out have the number of nobody; one of them is enough.
        numbers = list(dict.fromkeys([self._shared.number_of(name, self._stream) for name in self.names]))
        return None if NO_NUMBER in numbers else numbers

    def lose(self, first: int, count: int) -> None:
        """Told to the session where it receives all groups in one order, or else by the first of them that it is in."""
        stream = self._stream
        port = stream.base if stream.is_fed else None
        if port is None:
            port = next((stream.ports[name] for name in self.names if name in stream.ports), None)
        if port is not None:
            port.lose(first, count)


class NamedGroup:
    """One group that a call is for, by name. It is a `Target`, whose number comes of the roster."""

    __slots__ = ("_names", "messages_sent")

    def __init__(self, names: GroupNames) -> None:
        self._names = names
        self.messages_sent = 0

    @property
    def number(self) -> int:
        numbers = self._names.numbers()
        return numbers[0] if numbers else NO_NUMBER

    @number.setter
    def number(self, value: int) -> None:
        """The roster has it: a queue that forgets numbers has nothing to forget here."""

    def lose(self, first: int, count: int) -> None:
        self._names.lose(first, count)
