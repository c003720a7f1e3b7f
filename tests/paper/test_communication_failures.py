"""Section 4.1 of the Amoeba paper: gaps, repairs from the history, acknowledgements, and what bounds the history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tests.paper.group import Lab, in_lab, send_one_by_one

from ordercast.config import SECOND, GroupConfig, Timing
from ordercast.groups.events import Message
from ordercast.view import View

SMALL_HISTORY = GroupConfig(history_blocks=8)
PATIENT = Timing(heartbeat_busy_ns=10 * SECOND, suspect_busy_ns=100 * SECOND, suspect_rest_ns=100 * SECOND)


@contextmanager
def cut(lab: Lab, source: str, *targets: str) -> Iterator[None]:
    """Nothing from `source` reaches the targets."""
    for target in targets:
        lab.world.network.cut(source, target)
    try:
        yield
    finally:
        for target in targets:
            lab.world.network.mend(source, target)


def test_a_gap_is_noticed_by_the_next_broadcast_and_repaired_from_the_sequencers_history() -> None:
    """Section 4.1: "If it was expecting s next, and it got s + 1, it knows it has missed one"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        with cut(lab, "a", "c"):
            await groups[1].send(b"missed", confirm=True)
        await asyncio.sleep(0.001)
        assert not lab.seen[2].payloads
        sent = await lab.count(groups[1].send(b"next", confirm=True))
        assert not sent["nak"]
        sent = await lab.count(asyncio.sleep(0.01))
        assert (sent["nak"], sent["repair"]) == (1, 1)
        assert (groups[2].stats["sent.nak"], groups[0].stats["sent.repair"]) == (1, 1)
        assert lab.seen[2].payloads == [b"missed", b"next"]

    in_lab(program)


def test_several_missed_broadcasts_are_asked_for_in_one_message() -> None:
    """Section 4.1: "asking it for copies of the missing message (or messages, if several have been missed)"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        with cut(lab, "a", "c"):
            await send_one_by_one(groups[1], 5, 10)
        await groups[1].send(b"next", confirm=True)
        sent = await lab.count(asyncio.sleep(0.01))
        assert (sent["nak"], sent["repair"]) == (1, 5)
        assert len(lab.seen[2].payloads) == 6

    in_lab(program)


def test_a_missed_broadcast_that_nothing_follows_is_noticed_all_the_same() -> None:
    """Section 4.1 counts on the next broadcast; here the sequencer says how far it is, for the last one's sake."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        with cut(lab, "a", "c"):
            await groups[1].send(b"the last", confirm=True)
        await lab.until(lambda: bool(lab.seen[2].payloads), 1)

    in_lab(program)


def test_a_request_that_is_lost_is_sent_again() -> None:
    """Section 4.1: the sender is unblocked when it sees its message come back, and tries again until then."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        sending = asyncio.create_task(groups[1].send(b"again", confirm=True))
        with cut(lab, "b", "a"):
            await asyncio.sleep(0.01)
        await asyncio.wait_for(sending, 1)
        await asyncio.sleep(0.01)
        assert groups[1].stats["sent.request"] == 2
        assert [seen.payloads for seen in lab.seen] == [[b"again"]] * 3

    in_lab(program)


def test_a_broadcast_is_sent_twice_and_delivered_once() -> None:
    """Section 4.1: the sequencer has ordered it, the sender does not know and sends it again."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3)
        with cut(lab, "a", "b"):
            sending = asyncio.create_task(groups[1].send(b"once", confirm=True))
            await asyncio.sleep(0.2)
        await asyncio.wait_for(sending, 1)
        await asyncio.sleep(1)
        assert groups[1].stats["sent.request"] > 1
        assert [seen.payloads for seen in lab.seen] == [[b"once"]] * 3

    in_lab(program)


def test_a_quiet_member_acknowledges_after_delta_t() -> None:
    """Section 4.1: "nodes that have been quiet for a certain interval, Δt, send the sequencer a special packet"."""
    timing = Timing(heartbeat_rest_ns=2 * SECOND, suspect_rest_ns=100 * SECOND, beacon_ns=100 * SECOND)

    async def program(lab: Lab) -> None:
        """The interval is that of heartbeats, which say the same: nobody waits for it."""
        groups = await lab.form(3, timing=timing)
        before = groups[2].stats["sent.ack"]
        await lab.until(lambda: groups[2].stats["sent.ack"] == before + 1)
        await groups[1].send(b"m", confirm=True)
        await asyncio.sleep(1.74)
        assert groups[2].stats["sent.ack"] == before + 1
        await asyncio.sleep(0.27)  # the intervals of members differ, by an eighth at most
        assert groups[2].stats["sent.ack"] == before + 2
        (port,) = lab.nodes[0].host.ports
        await lab.until(port.engine.is_at_rest)

    in_lab(program)


def test_the_sequencer_asks_for_status_when_its_history_fills() -> None:
    """Section 4.1: the sequencer "can also request this information when it runs out of space in its history"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, config=SMALL_HISTORY, timing=PATIENT)
        before = groups[0].stats.get("sent.status", 0)
        await send_one_by_one(groups[1], 7, 10)
        assert groups[0].stats.get("sent.status", 0) == before
        await send_one_by_one(groups[1], 1, 10)
        assert groups[0].stats.get("sent.status", 0) == before + 1
        answers = await lab.count(asyncio.sleep(0.001))
        assert answers["ack"] == 2

    in_lab(program)


def test_a_member_that_never_receives_blocks_the_group_loses_nothing_and_is_not_taken_for_dead() -> None:
    """Section 3: "the group may block, because it may run out of buffers. Messages are never thrown away"."""

    async def program(lab: Lab) -> None:
        groups = await lab.form(3, config=SMALL_HISTORY, slow="wait")
        lab.stop_receiving(2)
        await asyncio.sleep(0.01)
        sending = asyncio.create_task(send_one_by_one(groups[1], 200, 100))
        await asyncio.sleep(60)
        stuck = len(lab.seen[0].payloads)
        assert 0 < stuck <= 4 * SMALL_HISTORY.history_blocks
        assert not sending.done()
        assert all(len(group.members) == 3 for group in groups)
        lab.receive_again(2)
        await asyncio.wait_for(sending, 10)
        await asyncio.sleep(1)
        assert [len(seen.payloads) for seen in lab.seen] == [200] * 3
        for seen in lab.seen:
            assert not any(isinstance(event, View) for event in seen.events if seen.events.index(event) > 10)
            numbers = [event.number for event in seen.events if isinstance(event, Message)]
            assert numbers == list(range(200))

    in_lab(program)


def test_members_that_broadcast_at_the_same_time_are_put_in_one_order() -> None:
    """Section 3: random mixtures of A first and B first "are guaranteed not to occur"."""

    async def program(lab: Lab) -> list[list[bytes]]:
        groups = await lab.form(4)
        await asyncio.gather(
            *(group.send(b"%d.%d" % (index, number)) for number in range(50) for index, group in enumerate(groups))
        )
        await lab.until(lambda: all(len(seen.payloads) == 200 for seen in lab.seen))
        return [seen.payloads for seen in lab.seen]

    first, *others = in_lab(program)
    assert len(set(first)) == 200
    assert all(each == first for each in others)
