"""One daemon process of `benches/chaos.py --orderer daemons` and of tests: a whole `ordercast daemon`, for native
clients and for those of Spread, that is cut off when told to.

    python -m ordercast.cli.daemon_member      (settings and orders on standard input, one JSON object a line)
"""

from __future__ import annotations

import json
import logging
import sys

from ordercast import OrdercastError, run
from ordercast.cli.children import Command, Saying
from ordercast.cli.cut_engine import Hearing, cut_engines
from ordercast.cli.sites_member import configuration
from ordercast.daemon.config import DaemonConfig
from ordercast.daemon.daemon import OrdercastDaemon
from ordercast.daemon.spread.config import SpreadConfig
from ordercast.wire.client_frames import Question


async def live() -> None:
    command = await Command.open()
    settings = command.settings
    doors, hearing = settings["doors"][settings["name"]], Hearing()
    try:
        sites = configuration(settings)
        config = DaemonConfig(
            name=settings["name"],
            site=settings["site"],
            sites=sites,
            insecure=settings["insecure"],
            trace=settings["trace"],
            unix=doors["native"],
            spread=SpreadConfig(listen=(("127.0.0.1", doors["spread_port"]),), folder=doors["spread_folder"]),
        )
        engines = cut_engines(sites, hearing)
        daemon = OrdercastDaemon(config, engines=engines, clock_offset_ns=settings["clock_offset_ns"])
        await daemon.start()
    except (OrdercastError, OSError, TimeoutError) as error:
        command.tell("failed", text=f"{type(error).__name__}: {error}")
        return
    if daemon.node is None:
        return
    try:
        command.tell("joined", life=daemon.node.member.life)
        while (order := await command.next()) is not None:
            match order["is"]:
                case "cut":
                    hearing.cut = _addresses(order)
                case "lose":
                    hearing.far, hearing.loss = _addresses(order), order["loss"]
                case "ask":
                    command.tell("answer", **_state(daemon, hearing))
                case "stop":
                    daemon.node.abort()
                    command.tell("stopped")
                    return
    finally:
        daemon.node.abort()


def _addresses(order: Saying) -> frozenset[tuple[str, int]]:
    return frozenset((host, port) for host, port in order["addresses"])


def _state(daemon: OrdercastDaemon, hearing: Hearing) -> Saying:
    said = json.loads(daemon.hub.answer(Question(0, "status", ""))) if daemon.hub is not None else {}
    return {
        "view": said.get("view") or "",
        "members": [name.partition("/")[0] for name in said.get("daemons", ())],
        "sessions": said.get("sessions", 0),
        "ended": said.get("ended", {}),
        "dropped": hearing.dropped,
        "lost": hearing.lost,
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    run(live())
    sys.exit(0)
