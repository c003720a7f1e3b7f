"""The datagrams of the timestamp orderer: acknowledgements, decisions and how far we are, after each batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ordercast.engine import Outbox, To
from ordercast.orderers.logged.delivery import ServiceDelivery
from ordercast.orderers.logged.replies import send_held
from ordercast.orderers.logged.ring import RingState
from ordercast.orderers.logged.window import SendWindow
from ordercast.orderers.timestamp.agreement import Agreement
from ordercast.orderers.timestamp.queue import Key
from ordercast.view import GROUP_ORIGIN, Address
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Acks
from ordercast.wire.stamps import ASKS, BEHIND, HURRIES, MAX_ACKED, WANTS, Acked, Decided, Stamps, encode_stamps

ALONG: Final = 16  # blocks that are acknowledged once more with the next
MAX_DECISIONS: Final = 256  # in one datagram: a body has no more than 256 segments, which may be small


class StampSender:
    __slots__ = ("_agreement", "_delivery", "_log", "_me", "_owed", "_ring", "_table", "_told", "_window", "spoke_ns")

    def __init__(self, ring: RingState, delivery: ServiceDelivery, window: SendWindow, agreement: Agreement) -> None:
        self._ring = ring
        self._log = ring.log
        self._me = ring.me.id
        self._delivery = delivery
        self._table = delivery.table
        self._window = window
        self._agreement = agreement
        self._owed = agreement.owed
        self._told = ring.view.seq  # how far others know that we have received
        self.spoke_ns = 0  # when we last spoke to all

    def stamps(self, acks: Sequence[Acked] = (), decisions: Sequence[Decided] = ()) -> Stamps:
        ring, table, agreement = self._ring, self._table, self._agreement
        rows = table.rows()
        highest = max(self._log.received, *rows)
        decided = agreement.decided_upto(ring.next_block)
        nexts = agreement.nexts(acks)
        clock = agreement.queue.clock
        return Stamps(table.view.seq, clock, highest, ring.next_block, decided, rows, nexts, acks, decisions)

    def acks(self) -> Acks:
        return Acks(self._log.received, self._log.received)

    def speak(self, now_ns: int, out: Outbox) -> None:
        """After a batch, in one datagram: to all if more than one waits for it, else to that one."""
        ring, owed = self._ring, self._owed
        if self._log.received > self._told:
            self._tell_received()
        if owed.held:
            self._acknowledge_held(out)
        if owed.repeats:
            self._repeat(out)
        acks, decisions = owed.acks, owed.decisions
        if not (acks or decisions or owed.news or owed.tell_all):
            return
        others = self._table.others
        waiting = {*acks, *owed.news}
        waiting.discard(self._me)
        if others and (decisions or owed.tell_all or waiting):
            to: Address = To.ALL
            if not decisions and not owed.tell_all and len(waiting) == 1:
                member = ring.view.member(next(iter(waiting)))
                to = member.address if member is not None else To.ALL
            kind = Kind.DECISION if decisions else Kind.STAMPS if acks else Kind.SYNC
            stamps = self.stamps(list(self._acked(acks.values())), decisions)
            is_full = bool(self._agreement.held_back) and self._delivery.is_overrun()
            if owed.asks or owed.wants or owed.hurries or is_full:
                flags = ASKS * owed.asks + WANTS * owed.wants + HURRIES * owed.hurries + BEHIND * is_full
                stamps = stamps._replace(flags=flags)
            while True:
                first, rest = stamps.decisions[:MAX_DECISIONS], stamps.decisions[MAX_DECISIONS:]
                body = encode_stamps(stamps._replace(decisions=first))
                out.sends.append(ring.writer.control(to, kind, body))
                if not rest:
                    break
                stamps = stamps._replace(acks=(), nexts=(), flags=0, decisions=rest)
            self._told = self._log.received
            if to == To.ALL:
                self.spoke_ns = now_ns
        owed.clear()

    def _tell_received(self) -> None:
        """Whether it is time to say how far we are although nobody asked: windows wait for it."""
        log = self._log
        active = [origin for origin in log.active if origin not in (self._me, GROUP_ORIGIN)]
        few_bytes = log.unstable_bytes < self._window.ceiling // (4 * max(2, len(active)))
        if few_bytes and 4 * (log.received - self._told) < self._ring.config.history_blocks:
            return
        if len(active) == 1 and self._ring.view.member(active[0]) is not None:
            self._owed.news.add(active[0])
        else:
            self._owed.tell_all = True

    def _acked(self, owed: Iterable[dict[Key, None]]) -> Iterable[Acked]:
        """Proposals as runs; what was decided meanwhile needs none.

        The last few before them that are not decided go along: a lost acknowledgement costs no more than the next one.
        """
        queue = self._agreement.queue
        keys = {key for keys in owed for key in keys}
        for origin in {key[0] for key in keys}:
            keys.update([(origin, number) for number in queue.undecided(origin)[-ALONG:]])
        origin = first = 0
        numbers: list[int] = []
        for key in sorted(keys):
            number = queue.acknowledge(*key)
            if not number:
                continue
            if numbers and key == (origin, first + len(numbers)) and len(numbers) < MAX_ACKED:
                numbers.append(number)
                continue
            if numbers:
                yield Acked(origin, first, tuple(numbers))
            (origin, first), numbers = key, [number]
        if numbers:
            yield Acked(origin, first, tuple(numbers))

    def _repeat(self, out: Outbox) -> None:
        """Decisions to those that have not heard of them. The bounds are left out: they are old."""
        ring, made = self._ring, self._agreement.decisions
        for origin, keys in self._owed.repeats.items():
            member = ring.view.member(origin)
            if member is not None:
                known = [(key, made[key]) for key in dict.fromkeys(keys) if key in made]
                decisions = [Decided(*key, stamp, view) for key, (stamp, view) in known]
                ring.count("repeated_decisions")
                body = encode_stamps(self.stamps((), decisions))
                out.sends.append(ring.writer.control(member.address, Kind.DECISION, body))
        self._owed.repeats = {}

    def _acknowledge_held(self, out: Outbox) -> None:
        """To senders that send again what waits here to be proposed for: we have it."""
        agreement = self._agreement
        for origin in self._owed.held:
            upto = self._log.held_upto(origin, agreement.expected.get(origin, 0))
            send_held(self._ring, agreement.answerer(origin), self.acks(), origin, upto, out)
        self._owed.held.clear()
