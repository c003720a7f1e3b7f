"""Clients of a daemon have the same nodes and groups as embedded ones (docs/api.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
from tests.daemon.houses import DaemonHouse
from tests.network.quick import within

from ordercast import SAFE, Batch, Group, JoinRefused, Left, Message, UsageError, View, connect
from ordercast.client.queries import MAX_QUESTIONS
from ordercast.config import SECOND
from ordercast.daemon.config import DaemonConfig
from ordercast.daemon.daemon import OrdercastDaemon
from ordercast.daemon.hub import DaemonNode

DAY_NS = 86_400 * SECOND


async def payloads(group: Group, count: int) -> list[bytes]:
    """The next messages of a group."""
    found: list[bytes] = []
    while len(found) < count:
        event, _ = await group.receive()
        if isinstance(event, Message):
            found.append(event.payload)
    return found


async def until_members(group: Group, *names: str) -> View:
    """The view in which these sessions are."""
    while True:
        event, _ = await group.receive()
        if isinstance(event, View) and tuple(member.label for member in event.members) == names:
            return event


@within(60)
async def test_two_clients_join_send_receive_and_leave(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice, house.client("bob") as bob:
        one = await alice.join("prices")
        two = await bob.join("prices", header=b"hello")
        view = await until_members(one, "alice", "bob")
        assert view.header == b"hello"
        assert str(one.member) == f"alice@{house.node.member}"
        await one.send(b"first")
        assert await one.send(b"second", SAFE, confirm=True) >= 0
        await one.send_many([bytes(100)] * 2_000)
        await one.flush()
        received = await payloads(two, 2_002)
        assert received[:2] == [b"first", b"second"]
        assert await payloads(one, 2_002) == received
        await one.leave(b"bye")
        view = await until_members(two, "bob")
        assert view.header == b"bye"
        assert not one.is_member


@within(60)
async def test_batches_come_unopened_and_in_one_order_over_all_groups(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice, house.client("bob") as bob:
        await bob.join_many(["a", "b"])
        await alice.join_many(["a", "b"])
        await alice.group("a").send_many([b"1", b"2"])
        await alice.group("b").send(b"3")
        await alice.send(b"4", groups=["a", "b"])
        await alice.underlay.send_many([b"5", b"6", b"7"], groups=["a", "b", "a"])
        seen: list[tuple[bytes, tuple[str, ...]]] = []
        async for event in bob.events():
            if isinstance(event, Message):
                seen.append((event.payload, event.groups))
            if len(seen) == 7:
                break
        assert [payload for payload, _ in seen] == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
        assert [groups for _, groups in seen] == [
            ("a",), ("a",), ("b",), ("a", "b"), ("a",), ("b",), ("a",),
        ]  # fmt: skip


@within(60)
async def test_a_message_larger_than_every_window_comes_whole(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice", window=100_000) as alice:
        group = await alice.join("prices")
        large = bytes(range(256)) * 20_000
        await group.send(large)
        await group.send(b"small")
        assert await payloads(group, 2) == [large, b"small"]


@within(60)
async def test_a_client_need_not_be_in_a_group_to_send_to_it(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice, house.client("bob") as bob:
        group = await bob.join("prices")
        assert isinstance(await alice.send(b"from outside", groups=["prices"], confirm=True), int)
        assert await payloads(group, 1) == [b"from outside"]


@within(60)
async def test_a_confirmed_send_does_not_wait_for_an_application_that_does_not_receive(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice", window=50_000) as alice:
        group = await alice.join("prices")
        await group.send_many([bytes(1_000)] * 500)
        await group.send(b"last", confirm=True)
        assert (await payloads(group, 501))[-1] == b"last"


@within(60)
async def test_a_name_is_unique_and_a_daemon_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, await house.connect("alice"):
        with pytest.raises(JoinRefused, match="alice"):
            await house.connect("alice")
        async with house.client() as first, house.client() as second:
            assert first.member.label != second.member.label
    with pytest.raises(Exception, match="ordercast daemon"):
        await connect(f"unix:{tmp_path}/nobody", timeout=None)
    for wrong in ("nobody", "tcp://", "unix:", "http://x:1"):
        with pytest.raises(UsageError, match="unix:PATH"):
            await connect(wrong)
    with pytest.raises(UsageError, match="not at 5"):
        await connect(5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a text, not 5"):
        await connect(name=5)  # type: ignore[arg-type]


@within(20)
async def test_the_name_of_a_client_is_its_own_and_not_its_daemons(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice, house.client() as nobody:
        assert alice.name == "alice"
        assert nobody.name == nobody.member.label
        assert alice.member.name == house.node.name


@within(60)
async def test_what_a_client_has_not_says_what_to_use_instead(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("prices")
        with pytest.raises(UsageError, match="leave again out"):
            await alice.call("other", b"?", handler=1, again=True)
        with pytest.raises(UsageError, match="priorit"):
            await group.send(b"", priority=3)
        with pytest.raises(UsageError, match=r"belong to the underlay.*a client takes it as it is: leave them out"):
            await alice.join("other", max_members=3)
        with pytest.raises(UsageError, match="already"):
            await alice.join("prices")


@within(60)
async def test_a_client_that_has_lost_its_daemon_comes_back_and_says_so(tmp_path: Path) -> None:
    house = await DaemonHouse(tmp_path).start()
    async with house.client("alice") as alice:
        group = await alice.join("prices")
        await until_members(group, "alice")
        await house.stop()
        event, _ = await group.receive()
        assert isinstance(event, Left)
        assert event.returning
        await group.send(b"while nobody was there")
        async with DaemonHouse(tmp_path) as again:
            view = await until_members(group, "alice")
            assert str(view.members[0]) == f"alice@{again.node.member}"
            assert await payloads(group, 1) == [b"while nobody was there"]
            await alice.close()


@within(60)
async def test_a_client_without_a_name_goes_to_a_daemon_that_has_given_its_name_to_another(tmp_path: Path) -> None:
    """Each daemon numbers the clients that give no name: both have a first one."""
    one = await DaemonHouse(tmp_path, "one").start()
    async with (
        DaemonHouse(tmp_path, "two") as two,
        two.client() as other,
        await connect([one.address, two.address]) as client,
    ):
        assert client.member.label == other.member.label
        group = await client.join("prices")
        await until_members(group, client.member.label)
        await one.stop()
        event, _ = await group.receive()
        assert isinstance(event, Left)
        view, _ = await group.receive()
        assert isinstance(view, View)
        assert str(view.members[0]) == str(client.member)
        assert view.members[0].label != other.member.label
        await group.send(b"here")
        assert await payloads(group, 1) == [b"here"]


@within(60)
async def test_the_daemon_tells_of_its_sessions_groups_and_members(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        await alice.join("prices")
        status = await alice.ask("status")
        assert status["sessions"] == 1
        assert status["session_list"][0]["name"] == str(alice.member)
        assert (await alice.ask("groups"))["groups"] == [{"name": "prices", "members": 1}]
        assert (await alice.ask("members", "prices"))["members"] == [str(alice.member)]
        with pytest.raises(UsageError, match="no session"):
            await alice.ask("members", "elsewhere")


@within(60)
async def test_more_questions_at_once_than_a_daemon_takes_wait_for_their_turn(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        answers = await asyncio.gather(*[alice.ask("status") for _ in range(3 * MAX_QUESTIONS)])
        assert {answer["sessions"] for answer in answers} == {1}


@within(60)
async def test_sends_wait_where_as_many_confirmations_are_awaited_as_a_daemon_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ordercast.client.sending.MAX_WATCHES", 50)
    monkeypatch.setattr("ordercast.daemon.native.MAX_WATCHES", 50)
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("prices")
        positions = await asyncio.gather(*[group.send(b"%d" % number, confirm=True) for number in range(300)])
        assert positions == sorted(set(positions))
        await asyncio.gather(*[group.flush() for _ in range(300)])


@within(60)
async def test_a_client_leaves_a_group_of_which_it_has_not_received_everything(tmp_path: Path) -> None:
    """As a node does. What waited there holds up no other group, whether somebody takes it later or not."""
    async with (
        DaemonHouse(tmp_path) as house,
        house.client("alice") as alice,
        house.client("bob", window=65_536) as bob,
    ):
        for name in ("prices", "trades"):
            one, two = await alice.join(name), await bob.join(name)
            await one.send_many([bytes(10_000)] * 100)
            await one.flush()
            await two.leave()
            async for _ in one:
                if [member.label for member in one.members] == ["alice"]:
                    break
            received = [event async for event in two]
            assert sum(isinstance(event, Message) for event in received) == 100
            assert isinstance(received[-1], Left)


@within(60)
async def test_batches_of_a_group_are_blocks(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house, house.client("alice") as alice:
        group = await alice.join("prices")
        await group.send_many([bytes(100)] * 1_000, type=5)
        count = 0
        async for event in group.batches():
            if isinstance(event, Batch):
                count += len(event)
                assert event.type == 5
                assert event.group == "prices"
            if count == 1_000:
                break


@within(60)
async def test_clients_come_by_tcp_and_a_list_of_daemons_is_tried_in_turn(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path) as house:
        await house.listener.listen_tcp("127.0.0.1", 0)
        addresses = [f"unix:{tmp_path}/nobody", house.listener.addresses[-1]]
        async with await connect(addresses, name="alice") as alice, house.client("bob") as bob:
            assert str(alice.address).startswith("tcp://127.0.0.1:")
            one, two = await alice.join("prices"), await bob.join("prices")
            await one.send_many([bytes(1_000)] * 500, confirm=True)
            assert len(await payloads(two, 500)) == 500


@within(60)
async def test_clients_get_views_however_long_the_machine_has_been_up(tmp_path: Path) -> None:
    """Counters of views begin at the milliseconds of the clock: after 50 days they have more than 32 bits."""
    config = DaemonConfig(name="d", unix=str(tmp_path / "d.sock"))
    async with (
        OrdercastDaemon(config, clock_offset_ns=100 * DAY_NS),
        await connect(f"unix:{config.unix}", name="alice") as alice,
    ):
        group = await alice.join("prices")
        assert [member.label for member in group.members] == ["alice"]


@within(60)
async def test_a_client_that_is_in_no_group_sends_more_than_its_window_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees nothing of its own messages: the daemon has to think of its credit by itself. No PING wakes it here."""
    monkeypatch.setattr("ordercast.client.link.PING_S", 1_000.0)
    async with DaemonHouse(tmp_path) as house, house.client("bob") as bob, house.client("outside") as outside:
        group = await bob.join("prices")
        for number in range(6_000):
            await outside.send(b"%d" % number + bytes(1_000), groups=["prices"])
        await outside.underlay.flush()
        received = await payloads(group, 6_000)
        assert [each.rstrip(b"\0") for each in received] == [b"%d" % number for number in range(6_000)]


