"""A node on real sockets: its arguments, and how it ends. `driver.py` runs its passes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import socket
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from time import time_ns
from typing import Final

from ordercast.api.checks import as_timing, check_number
from ordercast.api.local import LocalBackend
from ordercast.api.node import NodeBase
from ordercast.config import LAN_DATAGRAM, LOOPBACK_DATAGRAM, SITES_ORDERER, GroupConfig, Timing
from ordercast.errors import NotMember, UsageError
from ordercast.gms.embedded import EMBEDDED, EmbeddedService, embedded_timing
from ordercast.gms.placement import labels_of
from ordercast.groups.engines import EngineFactory, engines_of_sites
from ordercast.groups.host import Host
from ordercast.groups.regions.engines import RegionEngineFactory
from ordercast.groups.regions.served import ServedEngines
from ordercast.runtime.addresses import AddressError, group_address, interface_address, is_loopback, peer_address
from ordercast.runtime.daemon import find_place
from ordercast.runtime.data_folder import DataFolder
from ordercast.runtime.driver import QUIET_HEARTBEATS, UdpDriver
from ordercast.runtime.listening import Authority
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.sockets import MulticastReceiver, UnicastSocket
from ordercast.sites import SitesConfig
from ordercast.trace.convert import MAX_LIFE, raw_path
from ordercast.trace.recorder import Recorder
from ordercast.view import Address

LEAVE_TIMEOUT_S: Final = 5.0
"""How long `close` waits for the groups to see this node leave."""

MAX_NAME_BYTES: Final = 255
"""Of a node's name: it stands in every view."""

MAX_OFFSET_NS: Final = 1 << 62
"""Of the run clock against this machine's."""

_log = logging.getLogger("ordercast.node")
_nodes = itertools.count(1)
_open: weakref.WeakSet[Node] = weakref.WeakSet()  # nodes that were made and not closed


