"""Bugs of the sequencer, and of what it shares with others: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

SEQUENCER_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "members never ask for what they miss",
        "Sequencer._send_naks",
        "missing and self._ordering.role is None",
        "missing and self._ordering.role is not None",
        "a broadcast that is lost is lost forever",
        8,
    ),
    Bug(
        "SAFE is delivered as soon as it is received",
        "InOrderDelivery.deliver",
        "entry.rank == SAFE_RANK and seq > safe",
        "entry.rank == SAFE_RANK and seq > received",
        "SAFE: delivered before everybody has the message",
        32,
    ),
    Bug(
        "a member acknowledges one seq too many",
        "Acknowledger.acks",
        "return Acks(self._log.received, self._delivery.consumed)",
        "return Acks(min(self._log.received + 1, self._log.highest), self._delivery.consumed)",
        "SAFE and the history count what is not there",
        32,
    ),
    Bug(
        "SAFE does not wait for the slowest member",
        "_measure",
        "self.safe = min([row.received for row in rows], default=0)",
        "self.safe = max(sorted(row.received for row in rows)[:2], default=0)",
        "SAFE: delivered while one member lacks the message",
        32,
    ),
    Bug(
        "RESILIENT is accepted without HELD",
        "_is_resilient",
        "row is None or row.held.get(origin, 0) <= number",
        "row is None",
        "RESILIENT(k): delivered before k others hold the message",
        32,
    ),
    Bug(
        "HELD is read one too far",
        "_is_resilient",
        "row is None or row.held.get(origin, 0) <= number",
        "row is None or row.held.get(origin, 0) < number",
        "RESILIENT(k): a block counts as held when the one before it is",
        32,
    ),
    Bug(
        "HELD ignores holes",
        "reach",
        ("number = self.next_number.get(origin, 0)\nblocks = self.blocks"),
        (
            "blocks = self.blocks\n"
            "number = max([each for who, each in blocks if who == origin] + [self.next_number.get(origin, 0)])"
        ),
        "RESILIENT(k): holders vouch for blocks that they lack",
        64,
    ),
    Bug(
        "history is purged while one member lacks it",
        "_measure",
        "self.stable = min([row.consumed for row in rows], default=0)",
        "self.stable = max(sorted(row.consumed for row in rows)[:2], default=0)",
        "what the slowest member asks for is gone",
        4,
    ),
    Bug(
        "the sequencer never purges",
        "SequencerOrdering.lead",
        "stable > log.stable",
        "stable < log.stable",
        "the history fills and the group blocks",
        4,
    ),
    Bug(
        "the log advances over a hole",
        "advance",
        "seq = self.received + 1",
        "seq = min(assignments, default=self.received + 1)",
        "a message is left out where another came first",
        4,
    ),
    Bug(
        "the tail is not noticed",
        "_on_lead",
        "log.highest = max(log.highest, lead.highest)",
        "log.highest = max(log.highest, log.received)",
        "a lost broadcast that nothing follows is never asked for",
        32,
    ),
    Bug(
        "nothing is retransmitted",
        "SequencerSender.retransmit",
        "self._outgoing.due(now_ns)",
        "self._outgoing.due(now_ns)[:0]",
        "a request that is lost is lost forever",
        64,
    ),
    Bug(
        "old blocks are held again",
        "hold",
        "not next_number <= number < next_number + self.ahead",
        "not number < next_number + self.ahead",
        "duplicates are kept, and never leave",
        64,
    ),
    Bug(
        "positions count blocks",
        "advance",
        "self.position += count",
        "self.position += 1",
        "two messages at one position",
        4,
    ),
    Bug(
        "a view overtakes the messages before it",
        "InOrderDelivery.deliver",
        (
            "if entry.is_change:\n"
            "    if run:\n"
            "        out.upcalls.append(Run(run))\n"
            "        run = []\n"
            "    self._views.deliver(open_change(entry.block), out)\n"
            "else:\n"
            "    run.append(Delivery(seq, entry.position, entry.origin, entry.number, entry.block))"
        ),
        (
            "if entry.is_change:\n"
            "    self._views.deliver(open_change(entry.block), out)\n"
            "else:\n"
            "    run.append(Delivery(seq, entry.position, entry.origin, entry.number, entry.block))"
        ),
        "members deliver the same message in different views",
        8,
    ),
    Bug(
        "a view carries the numbers of the view before",
        "_with_members",
        "numbers = dict(next_number)",
        "numbers = dict(view.numbers)",
        "a newcomer waits for blocks that were before its time",
        64,
    ),
    Bug(
        "the coordinator starts from the shortest log",
        "agree",
        "top = max(sorted(cuts), key=lambda member: cuts[member].received)",
        "top = min(sorted(cuts), key=lambda member: cuts[member].received)",
        "what a survivor has delivered is not part of what all agree on",
        32,
    ),
    Bug(
        "the new view counts only what its coordinator received",
        "_propose",
        "position, numbers, change = log.preview(max(remainder.upto, log.received))",
        "position, numbers, change = log.preview(log.received)",
        "a block of the remainder is awaited, or delivered, again",
        256,
    ),
    Bug(
        "a survivor accepts before it has fetched what it lacks",
        "_try_accept",
        "self._orderer.lacking(view.seq - 1)",
        "self._orderer.lacking(view.seq - 1) and view.member(self._local.me.id) is None",
        "recovery ends before all are at the same seq",
        32,
    ),
    Bug(
        "commit before all have accepted",
        "is_accepted",
        "needed <= acknowledged",
        "bool(needed)",
        "the new view begins while a member lacks the remainder",
        32,
    ),
    Bug(
        "datagrams of an old ring are taken for new ones",
        "Underlay._on_datagram",
        (
            "if ring != membership.ring:\n"
            "    membership.on_stranger(now_ns, source, kind, ring, out)\n"
            "elif membership.is_whole or kind in (Kind.NAK, Kind.ACCEPT):\n"
            "    membership.on_heard(origin)\n"
            "    self._orderer.on_control(now_ns, kind, source, origin, number, body, out)"
        ),
        (
            "if membership.ring < 0:\n"
            "    membership.on_stranger(now_ns, source, kind, ring, out)\n"
            "elif membership.is_whole or kind in (Kind.NAK, Kind.ACCEPT):\n"
            "    membership.on_heard(origin)\n"
            "    self._orderer.on_control(now_ns, kind, source, origin, number, body, out)"
        ),
        "an old incarnation is not told from the new one",
        32,
    ),
    Bug(
        "no transitional signal",
        "_finish",
        "out.upcalls.append(Transitional(old.view.id))",
        "",
        "what recovery brought together looks as if it were safe",
        32,
    ),
    Bug(
        "SAFE of the remainder is left out",
        "Sequencer.recover",
        "self._delivery.safe = upto",
        "self._delivery.safe = max(self._delivery.safe, 0)",
        "a survivor does not deliver what the others do",
        32,
    ),
    Bug(
        "own blocks are dropped at a reset",
        "LogRecovery.leftovers",
        "return self._outgoing.own()",
        "return self._outgoing.own()[:0]",
        "what had no seq when the ring broke is never sent again",
        16,
    ),
    Bug(
        "came_with names newcomers",
        "_translate",
        "(str(member) for member in upcall.members if previous is not None and previous.member(member.id))",
        "(str(member) for member in upcall.members)",
        "a newcomer is said to have been there before",
        4,
    ),
    Bug(
        "a newcomer counts as having what follows its join",
        "SequencerRole.admit",
        "self._table[member] = MemberRow(seq, seq)",
        "self._table[member] = MemberRow(seq + 1, seq + 1)",
        "the first message for a newcomer is purged before it is there",
        32,
    ),
    Bug(
        "a fragment is read from the wrong offset",
        "open_part",
        "payload = block[FRAGMENT_OVERHEAD:]",
        "payload = block[FRAGMENT_OVERHEAD - 1 : -1]",
        "the bytes of large messages",
        8,
    ),
    Bug(
        "nobody is ever suspected",
        "Sequencer.suspects",
        "self._detector.suspects(now_ns)",
        "self._detector.suspects(0)",
        "the group waits for the dead",
        16,
    ),
)
