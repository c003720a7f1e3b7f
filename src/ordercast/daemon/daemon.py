"""A daemon: a node, its sessions and the sockets of its clients, from start to stop (docs/design/daemon.md)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

from ordercast.client.addresses import checked_host
from ordercast.config import SITES_ORDERER
from ordercast.daemon.config import DaemonConfig, lone_site
from ordercast.daemon.hub import DaemonNode, Hub
from ordercast.daemon.listener import Listener
from ordercast.daemon.spread.listener import SpreadListener
from ordercast.errors import UsageError
from ordercast.groups.checks import check_name
from ordercast.groups.engines import EngineFactory
from ordercast.runtime.addresses import interface_address, is_loopback, peer_address
from ordercast.runtime.daemon import find_place
from ordercast.runtime.node import SessionNode, check_node_name
from ordercast.sites import SitesConfig

ATTACH_S: Final = 60.0
"""How long a daemon tries to come into its underlay."""

GONE_S: Final = 4.0
"""How long a daemon that stops waits for its sessions to be seen to leave; a leave itself waits 3 s for messages."""

STEP_S: Final = 0.01


class OrdercastDaemon:
    """Made inside a running loop; `async with` starts and stops it."""

    def __init__(
        self,
        config: DaemonConfig,
        make_node: Callable[[DaemonConfig], DaemonNode] | None = None,
        *,
        engines: EngineFactory | None = None,
        clock_offset_ns: int = 0,
    ) -> None:
        """`make_node`: another node than one on real sockets. engines: what makes the engine of `sites`, for tests.
        clock_offset_ns: of the trace, as in its run.json."""
        self.config = config
        self._make_node = make_node or partial(_make_node, engines=engines, offset_ns=clock_offset_ns)
        check_daemon(config)
        self.node: DaemonNode | None = None
        self.hub: Hub | None = None
        self.listener: Listener | None = None
        self.spread: SpreadListener | None = None

    @property
    def addresses(self) -> list[str]:
        """Where clients connect."""
        native = self.listener.addresses if self.listener is not None else []
        return native + [f"spread:{port}@{host}" for host, port in (self.spread.addresses if self.spread else [])]

    async def start(self) -> None:
        """Come into the underlay, and then let clients in."""
        config = self.config
        self.node = node = self._make_node(config)
        try:
            await self._attach(node)
            self.hub = Hub(node, config.underlay, config.limits)
            self.listener = Listener(self.hub)
            if config.unix is not None:
                await self.listener.listen_unix(config.unix)
            for host, port in config.listen:
                await self.listener.listen_tcp(host, port)
            await self._take_spread(self.hub)
        except BaseException:
            if self.spread is not None:
                self.spread.close()
            if self.listener is not None:
                await self.listener.close()
            node.abort()
            raise

    async def _attach(self, node: DaemonNode) -> None:
        """Come into the underlay. Its log lines say why that takes long."""
        underlay = self.config.underlay
        try:
            await node.attach(underlay, orderer=self.config.orderer, timeout=ATTACH_S)
        except TimeoutError as error:
            raise UsageError(
                f"the underlay {underlay!r} has not let this daemon in within {ATTACH_S:g} s: look at the daemons that "
                "are in it (`ordercast status` there). If too few of them are left to go on, stop all of them, and "
                "start anew"
            ) from error

    async def _take_spread(self, hub: Hub) -> None:
        """Let clients of Spread in, where the configuration says so."""
        spread, sites = self.config.spread, self.config.sites
        if spread is None:
            return
        names = [daemon.name for daemon in sites.daemons] if sites is not None else []
        self.spread = SpreadListener(hub.seats, spread.settings, names)
        for host, port in spread.listen:
            await self.spread.listen(host, port)
        if spread.folder is not None and spread.socket_port is not None:
            await self.spread.listen_unix(spread.socket_port, spread.folder)

    async def run(self) -> None:
        """Until it is cancelled, or the node has stopped by itself: then that raises."""
        while self.hub is not None and self.hub.error is None:
            await asyncio.sleep(0.2)
        if self.hub is not None and self.hub.error is not None:
            raise self.hub.error

    async def stop(self, text: str = "the daemon stops") -> None:
        """Let all sessions leave in order, then the node."""
        if self.spread is not None:
            self.spread.close()
        if self.hub is not None:
            self.hub.seats.stop(text)
            deadline = asyncio.get_running_loop().time() + GONE_S
            while self.hub.seats.is_closing and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(STEP_S)
            self.hub.leave(text)
        if self.listener is not None:
            await self.listener.close()
        if self.node is not None:
            await self.node.close()

    async def __aenter__(self) -> OrdercastDaemon:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def check_daemon(config: DaemonConfig) -> None:
    """Raise what stands against a daemon with this configuration, without starting it."""
    for host, _ in (*config.listen, *(config.spread.listen if config.spread is not None else ())):
        checked_host(host)
        if host not in ("localhost", "::1") and not is_loopback(host) and not config.insecure:
            raise UsageError(
                f"clients would be let in at {host}, which is not loopback, and nothing is encrypted or authenticated "
                "yet: give --insecure if everybody on that network may read and send to all groups"
            )
    if config.unix is None and not config.listen and config.spread is None:
        raise UsageError("a daemon without a socket has no clients: give --unix PATH or --listen host:port")
    if config.unix is not None and len(os.fsencode(config.unix)) > MAX_PATH:
        raise UsageError(f"the path of a unix socket has at most {MAX_PATH} bytes: {config.unix}")
    if config.sites is None:
        return
    if config.name is not None:
        config.sites.daemon(config.name)
    elif config.site is None and len(config.sites.daemons) > 1:
        names = ", ".join([each.name for each in config.sites.daemons])
        raise UsageError(f"say which daemon of the file this one is, with --name: {names}")


def check_node(config: DaemonConfig) -> None:
    """Raise what stands against its node, as the start would. Names of hosts are looked up."""
    check_name(config.underlay)
    host = config.host
    if config.orderer == SITES_ORDERER:
        name, sites, site = _own_entry(config)
        place = find_place(sites, site, name)
        host = place.daemon.host if place is not None else host
    elif config.name is not None:
        check_node_name(config.name)
    for peer in config.peers:
        peer_address(peer)
    if not is_loopback(interface_address(host)) and not config.insecure:
        raise UsageError(
            f"{host} is not loopback, and traffic is neither encrypted nor authenticated yet: give --insecure if "
            "everybody on that network may read and send to all groups"
        )


MAX_PATH: Final = 107
"""What the kernel has room for."""


def _make_node(config: DaemonConfig, engines: EngineFactory | None, offset_ns: int) -> SessionNode:
    if config.orderer != SITES_ORDERER:
        return SessionNode(
            config.name,
            config.host,
            config.port,
            config.peers,
            insecure=config.insecure,
            trace=config.trace,
            clock_offset_ns=offset_ns,
        )
    name, sites, site = _own_entry(config)
    return SessionNode(
        name,
        site=site,
        sites=sites,
        insecure=config.insecure,
        trace=config.trace,
        clock_offset_ns=offset_ns,
        engines=engines,
    )


def _own_entry(config: DaemonConfig) -> tuple[str | None, SitesConfig, str | None]:
    """Name of the daemon, configuration of sites, and its site where that says which daemon it is."""
    name, sites, site = config.name, config.sites, config.site
    if sites is None:
        name = name or f"d{os.getpid()}"
        return name, lone_site(name, config.port or _free_port()), None
    if name is None and site is None:
        name = sites.daemons[0].name  # the only one
    return name, sites, site


def _free_port() -> int:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
