"""A node's side of the membership service: finds it, asks, and hears of epochs (QSM section 2.2; docs/design/gms.md).

`Attendance` implements `ViewSource`. One request is out at a time, and is sent again until it is answered; requests of
one kind that wait are put together. Where the leader does not answer, any replica is asked for the leader again. Epochs
are handed on in order, and none before the answers to the requests that it contains: an engine that installs an epoch
knows the numbers of the groups that it joined with it.

A node that the service has excluded turns OUT. It comes back as new, with all its groups, when `start` is called again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

from ordercast.config import LAN_DATAGRAM, SECOND, Timing
from ordercast.engine import Outbox, To
from ordercast.membership.epoch_queue import EpochQueue
from ordercast.membership.epochs import EpochNews, decode_news
from ordercast.membership.given import Attending, ServiceParcel
from ordercast.membership.number_table import NumberTable
from ordercast.membership.open_request import OpenRequest, RequestNumbers
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenEpoch
from ordercast.parts.runs import normal, numbers_of, sequence_of, size_of
from ordercast.parts.timers import Timers
from ordercast.view import Address, Member, group_tag
from ordercast.wire.courier import Parcel
from ordercast.wire.gms import (
    MAX_ASKED_NAMES,
    Ask,
    NodeAnswer,
    NodeRequest,
    NodeStanding,
    Replica,
    Told,
    decode_answer,
    decode_replica,
    decode_standing,
    encode_request,
    encode_standing,
    encode_who,
    signature_of,
)
from ordercast.wire.header import Kind
from ordercast.wire.pages import PagedBodies, cut_pages, read_page
from ordercast.wire.regions import Accused, encode_accused
from ordercast.wire.segments import Datagram
from ordercast.wire.writer import DatagramWriter

ASK_NS: Final = SECOND // 2  # until a request is sent again
ASK_TRIES: Final = 4  # unanswered, then the leader is looked for again
FIND_MAX_NS: Final = SECOND  # between two questions for the service
SWITCH_NS: Final = 5 * SECOND  # without an answer of the own service, then another one will do
GAP_NS: Final = SECOND // 5  # for an epoch that is missing, before everything is asked for
ALIVE_NS: Final = SECOND  # between heartbeats of a node that nobody else watches
WATCH_NS: Final = 10 * SECOND
"""Between those of any other node. Its region may go on for ever without a word of the service: without them it would
not learn that all replicas are gone, and that there is another service."""
SPREAD: Final = 1_000  # different intervals, up to a tenth longer, so that nodes do not all speak at once
PAGE_WINDOW: Final = 8  # pages of a request that are out
MAX_REFUSALS: Final = 16
MAX_ACCUSED: Final = 64  # accusations that wait for a leader
INLINE_NAMES: Final = 256  # so many are named at once, without a signature first

_KINDS: Final = frozenset({Ask.JOIN, Ask.FOLLOW, Ask.LEAVE})


class Clock(Enum):
    """The timers of a node towards the service."""

    FIND = "look for the service"
    ASK = "send the request again"
    CONFIRM = "confirm again"
    GAP = "ask for everything"
    ALIVE = "heartbeat"


class Attendance:
    __slots__ = (
        "_accused",
        "_addresses",
        "_answered",
        "_born",
        "_confirm",
        "_denied",
        "_epochs",
        "_find_ns",
        "_leader",
        "_me",
        "_numbered",
        "_numbers",
        "_open",
        "_pages",
        "_parcels",
        "_queue",
        "_searched_ns",
        "_timers",
        "_wanted",
        "_writer",
        "refusals",
        "service",
        "state",
        "table",
    )

    def __init__(
        self, me: Member, timing: Timing, addresses: Sequence[Address] = (), numbers: RequestNumbers | None = None
    ) -> None:
        """`addresses`: of replicas. The multicast address of the underlay is asked in any case. `numbers`: of a node
        that has one attendance after the other."""
        self._me = me
        self._addresses = tuple(addresses)
        self._find_ns = timing.find_ns
        self._writer = DatagramWriter(group_tag(REGIONS_UNDERLAY), me.id, LAN_DATAGRAM)
        self.state = Attending.SEARCHING
        self.table = NumberTable()
        self._timers: Timers[Clock] = Timers()
        # the service
        self._leader: Replica | None = None
        self.service = 0  # with which this node is registered; 0: none
        self._born = 0  # the epoch of the last registration in this life; 0: there was none
        self._searched_ns = 0  # since when
        self._denied: dict[int, int] = {}  # desks that say that they do not lead -> until when others may not name them
        # requests
        self._numbers = numbers if numbers is not None else RequestNumbers()
        self._answered = 0
        self._open: OpenRequest | None = None
        self._queue: deque[tuple[Ask, tuple[str, ...]]] = deque()
        self._wanted: dict[str, int] = {}  # groups -> bits: 1 member, 2 sender
        self._confirm = 0  # the last epoch to confirm, until that is answered
        self.refusals: list[str] = []  # texts, for people; the last MAX_REFUSALS
        self._accused: dict[int, Accused] = {}
        # epochs
        self._pages = PagedBodies()
        self._epochs = EpochQueue()
        self._numbered: deque[tuple[int, tuple[str, ...], list[int]]] = deque()  # by requests of epochs to come
        self._parcels: list[ServiceParcel] = []

    # The engine's side. ----------------------------------------------------------------------------------------------

    def start(self, now_ns: int, out: Outbox) -> None:
        """Begin to look for the service; from OUT: come back as new, with all groups."""
        if self.state is Attending.LEFT:
            return
        self._queue = deque([each for each in self._queue if each[0] is Ask.DEPART])
        for bit, what in ((2, Ask.FOLLOW), (1, Ask.JOIN)):
            names = [name for name, bits in self._wanted.items() if bits & bit]
            for at in reversed(range(0, len(names), MAX_ASKED_NAMES)):
                self._queue.appendleft((what, tuple(names[at : at + MAX_ASKED_NAMES])))
        self.state = Attending.SEARCHING if self._leader is None else Attending.ASKING
        if self._leader is None:
            self._search(now_ns)
            self._timers.set(Clock.FIND, now_ns)
            self.expire(now_ns, out)
        else:
            self._pump(now_ns)

    def join(self, now_ns: int, names: Sequence[str]) -> None:
        self._ask_for(now_ns, Ask.JOIN, 1, names)

    def follow(self, now_ns: int, names: Sequence[str]) -> None:
        self._ask_for(now_ns, Ask.FOLLOW, 2, names)

    def leave(self, now_ns: int, names: Sequence[str]) -> None:
        wanted = self._wanted
        names = [name for name in dict.fromkeys(names) if wanted.get(name, 0) & 1]
        for name in names:
            wanted[name] &= ~1
            if not wanted[name]:
                del wanted[name]
        self._enqueue(now_ns, Ask.LEAVE, names)

    def depart(self, now_ns: int) -> None:
        if self.state in (Attending.LEFT, Attending.OUT) or not (self.service or self._open):
            self._become_left()
        elif all(what is not Ask.DEPART for what, _ in self._queue):
            self._wanted.clear()
            self._queue.append((Ask.DEPART, ()))
            self._pump(now_ns)

    def pending(self) -> int:
        return len(self._queue) + (self._open is not None)

    def installed(self, now_ns: int, epoch: int) -> None:  # noqa: ARG002 - of the contract
        for news in self._epochs.installed(epoch):
            self.table.install(news.epoch)
            while self._numbered and self._numbered[0][0] <= news.request:
                self.table.learn(*self._numbered.popleft()[1:])

    def confirm(self, now_ns: int, epoch: int) -> None:
        if epoch > self._confirm and self.service:
            self._confirm = epoch
            self._send_confirm(now_ns)

    def accuse(self, now_ns: int, accused: Accused) -> None:
        if self._leader is not None and accused.node == self._leader.leader:
            self._lose_leader(now_ns)
        elif self._leader is not None and self.service:
            self._post(Kind.ACCUSE, encode_accused(accused))
        else:
            self._accused[accused.node] = accused
            while len(self._accused) > MAX_ACCUSED:
                del self._accused[next(iter(self._accused))]

    def take_parcels(self) -> list[ServiceParcel]:
        parcels, self._parcels = self._parcels, []
        return parcels

    def take_epochs(self) -> list[GivenEpoch]:
        return self._epochs.take()

    def deadline_ns(self) -> int:
        return self._timers.deadline_ns()

    def expire(self, now_ns: int, out: Outbox) -> None:
        for timer in self._timers.due(now_ns):
            if timer is Clock.FIND:
                self._find(now_ns, out)
            elif timer is Clock.ASK:
                self._ask_again(now_ns)
            elif timer is Clock.CONFIRM:
                self._send_confirm(now_ns)
            elif timer is Clock.GAP:
                self._ask_everything(now_ns)
            elif self.service:
                self._send_alive(now_ns)

    # Discovery. ------------------------------------------------------------------------------------------------------

    def on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:  # noqa: ARG002
        if datagram.kind == Kind.SERVICE:
            self._meet(now_ns, decode_replica(datagram.body))

    def _search(self, now_ns: int) -> None:
        self._searched_ns = now_ns
        self._find_ns = min(self._find_ns, FIND_MAX_NS)

    def _find(self, now_ns: int, out: Outbox) -> None:
        if self._leader is not None or self.state is Attending.LEFT:
            return
        body = encode_who(0)
        for address in (To.ANYONE, *self._addresses):
            out.sends.append(self._writer.control(address, Kind.WHO, body, ring=0))
        self._timers.set(Clock.FIND, now_ns + self._find_ns)
        self._find_ns = min(2 * self._find_ns, FIND_MAX_NS)

    def _meet(self, now_ns: int, replica: Replica) -> None:
        """A replica says who leads."""
        if self.state in (Attending.LEFT, Attending.OUT):
            return
        if not replica.leader or not replica.service:
            if self.state is Attending.SEARCHING:  # the service begins: it will not take long
                self._timers.set_earlier(Clock.FIND, now_ns + FIND_MAX_NS // 4)
            return
        if self.service and replica.service != self.service:
            if self._leader is None and now_ns - self._searched_ns >= SWITCH_NS:
                self._become_out()  # nobody of our service answers: it is gone, and this one is there
                self.table.clear()
                self._born = 0
                self._leader = replica
            return
        if replica.epoch < self._epochs.epoch:
            return  # it does not know yet what this node has been told
        if replica.desk != replica.leader and now_ns < self._denied.get(replica.leader, 0):
            return
        if self._leader is None or self._leader.leader != replica.leader:
            self._follow_leader(now_ns, replica)

    def _follow_leader(self, now_ns: int, replica: Replica) -> None:
        self._leader = replica
        self._timers.clear(Clock.FIND)
        self._pages.clear()
        if not self.service:
            self.state = Attending.ASKING
        if self._open is not None:
            self._open.restart()
            self._send_open(now_ns)
        self._pump(now_ns)
        if self.service:
            self._send_alive(now_ns)
            for accused in self._accused.values():
                self._post(Kind.ACCUSE, encode_accused(accused))
            self._accused.clear()
        if self._confirm:
            self._send_confirm(now_ns)
        if self._epochs.has_waiting:
            self._timers.set_earlier(Clock.GAP, now_ns + GAP_NS)

    def _lose_leader(self, now_ns: int) -> None:
        if self._leader is not None:
            self._leader = None
            self._search(now_ns)
            self._timers.set(Clock.FIND, now_ns)
            if not self.service:
                self.state = Attending.SEARCHING

    # Requests. -------------------------------------------------------------------------------------------------------

    def _ask_for(self, now_ns: int, what: Ask, bit: int, names: Sequence[str]) -> None:
        wanted = self._wanted
        new = [name for name in dict.fromkeys(names) if not wanted.get(name, 0) & bit]
        for name in new:
            wanted[name] = wanted.get(name, 0) | bit
        self._enqueue(now_ns, what, new)

    def _enqueue(self, now_ns: int, what: Ask, names: Sequence[str]) -> None:
        if self.state in (Attending.LEFT, Attending.OUT):
            return  # from OUT all that is wanted is asked for again
        for at in range(0, len(names), MAX_ASKED_NAMES):
            self._queue.append((what, tuple(names[at : at + MAX_ASKED_NAMES])))
        self._pump(now_ns)

    def _pump(self, now_ns: int) -> None:
        """Send the next request, if none is out."""
        while self._open is None and self._leader is not None and self.state is not Attending.OUT:
            if not self.service:
                self._begin(now_ns, Ask.REGISTER, ())
                return
            if not self._queue:
                return
            what, names = self._queue.popleft()
            while what in _KINDS and self._queue and self._queue[0][0] is what:
                if len(names) + len(self._queue[0][1]) > MAX_ASKED_NAMES:
                    break
                names += self._queue.popleft()[1]
            if what is Ask.LEAVE:
                numbers = self._numbers_of(names)
                names = tuple([name for name in names if numbers[name]])
                if not names:
                    continue
            self._begin(now_ns, what, tuple(sorted(set(names))))

    def _begin(self, now_ns: int, what: Ask, names: tuple[str, ...]) -> None:
        self._numbers.last += 1
        request = self._open = OpenRequest(self._numbers.last, what, names)
        if what is Ask.REGISTER:
            request.begin(NodeRequest(what, member=self._me, is_back=self._born > 0))
        elif what is Ask.LEAVE:
            runs = normal(sequence_of(list(self._numbers_of(names).values())))
            request.begin(NodeRequest(what, service=self.service, runs=runs))
        elif what is Ask.DEPART:
            request.begin(NodeRequest(what, service=self.service))
        else:
            inline = names if len(names) <= INLINE_NAMES else ()
            request.begin(NodeRequest(what, service=self.service, signature=signature_of(names), names=inline))
        self._send_open(now_ns)

    def _numbers_of(self, names: Sequence[str]) -> dict[str, int]:
        """The numbers of groups, also of those whose epoch is still to come. 0: not known."""
        coming = {
            name: number for _, given, numbers in self._numbered for name, number in zip(given, numbers, strict=True)
        }
        return {name: self.table.number(name) or coming.get(name, 0) for name in names}

    def _forget_numbers(self, names: set[str]) -> None:
        self.table.forget(names)
        for at, (request, given, numbers) in enumerate(self._numbered):
            if not names.isdisjoint(given):
                kept = [(name, number) for name, number in zip(given, numbers, strict=True) if name not in names]
                self._numbered[at] = request, tuple([name for name, _ in kept]), [number for _, number in kept]

    def _send_open(self, now_ns: int) -> None:
        """The pages of the request that may be out."""
        request = self._open
        if request is None or self._leader is None:
            return
        stop = min(request.acked + PAGE_WINDOW, len(request.pages))
        for page in range(max(request.sent, request.acked), stop):
            self._post(Kind.ASK, request.pages[page], request.number)
        request.sent = max(request.sent, stop)
        self._timers.set(Clock.ASK, now_ns + (ASK_NS << min(request.tries, 3)))

    def _ask_again(self, now_ns: int) -> None:
        request = self._open
        if request is None or self._leader is None:
            return
        request.tries += 1
        if request.tries >= ASK_TRIES:
            self._lose_leader(now_ns)
            return
        if request.is_heard:
            self._post(Kind.ASK, request.question[0], request.number)
        else:
            request.acked = request.heard
        request.sent = request.acked if request.pages is not request.question else 0
        self._send_open(now_ns)

    def _send_confirm(self, now_ns: int) -> None:
        if not self._confirm or not self.service:
            return
        request = NodeRequest(Ask.CONFIRM, service=self.service, epoch=self._confirm)
        self._post(Kind.ASK, cut_pages(0, encode_request(request))[0])
        self._timers.set(Clock.CONFIRM, now_ns + 2 * ASK_NS)

    def _ask_everything(self, now_ns: int) -> None:
        """Something is missing between what was handed on and what has come."""
        if not self.service:
            return
        request = NodeRequest(Ask.SYNC, service=self.service, epoch=self._epochs.epoch)
        self._post(Kind.ASK, cut_pages(0, encode_request(request))[0])
        self._timers.set(Clock.GAP, now_ns + ASK_NS)

    def _send_alive(self, now_ns: int) -> None:
        if self._leader is not None:
            self._post(Kind.PONG, self._pong())
        spread_ns = self._me.id % SPREAD * (WATCH_NS // 10 // SPREAD)
        self._timers.set(Clock.ALIVE, now_ns + (ALIVE_NS if self._epochs.is_alone else WATCH_NS + spread_ns))

    def _pong(self) -> bytes:
        return encode_standing(NodeStanding(self.service, self._epochs.epoch))

    def _post(self, kind: Kind, body: bytes, number: int = 0) -> None:
        leader = self._leader
        if leader is not None:
            parcel = Parcel(int(kind), 0, self._me.id, number, body)
            self._parcels.append(ServiceParcel(leader.leader, leader.leader_address, parcel))

    # What the service says. ------------------------------------------------------------------------------------------

    def on_parcel(self, now_ns: int, sender: int, parcel: Parcel) -> None:
        kind = parcel.kind
        if self.state is Attending.LEFT:
            return
        if kind == Kind.PING:
            self._on_ping(now_ns, sender, decode_replica(parcel.body))
        elif kind == Kind.LEADER:
            replica = decode_replica(parcel.body)
            if self._leader is not None and sender == self._leader.leader != replica.leader:
                # Others may go on naming it, and be asked again at once: a storm, as fast as the network.
                self._denied[sender] = now_ns + self._find_ns
                self._lose_leader(now_ns)
            self._meet(now_ns, replica)
            return
        if self._leader is None or sender != self._leader.leader:
            return
        self._find_ns = FIND_MAX_NS // 16  # it does lead
        self._denied.clear()
        if kind == Kind.OUT:
            self._on_out(decode_standing(parcel.body))
        elif kind in (Kind.TOLD, Kind.EPOCH):
            page = read_page(parcel.body)
            body = self._pages.add(page)
            if body is None:
                return
            if kind == Kind.TOLD:
                self._on_answer(now_ns, page.serial, decode_answer(body))
            else:
                self._on_news(now_ns, decode_news(body))

    def _on_ping(self, now_ns: int, sender: int, replica: Replica) -> None:
        """A leader asks whether this node lives: also a new one, which has to know how far it is."""
        if sender != replica.leader or replica.service != self.service or self.state is Attending.OUT:
            return
        self._meet(now_ns, replica)
        if self._leader is not None and self._leader.leader == sender:
            self._post(Kind.PONG, self._pong())

    def _on_out(self, standing: NodeStanding) -> None:
        request = self._open
        if request is not None and request.what is Ask.DEPART:
            self._become_left()
        elif standing.service == self.service and standing.epoch >= max(self._born, self._epochs.epoch) and self._born:
            self._become_out()

    def _on_answer(self, now_ns: int, number: int, answer: NodeAnswer) -> None:
        request = self._open
        if not number:
            if answer.epoch >= self._confirm and answer.service == self.service:
                self._confirm = 0
                self._timers.clear(Clock.CONFIRM)
            return
        if request is None or number != request.number:
            return
        if request.what is not Ask.REGISTER and answer.service != self.service:
            return
        request.tries = 0
        if answer.what is Told.WAIT:
            if request.pages is not request.question:
                request.heard = min(answer.pages, len(request.pages))
                request.acked = max(request.acked, request.heard)
            self._send_open(now_ns)
        elif answer.what is Told.NAMES:
            if request.what in (Ask.JOIN, Ask.FOLLOW) and (request.is_heard or request.pages is request.question):
                signature = signature_of(request.names)
                named = NodeRequest(request.what, service=self.service, signature=signature, names=request.names)
                request.write(named)
            self._send_open(now_ns)
        else:
            self._end_request(now_ns, request, answer)

    def _end_request(self, now_ns: int, request: OpenRequest, answer: NodeAnswer) -> None:
        what = request.what
        if answer.what is Told.NUMBERS:
            if what not in (Ask.JOIN, Ask.FOLLOW) or size_of(answer.numbers) != len(request.names):
                return
            # Of a group without its regions nobody would get anything: its number counts with the epoch.
            self._numbered.append((request.number, request.names, list(numbers_of(answer.numbers))))
        elif what is Ask.LEAVE:
            again = {name for _, names in self._queue for name in names}  # they are told anew, with their regions
            self._forget_numbers({name for name in request.names if name not in self._wanted or name in again})
        elif what is Ask.DEPART:
            self._become_left()
            return
        elif what is Ask.REGISTER and answer.what is Told.DONE:
            self.service, self._born = answer.service, answer.epoch
            self.state = Attending.IN
            self._timers.set_earlier(Clock.GAP, now_ns + GAP_NS)
            self._timers.set_earlier(Clock.ALIVE, now_ns + ALIVE_NS)
        elif what is Ask.REGISTER:
            self._timers.set(Clock.ASK, now_ns + 4 * ASK_NS)  # refused: full, or a later life is there
            self._note(answer.text)
            return
        elif answer.what is Told.REFUSED:
            self._note(answer.text)
        self._open = None
        self._answered = request.number
        self._timers.clear(Clock.ASK)
        self._advance(now_ns)
        self._pump(now_ns)

    def _on_news(self, now_ns: int, news: EpochNews) -> None:
        leader = self._leader
        if leader is not None and news.epoch.service == leader.service:
            self._epochs.add(news)
            self._advance(now_ns)

    def _advance(self, now_ns: int) -> None:
        if not self.service:
            return
        request = self._open
        # A leave is answered when everybody has confirmed it. This node has to hear of it to confirm it as well.
        is_leaving = request is not None and request.what is Ask.DEPART
        answered = request.number if request is not None and is_leaving else self._answered
        if self._epochs.advance(self.service, answered):
            self._timers.set_earlier(Clock.GAP, now_ns + GAP_NS)
        elif self._epochs.epoch:
            self._timers.clear(Clock.GAP)
        if self._epochs.is_alone:
            self._timers.set_earlier(Clock.ALIVE, now_ns + ALIVE_NS)

    def _note(self, text: str) -> None:
        self.refusals.append(text)
        del self.refusals[:-MAX_REFUSALS]

    # Ends. -----------------------------------------------------------------------------------------------------------

    def _become_out(self) -> None:
        self.state = Attending.OUT
        self._forget()
        self.service = 0
        self._timers.clear_all()

    def _become_left(self) -> None:
        self.state = Attending.LEFT
        self._forget()
        self._queue.clear()
        self._wanted.clear()
        self._timers.clear_all()

    def _forget(self) -> None:
        self._open = None
        self._confirm = 0
        self._epochs.clear()
        self._numbered.clear()
        self._pages.clear()
        self.table.clear_regions()
