"""What a new user meets: names of hosts, wrong arguments, garbage on the wire, limits of the system, quick endings."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest
from tests.network.flood_engine import FloodEngine
from tests.network.quick import fresh

from ordercast import BlockingNode, JoinRefused, Node, OrdercastError, OutOfDescriptors, Timing, UsageError
from ordercast.api.stats import NODE_STATS
from ordercast.engine import Note, Outbox
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sender import UdpSender
from ordercast.sim.api import Simulation, simulate
from ordercast.view import Address


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **words: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **words), 60))

    return run


# Arguments. ----------------------------------------------------------------------------------------------------------


@on_loop
async def test_a_host_may_be_named() -> None:
    async with Node(host="localhost") as node:
        assert node.address[0] == "127.0.0.1"
        assert (await node.join(fresh())).is_member


@on_loop
async def test_a_host_that_nobody_knows_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match=r"no IPv4 address is known for 'no-such-host\.invalid'"):
        Node(host="no-such-host.invalid")
    with pytest.raises(UsageError, match="host is the address or the name of an interface"):
        Node(host=5)  # type: ignore[arg-type]


@on_loop
async def test_a_timing_that_is_none_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(UsageError, match=r"timing is an ordercast\.Timing.*, not 5"):
        Node(timing=5)  # type: ignore[arg-type]


# Joins. --------------------------------------------------------------------------------------------------------------


@on_loop
async def test_after_a_join_has_timed_out_the_next_one_may_follow_at_once() -> None:
    name = fresh()
    async with Node("a", timing=Timing(find_ns=100_000_000)) as node:
        with pytest.raises(TimeoutError, match="no way into"):
            await node.join(name, timeout=0.05)
        assert node.groups == []
        with pytest.raises(TimeoutError, match="no way into"):
            await node.join(name, timeout=0.05)
        with pytest.raises(TimeoutError, match="no way into"):
            await node.join(name, create=False, timeout=0.05)
        group = await node.join(name, create=True)
        assert node.groups == [group]


@on_loop
async def test_a_join_waits_for_a_leave_that_is_under_way() -> None:
    name = fresh()
    async with Node("a") as a, Node("b") as b:
        first = await a.join(name)
        await b.join(name)
        leaving = asyncio.create_task(first.leave())
        await asyncio.sleep(0)
        second = await a.join(name)
        assert leaving.done()
        assert a.groups == [second]
        with pytest.raises(UsageError, match="already"):
            await a.join(name)


@on_loop
async def test_a_refused_join_is_not_listed() -> None:
    async with Node("a", timing=Timing(find_ns=1_000_000)) as node:
        with pytest.raises(JoinRefused):
            await node.join(fresh(), create=False)
        assert node.groups == []


# Counters. -----------------------------------------------------------------------------------------------------------


@on_loop
async def test_garbage_is_counted_where_a_user_sees_it() -> None:
    async with Node("a") as node:
        assert set(node.stats) == set(NODE_STATS)
        assert node.stats["malformed"] == node.stats["unknown_group"] == 0
        group = await node.join(fresh())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as garbage:
            garbage.sendto(b"hello", node.address)
            garbage.sendto(b"x" * 100, node.address)
            garbage.sendto(bytes([0x0C, 1]) + bytes(62), node.address)
            while node.stats["datagrams_in"] < 3:
                await asyncio.sleep(0.001)
        assert node.stats["malformed"] + node.stats["unknown_group"] == 3
        await group.send(b"goes on", confirm=True)


# Datagrams that are too large for the path. --------------------------------------------------------------------------


class NarrowSocket:
    """A socket whose path takes no datagram above `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.sent: list[bytes] = []

    def sendmsg(self, buffers: Any, ancillary: Any, _flags: int, _address: Address) -> int:
        data = b"".join(buffers)
        if len(data) > self.limit or ancillary:
            raise OSError(errno.EMSGSIZE, "Message too long")
        self.sent.append(data)
        return len(data)


def test_a_datagram_that_is_too_large_for_the_path_is_counted_and_dropped() -> None:
    sock = NarrowSocket(1_400)
    sender = UdpSender(sock, Counters(), gso=True)
    assert sender.send(("127.0.0.1", 1), [b"x" * 2_000])
    assert sender.counters.too_large == 1
    assert sender.send(("127.0.0.1", 1), [b"y" * 1_000])
    assert sock.sent == [b"y" * 1_000]
    assert sender.counters.undeliverable == 0


def test_of_a_train_whose_datagrams_are_too_large_each_one_is_counted() -> None:
    sock = NarrowSocket(1_400)
    sender = UdpSender(sock, Counters(), gso=True)
    assert sender.send(("127.0.0.1", 1), [b"x" * 6_000], 2_000)
    assert sender.counters.too_large == 3
    assert sender.send(("127.0.0.1", 1), [b"y" * 2_000], 1_000)
    assert sock.sent == [b"y" * 1_000] * 2


@on_loop
async def test_a_node_goes_on_and_says_once_that_its_datagrams_are_too_large(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="ordercast.node")
    async with Node("a", engines=FloodEngine) as node:
        group = await node.join("driver")
        narrow = UdpSender(NarrowSocket(10), node.sockets, gso=False)
        node._driver.socket.send = narrow.send
        for _ in range(3):
            await group.send(b"x" * 100)
            await group.flush()
        assert node.stats["too_large"] >= 3
    told = [record.getMessage() for record in caplog.records if "datagram=" in record.getMessage()]
    assert len(told) == 1


# Descriptors. --------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    """Limits the process to as many descriptors as it has open, and some more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(more: int) -> None:
        with socket.socket() as probe:
            first = probe.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + more, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_running_out_of_descriptors_says_what_to_do(few_descriptors: Callable[[int], None]) -> None:
    @on_loop
    async def program() -> None:
        async with Node("a") as node:
            group = await node.join(fresh())
            few_descriptors(0)
            with pytest.raises(OutOfDescriptors, match="ulimit -n") as raised:
                await node.join(fresh())
            assert isinstance(raised.value, OrdercastError)
            assert isinstance(raised.value, OSError)
            assert raised.value.errno == errno.EMFILE
            with pytest.raises(OutOfDescriptors):
                Node("b")
            assert node.groups == [group]
            await group.send(b"goes on", confirm=True)

    program()


def test_the_blocking_node_says_the_same(few_descriptors: Callable[[int], None]) -> None:
    few_descriptors(0)
    with pytest.raises(OutOfDescriptors, match="ulimit -n"):
        BlockingNode("a")


# Endings. ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
@pytest.mark.parametrize("members", [2, 3, 5])
def test_members_that_stop_together_do_not_wait_for_each_other(orderer: str, members: int) -> None:
    """In virtual time, which a busy machine does not make longer."""

    async def program(node: Simulation) -> float:
        nodes = [node(f"n{index}") for index in range(members)]
        groups = [await each.join("prices", orderer=orderer) for each in nodes]
        await asyncio.gather(*(group.send(b"x", confirm=True) for group in groups))
        begun = asyncio.get_running_loop().time()
        await asyncio.gather(*(each.close() for each in nodes))
        return asyncio.get_running_loop().time() - begun

    assert simulate(program) < 2.0


@on_loop
async def test_a_leaver_serves_a_member_that_stays() -> None:
    name = fresh()
    async with Node("b") as b:
        async with Node("a") as a:
            one, two = await a.join(name), await b.join(name)
            await one.send_many([b"%d" % number for number in range(2_000)])
        received = 0
        async for event in two.batches():
            received += len(getattr(event, "messages", ()))
            if received == 2_000:
                break
        while len(two.members) > 1:
            await two.receive()
        assert await two.send(b"goes on", confirm=True) >= 2_000


# The log. ------------------------------------------------------------------------------------------------------------


class TalkingEngine(FloodEngine):
    """Notes a suspicion with each pass."""

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        out.notes.append(Note("membership", 0, detail="b/1 is suspected: silent for 1.3 s"))
        super().after_batch(now_ns, out)


@on_loop
async def test_what_engines_note_of_the_membership_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ordercast.membership")
    async with Node("a", engines=TalkingEngine, life=7) as node:
        await node.join("driver")
    [first, *_] = [record for record in caplog.records if record.name == "ordercast.membership"]
    assert first.getMessage() == "a/7 in 'driver': b/1 is suspected: silent for 1.3 s"
    assert first.levelno == logging.INFO
