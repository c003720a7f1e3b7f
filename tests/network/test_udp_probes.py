"""Probes on real sockets: which of them come back (Linux, `IP_RECVERR`; docs/design/detector.md)."""

from __future__ import annotations

import asyncio
import select

import pytest

from ordercast import Node
from ordercast.engine import Send
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.options import LINUX
from ordercast.runtime.udp.probes import ProbeSocket
from ordercast.runtime.udp.sockets import UnicastSocket
from ordercast.view import Address

LOOPBACK = "127.0.0.1"
WAIT_S = 60.0

pytestmark = pytest.mark.skipif(not LINUX, reason="other systems have no error queues: nothing is probed there")


def opened() -> ProbeSocket:
    probes = ProbeSocket.open(LOOPBACK, Counters())
    assert probes is not None
    return probes


def unused_address() -> Address:
    gone = UnicastSocket(LOOPBACK)
    gone.close()
    return gone.address


def is_readable(probes: ProbeSocket, timeout_s: float) -> bool:
    return bool(select.select([probes.fileno()], [], [], timeout_s)[0])


def test_a_probe_to_a_port_without_a_process_comes_back_as_it_was() -> None:
    probes, address = opened(), unused_address()
    probes.send(Send(address, (b"head", b"nonce"), 0))
    assert is_readable(probes, WAIT_S)
    assert probes.drain() == [(address, b"headnonce")]
    assert not is_readable(probes, 0), "the error has been taken"
    assert probes.counters.refused == 1
    probes.close()


def test_a_probe_to_a_process_that_does_not_read_comes_back_never() -> None:
    probes, living, address = opened(), UnicastSocket(LOOPBACK), unused_address()
    probes.send(Send(living.address, (b"one",), 0))
    probes.send(Send(address, (b"two",), 0))
    assert is_readable(probes, WAIT_S)
    assert probes.drain() == [(address, b"two")], "loopback keeps the order: the first had its chance"
    assert [bytes(data) for _, data, _ in living.drain()] == [b"one"]
    probes.close()
    living.close()


def test_an_error_that_waits_does_not_swallow_the_next_probe() -> None:
    probes, living, address = opened(), UnicastSocket(LOOPBACK), unused_address()
    probes.send(Send(address, (b"first",), 0))
    assert is_readable(probes, WAIT_S)
    probes.send(Send(living.address, (b"second",), 0))
    assert [bytes(data) for _, data, _ in living.drain()] == [b"second"]
    probes.close()
    living.close()


def test_an_address_that_is_none_is_counted_and_raises_nothing() -> None:
    probes = opened()
    for address in (("no address", 7), (LOOPBACK, 70_000), (LOOPBACK, 0)):
        probes.send(Send(address, (b"x",), 0))
    assert probes.counters.undeliverable == 3
    assert probes.drain() == []
    probes.close()
    assert probes.fileno() == -1


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_members_notice_that_a_process_is_gone_by_its_port(orderer: str) -> None:
    """The node stops without a word, and its port is closed: that is how the others see a process that was killed."""

    async def story() -> list[str]:
        nodes = [Node(name) for name in ("ann", "bob", "cleo")]
        groups = [await node.join("g", orderer=orderer) for node in nodes]
        nodes[0].abort()
        await groups[1].send(b"are you there?")
        async with asyncio.timeout(WAIT_S):
            while len(groups[1].members) > 2 or len(groups[2].members) > 2:
                await asyncio.sleep(0.01)
        probed = [group.stats["sent.probe"] for group in groups[1:]]
        refused = [node.stats["refused"] for node in nodes[1:]]
        for node in nodes[1:]:
            node.abort()
        assert sum(probed) >= 2
        assert sum(refused) >= 2
        return [member.name for member in groups[1].members]

    assert set(asyncio.run(story())) == {"bob", "cleo"}
