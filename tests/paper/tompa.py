"""Hosts of the paper TOMPA: of its pure parts alone, and as whole orderers whose datagrams a test carries by hand.

Hosts are 1, 2, 3, … as in the figures, and a message is known by its sender and its number. Nothing is lost here and no
time goes by: what happens when is what the test says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tests.sim.bug import Bug

from ordercast.config import LOOPBACK_DATAGRAM, GroupConfig, Timing
from ordercast.engine import Outbox, Run, To
from ordercast.orderers.orderer import Start
from ordercast.orderers.timestamp import Timestamp
from ordercast.orderers.timestamp.queue import Key, ReceptionQueue, Stamp
from ordercast.orderers.timestamp.vectors import read_nexts
from ordercast.orderers.timestamp.votes import Vote, Votes
from ordercast.service import AGREED
from ordercast.view import Member, View, group_tag
from ordercast.wire.block import come_after, pack_run
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.stamps import Acked, Bound, Bounds, Decided, Stamps, decode_stamps, encode_stamps
from ordercast.wire.writer import DatagramWriter

VIEW = 1  # place of the only view that there is
RING = 7
TAG = group_tag("paper")
NOW_NS = 1_000_000_000

Vectors = tuple[list[int], list[Stamp]]
"""min_next_mid and max_next_ts, for each host."""

Shown = tuple[Key, Stamp, str]
"""One column of a queue in the figures: message, timestamp, ud or dl."""


WITHOUT_THE_RULE: Final = Bug(
    "the printed rule",
    "ReceptionQueue.decide",
    old="self.clock = max(self.clock, stamp[0])",
    new="",
    breaks="A decision does not move the clock, as the paper prints it (section 3.2.3.2).",
    bound=1,
    orderer="timestamp",
)


# The pure parts. ------------------------------------------------------------------------------------------------------


class Site:
    """One host, of queue and votes alone.

    What it hears of a decision it reads in full, as the paper prints it, or `sparse`, as the wire has it.
    """

    def __init__(
        self, me: int, members: Sequence[int], clock: int = 0, *, anticipate: bool = True, sparse: bool = False
    ) -> None:
        self.me = me
        self.members = members
        self.queue = ReceptionQueue(me, clock)
        self.next_mid = dict.fromkeys(members, 0)
        self.delivered: list[Key] = []
        self.votes: dict[Key, Votes] = {}
        self.named: dict[Key, dict[int, tuple[int, ...]]] = {}  # the vectors of these votes
        self.next_decision = 0
        self._anticipate = anticipate
        self._sparse = sparse
        self._finals: dict[Key, Stamp] = {}

    def receive(self, key: Key) -> Vote:
        """Section 3.2.2.2: the acknowledgement of a message that has come, the next of its sender."""
        assert self.next_mid[key[0]] == key[1], "messages of one source come in sequence (section 3.2.1)"
        self.queue.propose(*key)
        self.next_mid[key[0]] += 1
        return self.acknowledge(key)

    def acknowledge(self, key: Key) -> Vote:
        """What this host has to say of a message now: perhaps again, perhaps with others together."""
        nexts = tuple(self.next_mid[member] for member in self.members)
        return Vote(self.queue.acknowledge(*key), self.queue.clock, VIEW, nexts)

    def collect(self, key: Key, member: int, vote: Vote) -> None:
        """Section 3.2.2.3: an acknowledgement of one of our own messages."""
        assert key[0] == self.me
        if key[1] >= self.next_decision:
            self.votes.setdefault(key, Votes()).add(member, vote)
            self.named.setdefault(key, {})[member] = vote.nexts

    def decisions(self) -> list[tuple[Decided, Vectors]]:
        """Section 3.2.3.1: what all have acknowledged, in our own order, and the vectors of the paper. Not yet told to
        anybody, us included."""
        found = []
        while (votes := self.votes.get((self.me, self.next_decision))) and votes.is_complete(self.members, VIEW):
            bounds = votes.bounds(self.members, VIEW)
            assert bounds is not None
            decided = Decided(self.me, self.next_decision, votes.decide(self.members), VIEW, bounds)
            found.append((decided, vectors_of(bounds, self.named[self.me, self.next_decision], self.members)))
            del self.votes[self.me, self.next_decision]
            self.next_decision += 1
        return found

    def hear(self, decided: Decided, vectors: Vectors) -> None:
        """Section 3.2.3.2: a decision; what may be delivered is."""
        key, bounds = (decided.origin, decided.number), decided.bounds
        acked = self.queue.decide(*key, decided.stamp)
        if acked:
            self._finals[key] = decided.stamp
            if self._anticipate and not self._sparse:
                for origin, upto, stamp in zip(self.members, *vectors, strict=True):
                    self.queue.anticipate(origin, upto, stamp)
            elif self._anticipate and bounds is not None:
                listed = {bound.sender: bound for bound in bounds.listed}
                for index, origin in enumerate(self.members):
                    first, _, number, member = listed.get(index, Bound(-1, 0, bounds.number, bounds.member))
                    upto = listed[index].upto if first >= 0 else self.queue.first_after(origin, acked)
                    if upto >= 0:
                        self.queue.anticipate(origin, upto, (number, self.members[member]))
        while (left := self.queue.take()) is not None:
            self.delivered.append(left)

    @property
    def shown(self) -> list[Shown]:
        """As the figures show it: what has been delivered stays in the picture."""
        gone: list[Shown] = [(key, self._finals[key], "dl") for key in self.delivered]
        return gone + [(key, stamp, "dl" if is_decided else "ud") for key, stamp, is_decided in self.queue]


# Whole orderers. ------------------------------------------------------------------------------------------------------


class Word(NamedTuple):
    """One datagram."""

    source: int
    to: int  # 0: all
    kind: Kind
    origin: int
    number: int
    body: bytes

    @property
    def stamps(self) -> Stamps:
        return decode_stamps(self.body)


def address_of(host: int) -> tuple[str, int]:
    return (f"10.0.0.{host}", 7_000)


class Host:
    """A timestamp orderer; one call is one pass, and gives the datagrams that it sends."""

    def __init__(self, me: int, view: View, config: GroupConfig) -> None:
        self.me = me
        self.delivered: list[Key] = []
        self.counters: dict[str, int] = {}
        writer = DatagramWriter(TAG, me, config.datagram)
        writer.ring = RING
        member = view.members[me - 1]
        self.engine = Timestamp(member, writer, config, Timing(), view, 0, view.counter, self.counters)
        self._out = Outbox()
        self.engine.install(NOW_NS, Start(), self._out)
        self._first = 0
        self._pass()

    def send(self, payload: bytes) -> list[Word]:
        self.engine.submit(NOW_NS, [self._block(payload)], self._out)
        self._first += 1
        return self._pass()

    def foresee(self, payload: bytes) -> Word:
        """The datagram that `send` is going to send. A host of the paper receives its own message from the network, so
        that others may have it earlier; here a sender has its own at once, so that what others have earlier is this."""
        return Word(self.me, 0, Kind.DATA, self.me, self.engine.next_block, self._block(payload))

    def _block(self, payload: bytes) -> bytes:
        return come_after(pack_run(self._first, AGREED, [payload]), self.engine.after())

    def hear(self, *words: Word) -> list[Word]:
        """Datagrams that one pass reads together."""
        for _, _, kind, origin, number, body in words:
            if kind == Kind.DATA:
                self.engine.on_data(NOW_NS, origin, number, body, False, self._out)
            else:
                source = address_of(origin)
                self.engine.on_control(NOW_NS, kind, source, origin, number, memoryview(body), self._out)
        return self._pass()

    def _pass(self) -> list[Word]:
        out = self._out
        self.engine.after_batch(NOW_NS, out)
        for upcall in out.upcalls:
            if isinstance(upcall, Run):
                self.delivered += [(delivery.origin, delivery.number) for delivery in upcall.deliveries]
        words = []
        for send in out.sends:
            data = b"".join(bytes(buffer) for buffer in send.buffers)
            magic, kind, _, last, tag, ring, origin, number = HEADER.unpack_from(data)
            assert (magic, last, tag, ring) == (MAGIC, 0, TAG, RING)
            to = 0 if send.to == To.ALL else int(send.to[0].rpartition(".")[2])
            words.append(Word(self.me, to, Kind(kind), origin, number, data[HEADER_BYTES:]))
        for kept in (out.sends, out.upcalls, out.notes):
            kept.clear()
        return words


def hosts_with_clocks(*clocks: int, anticipate: bool = True) -> dict[int, Host]:
    """Hosts 1, 2, 3, … with these clocks and empty queues.

    The clocks come of one message that host 1 sends first, and whose final timestamp each of them is told differently.
    """
    members = tuple(Member(me, f"host{me}", 0, address_of(me), 1 << 20) for me in range(1, len(clocks) + 1))
    view = View(1, "host1/0", RING, 0, VIEW, 0, members, {member.id: 0 for member in members})
    config = GroupConfig("timestamp", datagram=LOOPBACK_DATAGRAM, anticipate=anticipate)
    first, *others = [Host(member.id, view, config) for member in members]
    (data,) = first.send(b"before")
    for host, clock in zip(others, clocks[1:], strict=True):
        host.hear(data)
        decided = Decided(1, 0, (clock, host.me), VIEW)
        host.hear(_word(1, host.me, Kind.DECISION, Stamps(VIEW, clock, VIEW, 1, 1, (), (), (), [decided])))
    for host in others:
        acked = Acked(1, 0, (clocks[0],))
        first.hear(_word(host.me, 1, Kind.STAMPS, Stamps(VIEW, clocks[0], VIEW, 0, 0, (), (), [acked])))
    found = {host.me: host for host in (first, *others)}
    for host in found.values():
        assert host.delivered == [(1, 0)]
        host.delivered.clear()
    return found


def _word(source: int, to: int, kind: Kind, stamps: Stamps) -> Word:
    return Word(source, to, kind, source, 0, encode_stamps(stamps))


def ack_of(words: Sequence[Word], key: Key) -> Word:
    """The datagram that acknowledges a message, to its sender and nobody else."""
    (word,) = [
        word
        for word in words
        if word.kind == Kind.STAMPS
        and any(
            each.origin == key[0] and each.first <= key[1] < each.first + len(each.numbers) for each in word.stamps.acks
        )
    ]
    assert word.to == key[0]
    return word


def decision_of(words: Sequence[Word]) -> tuple[Word, Decided]:
    """The decision that a host multicasts, and the datagram that it goes in."""
    (word,) = [word for word in words if word.kind == Kind.DECISION]
    assert word.to == 0
    (decided,) = word.stamps.decisions
    return word, decided


def nexts_of(word: Word, base: Sequence[int], members: Sequence[int] = (1, 2, 3)) -> tuple[int, ...]:
    """The paper's next_mid of an acknowledgement. `base`: what the acknowledged message's sender had next of each host
    when it sent the message."""
    return read_nexts(word.stamps, members, dict(zip(members, base, strict=True)))


def vectors_of(
    bounds: Bounds | None, named: Mapping[int, Sequence[int]], members: Sequence[int] = (1, 2, 3)
) -> Vectors:
    """min_next_mid and max_next_ts as the paper has them. `named`: what each host said that it expected next."""
    if bounds is None:
        return [], []
    listed = {bound.sender: bound for bound in bounds.listed}
    uptos, stamps = [], []
    for index in range(len(members)):
        bound = listed.get(index)
        if bound is None:
            agreed = {nexts[index] for nexts in named.values()}
            assert len(agreed) == 1, "what is not listed all have named alike"
            bound = Bound(index, agreed.pop(), bounds.number, bounds.member)
        uptos.append(bound.upto)
        stamps.append((bound.number, members[bound.member]))
    return uptos, stamps
