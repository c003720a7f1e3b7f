"""What a host drives besides its channels and callers, by the tag of its datagrams: regions, and desks of a service.

A datagram goes to everything that is attached under its tag. Each of them has an id of its own and passes over what is
meant for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, Protocol

from ordercast.config import GroupConfig, Timing
from ordercast.errors import UsageError
from ordercast.groups.driven import Driven
from ordercast.groups.regions.channel import RegionChannel
from ordercast.groups.regions.engines import RegionalEngine, RegionEngineFactory
from ordercast.groups.regions.lanes import SentNumbers
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag

_NOWHERE: Final[frozenset[Address]] = frozenset()


class Attached(Driven, Protocol):
    """Something that receives the datagrams of an underlay, and is no channel."""

    @property
    def driven(self) -> Driven: ...

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None: ...


class Attachments:
    """What is attached to one host. `tags` is for the host to look at; it is hot."""

    __slots__ = ("_engines", "_sent", "regions", "tags", "timings")

    def __init__(self, engines: RegionEngineFactory | None = None) -> None:
        """`engines`: makes the engine of regions. None: this node knows no membership service."""
        self._engines = engines
        self.tags: dict[int, list[Attached]] = {}
        self.regions: RegionChannel | None = None  # all groups on regions, once there is one
        self._sent = SentNumbers()  # of the one before
        self.timings: dict[str, Timing] = {}  # of underlays that have others than the node

    def __iter__(self) -> Iterator[Attached]:
        return iter([each for attached in self.tags.values() for each in attached])

    @property
    def underlays(self) -> list[str]:
        return list(dict.fromkeys([each.underlay for each in self]))

    def add(self, attached: Attached) -> None:
        """It gets datagrams from here on, and a pass when `Host.touch` is called for it."""
        self.tags.setdefault(group_tag(attached.underlay), []).append(attached)

    def remove(self, attached: Attached) -> None:
        tag = group_tag(attached.underlay)
        others = [other for other in self.tags.pop(tag, ()) if other is not attached]
        if others:
            self.tags[tag] = others

    def receive(
        self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int, dirty: dict[Driven, None]
    ) -> None:
        for attached in self.tags.get(tag, ()):
            attached.receive(now_ns, source, data, stride)
            dirty[attached] = None

    # Regions.

    @property
    def has_regions(self) -> bool:
        return self.regions is not None and not self.regions.is_over

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
        """One engine for all groups on regions, made when the first one is wanted. `rng`: the node's; each engine has a
        chance of its own."""
        engines = self._engines
        if engines is None:
            raise UsageError(
                'orderer="regions" needs a membership service: give the node gms=[addresses] or gms="embedded"'
            )

        def make() -> RegionalEngine:
            return engines(me, config, timing, Random(rng.getrandbits(64)))

        self.close_regions(now_ns)  # those that this node has left: nobody may have looked at them since
        self.regions = RegionChannel(me, make, order, recorder=recorder, sent=self._sent)
        self.regions.start(now_ns)
        self.add(self.regions)
        return self.regions

    def close_regions(self, now_ns: int) -> None:
        """They have nothing left to do."""
        regions, self.regions = self.regions, None
        if regions is not None:
            self.remove(regions)
            regions.stop(now_ns)
            self._sent = regions.sending.sent_numbers()

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, tag: int, dirty: dict[Driven, None]) -> None:
        """A datagram with this tag came back."""
        if self.regions is not None and tag == group_tag(self.regions.underlay):
            self.regions.unreachable(now_ns, address, quoted)
            dirty[self.regions] = None

    def ttl(self, underlay: str, otherwise: int) -> int:
        """How far multicasts go that look for the membership service."""
        return self.regions.me.ttl if self.regions is not None and self.regions.underlay == underlay else otherwise

    def reach(self, to: Address, otherwise: int) -> int:
        """How far a multicast to a region goes: as far as the member that asks for most."""
        return self.regions.views.reach.get(to, self.regions.me.ttl) if self.regions is not None else otherwise

    def listens(self) -> frozenset[Address]:
        """Multicast addresses that this node has to hear, besides those of its underlays."""
        return self.regions.listens() if self.regions is not None else _NOWHERE
