"""Groups on regions at nodes on real sockets, over the engine that only carries blocks; addresses that views bring."""

from __future__ import annotations

import asyncio
import socket

from tests.unit.fake_regions import FakeService

from ordercast import BlockingNode, Message, Node
from ordercast.engine import NEVER, Outbox
from ordercast.groups.driven import LogLine
from ordercast.groups.rows import Meter
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.runtime.listening import Listening
from ordercast.runtime.udp.counters import Counters
from ordercast.view import Address, group_tag
from ordercast.wire.header import HEADER, MAGIC, Kind

FIRST = ("239.255.77.1", 61_501)
SECOND = ("239.255.77.2", 61_502)
TIMEOUT_S = 60.0


def test_sockets_follow_the_addresses_of_regions() -> None:
    listening = Listening(("127.0.0.1", 9), Counters())
    opened, unused = listening.hear(frozenset({FIRST, SECOND}))
    assert len(opened) == 2
    assert not unused
    assert listening.hear(frozenset({FIRST, SECOND})) == ([], [])
    opened, unused = listening.hear(frozenset({SECOND}))
    assert not opened
    assert len(unused) == 1
    assert len(listening.receivers) == 1
    assert not listening.keep(lambda _underlay: False)  # it is no underlay's
    for receiver in (*unused, *listening.receivers):
        receiver.close()


def test_without_multicast_there_is_nothing_to_listen_to() -> None:
    listening = Listening(("127.0.0.1", 9), Counters(), has_multicast=False)
    assert listening.hear(frozenset({FIRST})) == ([], [])
    assert not listening.receivers


def test_nodes_on_sockets_send_and_receive_on_regions() -> None:
    service = FakeService()

    async def program() -> list[bytes]:
        async with Node("a", regions=service.engines) as a, Node("b", regions=service.engines) as b:
            sender = await a.join("red", orderer="regions")
            receiver = await b.join("red", orderer="regions")
            while len(sender.members) < 2:
                await asyncio.sleep(0)
            await sender.send_many([b"%d" % number for number in range(1_000)], confirm=True)
            got: list[bytes] = []
            async for event in receiver:
                if isinstance(event, Message):
                    got.append(event.payload)
                if len(got) == 1_000:
                    return got
        return []

    async def bounded() -> list[bytes]:
        return await asyncio.wait_for(program(), TIMEOUT_S)

    assert asyncio.run(bounded()) == [b"%d" % number for number in range(1_000)]


def test_a_blocking_program_has_the_same() -> None:
    service = FakeService()
    with BlockingNode("a", regions=service.engines) as node:
        node.join_many(["red", "green"], orderer="regions", timeout=TIMEOUT_S)
        given = [("red", b"1"), ("green", b"2")]
        feed = node.feed(lambda _room, _most: [given.pop(0)] if given else [])
        got: list[bytes] = []
        for event in node.batches(timeout=TIMEOUT_S):
            got += getattr(event, "messages", ())
            if len(got) == 2:
                break
        assert got == [b"1", b"2"]
        feed.stop()
        assert not feed.is_active


class Ears:
    """Hears what comes with the tag of regions, and does nothing."""

    underlay = REGIONS_UNDERLAY
    is_over = False
    deadline_ns = armed_ns = NEVER

    def __init__(self, order: int) -> None:
        self.order = order
        self.out = Outbox()
        self.sent = Meter()
        self.log: list[LogLine] = []
        self.kinds: list[int] = []

    @property
    def driven(self) -> Ears:
        return self

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:  # noqa: ARG002
        self.kinds.append(data[1])

    def expire(self, now_ns: int) -> None: ...

    def finish(self, now_ns: int) -> None: ...

    def take_news(self) -> tuple[()]:
        return ()


def test_blocks_that_wait_are_read_before_a_token() -> None:
    """They have sockets of their own. A token that overtakes them makes members ask for what is here."""

    def datagram(kind: Kind) -> bytes:
        return HEADER.pack(MAGIC, kind, 0, 0, group_tag(REGIONS_UNDERLAY), 0, 1, 1)

    async def program() -> list[int]:
        async with asyncio.timeout(TIMEOUT_S), Node("a") as node:
            driver = node._driver
            ears = Ears(driver.host.take_order())
            driver.host.attached.add(ears)
            opened, _ = driver._listening.hear(frozenset({FIRST}))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
                sender.sendto(datagram(Kind.REGION_TOKEN), node.address)
                sender.sendto(datagram(Kind.DATA), FIRST)
                while len(ears.kinds) < 2:
                    await asyncio.sleep(0)
            driver.host.attached.remove(ears)
            for receiver in opened:
                receiver.close()
            driver._listening.heard = frozenset()
            return ears.kinds

    assert asyncio.run(program()) == [Kind.DATA, Kind.REGION_TOKEN]
