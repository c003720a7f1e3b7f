"""How members learn that a change without a failure is decided, and how a leaver learns that it may go.

A member that receives a change tells the member that ordered it (VOTE). That one tells all when a quorum of the view
before holds it (DECIDED). In small views nothing has to be said: the member that ordered a change and one that has
received it may already be a quorum. Where the member that ordered it does not answer, because it was its own leave and
it is gone, members ask all others. A leaver asks all members whether they know (DEPART), until a quorum of them does.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.engine import NEVER, Outbox, To
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.rule import holders_known, is_decided, is_open, is_plain, may_go
from ordercast.orderers import LoggedOrderer
from ordercast.view import DEPARTURES, Address, Reason, View, id_of
from ordercast.wire.header import Kind
from ordercast.wire.views import decode_decision, encode_decision

RETRY_NS: Final = 20 * MS
MAX_RETRY_NS: Final = 160 * MS
MAX_JOINS: Final = 16  # the last joins of a ring: a recovery welcomes these newcomers again
CREATOR_TRIES: Final = 2  # votes for the member that ordered the change alone; then all are asked


class Deciding:
    """The last change of one ring, until it is known to be decided; and our own leave, until others know that."""

    __slots__ = (
        "_due_ns",
        "_holders",
        "_informed",
        "_is_departing",
        "_local",
        "_orderer",
        "_told_seq",
        "_tries",
        "_view",
        "joins",
    )

    def __init__(self, local: LocalMember, orderer: LoggedOrderer) -> None:
        self._local = local
        self._orderer = orderer
        self._view: View | None = None  # made by a change that is not known to be decided
        self._holders: set[int] = set()  # members that are known to hold it
        self._told_seq = -1  # of a change that others know to be decided, and that we do not have yet
        self._due_ns = NEVER
        self._tries = 0
        self.joins: dict[int, View] = {}  # newcomer -> the view that let it in; it may not know that yet
        # Our own leave
        self._is_departing = False
        self._informed: set[int] = set()  # members that know that it is decided, or are in a later ring

    def __bool__(self) -> bool:
        """Whether something is still to be said or heard."""
        return self._due_ns != NEVER

    @property
    def may_go(self) -> bool:
        """After our own leave: whether the others can do without our vote, and none waits for us. All are asked, and a
        quorum is enough."""
        if not self._is_departing or not may_go(self._orderer.view, self._informed):
            return False
        keeper = self._orderer.standing().keeper
        return keeper in self._informed or self._orderer.view.member(keeper) is None

    @property
    def undecided(self) -> View | None:
        """The view that is not known to be decided here."""
        return self._view

    @property
    def settled(self) -> View | None:
        """The view, if it is known to be decided here."""
        return self._orderer.view if self._view is None else None

    @property
    def holders(self) -> set[int]:
        """The members that are known to hold it."""
        return self._holders

    # Inputs

    def on_change(self, now_ns: int, view: View, out: Outbox, is_new: bool = False) -> None:
        """A change is received, and with it everything before it. `is_new`: it is our own join."""
        if self._view is not None:  # or this one would not have been ordered
            self._settle(self._view)
        self._view = None
        self._due_ns = NEVER
        if view.reason == Reason.JOIN:
            self.joins[id_of(view.subject)] = view
            if len(self.joins) > MAX_JOINS:
                del self.joins[next(iter(self.joins))]
        if not is_open(view):
            self._settle(view)
            return
        me, orderer = self._local.me.id, self._orderer
        creator, holders = id_of(view.creator), holders_known(view, me)
        if creator != me and (is_new or not is_decided(view, {creator})):
            asks = self._told_seq < view.seq and not is_decided(view, holders)  # it may have been while we lacked it
            self._say(Kind.VOTE, self._address_of(creator), view.seq, out, asks)
        if max(orderer.decided, self._told_seq) >= view.seq or is_decided(view, holders):
            self._decide(view, out)
            return
        self._view, self._holders, self._tries = view, holders, 0
        self._due_ns = now_ns + RETRY_NS

    def depart(self, now_ns: int, out: Outbox) -> None:
        """Our own leave is decided, and delivered here: the others have to know that before we go."""
        self._is_departing = True
        self._tries = 0
        self._ask_others(now_ns, out)

    def greet(self, to: Address, seq: int, out: Outbox) -> None:
        """A member welcomes us, and we are in."""
        self._say(Kind.VOTE, to, seq, out)

    def on_message(self, kind: int, source: Address, origin: int, body: bytes, out: Outbox) -> int:
        """A member speaks of the change at the sequence number that is returned."""
        seq, asks = decode_decision(body)
        orderer, view = self._orderer, self._view
        log = orderer.log
        if log.received < seq:  # what we do not have we cannot know; it will be asked again
            if seq <= log.received + log.ahead:
                log.highest = max(log.highest, seq)  # and we look for it, although the group is at rest
                if kind in (Kind.DECIDED, Kind.DEPART):
                    # It has overtaken the change. To ask again would take a while, in which a busy ring orders what we
                    # could not deliver.
                    self._told_seq = max(self._told_seq, seq)
            return seq
        orderer.learn(origin, seq)
        if kind == Kind.VOTE:
            if orderer.decided >= seq:
                if asks:
                    self._say(Kind.DECIDED, source, seq, out)
            elif view is not None and view.seq == seq:
                if origin in view.prior:  # nobody else has a vote
                    self._holders.add(origin)
                if is_decided(view, self._holders):
                    self._decide(view, out)
                elif asks and id_of(view.creator) != self._local.me.id:  # that the orderer holds it is known
                    self._say(Kind.VOTE, source, seq, out)
        elif kind == Kind.DEPART:
            self._learn(seq)
            self._say(Kind.DECIDED, source, seq, out)
        elif kind == Kind.DECIDED:
            if self._is_departing and seq >= orderer.view.seq:
                self.on_informed(origin)
            self._learn(seq)
        return seq

    def on_informed(self, member: int) -> None:
        """A member knows that our leave is decided, or has gone on to a later ring."""
        if self._orderer.view.member(member) is not None:
            self._informed.add(member)
        if len(self._informed) == len(self._orderer.view.members):
            self._due_ns = NEVER

    def expire(self, now_ns: int, out: Outbox) -> None:
        if self._due_ns > now_ns:
            return
        self._tries += 1
        if self._is_departing:
            self._ask_others(now_ns, out)
        elif self._view is not None:
            creator = id_of(self._view.creator)
            is_first_try = creator != self._local.me.id and self._tries <= CREATOR_TRIES
            to = self._address_of(creator) if is_first_try else To.ALL
            self._say(Kind.VOTE, to, self._view.seq, out, asks=True)
            self._wait(now_ns)
        else:
            self._due_ns = NEVER

    def deadline_ns(self) -> int:
        return self._due_ns

    def stop(self) -> None:
        """The ring is frozen: its members decide by ballots from now on."""
        self._due_ns = NEVER

    # In detail

    def _learn(self, seq: int) -> None:
        self._orderer.decide(seq)
        if self._view is not None and self._view.seq <= seq:
            self._settle(self._view)
            self._view = None
            self._due_ns = self._due_ns if self._is_departing else NEVER

    def _decide(self, view: View, out: Outbox) -> None:
        """A quorum holds it. The member that ordered it tells the others, unless they know by themselves."""
        self._learn(view.seq)
        self._settle(view)
        if id_of(view.creator) == self._local.me.id and not is_plain(view):
            self._say(Kind.DECIDED, To.ALL, view.seq, out)

    def _settle(self, view: View) -> None:
        """It is decided. Before that a newcomer that is put out has a vote, and may not know that it was in."""
        if view.reason in DEPARTURES:
            self.joins.pop(id_of(view.subject), None)

    def _ask_others(self, now_ns: int, out: Outbox) -> None:
        view = self._orderer.view
        for member in view.members:
            if member.id not in self._informed:
                self._say(Kind.DEPART, member.address, view.seq, out)
        self._wait(now_ns)

    def _wait(self, now_ns: int) -> None:
        self._due_ns = now_ns + min(RETRY_NS << min(self._tries, 6), MAX_RETRY_NS)

    def _address_of(self, member: int) -> Address:
        found, leaver = self._orderer.view.member(member), self._orderer.leaver
        if found is None and leaver is not None and leaver.id == member:
            found = leaver
        return found.address if found is not None else To.ALL

    def _say(self, kind: Kind, to: Address, seq: int, out: Outbox, asks: bool = False) -> None:
        out.sends.append(self._local.writer.control(to, kind, encode_decision(seq, asks)))
