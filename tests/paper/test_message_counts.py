"""How many datagrams a broadcast costs: the numbers that the Amoeba paper states, measured in simulation without loss.

A broadcast is a `send` with `confirm=True`: the paper's SendToGroup, whose caller is blocked until its message has come
back (section 4.1). A datagram that is multicast counts once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.paper.group import Lab, in_lab, send_one_by_one

from ordercast.config import LAN_DATAGRAM, LOOPBACK_DATAGRAM, SECOND, GroupConfig, Timing
from ordercast.orderers.sequencer.sending import PB_LIMIT
from ordercast.service import RESILIENT
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.ordering import ASSIGNMENT, LEAD
from ordercast.wire.segments import segments_of

# Heartbeats, beacons and the acknowledgements of members that are quiet for delta t cost something per second, not per
# broadcast. With times that long only broadcasts are left to count.
SILENT = Timing(
    heartbeat_busy_ns=100 * SECOND,
    suspect_busy_ns=1_000 * SECOND,
    heartbeat_rest_ns=100 * SECOND,
    suspect_rest_ns=1_000 * SECOND,
    ack_quiet_ns=100 * SECOND,
    beacon_ns=100 * SECOND,
)
LARGE = PB_LIMIT + 4_000  # method 2 whatever the datagrams
BROADCASTS = 20


@dataclass(slots=True)
class Cost:
    """What `BROADCASTS` broadcasts of one member took: datagrams and bytes by kind, and what each member received."""

    sent: Counter[str]
    bytes: Counter[str]
    received: list[Counter[str]] = field(default_factory=list)


def cost_of(size: int, *, members: int = 5, datagram: int = LAN_DATAGRAM, sender: int = 1, **terms: Any) -> Cost:
    async def program(lab: Lab) -> Cost:
        groups = await lab.form(members, config=GroupConfig(datagram=datagram), timing=SILENT)
        await send_one_by_one(groups[sender], 3, size, **terms)
        counters = lab.world.network.counters
        await asyncio.sleep(0.01)
        bytes_before, received_before = Counter(counters.bytes_by_kind), [receptions(each.stats) for each in groups]
        sent = await lab.count(send_one_by_one(groups[sender], BROADCASTS, size, **terms))
        await asyncio.sleep(0.01)
        received = [receptions(each.stats) for each in groups]
        return Cost(
            sent,
            Counter(counters.bytes_by_kind) - bytes_before,
            [after - before for after, before in zip(received, received_before, strict=True)],
        )

    return in_lab(program)


def receptions(stats: dict[str, int]) -> Counter[str]:
    return Counter({name: count for name, count in stats.items() if name.startswith("received.")})


def test_a_broadcast_costs_two_messages_one_point_to_point_and_one_broadcast() -> None:
    """Section 4.1, method 1 (PB): "a reliable broadcast costs only 2 messages"."""
    assert cost_of(100).sent == {"request": BROADCASTS, "ordered": BROADCASTS}


def test_the_sequencers_own_broadcast_costs_one_message() -> None:
    """Section 4.1: the request to the sequencer is one that it need not send itself."""
    assert cost_of(100, sender=0).sent == {"ordered": BROADCASTS}


def test_method_1_interrupts_each_member_once_for_a_broadcast() -> None:
    """Section 4.1: "each user machine is interrupted only once"; section 5: "one interrupt for each"."""
    received = cost_of(100).received
    assert received[0] == {"received.request": BROADCASTS}
    for member in received[1:]:
        assert member == {"received.ordered": BROADCASTS}


def test_method_1_carries_a_message_twice_over_the_network() -> None:
    """Section 4.1: "a message of length n bytes consumes 2n bytes"; what is more is headers."""
    sent = cost_of(1_000).bytes
    assert 2_000 * BROADCASTS < sum(sent.values()) < 2_300 * BROADCASTS


def test_a_large_broadcast_costs_its_data_once_and_one_short_accept() -> None:
    """Section 4.1, method 2 (BB): the full message appears once, plus a very short accept."""
    cost = cost_of(LARGE, datagram=LOOPBACK_DATAGRAM)
    assert cost.sent == {"data": BROADCASTS, "accept": BROADCASTS}
    assert cost.bytes["accept"] == BROADCASTS * (HEADER_BYTES + LEAD.size + ASSIGNMENT.size)
    assert cost.bytes["accept"] <= 100 * BROADCASTS
    assert LARGE * BROADCASTS < cost.bytes["data"] < 1.01 * LARGE * BROADCASTS


def test_a_large_broadcast_in_segments_sends_each_of_them_once() -> None:
    """Section 4.1, method 2; "fragmentation is done at lower layers": 1,400 bytes cross an Ethernet at a time."""
    cost = cost_of(LARGE, datagram=LAN_DATAGRAM)
    assert cost.sent == {"data": BROADCASTS * segments_of(LARGE, LAN_DATAGRAM), "accept": BROADCASTS}


def test_method_2_interrupts_each_member_twice_for_a_broadcast() -> None:
    """Section 4.1: "every machine is interrupted twice, once for the message and once for the accept"."""
    received = cost_of(LARGE, datagram=LOOPBACK_DATAGRAM).received
    assert received[0] == {"received.data": BROADCASTS}  # the sequencer accepts it,
    assert received[1] == {"received.accept": BROADCASTS}  # and the sender has it
    for member in received[2:]:
        assert member == {"received.data": BROADCASTS, "received.accept": BROADCASTS}


@pytest.mark.parametrize(("size", "kind"), [(PB_LIMIT // 2, "request"), (2 * PB_LIMIT, "data")])
def test_method_1_is_for_small_messages_and_method_2_for_large_ones(size: int, kind: str) -> None:
    """Section 4.1: "method 1 for small messages and method 2 for large messages"."""
    assert cost_of(size, datagram=LOOPBACK_DATAGRAM).sent[kind] == BROADCASTS


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_resilience_degree_of_r_costs_2_plus_r_messages(degree: int) -> None:
    """Section 5: one broadcast message, r short acknowledgements, one broadcast accept."""
    cost = cost_of(100, members=6, service=RESILIENT(degree))
    assert cost.sent == {"data": BROADCASTS, "held": degree * BROADCASTS, "accept": BROADCASTS}
    assert sum(cost.sent.values()) == (2 + degree) * BROADCASTS
    assert cost.bytes["held"] <= 100 * degree * BROADCASTS


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_r_lowest_numbered_members_acknowledge(degree: int) -> None:
    """Section 4.2: "until it receives from the resilience lowest-numbered kernels acknowledgement messages"."""

    async def program(lab: Lab) -> list[int]:
        groups = await lab.form(6, timing=SILENT)
        await send_one_by_one(groups[1], BROADCASTS, 100, service=RESILIENT(degree))
        return [each.stats.get("sent.held", 0) for each in groups]

    sequencer, sender, *others = in_lab(program)
    assert (sequencer, sender) == (0, 0)
    assert others == [BROADCASTS] * degree + [0] * (4 - degree)
