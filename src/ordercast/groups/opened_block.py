"""A block to several groups, as its batches share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordercast.errors import WireError
from ordercast.wire.block import FRAGMENTED, Head, groups_of, open_payloads, payload_bytes, service_of


class OpenedBlock:
    """A block to several groups, which is opened when the first of its batches is."""

    __slots__ = ("_block", "_name_of", "_payloads", "head", "position", "sender", "service", "type", "view")

    def __init__(
        self, block: bytes, head: Head, sender: str, position: int, view: str, name_of: Callable[[int], str]
    ) -> None:
        self._block = block
        self._name_of = name_of
        self._payloads: Sequence[bytes] | None = None
        self.head = head
        self.sender = sender
        self.position = position
        self.service = service_of(head.rank, head.k)
        self.type = 0
        self.view = view

    @property
    def payloads(self) -> Sequence[bytes]:
        if self._payloads is None:
            try:
                self._payloads, self.type = open_payloads(self._block, self.head)
            except WireError:
                self._payloads = ()
        return self._payloads

    @property
    def block(self) -> bytes:
        """As it came; empty where it is only the last fragment of its message."""
        return b"" if self.head.flags & FRAGMENTED else self._block

    def column(self) -> Sequence[int]:
        """The number of the group of each message."""
        groups = groups_of(self._block, self.head)
        return [groups] * self.head.count if isinstance(groups, int) else groups

    @property
    def size(self) -> int:
        """Bytes of its messages, without opening it."""
        return payload_bytes(self._block, self.head)

    def fill(self, payload: bytes, type_: int) -> None:
        """It is the last fragment of one large message, which has come together."""
        self._payloads, self.type = [payload], type_

    def names(self, groups: Sequence[int]) -> tuple[str, ...]:
        """The names of groups."""
        return tuple(map(self._name_of, groups))
