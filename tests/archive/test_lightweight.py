"""A recorder of one group among many: its positions are those of the shared underlay, with holes for the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.archive.test_catchup import inline, messages

from ordercast.archive.log import ArchiveLog, LogConfig
from ordercast.archive.recorder import ArchiveRecorder
from ordercast.groups.events import Message
from ordercast.sim.api import Simulation, simulate

GROUPS = ["orders", "prices", "news"]


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_a_recorder_of_a_lightweight_group_has_its_messages_at_their_positions(tmp_path: Path, orderer: str) -> None:
    seen: list[tuple[int, str, int, bytes]] = []

    async def program(node: Simulation) -> None:
        a, r = node("a"), node("r")
        floor = await a.attach("floor", orderer=orderer)
        await floor.join_many(GROUPS)

        async def listen() -> None:
            async for event in floor.events():
                if isinstance(event, Message) and "orders" in event.groups:
                    note(event)

        def note(event: Message) -> None:
            seen.append((event.position, event.sender, event.number, event.payload))

        listening = asyncio.create_task(listen())
        log = ArchiveLog.open(tmp_path / "r", "orders", LogConfig(fsync="never"))
        recorder = ArchiveRecorder(r, log, blocking=inline, join={"underlay": "floor"})
        running = asyncio.create_task(recorder.run())
        while recorder.group is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        for number in range(20):
            groups = [GROUPS[(number + at * at) % 3] for at in range(30)]
            await floor.send_many([b"%d %d" % (number, at) for at in range(30)], groups=groups)
            await a.send(b"to two", groups=["news", "orders"])
            await a.send(b"to another", groups=["news"])
            await asyncio.sleep(0.01 * (number % 3))
        await floor.flush()
        await asyncio.sleep(1)
        recorder.stop()
        await running
        listening.cancel()

    simulate(program, seed=3)
    found = [(record.position, record.sender, record.number, record.value) for record in messages(tmp_path / "r")]
    assert found == seen
    assert len(found) > 200
    assert found[-1][0] - found[0][0] > 500, "the other groups have positions, too"