@within(20)
async def test_the_daemon_says_why_its_underlay_stands_still(tmp_path: Path) -> None:
    house = DaemonHouse(tmp_path)
    await house.node.attach(house.floor, orderer="token", min_members=3)
    async with house, house.client("alice") as alice:
        assert (await alice.ask("status"))["text"] == ""
        sending = asyncio.create_task(alice.send(b"nobody hears", groups=["prices"], confirm=True))
        while (status := await alice.ask("status"))["state"] != "stalled":
            await asyncio.sleep(0.01)
        assert "has 1" in status["text"]
        assert status["waiting_for"] == []
        sending.cancel()


@within(20)
async def test_the_daemon_says_which_one_is_missing_though_nobody_waits(tmp_path: Path) -> None:
    async with DaemonHouse(tmp_path, "first") as first:
        gone = str(first.node.member)
        async with DaemonHouse(tmp_path, "second", floor=first.floor) as second, second.client("alice") as alice:
            first.node.abort()
            while (status := await alice.ask("status"))["state"] == "working":
                await asyncio.sleep(0.01)
            assert status["text"], "at once, and not only when something has waited for a second"
            assert status["waiting_for"] == [gone]


class Outside:
    """A node that its underlay does not let in."""

    is_aborted = False

    async def attach(self, *_: object, **__: object) -> None:
        raise TimeoutError

    def abort(self) -> None:
        self.is_aborted = True


@within(10)
async def test_a_daemon_that_its_underlay_does_not_let_in_says_what_to_do() -> None:
    node = Outside()
    daemon = OrdercastDaemon(DaemonConfig(unix="/nowhere"), lambda _: cast(DaemonNode, node))
    with pytest.raises(UsageError, match="'sites' has not let this daemon in within 60 s: look at the daemons"):
        await daemon.start()
    assert node.is_aborted
