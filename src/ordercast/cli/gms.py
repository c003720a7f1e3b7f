"""`ordercast gms`: a replica of the membership service of regions (docs/design/gms.md)."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ordercast.cli.arguments import whole
from ordercast.cli.gms_dump import check_path, dump_changes
from ordercast.config import Timing
from ordercast.errors import UsageError
from ordercast.gms.placement import Placed, labels_of
from ordercast.gms.probe import ServiceProbe
from ordercast.gms.replica import MAX_REPLICAS, GmsReplica, Say
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.pipeline.regions.plan import placement_of
from ordercast.runtime.addresses import interface_address, is_loopback, peer_address
from ordercast.runtime.node import SessionNode
from ordercast.runtime.running import run as run_loop
from ordercast.wire.gms import Replica

HELP: Final = "run a replica of the membership service of regions"
DESCRIPTION: Final = (
    "Nodes with orderer='regions' get their views from a membership service. One replica is enough for one machine; "
    f"three or five ({MAX_REPLICAS} at most) go on when some of them crash. Replicas find each other by multicast, or "
    "by --peers. It runs until SIGTERM, and then leaves in order. At SIGHUP it reads the plan again."
)
EXAMPLES: Final = """examples:
  ordercast gms
      a replica on loopback
  ordercast gms --host 10.0.0.7 --port 7000 --peers 10.0.0.8:7000,10.0.0.9:7000 --insecure
      one of three, without multicast; nodes have gms=["10.0.0.7:7000", ...]
  ordercast gms --plan plans/today
      nodes are placed in regions as `ordercast plan` decided
  ordercast gms --dump now.parquet
      who is in which group, kept up to date: what `ordercast plan now.parquet` plans from
  ordercast gms --status --json
      what the replicas that answer say, for a program"""
SEARCH_S: Final = 1.0  # for replicas to answer `--status`
SHOWN_S: Final = 0.25  # between two looks at the status


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast gms`."""
    parser.description = DESCRIPTION
    parser.add_argument("--name", default=None, help="the node's name (made of host name and process)")
    parser.add_argument("--host", default="127.0.0.1", help="the address of its interface (127.0.0.1)")
    parser.add_argument("--port", type=whole(0, 65_535), default=0, help="its UDP port; 0: a free one (0)")
    parser.add_argument("--peers", default="", metavar="LIST", help="other replicas, host:port with commas")
    parser.add_argument("--plan", type=Path, default=None, metavar="DIR", help="place nodes as a plan says")
    parser.add_argument("--dump", type=Path, default=None, metavar="FILE", help="keep who is in which group there")
    parser.add_argument("--status", action="store_true", help="ask the replicas that answer, print that, and end")
    parser.add_argument("--insecure", action="store_true", help="allow other interfaces than loopback")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change of the status")


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM, or ask."""
    peers = [peer_address(each) for each in args.peers.split(",") if each]
    host = interface_address(args.host)
    if not is_loopback(host) and not args.insecure:
        raise UsageError(
            f"{host} is not on loopback, and nothing is encrypted yet: add --insecure if that is all right"
        )
    if args.status:
        return run_loop(_ask(args, peers))
    plan = labels_of(placement_of(args.plan)) if args.plan is not None else ()
    if args.dump is not None:
        check_path(args.dump)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    run_loop(_serve(args, peers, plan))
    return 0


def _node(args: argparse.Namespace, peers: list[tuple[str, int]]) -> SessionNode:
    return SessionNode(args.name, args.host, args.port, peers, insecure=args.insecure)


async def _serve(args: argparse.Namespace, peers: list[tuple[str, int]], plan: Placed) -> None:
    async with _node(args, peers) as node:
        driver, _ = node.parts
        say = logging.getLogger("ordercast.gms").info
        replica = GmsReplica(node, driver, Timing(), plan=plan, say=say)
        showing = asyncio.create_task(_show_changes(replica, _shown(node.address), args.json))
        over = asyncio.Event()
        if args.dump is not None:
            dumping = asyncio.create_task(dump_changes(replica, args.dump, over, say))
        if args.plan is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _place_again, replica, args.plan, say)
        running = asyncio.create_task(replica.run())
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            over.set()
            if args.dump is not None:
                await dumping  # before the replica leaves, and forgets
            replica.stop()
            await running
            raise
        finally:
            showing.cancel()


def _place_again(replica: GmsReplica, folder: Path, say: Say) -> None:
    """A new plan lies where the old one was. What cannot be read is said, and the old one goes on."""
    try:
        placement = placement_of(folder)
    except UsageError as error:
        say(f"{error}; the plan before goes on")
        return
    replica.place(labels_of(placement))
    say(f"{len(placement)} nodes are placed as {folder} says")


async def _show_changes(replica: GmsReplica, address: str, as_json: bool) -> None:
    """A line whenever something has changed; the first one says that the replica is ready."""
    before: dict[str, Any] = {}
    while True:
        if replica.is_ready:
            status = {"address": address, **replica.status()}
            if status != before:
                print(json.dumps(status) if as_json else _line(status), flush=True)
                before = status
        await asyncio.sleep(SHOWN_S)


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _line(status: dict[str, Any]) -> str:
    return (
        f"ordercast gms: {status['replica']} at {status['address']}, led by {status['leader']}, epoch "
        f"{status['epoch']} ({status['settled']} settled): {status['nodes']} nodes, {status['regions']} regions, "
        f"{status['groups']} groups, {len(status['replicas'])} replicas"
    )


async def _ask(args: argparse.Namespace, peers: list[tuple[str, int]]) -> int:
    async with _node(args, peers) as node:
        driver, _ = node.parts
        driver.prepare(REGIONS_UNDERLAY, "token")
        probe = ServiceProbe(node.member, Timing(), driver.host.take_order(), peers)
        driver.host.attached.add(probe)
        driver.host.touch(probe)
        driver.wake()
        await asyncio.sleep(SEARCH_S)
        driver.host.attached.remove(probe)
        probe.stop()
    tell_replicas(list(probe.found.values()), has_peers=bool(peers), as_json=args.json)
    return 0 if probe.leader is not None else 1


def tell_replicas(replicas: Sequence[Replica], *, has_peers: bool, as_json: bool) -> None:
    """What each replica said; where there is none, that on standard error."""
    for found in replicas:
        told = {
            "service": f"{found.service:016x}",
            "epoch": found.epoch,
            "address": _shown(found.address),
            "leader": _shown(found.leader_address) if found.leader else None,
        }
        shown = f"{told['address']}: service {told['service']}, epoch {told['epoch']}, leader at {told['leader']}"
        print(json.dumps(told) if as_json else shown, flush=True)
    if not replicas:
        hint = "" if has_peers else "; where multicast does not reach them, name them with --peers"
        print(f"ordercast gms: no replica answered within {SEARCH_S:g} s{hint}", file=sys.stderr)
