"""A view at one of its members: records of senders, and the token's ways through it (docs/design/regions.md).

States: *live*; *old* once an epoch has ended it; *draining* once everything is purged; *forgotten* is the owner's word
for a view that is not here any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ordercast.engine import NEVER
from ordercast.orderers.regions.exclusions import Exclusions
from ordercast.orderers.regions.given import GivenView
from ordercast.orderers.regions.partitions import (
    Partitions,
    Stop,
    answered_by,
    leader_of,
    partition_count,
    partition_of,
    partitions_of,
    ring_of,
)
from ordercast.orderers.regions.record import UNKNOWN, SenderRecord
from ordercast.orderers.regions.visit import Errand, Visit, conclude_entry, new_entry, visit_entry
from ordercast.parts.ranges import truncated
from ordercast.parts.rate import RateMeter, fair_share
from ordercast.wire.ranges import SET_HEAD
from ordercast.wire.regions import (
    CLOSED,
    FINAL,
    MAX_RATE,
    MAX_SENDERS,
    MAX_TOKEN_RUNS,
    SETS,
    TOKEN_ENTRY,
    TOKEN_HEAD,
    RegionAck,
    RegionToken,
    TokenEntry,
    fits_token,
)
from ordercast.wire.segments import Reassembly

RINGS_KEPT: Final = 8  # computed ways of tokens, by epoch and starter
LEADER_PATIENCE: Final = 3  # token intervals without a token, before a member starts one
MAX_LOST_ROUNDS: Final = 5  # doublings of the time that a starter waits for its token
MAX_FINISHED: Final = 65_536  # senders that are out for good; only their counts are kept. The oldest is forgotten


class SenderErrand(NamedTuple):
    """An errand that concerns blocks of this sender."""

    sender: int
    errand: Errand


class Work(NamedTuple):
    """What a visit of a token, or its end, has for consequences. `changed`: senders with verdicts or final counts that
    are new here."""

    pushes: list[SenderErrand]
    pulls: list[SenderErrand]
    naks: list[SenderErrand]
    acks: list[tuple[int, RegionAck]]
    changed: list[int]


class Rounds:
    """Of tokens that this member starts."""

    __slots__ = ("clean", "cleaner", "finals", "lost", "number", "out_ns")

    def __init__(self) -> None:
        self.number = 0
        self.out_ns = NEVER  # when the token that is out left
        self.lost = 0  # tokens in a row that did not come back
        self.finals: frozenset[int] = frozenset()  # senders whose final count the token has told from its start
        self.clean = 0  # epochs of the last two complete rounds
        self.cleaner = 0

    @property
    def is_out(self) -> bool:
        return self.out_ns != NEVER


class MemberView:
    __slots__ = (
        "_exclusions",
        "_partitions",
        "_rings",
        "_seen",
        "answered",
        "cleaner",
        "count",
        "ended",
        "finished",
        "fresh_bytes",
        "given",
        "is_drained",
        "leader",
        "me",
        "members",
        "meter",
        "mine",
        "next_start_ns",
        "overhead",
        "records",
        "rounds",
        "settled_at",
        "silence_ns",
        "start_bytes",
        "stopped",
    )

    def __init__(
        self,
        given: GivenView,
        me: int,
        exclusions: Exclusions,
        now_ns: int,
        interval_ns: int,
        start_bytes: int,
        overhead: int = 0,
    ) -> None:
        self.given = given
        self.me = me
        self.members = frozenset([member.id for member in given.members])
        self.mine = partition_of(given, me)
        self.count = partition_count(given)  # of partitions
        self._exclusions = exclusions
        self._partitions: Partitions = ()
        self._rings: dict[tuple[int, int], tuple[Partitions, tuple[Stop, ...]]] = {}
        self.answered: tuple[bool, ...] = ()
        self.records: dict[int, SenderRecord] = {}
        self.finished: dict[int, int] = {}  # senders that are out, and whose blocks everybody has had -> final count
        # Ends
        self.ended = 0  # the epoch that ended it; 0: it is live
        self.settled_at = -1  # the last exclusion that was known when its end was settled; -1: it is not
        self.is_drained = False  # another member has forgotten it
        # Tokens
        self._seen: dict[int, tuple[int, int]] = {}  # starter -> round and place
        self.stopped: frozenset[int] = frozenset()  # senders that are dead for the newest token that was here
        self.cleaner = 0  # as tokens told
        self.rounds = Rounds()
        self.next_start_ns = now_ns + interval_ns
        self.start_bytes = start_bytes  # of blocks that have come: its leader starts a token
        self.overhead = overhead  # of a block, in that count
        self.silence_ns = NEVER
        # Rate
        self.meter = RateMeter(now_ns)
        self.fresh_bytes = 0  # that have come since the last token began or was here
        self.on_exclusions()
        self.expect(now_ns, interval_ns)

    # Members

    def on_exclusions(self) -> None:
        """Somebody was excluded."""
        before = self._partitions
        self._partitions = partitions_of(self.given, self._exclusions.out_of(self.given.epoch))
        if before != self._partitions:
            # A token that is out may have been on its way to who is gone, and several before it: the next one does not
            # wait as long for it as for one that nobody answers.
            self.rounds.out_ns, self.rounds.lost = NEVER, 0
        self.answered = answered_by(self._partitions, self.mine)
        self.leader = leader_of(self._partitions)  # asked for twice in every pass

    @property
    def living(self) -> list[int]:
        return [node for each in self._partitions for node in each]

    def expect(self, now_ns: int, interval_ns: int) -> None:
        """A token was here. Members lose patience one after the other."""
        out = self._exclusions.out_of(self.given.epoch)
        living = [member.id for member in self.given.members if member.id not in out]
        rank = living.index(self.me) if self.me in living else 0
        self.silence_ns = now_ns + LEADER_PATIENCE * interval_ns + min(rank, 16) * interval_ns // 2

    # Records

    def record(self, sender: int) -> SenderRecord | None:
        """Made where it is not there; None: there are too many."""
        found = self.records.get(sender)
        if found is None:
            if len(self.records) >= MAX_SENDERS and not self._forget_idle():
                return None
            found = self.records[sender] = SenderRecord(sender, sender == self.me)
            if sender in self.finished:
                found.resume(self.finished.pop(sender))
        return found

    def _forget_idle(self) -> bool:
        """Make room: a view may last for years, and have had more senders than it has records for."""
        out = self._exclusions.out_of(self.given.epoch)
        for sender, record in list(self.records.items()):
            if sender in out and not record.is_empty and not record.has_news and record.is_drained():
                self.finished[sender] = record.purge
                del self.records[sender]
        while len(self.finished) > MAX_FINISHED:
            del self.finished[next(iter(self.finished))]
        if len(self.records) < MAX_SENDERS:
            return True
        for sender, record in self.records.items():
            if record.is_empty:
                del self.records[sender]
                return True
        return False

    # Tokens

    def way(self, epoch: int, starter: int) -> tuple[Partitions, tuple[Stop, ...]]:
        """Partitions and stops of a token."""
        found = self._rings.get((epoch, starter))
        if found is None:
            partitions = partitions_of(self.given, self._exclusions.as_of(epoch, self.given.epoch))
            if len(self._rings) >= RINGS_KEPT:
                self._rings.clear()
            found = self._rings[epoch, starter] = (partitions, ring_of(partitions, starter))
        return found

    def is_new(self, starter: int, number: int, place: int) -> bool:
        """Whether a token is newer than all of its starter that were here; then it counts as seen."""
        if self._seen.get(starter, (0, 0)) >= (number, place + 1):
            return False
        self._seen[starter] = (number, place + 1)
        return True

    def start(self, now_ns: int, interval_ns: int) -> RegionToken:
        """A token that begins here; this member is to be visited first."""
        rounds = self.rounds
        if rounds.is_out:
            rounds.lost = min(rounds.lost + 1, MAX_LOST_ROUNDS)
        rounds.number += 1
        rounds.out_ns = now_ns
        self.next_start_ns = now_ns + interval_ns
        self.fresh_bytes = 0
        return RegionToken(self._exclusions.epoch, rounds.clean, rounds.cleaner, MAX_RATE, 0, 0)

    def patience_ns(self, interval_ns: int) -> int:
        """How long the starter waits for its token."""
        return (LEADER_PATIENCE * interval_ns) << self.rounds.lost

    def visit(
        self, now_ns: int, token: RegionToken, starter: int, number: int, parts: Reassembly
    ) -> tuple[RegionToken, Work]:
        """The token is here, at a place that is this member's and not the end."""
        partitions, stops = self.way(token.epoch, starter)
        stop = stops[token.place]
        is_start = not token.place
        before = stops[token.place - 1].node if token.place and not stop.is_first else 0
        out = self._exclusions.as_of(token.epoch, self.given.epoch)
        visit = Visit(
            self.me,
            self.mine,
            starter,
            number,
            self.given.view,
            stop,
            before if before != self.me else 0,
            partitions,
            out,
            self._exclusions.as_of(token.clean, self.given.epoch),
            self.answered,
        )
        if not out <= self.stopped:
            self.stopped |= out
        self.cleaner = max(self.cleaner, token.cleaner)
        entries = {entry.sender: entry for entry in token.entries}
        for sender, record in self.records.items():
            if sender not in entries and record.needs_entry(sender in out) and not record.is_empty:
                entries[sender] = new_entry(record, sender in out, is_start)
        work = Work([], [], [], [], [])
        onward: list[TokenEntry] = []
        for sender in sorted(entries):
            found = self.record(sender)
            if found is None:
                onward.append(entries[sender]._replace(own=0, full=0))
                continue
            final = found.final
            visited = visit_entry(visit, found, entries[sender], parts, is_start)
            work.pushes.extend([SenderErrand(sender, each) for each in visited.pushes])
            work.pulls.extend([SenderErrand(sender, each) for each in visited.pulls])
            work.naks.extend([SenderErrand(sender, each) for each in visited.naks])
            if visited.has_lost or found.final != final:
                work.changed.append(sender)
            onward.append(visited.entry)
        if is_start:
            self.rounds.finals = frozenset([each.sender for each in onward if each.flags & FINAL])
        rate, senders = token.rate, token.senders
        if not stop.is_return:
            self.meter.roll(now_ns)
            if self.meter.intervals:
                rate = min(rate, int(self.meter.mean()))
            senders = max(senders, sum([record.is_active for record in self.records.values()]))
            for record in self.records.values():
                record.is_active = False
            self.fresh_bytes = 0
        entries_onward = bounded(onward, number)
        return token._replace(rate=rate, senders=min(senders, MAX_SENDERS), entries=entries_onward), work

    def finish(self, token: RegionToken) -> Work:
        """The token that this member started last is back."""
        rounds = self.rounds
        rounds.out_ns = NEVER
        rounds.lost = 0
        work = Work([], [], [], [], [])
        out_before = self._exclusions.as_of(token.clean, self.given.epoch)
        # A node that was excluded meanwhile may have passed the token on nevertheless, and told of blocks that nobody
        # takes from its hand any more: they would be Lost. What members have of them is in the next token.
        out_since = self._exclusions.out_of(self.given.epoch) - self._exclusions.as_of(token.epoch, self.given.epoch)
        rate = int(min(fair_share(token.rate, token.senders), MAX_RATE)) if token.rate < MAX_RATE else MAX_RATE
        for entry in token.entries:
            record = self.record(entry.sender)
            if record is None:
                continue
            final, knew_final = record.final, entry.sender in rounds.finals
            told = entry._replace(maximum=0) if entry.sender in out_since else entry
            is_acked, has_lost = conclude_entry(record, told, out_before, knew_final)
            if is_acked:
                flags = CLOSED if knew_final else 0
                ack = RegionAck(record.ack, record.purge, token.epoch, rate, max(1, token.senders), flags)
                work.acks.append((entry.sender, ack))
            record.free(self.answered)
            if has_lost or record.final != final:
                work.changed.append(entry.sender)
        rounds.cleaner, rounds.clean = token.clean, token.epoch
        return work

    # Ends

    def end(self, epoch: int) -> None:
        if not self.ended:
            self.ended = epoch

    def settle(self, settled: int) -> None:
        """All living nodes have confirmed the epochs up to `settled`."""
        if self.ended and self.ended <= settled and self.settled_at < 0:
            self.settled_at = self._exclusions.epoch

    def may_be_forgotten(self) -> bool:
        """As far as this member can know, nobody will ever need it in this view."""
        if not self.ended:
            return False
        if self.is_drained:
            return all(record.next >= record.prefix and record.next >= record.top for record in self.records.values())
        if self.settled_at < 0 or not all(record.is_drained() for record in self.records.values()):
            return False
        if self.has_untold:
            return False
        # Dead senders of which nobody has spoken: two complete rounds that knew of their deaths tell that there is
        # nothing of them.
        return self.cleaner >= self.settled_at

    @property
    def has_untold(self) -> bool:
        """Whether this member leads others, and a complete round has not told all of them what it knows. They could not
        forget the view: one after the other would lose its patience, start a token, and hear that others have."""
        if self.leader != self.me or len(self.living) < 2:
            return False
        return any(record.has_news and not record.is_empty for record in self.records.values())

    @property
    def is_behind(self) -> bool:
        """Blocks that are here are not acknowledged."""
        return any(record.ack < record.top for record in self.records.values())

    @property
    def is_quiet(self) -> bool:
        """Nothing is kept, missing or undelivered."""
        return all(record.is_empty or record.is_finished for record in self.records.values())


