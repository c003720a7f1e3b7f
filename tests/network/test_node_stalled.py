"""A stall on real sockets: the event, the status and the log line, and the end of it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.network.quick import fresh, within

from ordercast import Group, Node, Resumed, Stalled, StallReason


async def next_of(group: Group, kind: type[Stalled] | type[Resumed]) -> Stalled | Resumed:
    while True:
        event, _ = await group.receive()
        if isinstance(event, kind):
            return event


@within(60)
async def test_a_member_that_does_not_receive_is_named_and_the_group_goes_on_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ordercast.group")
    name = fresh()
    async with Node("a") as a, Node("b") as b:
        group, late = await a.join(name), await b.join(name)

        async def flood() -> None:
            while True:
                await group.send_many([bytes(1_000)] * 1_000)

        sending = asyncio.create_task(flood())
        stalled = await next_of(group, Stalled)
        assert isinstance(stalled, Stalled)
        assert (stalled.reason, stalled.waiting_for) == (StallReason.NOT_RECEIVING, (str(late.member),))
        status = group.status
        assert (status.state, status.reason, status.since) == ("stalled", stalled.reason, stalled.since)
        sending.cancel()
        receiving = asyncio.create_task(next_of(late, Stalled))
        resumed = await next_of(group, Resumed)
        assert isinstance(resumed, Resumed)
        assert resumed.after >= 1
        receiving.cancel()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "ordercast.group"]
    told = [text for level, text in lines if level == "WARNING" and f"application of {late.member} does not" in text]
    assert len(told) == 1
    assert told[0].startswith(f"{group.member} in {name!r}: no progress for 1.")
    assert [text for level, text in lines if level == "INFO" and "goes on after" in text]
