"""The driver on real sockets: drain, process, flush, one pass per wake-up (QSM section 2.5, docs/design/host.md).

The loop wakes the driver because a socket is readable, because a deadline has come, or because the application did
something. Each time: take what has arrived, let the host conclude, send what it returns, in order. What the
application sends before the loop gets its turn leaves together, as one block.

If the network takes no more, the rest of the pass is kept in order and *nothing else happens* until it has left: no
reading, no timers, no new data from the application. So what is kept is one pass at most, and the application is held
by its own bounded queue. Incoming datagrams wait in the socket's buffer meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict
from time import monotonic_ns
from typing import Final, Protocol

from ordercast.config import SITES_ORDERER
from ordercast.engine import NEVER
from ordercast.errors import InvariantViolation, OrdercastError, UsageError
from ordercast.groups.host import Host
from ordercast.runtime.addresses import peer_address
from ordercast.runtime.listening import Authority, Listening
from ordercast.runtime.transmitter import Transmitter
from ordercast.runtime.udp.counters import Counters
from ordercast.runtime.udp.probes import ProbeSocket
from ordercast.runtime.udp.sockets import MulticastReceiver, UnicastSocket
from ordercast.sites import Site
from ordercast.trace.recorder import Recorder, TraceWriteFailed
from ordercast.view import Address

LINGER_STEP_S: Final = 0.01
"""How often `linger` looks whether the members that may need this node's history are served."""

QUIET_HEARTBEATS: Final = 4
"""Heartbeats of a busy group, without anything else from the members, after which a leaver has no one to serve."""

_log = logging.getLogger("ordercast.node")
_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING}


class PassListener(Protocol):
    """What is told of the passes: the groups that the application has open."""

    def settle(self) -> None: ...

    def fail(self, error: OrdercastError) -> None: ...


