"""Which daemons of a configuration answer, from where: what `ordercast sites check` asks.

A node at a daemon's own address asks every other daemon which groups it is in. Every node answers that, whether it is
in a group or not: a daemon at work, or another check that stands in for one. So nothing need run beforehand, and a
firewall is crossed with the very addresses and ports that the daemons use.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Final

from ordercast import JoinRefused, Node
from ordercast.errors import OrdercastError, UsageError
from ordercast.runtime.addresses import AddressError, interface_address, is_loopback
from ordercast.runtime.udp.sockets import MulticastReceiver
from ordercast.sites import DaemonSpec, Site, SitesConfig

AGAIN_S: Final = 0.2
"""Between two questions to a daemon that has not answered; each of them is repeated by the node that asks."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What one daemon knows of another."""

    source: str
    target: str
    round_trip_ms: float | None  # None: it did not answer


@dataclass(slots=True)
class Reach:
    """What was found."""

    pairs: list[Pair] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)  # daemons that nothing was asked from, and why
    deaf: dict[str, str] = field(default_factory=dict)  # daemons that cannot hear their site's multicast, and why

    @property
    def silent(self) -> list[Pair]:
        return [pair for pair in self.pairs if pair.round_trip_ms is None]

    @property
    def is_whole(self) -> bool:
        """Whether something was asked, and all of it answered."""
        return bool(self.pairs) and not self.silent and not self.deaf


async def probe(config: SitesConfig, only: str | None, seconds: float, *, insecure: bool = False) -> Reach:
    """Ask from every daemon that this machine can stand in for; from one only, where it is named.

    One that is named stays for all of the time, so that others can ask it; otherwise this ends when all have answered.
    """
    reach = Reach()
    nodes: dict[str, Node] = {}
    try:
        for spec in config.daemons:
            if only is not None and spec.name != only:
                continue
            node = _stand_in(spec, insecure, reach)
            if node is not None:
                nodes[spec.name] = node
                _listen(config.site(spec.site), node, reach)
        if not nodes:
            raise UsageError(_nowhere(reach, only))
        loop = asyncio.get_running_loop()
        stop_s = loop.time() + seconds
        asking = [_ask(nodes[name], name, target, stop_s) for name in nodes for target in config.daemons]
        reach.pairs = [pair for pair in await asyncio.gather(*asking) if pair is not None]
        if only is not None:
            await asyncio.sleep(max(0.0, stop_s - loop.time()))
    finally:
        for node in nodes.values():
            node.abort()
    return reach


def _stand_in(spec: DaemonSpec, insecure: bool, reach: Reach) -> Node | None:
    try:
        host = interface_address(spec.host)
        if not is_loopback(host) and not insecure:
            raise UsageError(
                f"{spec.name} at {host} is not on loopback, and nothing is encrypted yet: add --insecure if that is "
                "all right"
            )
        return Node(spec.name, spec.host, spec.port, multicast=False, insecure=insecure)
    except OSError as error:
        reach.absent[spec.name] = error.strerror or str(error)
    except AddressError as error:
        reach.absent[spec.name] = str(error)
    return None


def _listen(site: Site, node: Node, reach: Reach) -> None:
    if site.multicast is None:
        return
    try:
        MulticastReceiver(site.multicast, node.address[0], own=None).close()
    except OrdercastError as error:
        reach.deaf[node.name] = str(error)


async def _ask(node: Node, source: str, target: DaemonSpec, stop_s: float) -> Pair | None:
    """Ask one daemon until it answers, or the time is over."""
    if source == target.name:
        return None
    loop = asyncio.get_running_loop()
    while True:
        began_ns = monotonic_ns()
        try:
            await node.groups_at(target.address)
        except JoinRefused:
            if loop.time() + AGAIN_S >= stop_s:
                return Pair(source, target.name, None)
            await asyncio.sleep(AGAIN_S)
            continue
        return Pair(source, target.name, (monotonic_ns() - began_ns) / 1e6)


def _nowhere(reach: Reach, only: str | None) -> str:
    first, why = next(iter(reach.absent.items()))
    if only is not None:
        return f"this machine cannot stand in for {only} ({why}): run the check where {only} is, and while it is down"
    return f"this machine has no address of the configuration ({first}: {why}): run the check where a daemon is to be"


def reach_lines(reach: Reach, seconds: float) -> list[str]:
    """For people: the daemons that answered, then those that did not."""
    lines = []
    for source in dict.fromkeys([pair.source for pair in reach.pairs]):
        pairs = [pair for pair in reach.pairs if pair.source == source]
        heard = [f"{pair.target} {pair.round_trip_ms:.1f} ms" for pair in pairs if pair.round_trip_ms is not None]
        lines.append(f"{source} reaches {', '.join(heard) or 'nobody'}")
        lost = [pair.target for pair in pairs if pair.round_trip_ms is None]
        if lost:
            lines.append(f"{source} got no answer within {seconds:g} s from {', '.join(lost)}")
    lines += [f"{name} cannot hear the multicasts of its site: {why}" for name, why in reach.deaf.items()]
    lines += [f"not asked from {name}: {why}" for name, why in reach.absent.items()]
    return lines
