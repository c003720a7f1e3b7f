"""One replica of the membership service of regions as a process that can be killed.

    python -m ordercast.cli.gms_member      (settings and orders on standard input, one JSON object a line)

It is `ordercast gms`, but for two things: the events of the replicas' group are traced, and on loopback only nodes of
the same run find it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from ordercast import OrdercastError, run
from ordercast.cli.children import Command
from ordercast.config import Timing
from ordercast.gms.embedded import embedded_timing
from ordercast.gms.replica import GmsReplica
from ordercast.runtime.addresses import group_address, is_loopback
from ordercast.runtime.node import SessionNode
from ordercast.view import Address

READY_PACE_S = 0.05


def addresses_of(run_name: str) -> Callable[[str], Address]:
    """Multicast addresses of one run, so that another service on the same machine is not found."""
    return lambda name: group_address(f"{name} of {run_name}")


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    try:
        node = SessionNode(
            settings["name"],
            settings["host"],
            trace=settings["trace"],
            clock_offset_ns=settings["clock_offset_ns"],
            insecure=settings["insecure"],
            addresses=addresses_of(settings["run"]),
        )
    except (OrdercastError, OSError) as error:
        command.tell("failed", text=str(error))
        return
    driver, _ = node.parts
    replica = GmsReplica(node, driver, embedded_timing(Timing(), is_loopback=is_loopback(settings["host"])))
    running = asyncio.create_task(replica.run())
    following = asyncio.create_task(_follow(command, replica))
    try:
        while not replica.is_ready and not running.done():
            await asyncio.sleep(READY_PACE_S)
        command.tell("ready", life=node.member.life)
        await asyncio.wait((running, following), return_when=asyncio.FIRST_COMPLETED)
        ended_by = running.exception() if running.done() else None
        if ended_by is not None:
            command.tell("failed", text=f"{type(ended_by).__name__}: {ended_by}")
    finally:
        running.cancel()
        following.cancel()
        node.abort()


async def _follow(command: Command, replica: GmsReplica) -> None:
    """Answer until it is told to stop, or the command is gone."""
    while (order := await command.next()) is not None:
        if order["is"] == "ask":
            command.tell("answer", **replica.status())
        elif order["is"] == "stop":
            command.tell("stopped")
            return


if __name__ == "__main__":
    run(live())
    sys.exit(0)
