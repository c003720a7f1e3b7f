"""The ring of one site: packets inside it, and the token that numbers them (Spread section 3.2, figure 3.3).

The daemon that has the token answers requests, sends packets up to its share, asks for what it lacks, brings both ARUs
up to date and passes the token on. The same token gives stamps (`site_seq`, `site_lts`) and tells up to where all
daemons of the site have everything (`site_aru`).

What the paper leaves open, and deviations:
- **Two ARU modifiers.** The paper's one cannot serve `link_aru` and `site_aru`: who lowers one would hold the other.
- A modifier that raises the value sets itself back to zero; one whose own value has not changed leaves everything as it
  is. Either way, the lesser of two tokens in a row is held by all: whoever lacks something has lowered the token in one
  of the two rounds, and nobody else may raise it in the same round.
- Packets are freed up to *and including* the ring's aru (the figure: below it). `set_aru` of the figure is `site_aru`.
- The requests on a token are those of the daemon that passed it, and what that one could not answer within its share.
- The individual limit is no more than an equal part of the total. Otherwise, where others use up the total in every
  round, a daemon could send nothing, ever.
- A token is sent again until there is a sign of its progress: a later token, a packet that only a later holder can have
  numbered, or the answer of its receiver. It is never made anew: one that is lost for good ends the view.
- A token that went around without anything to do rests. Its holder says where (RESTS), and WAKE makes it go on.
- Numbers of tokens rise by one with each pass, so a daemon knows the only number that it can get next: older ones are
  duplicates, others are not believed.
- A site of one daemon has no ring: its daemon always has the token, and no packet is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ordercast.config import MS, Timing
from ordercast.errors import InvariantViolation, UsageError
from ordercast.orderers.sites.packets import RingPackets
from ordercast.orderers.sites.passing import ALL, RingControl, TokenWatch
from ordercast.orderers.sites.urgency import SiteCredit, Urgency
from ordercast.parts.priorities import PriorityQueues
from ordercast.wire.cuts import CUT_ENTRIES
from ordercast.wire.header import MAX_SEGMENTS, Kind
from ordercast.wire.sites import (
    MAX_RANGE,
    MAX_RANGES,
    RESTS,
    SEEN,
    LinkPacket,
    Numbered,
    Range,
    SiteToken,
    encode_site_token,
    ranges_of,
)

MAX_ROTATIONS: Final = 8  # full rotations of packets that are kept: two until all are known to have them, and losses
MAX_FOREIGN: Final = CUT_ENTRIES * MAX_SEGMENTS
"""Packets of other sites that wait for the token; one more, and the ring counts as overrun. The windows of all sources
have no more blocks."""
NOBODY: Final = 0  # as a modifier; as the daemon where the token rests

_OWN: Final = 0  # levels of what waits: what comes from other sites is under way already
_FOREIGN: Final = 1


@dataclass(frozen=True, slots=True)
class RingTerms:
    """The tuning values of one ring."""

    window: int = 240  # packets that all daemons together send in one rotation
    personal_window: int = 60  # packets that one daemon sends in one rotation, at most
    wake_ns: int = 5 * MS  # how long a daemon with no packets waits for a token that others may have woken as well
    tries: int = 10  # of passing a token, or waking one, without a sign of it

    def __post_init__(self) -> None:
        if not 1 <= self.personal_window <= self.window <= MAX_RANGE:
            text = f"got {self.personal_window} and {self.window}"
            raise UsageError(f"1 <= personal_window <= window <= {MAX_RANGE} packets, {text}")
        if self.tries < 1:
            raise UsageError(f"a token is passed at least once, not {self.tries} times")

    @property
    def most_open(self) -> int:
        """Packets that all daemons together may have sent beyond what all of them have."""
        return MAX_ROTATIONS * self.window

    def individual(self, daemons: int) -> int:
        """What one of so many daemons may send in a rotation."""
        return max(1, min(self.personal_window, self.window // daemons))


class RingOutput(NamedTuple):
    """What a daemon has to send: packets to all others of the site, in order, then these."""

    packets: list[Numbered]
    controls: list[RingControl]


class SiteState(NamedTuple):
    """How far a site is, as the last token says: what an UPDATE tells the other sites."""

    seq: int
    clock: int
    aru: int


def merged_aru(mine: int, value: int, modifier: int, me: int) -> tuple[int, int]:
    """The rule of section 3.2 for one ARU of the token: its value and modifier after this daemon."""
    if mine < value:
        return mine, me
    if mine > value and modifier in (me, NOBODY):
        return mine, NOBODY
    return value, modifier


class SiteRing:
    """The ring as one daemon has it. Drive it: `on_token`, `on_wake` and `on_packet` for what comes, `queue_foreign`,
    `hear_clock` and `set_horizon` from above; while `is_holding`, `stamp` and `queue_own`; then `step` once in a pass,
    and when `deadline_ns` has come."""

    __slots__ = (
        "_answers",
        "_horizon",
        "_index",
        "_is_overrun",
        "_is_wanted",
        "_is_woken",
        "_last",
        "_members",
        "_packets",
        "_queues",
        "_rests_at",
        "_sent",
        "_shown",
        "_token",
        "_watch",
        "_window",
        "clock",
        "duplicates",
        "known",
        "resent",
        "share",
        "site_aru",
        "site_seq",
        "strange",
        "urgency",
    )

    def __init__(self, me: int, members: Sequence[int], terms: RingTerms, timing: Timing, first_lts: int = 0) -> None:
        """`members`: ids of the site's daemons in the order of the view; the first has the token at the beginning.
        `first_lts`: stamps of the view are above it."""
        if me not in members or NOBODY in members:
            raise InvariantViolation(f"daemon {me} is not in the ring {members}")
        self._members = tuple(members)
        self._index = self._members.index(me)
        self._window = terms.window
        self.share = terms.individual(len(members))  # packets of one visit
        # The token
        start = SiteToken(0, site_lts=first_lts, quiet=len(members))
        self._last = start  # as this daemon passed it, or as it began
        self._token: SiteToken | None = start if self._index == 0 else None
        self.known = 0  # the latest number of the token that we have heard of
        self._rests_at = self._members[0]  # NOBODY: it goes around
        self._watch = TokenWatch(timing, terms.wake_ns, terms.tries)
        self._is_woken = False  # another daemon wants it
        self._is_wanted = False  # this one does
        self._answers: dict[int, None] = {}  # daemons that know less of the token than we do; bounded by the ring
        # Packets
        self._packets = RingPackets(terms.most_open)
        self._queues: PriorityQueues[LinkPacket] = PriorityQueues(2)
        self._sent = 0  # in the last visit
        self.urgency = Urgency(self._index, len(members))
        self._is_overrun = False
        # Order
        self.site_seq = 0
        self.clock = first_lts  # Lamport's
        self.site_aru = 0  # all daemons of the site have everything up to this
        self._horizon = 0  # this one has
        self._shown = 0  # its horizon at its last visit
        # Counters
        self.resent = 0  # packets that a token asked for
        self.duplicates = 0  # tokens that came again
        self.strange = 0  # tokens, packets and WAKEs that cannot be

    # What the owner sees

    @property
    def me(self) -> int:
        return self._members[self._index]

    @property
    def is_holding(self) -> bool:
        """Whether this daemon has the token and may stamp."""
        return self._token is not None

    @property
    def is_alone(self) -> bool:
        return len(self._members) == 1

    @property
    def is_lost(self) -> bool:
        """The token gives no sign: the view ends."""
        return self._watch.is_lost

    @property
    def suspect(self) -> int:
        """The daemon that gave none; 0: nobody did."""
        return self._watch.suspect

    @property
    def is_overrun(self) -> bool:
        """More packets of other sites wait than ever should: nobody may be let to wait for them."""
        return self._is_overrun

    @property
    def room(self) -> int:
        """Own packets that may be queued now."""
        return max(0, self.share - self._queues.count(_OWN)) if self._token is not None else 0

    @property
    def queued_bytes(self) -> int:
        """Of own packets that leave with this visit."""
        return self._queues.size(_OWN)

    @property
    def state(self) -> SiteState:
        """The site has stamped up to `seq`, and stamps above `clock` from then on: as the last visit of the token here
        left it, or as it is, while the token is here."""
        if self._token is not None:
            return SiteState(self.site_seq, self.clock, self.site_aru)
        return SiteState(self._last.site_seq, self._last.site_lts, self.site_aru)

    @property
    def is_at_rest(self) -> bool:
        """Nothing waits, is kept or missing here, and the token is not on its way from here. While it goes around, one
        daemon is not at rest."""
        is_resting = self._token is None or self._rests_at == self.me
        is_quiet = is_resting and not self._watch.has_passed and not self._answers
        return is_quiet and not self._wants and not len(self._packets)

    @property
    def open(self) -> int:
        """Packets that are kept, since some daemon may lack them."""
        return len(self._packets)

    @property
    def waiting(self) -> int:
        """Packets that wait for the token."""
        return len(self._queues)

    @property
    def aru(self) -> int:
        """Every packet of the ring up to this has come."""
        return self._packets.aru

    @property
    def ring_aru(self) -> int:
        """Every packet up to this is held by all."""
        return self._packets.freed

    def deadline_ns(self) -> int:
        return self._watch.deadline_ns()

    # Inputs from above

    def want(self) -> None:
        """Something waits to be stamped: the token is to come, from where it rests if need be."""
        self._is_wanted = True

    def queue_foreign(self, packet: LinkPacket) -> bool:
        """A packet of another site, from the representative, for the other daemons here. False: it is UNRELIABLE, and
        as many wait as leave in one rotation."""
        if self.is_alone:
            return True
        waiting = self._queues.count(_FOREIGN)
        if not packet.is_reliable and waiting >= self._window:
            return False
        if waiting >= MAX_FOREIGN:
            self._is_overrun = True
        else:
            self._queues.push(packet, packet.size, _FOREIGN)
        return True

    def stamp(self) -> tuple[int, int]:
        """`site_seq` and LTS of the next own block; only while this daemon has the token."""
        if self._token is None:
            raise InvariantViolation("only the holder of the token stamps")
        self.site_seq += 1
        self.clock += 1
        return self.site_seq, self.clock

    def queue_own(self, packet: LinkPacket) -> None:
        """A packet of an own block that has just been stamped; at most `room` of them leave with this visit."""
        if self._token is None:
            raise InvariantViolation("own packets are queued while the token is here")
        if not self.is_alone:
            self._queues.push(packet, packet.size, _OWN)

    def hear_clock(self, clock: int) -> None:
        """A block, SKIP or UPDATE with this LTS or clock has come: stamps from now on are above it."""
        self.clock = max(self.clock, clock)

    def set_horizon(self, horizon: int) -> None:
        """This daemon has everything up to this LTS, of all sites."""
        self._horizon = max(self._horizon, horizon)

    # Inputs from the ring

    def on_packet(self, now_ns: int, seq: int, packet: LinkPacket) -> bool:
        """Whether it is new, and to be handed up, whatever is missing before it."""
        if not seq:
            return True  # UNRELIABLE: the stream above knows duplicates
        if self.is_alone or not self._packets.is_possible(seq):
            self.strange += 1
            return False
        self._watch.numbered(now_ns, seq)
        if seq > self._packets.highest and self._token is None:
            self._rests_at = NOBODY  # only a holder gives numbers: it goes around again
        return self._packets.add(seq, packet)

    def on_token(self, now_ns: int, origin: int, token: SiteToken) -> None:
        """A token that is passed to this daemon, or a word about where it is."""
        if not self._is_possible(origin, token):
            self.strange += 1
        elif token.flags:
            self._hear_of(now_ns, origin, token)
        elif token.number < self._expected:
            # The daemon before us has had no sign of what it passed.
            self.duplicates += 1
            self._answers[origin] = None
        else:
            self._accept(now_ns, token)

    def on_wake(self, origin: int, number: int) -> None:
        """Another daemon wants the token."""
        if origin not in self._members or number > self._expected:
            self.strange += 1
        elif self._token is not None:
            self._is_woken = True
        elif number < self.known or (self._watch.has_passed and not self._watch.is_lost):
            # It has not heard that the token went on; or we pass it again, and we decide whether it is lost.
            self._answers[origin] = None

    def _is_possible(self, origin: int, token: SiteToken) -> bool:
        """What the daemons of this ring can say. Numbers and sequences never fall, and the holder is known by the
        number: what is passed to us has exactly the next number, or is a duplicate."""
        members = self._members
        count = len(members)
        if origin not in members or origin == self.me or not self._packets.is_possible(token.link_seq):
            return False
        if token.flags:
            # A word of the holder, or of one that knows more than we do. Nobody has it before us.
            is_holder = members[token.number % count] == origin
            return token.number <= self._expected and (is_holder or token.flags == SEEN)
        if token.number % count != self._index or members[self._index - 1] != origin or token.number > self._expected:
            return False
        last = self._last
        return token.number < self._expected or (
            token.link_seq >= last.link_seq and token.site_seq >= last.site_seq and token.site_lts >= last.site_lts
        )

    @property
    def _successor(self) -> int:
        return self._members[(self._index + 1) % len(self._members)]

    @property
    def _expected(self) -> int:
        """The number of the token when it comes to us next."""
        count = len(self._members)
        if self._token is not None:
            return self._token.number + count
        return self._last.number + (self._index - self._last.number) % count

    def _hear_of(self, now_ns: int, origin: int, token: SiteToken) -> None:
        """The token rests, or has been seen."""
        if token.number < self.known or self._token is not None:
            return
        if token.number == self.known and token.flags == SEEN and self._watch.has_passed and origin != self._successor:
            return  # it knows from us that we have passed it, and nothing more
        self._watch.progress(now_ns)
        self.known = token.number
        if token.flags == RESTS:
            self._rests_at = self._members[token.number % len(self._members)]
            self._packets.highest = max(self._packets.highest, token.link_seq)
        else:
            self._rests_at = NOBODY

    def _accept(self, now_ns: int, token: SiteToken) -> None:
        self._watch.progress(now_ns)
        self._token = token
        self.urgency.take(SiteCredit(*token[12:]))
        self._is_woken = False
        self.known = token.number
        self._rests_at = NOBODY
        self._packets.highest = max(self._packets.highest, token.link_seq)
        self.site_seq = token.site_seq
        self.clock = max(self.clock, token.site_lts)

    # Output

    def step(self, now_ns: int, *, keeps_token: bool = False) -> RingOutput:
        """Ring_handle_token, or what a daemon without the token has to say. `keeps_token`: it is not passed on yet."""
        packets: list[Numbered] = []
        controls: list[RingControl] = []
        token = self._token
        if token is None:
            controls += self._without_token(now_ns)
        elif self.is_alone:
            self._go_around_alone(token)
        elif self._has_work(token):
            if not keeps_token:
                self._visit(now_ns, token, packets, controls)
        elif self._rests_at != self.me:
            self._rests_at = self.me
            controls.append(self._notice(ALL, token, RESTS))
        self._answer(controls)
        return RingOutput(packets, controls)

    @property
    def _wants(self) -> bool:
        """Whether this daemon has something for the token to do."""
        last, packets = self._last, self._packets
        return (
            self._is_wanted
            or len(self._queues) > 0
            or self.clock > last.site_lts
            or self._horizon > self._shown
            or packets.aru < packets.highest
        )

    def _has_work(self, token: SiteToken) -> bool:
        return self._is_woken or self._wants or token.quiet < len(self._members) or bool(token.wanted)

    def _visit(self, now_ns: int, token: SiteToken, packets: list[Numbered], controls: list[RingControl]) -> None:
        """Figure 3.3, in its order."""
        allowed = max(0, min(self.share, self._window - token.flow_control + self._sent))
        unanswered = self._resend(token, allowed, packets)
        link_seq = self._send(token.link_seq, allowed, packets)
        flow_control = max(0, token.flow_control - self._sent) + len(packets)
        self._sent = len(packets)
        store = self._packets
        store.highest = max(store.highest, link_seq)
        wanted = _joined(unanswered, store.missing())
        link_aru, link_modifier = merged_aru(store.aru, token.link_aru, token.link_modifier, self.me)
        mine = min(self._horizon, self.clock)
        self._shown = self._horizon
        site_aru, site_modifier = merged_aru(mine, token.site_aru, token.site_modifier, self.me)
        last = self._last
        is_news = store.free(min(link_aru, last.link_aru)) or store.freed < link_seq
        stable = min(site_aru, last.site_aru)
        is_news = is_news or stable > self.site_aru
        self.site_aru = max(self.site_aru, stable)
        passed = SiteToken(
            token.number + 1,
            link_seq,
            link_aru,
            link_modifier,
            self.site_seq,
            self.clock,
            site_aru,
            site_modifier,
            flow_control,
            token.quiet,
            0,
            wanted,
            *self.urgency.passed(),
        )
        is_news = is_news or self._is_woken or self._is_wanted or len(packets) > 0 or len(wanted) > 0
        is_news = is_news or not _is_same(passed, token, last)
        passed = passed._replace(quiet=0 if is_news else min(token.quiet + 1, len(self._members)))
        self._last = passed
        self._token = None
        self._is_woken = self._is_wanted = False
        self.known = passed.number
        self._rests_at = NOBODY
        control = RingControl(self._successor, Kind.SITE_TOKEN, encode_site_token(passed))
        self._watch.passed(now_ns, control, link_seq)
        controls.append(control)

    def _resend(self, token: SiteToken, allowed: int, packets: list[Numbered]) -> list[Range]:
        """Answer the requests on the token, as far as the share goes; what is left of them."""
        held: list[int] = []
        for first, stop in token.wanted:
            held += self._packets.held(first, stop)
        packets += [(seq, self._packets.get(seq)) for seq in held[:allowed]]
        self.resent += min(len(held), allowed)
        return ranges_of(held[allowed:], MAX_RANGES)

    def _send(self, link_seq: int, allowed: int, packets: list[Numbered]) -> int:
        """New packets, numbered; the last number."""
        limit = self._packets.limit
        while len(packets) < allowed and len(self._queues) and link_seq < limit:
            packet = self._queues.pop()
            if not packet.is_reliable:
                packets.append((0, packet))
                continue
            link_seq += 1
            self._packets.add(link_seq, packet)
            packets.append((link_seq, packet))
        return link_seq

    def _go_around_alone(self, token: SiteToken) -> None:
        """A site of one daemon: whatever it has, all have."""
        self.urgency.take(self.urgency.passed())
        self._shown = self._horizon
        self.site_aru = max(self.site_aru, min(self._horizon, self.clock))
        self._token = self._last = token._replace(site_seq=self.site_seq, site_lts=self.clock, site_aru=self.site_aru)
        self._is_woken = self._is_wanted = False

    def _without_token(self, now_ns: int) -> list[RingControl]:
        """Pass the token again, or wake it."""
        if not self._wants:
            self._watch.want_nothing()
        elif not self._watch.has_passed:
            link_seq = max(self._packets.aru, self._packets.highest)
            is_urgent = self._is_wanted or len(self._queues) > 0
            self._watch.want(now_ns, self._rests_at, self.known, is_urgent, link_seq)
        return self._watch.repeat(now_ns)

    def _answer(self, controls: list[RingControl]) -> None:
        """Tell daemons that have had no sign of the token where it is."""
        token = self._token
        for origin in self._answers:
            if token is not None:
                controls.append(self._notice(origin, token, RESTS))
            else:
                controls.append(self._notice(origin, self._last._replace(number=self.known), SEEN))
        self._answers.clear()

    def _notice(self, to: int, token: SiteToken, flag: int) -> RingControl:
        return RingControl(to, Kind.SITE_TOKEN, encode_site_token(token._replace(flags=flag, wanted=())))


def _joined(some: Sequence[Range], others: Sequence[Range]) -> tuple[Range, ...]:
    """Two lists of ranges in one that rises, cut where a token has no more room."""
    ranges: list[Range] = []
    for first, stop in sorted([*some, *others]):
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], stop))
        else:
            ranges.append((first, stop))
    return tuple(ranges[:MAX_RANGES])


def _is_same(passed: SiteToken, token: SiteToken, last: SiteToken) -> bool:
    """Whether a visit has changed nothing of the token, and nothing had changed since the visit before."""
    ours = (passed.link_seq, passed.link_aru, passed.site_seq, passed.site_lts, passed.site_aru)
    came = (token.link_seq, token.link_aru, token.site_seq, token.site_lts, token.site_aru)
    before = (last.link_seq, last.link_aru, last.site_seq, last.site_lts, last.site_aru)
    return ours == came == before and not passed.flow_control
