"""Every wait says why, and for which members: a walk through the reasons of docs/guides/stalled.md, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ordercast import SAFE, Failed, Group, Left, Resumed, Stalled, StallReason, Timing
from ordercast.config import MS, SECOND
from ordercast.errors import GroupFailed, NotMember
from ordercast.groups.status import GroupStatus
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.world import World

ORDERERS = ("token", "sequencer", "timestamp")
PATIENT = Timing(suspect_busy_ns=20 * SECOND, suspect_rest_ns=20 * SECOND)
SLOW_RECOVERY = Timing(invite_ns=2 * SECOND, recovery_wait_ns=30 * SECOND)
Program = Callable[[Simulation], Awaitable[None]]


class Listener:
    """Receives everything from a group, and keeps what it hears about standing still."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.heard: list[Stalled | Resumed] = []
        self.failed = 0
        self.on_left: Callable[[], None] = lambda: None
        self._task = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        while True:
            try:
                event, _ = await self.group.receive()
            except GroupFailed:
                await asyncio.sleep(0.1)
                continue
            except NotMember:
                return
            if isinstance(event, Stalled | Resumed):
                self.heard.append(event)
            self.failed += isinstance(event, Failed)
            if isinstance(event, Left):
                self.on_left()

    @property
    def last(self) -> Stalled:
        stalls = [event for event in self.heard if isinstance(event, Stalled)]
        assert stalls, "nothing was told"
        return stalls[-1]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def join_all(node: Simulation, names: str, orderer: str, timing: Timing | None = None) -> list[Group]:
    nodes = [node(name, timing=timing) for name in names]
    return [await each.join("g", orderer=orderer) for each in nodes]


async def flood(group: Group) -> None:
    """Send until nothing more is taken, and wait there."""
    while True:
        await group.send_many([bytes(1_000)] * 1_000)


def status_on(node: SimNode) -> GroupStatus:
    """Of a group that is still being joined: its application has no handle yet."""
    port = node.host.ports[0]
    return port.channel.watching.status_of(port)


def names_of(*groups: Group) -> tuple[str, ...]:
    return tuple(str(group.member) for group in groups)


