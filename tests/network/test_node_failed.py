"""Groups of real nodes with manual recovery: what every primitive does after a failure; and groups that have none.

tests/paper/test_failed_group.py has the same in virtual time, case by case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.network.quick import QUICK, fresh, within

from ordercast import (
    BlockingNode,
    Failed,
    Group,
    GroupFailed,
    Node,
    NotEnoughMembers,
    Reason,
    Timing,
    Transitional,
    View,
)
from ordercast.config import MS

on_loop = within(60)
PRIMITIVES: list[Callable[[Group], Awaitable[object]]] = [
    lambda group: group.send(b"refused"),
    lambda group: group.send_many([b"refused"]),
    lambda group: group.flush(),
    lambda group: group.receive(),
    lambda group: group.call(b"refused", handler=1),
    lambda group: group.lock("printer").acquire(),
    lambda group: group.handler(1).acquire(),
    lambda group: group.leave(),
]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@on_loop
async def test_every_primitive_fails_until_a_reset_and_works_after_it() -> None:
    """Amoeba section 4.2, between real nodes."""
    name = fresh()
    async with Node(timing=QUICK) as first, Node(timing=QUICK) as second, Node(timing=QUICK) as third:
        groups = [await node.join(name, recovery="manual") for node in (first, second, third)]
        await until(lambda: all(len(group.members) == 3 for group in groups))
        _, b, c = groups
        lock = b.lock("kept")
        await lock.acquire()
        while b.has_events:
            await b.receive()
        first.abort()
        await until(lambda: b.failure is not None and c.failure is not None)
        assert isinstance((await b.receive())[0], Failed)
        for primitive in PRIMITIVES:
            with pytest.raises(GroupFailed):
                await primitive(b)
        assert (b.is_member, len(b.members), lock.is_held) == (True, 3, True)
        lock.release()
        outcomes = await asyncio.gather(b.reset(2), c.reset(3), return_exceptions=True)
        assert outcomes[0] == 2
        assert isinstance(outcomes[1], NotEnoughMembers)
        await until(lambda: b.failure is None and c.failure is None)
        assert isinstance((await b.receive())[0], Transitional)
        view, _ = await b.receive()
        assert isinstance(view, View)
        assert (view.reason, len(view.members)) == (Reason.RESET, 2)
        async with c.lock("kept", timeout=10):
            assert await b.send(b"accepted", confirm=True) >= 0
        await b.leave(b"bye")
        await until(lambda: len(c.members) == 1)
        assert c.view is not None
        assert (c.view.reason, c.view.header) == (Reason.LEAVE, b"bye")


def test_blocking_programs_get_the_same_errors() -> None:
    name = fresh()
    with BlockingNode(timing=QUICK) as one, BlockingNode(timing=QUICK) as two:
        one.join(name, recovery="manual")
        group = two.join(name, recovery="manual")
        while group.has_events:
            group.receive()
        one.abort()
        assert isinstance(group.receive(timeout=20)[0], Failed)
        with pytest.raises(GroupFailed):
            group.receive(timeout=20)
        with pytest.raises(GroupFailed):
            group.leave()
        assert group.failure is not None
        group.abandon()
        assert not group.is_member


@pytest.mark.parametrize("orderer", ["sequencer", "token", "timestamp"])
def test_a_group_in_which_nothing_happens_stays_as_it_is(orderer: str) -> None:
    """Two members, then a third one, and nobody sends: there is no recovery, and no call fails."""
    # Several times as long as silence is borne, and as members take to come to rest.
    calm = Timing(
        heartbeat_busy_ns=20 * MS,
        suspect_busy_ns=1_000 * MS,
        heartbeat_rest_ns=100 * MS,
        suspect_rest_ns=1_200 * MS,
        find_ns=20 * MS,
    )

    @on_loop
    async def idle() -> None:
        name = fresh()
        async with Node(timing=calm) as first, Node(timing=calm) as second, Node(timing=calm) as third:
            groups = [await node.join(name, orderer=orderer, recovery="manual") for node in (first, second)]
            await asyncio.sleep(1.5)
            groups.append(await third.join(name, orderer=orderer, recovery="manual"))
            await asyncio.sleep(1.5)
            reasons = [
                [event.reason if isinstance(event, View) else type(event) for event in await group.take()]
                for group in groups
            ]
            assert reasons == [[Reason.CREATE, Reason.JOIN, Reason.JOIN], [Reason.JOIN, Reason.JOIN], [Reason.JOIN]]
            assert await groups[0].send(b"works", confirm=True) >= 0

    idle()
