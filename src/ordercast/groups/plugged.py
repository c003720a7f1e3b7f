"""What a host drives beside the channels of groups: regions, and whatever else wants all datagrams of a tag."""

from __future__ import annotations

from typing import Final

from ordercast.groups.driven import Tagged
from ordercast.view import Address, group_tag

_NOWHERE: Final[frozenset[Address]] = frozenset()


class Plugged:
    """By the tag of their underlay. Several may share one: each drops what is not for it."""

    __slots__ = ("_tags",)

    def __init__(self) -> None:
        self._tags: dict[int, list[Tagged]] = {}

    def __len__(self) -> int:
        return len(self._tags)

    def __contains__(self, tag: int) -> bool:
        return tag in self._tags

    @property
    def all(self) -> list[Tagged]:
        return [driven for drivens in self._tags.values() for driven in drivens]

    @property
    def underlays(self) -> list[str]:
        return list(dict.fromkeys([driven.underlay for driven in self.all]))

    def add(self, driven: Tagged) -> None:
        self._tags.setdefault(group_tag(driven.underlay), []).append(driven)

    def remove(self, driven: Tagged) -> None:
        tag = group_tag(driven.underlay)
        others = [other for other in self._tags.pop(tag, ()) if other is not driven]
        if others:
            self._tags[tag] = others

    def clear(self) -> None:
        self._tags.clear()

    def receive(
        self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int
    ) -> list[Tagged]:
        """Give them a batch of datagrams; who they are."""
        found = self._tags.get(tag, [])
        for driven in found:
            driven.received.add(data[1], -(-len(data) // stride), len(data))
            driven.receive(now_ns, source, data, stride)
        return found

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, tag: int) -> list[Tagged]:
        """Tell them what came back; who they are."""
        found = self._tags.get(tag, [])
        for driven in found:
            driven.unreachable(now_ns, address, quoted)
        return found

    def listens(self) -> frozenset[Address]:
        """Multicast addresses that they have to hear. The same object while one of them says the same."""
        found = _NOWHERE
        for driven in self.all:
            wanted = driven.listens()
            if wanted:
                found = found | wanted if found else wanted
        return found
