"""One node: its channels, each with an engine, one pass at a time (docs/design/host.md).

No clock, socket or loop. `ordercast.runtime.node` feeds it from real sockets, `ordercast.sim` from virtual time:

    host.receive(now_ns, source, data, stride)   # each batch that was drained; or
    host.expire(now_ns)                          # when `deadline_ns()` has come; or calls on a `Port`
    sends = host.finish(now_ns)                  # ends the pass: trace written, then what is to leave, in order
    for port in host.take_news(): ...            # something may have changed there

A directory says which underlay carries a group, and so which channel. Only channels that something happened to are
worked on, in the order in which it happened, so that a node pays for those that are busy, and a simulation gives the
same trace every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Final

from ordercast.config import AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import NEVER, Send
from ordercast.errors import NotMember, OrdercastError, OutcomeUnknown, UsageError
from ordercast.groups.attached import Attachments
from ordercast.groups.caller import Caller
from ordercast.groups.channel import Channel
from ordercast.groups.checks import check_header, check_name
from ordercast.groups.directory import Directory, OwnDirectory, Placement
from ordercast.groups.driven import Deadlines, Driven, Handle, LogLine
from ordercast.groups.engines import EngineFactory, underlay_engines
from ordercast.groups.naming import Naming
from ordercast.groups.port import Port
from ordercast.groups.regions.channel import RegionChannel
from ordercast.groups.regions.engines import RegionEngineFactory
from ordercast.groups.regions.port import RegionPort
from ordercast.groups.session import Session
from ordercast.groups.sessions import Sessions
from ordercast.groups.storing import Entries, Store
from ordercast.groups.tags import Callers, ChannelTags
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.trace import recorder as trace
from ordercast.trace.recorder import Recorder
from ordercast.view import Address, Member, group_tag, node_id
from ordercast.wire.header import HEADER_BYTES, MAGIC, TAG, TAG_OFFSET, Kind
from ordercast.wire.intake import is_mixed
from ordercast.wire.names import NAMELESS_TAG

MAX_REMEMBERED: Final = 1 << 20  # underlays left in one life: without its number a message would pass for an old one
MAX_LOG: Final = 1_024  # texts for the driver's log that nobody has taken; the oldest go first

_REPLY: Final = int(Kind.REPLY)


class Host:
    """The channels of one life of one node, and what is opened on them."""

    __slots__ = (
        "_blocks",
        "_by_tag",
        "_callers",
        "_channels",
        "_deadlines",
        "_directory",
        "_dirty",
        "_ending",
        "_engines",
        "_entries",
        "_is_closed",
        "_log",
        "_memories",
        "_naming",
        "_news",
        "_order",
        "_recorder",
        "_rng",
        "_sessions",
        "_timing",
        "attached",
        "counters",
        "has_ended",
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
        regions: RegionEngineFactory | None = None,
        directory: Directory | None = None,
        has_multicast: bool = True,
        ttl: int = 1,
        store: Store | None = None,
    ) -> None:
        self.me = Member(node_id(name, life), name, life, address, buffer_bytes, has_multicast, ttl)
        self._rng = rng
        self._timing = timing if timing is not None else Timing()
        self._recorder = recorder
        self._entries = Entries(store)  # what it must not forget over a restart
        self._engines = engines if engines is not None else underlay_engines()
        self._directory: Directory = directory if directory is not None else OwnDirectory()
        self._sessions = Sessions()
        # channels and callers
        self._channels: dict[str, Channel] = {}  # the open ones, by underlay
        self._by_tag = ChannelTags()  # these and the ending ones
        self._ending: dict[Channel, None] = {}  # left underlays where others may still need this node's history
        self._callers = Callers()  # of groups that this node calls, and is not in
        self.attached = Attachments(regions)  # what is no channel and no caller
        self._naming: Naming | None = None  # once this node asks others for their groups, or is asked
        self._order = 0
        # underlays that were left; MAX_REMEMBERED bounds both
        self._memories: dict[str, object] = {}  # what their engines carry on
        self._blocks: dict[str, int] = {}  # the number of the next block
        # the pass
        self._dirty: dict[Driven, None] = {}  # in the order in which something happened to them
        self._news: dict[Driven, None] = {}
        self._deadlines = Deadlines()
        self._is_closed = False
        self._log: list[tuple[str, LogLine]] = []  # with the underlay
        self.has_ended = False  # an underlay is no longer of any use here: the driver may stop listening to it
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
        alone: AlonePolicy = "create",
        session: Session | None = None,
        underlay: str | None = None,
    ) -> Port:
        """Begin to find, join or create a group. What becomes of it is known by the port's `view` or `refusal`.

        ttl: how far this member's multicasts must go, if not as far as the node's do. contact: a member of the group
        through which it is joined, instead of by its name (RMP section 3.3). alone: what this node does when it was put
        out and no member answers it. session: of another application than the node's own. underlay: the shared underlay
        that carries the group; without it the directory decides. A group whose underlay this node is in already has
        that underlay's parameters, whatever is given.
        """
        session = session if session is not None else self.session
        placement = self._place(group, session, underlay)
        check_header(header)
        channel = self._channels.get(placement.underlay)
        if channel is None:
            channel = self._join_underlay(
                now_ns, placement, config, create, min_members, recovery, demands, header, ttl, contact, alone
            )
        elif not placement.is_shared and channel.engine.config.orderer != config.orderer:
            raise UsageError(
                f"{group!r} is carried by the underlay {channel.underlay!r}, which this node has joined with "
                f"orderer={channel.engine.config.orderer!r}: not {config.orderer!r}"
            )
        port = channel.attach(session, group, header)
        self._dirty[channel] = None
        return port

    def open_many(self, base: Port, groups: Sequence[str], header: bytes = b"") -> list[Port]:
        """Begin to join lightweight groups on the underlay of a base port. Where one cannot be opened, none is."""
        check_header(header)
        self.check_many(base, groups)
        self._dirty[base.channel] = None
        return base.channel.attach_many(base.stream.session, groups, header)

    def check_many(self, base: Port, groups: Sequence[str]) -> None:
        """Raise if one of these groups cannot be opened on the underlay of a base port."""
        for group in groups:
            self._place(group, base.stream.session, base.channel.underlay)
        base.channel.check_many(groups)

    def _join_underlay(
        self,
        now_ns: int,
        placement: Placement,
        config: GroupConfig,
        create: bool | None,
        min_members: MinMembers,
        recovery: RecoveryMode,
        demands: Demands | None,
        header: bytes,
        ttl: int | None,
        contact: Address | None,
        alone: AlonePolicy,
    ) -> Channel:
        """Begin to find, join or create an underlay that this node is not in."""
        me = self.me if ttl is None else replace(self.me, ttl=ttl)
        underlay = placement.underlay
        caller = self._callers.get(underlay)
        next_block = caller.resume[1] if caller is not None else self._blocks.get(underlay, 0)
        engine = self._engines(
            underlay,
            me,
            replace(config, shared=placement.is_shared),
            self.attached.timings.get(underlay, self._timing),
            # Each underlay has its own chance: what one draws must not change what the others do.
            Random(self._rng.getrandbits(64)),
            create=create,
            min_members=min_members,
            recovery=recovery,
            demands=demands if demands is not None else Demands(),
            header=b"" if placement.is_shared else header,  # of the group's join, then
            next_block=next_block,
            contact=contact,
            alone=alone,
        )
        memory = self._memories.pop(underlay, None)
        if memory is not None:
            engine.inherit(memory)
        self._entries.restore(underlay, engine)
        channel = Channel(placement, me, engine, self.take_order(), next_block=next_block, recorder=self._recorder)
        engine.start(now_ns, channel.out)  # before the channel is entered: where it raises, nothing has been opened
        if caller is not None:
            # Its numbers are the session's from here on, and the group takes no calls of a member.
            text = f"this node joined {caller.group!r} while its call was under way: it may or may not have been "
            self._close_caller(now_ns, caller, OutcomeUnknown(text + "carried out"))
        self._channels[underlay] = channel
        self._by_tag.add(channel)
        return channel

    def attach(
        self,
        now_ns: int,
        underlay: str,
        *,
        config: GroupConfig,
        create: bool | None = None,
        min_members: MinMembers = "majority",
        recovery: RecoveryMode = "automatic",
        demands: Demands | None = None,
        ttl: int | None = None,
        contact: Address | None = None,
        alone: AlonePolicy = "create",
        session: Session | None = None,
    ) -> Port:
        """Begin to find, join or create a shared underlay, without any group. What comes of it the base port tells."""
        placement = Placement(underlay, True)
        session = session if session is not None else self.session
        self._check_underlay(placement, session)
        channel = self._channels.get(underlay)
        if channel is None:
            channel = self._join_underlay(
                now_ns, placement, config, create, min_members, recovery, demands, b"", ttl, contact, alone
            )
        port = channel.attach_base(session)
        self._dirty[channel] = None
        return port

    def open_regions(self, now_ns: int, config: GroupConfig, ttl: int | None = None) -> RegionChannel:
        """All groups of this node on regions."""
        regions = self.attached.regions
        if regions is None or regions.is_over:
            self._check_underlay(Placement(REGIONS_UNDERLAY, True), self.session)
            me = self.me if ttl is None else replace(self.me, ttl=ttl)
            made = (self._order, me, config, self._timing, self._rng, self._recorder)
            regions, self._order = self.attached.open_regions(now_ns, *made), self._order + 1
        return regions

    def open_session(self, label: str) -> Session:
        """Another application at this node, in groups of shared underlays: a member of its own, `label@name/life`. Give
        it to `open` and `attach`."""
        return self._sessions.open(label, self._recorder)

    def close_session(self, session: Session, header: bytes = b"") -> None:
        """A client has disconnected: its session leaves all its groups, in order and after what it has sent."""
        check_header(header)
        self._sessions.close(session)
        for port in session.places:
            self.leave(port, header if port.group else b"")

    @property
    def session(self) -> Session:
        """Of the program that the node is a part of."""
        return self._sessions.own

    @property
    def sessions(self) -> list[Session]:
        """All that are open: the node's own, and those that have a label."""
        return self._sessions.open_ones

    @property
    def ports(self) -> list[Port]:
        """The open groups: by channel in the order in which these were opened, then by their own."""
        return [port for channel in self._channels.values() for port in channel.ports]

    @property
    def underlays(self) -> list[str]:
        """The underlays that this node is in, or on its way into."""
        return list(dict.fromkeys([*self._channels, *self.attached.underlays]))

    @property
    def callers(self) -> list[Caller]:
        """The groups that this node calls without being in them."""
        return self._callers.all

    def caller(self, group: str, *, datagram: int, contacts: Sequence[Address] = ()) -> Caller:
        """What calls a group that this node is not in; opened by the first call, closed when it has long been idle.

        contacts: nodes through which the group may be reached where multicast does not.
        """
        caller = self._callers.get(group)
        if caller is None:
            placement = self._place(group, self.session)
            if placement.is_shared:
                raise UsageError(f"{group!r} shares the underlay {placement.underlay!r}; only members can send to it")
            resume = (self.session.numbers.get(group, 0), self._blocks.get(group, 0))
            made = (group, self.me, self._timing, self.take_order())
            caller = self._callers.open(*made, datagram, contacts, resume, self._recorder)
        return caller

    @property
    def naming(self) -> Naming:
        """What asks other nodes which groups they are in, and answers them."""
        if self._naming is None:
            self._naming = Naming(self.me, self._timing, self.take_order(), self.counters)
        return self._naming

    def take_order(self) -> int:
        """The place of something that is to be attached, among all that this host drives."""
        self._order += 1
        return self._order - 1

    def port(self, group: str) -> Port | None:
        """The open port of a group: of a member, or on its way in or out."""
        return self.session.ports.get(group)

    def underlay_of(self, group: str) -> str:
        """The underlay that carries a group: its multicast address is the one to listen to."""
        port = self.session.ports.get(group)
        return port.underlay if port is not None else self._directory.place(group).underlay

    def touch(self, port: Handle) -> None:
        """The application did something with a port or a caller: the next `finish` works on its channel."""
        self._dirty[port.driven] = None

    def leave(self, port: Port, header: bytes = b"", is_ordered: bool = False) -> None:
        """Leave in order, after what was sent. A port that is not in yet gives up its join. A group that has failed
        orders nothing: it is left without that, or not left with `is_ordered`."""
        check_header(header)
        port.leave(header, is_ordered)
        self.touch(port)

    def reset(self, now_ns: int, port: Port, min_members: MinMembers, header: bytes = b"") -> None:
        """Amoeba's ResetGroup; the port's `resets` tell how it ended."""
        check_header(header)
        port.engine.reset(now_ns, min_members, header, port.channel.out)
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
        # One underlay needs no second look: its engine drops what is not of its ring.
        others = len(self._callers.tags) + len(self.attached.tags)
        if stride < size and len(self._by_tag.tags) + others > 1 and is_mixed(data, stride, tag):
            self.counters["mixed_trains"] += 1
            for start in range(0, size, stride):
                self.receive(now_ns, source, data[start : start + stride], 0)
            return
        kind = data[1]
        if tag in self._callers.tags:
            self._dirty.update(dict.fromkeys(self._callers.receive(now_ns, source, data, stride, tag)))
            if kind == _REPLY and stride == size:
                return
        is_attached = tag in self.attached.tags
        if is_attached:
            self.attached.receive(now_ns, source, data, stride, tag, self._dirty)
        channels = self._by_tag.tags.get(tag)
        if channels is None:
            if is_attached:
                return
            if tag == NAMELESS_TAG:
                names = [port.group for port in self.ports if port.is_joinable]
                self.naming.receive(now_ns, source, data, stride, names)
                self._dirty[self.naming] = None
            else:
                self.counters["unknown_group"] += tag not in self._callers.tags
            return
        for channel in channels:
            channel.received.add(kind, -(-size // stride), size, source)
            channel.engine.receive(now_ns, source, data, stride, channel.out)
            self._dirty[channel] = None

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        """Somebody says that no process listens at `address`, and quotes a datagram of ours."""
        tag = TAG.unpack_from(quoted, TAG_OFFSET)[0] if len(quoted) >= HEADER_BYTES else -1
        for channel in self._by_tag.tags.get(tag, ()):
            channel.engine.unreachable(now_ns, address, quoted, channel.out)
            self._dirty[channel] = None
        self.attached.unreachable(now_ns, address, quoted, tag, self._dirty)

    def expire(self, now_ns: int) -> None:
        """Run what is due."""
        while self.deadline_ns() <= now_ns:
            driven = self._deadlines.pop()
            driven.expire(now_ns)
            self._dirty[driven] = None

    def finish(self, now_ns: int) -> list[tuple[str, Send]]:
        """End the pass: (underlay, send) in the order in which they must leave, after the trace has been written."""
        sends: list[tuple[str, Send]] = []
        if self._ending:
            self._forget_ended(now_ns)
        dirty, self._dirty = self._dirty, {}
        for driven in dirty:
            driven.finish(now_ns)
            out = driven.out
            if out.sends:
                underlay, meter = driven.underlay, driven.sent
                for send in out.sends:
                    to, buffers, stride = send
                    size = sum(map(len, buffers))
                    meter.add(buffers[0][1], -(-size // stride) if stride else 1, size, to)
                    sends.append((underlay, send))
                out.sends.clear()
            if driven.log:
                self._log.extend([(driven.underlay, line) for line in driven.log])
                del self._log[:-MAX_LOG]
                driven.log.clear()
            self._news[driven] = None
            self._deadlines.push(driven)
            if driven.is_over:
                self._close(now_ns, driven)
        if self._entries:
            self._entries.keep(dirty)
        if self._recorder is not None:
            self._recorder.flush()
        return sends

    def take_news(self) -> list[Port | Caller | Naming | RegionPort]:
        """Ports of channels, callers and the naming, as far as they were worked on since the last call."""
        if not self._news:
            return []
        news, self._news = self._news, {}
        return [handle for driven in news for handle in driven.take_news()]

    def take_log(self) -> list[tuple[str, LogLine]]:
        """View changes, suspicions and stalls, in order. The core does not log: its driver does."""
        log, self._log = self._log, []
        return log

    @property
    def has_log(self) -> bool:
        """View changes, suspicions or stalls were noted since the last `take_log`."""
        return bool(self._log)

    @property
    def is_dirty(self) -> bool:
        """Something happened since the last `finish`."""
        return bool(self._dirty)

    def deadline_ns(self) -> int:
        """When `expire` is due next; NEVER if not at all. A time that has passed asks for another pass at once."""
        return self._deadlines.next_ns()

    def audience(self, underlay: str) -> list[Address]:
        """Where `To.ALL` of an underlay goes when there is no multicast."""
        return self._by_tag.audience(underlay)

    def copies(self, underlay: str) -> list[Address]:
        """The addresses that get a copy of each multicast of an underlay, because they hear none."""
        return self._by_tag.copies(underlay)

    def ttl(self, underlay: str) -> int:
        """How far multicasts of an underlay go."""
        channel = self._channels.get(underlay) or next(iter(self._by_tag.of(underlay)), None)
        return channel.engine.ttl if channel is not None else self.attached.ttl(underlay, self.me.ttl)

    def knows(self, underlay: str) -> bool:
        """Whether datagrams of this underlay are of any use here: it is open, or was left and still answers."""
        return bool(self._by_tag.of(underlay)) or group_tag(underlay) in self.attached.tags

    @property
    def is_lingering(self) -> bool:
        """Whether an underlay that was left still has somebody to serve."""
        return any(channel.deadline_ns < NEVER for channel in self._ending)

    @property
    def lingering_work(self) -> int:
        """Datagrams that came for underlays that were left, heartbeats apart: it rises while members need something."""
        return sum([each.received.total - each.received.count(Kind.SYNC) for each in self._ending])

    def close(self, now_ns: int) -> None:
        """Stop of the node's own will, without a word to anybody: leave the groups first. Flushes the trace."""
        if self._is_closed:
            return
        self._is_closed = True
        for channel in self._by_tag.all:
            channel.stop(now_ns)
            self._news[channel] = None
            for stream in channel.streams:
                stream.session.ports.clear()
        if self.attached.regions is not None:
            self._news[self.attached.regions] = None
            self.attached.close_regions(now_ns)
        for caller in self.callers:
            self._close_caller(now_ns, caller, NotMember("this node has been closed"))
        self._channels.clear()
        self._by_tag.tags.clear()
        self._ending.clear()
        self._dirty.clear()
        self._deadlines.clear()
        if self._recorder is not None:
            self._sessions.write_stop(now_ns, self._recorder)
            self._recorder.row(trace.STOP, now_ns)
            self._recorder.flush()

    # In detail.

    def _place(self, group: str, session: Session, underlay: str | None = None) -> Placement:
        """Where a group is carried. Raises what stands against joining or calling it."""
        check_name(group)
        if group in session.ports:
            raise UsageError(f"{session} is in {group!r} already; use that handle, or leave first")
        if group == underlay:
            raise UsageError(f"{group!r} is the name of the underlay itself; give the group another one")
        placement = self._directory.place(group) if underlay is None else Placement(underlay, True)
        self._check_underlay(placement, session)
        return placement

    def _check_underlay(self, placement: Placement, session: Session) -> None:
        """Raise what stands against joining or calling an underlay."""
        if self._is_closed:
            raise UsageError("this node has been closed")
        if session.is_closed:
            raise UsageError(f"{session} has been closed; open another one")
        if session.label and not placement.is_shared:
            raise UsageError(f"{session} is in groups of shared underlays only, not in {placement.underlay!r}")
        check_name(placement.underlay)
        if self.attached.has_regions and placement.underlay == REGIONS_UNDERLAY:
            raise UsageError(f"this node's regions have the name {REGIONS_UNDERLAY!r}: give the group another one")
        open_one = self._channels.get(placement.underlay)
        if open_one is not None and (open_one.shared is not None) != placement.is_shared:
            how = "an underlay that carries groups" if open_one.shared is not None else "a group of its own"
            raise UsageError(f"this node is in {placement.underlay!r} already, as {how}")
        if len(self._blocks) >= MAX_REMEMBERED and placement.underlay not in self._blocks:
            raise UsageError(f"this node has used {MAX_REMEMBERED} groups in its life; start a new one")

    def _close(self, now_ns: int, driven: Driven) -> None:
        """The application's part has ended. A left underlay goes on answering until its engine wants no more time."""
        if isinstance(driven, RegionChannel):
            if driven is self.attached.regions and driven.engine.is_closed:
                self.attached.close_regions(now_ns)
                self.has_ended = True
        elif isinstance(driven, Caller):
            self._close_caller(now_ns, driven, None)
        elif isinstance(driven, Channel):
            if self._channels.get(driven.underlay) is driven:
                del self._channels[driven.underlay]
                self._blocks[driven.underlay] = driven.next_block
                memory = driven.engine.carry()
                if memory is not None:
                    self._memories[driven.underlay] = memory
            self._ending[driven] = None

    def _close_caller(self, now_ns: int, caller: Caller, error: OrdercastError | None) -> None:
        """Its numbers are kept; tasks that still wait learn `error`."""
        self._callers.remove(caller)
        self.session.numbers[caller.group], self._blocks[caller.group] = caller.resume
        if error is not None:
            caller.fail(error)
            self._news[caller] = None
        caller.stop(now_ns)
        caller.deadline_ns = caller.armed_ns = NEVER
        self._dirty.pop(caller, None)

    def _forget_ended(self, now_ns: int) -> None:
        """Forget left underlays that have nothing to do. One pass later: their last sends may still be resolved."""
        for channel in [each for each in self._ending if each.deadline_ns >= NEVER and each not in self._dirty]:
            del self._ending[channel]
            self.has_ended = True
            channel.stop(now_ns)
            self._by_tag.remove(channel)
