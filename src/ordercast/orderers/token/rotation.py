"""Where the token is, as one member knows it: passing it on, and telling others about it (RMP section 4.2)."""

from __future__ import annotations

from typing import Final

from ordercast.engine import Outbox, To
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.token.timers import TokenTimer
from ordercast.parts.table import Table
from ordercast.parts.timers import Timers
from ordercast.view import RECOVERIES, Member, Reason
from ordercast.wire.header import Kind
from ordercast.wire.token import BEHIND, HOLDS, HURRY, OVERDUE, WAITS, State, encode_state

NAMED_TRIES: Final = 4  # NACKs that name one site before everybody is asked


class Passed:
    """Our last pass, until there is a sign that the next site has accepted the token."""

    __slots__ = ("body", "kind", "sent_ns", "site", "tries", "turn")

    def __init__(self, turn: int, site: int, kind: Kind, body: bytes, sent_ns: int) -> None:
        self.turn = turn
        self.site = site
        self.kind = kind
        self.body = body
        self.sent_ns = sent_ns
        self.tries = 0


class Rotation:
    __slots__ = (
        "_ring",
        "_table",
        "_timers",
        "announced",
        "before",
        "behind",
        "full",
        "is_full",
        "is_holding",
        "is_hurried",
        "is_overdue",
        "named_at",
        "passed",
        "site",
        "spoke_ns",
        "sync_now",
        "turn",
        "waits",
    )

    def __init__(self, ring: RingState, table: Table, timers: Timers[TokenTimer]) -> None:
        view = ring.view
        self._ring = ring
        self._table = table
        self._timers = timers
        self.site = view.leader.id if view.reason == Reason.CREATE or view.reason in RECOVERIES else 0
        self.turn = 0  # the last pass that we know of
        self.before = 0  # the site that passed it to us
        self.named_at = -1  # we are named: the sequence number up to which we have to hold everything; -1 if not
        self.is_holding = False
        self.is_hurried = False  # the token goes round once, without waiting
        self.passed: Passed | None = None
        # What others are told
        self.behind: dict[int, None] = {}  # members to tell where the token is
        self.sync_now = False
        self.is_overdue = False  # our application has held up the ring for longer than the group allows
        self.is_full = False  # the application here is so far behind that it holds up the ring
        self.full: set[int] = set()  # members that say so of theirs
        self.waits = False  # an application here, or a caller outside, waits for another member
        self.announced = 0  # everybody has been told that all hold everything up to this sequence number
        self.spoke_ns = 0  # when we last told all where the token is and what each holds

    @property
    def is_site(self) -> bool:
        """Whether we hold the token, or are named and lack something."""
        return self.is_holding or self.named_at >= 0

    def state(self) -> State:
        log, table = self._ring.log, self._table
        rows = table.rows()
        self.announced = max(self.announced, min(rows))
        highest = max(log.highest, log.received, *rows)
        flags = (HOLDS if self.is_holding else 0) | (WAITS if self.waits else 0) | (BEHIND if self.is_full else 0)
        flags |= OVERDUE if self.is_overdue else 0
        return State(self.turn, self.site, highest, table.view.seq, flags, rows)

    def successor(self) -> int:
        """The member after us in the ring; if we have left, the one that was after us."""
        view, me = self._ring.view, self._ring.me.id
        at = view.index(me)
        if at < 0:
            prior = view.prior
            at = prior.index(me)
            return next(member for member in (*prior[at + 1 :], *prior[:at]) if view.member(member) is not None)
        return view.members[(at + 1) % len(view.members)].id

    def answerer(self, tries: int) -> int:
        """The member that is to answer the n-th NACK for something; 0: everybody."""
        if tries > NAMED_TRIES:
            return 0
        view, me = self._ring.view, self._ring.me.id
        members = [member.id for member in view.members if member.id != me]
        if not members:
            return 0
        last = self.before if self.site == me else self._predecessor(self.site)
        at = members.index(last) if last in members else 0
        return members[(at + tries - 1) % len(members)]

    def _predecessor(self, site: int) -> int:
        """The member that passed the token to `site`: the last that is known to have been token site."""
        view = self._ring.view
        return view.members[view.index(site) - 1].id

    # Our last pass

    def await_successor(self, now_ns: int, kind: Kind, body: bytes) -> None:
        """The token has just been passed on; until there is a sign of it we pass it again."""
        self.passed = Passed(self.turn, self.site, kind, body, now_ns)
        self._timers.set(TokenTimer.TOKEN, now_ns + self._ring.rtt.timeout_ns(0))

    def follow(self, now_ns: int, origin: int, state: State) -> None:
        """A member tells where the token is."""
        passed = self.passed
        if passed is not None and (
            state.turn > passed.turn or (state.turn == passed.turn and origin == passed.site and state.flags & HOLDS)
        ):
            if not passed.tries:
                self._ring.rtt.sample(now_ns - passed.sent_ns)
            self.passed = None
            self._timers.clear(TokenTimer.TOKEN)
        if state.turn > self.turn and not self._ring.has_left:
            # A member that has left does not follow: it would tell of a pass without the assignments that it brought.
            self.turn, self.site = state.turn, state.site
            if state.site == self._ring.me.id:
                self.before = origin
                self.named_at = state.highest
                self.is_hurried = bool(state.flags & HURRY)
            else:
                self.named_at = -1

    def hear_of_application(self, origin: int, flags: int) -> None:
        """Whether the application of a member receives, as that one says."""
        if flags & BEHIND:
            self.full.add(origin)
        elif self.full:
            self.full.discard(origin)

    def is_missed_by(self, now_ns: int, origin: int) -> bool:
        """Whether the next site, which has spoken, should have our pass by now. What it says may have been under way
        when we passed the token; a newcomer speaks when it knows its view, and may have had no use for the pass before.
        """
        passed = self.passed
        if passed is None or passed.site != origin:
            return False
        return passed.kind == Kind.LIST or self._ring.rtt.is_late(now_ns - passed.sent_ns)

    def is_under_way(self, now_ns: int, origin: int) -> bool:
        """Whether a member is about to get our pass, which tells it all that we know. A late copy of its own pass wants
        no other answer: in a ring of two ours would be such a copy there, and be answered in the same way, without an
        end while the token goes around."""
        passed = self.passed
        return passed is not None and passed.site == origin and not self._ring.rtt.is_late(now_ns - passed.sent_ns)

    def pass_again(self, now_ns: int, out: Outbox) -> None:
        passed = self.passed
        if passed is None:
            return
        passed.tries += 1
        self._ring.count("token_retries")
        self._ring.writer.next_via()
        self._ring.rtt.expired()
        self._timers.set(TokenTimer.TOKEN, now_ns + self._ring.rtt.timeout_ns(passed.tries))
        self._send_passed(passed, out)

    def _send_passed(self, passed: Passed, out: Outbox) -> None:
        member = self._ring.view.member(passed.site)
        if member is not None:
            out.sends.append(self._ring.writer.control(member.address, passed.kind, passed.body))

    # What others are told

    def _peer(self, origin: int) -> Member | None:
        """A member, or the last leaver: it passed the token with its own leave, and goes when it knows it accepted."""
        leaver = self._ring.leaver
        return leaver if leaver is not None and leaver.id == origin else self._ring.view.member(origin)

    def confirm(self, out: Outbox) -> None:
        """No ACK of ours doubles as one: tell the site before that the token is here."""
        member = self._peer(self.before)
        if not self.is_holding or member is None:
            return
        out.sends.append(self._ring.writer.control(member.address, Kind.CONFIRM, encode_state(self.state())))

    def speak(self, now_ns: int, out: Outbox) -> None:
        """To all if that is due, otherwise to those that lag behind."""
        if self.sync_now:
            self.sync_now = False
            self.spoke_ns = now_ns
            self.behind.clear()
            if self._table.others:
                out.sends.append(self._ring.writer.control(To.ALL, Kind.SYNC, encode_state(self.state())))
        elif self.behind:
            for origin in self.behind:
                self.tell(origin, out)
            self.behind.clear()

    def tell(self, origin: int, out: Outbox, flags: int = 0) -> None:
        """Where the token is, to one member, with `flags` besides."""
        member = self._peer(origin)
        if member is None:
            return
        if self.passed is not None and self.passed.site == origin and not flags:
            self._send_passed(self.passed, out)
        else:
            state = self.state()
            body = encode_state(state._replace(flags=state.flags | flags))
            out.sends.append(self._ring.writer.control(member.address, Kind.SYNC, body))
