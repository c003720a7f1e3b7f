"""A node on real sockets: drain, process, flush, one pass per wake-up (DESIGN section 6, QSM section 2.5).

The loop wakes the node because a socket is readable, because a deadline has come, or because the application did
something. Each time: take what has arrived, let the host conclude, send what it returns, in order. What the
application sends before the loop gets its turn leaves together, as one block.

If the network takes no more, the rest of the pass is kept in order and *nothing else happens* until it has left: no
reading, no timers, no new data from the application. So what is kept is one pass at most, and the application is held
by its own bounded queue. Incoming datagrams wait in the socket's buffer meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from random import Random
from time import monotonic_ns, time_ns
from typing import Any, Final, TypeVar

from ordercast.config import LAN_DATAGRAM, LOOPBACK_DATAGRAM, GroupConfig, Timing
from ordercast.engine import NEVER, Buffer, Send, To
from ordercast.errors import InvariantViolation, NotMember, OrdercastError, UsageError
from ordercast.groups.base import NodeBase
from ordercast.groups.checks import check_number
from ordercast.groups.host import EngineFactory, Host
from ordercast.runtime.addresses import AddressError, group_address, is_loopback, parse_peer
from ordercast.runtime.udp import Counters, MulticastReceiver, UnicastSocket
from ordercast.trace.convert import MAX_LIFE, raw_path
from ordercast.trace.recorder import Recorder, TraceWriteFailed
from ordercast.view import Address

LEAVE_TIMEOUT_S: Final = 5.0
"""How long `close` waits for the groups to see this node leave."""

MAX_NAME_BYTES: Final = 255
"""Of a node's name: it stands in every view."""

MAX_OFFSET_NS: Final = 1 << 62
"""Of the run clock against this machine's."""

LINGER_STEP_S: Final = 0.01
"""How often `close` looks whether those who may need this node's history are served."""

_SYMBOLIC: Final = frozenset({To.ALL, To.MULTICAST, To.ANYONE})

