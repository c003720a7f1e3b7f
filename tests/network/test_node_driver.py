"""The driver on loopback sockets, under an engine that does nothing of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.network.flood_engine import FloodEngine

from ordercast import BlockingNode, Group, Message, Node, UsageError, run
from ordercast.errors import InvariantViolation, NotMember
from ordercast.groups.events import Batch
from ordercast.runtime.addresses import group_address
from ordercast.trace.convert import raw_path
from ordercast.trace.recorder import decode


@pytest.fixture(autouse=True)
def _fresh_engines() -> Iterator[None]:
    FloodEngine.made = []
    FloodEngine.audience_list = []
    yield
    FloodEngine.made = []


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def call(*arguments: Any, **named: Any) -> None:
        run(asyncio.wait_for(test(*arguments, **named), 20))

    return call


async def payloads(group: Group, count: int) -> list[bytes]:
    """The next `count` messages."""
    found: list[bytes] = []
    async for event in group.batches():
        if isinstance(event, Batch):
            found += event.messages
        if len(found) >= count:
            break
    return found


@on_loop
@pytest.mark.parametrize("datagram", [None, 1_400, 512])
async def test_blocks_reach_the_other_node_by_multicast(datagram: int | None) -> None:
    async with (
        Node("a", engines=FloodEngine, datagram=datagram) as a,
        Node("b", engines=FloodEngine, datagram=datagram) as b,
    ):
        one, two = await a.join("driver"), await b.join("driver")
        sent = [b"%0100d" % index for index in range(1_000)]
        await one.send_many(sent)
        assert await payloads(two, 1_000) == sent
        assert a.uses_multicast
        assert a.sockets.kernel_drops == b.sockets.kernel_drops == 0


@on_loop
async def test_without_multicast_the_audience_is_served_one_by_one() -> None:
    nodes = [Node(name, engines=FloodEngine, multicast=False) for name in "abc"]
    FloodEngine.audience_list = [node.address for node in nodes[1:]]
    groups = [await node.join("driver") for node in nodes]
    await groups[0].send(b"x")
    assert [await payloads(group, 1) for group in groups] == [[b"x"]] * 3
    for node in nodes:
        await node.close()


@on_loop
async def test_static_peers_hear_what_is_for_anyone() -> None:
    async with Node("a", engines=FloodEngine, multicast=False) as a:
        await a.join("driver")
        host, port = a.address
        async with Node("b", peers=[f"{host}:{port}"], engines=FloodEngine) as b:
            assert not b.uses_multicast
            await b.join("driver")
            while not FloodEngine.made[0].sources:
                await asyncio.sleep(0)
            assert FloodEngine.made[0].sources == [b.address]


@on_loop
async def test_groups_that_share_an_address_share_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.runtime.listening.group_address", lambda _: group_address("same"))
    async with Node("a", engines=FloodEngine) as a, Node("b", engines=FloodEngine) as b:
        a1, a2 = await a.join("one"), await a.join("two")
        b1, b2 = await b.join("one"), await b.join("two")
        await a1.send(b"1")
        await a2.send(b"2")
        assert (await payloads(b1, 1), await payloads(b2, 1)) == ([b"1"], [b"2"])
        await b1.leave()
        await a2.send(b"3")
        assert await payloads(b2, 1) == [b"3"]


@on_loop
async def test_sends_of_one_turn_leave_in_one_datagram() -> None:
    async with Node("a", engines=FloodEngine) as a:
        group = await a.join("driver")
        await group.flush()
        before = a.sockets.datagrams_out
        for index in range(200):
            await group.send(b"%d" % index)
        await group.flush()
        assert a.sockets.datagrams_out == before + 1


@on_loop
async def test_deadlines_are_kept_and_moved() -> None:
    async with Node("a", engines=FloodEngine) as a:
        group = await a.join("driver")
        engine = FloodEngine.made[0]
        late = a._driver.now_ns() + 3_600_000_000_000
        soon = a._driver.now_ns() + 5_000_000
        engine.deadline = late
        await group.send(b"x")
        await group.flush()
        engine.deadline = soon
        await group.send(b"x")
        while not engine.ticks:
            await asyncio.sleep(0.001)
        assert soon <= engine.ticks[0] < soon + 1_000_000_000


class Stubborn:
    """A send that is refused a few times before it is let through."""

    def __init__(self, node: Node, refusals: int) -> None:
        self.left: list[bytes] = []
        self.refusals = refusals
        self._send = node._driver.socket.send
        node._driver.socket.send = self.send

    def send(self, address: Any, buffers: Any, stride: int = 0) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.left.append(b"".join(buffers)[-1:])
        return self._send(address, buffers, stride)


@on_loop
async def test_what_the_network_refuses_leaves_later_in_order() -> None:
    async with Node("a", engines=FloodEngine) as a, Node("b", engines=FloodEngine) as b:
        one, two = await a.join("driver"), await b.join("driver")
        await one.flush()
        stubborn = Stubborn(a, 3)
        for index in range(5):
            await one.send(b"%d" % index, type=index)
        await asyncio.sleep(0)
        await one.send(b"5")
        assert await payloads(two, 6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        assert stubborn.left == [b"0", b"1", b"2", b"3", b"4", b"5"]


@on_loop
async def test_broken_invariant_stops_the_node_loudly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    async with Node("a", engines=FloodEngine) as a, Node("b", engines=FloodEngine) as b:
        one, two = await a.join("driver"), await b.join("driver")
        await two.receive()
        waiting = asyncio.create_task(two.receive())
        await asyncio.sleep(0)
        await one.send(b"break")
        with pytest.raises(InvariantViolation, match="on purpose"):
            await waiting
        with pytest.raises(InvariantViolation):
            await two.send(b"x")
        assert "broken on purpose" in caplog.text
        await one.send(b"the others go on")


@on_loop
async def test_trace_is_written_before_the_datagrams_leave(tmp_path: Path) -> None:
    async with Node("a", engines=FloodEngine, trace=tmp_path, life=7) as a:
        group = await a.join("driver")
        path = raw_path(tmp_path, "a", 7)
        send = a._driver.socket.send

        def look(address: Any, buffers: Any, stride: int = 0) -> bool:
            kinds = [row.kind for row in decode(path.read_bytes(), "a", 7)]
            assert kinds[:4] == ["start", "join", "view", "submit"]
            return send(address, buffers, stride)

        a._driver.socket.send = look
        await group.send(b"x")
        await group.flush()
    rows = list(decode(path.read_bytes(), "a", 7))
    assert [row.kind for row in rows if row.kind not in ("tx", "rx")][-2:] == ["leave", "stop"]


@on_loop
async def test_mistakes_raise_at_once() -> None:
    with pytest.raises(UsageError, match="insecure"):
        Node("a", host="192.0.2.1")
    with pytest.raises(UsageError):
        Node("a/b")
    with pytest.raises(UsageError):
        Node("a", datagram=10)
    with pytest.raises(UsageError):
        Node("a", peers=["nowhere"])
    node = Node(engines=FloodEngine)
    await node.close()
    await node.close()
    with pytest.raises(NotMember):
        await node.join("driver")


def test_node_needs_a_loop() -> None:
    with pytest.raises(UsageError, match="BlockingNode"):
        Node("a")


@on_loop
async def test_default_names_differ() -> None:
    async with Node(engines=FloodEngine) as a, Node(engines=FloodEngine) as b:
        assert a.name != b.name


def test_blocking_node_has_the_same_verbs() -> None:
    with BlockingNode("a", engines=FloodEngine) as a, BlockingNode("b", engines=FloodEngine) as b:
        one, two = a.join("blocking"), b.join("blocking")
        assert one.send(b"1", confirm=True) == 0
        one.send_many([b"2", b"3"])
        one.flush(timeout=5)
        seen = []
        for event in two:
            if isinstance(event, Message):
                seen.append(event.payload)
            if len(seen) == 3:
                break
        assert seen == [b"1", b"2", b"3"]
        with pytest.raises(TimeoutError):
            two.receive(timeout=0.01)
        one.send(b"4")
        event, more = two.receive(timeout=5)
        assert isinstance(event, Message)
        assert (event.payload, more) == (b"4", False)
        assert one.reset() == 1
        assert one.stats["messages_sent"] == 4
        with pytest.raises(TypeError):
            one.send("text")  # type: ignore[arg-type]
        one.leave()
        assert [type(event).__name__ for event in one] == ["View", *["Message"] * 4, "Left"]
        batches = b.join("other").batches(timeout=0.01)
        assert type(next(batches)).__name__ == "View"
    with pytest.raises(NotMember):
        two.send(b"x")
