"""The region views of the installed epoch, and views of groups, which are derived of them when somebody asks.

A view of a group is the set of its regions' views (QSM section 2.2): nothing is stored for it. Where it has one region
its id is that view's. Of several, the latest view gives epoch and leader, and a digest of all of them follows: the same
members under the same id everywhere, whatever epochs a node has heard of.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.view import Address, Member, Reason, View

MAX_NAMES: Final = 65_536
"""Names of nodes remembered, those of earlier views included; at the bound only the present members' are kept."""

MAX_DERIVED: Final = 4_096
"""Member lists of sets of regions that are remembered until the next epoch; at the bound all are made again."""


class RegionViews:
    """What this node knows of the regions."""

    __slots__ = ("_derived", "current", "epoch", "me", "mine", "names", "passed", "reach", "service")

    def __init__(self, me: Member) -> None:
        self.me = me
        self.current: dict[int, GivenView] = {}  # by region
        self.mine = 0  # the region that this node is in; 0: none
        self.epoch = -1  # the number of the installed one
        self.service = 0
        self.names: dict[int, str] = {me.id: str(me)}  # of senders
        self.reach: dict[
            Address, int
        ] = {}  # how far multicasts to a region go, by its address, of which there is a pool
        self.passed: list[GivenView] = []  # by the last install: own ones that had ended before it told of them
        self._derived: dict[tuple[int, ...], View] = {}

    @property
    def own(self) -> GivenView | None:
        """The view of this node's region."""
        return self.current.get(self.mine)

    def install(self, epoch: GivenEpoch) -> bool:
        """An epoch holds; whether this node has another view of its own region since."""
        before = self.own
        if epoch.is_whole:
            self.current.clear()
        ended = set(epoch.ended)
        if ended:
            self.current = {region: view for region, view in self.current.items() if view.view not in ended}
        for view in epoch.views:
            if view.view not in ended:  # it may be told of one that has ended meanwhile
                self.current[view.region] = view
            if view.address is not None:  # also where it has ended: what it lacks is sent again
                self.reach[view.address] = max([self.me.ttl, *[member.ttl for member in view.members]])
            for member in view.members:
                self.names[member.id] = str(member)
        if len(self.names) > MAX_NAMES:
            present = {member.id: str(member) for view in self.current.values() for member in view.members}
            self.names = {self.me.id: str(self.me), **present}
        self.mine, self.epoch, self.service = epoch.mine, epoch.number, epoch.service
        self._derived.clear()
        self.passed = self._passed(epoch, before)
        return _name(self.own) != _name(before)  # a snapshot names the view that holds already

    def _passed(self, epoch: GivenEpoch, before: GivenView | None) -> list[GivenView]:
        """Views with this node that it has never had: a snapshot names them with their end, and they may still bring
        it something."""
        ended, known = set(epoch.ended), before.epoch if before is not None else epoch.number
        mine = [view for view in epoch.views if any(member.id == self.me.id for member in view.members)]
        return sorted([view for view in mine if view.view in ended and view.epoch > known], key=_age)

    def forget(self) -> None:
        """This node is out of the service."""
        self.current.clear()
        self.mine = 0
        self._derived.clear()

    def name_of(self, origin: int) -> str:
        """A sender as name/life, or its id where nobody has told its name."""
        return self.names.get(origin) or f"{origin:016x}"

    def id_of(self, region: int) -> str:
        """The id of the view that holds for a region."""
        view = self.current.get(region)
        return view.id if view is not None else ""

    def of_node(self) -> View:
        """What the node itself shows: the view of its region, or itself alone where it is in none."""
        own = self.own
        return (
            self.of_regions((own.region,)) if own is not None else _view(max(self.epoch, 0), str(self.me), (self.me,))
        )

    def of_regions(self, regions: tuple[int, ...]) -> View:
        """The view of all groups that cover these regions, without the name of a group."""
        found = self._derived.get(regions)
        if found is None:
            if len(self._derived) >= MAX_DERIVED:
                self._derived.clear()
            found = self._derived[regions] = self._derive(regions)
        return found

    def _derive(self, regions: tuple[int, ...]) -> View:
        views = [self.current[region] for region in regions if region in self.current]
        if not views:
            return _view(max(self.epoch, 0), str(self.me), ())
        newest = max(views, key=_age)
        if len(views) == 1:
            return _view(newest.epoch, newest.leader, newest.members)
        members = {member.id: member for view in views for member in view.members}
        text = ",".join([f"{view.region}:{view.view}" for view in views])
        digest = blake2b(text.encode(), digest_size=4).hexdigest()
        in_order = sorted(members.values(), key=_address)
        return _view(newest.epoch, f"{newest.leader}#{digest}", tuple(in_order))


def _view(counter: int, creator: str, members: tuple[Member, ...]) -> View:
    ring = int.from_bytes(blake2b(f"{counter}@{creator}".encode(), digest_size=8).digest(), "big") or 1
    return View(counter, creator, ring, 0, 0, 0, members, {}, Reason.JOIN, group="")


def _name(view: GivenView | None) -> int:
    return view.view if view is not None else 0


def _age(view: GivenView) -> tuple[int, int]:
    return (view.epoch, view.region)


def _address(member: Member) -> tuple[str, int, int]:
    return (*member.address, member.id)
