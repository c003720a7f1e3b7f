"""The sink's member: joins the group for one batch, publishes it as a transaction, sees it handed over, and leaves.

It reads the group as every other member does, so it knows what they decide. An attempt that another one overtook is
made again. If any attempt has handed over the batch meanwhile, the work is done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import ordercast
from ordercast.api.transactions import Transactions, publish_chunks
from ordercast.errors import OrdercastError, UsageError
from ordercast.pipeline.stream.options import SinkOptions

ATTEMPTS: Final = 3
"""Attempts of one commit that may be overtaken: more of them mean that two drivers run the same query."""

Chunks = Iterable[tuple[Sequence[bytes], int]]


class Overtaken(OrdercastError):
    """Other attempts of the same query run at the same time."""


def publish_batch(
    options: SinkOptions, query: str, batch: int, chunks: Callable[[], Chunks], rows: int, nbytes: int
) -> None:
    """Publish one batch and return when every member has it, or is bound to get it. `chunks` gives the rows again."""
    try:
        ordercast.run(_publish(options, query, batch, chunks, rows, nbytes))
    except TimeoutError as error:
        raise TimeoutError(
            f"batch {batch} of {query} was not published to {options.group!r} within {options.timeout_s:g} s "
            f"({error or 'no end in sight'}): "
            'does the group answer, and does every member receive? A longer time: .option("timeout", SECONDS)'
        ) from None


async def _publish(
    options: SinkOptions, query: str, batch: int, chunks: Callable[[], Chunks], rows: int, nbytes: int
) -> None:
    name = options.name or f"spark-{query[:8]}-{os.getpid()}"
    node = ordercast.Node(
        name, options.host, options.port, options.peers, multicast=options.multicast, insecure=options.insecure
    )
    async with node, asyncio.timeout(options.timeout_s):
        try:
            group = await node.join(
                options.group,
                orderer=options.orderer,
                create=options.create if options.contact is None else None,
                contact=options.contact,
                timeout=options.timeout_s,
            )
        except ordercast.JoinRefused as error:
            raise UsageError(
                f"batch {batch} of {query} cannot be published: {error}. A group needs members before rows are "
                'published to it, or nobody would see them (.option("create", "true") makes it nevertheless)'
            ) from None
        watching = _Watching(group)
        receiving = asyncio.create_task(watching.run())
        try:
            for _ in range(ATTEMPTS):
                sending = asyncio.create_task(
                    publish_chunks(
                        group,
                        query,
                        batch,
                        chunks(),
                        rows,
                        nbytes,
                        service=options.service,
                        max_bytes=options.max_bytes,
                    )
                )
                try:
                    await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
                    if not sending.done():
                        receiving.result()  # raises why nothing comes any more
                        raise ordercast.NotMember(f"the sink was put out of {options.group!r}")
                    position = sending.result()
                finally:
                    sending.cancel()
                await watching.reach(position)
                if watching.reading.decided.get(query, -1) >= batch:
                    return
            raise Overtaken(
                f"batch {batch} of {query}: another attempt began before each of {ATTEMPTS} could end. Do two drivers "
                "run the query from one checkpoint?"
            )
        finally:
            receiving.cancel()


class _Watching:
    """Receives for as long as the sink is a member, and notes what was decided."""

    def __init__(self, group: ordercast.Group) -> None:
        self.reading = Transactions(keep_rows=False)
        self._group = group
        self._me = str(group.member)
        self._at = -1
        self._moved = asyncio.Event()

    async def run(self) -> None:
        async for event in self._group.batches():
            for _ in self.reading.feed(event):
                pass
            if isinstance(event, ordercast.Batch) and event.service.is_ordered:
                self._at = event.position + len(event) - 1
                self._moved.set()

    async def reach(self, position: int) -> None:
        """Wait until what stands at `position` has been received."""
        while self._at < position:
            self._moved.clear()
            await self._moved.wait()
