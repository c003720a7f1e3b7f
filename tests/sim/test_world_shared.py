"""Two groups on one underlay, with real engines in virtual time (docs/design/overview.md section 1: groups are
names)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.shared_directory import SharedDirectory

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.groups.consumption import PORT_BYTES
from ordercast.groups.events import Batch, Message
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.service import AGREED, FIFO, SAFE, Service
from ordercast.sim.application import HostStack, boot_host
from ordercast.sim.checkers import check_all
from ordercast.sim.network import LAN, NetworkModel
from ordercast.sim.world import Machine, World
from ordercast.view import View

FLOOR = SharedDirectory("floor", "a", "b")
LOSSY = replace(LAN, loss=0.03)
ORDERERS = ("token", "sequencer", "timestamp")


class Application:
    """A program on one node that is in some of the groups, and takes what comes unless it is told not to."""

    def __init__(self, world: World, name: str, groups: Sequence[str], config: GroupConfig) -> None:
        self.world = world
        self.groups = groups
        self.config = config
        self.stopped: set[str] = set()  # groups that it does not receive from
        self.got: list[Message] = []  # of all groups, in the order in which the node delivered it
        self.views: dict[str, list[View]] = {group: [] for group in groups}
        self.node = world.add(name, self.boot)
        world.start(name)

    def boot(self, node: Machine) -> HostStack:
        self.host: Host = boot_host(self.world, node, Timing(), None, FLOOR)
        self.ports: dict[str, Port] = {}
        for group in self.groups:
            self.ports[group] = self.host.open(self.world.clock(node), group, config=self.config)
        self.world.listen(node, self.host.underlay_of(self.groups[0]))
        node.after_pass = self.turn
        return HostStack(self.host)

    def turn(self, _now_ns: int) -> None:
        found: list[Message] = []
        for group, port in self.ports.items():
            while group not in self.stopped and (event := port.take()) is not None:
                if isinstance(event, Batch):
                    found.extend(event.each())
                elif isinstance(event, View):
                    self.views[group].append(event)
        self.got += sorted(found, key=lambda message: message.position)
        if any(port.has_consumed for port in self.ports.values()):
            self.wake()

    def wake(self) -> None:
        for port in self.ports.values():
            self.host.touch(port)
        self.world.wake(self.node)

    def send(self, group: str, count: int, service: Service = AGREED, size: int = 20) -> None:
        port = self.ports[group]
        for _ in range(count):
            payload = f"{self.node.name}:{group}:{port.end_number}|".encode().ljust(size, b".")
            assert port.offer(payload, service) >= 0
        self.wake()

    def of(self, group: str) -> list[Message]:
        return [message for message in self.got if message.group == group]


def floor(
    names: str = "xyz",
    *,
    orderer: str = "token",
    network: NetworkModel = LAN,
    **limits: Any,
) -> tuple[World, list[Application]]:
    """Nodes that are in all groups, and see one another."""
    world = World(7, network)
    config = GroupConfig(orderer=orderer, **limits)
    applications = [Application(world, name, "ab", config) for name in names]
    assert world.run_until(lambda: all(_sees(each, len(names)) for each in applications), 30 * SECOND)
    return world, applications


def _sees(application: Application, members: int) -> bool:
    return all(port.view is not None and len(port.view.members) == members for port in application.ports.values())


def judge(world: World) -> None:
    verdict = check_all(world.rows(), clock="virtual", quiet=True)
    assert verdict.held, "\n".join(verdict.summary())


def positions(messages: list[Message]) -> list[tuple[int, str, int, str]]:
    return [(message.position, message.sender, message.number, message.group) for message in messages]


@pytest.mark.parametrize("network", [LAN, LOSSY], ids=["lan", "lossy"])
@pytest.mark.parametrize("orderer", ORDERERS)
def test_order_holds_across_groups_that_share_an_underlay(orderer: str, network: NetworkModel) -> None:
    world, applications = floor(orderer=orderer, network=network)
    for turn in range(30):
        for index, application in enumerate(applications):
            application.send("ab"[(turn + index) % 2], 1 + turn % 3, SAFE if turn % 7 == 3 else AGREED)
            if turn % 3 == index:
                application.send("ab"[turn % 2], 2)
        world.run_until(world.now_ns + 2 * MS)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    first = applications[0]
    assert {message.group for message in first.got} == {"a", "b"}
    for application in applications:
        for group in "ab":
            mine = application.of(group)
            assert all(message.payload.split(b":")[1] == group.encode() for message in mine), "only its own group's"
            assert mine, "each group has its messages"
        # One total order over both groups, without a message that one has and another has not.
        assert positions(application.got) == positions(first.got)
        assert [message.position for message in application.got] == sorted(
            {message.position for message in application.got}
        )
        for sender in {message.sender for message in application.got}:
            numbers = [message.number for message in application.got if message.sender == sender]
            assert numbers == list(range(len(numbers))), "FIFO across the two groups of one session"
    judge(world)


def test_trace_names_the_underlay_and_the_group() -> None:
    world, applications = floor()
    applications[0].send("a", 3)
    applications[1].send("b", 2)
    applications[1].send("b", 1, size=200_000)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    rows = world.rows()
    assert {row.underlay for row in rows if row.underlay} == {"floor"}
    for kind in ("submit", "hold", "placed", "deliver"):
        found = [row for row in rows if row.kind == kind]
        assert {row.group for row in found} == {"a", "b"}, kind
        assert all(row.group == ("a" if row.sender == "x/0" else "b") for row in found), kind
    for kind in ("view", "join"):
        assert {row.group for row in rows if row.kind == kind} == {None, "a", "b"}, kind
    for kind in ("tx", "rx"):
        assert {row.group for row in rows if row.kind == kind} == {None}, kind
    judge(world)


def test_each_group_has_views_of_its_own_that_are_the_same_everywhere() -> None:
    world, applications = floor()
    for group in "ab":
        shown = [application.views[group] for application in applications]
        longest = max(shown, key=len)
        assert [len(view.members) for view in longest] == [1, 2, 3], "a join is one view"
        for application, views in zip(applications, shown, strict=True):
            assert [view.id for view in views] == [view.id for view in longest[-len(views) :]]
            assert [view.group for view in views] == [group] * len(views)
            assert views[0].came_with == (str(application.node),), "a newcomer comes alone"
            assert all(view.came_with == earlier for view, earlier in _followed(views))
    ids = {view.id for application in applications for group in "ab" for view in application.views[group]}
    assert len(ids) == 6, "no two groups share a view"
    judge(world)


def _followed(views: list[View]) -> list[tuple[View, tuple[str, ...]]]:
    """Views after the first, with the members of the view before."""
    return [(view, tuple(map(str, before.members))) for before, view in pairwise(views)]


def test_messages_of_a_group_without_a_port_here_are_passed_over() -> None:
    world = World(3, LAN)
    config = GroupConfig(history_bytes=256 << 10, max_message=64 << 10)
    both = Application(world, "x", "ab", config)
    one = Application(world, "y", "a", config)
    assert world.run_until(lambda: _members(both, "a") == 2 and _members(one, "a") == 2, 30 * SECOND)
    assert world.run_until(lambda: _members(both, "b") == 1, 30 * SECOND)
    for _ in range(40):
        both.send("b", 20, size=1_000)  # more than the history holds: they must be consumed where nobody wants them
        both.send("a", 1)
        world.run_until(world.now_ns + 20 * MS)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert len(both.of("b")) == 800
    assert (len(one.of("a")), len(one.of("b"))) == (40, 0)
    assert positions(one.got) == positions(both.of("a"))


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_group_that_nobody_receives_from_blocks_its_underlay_late_and_loses_nothing(orderer: str) -> None:
    """Amoeba section 3, for all groups of a channel: its buffers are free when all ports are done. Until then a slow
    port holds PORT_BYTES itself."""
    world, applications = floor(orderer=orderer, history_bytes=256 << 10, max_message=64 << 10, slow="wait")
    slow, sender = applications[1], applications[0]
    slow.stopped.add("b")
    for _ in range(60):
        sender.send("b", 10, size=5_000)
        sender.send("a", 10, size=5_000)
        world.run_until(world.now_ns + 100 * MS)
    assert len(slow.of("a")) == 600, "the slow group holds up nobody yet"
    assert not slow.of("b")
    assert PORT_BYTES // 2 < slow.ports["b"].held_bytes <= PORT_BYTES
    for _ in range(22):
        sender.send("b", 10, size=5_000)
        sender.send("a", 10, size=5_000)
        world.run_until(world.now_ns + 10 * MS)
    world.run_until(world.now_ns + 20 * SECOND)
    assert len(slow.of("a")) < 820, "a group behind the slow one waits with it"
    assert [slow.ports[name].is_holding_up for name in "ab"] == [False, True]
    assert not slow.of("b")
    assert sender.ports["a"].queue.count, "the sender is held back"
    slow.stopped.clear()
    slow.wake()
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    for application in applications:
        assert [message.number for message in application.of("a")] == [
            number for number in range(1_640) if number // 10 % 2
        ]
        assert [message.number for message in application.of("b")] == [
            number for number in range(1_640) if not number // 10 % 2
        ]
    judge(world)


def test_leaving_one_group_leaves_the_others_of_the_underlay_alone() -> None:
    world, applications = floor()
    leaver = applications[2]
    leaver.send("a", 5)
    leaver.host.leave(leaver.ports["a"])
    leaver.send("b", 5)
    assert world.run_until(lambda: leaver.ports["a"].gone is not None, 30 * SECOND)
    assert leaver.ports["b"].is_member
    applications[0].send("a", 1, FIFO)
    applications[0].send("b", 1)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert len(applications[0].of("a")) == 6, "what it sent before it left is delivered"
    assert len(leaver.of("a")) == 5
    assert len(leaver.of("b")) == 6
    again = leaver.ports["a"] = leaver.host.open(world.clock(leaver.node), "a", config=leaver.config)
    assert world.run_until(lambda: again.view is not None, 30 * SECOND)
    assert again.end_number == 10
    leaver.send("a", 1)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert [message.number for message in leaver.of("a")][-1] == 10
    for group in "ab":
        leaver.host.leave(leaver.ports[group])
    leaver.wake()
    assert world.run_until(lambda: not leaver.host.ports and _sees(applications[0], 2), 30 * SECOND)


def test_a_crash_ends_the_membership_of_all_groups() -> None:
    world, applications = floor()
    applications[0].send("a", 50)
    applications[1].send("b", 50)
    world.crash("z")
    assert world.run_until(lambda: _sees(applications[0], 2) and _sees(applications[1], 2), 60 * SECOND)
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert positions(applications[0].got) == positions(applications[1].got)
    assert len(applications[0].got) == 100
    judge(world)


def _members(application: Application, group: str) -> int:
    view = application.ports[group].view
    return len(view.members) if view is not None else 0


def _send_to(application: Application, groups: Sequence[str], text: bytes) -> None:
    """From the application's session, which need not be in the groups."""
    port = next(iter(application.ports.values()))
    assert port.stream.offer_to(groups, text, AGREED) >= 0
    application.wake()


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_message_to_several_groups_comes_once_and_names_them(orderer: str) -> None:
    world = World(5, LAN)
    config = GroupConfig(orderer=orderer)
    members = {name: Application(world, name, groups, config) for name, groups in (("x", "a"), ("y", "b"), ("z", "ab"))}
    x, y, z = members.values()
    assert world.run_until(
        lambda: all(_members(each, "a") == 2 for each in (x, z)) and _members(y, "b") == 2, 30 * SECOND
    )
    _send_to(x, "ab", b"to both")
    x.send("a", 1)
    _send_to(x, "b", b"from outside")
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert [(message.payload, message.groups) for message in z.got if b":" not in message.payload] == [
        (b"to both", ("a", "b")),
        (b"from outside", ("b",)),
    ]
    assert [message.payload for message in y.got] == [b"to both", b"from outside"]
    assert [message.number for message in z.got] == [0, 1, 2], "FIFO over all groups of the sender"
    judge(world)