def run(program: Callable[[Simulation], Awaitable[None]], seed: int = 1) -> World:
    world = World(seed)

    async def whole(node: Simulation) -> None:
        async with asyncio.timeout(120):
            await program(node)

    simulate(whole, world=world)
    return world


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_member_that_does_not_receive_is_named_at_the_others(orderer: str) -> None:
    async def program(node: Simulation) -> None:
        a, b, c = await join_all(node, "abc", orderer)
        listeners = [Listener(a), Listener(b)]
        tasks = [asyncio.create_task(flood(group)) for group in (a, b)]
        await asyncio.sleep(4)
        for listener in listeners:
            assert listener.last.reason is StallReason.NOT_RECEIVING
            assert listener.last.waiting_for == names_of(c)
            assert "does not receive" in listener.last.text
            status = listener.group.status
            assert (status.state, status.reason, status.waiting_for) == ("stalled", listener.last.reason, names_of(c))
            assert status.since == listener.last.since
            assert status.queued > 0
            assert len(listener.heard) == 1, "told once"
        for task in tasks:
            task.cancel()
        late = Listener(c)
        await asyncio.sleep(2)
        for listener in listeners:
            resumed = listener.heard[-1]
            assert isinstance(resumed, Resumed)
            assert 2 < resumed.after < 5
            assert listener.group.status.state == "working"
        for each in (*listeners, late):
            await each.stop()

    run(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_too_few_members_are_counted_and_named_at_every_survivor(orderer: str) -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abcde"]
        groups = [await each.join("g", orderer=orderer) for each in nodes]
        listeners = [Listener(group) for group in groups[:2]]
        await groups[0].send(b"before", confirm=True)
        for each in nodes[2:]:
            each.crash()
        sends = [asyncio.create_task(group.send(b"after", SAFE, confirm=True)) for group in groups[:2]]
        await asyncio.sleep(8)
        for listener in listeners:
            last = listener.last
            assert last.reason is StallReason.NO_QUORUM
            assert sorted(last.waiting_for) == ["c/0", "d/0", "e/0"]
            assert (last.have, last.need) == (2, 3)
            assert "2 of 5 members answer, and 3 are needed" in last.text
            assert listener.group.status.unconfirmed == 1
        for task in sends:
            task.cancel()
        for listener in listeners:
            await listener.stop()

    world = run(program)
    assert {row.node for row in world.rows() if row.kind == "stalled" and "no_quorum" in (row.detail or "")} == {
        "a",
        "b",
    }


def test_a_member_that_only_listens_hears_that_its_group_stands_still() -> None:
    """It waits for nothing of its own, and would wait forever."""

    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abc"]
        groups = [await each.join("g") for each in nodes]
        listener = Listener(groups[0])
        nodes[1].crash()
        nodes[2].crash()
        await asyncio.sleep(10)
        assert (listener.last.reason, listener.last.have, listener.last.need) == (StallReason.NO_QUORUM, 1, 2)
        await listener.stop()

    run(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_recovery_that_takes_long_names_the_silent_and_the_coordinator(orderer: str) -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name, timing=SLOW_RECOVERY) for name in "abc"]
        groups = [await each.join("g", orderer=orderer) for each in nodes]
        listeners = [Listener(group) for group in groups[:2]]
        nodes[2].crash()
        sends = [asyncio.create_task(group.send(b"x", SAFE, confirm=True)) for group in groups[:2]]
        await asyncio.sleep(4.5)
        found = {(listener.last.reason, listener.last.waiting_for) for listener in listeners}
        assert {reason for reason, _ in found} == {StallReason.RECOVERY}
        coordinators = {who for _, waiting_for in found for who in waiting_for} - {"c/0"}
        assert len(coordinators) == 1, "the other one waits for it"
        assert (StallReason.RECOVERY, ("c/0",)) in found
        await asyncio.gather(*sends)
        await asyncio.sleep(1)
        assert [listener.group.status.state for listener in listeners] == ["working"] * 2
        for listener in listeners:
            await listener.stop()

    run(program)


def test_a_newcomer_says_that_a_group_answers_and_does_not_work() -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abc"]
        groups = [await each.join("g") for each in nodes]
        listener = Listener(groups[0])
        nodes[1].crash()
        nodes[2].crash()
        await asyncio.sleep(8)
        late = node("d")
        join = asyncio.create_task(late.join("g"))
        await asyncio.sleep(3)
        status = status_on(late)
        assert (status.state, status.reason, status.waiting_for) == ("stalled", StallReason.JOIN, ("a/0",))
        assert "does not work at present" in status.text
        join.cancel()
        await listener.stop()

    run(program)


