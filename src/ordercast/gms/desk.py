"""The desk of a replica: what nodes talk to (QSM section 2.2; docs/design/gms.md). No clock, no socket, no loop.

Every replica has one, with an id and a courier of its own. All of them answer questions for the service and name the
leader. The leader's takes requests, has them ordered in batches by the replica (`gms/replica.py`), answers them when
the directory has applied them, tells nodes what epochs change for them, and asks nodes whether they live. The `Host`
drives it (`groups/driven.py`), and gives it what comes with the tag of regions.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import SECOND, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.errors import WireError
from ordercast.gms.directory import MAX_NODES, RegionDirectory
from ordercast.gms.gathering import Gathering
from ordercast.gms.mail import DeskMail, Mailed
from ordercast.gms.state import EpochOutcome, NodeState
from ordercast.gms.vigil import Vigil
from ordercast.groups.driven import LogLine
from ordercast.groups.rows import Meter
from ordercast.membership.epochs import encode_news
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.parts.courier import ConnectionNumbers
from ordercast.view import Address, Member, node_id
from ordercast.wire.gms import (
    Ask,
    EpochBatch,
    NodeAnswer,
    NodeRequest,
    NodeStanding,
    Replica,
    Signature,
    Told,
    decode_request,
    decode_standing,
    decode_who,
    encode_answer,
    encode_replica,
    encode_standing,
    signature_of,
)
from ordercast.wire.header import Kind
from ordercast.wire.pages import MAX_PAGES, PagedBodies, read_page
from ordercast.wire.regions import decode_accused

CONFIRM_NS: Final = 30 * SECOND  # for which a node may owe a confirmation, before it is excluded
TELLING_NS: Final = 2 * SECOND  # for a node to tell names that were asked for, before another one is asked
MAX_TELLING: Final = 1_024  # signatures whose names are under way
MAX_SEEKING: Final = 1_024  # addresses that wait to hear who leads; the oldest is forgotten, and asks again
MAX_ASKING: Final = MAX_NODES  # nodes of whose requests some pages have come
_LEADERS_OWN: Final = Ask.FOUND  # requests from here on are no node's


def desk_id(member: Member) -> int:
    """The id of the desk of a replica."""
    return node_id(f"gms@{member.name}", member.life)


class Desk:
    __slots__ = (
        "_asking",
        "_confirm_ns",
        "_gathering",
        "_leader",
        "_mail",
        "_me",
        "_seeking",
        "_telling",
        "_told",
        "_vigil",
        "armed_ns",
        "counters",
        "deadline_ns",
        "directory",
        "id",
        "is_leading",
        "is_over",
        "log",
        "order",
        "out",
        "sent",
        "wants_batch",
    )

    def __init__(self, me: Member, timing: Timing, order: int, connections: ConnectionNumbers | None = None) -> None:
        """`connections`: of a node that has one desk after the other."""
        self._me = me
        self.id = desk_id(me)
        self.counters: dict[str, int] = {}
        self.directory = RegionDirectory()
        self._mail = DeskMail(self.id, timing, self.counters, connections)
        self._leader: Member | None = None
        self._seeking: dict[Address, int] = {}  # who asked while nobody led, and the number of its question
        # as the leader
        self.is_leading = False
        self.wants_batch = False  # `next_batch` has something
        self._gathering = Gathering()
        self._vigil = Vigil()
        self._told: dict[int, int] = {}  # node -> the epoch that it has, or that is on its way to it
        self._asking: dict[int, PagedBodies] = {}
        self._telling: dict[Signature, tuple[int, int]] = {}  # whose names are under way: from which node, since when
        self._confirm_ns: dict[int, int] = {}  # epoch that is not settled -> since when
        # driving
        self.order = order
        self.out = Outbox()
        self.sent = Meter()
        self.log: list[LogLine] = []
        self.is_over = False
        self.deadline_ns = NEVER
        self.armed_ns = NEVER

    @property
    def driven(self) -> Desk:
        return self

    @property
    def underlay(self) -> str:
        return REGIONS_UNDERLAY

    # The replica's side. ---------------------------------------------------------------------------------------------

    def follow(self, now_ns: int, leader: Member | None) -> None:
        """Who holds the lock of the service now."""
        self._leader = leader
        is_leading = leader is not None and leader.id == self._me.id
        if is_leading and not self.is_leading:
            self._gathering.clear()
            self._told.clear()
            self._asking.clear()
            self._telling.clear()
            self._confirm_ns.clear()
            self._vigil.begin(now_ns, self.directory.nodes)
            self.log.append(LogLine("gms", "info", f"{self._me} leads the membership service"))
        self.is_leading = is_leading

    def order_own(self, node: int, request: NodeRequest) -> None:
        """The service itself wants something: that it begins, or a plan."""
        self._gathering.order(node, request)

    def next_batch(self, now_ns: int) -> EpochBatch | None:
        """What is to be ordered now. `applied`, or `failed`, has to follow."""
        self.wants_batch = False
        if not self.is_leading:
            return None
        return self._gathering.next_batch(now_ns, self.directory, str(self._me))

    def failed(self, now_ns: int) -> None:
        self._gathering.failed(now_ns)

    def applied(self, now_ns: int, batch: EpochBatch, outcome: EpochOutcome | None) -> None:
        """The directory has applied a batch; None: it came too late."""
        if not self.is_leading:
            return
        self._gathering.ordered(now_ns, batch, self.directory, outcome.touched if outcome is not None else ())
        if outcome is None:
            return
        directory = self.directory
        for member in outcome.excluded:
            self._dismiss(member)
        for node, number, request in batch.operations:
            state = directory.node(node)
            if request.what is Ask.CONFIRM and state is not None:
                self._answer_confirm(node, state.member.address, request.epoch)
            elif number and state is not None and state.request == number:
                if request.what is Ask.REGISTER:
                    self._told[node] = 0
                    self._vigil.heard(now_ns, node)
                self._answer_applied(node, state, number, request)
            if number and self._gathering.has(node, number):
                self._gathering.done(node)  # also where nothing came of it: its node asks again
        for node in outcome.affected:
            self._tell(node)
        self._confirm_ns = {ended.epoch: self._confirm_ns.get(ended.epoch, now_ns) for ended in directory.unsettled}

    def status(self) -> dict[str, object]:
        directory = self.directory
        return {
            "service": f"{directory.service:016x}",
            "epoch": directory.epoch,
            "settled": directory.settled,
            "nodes": len(directory.nodes),
            "regions": len(directory.regions),
            "groups": len(directory.names),
            "leader": str(self._leader) if self._leader is not None else None,
            "is_leading": self.is_leading,
        }

    # The host's side. ------------------------------------------------------------------------------------------------

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        for mailed in self._mail.receive(now_ns, source, data, stride):
            try:
                self._take(now_ns, mailed)
            except WireError:
                self._mail.reject()

    def expire(self, now_ns: int) -> None:
        self._mail.expire(now_ns)

    def finish(self, now_ns: int) -> None:
        self.deadline_ns = NEVER
        if self.is_over:
            return
        if self.is_leading:
            if self._vigil.due_ns <= now_ns:
                self._look(now_ns)
            due_ns = self._gathering.due_ns(now_ns, self.directory)
            self.wants_batch = due_ns <= now_ns
            self.deadline_ns = min(NEVER if self.wants_batch else due_ns, self._vigil.due_ns)
        if self._seeking and self._can_name(now_ns):
            for address, number in self._seeking.items():
                self._mail.answer(address, Kind.SERVICE, self._replica(now_ns), number, self.out)
            self._seeking.clear()
        for node in self._mail.step(now_ns, self.out):
            self._told.pop(node, None)  # what it has is not known any more: a ping finds out
            state = self.directory.node(node)
            if self.is_leading and state is not None:
                self._vigil.suspect(now_ns, node)
                # At once: any word of it ends the suspicion, and only the answer to a ping says how far it is.
                self._mail.post(node, state.member.address, Kind.PING, self._replica(now_ns))
                self.deadline_ns = now_ns
        self.deadline_ns = min(self.deadline_ns, self._mail.deadline_ns())

    def take_news(self) -> tuple[()]:
        return ()

    def stop(self) -> None:
        self.is_over = True

    # What comes. -----------------------------------------------------------------------------------------------------

    def _take(self, now_ns: int, mailed: Mailed) -> None:
        if mailed.kind == Kind.WHO:
            service = decode_who(mailed.body)
            if service in (0, self.directory.service):
                self._mail.answer(mailed.source, Kind.SERVICE, self._replica(now_ns), mailed.number, self.out)
                if not self._can_name(now_ns):
                    self._seeking[mailed.source] = mailed.number  # it is told when somebody leads
                    if len(self._seeking) > MAX_SEEKING:
                        del self._seeking[next(iter(self._seeking))]
            return
        if not self.is_leading or not self.directory.service or self._gathering.is_stale(now_ns):
            self._mail.post(mailed.sender, mailed.source, Kind.LEADER, self._replica(now_ns))
            return
        node = mailed.sender
        if self.directory.node(node) is not None:
            self._vigil.heard(now_ns, node)
            self._gathering.spare(node)
        if mailed.kind == Kind.ASK:
            self._on_page(now_ns, mailed)
        elif mailed.kind == Kind.PONG:
            self._on_pong(mailed, decode_standing(mailed.body))
        elif mailed.kind == Kind.ACCUSE:
            accused = decode_accused(mailed.body)
            if self.directory.node(node) is None:
                self._put_out(node, mailed.source)
            elif self.directory.node(accused.node) is not None:
                self._vigil.suspect(now_ns, accused.node)

    def _on_pong(self, mailed: Mailed, standing: NodeStanding) -> None:
        node = mailed.sender
        told = self._told.get(node)
        if self.directory.node(node) is None or standing.service != self.directory.service:
            self._put_out(node, mailed.source)
        elif told is None or (standing.epoch < told and not self._mail.is_full(node)):
            # A node takes no epoch while it looks for the leader, and its courier acknowledges it nevertheless.
            self._told[node] = standing.epoch
            self._tell(node)

    def _on_page(self, now_ns: int, mailed: Mailed) -> None:
        node = mailed.sender
        page = read_page(mailed.body)
        bodies = self._asking.get(node)
        if bodies is None:
            bodies = self._asking[node] = PagedBodies()
            if len(self._asking) > MAX_ASKING:
                del self._asking[next(iter(self._asking))]
        body = bodies.add(page)
        if body is None:
            self._answer(node, mailed.source, page.serial, Told.WAIT, pages=bodies.prefix(page))
            return
        if not bodies.has_open:
            del self._asking[node]
        request = decode_request(body)
        if request.what >= _LEADERS_OWN:
            raise WireError("a node asks for what only the service does")
        self._on_request(now_ns, mailed, page.serial, page.pages, request)

    def _on_request(self, now_ns: int, mailed: Mailed, number: int, pages: int, request: NodeRequest) -> None:
        node, what = mailed.sender, request.what
        state = self.directory.node(node)
        if what is Ask.REGISTER:
            self._on_register(node, mailed.source, number, state, request)
        elif state is None:
            if what is Ask.DEPART:
                self._answer(node, mailed.source, number, Told.DONE)
            else:
                self._put_out(node, mailed.source)
        elif request.service != self.directory.service:
            return
        elif what is Ask.CONFIRM:
            owed = self.directory.owed.get(node)
            if owed is not None and owed[0] <= request.epoch:
                self._gathering.confirm(node, request.epoch)
            else:
                self._answer_confirm(node, mailed.source, request.epoch)
        elif what is Ask.SYNC:
            if not self._mail.has_waiting(node):
                self._told[node] = request.epoch
                self._tell(node)
        elif number <= state.request:
            if number == state.request:
                self._answer_applied(node, state, number, request)
        elif self._gathering.has(node, number):
            self._answer(node, mailed.source, number, Told.WAIT, pages=MAX_PAGES)
        elif what in (Ask.JOIN, Ask.FOLLOW) and not self._is_known(now_ns, node, number, request, mailed.source):
            return
        else:
            self._gathering.ask(node, number, request)
            self._answer(node, mailed.source, number, Told.WAIT, pages=pages)

    def _on_register(
        self, node: int, source: Address, number: int, state: NodeState | None, request: NodeRequest
    ) -> None:
        member = request.member
        if member is None or member.id != node:
            raise WireError("a node registers another one")
        if state is not None and number <= state.request:
            if number == state.request:
                self._answer_applied(node, state, number, request)
        elif state is None and len(self.directory.nodes) >= MAX_NODES:
            self._answer(node, source, number, Told.REFUSED, text=f"the service has {MAX_NODES} nodes, its most")
        elif self.directory.has_later(member):
            self._answer(node, source, number, Told.REFUSED, text=f"a later life of {member.name} is registered")
        else:
            self._gathering.ask(node, number, request)
            self._answer(node, source, number, Told.WAIT, pages=1)

    def _is_known(self, now_ns: int, node: int, number: int, request: NodeRequest, source: Address) -> bool:
        """Whether the service can tell what groups are meant. Of nodes that name the same set, one is asked for it."""
        signature = request.signature
        if signature is None:
            raise WireError("a request without a signature")
        if request.names:
            if signature_of(request.names) != signature:
                raise WireError("names that are not those of the signature")
            self._telling.pop(signature, None)
            return True
        if self.directory.numbers(request) is not None:
            return True
        teller, since_ns = self._telling.get(signature, (node, now_ns))
        if teller != node and now_ns - since_ns < TELLING_NS:
            self._answer(node, source, number, Told.WAIT)
            return False
        self._telling[signature] = (node, now_ns)
        while len(self._telling) > MAX_TELLING:
            del self._telling[next(iter(self._telling))]
        self._answer(node, source, number, Told.NAMES)
        return False

    # What goes. ------------------------------------------------------------------------------------------------------

    def _can_name(self, now_ns: int) -> bool:
        """Whether this replica knows who leads a service that has begun."""
        is_led = self._leader is not None and not (self.is_leading and self._gathering.is_stale(now_ns))
        return is_led and self.directory.service != 0

    def _replica(self, now_ns: int) -> bytes:
        leader = self._leader
        if leader is None or (self.is_leading and self._gathering.is_stale(now_ns)):
            known, address = 0, self._me.address
        else:
            known, address = desk_id(leader), leader.address
        directory = self.directory
        replica = Replica(directory.service, directory.epoch, self.id, self._me.address, known, address)
        return encode_replica(replica)

    def _answer(self, node: int, address: Address, number: int, what: Told, *, text: str = "", pages: int = 0) -> None:
        answer = NodeAnswer(what, self.directory.service, self.directory.epoch, text=text, pages=pages)
        self._mail.post_pages(node, address, Kind.TOLD, number, encode_answer(answer))

    def _answer_applied(self, node: int, state: NodeState, number: int, request: NodeRequest) -> None:
        """What came of the last request that was applied; it can be told again and again."""
        directory = self.directory
        answer = NodeAnswer(Told.DONE, directory.service, directory.epoch)
        if state.refusal:
            answer = answer._replace(what=Told.REFUSED, text=state.refusal)
        elif request.what is Ask.REGISTER:
            answer = answer._replace(epoch=state.born)
        elif request.what in (Ask.JOIN, Ask.FOLLOW):
            numbers = directory.numbers(request)
            if numbers is None:  # forgotten since: its names are told again
                answer = answer._replace(what=Told.NAMES)
            else:
                answer = answer._replace(what=Told.NUMBERS, numbers=numbers)
        elif request.what is Ask.DEPART:
            answer = answer._replace(what=Told.WAIT)  # until its lanes are closed, and those to it
        self._mail.post_pages(node, state.member.address, Kind.TOLD, number, encode_answer(answer))

    def _answer_confirm(self, node: int, address: Address, epoch: int) -> None:
        answer = NodeAnswer(Told.DONE, self.directory.service, epoch)
        self._mail.post_pages(node, address, Kind.TOLD, 0, encode_answer(answer))

    def _tell(self, node: int) -> None:
        """What it has not heard yet. Nothing, where it is not known how far it is."""
        state, since = self.directory.node(node), self._told.get(node)
        if state is None or since is None:
            return
        for news in self.directory.news_for(node, since):
            self._mail.post_pages(node, state.member.address, Kind.EPOCH, news.epoch.number, encode_news(news))
            self._told[node] = news.epoch.number

    def _dismiss(self, member: Member) -> None:
        """A node is out, or gone as it wished."""
        node = member.id
        pending = self._gathering.requests.get(node)
        self._told.pop(node, None)
        self._asking.pop(node, None)
        self._vigil.forget(node)
        self._mail.drop(node)
        if pending is None or pending.request.what is not Ask.REGISTER:
            self._gathering.forget(node)
        if self.directory.node(node) is None:
            self._put_out(node, member.address)

    def _put_out(self, node: int, address: Address) -> None:
        standing = NodeStanding(self.directory.service, self.directory.epoch)
        self._mail.post(node, address, Kind.OUT, encode_standing(standing))

    def _look(self, now_ns: int) -> None:
        """Ask those who have to be asked; have those excluded that do not answer, or do not confirm."""
        directory = self.directory
        sizes = {region: len(state.view.members) for region, state in directory.regions.items()}
        unwatched = [node for node, state in directory.nodes.items() if sizes.get(state.region, 0) < 2]
        watched = directory.nodes.keys() - set(unwatched)
        pings, doubted, dead = self._vigil.look(now_ns, unwatched, sorted(watched))
        for node in pings:
            state = directory.node(node)
            if state is None:
                self._vigil.forget(node)
            else:
                self._mail.post(node, state.member.address, Kind.PING, self._replica(now_ns))
        for node in doubted:
            state = directory.node(node)
            region = directory.regions.get(state.region) if state is not None else None
            if region is not None:
                self._vigil.suspect_all(now_ns, [member.id for member in region.view.members])
        if doubted:
            self._vigil.suspect_everybody(now_ns, directory.nodes)
        for node in dead:
            self._gathering.order(node, NodeRequest(Ask.EXCLUDE, text="it does not answer"))
        for node, epochs in directory.owed.items():
            since_ns = self._confirm_ns.setdefault(epochs[0], now_ns)
            if now_ns - since_ns >= CONFIRM_NS:
                self._gathering.order(node, NodeRequest(Ask.EXCLUDE, text="it does not confirm"))
