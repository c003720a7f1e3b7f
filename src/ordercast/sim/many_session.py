"""One session of a simulated node that is in many groups of one underlay: what it does, and what it sees.

It judges what it sees itself, because the trace does not tell: each message names the groups that it was sent to, and
each queue of events has one order. The node's own session has no label. The others are clients of a daemon: they come
and go, and have no locks and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ordercast.engine import Transitional
from ordercast.errors import LockDenied, NotMember
from ordercast.groups.calls import Asked
from ordercast.groups.events import Answer, Batch, Left, Message, PortEvent, Request, Uncertain
from ordercast.groups.group_views import session_name
from ordercast.groups.host import Host
from ordercast.groups.locks import LockRequest
from ordercast.groups.port import LEAVE_PATIENCE_NS, Port
from ordercast.groups.requests import PendingReply
from ordercast.groups.session import Session
from ordercast.groups.status import Resumed, Stalled
from ordercast.groups.watches import Watch
from ordercast.service import AGREED, FIFO_RANK, UNRELIABLE, Service, parse_service
from ordercast.sim.many_groups import UNDERLAY, ActKind, GroupAct, ManyGroups
from ordercast.sim.world import Machine, World
from ordercast.view import Reason, View, id_of

MAX_FAULTS: Final = 10  # wrong things that are described; more are only counted
LOCK_CHANGES: Final = (Reason.LOCK, Reason.UNLOCK)

Call = tuple[str, int]  # its sender and number
MessageName = tuple[str, int, str]  # its sender, the sender's own number for it, and its groups


def named_payload(sender: str, number: int, groups: Sequence[str], size: int) -> bytes:
    """At least its sender, number and groups, so that a receiver can tell whether it is the one that it was sent."""
    return f"{sender}:{number}:{','.join(groups)}|".encode().ljust(size, b".")


class EventOrder:
    """One queue of events, of a port or of a whole session: everything in it has one order."""

    __slots__ = ("_bound", "_has_components", "_numbers", "_position", "_views")

    def __init__(self, has_components: bool = False) -> None:
        """`has_components`: a group whose members come from several rosters gets a view, whoever they are."""
        self._has_components = has_components
        self._position = -1  # of the last ordered message
        self._bound = 0  # the next ordered message stands there or later: a view did
        self._numbers: dict[str, int] = {}  # the last FIFO-or-stronger message of each sender
        self._views: dict[str, View] = {}  # the last view of each group

    def on_message(self, message: Message) -> str:
        """What is wrong with it; empty: nothing."""
        if message.service.rank >= FIFO_RANK:
            last = self._numbers.get(message.sender, -1)
            self._numbers[message.sender] = max(last, message.number)
            if message.number <= last:
                return f"message {message.number} of {message.sender} came after {last}"
        if message.service.is_ordered:
            last, self._position = self._position, max(self._position, message.position)
            if message.position <= last:
                return f"position {message.position} came after {last}"
            if message.position < self._bound:
                return f"position {message.position} came after a view that stands at {self._bound}"
        return ""

    def on_left(self, group: str) -> None:
        """The session left one of its groups. It may come back there, to the same members."""
        self._views.pop(group, None)

    def on_view(self, view: View) -> str:
        """The same for a view. One that only shows other locks stands where it stood before, in this queue or, if the
        session has left the underlay itself since, in the one of all its groups."""
        before = self._views.get(view.group)
        if before.id == view.id if before is not None else view.reason in LOCK_CHANGES:
            self._views[view.group] = view
            return ""
        self._views[view.group] = view
        self._bound = max(self._bound, view.position)
        is_same = before is not None and before.members == view.members
        if view.group and before is not None and is_same and not self._has_components:
            return f"the view {view.id} of {view.group!r} has the members of {before.id}, the one before"
        if view.position <= self._position:
            return f"the view {view.id} of {view.group!r} stands at {view.position} and came after {self._position}"
        return ""


class SentHere:
    """Messages of a program to one of its groups. If it leaves, it gets them before it is out: a leave goes behind what
    was sent before."""

    __slots__ = ("asked_ns", "names")

    def __init__(self) -> None:
        self.names: list[MessageName] = []
        self.asked_ns = -1  # when it left, as a member


class GroupsSeen:
    """What a program saw, over all its lives."""

    __slots__ = (
        "answers",
        "calls",
        "confirmed",
        "delivered",
        "faults",
        "got",
        "locks",
        "lost",
        "taken",
        "uncertain",
        "was_out",
    )

    def __init__(self) -> None:
        self.delivered = 0
        self.confirmed = 0
        self.uncertain = 0
        self.locks = 0
        self.calls = 0
        self.answers = 0  # to own calls
        self.got: set[MessageName] = set()  # in the present life
        self.taken: set[Call] = set()  # calls that came to it as the holder of their handler
        self.lost: set[Call] = set()  # those that it could not answer any more
        self.was_out = False  # against its will
        self.faults: list[str] = []

    def report(self, text: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)


class GroupSession:
    """One application on a node, through all lives of the node, and as often as it is opened."""

    __slots__ = (
        "_claims",
        "_config",
        "_created",
        "_orders",
        "_pending",
        "_plan",
        "_view_ids",
        "_world",
        "asked",
        "base",
        "host",
        "is_based",
        "is_fed",
        "label",
        "node",
        "seen",
        "session",
    )

    def __init__(
        self, world: World, plan: ManyGroups, node: Machine, label: str, *, is_based: bool, is_fed: bool
    ) -> None:
        self._world = world
        self._plan = plan
        self._config = plan.scenario.group_config()
        self.node = node
        self.label = label
        self.is_based = is_based
        self.is_fed = is_fed
        # the present life
        self.host: Host | None = None
        self.session: Session | None = None
        self.base: Port | None = None
        self.asked: list[tuple[str, Asked]] = []  # own calls, each with its group
        self._orders: dict[Port, EventOrder] = {}
        self._pending: dict[Port, SentHere] = {}  # what it sent to each of its groups in this stay
        self._view_ids: dict[str, str] = {}  # of group views, and their groups
        self._claims: dict[LockRequest, Port] = {}
        self._created = 0
        # over all lives
        self.seen = GroupsSeen()

    def __str__(self) -> str:
        return session_name(str(self.node), self.label)

    @property
    def is_open(self) -> bool:
        return self.node.is_up and self.session is not None and not self.session.is_closed

    @property
    def ports(self) -> dict[str, Port]:
        """Its open groups."""
        return self.session.ports if self.session is not None and self.node.is_up else {}

    @property
    def staying(self) -> list[Port]:
        """Those that it is not leaving."""
        return [port for port in self.ports.values() if not port.is_leaving]

    # Life. -----------------------------------------------------------------------------------------------------------

    def boot(self, host: Host) -> None:
        """A new life of the node begins. A labelled session is not open in it yet."""
        self.host = host
        self.session = host.session if not self.label else None
        self.base = None
        self.asked = []
        self._orders = {}
        self._pending = {}
        self._view_ids = {}
        self._claims = {}
        self._created = 0
        self.seen.lost |= self.seen.taken  # answers go with a crash
        self.seen.got = set()

    def enter(self, host: Host, now_ns: int, groups: Sequence[str]) -> None:
        """Come into the underlay, and into groups of it."""
        if self.is_based:
            self.base = host.attach(
                now_ns,
                UNDERLAY,
                config=self._config,
                min_members=self._plan.scenario.min_members,
                session=self.session,
            )
            if self.is_fed:
                self.base.stream.feed()
        for group in groups:
            self._open(host, now_ns, group)

    def _open(self, host: Host, now_ns: int, group: str) -> Port:
        port = host.open(
            now_ns,
            group,
            config=self._config,
            min_members=self._plan.scenario.min_members,
            header=b"hi",  # the same for all: many joins at once share a block
            session=self.session,
            underlay=UNDERLAY,
        )
        self._pending[port] = SentHere()
        return port

    def _wake(self, port: Port) -> None:
        if self.host is not None:
            self.host.touch(port)
            self._world.wake(self.node)

    # Its acts. -------------------------------------------------------------------------------------------------------

    def act(self, host: Host, act: GroupAct) -> None:
        """What its node is up for. A session that is not open does nothing but open."""
        kind, now_ns = ActKind(act.kind), self._world.clock(self.node)
        if kind is ActKind.OPEN:
            before = self.session
            if before is None or (before.is_closed and not before.streams):
                self.session = host.open_session(self.label)
                self.enter(host, now_ns, act.groups)
                for port in self.session.places:
                    self._wake(port)
        if not self.is_open:
            return
        match kind:
            case ActKind.CLOSE:
                self._close(host, now_ns)
            case ActKind.JOIN:
                for group in act.groups:
                    if group not in self.ports:
                        self._wake(self._open(host, now_ns, group))
            case ActKind.LEAVE:
                self._leave(host, act)
            case ActKind.SEND | ActKind.SEND_TO:
                send = self.send if act.kind == ActKind.SEND else self.send_to
                send(act.groups, act.count, parse_service(act.service), act.size, act.is_confirmed)
            case ActKind.LOCK | ActKind.TRY_LOCK | ActKind.SERVE | ActKind.CALL:
                self._use_lock(act)

    def _close(self, host: Host, now_ns: int) -> None:
        """It disconnects, and takes what comes until it is out."""
        assert self.session is not None
        places = self.session.places
        for port in places:
            if port.group and port.view is not None and not port.is_leaving:
                self._pending.setdefault(port, SentHere()).asked_ns = now_ns
        host.close_session(self.session, b"gone")
        for port in places:
            self._wake(port)

    def _leave(self, host: Host, act: GroupAct) -> None:
        for group in act.groups:
            port = self.ports.get(group)
            if port is not None and not port.is_leaving and self._may_leave:
                if port.view is not None:
                    self._pending.setdefault(port, SentHere()).asked_ns = self._world.clock(self.node)
                host.leave(port, b"bye")
                self._wake(port)

    @property
    def _may_leave(self) -> bool:
        """The node's own session leaves no last group: with it the node would leave the underlay."""
        return bool(self.label) or self.base is not None or len(self.staying) > 1

    def send(
        self, groups: Sequence[str], count: int, service: Service, size: int, is_confirmed: bool = False
    ) -> list[MessageName]:
        """Messages to those of the groups that it is in, in turn."""
        ports = [port for port in self.staying if port.group in groups]
        if not ports:
            return []
        each = [ports[at % len(ports)] for at in range(count)]
        names = [(str(self), self._created + at, port.group) for at, port in enumerate(each)]
        payloads = [self._payload((port.group,), size) for port in each]
        first, lengths = ports[0].end_number, list(map(len, payloads))
        taken = ports[0].stream.offer_many_to(payloads, service, 0, lengths, each, numbered=2)
        for number, port, name in zip(range(first, first + taken), each, names, strict=False):
            if service != UNRELIABLE:
                self._pending.setdefault(port, SentHere()).names.append(name)
            if is_confirmed:
                port.watch(number, number + 1, service)
        for port in each:
            self._wake(port)
        return names[:taken]

    def send_to(
        self, groups: Sequence[str], count: int, service: Service, size: int, is_confirmed: bool = False
    ) -> list[MessageName]:
        """Messages to groups that it need not be in, each to all of them."""
        places = [self.base, *self.staying] if self.base is not None else self.staying
        port = next((each for each in places if each.view is not None), None)
        sent: list[MessageName] = []
        for _ in range(count if port is not None else 0):
            assert port is not None
            name = (str(self), self._created, ",".join(groups))
            number = port.stream.offer_to(groups, self._payload(groups, size), service)
            if number >= 0:
                sent.append(name)
                if is_confirmed:
                    port.watch(number, number + 1, service)
            self._wake(port)
        return sent

    def _payload(self, groups: Sequence[str], size: int) -> bytes:
        self._created += 1
        return named_payload(str(self), self._created - 1, groups, size)

    def _use_lock(self, act: GroupAct) -> None:
        port = self.ports.get(act.groups[0])
        if port is None or port.is_leaving:
            return
        if act.kind == ActKind.CALL:
            name = self._payload((port.group,), 0)
            asked = port.call(name, AGREED, int(act.key))
            if asked is not None:
                self.asked.append((port.group, asked))
                self.seen.calls += 1
        else:
            if act.kind == ActKind.SERVE:
                claim = port.serve(int(act.key))
            else:
                claim = port.lock(act.key, act.kind == ActKind.TRY_LOCK)
            self._claims[claim] = port
            self._after(act.hold_ns, self._give_up, claim)
        self._wake(port)

    def _after(self, delay_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        life = self.node.life

        def act(_: None) -> None:
            if self.node.is_up and self.node.life == life:
                action(argument)

        self._world.after(delay_ns, act)

    def _give_up(self, claim: LockRequest) -> None:
        port = self._claims.pop(claim, None)
        if port is not None and port.gone is None:
            port.locks.give_up(claim)
            self._wake(port)

    # What it sees. ---------------------------------------------------------------------------------------------------

    def take(self, port: Port) -> None:
        """Take what came to one of its ports."""
        while (event := port.take()) is not None:
            self._on_event(port, event)
        if port.gone is not None:
            self._orders.pop(port, None)
            if port is self.base:
                self.base = None

    def settle(self, port: Port) -> None:
        """What it waited for has come to an end."""
        for settled in port.take_settled():
            self._on_settled(settled)

    def _on_settled(self, settled: Watch | Asked | LockRequest) -> None:
        if isinstance(settled, Watch):
            self.seen.confirmed += settled.stop - settled.first if settled.error is None else 0
        elif isinstance(settled, LockRequest):
            self.seen.locks += settled.is_held
            if isinstance(settled.error, LockDenied):
                self._claims.pop(settled, None)
        elif settled.answer is not None:
            self.seen.answers += 1
            group = next((group for group, asked in self.asked if asked is settled), "")
            if settled.answer != answer_in(group, str(self.node), settled.number):
                self._report(f"the answer to call {settled.number} to {group!r} is {settled.answer!r}")

    def _on_event(self, port: Port, event: PortEvent) -> None:
        order = self._orders.get(port)
        if order is None:
            order = self._orders[port] = EventOrder(self._plan.has_components)
        if isinstance(event, Batch):
            for message in event.each():
                wrong = order.on_message(message)
                if wrong:
                    self._report(f"order: in the events of {port.group or UNDERLAY!r} {wrong}")
                self._on_message(message)
        elif isinstance(event, View):
            wrong = order.on_view(event)
            if wrong:
                self._report(f"order: {wrong}")
            if any(member.id != id_of(str(member)) for member in event.members):
                self._report(f"views: the view {event.id} has members whose ids are not theirs")
            # Of components, the id of a group's view is made of a position: it names a view together with the group.
            is_whole = event.group and not self._plan.has_components
            if is_whole and self._view_ids.setdefault(event.id, event.group) != event.group:
                self._report(f"views: {self._view_ids[event.id]!r} and {event.group!r} have a view {event.id}")
        elif isinstance(event, Left):
            self._on_left(event)
            if event.group == port.group:
                self._orders.pop(port, None)  # what follows is another stay
            else:
                order.on_left(event.group)
        elif isinstance(event, Uncertain):
            self.seen.uncertain += event.count
        elif not isinstance(event, Transitional | Stalled | Resumed):
            raise TypeError(f"an application cannot know {event!r}")

    def _on_left(self, left: Left) -> None:
        """It must have its own messages by now, if it left and nothing kept them for longer than a leave waits."""
        if not left.wanted:
            self._pending.clear()  # it is out of the underlay, and what it sent may be lost
            self.seen.was_out = True
            self.seen.lost |= self.seen.taken
            return
        # The first of its ports there: a program that takes late may have come back, and left again, since.
        port = next((port for port in self._pending if port.group == left.group), None)
        sent = self._pending.pop(port) if port is not None else SentHere()
        waited_ns = self._world.clock(self.node) - sent.asked_ns
        missing = [name for name in sent.names if name not in self.seen.got]
        if missing and sent.asked_ns >= 0 and waited_ns < LEAVE_PATIENCE_NS:
            self._report(f"leave: out of {left.group!r} before its own message {missing[0][1]} came")

    def _on_message(self, message: Message) -> None:
        seen = self.seen
        seen.delivered += 1
        if isinstance(message, Request) and isinstance(message.owed, PendingReply):
            call = (message.sender, message.number)
            seen.taken.add(call)
            if not self._answer(message.group, message.owed):
                seen.lost.add(call)
        if isinstance(message, Answer):
            asker, number = message.answers or ("", -1)
            if "/" in asker and message.payload != answer_in(message.group, asker, number):
                self._report(f"{message!r} in {message.group!r} is an answer to another call")
            return
        head, _, rest = message.payload.partition(b"|")
        parts = head.decode(errors="replace").split(":")
        groups = ",".join(message.groups)
        if len(parts) != 3 or parts[0] != message.sender or not parts[1].isdigit() or rest.strip(b"."):
            self._report(f"content: {message!r} has bytes that nobody sent")
            return
        if sorted(parts[2].split(",")) != sorted(message.groups):
            self._report(f"groups: {message!r} names {groups}, and was sent to {parts[2]}")
        name = (parts[0], int(parts[1]), parts[2])
        if name in seen.got:
            self._report(f"twice: {message!r} to {groups} came before")
        seen.got.add(name)

    def _answer(self, group: str, owed: PendingReply) -> bool:
        """It held the handler at the place of the call. False: it is leaving the group, or was out since."""
        port = self.ports.get(group)
        if port is None or port.view is None or port.is_leaving:
            return False
        try:
            is_answered = port.answer(owed, answer_in(group, owed.sender, owed.first))
        except NotMember:
            return False
        self._wake(port)
        return is_answered

    def _report(self, text: str) -> None:
        kind, colon, rest = text.partition(": ")
        self.seen.report(f"{kind}: {self}: {rest}" if colon else f"program: {self}: {text}")


def answer_in(group: str, asker: str, number: int) -> bytes:
    """What the holder of a handler says to a call."""
    return f"{group}, {asker}, {number}".encode()