def bounded(entries: list[TokenEntry], turn: int) -> tuple[TokenEntry, ...]:
    """As many entries, and as many runs of their sets, as a token may have. Senders take turns; a set that is cut off
    delays what it is for."""
    if len(entries) > MAX_SENDERS:
        at = turn * MAX_SENDERS % len(entries)
        entries = sorted((entries[at:] + entries[:at])[:MAX_SENDERS], key=lambda entry: entry.sender)
    runs = sum([len(each.runs) for entry in entries for each in entry.sets])
    if runs <= MAX_TOKEN_RUNS:
        return tuple(entries)
    most = MAX_TOKEN_RUNS // (SETS * len(entries))
    found = []
    for entry in entries:
        naks, common, lack, asked, candidates, lost, gone = [truncated(each, most) for each in entry.sets]
        found.append(
            entry._replace(
                naks=naks, common=common, lack=lack, asked=asked, candidates=candidates, lost=lost, gone=gone
            )
        )
    return tuple(found)


def fitted(token: RegionToken, turn: int, room: int) -> RegionToken:
    """A token that one parcel holds: `room` is its bytes. Where datagrams are small, very many senders take turns."""
    entries = token.entries
    if fits_token(entries, room):
        return token
    most = (room - TOKEN_HEAD.size) // (TOKEN_ENTRY.size + SETS * SET_HEAD.size)
    at = turn * most % len(entries)
    kept = sorted((entries[at:] + entries[:at])[:most], key=lambda entry: entry.sender)
    return token._replace(entries=tuple([_without_runs(entry) for entry in kept]))


def _without_runs(entry: TokenEntry) -> TokenEntry:
    """Sets that say nothing, beyond the least of their numbers."""
    naks, common, lack, asked, candidates, lost, gone = [truncated(each, 0) for each in entry.sets]
    return entry._replace(naks=naks, common=common, lack=lack, asked=asked, candidates=candidates, lost=lost, gone=gone)


def unknown_final(records: Iterable[SenderRecord]) -> list[int]:
    """Senders whose final count is not known."""
    return [record.sender for record in records if record.final == UNKNOWN and not record.is_empty]