class Node(NodeBase):
    """One member of groups, on one UDP address. Made inside a running event loop; `async with` closes it."""

    def __init__(
        self,
        name: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        peers: Iterable[str | Address] = (),
        *,
        multicast: bool | None = None,
        datagram: int | None = None,
        trace: str | Path | None = None,
        clock_offset_ns: int = 0,
        insecure: bool = False,
        timing: Timing | str | None = None,
        life: int | None = None,
        addresses: Authority | None = None,
        data_dir: str | Path | None = None,
        site: str | None = None,
        sites: str | Path | SitesConfig | None = None,
        gms: Iterable[str | Address] | str | None = None,
        placement: Mapping[str, int] | None = None,
        engines: EngineFactory | None = None,
        regions: RegionEngineFactory | None = None,
    ) -> None:
        """
        name: unique among the nodes that may meet; by default made of host name and process.
        host, port: the address of one interface, IPv4, or a name of it; port 0 takes a free one.
        peers: addresses of other nodes, "host:port" each, where multicast does not find them.
        multicast: True, False (another member multicasts for this one; where none can, each member gets a copy of its
        own), or None: True where there are no peers and the interface has it. Members of one group may differ.
        datagram: bytes of the largest UDP datagram for groups that this node creates.
        trace: folder to which the events are appended (`raw/`, docs/trace.md); clock_offset_ns as in its run.json.
        insecure: needed for any interface but loopback, since nothing is encrypted or authenticated yet.
        timing: heartbeats, suspicion and retransmission, if not the usual ones; "rmp" has those of the paper.
        addresses: an authority for the multicast addresses of groups: a function of a group's name that returns address
        and port. It must not block, and all nodes must get the same answer. By default names are hashed.
        data_dir: a folder of its own in which this node keeps what it has promised to its groups. Restarted with it, it
        counts as a member of its last view; it has its name from there, unless one is given. Without it a node that
        crashes is gone, and comes back as a new one.
        site, sites: this node is the daemon `name` of a configuration of sites, a file or a `SitesConfig`; it has its
        address from there, and `orderer="sites"` is its default. The name may be left out where the site has one
        daemon, the site where there is a name.
        gms: where replicas of the membership service of regions are, "host:port" each, if multicast does not find them;
        "embedded": this node runs a replica itself, where it finds fewer than three.
        placement: for such a replica: in which region of a plan each node belongs, by name. A node that it does not
        name is in a region with those that are in the same groups. All nodes that run replicas get the same one.
        life: which life of `name` this is; by default the time. engines: what makes protocol engines, for tests.
        regions: the same for the engine of regions, which knows the membership service.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("make a Node inside a coroutine; programs without asyncio use BlockingNode") from None
        place = find_place(
            sites, site, name, host=host, port=port, has_data_dir=data_dir is not None, multicast=multicast
        )
        if place is not None:
            name, (host, port) = place.daemon.name, place.daemon.address
        host = interface_address(host)
        if not is_loopback(host) and not insecure:
            raise UsageError(
                f"{host} is not loopback, and traffic is neither encrypted nor authenticated yet: give insecure=True "
                "if everybody on that network may read and send to the groups"
            )
        asked, name = name, _default_name() if name is None else name
        check_node_name(name)
        numbers = {"port": port, "life": life or 0, "clock_offset_ns": clock_offset_ns, "datagram": datagram or 0}
        for word, value in numbers.items():
            check_number(word, value)
        if life is not None and not 0 <= life <= MAX_LIFE:
            raise UsageError(f"a life is a number from 0 to {MAX_LIFE}, not {life}")
        if abs(clock_offset_ns) > MAX_OFFSET_NS:
            raise UsageError(f"clock_offset_ns lies within {MAX_OFFSET_NS} of 0, not {clock_offset_ns}")
        if addresses is not None and not callable(addresses):
            raise UsageError(f"addresses is a function that gives a group's address and port, not {addresses!r}")
        if isinstance(peers, str):
            raise UsageError(f"peers is a list of addresses: write peers=[{peers!r}]")
        others = [peer_address(peer) for peer in peers]
        if isinstance(gms, str) and gms != EMBEDDED:
            raise UsageError(f'gms is a list of addresses, or "{EMBEDDED}": write gms=[{gms!r}]')
        if gms is not None and not isinstance(gms, Iterable):
            raise UsageError(f'gms is a list of addresses, or "{EMBEDDED}", not {gms!r}')
        if placement is not None and gms != EMBEDDED:
            raise UsageError(f'a placement is for a node that runs the service: give gms="{EMBEDDED}" with it')
        plan = labels_of(placement) if placement is not None else ()
        replicas = [peer_address(each) for each in gms] if gms is not None and gms != EMBEDDED else []
        if datagram is None:
            datagram = LOOPBACK_DATAGRAM if is_loopback(host) else LAN_DATAGRAM
        config = GroupConfig(datagram=datagram)
        if place is not None:
            config = replace(config, orderer=SITES_ORDERER)
            engines = engines if engines is not None else engines_of_sites(place.config, None, place.fingerprint)
        self._timing = as_timing(timing)
        unicast = UnicastSocket(host, port)
        folder: DataFolder | None = None
        try:
            if data_dir is not None:
                folder = DataFolder(data_dir, asked, name, life, time_ns())
                name, life = folder.name, folder.life
            life = time_ns() if life is None else life
            has_multicast = _decide_multicast(multicast, unicast.address[0], bool(others))
            # An embedded replica is asked at the node's own address: own multicasts do not come back.
            services = [unicast.address] if gms == EMBEDDED else replicas
            if regions is None and (has_multicast or services or others):
                regions = ServedEngines(services)
            recorder = _recorder(trace, name, life) if trace is not None else None
            self._driver = UdpDriver(
                loop,
                unicast,
                Host(
                    name,
                    life,
                    unicast.address,
                    buffer_bytes=unicast.receive_buffer_bytes,
                    rng=Random(f"{name}/{life}"),
                    timing=self._timing,
                    recorder=recorder,
                    engines=engines,
                    regions=regions,
                    has_multicast=has_multicast,
                    ttl=unicast.ttl,
                    store=folder,
                ),
                has_multicast=has_multicast,
                peers=[peer for peer in others if peer != unicast.address],
                clock_offset_ns=clock_offset_ns,
                recorder=recorder,
                authority=addresses,
                site=place.site if place is not None else None,
            )
        except BaseException:
            unicast.close()
            if folder is not None:
                folder.close()
            raise
        self._folder = folder
        self._local = LocalBackend(self._driver.host, config, self._driver)
        super().__init__(self._local)
        self._loop = loop
        self._driver.start(self._open)
        self.service_addresses: list[Address] = services  # of replicas of the membership service of regions
        self._embedded: EmbeddedService | None = None
        if gms == EMBEDDED:
            patience = embedded_timing(self._timing, is_loopback=is_loopback(host))
            self._embedded = EmbeddedService(self, self._driver, patience, _log.info, plan)
        _open.add(self)

    @property
    def address(self) -> Address:
        """Where this node is: what other nodes give as `peers`."""
        return self._driver.socket.address

    @property
    def embedded_service(self) -> EmbeddedService | None:
        """With `gms="embedded"`: what runs a replica here, where one is missing."""
        return self._embedded

    @property
    def is_closed(self) -> bool:
        """Whether this node has stopped."""
        return self._driver.is_closed

    @property
    def uses_multicast(self) -> bool:
        """Whether this node hears multicasts and sends them."""
        return self.member.has_multicast

    @property
    def sockets(self) -> Counters:
        """Counters of the sockets, as the program goes on; `stats` has the same numbers."""
        return self._driver.counters

    def read_drops(self) -> int:
        """Datagrams that this node's sockets dropped since the last call, because they were full."""
        return self._driver.read_drops()

    async def close(self) -> None:
        """Leave all groups in order, serve members that still need this node's history for a moment, then stop."""
        driver = self._driver
        if driver.is_closed:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._leave_regions()
                if self._embedded is not None:
                    await self._embedded.stop()
                await self._leave_all()
        except TimeoutError:
            _log.warning("%s: stopped without having been seen to leave %d groups", self.member, len(self.groups))
        finally:
            timing = self._timing
            await driver.linger(timing.linger_ns, QUIET_HEARTBEATS * timing.heartbeat_busy_ns)
            driver.stop(NotMember("this node has been closed"))
            self._close_folder()

    def abort(self) -> None:
        """Stop at once, without leaving the groups: for the others this is a crash."""
        if self._embedded is not None:
            self._embedded.abort()
        self._driver.stop(NotMember("this node has been stopped"))
        self._close_folder()

    def _close_folder(self) -> None:
        if self._folder is not None:
            self._folder.close()


