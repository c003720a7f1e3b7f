"""Components that part and merge, without a network: who delivers what in which view, by the rules of extended virtual
synchrony (docs/design/sites.md).

Each view has one stream of entries, and each daemon has read a part of it. At a change the members of a view that go on
together form classes. A class delivers everything up to a place that none of its members has passed, and behind it only
what its own members have stamped; the signal stands at one place for all of the class.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ordercast.orderers.sites.interests import Interests
from ordercast.orderers.sites.progress import ExchangeProgress
from ordercast.view import Member, Reason, View, node_id

EVERYBODY = -1


class Stamped(NamedTuple):
    """One entry of a stream."""

    position: int
    origin: int
    number: int  # block number of the origin
    mask: int  # of sites
    what: bytes  # a block, or the body of a roster block
    body: bytes | None  # of a roster block
    note: object = None  # what the test knows of it


class Stack(Protocol):
    """What stands on a daemon."""

    def run(self, entry: Stamped) -> None: ...

    def skip(self, entry: Stamped) -> None:
        """It was not sent to this site."""

    def transitional(self, view: View) -> None: ...

    def enter(self, view: View) -> None: ...


class Component:
    """One view, and all that was stamped in it."""

    def __init__(self, view: View, first_lts: int) -> None:
        self.view = view
        self.entries: list[Stamped] = []
        self.lts = first_lts


class Daemon:
    """One daemon as its engine has it. It begins as a component of one."""

    def __init__(self, name: str, site: int) -> None:
        self.member = Member(node_id(name, 0), name, 0, ("10.0.0.1", 7_000), min_members=1)
        self.id = self.member.id
        self.site = site
        self.component: Component | None = None
        self.read = 0  # entries of the stream
        self.progress = ExchangeProgress()
        self.interests = Interests()
        self.lineage: tuple[str, int] = (f"begin of {name}", 0)
        self.path: list[int] = []  # the classes that it came in
        self.next_number = 0
        self.stack: Stack | None = None

    def is_wanted(self, entry: Stamped) -> bool:
        return bool(entry.mask >> self.site & 1)

    @property
    def is_synced(self) -> bool:
        return self.progress.is_complete

    @property
    def is_behind(self) -> bool:
        return self.component is not None and self.read < len(self.component.entries)

    def deliver(self, entry: Stamped) -> None:
        assert self.stack is not None
        if not self.is_wanted(entry):
            self.stack.skip(entry)
            return
        if entry.body is not None:
            self.progress.on_body(entry.origin, entry.body)
        self.stack.run(entry)


class World:
    """All daemons. `rng` decides what the rules leave open."""

    def __init__(self, rng: random.Random, splits: float = 0.2) -> None:
        self.rng = rng
        self.splits = splits  # how often members of one view come in two classes
        self.daemons: dict[str, Daemon] = {}
        self.counter = 0
        self.lts = 0
        self.classes = 0

    def add(self, name: str, site: int, stack: Stack | None = None) -> Daemon:
        daemon = self.daemons[name] = Daemon(name, site)
        daemon.stack = stack
        return daemon

    def begin(self, daemon: Daemon) -> None:
        """The daemon starts."""
        self.install([daemon], [(daemon.id,)], {daemon.id: (str(daemon.member),)}, Reason.CREATE)

    # Inside of a view.

    def peers(self, daemon: Daemon) -> list[Daemon]:
        return [other for other in self.daemons.values() if other.component is daemon.component]

    def stamp(
        self, daemon: Daemon, what: bytes, body: bytes | None = None, mask: int = EVERYBODY, note: object = None
    ) -> Stamped:
        component = daemon.component
        assert component is not None
        component.lts += 1
        position = component.lts << 24 | daemon.site << 16
        mask = mask if mask == EVERYBODY else mask | 1 << daemon.site
        entry = Stamped(position, daemon.id, daemon.next_number, mask, what, body, note)
        daemon.next_number += 1
        component.entries.append(entry)
        return entry

    def declare(self, daemon: Daemon, keys: Sequence[int]) -> int:
        """INTEREST, which all hear at once; the place of the stream that all have to read until it is stable."""
        component = daemon.component
        assert component is not None
        for key in keys:
            component.lts += 1
            for other in self.peers(daemon):
                other.interests.received(daemon.id, key, component.lts)
        return len(component.entries)

    def is_read(self, daemon: Daemon, place: int) -> bool:
        """Whether all of a component have read so far."""
        return all(other.read >= place for other in self.peers(daemon))

    def deliver(self, daemon: Daemon, count: int = 1 << 30) -> None:
        component = daemon.component
        assert component is not None
        for entry in component.entries[daemon.read : daemon.read + count]:
            daemon.read += 1
            daemon.deliver(entry)

    # Changes of the membership.

    def change(self, parts: Sequence[Sequence[str]]) -> None:
        """These components come to be. A daemon that is in none of them has died."""
        alive = {name for part in parts for name in part}
        self.daemons = {name: daemon for name, daemon in self.daemons.items() if name in alive}
        for part in parts:
            self._form([self.daemons[name] for name in sorted(part)])

    def _form(self, members: list[Daemon]) -> None:
        old: dict[Component, list[Daemon]] = {}
        for daemon in members:
            assert daemon.component is not None
            old.setdefault(daemon.component, []).append(daemon)
        rosters: list[tuple[int, ...]] = []
        came: dict[int, tuple[str, ...]] = {}
        for component, together in old.items():
            for part in self._split(together):
                self.classes += 1
                if any(daemon.is_synced for daemon in part):
                    rosters.append(tuple(daemon.id for daemon in part))
                else:
                    lineages: dict[tuple[str, int], list[int]] = {}
                    for daemon in part:
                        lineages.setdefault(daemon.lineage, []).append(daemon.id)
                    rosters += [tuple(ids) for ids in lineages.values()]
                came.update({daemon.id: tuple(str(other.member) for other in part) for daemon in part})
                self._finish(component, part)
        self.install(members, rosters, came, Reason.RESET)

    def _split(self, together: list[Daemon]) -> list[list[Daemon]]:
        """Members of one view may come in several classes."""
        if len(together) > 1 and self.rng.random() < self.splits:
            at = self.rng.randrange(1, len(together))
            return [together[:at], together[at:]]
        return [together]

    def _finish(self, component: Component, part: list[Daemon]) -> None:
        """What a class delivers of its old view."""
        rng, entries = self.rng, component.entries
        ids = {daemon.id for daemon in part}
        furthest = max(daemon.read for daemon in part)
        horizon = rng.randint(furthest, len(entries))
        kept = entries[:horizon] + [entry for entry in entries[horizon:] if entry.origin in ids]
        signal = rng.randint(furthest, horizon)
        for daemon in part:
            for entry in kept[daemon.read : signal]:
                daemon.deliver(entry)
            assert daemon.stack is not None
            daemon.stack.transitional(component.view)
            for entry in kept[signal:]:
                daemon.deliver(entry)
            daemon.path.append(self.classes)
            if daemon.is_synced:
                daemon.lineage = (component.view.id, self.classes)

    def install(
        self,
        members: list[Daemon],
        rosters: list[tuple[int, ...]],
        came: dict[int, tuple[str, ...]],
        reason: Reason,
    ) -> None:
        self.counter += 1
        self.lts = max([self.lts] + [daemon.component.lts for daemon in members if daemon.component is not None]) + 1
        first_lts = self.lts
        shape = View(
            self.counter,
            str(members[0].member),
            1,
            1,
            self.counter,
            first_lts << 24,
            tuple(daemon.member for daemon in members),
            {},
            reason,
            rosters=tuple(sorted(rosters)),
        )
        component = Component(shape, first_lts)
        for daemon in members:
            daemon.component, daemon.read = component, 0
            daemon.progress.begin(shape.rosters)
            daemon.interests.place({other.id: other.site for other in members})
        for daemon in members:
            assert daemon.stack is not None
            daemon.stack.enter(_with(shape, came[daemon.id]))


def _with(view: View, came_with: tuple[str, ...]) -> View:
    return View(
        view.counter,
        view.creator,
        view.ring,
        view.incarnation,
        view.seq,
        view.position,
        view.members,
        view.numbers,
        view.reason,
        came_with=came_with,
        rosters=view.rosters,
    )
