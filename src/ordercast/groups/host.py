"""One node: many groups, one engine each, one pass at a time (docs/design/host.md).

No clock, socket or loop. `ordercast.runtime.node` feeds it from real sockets, `ordercast.sim` from virtual time:

    host.receive(now_ns, source, data, stride)   # each batch that was drained; or
    host.expire(now_ns)                          # when `deadline_ns()` has come; or calls on a `Port`
    sends = host.finish(now_ns)                  # ends the pass: trace written, then what is to leave, in order
    for port in host.take_news(): ...            # whose events, watches or membership changed

Only ports that something happened to are worked on, in the order in which it happened, so that a node in a hundred
thousand groups pays for those that are busy, and a simulation gives the same trace every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from random import Random
from typing import Final, Protocol

import numpy as np

from ordercast.config import MAX_GROUP_NAME, MAX_HEADER, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import NEVER, Send
from ordercast.errors import NotMember, OrdercastError, OutcomeUnknown, UsageError
from ordercast.groups.caller import Caller
from ordercast.groups.port import GroupEngine, Port
from ordercast.trace import recorder as trace
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag, node_id
from ordercast.wire.header import HEADER_BYTES, MAGIC, TAG, TAG_OFFSET, Kind

MAX_REMEMBERED: Final = 1 << 20
"""Groups left in one life, whose numbers are remembered. Beyond it no new group is opened: forgetting a number would
let a message be taken for an old one."""

_REPLY: Final = int(Kind.REPLY)


class EngineFactory(Protocol):
    """What makes an engine: `ordercast.underlay.Underlay`, or a fake."""

    def __call__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: Random,
        /,
        *,
        create: bool | None,
        min_members: MinMembers,
        recovery: RecoveryMode,
        demands: Demands,
        header: bytes,
        next_block: int,
        contact: Address | None,
    ) -> GroupEngine: ...


class Host:
    """The groups of one life of one node."""

    __slots__ = (
        "_callers",
        "_calling",
        "_dirty",
        "_ending",
        "_engines",
        "_heap",
        "_is_closed",
        "_log",
        "_memories",
        "_news",
        "_order",
        "_ports",
        "_recorder",
        "_resume",
        "_rng",
        "_tags",
        "_timing",
        "counters",
        "me",
    )

    def __init__(
        self,
        name: str,
        life: int,
        address: Address,
        *,
        buffer_bytes: int,
        rng: Random,
        timing: Timing | None = None,
        recorder: Recorder | None = None,
        engines: EngineFactory | None = None,
        has_multicast: bool = True,
        ttl: int = 1,
    ) -> None:
        self.me = Member(node_id(name, life), name, life, address, buffer_bytes, has_multicast, ttl)
        self._rng = rng
        self._timing = timing if timing is not None else Timing()
        self._recorder = recorder
        self._engines = engines if engines is not None else _underlay()
        # the groups
        self._ports: dict[str, Port] = {}  # the open ones, by name
        self._tags: dict[int, list[Port]] = {}  # these and the leavers that still answer
        self._ending: dict[Port, None] = {}  # those leavers
        self._callers: dict[str, Caller] = {}  # groups that this node calls, and is not in
        self._calling: dict[int, list[Caller]] = {}  # the same, by tag
        self._order = 0
        self._memories: dict[str, object] = {}  # left groups: what their engines carry on
        self._resume: dict[str, tuple[int, int]] = {}  # left groups: message and block number to go on with
        # the pass
        self._dirty: dict[Port | Caller, None] = {}  # in the order in which something happened to them
        self._news: dict[Port | Caller, None] = {}
        # Deadlines; an entry that is not its port's `armed_ns` is stale.
        self._heap: list[tuple[int, int, Port | Caller]] = []
        self._is_closed = False
        self._log: list[tuple[str, str]] = []  # (group, text) that the driver is to log
        self.counters = {"malformed": 0, "unknown_group": 0, "mixed_trains": 0}

    # Groups.

    def open(
        self,
        now_ns: int,
        group: str,
        *,
        config: GroupConfig,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        demands: Demands | None = None,
        header: bytes = b"",
        ttl: int | None = None,
        contact: Address | None = None,
    ) -> Port:
        """Begin to find, join or create a group. What becomes of it is known by the port's `view` or `refusal`.

        ttl: how far this member's multicasts must go, if not as far as the node's do. contact: a member of the group
        through which it is joined, instead of by its name (RMP section 3.3).
        """
        self._check_group(group)
        if len(header) > MAX_HEADER:
            raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}")
        caller = self._callers.get(group)
        next_number, next_block = caller.resume if caller is not None else self._resume.get(group, (0, 0))
        me = self.me if ttl is None else replace(self.me, ttl=ttl)
        engine = self._engines(
            group,
            me,
            config,
            self._timing,
            # Each group has its own chance: what one draws must not change what the others do.
            Random(self._rng.getrandbits(64)),
            create=create,
            min_members=min_members,
            recovery=recovery,
            demands=demands if demands is not None else Demands(),
            header=header,
            next_block=next_block,
            contact=contact,
        )
        memory = self._memories.pop(group, None)
        if memory is not None:
            engine.inherit(memory)
        port = Port(
            group,
            me,
            engine,
            self._order,
            next_number=next_number,
            next_block=next_block,
            recorder=self._recorder,
        )
        self._order += 1
        engine.start(now_ns, port.out)  # before the port is entered: where it raises, nothing has been opened
        if caller is not None:
            # Its numbers are the port's from here on, and the group takes no calls of a member.
            text = f"this node joined {group!r} while its call was under way: it may or may not have been carried out"
            self._close_caller(now_ns, caller, OutcomeUnknown(text))
        self._ports[group] = port
        self._tags.setdefault(group_tag(group), []).append(port)
        self.touch(port)
        return port

    @property
    def ports(self) -> list[Port]:
        """The open groups, in the order in which they were opened."""
        return list(self._ports.values())

    @property
    def callers(self) -> list[Caller]:
        """The groups that this node calls without being in them."""
        return list(self._callers.values())

    def caller(self, group: str, *, datagram: int, contacts: Sequence[Address] = ()) -> Caller:
        """What calls a group that this node is not in; opened by the first call, closed when it has long been idle.

        contacts: nodes through which the group may be reached where multicast does not.
        """
        caller = self._callers.get(group)
        if caller is None:
            self._check_group(group)
            caller = Caller(
                group,
                self.me,
                self._timing,
                self._order,
                datagram=datagram,
                contacts=list(contacts),
                resume=self._resume.get(group, (0, 0)),
                recorder=self._recorder,
            )
            self._order += 1
            self._callers[group] = caller
            self._calling.setdefault(group_tag(group), []).append(caller)
        return caller

    def port(self, group: str) -> Port | None:
        """The open port of a group: of a member, or of who is on its way in or out."""
        return self._ports.get(group)

    def touch(self, port: Port | Caller) -> None:
        """The application did something with the port: the next `finish` works on it."""
        self._dirty[port] = None

    def leave(self, port: Port, header: bytes = b"") -> None:
        """Leave in order, after what was sent. A port that is not in yet gives up its join."""
        if len(header) > MAX_HEADER:
            raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}")
        port.leave(header)
        self.touch(port)

    def reset(self, now_ns: int, port: Port, min_members: MinMembers, header: bytes = b"") -> None:
        """Amoeba's ResetGroup; the port's `resets` tell how it ended."""
        if len(header) > MAX_HEADER:
            raise UsageError(f"a header has at most {MAX_HEADER} bytes, got {len(header)}")
        port.engine.reset(now_ns, min_members, header, port.out)
        self.touch(port)

    # One pass.

    def start(self, now_ns: int, detail: str = "") -> None:
        """Write the trace's `start` row; once, before anything else."""
        if self._recorder is not None:
            self._recorder.row(trace.START, now_ns, detail=self._recorder.detail(detail) if detail else 0)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        """A batch of `stride`-sized datagrams (0 or len(data): one) from `source`. Hot: one call per block."""
        size = len(data)
        if size < HEADER_BYTES or data[0] != MAGIC:
            self.counters["malformed"] += 1
            return
        if not 0 < stride < size:
            stride = size
        (tag,) = TAG.unpack_from(data, TAG_OFFSET)
        # One group needs no second look: its engine drops what is not of its ring.
        if stride < size and len(self._tags) + len(self._calling) > 1 and self._is_mixed(data, stride, tag):
            self.counters["mixed_trains"] += 1
            for start in range(0, size, stride):
                self.receive(now_ns, source, data[start : start + stride], 0)
            return
        kind = data[1]
        if self._calling and tag in self._calling:
            self._receive_reply(now_ns, source, data, stride, tag)
            if kind == _REPLY and stride == size:
                return
        ports = self._tags.get(tag)
        if ports is None:
            self.counters["unknown_group"] += tag not in self._calling
            return
        for port in ports:
            port.received.add(kind, -(-size // stride), size)
            port.engine.receive(now_ns, source, data, stride, port.out)
            self._dirty[port] = None

    def expire(self, now_ns: int) -> None:
        """Run what is due."""
        while self.deadline_ns() <= now_ns:
            _, _, port = heappop(self._heap)
            port.armed_ns = NEVER
            port.deadline_ns = -1
            port.engine.expire(now_ns, port.out)
            self._dirty[port] = None

    def finish(self, now_ns: int) -> list[tuple[str, Send]]:
        """End the pass: (group, send) in the order in which they must leave, after the trace has been written."""
        sends: list[tuple[str, Send]] = []
        if self._ending:
            self._forget_ended(now_ns)
        dirty, self._dirty = self._dirty, {}
        for port in dirty:
            port.finish(now_ns)
            out = port.out
            if out.sends:
                group = port.group
                meter = port.sent
                for send in out.sends:
                    _, buffers, stride = send
                    size = sum(map(len, buffers))
                    meter.add(buffers[0][1], -(-size // stride) if stride else 1, size)
                    sends.append((group, send))
                out.sends.clear()
            self._news[port] = None
            self._arm(now_ns, port)
            if isinstance(port, Caller):
                if port.is_closed:
                    self._close_caller(now_ns, port, None)
                continue
            if port.log:
                self._log.extend([(port.group, text) for text in port.log])
                port.log.clear()
            if port.gone is not None:
                self._close_port(port)
        if self._recorder is not None:
            self._recorder.flush()
        return sends

    def take_news(self) -> list[Port | Caller]:
        """Ports and callers that were worked on since the last call."""
        if not self._news:
            return []
        news, self._news = self._news, {}
        return list(news)

    @property
    def has_log(self) -> bool:
        """Engines noted view changes or suspicions since the last `take_log`."""
        return bool(self._log)

    def take_log(self) -> list[tuple[str, str]]:
        """(group, text) of view changes and suspicions, in order. The core does not log: its driver does."""
        log, self._log = self._log, []
        return log

    @property
    def is_dirty(self) -> bool:
        """Something happened since the last `finish`."""
        return bool(self._dirty)

    def deadline_ns(self) -> int:
        """When `expire` is due next; NEVER if not at all. A time that has passed asks for another pass at once."""
        heap = self._heap
        while heap:
            armed_ns, _, port = heap[0]
            if armed_ns == port.armed_ns:
                if armed_ns == port.deadline_ns:
                    return armed_ns
                # The port's deadline has moved on since: most do in each pass, and are looked at only here.
                port.armed_ns = NEVER
                self._push(port)
            heappop(heap)
        return NEVER

    def audience(self, group: str) -> list[Address]:
        """Where `To.ALL` of a group goes when there is no multicast."""
        return list(dict.fromkeys([address for port in self._all_ports(group) for address in port.engine.audience()]))

    def copies(self, group: str) -> list[Address]:
        """Who gets a copy beside each multicast of a group."""
        ports = self._all_ports(group)
        if len(ports) == 1:
            return ports[0].engine.copies()
        return list(dict.fromkeys([address for port in ports for address in port.engine.copies()]))

    def ttl(self, group: str) -> int:
        """How far multicasts of a group go."""
        port = self._port(group)
        return port.engine.ttl if port is not None else self.me.ttl

    def knows(self, group: str) -> bool:
        """Whether datagrams of this group are of any use here: it is open, or was left and still answers."""
        return any(port.group == group for port in self._tags.get(group_tag(group), ()))

    @property
    def is_lingering(self) -> bool:
        """Whether a group that was left still has somebody to serve."""
        return any(port.deadline_ns < NEVER for port in self._ending)

    @property
    def lingering_work(self) -> int:
        """Datagrams that came for groups that were left, heartbeats apart: it rises while members need something."""
        counts = [port.received.counts for port in self._ending]
        return sum([sum(count) - count[Kind.SYNC] for count in counts])

    def close(self, now_ns: int) -> None:
        """Stop of the node's own will, without a word to anybody: leave the groups first. Flushes the trace."""
        if self._is_closed:
            return
        self._is_closed = True
        for ports in self._tags.values():
            for port in ports:
                port.stop(now_ns)
                self._news[port] = None
        for caller in self.callers:
            self._close_caller(now_ns, caller, NotMember("this node has been closed"))
        self._ports.clear()
        self._tags.clear()
        self._ending.clear()
        self._dirty.clear()
        self._heap.clear()
        if self._recorder is not None:
            self._recorder.row(trace.STOP, now_ns)
            self._recorder.flush()

    # In detail.

    def _port(self, group: str) -> Port | None:
        """The group's port: open, or left and still answering."""
        port = self._ports.get(group)
        if port is not None:
            return port
        return next((port for port in self._tags.get(group_tag(group), ()) if port.group == group), None)

    def _all_ports(self, group: str) -> list[Port]:
        """Who has left and comes back has two: one goes on answering those whom the other asks to be let in."""
        return [port for port in self._tags.get(group_tag(group), ()) if port.group == group]

    def _check_group(self, group: str) -> None:
        """Raise what stands against joining or calling a group."""
        if self._is_closed:
            raise UsageError("this node has been closed")
        if not group or len(group.encode()) > MAX_GROUP_NAME:
            raise UsageError(f"a group's name has 1 to {MAX_GROUP_NAME} bytes, got {len(group.encode())}")
        if group in self._ports:
            raise UsageError(f"this node is in {group!r} already; use that handle, or leave first")
        if len(self._resume) >= MAX_REMEMBERED and group not in self._resume:
            raise UsageError(f"this node has used {MAX_REMEMBERED} groups in its life; start a new one")

    def _receive_reply(self, now_ns: int, source: Address, data: memoryview, stride: int, tag: int) -> None:
        """What callers take of a batch; replies may come in one train with what is meant for members."""
        for caller in self._calling[tag]:
            if data[1] == _REPLY:
                caller.received.add(_REPLY, -(-len(data) // stride), len(data))
            caller.engine.receive(now_ns, source, data, stride, caller.out)
            self._dirty[caller] = None

    def _is_mixed(self, data: memoryview, stride: int, tag: int) -> bool:
        """Whether a train holds datagrams of several groups: the kernel joins what came one after the other."""
        count = (len(data) - TAG_OFFSET - 4) // stride + 1
        tags = np.ndarray((count,), "<u4", data, TAG_OFFSET, (stride,))
        return bool((tags != tag).any())

    def _arm(self, now_ns: int, port: Port | Caller) -> None:
        port.deadline_ns = now_ns if port.wants_pass else min(port.engine.deadline_ns(), port.leave_due_ns)
        self._push(port)

    def _push(self, port: Port | Caller) -> None:
        """Enter the port's deadline, unless an earlier entry will look at it anyway."""
        if port.deadline_ns < port.armed_ns:
            port.armed_ns = port.deadline_ns
            heappush(self._heap, (port.armed_ns, port.order, port))

    def _close_port(self, port: Port) -> None:
        """The application's part has ended. A leaver goes on answering repairs until its engine wants no more time."""
        if self._ports.get(port.group) is port:
            del self._ports[port.group]
            self._resume[port.group] = port.resume
            memory = port.engine.carry()
            if memory is not None:
                self._memories[port.group] = memory
        self._ending[port] = None

    def _close_caller(self, now_ns: int, caller: Caller, error: OrdercastError | None) -> None:
        """Its numbers are kept; whoever still waits learns `error`."""
        del self._callers[caller.group]
        self._resume[caller.group] = caller.resume
        if error is not None:
            caller.fail(error)
            self._news[caller] = None
        caller.stop(now_ns)
        caller.deadline_ns = caller.armed_ns = NEVER
        self._dirty.pop(caller, None)
        tag = group_tag(caller.group)
        callers = [other for other in self._calling.pop(tag) if other is not caller]
        if callers:
            self._calling[tag] = callers

    def _forget_ended(self, now_ns: int) -> None:
        """Forget leavers that have nothing more to do. One pass later, since their last words may still be resolved."""
        for port in [port for port in self._ending if port.deadline_ns >= NEVER and port not in self._dirty]:
            del self._ending[port]
            port.stop(now_ns)
            tag = group_tag(port.group)
            ports = [other for other in self._tags.pop(tag, ()) if other is not port]
            if ports:
                self._tags[tag] = ports


def _underlay() -> EngineFactory:
    # Not at the top: fakes need no underlay, and so this module can be understood and tested without one.
    from ordercast.underlay import Underlay

    return Underlay
