"""Groups on regions through the public API, in virtual time, over engines that only carry blocks (`fake_regions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.unit.fake_regions import FakeService

from ordercast import (
    AGREED,
    FIFO,
    SAFE,
    UNRELIABLE,
    Batch,
    Group,
    JoinRefused,
    Left,
    Lost,
    Message,
    MixedBatch,
    NotMember,
    Stalled,
    UnsupportedService,
    UsageError,
    View,
)
from ordercast.config import SECOND
from ordercast.engine import StallReason, Waiting
from ordercast.sim.api import SimNode, Simulation, simulate
from ordercast.sim.world import World

Program = Callable[[Simulation], Coroutine[Any, Any, None]]


def run(program: Program, service: FakeService) -> None:
    simulate(program, regions=service.engines, limit_ns=60 * SECOND)


async def until(condition: Callable[[], bool]) -> None:
    """Let virtual time go on."""
    while not condition():
        await asyncio.sleep(0.001)


async def messages(group: Group, count: int) -> list[Message]:
    """The next messages; views between them are passed over."""
    found: list[Message] = []
    async for event in group:
        if isinstance(event, Message):
            found.append(event)
            if len(found) == count:
                break
    return found


async def both_in(node: Simulation, *names: str) -> tuple[SimNode, SimNode]:
    """Two nodes in all of these groups, each of which knows of the other."""
    a, b = node("a"), node("b")
    for each in (a, b):
        await each.join_many(names, orderer="regions")
    await until(lambda: len(a.group(names[0]).members) == 2)
    return a, b


# A group is moved to regions by one argument. ------------------------------------------------------------------------


@pytest.mark.parametrize("orderer", ["token", "regions"])
def test_a_fifo_program_runs_unchanged_on_a_group_of_its_own_and_on_regions(orderer: str) -> None:
    service = FakeService()
    seen: dict[str, list[bytes]] = {}

    async def member(node: SimNode, others: int) -> None:
        async with node, await node.join("prices", orderer=orderer) as group:
            await until(lambda: len(group.members) == others)
            await group.send_many([b"%s %d" % (node.name.encode(), number) for number in range(20)], FIFO)
            await group.send(b"large " * 30_000, FIFO, confirm=True)
            await group.flush()
            got = seen[node.name] = []
            async for event in group:
                if isinstance(event, Message):
                    assert event.group == "prices"
                    assert event.service == FIFO
                    got.append(event.payload[:16])
                if len(got) == others * 21:
                    break

    async def program(node: Simulation) -> None:
        await asyncio.gather(*(member(node(name), 3) for name in "abc"))

    run(program, service)
    for got in seen.values():
        for name in "abc":
            mine = [payload for payload in got if payload.startswith(name.encode())]
            assert mine == [b"%s %d" % (name.encode(), number) for number in range(20)]
        assert sum(payload.startswith(b"large") for payload in got) == 3


@pytest.mark.parametrize("flow", ["window", "demand", "qsm"])
def test_the_first_join_says_how_a_node_paces_what_it_sends_to_regions(flow: str) -> None:
    async def program(node: Simulation) -> None:
        a = node("a")
        group = await a.join("red", orderer="regions", flow=flow)
        assert group.config.flow == flow
        await a.join("green", orderer="regions")
        await a.join("blue", orderer="regions", flow=flow)
        await a.join_many(["x", "y"], orderer="regions")
        other = "qsm" if flow == "window" else "window"
        with pytest.raises(UsageError, match=f"flow='{flow}': leave flow out"):
            await a.join("white", orderer="regions", flow=other)
        with pytest.raises(UsageError, match="other parameters"):
            await a.attach("regions", buffers=1 << 23)

    run(program, FakeService())


def test_a_join_is_told_at_once_what_regions_have_not() -> None:
    """Not to give it to `attach`, which would refuse it as well."""

    async def program(node: Simulation) -> None:
        a = node("a")
        for terms, text in (
            ({"min_members": 2}, "leave min_members out"),
            ({"resilience": 1}, "needs another orderer"),
            ({"slow": "wait"}, "leave slow out"),
            ({"contact": "127.0.0.1:7000"}, "leave contact out"),
        ):
            with pytest.raises(UsageError, match=text):
                await a.join("red", orderer="regions", **terms)
        with pytest.raises(TypeError, match="no argument 'archive'"):
            await a.join("red", orderer="regions", archive="x")  # type: ignore[call-arg]
        with pytest.raises(UsageError, match=r"buffers: these belong to the underlay.*attach\('regions', "):
            await a.join("red", orderer="regions", buffers=1 << 23)

    run(program, FakeService())


def test_a_join_without_a_service_says_how_to_get_one() -> None:
    service = FakeService()
    service.is_silent = True

    async def program(node: Simulation) -> None:
        with pytest.raises(TimeoutError, match=r"ordercast gms.*gms='embedded'"):
            await node("a").join("red", orderer="regions", timeout=2)

    run(program, service)


def test_policies_of_other_orderers_are_none_of_regions() -> None:
    async def program(node: Simulation) -> None:
        a = node("a")
        with pytest.raises(UsageError, match="'window', 'demand', 'qsm'"):
            await a.join("red", orderer="regions", flow="open")
        assert (await a.join("red", orderer="regions")).config.flow == "window"

    run(program, FakeService())


# Joining and leaving. ------------------------------------------------------------------------------------------------


def test_views_of_groups_come_from_their_regions() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        red = await a.join("red", orderer="regions")
        assert red.members == (a.member,)
        await b.join_many(["red", "green"], orderer="regions")
        await c.join("green", orderer="regions")
        await until(lambda: len(red.members) == 2)
        assert set(red.members) == {a.member, b.member}
        green = b.group("green")
        await until(lambda: len(green.members) == 2)
        assert set(green.members) == {b.member, c.member}
        assert green.view is not None
        assert c.group("green").view is not None
        assert green.view.id == c.group("green").view.id  # type: ignore[union-attr]
        first, _ = await green.receive()
        assert isinstance(first, View)
        assert first.group == "green"
        await c.group("green").leave()
        await until(lambda: green.members == (b.member,))
        second, _ = await green.receive()
        assert isinstance(second, View)
        assert second.members == (b.member,)

    run(program, service)


def test_a_view_is_told_before_the_first_message_of_its_epoch() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        c = node("c")
        red = b.group("red")
        await messages_sent(a.group("red"), b"one")
        await c.join("red", orderer="regions")
        await until(lambda: len(a.group("red").members) == 3)
        await messages_sent(a.group("red"), b"two")
        events = [(await red.receive())[0] for _ in range(4)]
        shown = [len(event.members) if isinstance(event, View) else event.payload for event in events]  # type: ignore[union-attr]
        assert shown == [2, b"one", 3, b"two"]

    run(program, service)


def test_a_view_that_a_snapshot_names_again_is_no_new_one() -> None:
    service, world = FakeService(), World(1)

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "prices")
        before = a.group("prices").view
        c = node("c")
        await c.join("rates", orderer="regions")  # an epoch that changes nothing for the others, told as a whole
        await c.group("rates").send(b"1", confirm=True)
        await b.group("prices").send(b"2", confirm=True)
        assert a.group("prices").view == before

    simulate(program, world=world, regions=service.engines, limit_ns=60 * SECOND)
    for name in "abc":
        rows = world.nodes[name].recorders[0].rows()
        views = [row.view for row in rows if row.kind == "view" and row.group is None]
        assert views
        assert len(set(views)) == len(views)


async def messages_sent(group: Group, payload: bytes) -> None:
    await group.send(payload, confirm=True)


def test_join_many_and_leave_many_work_on_all_groups_at_once() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a = node("a")
        names = [f"g{number}" for number in range(3_000)]
        await a.join_many(names, orderer="regions")
        shared = await a.attach("regions")
        assert shared.groups == names
        assert service.epoch <= 2  # one request for all of them
        with pytest.raises(UsageError, match="already"):
            await a.join_many(["new", "g7"], orderer="regions")
        await a.leave_many(names[:2_999], underlay="regions")
        assert shared.groups == names[2_999:]
        with pytest.raises(NotMember, match="not in 'g0'"):
            await a.leave_many(["g0"])
        await a.join("g0", orderer="regions")
        assert sorted(shared.groups) == ["g0", "g2999"]

    run(program, service)


def test_a_join_that_the_service_does_not_answer_is_explained_and_times_out() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a = node("a")
        shared = await a.attach("regions")
        service.is_held = True
        with pytest.raises(TimeoutError, match="'red'"):
            await a.join("red", orderer="regions", timeout=3)
        assert shared.groups == []
        service.is_held = False
        service.answer()
        await until(lambda: not service.waiting)
        await a.join("red", orderer="regions", timeout=3)

    run(program, service)


def test_the_stall_of_a_join_names_its_groups() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a = node("a")
        shared = await a.attach("regions")
        service.is_held = True
        joining = asyncio.create_task(a.join("red", orderer="regions"))
        await asyncio.sleep(2)
        assert shared.status.state == "stalled"
        assert "'red'" in shared.status.text
        service.is_held = False
        service.answer()
        await joining
        await asyncio.sleep(2)
        assert shared.status.state == "working"

    run(program, service)


def test_a_node_that_leaves_everything_is_out_and_may_come_back() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        shared = await a.attach("regions")
        red = a.group("red")
        await shared.detach()
        assert red.view is None
        assert not shared.is_member
        last = [event async for event in red][-1]
        assert isinstance(last, Left)
        assert last.wanted
        await until(lambda: b.group("red").members == (b.member,))
        again = await a.join("red", orderer="regions")
        await until(lambda: len(b.group("red").members) == 2)
        await again.send(b"back", confirm=True)
        assert (await messages(b.group("red"), 1))[0].payload == b"back"

    run(program, service)


# Sending. ------------------------------------------------------------------------------------------------------------


def test_a_message_reaches_every_region_of_its_group_once() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        await a.join_many(["red"], orderer="regions")
        await b.join_many(["red", "green"], orderer="regions")
        await c.join_many(["red", "blue"], orderer="regions")
        red = a.group("red")
        await until(lambda: len(red.members) == 3)
        await red.send_many([b"%d" % number for number in range(100)], confirm=True)
        for each in (a, b, c):
            got = [message.payload for message in await messages(each.group("red"), 100)]
            assert got == [b"%d" % number for number in range(100)]

    run(program, service)


def test_confirm_waits_for_the_acknowledgement_of_every_lane() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        red = await a.join("red", orderer="regions")
        await b.join_many(["red", "green"], orderer="regions")
        await c.join_many(["red", "blue"], orderer="regions")
        await until(lambda: len(red.members) == 3)
        engine_c = service.made[2]
        engine_c.hold_acks = True
        sending = asyncio.create_task(red.send(b"one", confirm=True))
        flushing = asyncio.create_task(red.flush())
        await asyncio.sleep(1)
        assert not sending.done()
        assert not flushing.done()
        assert (await messages(red, 1))[0].payload == b"one"  # own messages are delivered at once
        engine_c.hold_acks = False
        assert await sending == -1
        await flushing

    run(program, service)


def test_a_region_without_room_holds_up_only_its_own_groups() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        await b.join("red", orderer="regions")
        await c.join("blue", orderer="regions")
        shared = await a.attach("regions")
        await a.send(b"first", groups=["red"], confirm=True)
        await a.send(b"first", groups=["blue"], confirm=True)
        engine = service.made[2]
        (region,) = engine.table.regions(engine.table.number("blue"))
        engine.rooms[region] = 0
        stuck = asyncio.create_task(a.send(b"second", groups=["blue"], confirm=True))
        await a.send(b"second", groups=["red"], confirm=True)
        assert not stuck.done()
        assert shared.stats["queued_messages"] == 1
        del engine.rooms[region]
        await stuck
        assert [each.payload for each in await messages(c.group("blue"), 2)] == [b"first", b"second"]

    run(program, service)


def test_messages_that_wait_follow_their_group_to_other_regions() -> None:
    """Nothing leaves for a part of the regions before an epoch, so a member that moves misses nothing."""
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        red = await a.join("red", orderer="regions")
        await b.join_many(["red", "green"], orderer="regions")
        await c.join_many(["red", "blue"], orderer="regions")
        await until(lambda: len(red.members) == 3)
        engine = service.made[0]
        for region in list(service.views):
            engine.rooms[region] = 0
        sent = [b"%d" % number for number in range(50)]
        await red.send_many(sent)
        await asyncio.sleep(0.1)
        assert red.stats["queued_messages"] == 50
        assert not engine.blocks
        await c.leave_many(["blue"])  # c moves to the region of a
        await c.join("pink", orderer="regions")  # and on to one of its own
        await until(lambda: not engine.given and len(engine.views) == len(service.views))
        engine.rooms.clear()
        await red.flush()
        for each in (b, c):
            assert [message.payload for message in await messages(each.group("red"), 50)] == sent

    run(program, service)


def test_a_message_to_several_groups_keeps_its_place_in_each_of_them() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        await b.join("red", orderer="regions")
        await c.join("blue", orderer="regions")
        await a.attach("regions")
        await a.send(b"0", groups=["red"], confirm=True)
        await a.send(b"0", groups=["blue"], confirm=True)
        engine = service.made[2]
        (region,) = engine.table.regions(engine.table.number("blue"))
        engine.rooms[region] = 0
        await a.send(b"1", groups=["blue"])
        await a.send(b"2", groups=["red", "blue"])
        await a.send(b"3", groups=["red"])
        await asyncio.sleep(0.1)
        engine.rooms.clear()
        await a.send(b"4", groups=["red"], confirm=True)
        assert [each.payload for each in await messages(b.group("red"), 4)] == [b"0", b"2", b"3", b"4"]
        got = await messages(c.group("blue"), 3)
        assert [each.payload for each in got] == [b"0", b"1", b"2"]
        assert got[2].groups == ("red", "blue")

    run(program, service)


def test_a_node_in_several_groups_of_a_message_gets_it_once() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        await a.send(b"both", groups=["red", "green"], confirm=True)
        await a.group("red").send(b"end", confirm=True)
        await a.group("green").send(b"end", confirm=True)
        red: list[bytes] = []
        green: list[bytes] = []
        for handle, found in ((b.group("red"), red), (b.group("green"), green)):
            while not found or found[-1] != b"end":
                found += [message.payload for message in await messages(handle, 1)]
        assert sorted(red + green) == [b"both", b"end", b"end"]

    run(program, service)


def test_a_large_message_that_an_epoch_interrupts_begins_again() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        red, engine = a.group("red"), service.made[0]
        payload = bytes(range(256)) * 1_000
        (region,) = engine.table.regions(engine.table.number("red"))
        engine.rooms[region] = 30_000
        await red.send(payload)
        await until(lambda: len(engine.blocks) == 1)  # one fragment, and no more room comes to mind
        engine.rooms[region] = 0
        c = node("c")
        await c.join("red", orderer="regions")
        await until(lambda: len(red.members) == 3)
        engine.rooms.clear()
        await red.flush()
        for each in (b, c):
            assert (await messages(each.group("red"), 1))[0].payload == payload

    run(program, service)


def test_nothing_of_another_route_takes_the_number_of_a_large_message() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b, c = node("a"), node("b"), node("c")
        await b.join_many(["red", "green"], orderer="regions")
        await c.join("green", orderer="regions")
        await a.attach("regions")
        await a.send(b"0", groups=["red"], confirm=True)
        engine = service.made[2]
        (region,) = engine.table.regions(engine.table.number("red"))
        engine.rooms[region] = 50_000
        payload = bytes(range(256)) * 1_000
        await a.send(payload, groups=["red"])
        await until(lambda: len(engine.blocks) > 1)
        await a.send(b"small", groups=["green"])  # to the same region and another one
        engine.rooms.clear()
        await (await a.attach("regions")).flush()
        assert (await messages(b.group("red"), 2))[1].payload == payload
        assert (await messages(b.group("green"), 1))[0].payload == b"small"
        assert (await messages(c.group("green"), 1))[0].payload == b"small"

    run(program, service)


def test_the_trace_has_lanes_their_blocks_and_views_of_groups() -> None:
    service, world = FakeService(), World(1)

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        await a.group("red").send_many([b"1", b"2"])
        await a.group("green").send(b"3", confirm=True)
        await messages(b.group("green"), 1)
        await a.group("red").leave()

    simulate(program, world=world, regions=service.engines, limit_ns=60 * SECOND)
    rows = world.nodes["a"].recorders[0].rows()
    lane = f"region/{service.made[0].submitted and next(iter(service.made[0].submitted))}"
    shown = [(row.kind, row.first, row.count, row.groups) for row in rows if row.kind in ("submit", "carry", "deliver")]
    assert shown[:3] == [("submit", 0, 2, None), ("submit", 2, 1, None), ("carry", 0, 2, ("red",))]
    assert shown[3:] == [("carry", 2, 1, ("green",)), ("deliver", 0, 3, None)]
    assert {row.underlay for row in rows if row.kind in ("submit", "carry", "deliver", "confirm")} == {lane}
    assert [row.first for row in rows if row.kind == "confirm"] == [2]
    assert [(row.kind, row.group) for row in rows if row.kind in ("join", "leave")] == [
        ("join", None),
        ("join", "red"),
        ("join", "green"),
        ("leave", "red"),
    ]
    assert {row.group for row in rows if row.kind == "view" and row.underlay == "regions"} == {"red", "green"}


def test_unreliable_messages_are_numbered_with_the_others_and_need_no_acknowledgement() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        red = a.group("red")
        service.made[1].hold_acks = True
        await red.send(b"0", UNRELIABLE, confirm=True)
        await red.send(b"1", FIFO)
        await red.send(b"2", UNRELIABLE)
        got = await messages(b.group("red"), 3)
        assert [(each.payload, each.number) for each in got] == [(b"0", 0), (b"1", 1), (b"2", 2)]

    run(program, service)


def test_what_regions_do_not_have_raises_at_the_call() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, _ = await both_in(node, "red")
        red = a.group("red")
        for stronger in (AGREED, SAFE):
            with pytest.raises(UnsupportedService, match="strongest is FIFO, or join a group with orderer='token'"):
                await red.send(b"", stronger)
        with pytest.raises(UsageError, match="token"):
            async with red.lock("printer"):
                pass
        with pytest.raises(UsageError, match="token"):
            await red.call(b"", handler=0)
        with pytest.raises(UsageError, match='calls need orderer="token"'):
            await a.call("red", b"", handler=1)
        with pytest.raises(UsageError, match="membership service"):
            await red.reset()
        with pytest.raises(UsageError, match="membership service"):
            await red.expel("b")
        with pytest.raises(UsageError, match="header"):
            await a.join("green", orderer="regions", header=b"hello")
        with pytest.raises(UsageError, match="priorities"):
            await red.send(b"", priority=3)
        with pytest.raises(UsageError, match="create"):
            await a.attach("regions", create=True)
        with pytest.raises(UsageError, match="feeds need"):
            (await a.join("own")).feed(lambda _room, _most: [])
        assert red.default_service == FIFO

    run(program, service)


def test_a_node_without_a_membership_service_says_so() -> None:
    async def program(node: Simulation) -> None:
        with pytest.raises(TimeoutError, match="regions"):
            await node("a").join("red", orderer="regions", timeout=5)

    simulate(program)


# Receiving. ----------------------------------------------------------------------------------------------------------


def test_all_groups_are_received_at_once_as_whole_blocks() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        names = [f"g{number}" for number in range(50)]
        a, b = await both_in(node, *names)
        shared = await a.attach("regions")
        batches = b.batches()
        await shared.send_many([b"%d" % number for number in range(200)], groups=names * 4)
        got: list[tuple[str, bytes]] = []
        events = 0
        async for event in batches:
            if isinstance(event, MixedBatch):
                got += list(zip(event.groups, event.messages, strict=True))
                events += 1
            if len(got) == 200:
                break
        assert got == [(names[number % 50], b"%d" % number) for number in range(200)]
        assert events == 1

    run(program, service)


def test_groups_without_a_handle_keep_what_comes_for_whoever_asks_first() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        names = ["red", "green", "blue"]
        a, b = await both_in(node, *names)
        shared = await a.attach("regions")
        await shared.send_many([b"r1", b"g1", b"b1", b"r2"], groups=["red", "green", "blue", "red"])
        await a.group("blue").send(b"b2", confirm=True)
        red = await messages(b.group("red"), 2)
        assert [(each.group, each.payload, each.number) for each in red] == [("red", b"r1", 0), ("red", b"r2", 3)]
        rest: list[bytes] = []
        async for event in b.batches():
            if isinstance(event, Batch):
                rest += event.messages
            if len(rest) == 3:
                break
        assert rest == [b"g1", b"b1", b"b2"]

    run(program, service)


def test_a_program_that_does_not_receive_takes_no_tickets_back() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        engine = service.made[1]
        await a.group("red").send(b"kept", confirm=True)
        await asyncio.sleep(1)
        assert engine.consumed < engine.seq
        assert (await messages(b.group("red"), 1))[0].payload == b"kept"
        b.group("red").has_events  # noqa: B018 - the batch is finished with when the next one is asked for
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(messages(b.group("red"), 1), 1)
        assert engine.consumed == engine.seq

    run(program, service)


def test_lost_blocks_are_told_to_the_groups_and_to_whoever_receives_all() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        engine = service.made[1]
        await a.group("red").send_many([b"0", b"1"], confirm=True)
        red = b.group("red")
        await messages(red, 2)
        engine.lose(engine.mine, a.member.id, 2, 3)
        event, _ = await red.receive()
        assert event == Lost(str(a.member), 2, 3, "red")
        late, _ = await b.group("green").receive()
        assert isinstance(late, View)
        late, _ = await b.group("green").receive()
        assert late == Lost(str(a.member), 2, 3, "green")
        batches = b.batches()
        engine.lose(engine.mine, a.member.id, 0, 1)  # OPEN holds no messages
        engine.lose(engine.mine, a.member.id, 5, 1)
        async for told in batches:
            if isinstance(told, Lost) and not told.group:
                assert told == Lost(str(a.member), 2, 1)
                break

    run(program, service)


async def read_all(group: Group, seen: list[object]) -> None:
    events = aiter(group)
    while True:
        seen.append(await anext(events))


def test_who_reads_on_after_a_crash_gets_what_had_come_and_no_view() -> None:
    service, world = FakeService(), World(1)

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        red = b.group("red")
        assert len(red.members) == 2  # told, and not read
        await a.group("red").send(b"1", confirm=True)
        await node("c").join("red", orderer="regions")
        await until(lambda: len(red.members) == 3)
        b.crash()
        seen: list[object] = []
        with pytest.raises(NotMember):
            await read_all(red, seen)
        assert any(isinstance(event, Message) for event in seen)

    simulate(program, world=world, regions=service.engines, limit_ns=60 * SECOND)
    assert world.nodes["b"].recorders[0].rows()[-1].kind == "crash"


def test_a_node_that_was_excluded_comes_back_with_its_groups() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green")
        red = b.group("red")
        shared = await b.attach("regions")
        service.exclude(service.made[1])
        seen: list[type] = []
        async for event in red:
            seen.append(type(event))
            if isinstance(event, Left):
                assert not shared.groups
                with pytest.raises(NotMember, match="wait until it is"):  # it has not left
                    await shared.send_many([b"1"], groups=["red"])
            if seen[-2:] == [Left, View]:
                break
        await until(lambda: len(red.members) == 2 and len(a.group("red").members) == 2)
        assert sorted((await b.attach("regions")).groups) == ["green", "red"]
        await a.group("green").send(b"again", confirm=True)
        assert (await messages(b.group("green"), 1))[0].payload == b"again"

    run(program, service)


def test_a_node_leaves_many_groups_while_it_is_on_its_way_back() -> None:
    """It comes back to its groups by itself: if it could not leave them before, it would be in them unasked."""
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red", "green", "blue")
        shared = await b.attach("regions")
        service.is_held = True
        service.exclude(service.made[1])
        await until(lambda: not shared.groups)
        leaving = asyncio.create_task(b.leave_many(["red", "green"], underlay="regions"))
        await asyncio.sleep(0.1)
        service.is_held = False
        service.answer()
        await leaving
        with pytest.raises(NotMember, match="not in 'red'"):
            await b.leave_many(["red"], underlay="regions")
        await until(lambda: shared.groups == ["blue"] and len(a.group("blue").members) == 2)
        assert [str(member) for member in a.group("red").members] == ["a/0"]

    run(program, service)


def test_a_stall_is_told_with_the_reason_of_the_engine() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        red = a.group("red")
        service.made[1].hold_acks = True
        service.made[0].reason = Waiting(StallReason.NETWORK, ("b/0",), "b/0 does not pass the token on")
        await red.send(b"one")
        async for event in red:
            if isinstance(event, Stalled):
                assert event.waiting_for == ("b/0",)
                break
        assert red.status.state == "stalled"
        service.made[1].hold_acks = False
        await until(lambda: red.status.state == "working")
        assert b.is_up

    run(program, service)


# Feeds. --------------------------------------------------------------------------------------------------------------


def test_a_feed_is_asked_when_something_may_leave_and_rests_after_an_empty_answer() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        asked: list[tuple[int, int]] = []
        left = [b"%d" % number for number in range(10)]

        def give(room: int, most: int) -> list[bytes]:
            asked.append((room, most))
            given, left[:] = left[:4], left[4:]
            return given

        feed = a.group("red").feed(give)
        assert [each.payload for each in await messages(b.group("red"), 10)] == [b"%d" % n for n in range(10)]
        await asyncio.sleep(1)
        assert len(asked) == 4  # three answers, and an empty one
        assert all(room > 0 and most > 0 for room, most in asked)
        assert not feed.is_active
        left.append(b"more")
        await asyncio.sleep(1)
        assert len(asked) == 4
        feed.signal()
        assert (await messages(b.group("red"), 1))[0].payload == b"more"
        feed.stop()
        feed.signal()
        await asyncio.sleep(1)
        assert len(asked) == 6

    run(program, service)


def test_a_second_feed_takes_the_place_of_the_first() -> None:
    """The first one is stopped before the second is expected, or nobody would ever ask the second."""
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        group, regions = a.group("red"), await a.attach("regions")
        first = group.feed(lambda _room, _most: [])
        left = [b"second"]
        second = group.feed(lambda _room, _most: [left.pop()] if left else [])
        assert not first.is_active
        assert (await messages(b.group("red"), 1))[0].payload == b"second"
        first.signal()
        left.append(b"again")
        second.signal()
        assert (await messages(b.group("red"), 1))[0].payload == b"again"
        regions.feed(lambda _room, _most: [])
        pairs = [("red", b"of the node")]
        regions.feed(lambda _room, _most: [pairs.pop()] if pairs else [])
        assert (await messages(b.group("red"), 1))[0].payload == b"of the node"

    run(program, service)


def test_a_feed_is_not_asked_while_a_region_has_no_room() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a, b = await both_in(node, "red")
        engine = service.made[0]
        engine.rooms[engine.mine] = 0
        given = [b"one"]
        a.group("red").feed(lambda _room, _most: [given.pop()] if given else [])
        await asyncio.sleep(1)
        assert given == [b"one"]
        engine.rooms.clear()
        assert (await messages(b.group("red"), 1))[0].payload == b"one"

    run(program, service)


def test_the_feed_of_a_node_gives_messages_to_any_group() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        b, c = node("b"), node("c")
        await b.join("red", orderer="regions")
        await c.join("blue", orderer="regions")
        a = node("a")
        await a.attach("regions")
        given = [[("red", b"1"), ("blue", b"2")], [("red", b"3")]]
        a.feed(lambda _room, _most: given.pop(0) if given else [])
        assert [each.payload for each in await messages(b.group("red"), 2)] == [b"1", b"3"]
        assert [each.payload for each in await messages(c.group("blue"), 1)] == [b"2"]

    run(program, service)


def test_an_own_group_and_a_group_on_regions_do_not_share_a_name_at_a_node() -> None:
    service = FakeService()

    async def program(node: Simulation) -> None:
        a = node("a")
        await a.join("red")
        with pytest.raises((UsageError, JoinRefused), match="already"):
            await a.join("red", orderer="regions")

    run(program, service)
