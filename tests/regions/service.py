"""A membership service for engines of regions in one process: it decides epochs by what a test tells it, and each node
hears of them late and in order. A node's side of it is `FakeSource`, which implements `ViewSource`."""

# ruff: noqa: ARG002 - a fake has every input of the contract

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ordercast.engine import NEVER, Outbox
from ordercast.membership.given import Attending, ServiceParcel
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.view import Address, Member
from ordercast.wire.courier import Parcel
from ordercast.wire.regions import Accused
from ordercast.wire.segments import Datagram

SERVICE = 77


class NoGroups:
    """Regions are addressed by number here."""

    def number(self, name: str) -> int:
        return 0

    def name(self, number: int) -> str:
        return ""

    def regions(self, number: int) -> tuple[int, ...]:
        return ()


class FakeSource:
    def __init__(self, node: int, delay: Callable[[], int]) -> None:
        self.node = node
        self.state = Attending.IN
        self.table = NoGroups()
        self.confirmed = 0
        self.is_slow_to_leave = False  # then an epoch excludes the node later
        self.has_asked_to_leave = False
        self.accused: list[Accused] = []
        self.under_way: list[tuple[int, GivenEpoch]] = []
        self._due: list[GivenEpoch] = []
        self._delay = delay

    def tell(self, now_ns: int, epoch: GivenEpoch) -> None:
        before = self.under_way[-1][0] if self.under_way else 0
        self.under_way.append((max(before, now_ns + self._delay()), epoch))

    # What an engine drives

    def start(self, now_ns: int, out: Outbox) -> None: ...

    def join(self, now_ns: int, names: Sequence[str]) -> None: ...

    def leave(self, now_ns: int, names: Sequence[str]) -> None: ...

    def follow(self, now_ns: int, names: Sequence[str]) -> None: ...

    def depart(self, now_ns: int) -> None:
        self.has_asked_to_leave = True
        if not self.is_slow_to_leave:
            self.state = Attending.LEFT

    def pending(self) -> int:
        return 0

    def on_parcel(self, now_ns: int, sender: int, parcel: Parcel) -> None: ...

    def on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None: ...

    def installed(self, now_ns: int, epoch: int) -> None: ...

    def confirm(self, now_ns: int, epoch: int) -> None:
        self.confirmed = epoch

    def accuse(self, now_ns: int, accused: Accused) -> None:
        self.accused.append(accused)

    def take_parcels(self) -> list[ServiceParcel]:
        return []

    def take_epochs(self) -> list[GivenEpoch]:
        due, self._due = self._due, []
        return due

    def expire(self, now_ns: int, out: Outbox) -> None:
        while self.under_way and self.under_way[0][0] <= now_ns:
            self._due.append(self.under_way.pop(0)[1])

    def deadline_ns(self) -> int:
        return self.under_way[0][0] if self.under_way else NEVER


@dataclass(slots=True)
class Service:
    """All decisions. A node is in one region or in none."""

    partition_members: int
    has_multicast: bool = True
    number: int = 0
    settled: int = 0
    exclusions: int = 0
    region_of: dict[int, int] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)  # whom the service knows and has not excluded
    excluded: list[int] = field(default_factory=list)
    born: dict[int, int] = field(default_factory=dict)  # node -> the epoch in which it came, or came back
    gone: dict[int, int] = field(default_factory=dict)  # node -> the epoch that excluded it last; also of who is back
    tiles: dict[int, GivenView] = field(default_factory=dict)
    views: dict[int, GivenView] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # view -> epoch that ended it
    sources: dict[int, FakeSource] = field(default_factory=dict)

    def change(
        self,
        now_ns: int,
        moves: dict[int, int] | None = None,
        excluded: Sequence[int] = (),
        joined: Sequence[tuple[Member, FakeSource]] = (),
    ) -> None:
        """One epoch."""
        self.number += 1
        before = set(self.sources)
        for member, source in joined:
            self.members[member.id] = member
            self.sources[member.id] = source
            self.born[member.id] = self.number
        for node in excluded:
            self.excluded.append(node)
            self.gone[node] = self.number
            self.region_of.pop(node, None)
            self.members.pop(node, None)
        self.region_of.update(moves or {})
        if excluded:
            self.exclusions = self.number
        made, ended = [], []
        for region in sorted({*self.tiles, *self.region_of.values()} - {0}):
            old = self.tiles.get(region)
            now = sorted([self.members[node] for node, at in self.region_of.items() if at == region], key=_place)
            if old is not None and list(old.members) == now:
                continue
            if old is not None:
                ended.append(old.view)
                self.ends[old.view] = self.number
                del self.tiles[region]
            if now:
                address = (f"239.0.0.{region}", 6_000) if self.has_multicast else None
                name = self.number * 1_000 + region
                view = GivenView(region, name, self.number, "gms", address, tuple(now), (), self.partition_members)
                made.append(view)
                self.tiles[region] = self.views[name] = view
        for node in list(self.sources):
            if node in self.excluded and node not in excluded:
                continue
            epoch = self._delta(node, made, ended, excluded) if node in before else self.snapshot(node)
            self.sources[node].tell(now_ns, epoch)

    def _delta(self, node: int, made: Sequence[GivenView], ended: Sequence[int], excluded: Sequence[int]) -> GivenEpoch:
        return GivenEpoch(
            SERVICE,
            self.number,
            self.settled,
            self.region_of.get(node, 0),
            tuple(made),
            tuple(ended),
            tuple(excluded),
            exclusions=self.exclusions,
        )

    def snapshot(self, node: int) -> GivenEpoch:
        """With views of this node that have ended and are not settled."""
        old = [self.views[name] for name, end in self.ends.items() if end > self.settled and name in self.views]
        born = self.born.get(node, 0)
        old = [view for view in old if view.epoch >= born and any(member.id == node for member in view.members)]
        gone = {each: epoch for each, epoch in self.gone.items() if each != node}
        return GivenEpoch(
            SERVICE,
            self.number,
            self.settled,
            self.region_of.get(node, 0),
            (*self.tiles.values(), *old),
            tuple([view.view for view in old]),
            excluded=tuple(gone),
            is_whole=True,
            exclusions=self.exclusions,
            since=tuple(gone.values()),
        )

    def skip_to_snapshot(self, now_ns: int, node: int) -> None:
        """A node missed something: it gets everything at once."""
        source = self.sources[node]
        if source.under_way:
            source.under_way.clear()
            self.ends[-self.number] = self.number  # for this node its old views have ended here
            source.tell(now_ns, self.snapshot(node))

    def settle(self, now_ns: int) -> None:
        """Tell up to which epoch all nodes have confirmed, where a view has ended meanwhile."""
        confirmed = [self.sources[node].confirmed for node in self.members]
        least = min(confirmed, default=self.number)
        if any(self.settled < end <= least for end in self.ends.values()):
            self.settled = least
            self.change(now_ns)


def _place(member: Member) -> Address:
    return member.address
