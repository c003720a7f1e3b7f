"""The sink's member on a live group: overtaken by another attempt, refused, too late, too large."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.network.quick import QUICK, fresh, within

import ordercast
from ordercast.api.transactions import BEGIN_TYPE, Mark, TransactionTooLarge
from ordercast.errors import UsageError
from ordercast.pipeline.stream import publisher
from ordercast.pipeline.stream.options import SinkOptions, sink_options
from ordercast.pipeline.stream.publisher import ATTEMPTS, Overtaken

ROWS = [b"one", b"two", b"three"]


def options(group: str, **given: str) -> SinkOptions:
    return sink_options({"group": group, "stagingLocation": "unused", "timeout": "20", **given})


async def publish(given: SinkOptions, batch: int = 0) -> None:
    await publisher._publish(given, "query", batch, lambda: [(ROWS, 0)], len(ROWS), sum(map(len, ROWS)))


class Listener:
    """A member that notes the batches it is handed over."""

    def __init__(self, group: ordercast.Group) -> None:
        self.group = group
        self.batches: list[int] = []
        self.came = asyncio.Event()
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for item in ordercast.transactions(self.group):
            if isinstance(item, ordercast.Transaction):
                assert list(item.rows) == ROWS
                self.batches.append(item.batch)
                self.came.set()

    async def got(self, *batches: int) -> None:
        """Wait for so many batches, and end; they are these."""
        while len(self.batches) < len(batches):
            self.came.clear()
            await self.came.wait()
        self.task.cancel()
        assert self.batches == list(batches)


class Overtaking:
    """A group as the publisher has it, in which another attempt begins before the COMMIT can leave."""

    def __init__(self, group: Any, other: ordercast.Group) -> None:
        self._group = group
        self._other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    async def flush(self) -> None:
        await self._group.flush()
        mark = Mark("query", 0, b"another attempt!", 5, 5)
        await self._other.send(mark.pack(), ordercast.SAFE, BEGIN_TYPE, confirm=True)


def overtaken(other: ordercast.Group, times: int) -> Callable[..., Awaitable[int]]:
    whole: Callable[..., Awaitable[int]] = publisher.publish_chunks  # type: ignore[attr-defined]
    left = [times]

    async def publish_chunks(group: Any, *arguments: Any, **how: Any) -> int:
        left[0] -= 1
        return await whole(Overtaking(group, other) if left[0] >= 0 else group, *arguments, **how)

    return publish_chunks


@within(60)
async def test_who_is_overtaken_tries_again_and_members_get_the_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ordercast.Node("ann", timing=QUICK) as ann:
        name = fresh()
        listener = Listener(await ann.join(name))
        monkeypatch.setattr(publisher, "publish_chunks", overtaken(listener.group, 1))
        await publish(options(name))
        await publish(options(name, contact=f"{ann.address[0]}:{ann.address[1]}"))
        await publish(options(name, service="RESILIENT(1)"), 1)
        await listener.got(0, 1)


@within(60)
async def test_who_is_overtaken_again_and_again_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ordercast.Node("ann", timing=QUICK) as ann:
        name = fresh()
        listener = Listener(await ann.join(name))
        monkeypatch.setattr(publisher, "publish_chunks", overtaken(listener.group, ATTEMPTS))
        with pytest.raises(Overtaken, match="two drivers"):
            await publish(options(name))
        await publish(options(name), 1)
        await listener.got(1)


@within(60)
async def test_what_cannot_be_published_leaves_the_group_as_it_was() -> None:
    async with ordercast.Node("ann", timing=QUICK) as ann:
        name = fresh()
        listener = Listener(await ann.join(name))
        with pytest.raises(TransactionTooLarge, match="3 rows of 11 bytes"):
            await publish(options(name, maxTransactionBytes="100"))
        with pytest.raises(UsageError, match="A group needs members"):
            await publish(options(fresh()))
        await publish(options(name))
        await listener.got(0)


def test_a_group_that_does_not_go_on_ends_a_commit_in_time() -> None:
    """A member that never receives holds up its group; the sink says so instead of waiting for ever."""

    async def main(group: str) -> None:
        async with ordercast.Node("ann", timing=QUICK) as ann:
            await ann.join(group, buffers=1 << 16)
            given = options(group, timeout="3")
            rows = [bytes(1_000)] * 5_000
            await asyncio.to_thread(
                publisher.publish_batch, given, "query", 0, lambda: [(rows, 0)], len(rows), 5_000_000
            )

    with pytest.raises(TimeoutError, match=r"within 3 s .* does every member receive"):
        ordercast.run(asyncio.wait_for(main(fresh()), 60))