_log = logging.getLogger("ordercast.node")
_nodes = itertools.count(1)
_T = TypeVar("_T")


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
        timing: Timing | None = None,
        life: int | None = None,
        engines: EngineFactory | None = None,
    ) -> None:
        """
        name: unique among the nodes that may meet; by default made of host name and process.
        host, port: the address of one interface, IPv4; port 0 takes a free one.
        peers: addresses of other nodes, "host:port" each, where multicast does not find them.
        multicast: True, False (another member multicasts for this one, or where none can, everything goes to each by
        itself), or None: where there are no peers and the interface has it. Members of one group may differ.
        datagram: bytes of the largest UDP datagram for groups that this node creates.
        trace: folder to which the events are appended (`raw/`, TRACE.md); clock_offset_ns as in its run.json.
        insecure: needed for any interface but loopback, since nothing is encrypted or authenticated yet.
        """
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("make a Node inside a coroutine; programs without asyncio use BlockingNode") from None
        if not is_loopback(host) and not insecure:
            raise UsageError(
                f"{host} is not loopback, and traffic is neither encrypted nor authenticated yet: give insecure=True "
                "if everybody on that network may read and send to the groups"
            )
        life = time_ns() if life is None else life
        name = _default_name() if name is None else name
        _check_name(name)
        numbers = {"port": port, "life": life, "clock_offset_ns": clock_offset_ns, "datagram": datagram or 0}
        for word, value in numbers.items():
            check_number(word, value)
        if not 0 <= life <= MAX_LIFE:
            raise UsageError(f"a life is a number from 0 to {MAX_LIFE}, not {life}")
        if abs(clock_offset_ns) > MAX_OFFSET_NS:
            raise UsageError(f"clock_offset_ns lies within {MAX_OFFSET_NS} of 0, not {clock_offset_ns}")
        if isinstance(peers, str):
            raise UsageError(f"peers is a list of addresses: write peers=[{peers!r}]")
        self._peers = [_peer(peer) for peer in peers]
        if datagram is None:
            datagram = LOOPBACK_DATAGRAM if is_loopback(host) else LAN_DATAGRAM
        config = GroupConfig(datagram=datagram)
        self._timing = timing if timing is not None else Timing()
        self._offset_ns = clock_offset_ns
        # sockets
        self.sockets = Counters()
        self._socket = UnicastSocket(host, port, counters=self.sockets)
        self._receivers: dict[Address, MulticastReceiver] = {}
        self._listening: dict[str, Address] = {}  # underlay -> its multicast address
        self._recorder: Recorder | None = None
        try:
            self._multicast = self._decide_multicast(multicast)
            address = self._socket.address
            self._peers = [peer for peer in self._peers if peer != address]
            if trace is not None:
                self._recorder = _recorder(trace, name, life)
            super().__init__(
                Host(
                    name,
                    life,
                    address,
                    buffer_bytes=self._socket.receive_buffer_bytes,
                    rng=Random(f"{name}/{life}"),
                    timing=self._timing,
                    recorder=self._recorder,
                    engines=engines,
                    has_multicast=self._multicast,
                    ttl=self._socket.ttl,
                ),
                config,
            )
        except BaseException:
            self._socket.close()
            raise
        # driving
        self._is_warm = False  # a pass was run at once in this turn of the loop
        self._is_woken = False
        self._is_blocked = False
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = NEVER
        # what could not leave, with its TTL: at most one pass
        self._unsent: deque[tuple[Sequence[Address], Sequence[Buffer], int, int]] = deque()
        self.host.start(self._now_ns())
        self._loop.add_reader(self._socket.fileno(), self._on_readable, self._socket)

    # State.

    @property
    def address(self) -> Address:
        """Where this node is: its peers' `peers`."""
        return self._socket.address

    @property
    def uses_multicast(self) -> bool:
        return self._multicast

    def read_drops(self) -> int:
        """Datagrams that this node's sockets dropped since the last call, because they were full."""
        return sum(receiver.read_drops() for receiver in self._sockets())

    # Ending.

    async def close(self) -> None:
        """Leave all groups in order, serve those who still need this node's history for a moment, then stop."""
        if self._is_closed:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await asyncio.gather(*(group.leave() for group in self.groups))
        except TimeoutError:
            _log.warning("%s: stopped without having been seen to leave %d groups", self.member, len(self.groups))
        finally:
            linger_ns = monotonic_ns() + self._timing.linger_ns
            while self.host.is_lingering and monotonic_ns() < linger_ns and not self._is_closed:
                await asyncio.sleep(LINGER_STEP_S)
            self._stop(NotMember("this node has been closed"))

    def abort(self) -> None:
        """Stop at once, without a word to anybody: for the others this is a crash."""
        self._stop(NotMember("this node has been stopped"))

    # One pass.

    def _now_ns(self) -> int:
        return monotonic_ns() + self._offset_ns

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._on_woken)

    def _pass(self) -> None:
        if self._is_warm or self._is_blocked or self._is_closed:
            self._wake()
            return
        # Once in a turn: of many tasks that send and wait, the others' messages gather.
        self._is_warm = True
        self._loop.call_soon(self._cool)
        self._finish()

    def _cool(self) -> None:
        self._is_warm = False

    def _prepare(self, group: str) -> None:
        if self._is_closed:
            raise UsageError("this node has been closed")
        underlay = self.host.underlay_of(group)
        if not self._multicast or underlay in self._listening:
            return
        address = group_address(underlay)
        if address not in self._receivers:
            receiver = MulticastReceiver(address, self._socket.address[0], own=self.address, counters=self.sockets)
            self._receivers[address] = receiver
            if not self._is_blocked:
                self._loop.add_reader(receiver.fileno(), self._on_readable, receiver)
        self._listening[underlay] = address

    async def _locate(self, contact: str | Address) -> Address:
        # In a thread: a name may have to be looked up.
        return await self._loop.run_in_executor(None, _peer, contact)

    def _contacts(self) -> Sequence[Address]:
        return self._peers

    def _on_woken(self) -> None:
        # A pass for another reason may have done what this one was asked for.
        if self._is_woken and not self._is_closed and not self._is_blocked:
            self._finish()

    def _on_readable(self, receiver: UnicastSocket | MulticastReceiver) -> None:
        # Hot: one call per wake-up. Only this socket is drained: an empty one costs a system call to find out.
        receive = self.host.receive
        now_ns = self._now_ns()
        try:
            for source, data, stride in receiver.drain():
                receive(now_ns, source, data, stride)
        except Exception as error:
            self._break(error)
            return
        self._finish()

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ns = NEVER
        if self._is_blocked or self._is_closed:
            return
        now_ns = self._now_ns()
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
        now_ns = self._now_ns()
        try:
            if self.host.deadline_ns() <= now_ns:
                self.host.expire(now_ns)
            sends = self.host.finish(now_ns)
            if sends:
                self._transmit(sends)
        except TraceWriteFailed as error:
            # The groups are worth more than the evidence. What this pass wanted to send is lost like any datagram.
            _log.error("%s: %s", self.member, error)
        except Exception as error:
            self._break(error)
            return
        self.after_pass()
        if len(self._listening) > self.host.open_channels:
            self._stop_listening()
        if not self._is_blocked:
            self._arm(now_ns)

    def _arm(self, now_ns: int) -> None:
        """Have the next deadline wake us. A timer that comes too early is left alone: it looks again when it fires."""
        deadline_ns = self.host.deadline_ns()
        if deadline_ns <= now_ns:
            self._wake()
        elif deadline_ns < self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ns = deadline_ns
            delay_s = (deadline_ns - now_ns) / 1e9
            self._timer = self._loop.call_at(self._loop.time() + delay_s, self._on_timer)

    # Sending.

    def _transmit(self, sends: Sequence[tuple[str, Send]]) -> None:
        send = self._socket.send
        last = ""  # the underlay that the three below are of: looked up once, however much it sends
        multicast: Address = To.MULTICAST
        copies: Sequence[Address] = ()
        ttl = self._socket.ttl
        for underlay, (to, buffers, stride) in sends:
            if to not in _SYMBOLIC:
                if self._unsent or not send(to, buffers, stride):
                    self._unsent.append(((to,), buffers, stride, ttl))
                continue
            if underlay != last and self._multicast:
                last = underlay
                multicast = self._listening.get(underlay) or group_address(underlay)  # a caller does not listen
                copies = self.host.copies(underlay)
                ttl = self.host.ttl(underlay)
                if not self._unsent:
                    self._socket.set_ttl(ttl)
            addresses: Sequence[Address]
            if not self._multicast:
                if to == To.MULTICAST:
                    continue
                addresses = self.host.audience(underlay) if to == To.ALL else self._peers
            elif to == To.ANYONE:
                addresses = [multicast, *self._peers]
            elif to == To.ALL and copies:
                addresses = [multicast, *copies]
            else:
                if self._unsent or not send(multicast, buffers, stride):
                    self._unsent.append(((multicast,), buffers, stride, ttl))
                continue
            if self._unsent or not self._socket.send_many(addresses, buffers, stride):
                self._unsent.append((addresses, buffers, stride, ttl))
        if self._unsent:
            self._block()

    def _block(self) -> None:
        """The network takes no more: wait for it, and for nothing else."""
        self._is_blocked = True
        for receiver in self._sockets():
            self._loop.remove_reader(receiver.fileno())
        self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                # A send that stopped half-way goes on there: the socket knows it by the identity of these objects.
                addresses, buffers, stride, ttl = unsent[0]
                self._socket.set_ttl(ttl)
                if len(addresses) == 1:
                    has_left = self._socket.send(addresses[0], buffers, stride)
                else:
                    has_left = self._socket.send_many(addresses, buffers, stride)
                if not has_left:
                    return
                unsent.popleft()
        except Exception as error:
            self._break(error)
            return
        self._is_blocked = False
        self._loop.remove_writer(self._socket.fileno())
        for receiver in self._sockets():
            self._loop.add_reader(receiver.fileno(), self._on_readable, receiver)
        self._finish()

    # In detail.

    def _sockets(self) -> list[UnicastSocket | MulticastReceiver]:
        return [self._socket, *self._receivers.values()]

    def _decide_multicast(self, wanted: bool | None) -> bool:
        if wanted is False or (wanted is None and self._peers):
            return False
        try:
            MulticastReceiver(group_address("ordercast probe"), self._socket.address[0], own=None).close()
        except AddressError:
            if wanted:
                raise
            _log.warning("%s has no multicast: members are found by peers=[...] only", self._socket.address[0])
            return False
        return True

    def _stop_listening(self) -> None:
        """Give up the addresses of underlays that were left and have nobody to serve any more."""
        for underlay in [underlay for underlay in self._listening if not self.host.knows(underlay)]:
            address = self._listening.pop(underlay)
            if address not in self._listening.values():
                receiver = self._receivers.pop(address)
                self._loop.remove_reader(receiver.fileno())
                receiver.close()

    def _break(self, error: Exception) -> None:
        """Our own bug, or a machine that fails us: going on could break the order that others rely on."""
        _log.critical("%s stops: %s", self.member, error, exc_info=error)
        if not isinstance(error, OrdercastError):
            broken = InvariantViolation(f"the node has stopped: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._stop(broken)
        else:
            self._stop(error)

    def _stop(self, error: OrdercastError) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._is_blocked:
            self._loop.remove_writer(self._socket.fileno())
        for receiver in self._sockets():
            receiver.read_drops()
            self._loop.remove_reader(receiver.fileno())
            receiver.close()
        self._receivers.clear()
        self._unsent.clear()
        self.fail(error)  # first: whoever waits learns the reason, not only that the host was closed
        try:
            self.host.close(self._now_ns())
            if self._recorder is not None:
                self._recorder.close()
        except OSError as failed:
            _log.error("%s: %s", self.member, failed)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise UsageError(f"a node's name has at least one character and no slash, got {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"the node's name {name!r} has no UTF-8 form: {error.reason}") from None
    if size > MAX_NAME_BYTES:
        raise UsageError(f"a node's name has at most {MAX_NAME_BYTES} bytes, got {size}")


def _peer(peer: object) -> Address:
    if isinstance(peer, str):
        return parse_peer(peer)
    if isinstance(peer, tuple) and len(peer) == 2 and isinstance(peer[0], str) and isinstance(peer[1], int):
        return parse_peer(f"{peer[0]}:{peer[1]}")
    raise UsageError(f'a peer is "host:port" or a pair of both, not {peer!r}')


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


def run(main: Coroutine[Any, Any, _T], *, debug: bool | None = None) -> _T:
    """`asyncio.run`, on uvloop where it is installed; with `debug` on asyncio's own loop, which can tell more."""
    with asyncio.Runner(debug=debug, loop_factory=None if debug else loop_factory()) as runner:
        return runner.run(main)


def _default_name() -> str:
    """Host name and process; a second node of a process gets a number. Only what a trace can name a folder by."""
    number = next(_nodes)
    base = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname()).strip("-") or "node"
    return f"{base[:80]}-{os.getpid()}" + (f"-{number}" if number > 1 else "")