def test_a_member_on_its_way_back_says_that_nobody_answers() -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abc"]
        groups = [await each.join("g", alone="wait") for each in nodes]
        listeners = [Listener(group) for group in groups]
        node.world.network.partition([["a"], ["b", "c"]])
        await asyncio.sleep(8)
        assert listeners[0].last.reason is StallReason.NO_QUORUM

        def crash_others() -> None:
            for each in nodes[1:]:
                each.crash()

        listeners[0].on_left = crash_others
        node.world.network.heal()  # it hears that the others have gone on, and when it asks them they are gone
        await asyncio.sleep(8)
        assert (listeners[0].last.reason, listeners[0].last.waiting_for) == (StallReason.JOIN, ())
        assert "no member answers" in groups[0].status.text
        for listener in listeners:
            await listener.stop()

    run(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_blocked_network_names_the_members_that_do_not_answer(orderer: str) -> None:
    """Suspicion takes 20 s here: until then nothing but this tells what is wrong."""

    async def program(node: Simulation) -> None:
        groups = await join_all(node, "abc", orderer, PATIENT)
        listeners = [Listener(group) for group in groups]
        await groups[0].send(b"before", confirm=True)
        node.world.network.partition([["a", "b"], ["c"]])
        tasks = [asyncio.create_task(flood(groups[0])), asyncio.create_task(flood(groups[1]))]
        await asyncio.sleep(6)
        for listener in listeners[:2]:
            assert listener.last.reason is StallReason.NETWORK
            assert listener.last.waiting_for
        named = {who for listener in listeners[:2] for who in listener.last.waiting_for}
        assert "c/0" in named
        for task in tasks:
            task.cancel()
        node.world.network.heal()
        await asyncio.sleep(4)
        assert all(isinstance(listener.heard[-1], Resumed) for listener in listeners[:2])
        for listener in listeners:
            await listener.stop()

    run(program)


@pytest.mark.parametrize("orderer", ["sequencer", "timestamp"])
def test_a_ring_that_cannot_decide_to_end_says_so_and_its_member_comes_to_the_larger_one(orderer: str) -> None:
    """Each rule asks for all members, and one dies as the rings meet: its vote for the end of its ring is missing. With
    the token it would be the member that orders, and nothing would be ordered."""

    async def program(node: Simulation) -> None:
        nodes = {name: node(name) for name in "abecd"}
        node.world.network.partition([["a", "b", "e"], ["c", "d"]])
        groups = {name: await each.join("g", orderer=orderer, min_members="all") for name, each in nodes.items()}
        listeners = {name: Listener(group) for name, group in groups.items()}
        await asyncio.sleep(2)
        assert [str(member) for member in groups["c"].status.members] == ["c/0", "d/0"]
        nodes["d"].crash()
        node.world.network.heal()
        await asyncio.sleep(8)
        assert (listeners["c"].last.reason, listeners["c"].last.waiting_for) == (StallReason.NETWORK, ("d/0",))
        assert "the dissolve of c/0 is not decided" in listeners["c"].last.text
        assert listeners["c"].group.status.state == "stalled"
        await asyncio.sleep(30)
        assert isinstance(listeners["c"].heard[-1], Resumed)
        assert {str(member) for member in groups["c"].status.members} == {"a/0", "b/0", "e/0", "c/0"}
        for listener in listeners.values():
            await listener.stop()

    run(program)


def test_a_failed_group_says_that_it_waits_for_reset() -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abc"]
        groups = [await each.join("g", recovery="manual") for each in nodes]
        listener = Listener(groups[0])
        other = Listener(groups[1])
        nodes[2].crash()
        await asyncio.sleep(9)
        assert listener.failed
        assert listener.last.reason is StallReason.FAILED
        assert "reset()" in groups[0].status.text
        assert await groups[0].reset() == 2
        await asyncio.sleep(1)
        assert groups[0].status.state == "working"
        await listener.stop()
        await other.stop()

    run(program)


def test_a_lock_that_another_member_holds_is_shown_and_is_no_stall() -> None:
    async def program(node: Simulation) -> None:
        a, b = await join_all(node, "ab", "token")
        listeners = [Listener(a), Listener(b)]
        async with a.lock("printer"):
            waiting = asyncio.create_task(b.lock("printer").__aenter__())
            await asyncio.sleep(6)
            status = b.status
            assert (status.state, status.reason, status.waiting_for) == ("working", StallReason.LOCK, ("a/0",))
            assert status.text == "lock 'printer' is held by a/0"
            assert a.status.reason is None
        await (await waiting).__aexit__(None, None, None)
        await asyncio.sleep(1.5)
        assert b.status.reason is None
        assert not listeners[0].heard
        assert not listeners[1].heard
        for listener in listeners:
            await listener.stop()

    run(program)


def test_a_call_that_is_not_answered_names_the_holder_of_its_handler() -> None:
    async def program(node: Simulation) -> None:
        a, b = await join_all(node, "ab", "token")
        listeners = [Listener(a), Listener(b)]
        async with a.handler(2):
            call = asyncio.create_task(b.call(b"?", handler=2, timeout=None))
            await asyncio.sleep(6)
            assert (b.status.reason, b.status.waiting_for) == (StallReason.CALL, ("a/0",))
            assert b.status.state == "working"
            call.cancel()
        for listener in listeners:
            await listener.stop()

    run(program)


@pytest.mark.parametrize("orderer", ORDERERS)
def test_a_leave_that_is_held_up_says_by_which_member(orderer: str) -> None:
    async def program(node: Simulation) -> None:
        a, b, c = await join_all(node, "abc", orderer)
        listeners = [Listener(a), Listener(b)]
        flooding = asyncio.create_task(flood(a))
        await asyncio.sleep(0.5)
        sending = asyncio.create_task(flood(b))
        await asyncio.sleep(0.5)
        sending.cancel()
        leave = asyncio.create_task(b.leave())
        await asyncio.sleep(2.5)
        assert not leave.done()
        assert (b.status.reason, b.status.waiting_for) == (StallReason.NOT_RECEIVING, names_of(c))
        await leave
        assert b.status.state == "left"
        assert b.status.reason is None
        flooding.cancel()
        for listener in listeners:
            await listener.stop()

    run(program)


def test_a_group_that_works_is_never_called_stalled() -> None:
    """Under load, with losses, and at rest for long."""

    async def program(node: Simulation) -> None:
        groups = await join_all(node, "abc", "token")
        listeners = [Listener(group) for group in groups]
        for _ in range(20):
            for group in groups:
                await group.send_many([bytes(100)] * 200, confirm=True)
            await asyncio.sleep(0.3)
        await asyncio.sleep(30)
        assert [listener.heard for listener in listeners] == [[], [], []]
        assert [group.status.state for group in groups] == ["working"] * 3
        for listener in listeners:
            await listener.stop()

    run(program)


def test_a_process_that_stood_still_itself_blames_nobody() -> None:
    async def program(node: Simulation) -> None:
        groups = await join_all(node, "abc", "token", PATIENT)
        listeners = [Listener(group) for group in groups]
        send = asyncio.create_task(groups[0].send(b"x", confirm=True))
        await asyncio.sleep(0)
        node.world.pause("a")
        await asyncio.sleep(6)
        node.world.resume("a")
        await send
        await asyncio.sleep(1)
        assert not [event for event in listeners[0].heard if event.reason is not StallReason.NETWORK]
        assert not [row for row in node.world.rows() if row.kind == "stalled" and row.node == "a"]
        for listener in listeners:
            await listener.stop()

    run(program)


def test_a_lightweight_group_and_its_underlay_are_told() -> None:
    async def program(node: Simulation) -> None:
        nodes = [node(name) for name in "abc"]
        shared = [await each.attach("floor") for each in nodes]
        groups = [await each.join("lamp", underlay="floor") for each in nodes]
        listener = Listener(groups[0])
        nodes[1].crash()
        nodes[2].crash()
        await asyncio.sleep(9)
        assert listener.last.reason is StallReason.NO_QUORUM
        assert groups[0].status.waiting_for == shared[0].status.waiting_for == listener.last.waiting_for
        assert shared[0].status.state == "stalled"
        await listener.stop()

    run(program)


def test_the_times_that_are_told_are_those_of_the_standstill() -> None:
    async def program(node: Simulation) -> None:
        a, b = await join_all(node, "ab", "token", PATIENT)
        listeners = [Listener(a), Listener(b)]
        await a.send(b"x", confirm=True)
        node.world.network.partition([["a"], ["b"]])
        began = asyncio.get_running_loop().time()
        send = asyncio.create_task(a.send(b"y", SAFE, confirm=True))
        while not listeners[0].heard:
            await asyncio.sleep(10 * MS / SECOND)
        told_after = asyncio.get_running_loop().time() - began
        assert 1.0 <= told_after <= 1.3
        await asyncio.sleep(3)
        node.world.network.heal()
        await send
        await asyncio.sleep(0.5)
        resumed = listeners[0].heard[-1]
        assert isinstance(resumed, Resumed)
        assert resumed.after == pytest.approx(told_after + 3, abs=1.5)
        for listener in listeners:
            await listener.stop()

    run(program)