def _decide_multicast(wanted: bool | None, interface: str, has_peers: bool) -> bool:
    if wanted is False or (wanted is None and has_peers):
        return False
    try:
        MulticastReceiver(group_address("ordercast probe"), interface, own=None).close()
    except AddressError:
        if wanted:
            raise
        _log.warning("%s has no multicast: members are found by peers=[...] only", interface)
        return False
    return True


def check_node_name(name: object) -> None:
    """Raise UsageError where no node can be called so."""
    if not isinstance(name, str) or not name or "/" in name:
        raise UsageError(f"a node's name has at least one character and no slash, got {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the node's name {name!r} has no UTF-8 form: {error.reason}") from None
    if size > MAX_NAME_BYTES:
        raise UsageError(f"a node's name has at most {MAX_NAME_BYTES} bytes, got {size}")


def _recorder(trace: str | Path, name: str, life: int) -> Recorder:
    try:
        return Recorder(raw_path(Path(trace), name, life), name, life)
    except OSError as error:
        raise UsageError(f"{trace} cannot hold the trace of {name}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loops where it is installed, else None: asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def open_nodes(loop: asyncio.AbstractEventLoop) -> list[Node]:
    """The nodes of a loop that are not closed."""
    return [node for node in list(_open) if node._loop is loop and not node.is_closed]


class SessionNode(Node):
    """A node of a daemon."""

    @property
    def parts(self) -> tuple[UdpDriver, LocalBackend]:
        """What the daemon needs of it: its sessions are further applications of the same host."""
        return self._driver, self._local


def _default_name() -> str:
    """Host name and process; a second node of a process gets a number. Only what a trace can name a folder by."""
    number = next(_nodes)
    base = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname()).strip("-") or "node"
    return f"{base[:80]}-{os.getpid()}" + (f"-{number}" if number > 1 else "")
