# ruff: noqa: ARG002 - a fake takes what the contract names, and uses what it needs
"""Hosts over components that part and merge: an engine of `tests.unit.components.World`.

What an engine submits is stamped at once, with the mask that the groups give it, and delivered when the test lets the
daemon read. A daemon may stamp only while `is_open`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.unit.channels import FLOOR
from tests.unit.components import Daemon, Stamped, World
from tests.unit.fake_engine import Exchange, FakeEngine

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Delivery, Joined, Outbox, Run, Transitional
from ordercast.groups.directory import Directory
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.session import Session
from ordercast.orderers.sites.interests import Interests, group_key
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, View
from ordercast.wire.block import ROSTER, groups_of, head_of, roster_body


class SiteEngine(FakeEngine):
    """A daemon below a host."""

    def __init__(self, sites: Sites, daemon: Daemon, me: Member, config: GroupConfig, options: dict[str, Any]) -> None:
        super().__init__(Exchange(), "floor", me, config, options)
        self.world = sites.world
        self.daemon = daemon
        self.is_open = True
        self.seq = 0
        self.declared: dict[str, int] = {}  # group -> the place of the stream that all have to read
        self.hurried = 0
        self.is_behind = False
        self.masks: list[int] = []  # of the blocks that it stamped, but for operations
        self.interest = self
        daemon.stack = self
        daemon.next_number = self.next_block

    gives_locks = False

    def start(self, now_ns: int, out: Outbox) -> None:
        self.pending.append(Joined())
        self.world.begin(self.daemon)

    def room(self, now_ns: int) -> tuple[int, int]:
        return (1 << 20 if self.is_open else 0), 60_000

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        if not self.is_open:
            return 0
        for block in blocks:
            head = head_of(block)
            if head.flags & ROSTER:
                self.world.stamp(self.daemon, block, bytes(roster_body(block, head)))
                continue
            groups = groups_of(block, head)
            mask = self.interests.mask((groups,) if isinstance(groups, int) else groups)
            self.masks.append(mask | 1 << self.daemon.site)
            self.world.stamp(self.daemon, block, None, mask)
        return len(blocks)

    # Interest.

    @property
    def interests(self) -> Interests:
        return self.daemon.interests

    @property
    def far_daemons(self) -> dict[Address, str]:
        return {}

    def declare(self, names: Sequence[str]) -> None:
        place = self.world.declare(self.daemon, [group_key(name) for name in names])
        self.declared.update(dict.fromkeys(names, place))

    def hurry(self, priority: int) -> None:
        self.hurried = priority

    def lag(self, is_behind: bool) -> None:
        self.is_behind = is_behind

    def is_stable(self, name: str) -> bool:
        place = self.declared.get(name)
        return place is not None and self.world.is_read(self.daemon, place)

    # What the world says.

    def run(self, entry: Stamped) -> None:
        self.seq += 1
        delivery = Delivery(self.seq, entry.position, entry.origin, entry.number, entry.what)
        self.pending.append(Run([delivery]))

    def skip(self, entry: Stamped) -> None:
        pass

    def transitional(self, view: View) -> None:
        self.pending.append(Transitional(view.id))

    def enter(self, view: View) -> None:
        self.declared.clear()
        self.view = view
        self.pending.append(view)


class Sites:
    """A world and the hosts in it."""

    def __init__(self, rng: Random | None = None, directory: Directory = FLOOR) -> None:
        self.world = World(rng or Random(1), splits=0.2 if rng is not None else 0.0)
        self.hosts: dict[str, Host] = {}
        self.engines: dict[str, SiteEngine] = {}
        self._directory = directory

    def __call__(
        self, group: str, me: Member, config: GroupConfig, timing: Timing, rng: Random, **options: Any
    ) -> SiteEngine:
        daemon = self.world.daemons[me.name]
        engine = self.engines[me.name] = SiteEngine(self, daemon, daemon.member, config, options)
        return engine

    def host(self, name: str, site: int, recorder: Recorder | None = None) -> Host:
        self.world.add(name, site)
        host = self.hosts[name] = Host(
            name,
            0,
            ("10.0.0.1", 7_000),
            buffer_bytes=1 << 20,
            rng=random.Random(1),
            recorder=recorder,
            engines=self,
            directory=self._directory,
        )
        return host

    def open(self, host: Host, *groups: str, session: Session | None = None) -> list[Port]:
        ports = [host.open(0, group, config=GroupConfig(), session=session) for group in groups]
        host.finish(0)
        return ports

    def turn(self, name: str, count: int = 1 << 30) -> None:
        """A pass of one host, in which its daemon reads."""
        host = self.hosts[name]
        self.world.deliver(self.world.daemons[name], count)
        for port in host.ports:
            host.touch(port)
        host.finish(0)

    def settle(self, rounds: int = 25) -> None:
        for _ in range(rounds):
            for name in self.world.daemons:
                if name in self.engines:
                    self.turn(name)

    def change(self, *parts: str) -> None:
        """Components, each as the names of its daemons. Nobody has come to them yet."""
        self.world.change([part.split() for part in parts])
        self.hosts = {name: host for name, host in self.hosts.items() if name in self.world.daemons}
