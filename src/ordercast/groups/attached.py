"""What a host drives besides its channels and callers, by the tag of its datagrams: the desk of a membership service.

A datagram goes to everything that is attached under its tag. Each of them has an id of its own and passes over what is
meant for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from ordercast.groups.driven import Driven
from ordercast.view import Address, group_tag

T = TypeVar("T")


class Attached(Driven, Protocol):
    """Something that receives the datagrams of an underlay, and is no channel."""

    @property
    def driven(self) -> Driven: ...

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None: ...


def remove_tagged(table: dict[int, list[T]], tag: int, gone: T) -> None:
    """Take one thing out of what has a tag."""
    left = [other for other in table.pop(tag, []) if other is not gone]
    if left:
        table[tag] = left


class Attachments:
    """What is attached to one host."""

    __slots__ = ("_tags",)

    def __init__(self) -> None:
        self._tags: dict[int, list[Attached]] = {}

    def __len__(self) -> int:
        """How many tags they have."""
        return len(self._tags)

    def __iter__(self) -> Iterator[Attached]:
        return iter([each for attached in self._tags.values() for each in attached])

    def __contains__(self, tag: int) -> bool:
        return tag in self._tags

    @property
    def underlays(self) -> list[str]:
        return list(dict.fromkeys([each.underlay for each in self]))

    def add(self, attached: Attached) -> None:
        self._tags.setdefault(group_tag(attached.underlay), []).append(attached)

    def remove(self, attached: Attached) -> None:
        remove_tagged(self._tags, group_tag(attached.underlay), attached)

    def receive(
        self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int, dirty: dict[Driven, None]
    ) -> None:
        for attached in self._tags.get(tag, ()):
            attached.receive(now_ns, source, data, stride)
            dirty[attached] = None
