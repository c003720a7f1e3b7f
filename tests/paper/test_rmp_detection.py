"""How soon a failure is noticed: by our detector, and by the paper's ten tries (RMP sections 4.4 and 4.6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from tests.paper.ring import Ring, in_ring

from ordercast.config import MS, SECOND, TIMINGS
from ordercast.errors import OrdercastError
from ordercast.sim.network import NetworkModel
from ordercast.view import Reason
from ordercast.wire.header import Kind


async def formed(ring: Ring, timing: str, names: str) -> None:
    for name in names:
        await ring.join(name, timing=TIMINGS[timing], orderer="token")
    await asyncio.sleep(5)


def noticed_after_ns(timing: str, one_way_ns: int, dead: int = 1) -> int:
    """Time from a crash under light load until the first member begins the recovery."""

    async def talk(ring: Ring) -> None:
        with suppress(OrdercastError):
            while True:
                await ring.groups[0].send(bytes(100))
                await asyncio.sleep(0.2)

    async def program(ring: Ring) -> int:
        await formed(ring, timing, "abcd")
        talking = asyncio.create_task(talk(ring))
        await asyncio.sleep(20)
        ring.forget()
        crashed_ns = ring.world.now_ns
        ring.nodes[dead].crash()
        await ring.until(lambda: bool(ring.said(Kind.INVITE)))
        noticed_ns = ring.said(Kind.INVITE)[0].at_ns - crashed_ns
        await ring.until(lambda: all(len(ring.names(index)) == 3 for index in range(4) if index != dead), 120)
        talking.cancel()
        return noticed_ns

    return in_ring(program, network=NetworkModel("distance", latency_ns=one_way_ns), quiet=False)


@pytest.mark.parametrize("one_way_ns", [100_000, 1 * MS])
def test_ten_tries_find_a_near_failure_within_five_seconds(one_way_ns: int) -> None:
    """RMP section 4.6: "this policy detects failures in nearby sites within 5 seconds"."""
    assert 2 * SECOND < noticed_after_ns("rmp", one_way_ns) <= 5 * SECOND


@pytest.mark.parametrize("one_way_ms", [100, 150])
def test_ten_tries_find_a_distant_failure_within_fifteen_to_twenty_seconds(one_way_ms: int) -> None:
    """RMP section 4.6: "and distant sites within 15-20 seconds"."""
    assert 15 * SECOND <= noticed_after_ns("rmp", one_way_ms * MS) <= 20 * SECOND


@pytest.mark.parametrize("one_way_ns", [100_000, 100 * MS])
def test_heartbeats_find_a_failure_in_less_than_two_seconds(one_way_ns: int) -> None:
    """docs/design/overview.md section 7: the usual timing."""
    assert 1 * SECOND < noticed_after_ns("usual", one_way_ns) < 2 * SECOND


def test_silence_is_no_failure_by_the_papers_timing() -> None:
    """RMP section 4.4: only what is not acknowledged is; a ring at rest says nothing and suspects nobody."""

    async def program(ring: Ring) -> None:
        await formed(ring, "rmp", "abc")
        ring.lose(lambda word, _: word.kind == Kind.SYNC)
        await asyncio.sleep(60)
        assert not ring.said(Kind.INVITE)

    in_ring(program)


@pytest.mark.parametrize("timing", ["usual", "rmp"])
def test_a_site_that_delays_too_long_is_removed_by_the_papers_timing_and_not_by_ours(timing: str) -> None:
    """RMP section 4.6: "If the RMP process delays too long, however, it will be considered to be faulty, and it will be
    removed from the group"."""

    async def program(ring: Ring) -> bool:
        await formed(ring, timing, "abc")
        ring.stop_receiving(2)
        sending = asyncio.create_task(ring.groups[0].send_many([bytes(60_000)] * 800))
        await asyncio.sleep(30)
        removed = [view for view in ring.seen[0].views if view.reason == Reason.RESET and len(view.members) == 2]
        ring.receive_again(2)
        await sending
        await asyncio.sleep(20)
        return bool(removed)

    assert in_ring(program) == (timing == "rmp")
