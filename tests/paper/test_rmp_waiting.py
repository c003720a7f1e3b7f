"""A group in which a member or a caller waits is not at rest: a failure shows soon (RMP sections 4.3 to 4.5)."""

from __future__ import annotations

import asyncio

import pytest
from tests.paper.calling import Office, in_office, shout

from ordercast.config import SECOND
from ordercast.groups.events import Request
from ordercast.sim.network import NetworkModel


async def hesitate(request: Request) -> None:
    await asyncio.sleep(1_000)
    await shout(request)


async def crash_noticed_soon(office: Office) -> None:
    """Member b of four crashes, and c has a view without it in less than 2 s."""
    crashed_ns = office.world.now_ns
    office.nodes[1].crash()
    await office.until(lambda: len(office.groups[2].members) == 3)
    assert office.world.now_ns - crashed_ns < 2 * SECOND


def test_a_holder_that_crashes_while_a_member_waits_for_its_lock_is_noticed_soon() -> None:
    """RMP section 4.4, and docs/design/overview.md section 7: a group in which a member waits is not at rest."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        await groups[1].lock("printer").acquire()
        waiting = asyncio.create_task(groups[2].lock("printer").acquire())
        await asyncio.sleep(5)
        crashed_ns = office.world.now_ns
        office.nodes[1].crash()
        await waiting
        assert office.world.now_ns - crashed_ns < 2 * SECOND

    in_office(program)


def test_a_server_that_crashes_while_a_member_waits_for_its_answer_is_noticed_soon() -> None:
    """RMP sections 3.3 and 4.4: the member that waits learns by a view that the server is gone."""

    async def program(office: Office) -> None:
        await office.open(4)
        await office.serve(1, 2, hesitate)
        call = asyncio.create_task(office.groups[2].call(b"when?", handler=2, timeout=60))
        await asyncio.sleep(5)
        await crash_noticed_soon(office)
        call.cancel()

    in_office(program)


def test_a_server_that_crashes_while_a_caller_outside_waits_is_noticed_soon() -> None:
    """RMP sections 4.4 and 4.5: the caller reminds the group, and the group is not at rest while it does."""

    async def program(office: Office) -> None:
        x = await office.open(4)
        await office.serve(1, 2, hesitate)
        call = asyncio.create_task(x.call("paper", b"when?", handler=2, timeout=60))
        await asyncio.sleep(8)
        await crash_noticed_soon(office)
        call.cancel()

    in_office(program)


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_suspected_because_somebody_waits(seed: int) -> None:
    """A group whose members wait for long speaks more often, and losses lead to no recovery."""

    async def program(office: Office) -> None:
        groups = await office.form(4, orderer="token")
        await groups[1].lock("printer").acquire()
        waiting = asyncio.create_task(groups[2].lock("printer").acquire())
        await asyncio.sleep(60)
        assert all(len(group.members) == 4 for group in groups)
        assert all(view.incarnation == 0 for seen in office.seen for view in seen.views)
        waiting.cancel()

    in_office(program, network=NetworkModel("poor", latency_ns=100_000, jitter_ns=200_000, loss=0.1), seed=seed)


def test_a_group_in_which_nobody_waits_is_at_rest_again() -> None:
    """Heartbeats are rare again once the lock is given back."""

    async def program(office: Office) -> None:
        groups = await office.form(3, orderer="token")
        lock = groups[1].lock("printer")
        await lock.acquire()
        waiting = asyncio.create_task(groups[2].lock("printer").acquire())
        busy = await office.count(asyncio.sleep(10))
        assert busy["sync"] > 200  # three members, every 100 ms
        lock.release()
        await waiting
        await asyncio.sleep(2)
        rest = await office.count(asyncio.sleep(10))
        assert rest["sync"] < 50

    in_office(program)