def test_a_message_to_a_group_that_comes_later_is_ordered_with_its_join() -> None:
    world = World(5, LAN)
    x = Application(world, "x", "a", GroupConfig())
    y = Application(world, "y", "a", GroupConfig())
    assert world.run_until(lambda: _members(x, "a") == _members(y, "a") == 2, 30 * SECOND)
    _send_to(x, "b", b"nobody is there")
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    y.ports["b"] = y.host.open(world.clock(y.node), "b", config=GroupConfig())
    y.views["b"] = []
    y.wake()
    assert world.run_until(lambda: _members(y, "b") == 1, 30 * SECOND)
    _send_to(x, "b", b"now there is")
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert [message.payload for message in y.of("b")] == [b"now there is"]
    judge(world)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_session_may_receive_all_its_groups_in_one_order(orderer: str) -> None:
    world, applications = floor(orderer=orderer)
    fed = applications[0]
    base = fed.host.attach(world.clock(fed.node), "floor", config=fed.config)
    base.stream.feed()
    for turn in range(20):
        for application in applications[1:]:
            application.send("ab"[turn % 2], 1)
            application.send("ab"[(turn + 1) % 2], 2)
        world.run_until(world.now_ns + 2 * MS)
    got: list[Message] = []
    world.run_until(world.now_ns + 5 * SECOND)
    while (event := base.take()) is not None:
        if isinstance(event, Batch):
            got += event.each()
    assert not any(port.has_events for port in fed.ports.values())
    fed.wake()
    assert world.run_to_rest(world.now_ns + 60 * SECOND) == []
    assert [message.position for message in got] == sorted(message.position for message in got)
    assert positions(got) == positions(applications[1].got)
    assert {message.group for message in got} == {"a", "b"}
    judge(world)
