"""Hosts on components that part and merge at random: what programs see must be extended virtual synchrony.

Two sessions of each node open, leave and send to groups, alone and several at once, while daemons crash, part, merge
and come. What the judge knows are the events of the ports: messages, views, signals.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.shared_directory import SharedDirectory
from tests.unit.site_engine import Sites

from ordercast.config import GroupConfig
from ordercast.engine import Transitional
from ordercast.groups.events import Batch, Left
from ordercast.groups.port import Port
from ordercast.groups.session import Session
from ordercast.service import AGREED
from ordercast.view import View

GROUPS = ["a", "b", "c", "d"]


class Period:
    """What one session saw in one view of a group: messages to it alone."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.seen: list[bytes] = []
        self.signals = 0  # a group that loses nobody keeps its view when the underlay gets another one


class Judge:
    """The periods of one port, as its events come."""

    def __init__(self, name: str, port: Port, got: set[bytes]) -> None:
        self.name = name
        self.port = port
        self.periods: list[Period] = []
        self.got = got  # by all ports of the session

    @property
    def node(self) -> str:
        return self.name.rpartition("@")[2].partition("/")[0]

    def take(self) -> None:
        while (event := self.port.take()) is not None:
            if isinstance(event, View):
                assert event.group == self.port.group
                assert self.name in map(str, event.members)
                self.periods.append(Period(event))
            elif isinstance(event, Transitional):
                assert event.view == self.periods[-1].view.id
                self.periods[-1].signals += 1
            elif isinstance(event, Batch):
                for message in event.each():
                    assert self.port.group in message.groups
                    text = message.payload[:12]
                    assert text not in self.got, "a session gets it once, by whichever group"
                    self.got.add(text)
                    if len(message.groups) == 1:
                        self.periods[-1].seen.append(text)
            else:
                assert isinstance(event, Left)
                assert event.wanted, event


class Program:
    """Random nodes on random components."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sites = Sites(rng, SharedDirectory("floor", *GROUPS))
        self.judges: list[Judge] = []
        self.others: dict[str, Session] = {}  # of each node, besides its own
        self.got: dict[str, set[bytes]] = {}
        self.sent = 0
        self.born = 0
        for _ in range(rng.randint(2, 4)):
            self.bear()

    def bear(self) -> None:
        self.born += 1
        name = f"n{self.born}"
        host = self.sites.host(name, self.rng.randrange(3))
        other = host.open_session("s")
        for session in (None, other):
            host.attach(0, "floor", config=GroupConfig(), session=session)
        host.finish(0)
        self.others[name] = other

    def ports(self, name: str) -> list[Port]:
        return [port for port in self.sites.hosts[name].ports if port.group]

    def act(self, name: str) -> None:
        rng, host = self.rng, self.sites.hosts[name]
        group, session = rng.choice(GROUPS), rng.choice((None, self.others[name]))
        label = session.label if session is not None else ""
        mine = [port for port in self.ports(name) if port.stream.label == label]
        port = next((port for port in mine if port.group == group), None)
        chance = rng.random()
        if port is None:
            if chance < 0.5:
                (port,) = self.sites.open(host, group, session=session)
                title = f"{label}@{name}/0" if label else f"{name}/0"
                self.judges.append(Judge(title, port, self.got.setdefault(title, set())))
            else:
                self.send(name, label, [group])
        elif chance < 0.12:
            if not port.is_leaving:
                host.leave(port, rng.choice((b"", b"bye")))
        elif chance < 0.7 and not port.is_leaving:
            self.sent += 1
            port.offer(b"%12d" % self.sent + bytes(rng.choice((0, 0, 0, 130_000))), AGREED)
        elif chance < 0.85:
            inside = [port for port in mine if not port.is_leaving]
            each = rng.choices(inside, k=4) if inside else []
            if each:
                self.sent += 4
                said = [b"%12d" % (self.sent - at) for at in range(4)]
                inside[0].stream.offer_many_to(said, AGREED, 0, [12] * 4, each, numbered=2)
        else:
            self.send(name, label, rng.sample(GROUPS, 2))

    def send(self, name: str, label: str, groups: list[str]) -> None:
        self.sent += 1
        stream = next(port.stream for port in self.sites.hosts[name].ports if port.stream.label == label)
        stream.offer_to(groups, b"%12d" % self.sent, AGREED)

    def step(self) -> None:
        rng, sites = self.rng, self.sites
        names = list(sites.world.daemons)
        name = rng.choice(names)
        chance = rng.random()
        if chance < 0.05:
            if rng.random() < 0.3 and len(names) < 5:
                self.bear()
                names.append(f"n{self.born}")
            elif rng.random() < 0.2 and len(names) > 2:
                names.remove(rng.choice(names))
            parts: list[list[str]] = [[] for _ in range(rng.choice((1, 1, 2)))]
            for each in names:
                rng.choice(parts).append(each)
            sites.change(*[" ".join(part) for part in parts if part])
        elif chance < 0.5:
            sites.engines[name].is_open = rng.random() < 0.8
            sites.turn(name, rng.choice((0, 1, 3, 50)))
        else:
            self.act(name)
        if rng.random() < 0.3:
            self.judge()

    def judge(self) -> None:
        for judge in self.judges:
            judge.take()

    def end(self) -> None:
        sites = self.sites
        sites.change(" ".join(sites.world.daemons))
        for engine in sites.engines.values():
            engine.is_open = True
        for _ in range(4):
            sites.settle(15)
            self.judge()
        living = [judge for judge in self.judges if judge.node in sites.world.daemons]
        for name in sites.world.daemons:
            for port in self.ports(name):
                assert port.is_member, (name, port.group)
                assert not port.is_leaving
                assert port.stream.queue.count == 0, "nothing waits"
            shared = sites.hosts[name].ports[0].channel.shared
            assert shared is not None
            assert shared.is_at_rest
        last: dict[str, set[tuple[str, tuple[str, ...]]]] = {}
        for judge in living:
            if judge.port.gone is None:
                view = judge.periods[-1].view
                last.setdefault(judge.port.group, set()).add((view.id, tuple(map(str, view.members))))
        for group, found in last.items():
            assert len(found) == 1, (group, found)
            members = {judge.name for judge in living if judge.port.gone is None and judge.port.group == group}
            assert set(next(iter(found))[1]) == members
        self.compare()

    def compare(self) -> None:
        """Sessions that go together from one view to the next have seen the same."""
        for judge in self.judges:
            for at, period in enumerate(judge.periods[1:]):
                earlier = judge.periods[at]
                for other in self.judges:
                    if other is judge or other.port.group != judge.port.group:
                        continue
                    if other.name not in period.view.came_with:
                        continue
                    index = next((i for i, each in enumerate(other.periods) if each.view.id == period.view.id), None)
                    if index is None:
                        continue  # it crashed before it came to it, or another port of that node is meant
                    assert index, "it is said to come along, and is new"
                    theirs = other.periods[index - 1]
                    assert judge.name in other.periods[index].view.came_with
                    assert theirs.view.id == earlier.view.id
                    assert theirs.seen == earlier.seen
        ids: dict[tuple[str, str], tuple[str, ...]] = {}
        for judge in self.judges:
            for period in judge.periods:
                members = tuple(map(str, period.view.members))
                assert ids.setdefault((judge.port.group, period.view.id), members) == members, "one id, one list"


@given(st.integers(0, 1 << 32), st.integers(40, 160))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_programs_see_extended_virtual_synchrony(seed: int, steps: int) -> None:
    program = Program(random.Random(seed))
    for _ in range(steps):
        program.step()
    program.end()