class UdpDriver:
    """Runs the passes of one host on one loop."""

    __slots__ = (
        "_has_multicast",
        "_has_warned",
        "_is_blocked",
        "_is_prepared",
        "_is_warm",
        "_is_woken",
        "_listeners",
        "_listening",
        "_loop",
        "_offset_ns",
        "_peers",
        "_probes",
        "_recorder",
        "_site",
        "_timer",
        "_timer_ns",
        "_told_drops",
        "_transmitter",
        "counters",
        "host",
        "is_closed",
        "socket",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: UnicastSocket,
        host: Host,
        *,
        has_multicast: bool,
        peers: Sequence[Address],
        clock_offset_ns: int,
        recorder: Recorder | None,
        authority: Authority | None = None,
        site: Site | None = None,
    ) -> None:
        """site: where the configuration of sites has this node."""
        self._loop = loop
        self.host = host
        self._recorder = recorder
        self._offset_ns = clock_offset_ns
        self._listeners: list[PassListener] = []
        # sockets
        self.socket = socket
        self.counters: Counters = socket.counters
        self._has_multicast = has_multicast
        self._peers = peers
        self._site = site
        self._listening = Listening(socket.address, self.counters, authority, has_multicast=has_multicast)
        self._transmitter = Transmitter(socket, host, peers=peers, listening=self._listening)
        self._probes: ProbeSocket | None = None  # opened by the first probe
        self._told_drops = 0
        self._has_warned = False  # of datagrams that are too large
        self._is_prepared = False  # for a group that may have failed to open
        # passes
        self._is_warm = False  # a pass was run at once in this turn of the loop
        self._is_woken = False
        self._is_blocked = False
        self.is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER

    def start(self, listener: PassListener) -> None:
        """Begin to receive. `listener` is told of each pass."""
        self._listeners.append(listener)
        self.host.start(self.now_ns())
        self._loop.add_reader(self.socket.fileno(), self._on_readable, self.socket)

    def add_listener(self, listener: PassListener) -> None:
        """One more that is told of each pass, after the others: the sessions of a daemon."""
        self._listeners.append(listener)

    # What seats and the backend ask for.

    def now_ns(self) -> int:
        return monotonic_ns() + self._offset_ns

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._on_woken)

    def hurry(self) -> None:
        if self._is_warm or self._is_blocked or self.is_closed:
            self.wake()
            return
        # Once in a turn: where many tasks send and wait, the messages of the others gather.
        self._is_warm = True
        self._loop.call_soon(self._cool)
        self._finish()

    def prepare(self, underlay: str, orderer: str) -> None:
        if self.is_closed:
            raise UsageError("this node has been closed")
        is_sited = self._site is not None and orderer == SITES_ORDERER
        if self._site is not None and is_sited:
            self._listening.place(underlay, self._site.multicast)
        if self._has_multicast or is_sited:
            self._is_prepared = True
            opened = self._listening.add(underlay)
            if opened is not None and not self._is_blocked:
                self._loop.add_reader(opened.fileno(), self._on_readable, opened)

    def find(self, group: str) -> None:
        if self._has_multicast:
            self._listening.address_of(self.host.underlay_of(group))

    async def locate(self, contact: str | Address) -> Address:
        # In a thread: a name may have to be looked up.
        return await self._loop.run_in_executor(None, peer_address, contact)

    def contacts(self) -> Sequence[Address]:
        return self._peers

    def socket_stats(self) -> dict[str, int]:
        self._count_drops()
        return asdict(self.counters)

    def read_drops(self) -> int:
        """Datagrams that the sockets dropped since the last call, because they were full."""
        self._count_drops()
        new, self._told_drops = self.counters.kernel_drops - self._told_drops, self.counters.kernel_drops
        return new

    # Ending.

    async def linger(self, limit_ns: int, quiet_ns: int) -> None:
        """Serve members that may need what this node knows of groups that it has left.

        It ends when they are served, after `limit_ns`, or when nothing but heartbeats has come for `quiet_ns`. Members
        that stop at the same time hear each other's heartbeats and nothing else: none of them is left to say that it
        needs no more.
        """
        now_ns = monotonic_ns()
        stop_ns, quiet_stop_ns = now_ns + limit_ns, now_ns + quiet_ns
        heard = self.host.lingering_work
        while self.host.is_lingering and now_ns < min(stop_ns, quiet_stop_ns) and not self.is_closed:
            await asyncio.sleep(LINGER_STEP_S)
            now_ns = monotonic_ns()
            if self.host.lingering_work != heard:
                heard = self.host.lingering_work
                quiet_stop_ns = now_ns + quiet_ns

    def stop(self, error: OrdercastError) -> None:
        """Stop at once. All tasks that wait, and every later call, learn `error`."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_blocked:
            self._loop.remove_writer(self.socket.fileno())
        for receiver in self._sockets():
            receiver.read_drops()
            self._loop.remove_reader(receiver.fileno())
            receiver.close()
        if self._probes is not None:
            self._loop.remove_reader(self._probes.fileno())
            self._probes.close()
        self._transmitter.clear()
        for listener in self._listeners:
            listener.fail(error)  # first: tasks learn the reason, not only that the host was closed
        try:
            self.host.close(self.now_ns())
            if self._recorder is not None:
                self._recorder.close()
        except OSError as failed:
            _log.error("%s: %s", self.host.me, failed)

    # One pass.

    def _cool(self) -> None:
        self._is_warm = False

    def _on_woken(self) -> None:
        # A pass for another reason may have done what this one was asked for.
        if self._is_woken and not self.is_closed and not self._is_blocked:
            self._finish()

    def _on_readable(self, receiver: UnicastSocket | MulticastReceiver) -> None:
        # Hot: one call per wake-up. Only this socket is drained: an empty one costs a system call to find out. Where
        # there are regions, the blocks that wait come before tokens, which may have overtaken them in sockets of their
        # own: otherwise members would ask one another for what is here already.
        receive = self.host.receive
        now_ns = self.now_ns()
        try:
            if receiver is self.socket and self._listening.heard:
                later = [(source, bytes(data), stride) for source, data, stride in receiver.drain()]
                for region in self._listening.regional:
                    for source, data, stride in region.drain():
                        receive(now_ns, source, data, stride)
                for source, copy, stride in later:
                    receive(now_ns, source, memoryview(copy), stride)
            else:
                for source, data, stride in receiver.drain():
                    receive(now_ns, source, data, stride)
        except Exception as error:
            self._break(error)
            return
        self._finish()

    def _on_unreachable(self, probes: ProbeSocket) -> None:
        now_ns = self.now_ns()
        try:
            for address, quoted in probes.drain():
                self.host.unreachable(now_ns, address, quoted)
        except Exception as error:
            self._break(error)
            return
        if not self._is_blocked:
            self._finish()

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ns = NEVER
        if self._is_blocked or self.is_closed:
            return
        now_ns = self.now_ns()
        if self.host.deadline_ns() > now_ns:
            self._arm(now_ns)
            return
        try:
            self.host.expire(now_ns)
        except Exception as error:
            self._break(error)
            return
        self._finish()

    def _finish(self) -> None:
        """End the pass: conclude, send, let the application go on."""
        self._is_woken = False
        host = self.host
        now_ns = self.now_ns()
        try:
            if host.deadline_ns() <= now_ns:
                host.expire(now_ns)
            sends = host.finish(now_ns)
            if sends and not self._transmitter.transmit(sends):
                self._block()
            if self._transmitter.probes:
                self._send_probes()
        except TraceWriteFailed as error:
            # The groups are worth more than the evidence. What this pass wanted to send is lost like any datagram.
            _log.error("%s: %s", host.me, error)
        except Exception as error:
            self._break(error)
            return
        if host.has_log:
            self._tell_log()
        if self.counters.too_large and not self._has_warned:
            self._warn_of_size()
        for listener in self._listeners:
            listener.settle()
        if host.has_ended or self._is_prepared:
            self._stop_listening()
        if host.attached.listens() != self._listening.heard:
            self._hear()
        if not self._is_blocked:
            self._arm(now_ns)

    def _arm(self, now_ns: int) -> None:
        """Have the next deadline wake us. A timer that comes too early is left alone: it looks again when it fires."""
        deadline_ns = self.host.deadline_ns()
        if deadline_ns <= now_ns:
            self.wake()
        elif deadline_ns < self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ns = deadline_ns
            delay_s = (deadline_ns - now_ns) / 1e9
            self._timer = self._loop.call_at(self._loop.time() + delay_s, self._on_timer)

    def _block(self) -> None:
        """The network takes no more: wait for it, and for nothing else."""
        self._is_blocked = True
        for receiver in self._sockets():
            self._loop.remove_reader(receiver.fileno())
        self._loop.add_writer(self.socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            if not self._transmitter.resume():
                return
        except Exception as error:
            self._break(error)
            return
        self._is_blocked = False
        self._loop.remove_writer(self.socket.fileno())
        for receiver in self._sockets():
            self._loop.add_reader(receiver.fileno(), self._on_readable, receiver)
        self._finish()

    # In detail.

    def _send_probes(self) -> None:
        sends, self._transmitter.probes = self._transmitter.probes, []
        if self._probes is None:
            self._probes = ProbeSocket.open(self.socket.address[0], self.counters)
            if self._probes is None:
                return  # a dead process is noticed by its silence
            self._loop.add_reader(self._probes.fileno(), self._on_unreachable, self._probes)
        for send in sends:
            self._probes.send(send)

    def _sockets(self) -> list[UnicastSocket | MulticastReceiver]:
        return [self.socket, *self._listening.receivers]

    def _count_drops(self) -> None:
        for receiver in self._sockets():
            receiver.read_drops()

    def _stop_listening(self) -> None:
        """Close the sockets of underlays that were left and need no answers any more."""
        self.host.has_ended = self._is_prepared = False
        for receiver in self._listening.keep(self.host.knows):
            self._loop.remove_reader(receiver.fileno())
            receiver.read_drops()
            receiver.close()

    def _hear(self) -> None:
        """Regions have multicast addresses of their own, which views bring and take away."""
        opened, unused = self._listening.hear(self.host.attached.listens())
        for receiver in opened:
            if not self._is_blocked:
                self._loop.add_reader(receiver.fileno(), self._on_readable, receiver)
        for receiver in unused:
            self._loop.remove_reader(receiver.fileno())
            receiver.read_drops()
            receiver.close()

    def _tell_log(self) -> None:
        """Log view changes, suspicions and stalls, which the core only notes."""
        for underlay, (topic, level, text) in self.host.take_log():
            logger = logging.getLogger(f"ordercast.{topic}")
            logger.log(_LEVELS[level], "%s in %r: %s", self.host.me, underlay, text)

    def _warn_of_size(self) -> None:
        self._has_warned = True
        _log.warning(
            "%s: the path takes no datagrams of the size that was set, and they are dropped (too_large in node.stats): "
            "create the group from nodes with a smaller datagram=, such as 1400",
            self.host.me,
        )

    def _break(self, error: Exception) -> None:
        """Our own bug, or a machine that fails us: going on could break the order that others rely on."""
        _log.critical("%s stops: %s", self.host.me, error, exc_info=error)
        if not isinstance(error, OrdercastError):
            broken = InvariantViolation(f"the node has stopped: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self.stop(broken)
        else:
            self.stop(error)
