"""What a host drives, by the tag of its datagrams: the channels of underlays, and callers of groups."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.config import Timing
from ordercast.groups.caller import Caller
from ordercast.groups.channel import Channel
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag


class ChannelTags:
    """The channels of a node, those included that it has left and that others may still need. A node that has left an
    underlay and comes back has two: the old one goes on answering members that the new one asks to be let in."""

    __slots__ = ("tags",)

    def __init__(self) -> None:
        self.tags: dict[int, list[Channel]] = {}

    @property
    def all(self) -> list[Channel]:
        return [channel for channels in self.tags.values() for channel in channels]

    def of(self, underlay: str) -> list[Channel]:
        """The channels of an underlay."""
        return [channel for channel in self.tags.get(group_tag(underlay), ()) if channel.underlay == underlay]

    def add(self, channel: Channel) -> None:
        self.tags.setdefault(group_tag(channel.underlay), []).append(channel)

    def remove(self, channel: Channel) -> None:
        tag = group_tag(channel.underlay)
        channels = [other for other in self.tags.pop(tag, ()) if other is not channel]
        if channels:
            self.tags[tag] = channels

    def audience(self, underlay: str) -> list[Address]:
        """Where `To.ALL` of an underlay goes when there is no multicast."""
        return list(dict.fromkeys([each for channel in self.of(underlay) for each in channel.engine.audience()]))

    def copies(self, underlay: str) -> list[Address]:
        """The addresses that get a copy of each multicast of an underlay, because they hear none."""
        channels = self.of(underlay)
        if len(channels) == 1:
            return channels[0].engine.copies()
        return list(dict.fromkeys([address for channel in channels for address in channel.engine.copies()]))


class Callers:
    """What calls groups that the node is not in, by group and by tag."""

    __slots__ = ("_groups", "tags")

    def __init__(self) -> None:
        self._groups: dict[str, Caller] = {}
        self.tags: dict[int, list[Caller]] = {}

    @property
    def all(self) -> list[Caller]:
        return list(self._groups.values())

    def get(self, group: str) -> Caller | None:
        return self._groups.get(group)

    def open(
        self,
        group: str,
        me: Member,
        timing: Timing,
        order: int,
        datagram: int,
        contacts: Sequence[Address],
        resume: tuple[int, int],
        recorder: Recorder | None,
    ) -> Caller:
        caller = Caller(
            group, me, timing, order, datagram=datagram, contacts=list(contacts), resume=resume, recorder=recorder
        )
        self._groups[group] = caller
        self.tags.setdefault(group_tag(group), []).append(caller)
        return caller

    def remove(self, caller: Caller) -> None:
        del self._groups[caller.group]
        tag = group_tag(caller.group)
        callers = [other for other in self.tags.pop(tag) if other is not caller]
        if callers:
            self.tags[tag] = callers

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int) -> Sequence[Caller]:
        """What they take of a batch; replies may come in one train with what is meant for members."""
        for caller in self.tags[tag]:
            caller.receive(now_ns, source, data, stride)
        return self.tags[tag]
