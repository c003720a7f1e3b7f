"""What a host drives, by the tag of its datagrams: channels, callers, regions, and whatever else wants them all."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from ordercast.config import GroupConfig, Timing
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.groups.caller import Caller
from ordercast.groups.channel import Channel
from ordercast.groups.driven import Tagged
from ordercast.groups.regions.channel import RegionChannel
from ordercast.groups.regions.engines import RegionEngineFactory
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag

_NOWHERE: Final[frozenset[Address]] = frozenset()


class Plugged:
    """By the tag of their underlay. Several may share one: each drops what is not for it."""

    __slots__ = ("_engines", "regions", "tags")

    def __init__(self, engines: RegionEngineFactory | None) -> None:
        """`engines`: makes the engine of regions. None: this node knows no membership service."""
        self._engines = engines
        self.tags: dict[int, list[Tagged]] = {}
        self.regions: RegionChannel | None = None  # all groups on regions, once there is one

    @property
    def all(self) -> list[Tagged]:
        return [driven for drivens in self.tags.values() for driven in drivens]

    @property
    def has_regions(self) -> bool:
        return self.regions is not None and not self.regions.is_over

    @property
    def underlays(self) -> list[str]:
        return list(dict.fromkeys([driven.underlay for driven in self.all]))

    def open_regions(
        self,
        now_ns: int,
        order: int,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: Random,
        recorder: Recorder | None,
    ) -> RegionChannel:
        """One engine for all groups on regions, made when the first one is wanted. `rng`: the node's; the engine has a
        chance of its own."""
        if self._engines is None:
            raise UsageError('orderer="regions" needs a membership service: give the node one')
        engine = self._engines(me, config, timing, Random(rng.getrandbits(64)))
        regions = self.regions = RegionChannel(me, engine, order, recorder=recorder)
        engine.start(now_ns, regions.out)
        self.add(regions)
        return regions

    def add(self, driven: Tagged) -> None:
        """It gets datagrams from here on, and a pass when `Host.touch` is called for it."""
        self.tags.setdefault(group_tag(driven.underlay), []).append(driven)

    def close(self, now_ns: int, driven: Tagged) -> None:
        """It has nothing left to do."""
        tag = group_tag(driven.underlay)
        others = [other for other in self.tags.pop(tag, ()) if other is not driven]
        if others:
            self.tags[tag] = others
        if self.regions is driven:
            self.regions = None
        driven.deadline_ns = driven.armed_ns = NEVER
        driven.stop(now_ns)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int) -> list[Tagged]:
        """Give them a batch of datagrams; who they are."""
        found = self.tags.get(tag, [])
        for driven in found:
            driven.received.add(data[1], -(-len(data) // stride), len(data))
            driven.receive(now_ns, source, data, stride)
        return found

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, tag: int) -> list[Tagged]:
        """Tell them what came back; who they are."""
        found = self.tags.get(tag, [])
        for driven in found:
            driven.unreachable(now_ns, address, quoted)
        return found

    def listens(self) -> frozenset[Address]:
        """Multicast addresses that they have to hear, besides those of their underlays."""
        found = _NOWHERE
        for driven in self.all:
            wanted = driven.listens()
            if wanted:
                found = found | wanted if found else wanted
        return found


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
