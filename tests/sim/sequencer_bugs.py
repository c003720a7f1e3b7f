"""Bugs of the sequencer, and of what it shares with others: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

SEQUENCER_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "members never ask for what they miss",
        "SequencerNaks.send",
        "missing and role is None",
        "missing and role is not None",
        "A broadcast that is lost stays lost.",
        8,
    ),
    Bug(
        "SAFE is delivered as soon as it is received",
        "InOrderDelivery.deliver",
        "entry.rank == SAFE_RANK and seq > safe",
        "entry.rank == SAFE_RANK and seq > upto",
        "SAFE: a message is delivered before every member has it.",
        32,
    ),
    Bug(
        "a member acknowledges one seq too many",
        "Acknowledger.acks",
        "return Acks(self._log.received, self._delivery.consumed, self._is_behind)",
        "return Acks(min(self._log.received + 1, self._log.highest), self._delivery.consumed, self._is_behind)",
        "SAFE and the history count a message that the member does not have.",
        32,
    ),
    Bug(
        "SAFE does not wait for the slowest member",
        "_measure",
        "self.safe = min([row.received for row in rows], default=0)",
        "self.safe = max(sorted(row.received for row in rows)[:2], default=0)",
        "SAFE: a message is delivered while one member lacks it.",
        32,
    ),
    Bug(
        "RESILIENT is accepted without HELD",
        "_is_resilient",
        "row is None or row.held.get(origin, 0) <= number",
        "row is None",
        "RESILIENT(k): a message is delivered before k others hold it.",
        32,
    ),
    Bug(
        "HELD is read one too far",
        "_is_resilient",
        "row is None or row.held.get(origin, 0) <= number",
        "row is None or row.held.get(origin, 0) < number",
        "RESILIENT(k): a block counts as held when only the block before it is held.",
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
        "RESILIENT(k): members vouch for blocks that they lack.",
        64,
    ),
    Bug(
        "history is purged while one member lacks it",
        "_measure",
        "self.stable = min([row.consumed for row in rows], default=0)",
        "self.stable = max(sorted(row.consumed for row in rows)[:2], default=0)",
        "The slowest member asks for a message that nobody has any more.",
        4,
    ),
    Bug(
        "the sequencer never purges",
        "SequencerOrdering.lead",
        "role.stable > before",
        "role.stable < before",
        "The history fills up and the group blocks.",
        4,
    ),
    Bug(
        "a sequencer that waits for an answer does not ask again",
        "SequencerOrdering.remind",
        "announcer.send_status(now_ns, role, out)",
        "pass",
        "Members that have nothing to say are taken for dead while a change waits.",
        48,
    ),
    Bug(
        "the log advances over a hole",
        "advance",
        "seq = self.received + 1",
        "seq = min(assignments, default=self.received + 1)",
        "A message is left out because another one came first.",
        4,
    ),
    Bug(
        "the tail is not noticed",
        "_on_lead",
        "log.highest = max(log.highest, lead.highest)",
        "log.highest = max(log.highest, log.received)",
        "Nobody asks for a lost broadcast if nothing follows it.",
        32,
    ),
    Bug(
        "nothing is retransmitted",
        "SequencerSender.retransmit",
        "self._outgoing.due(now_ns, 1 if restraint.is_vain(now_ns) else AT_ONCE)",
        "self._outgoing.due(now_ns, 1 if restraint.is_vain(now_ns) else AT_ONCE)[:0]",
        "A request that is lost stays lost.",
        64,
    ),
    Bug(
        "blocks that a silent sequencer was not sent are forgotten",
        "SequencerSender.go_on",
        "self._waiting and not self._must_wait(now_ns)",
        "self._waiting and self._must_wait(now_ns) and not self._waiting",
        "A message that was held back once is never sent.",
        64,
    ),
    Bug(
        "a repair is asked for once",
        "Gaps.due",
        "gap.due_ns = now_ns + self._rtt.patience_ns(gap.tries, self._retry_ns, self._max_ns)",
        "gap.due_ns = NEVER",
        "A broadcast whose repair is lost as well stays lost.",
        64,
    ),
    Bug(
        "old blocks are held again",
        "hold",
        "not next_number <= number < next_number + self.ahead",
        "not number < next_number + self.ahead",
        "Duplicates are kept and never removed.",
        64,
    ),
    Bug(
        "positions count blocks",
        "advance",
        "self.position += count",
        "self.position += 1",
        "Two messages have the same position.",
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
        "Members deliver the same message in different views.",
        64,
    ),
    Bug(
        "a view carries the numbers of the view before",
        "_with_members",
        "numbers = dict(next_number)",
        "numbers = dict(view.numbers)",
        "A new member waits for blocks that were sent before it joined.",
        64,
    ),
    Bug(
        "the coordinator starts from the shortest log",
        "agree",
        "top = max(sorted(cuts), key=lambda member: cuts[member].received)",
        "top = min(sorted(cuts), key=lambda member: cuts[member].received)",
        "A message that a survivor has delivered is missing from what all agree on.",
        256,
    ),
    Bug(
        "the new view counts only what its coordinator received",
        "_propose",
        "position, numbers, change = log.preview(max(remainder.upto, log.received))",
        "position, numbers, change = log.preview(log.received)",
        "Members wait for a block of the remainder, or deliver it, a second time.",
        256,
    ),
    Bug(
        "a survivor accepts before it has fetched what it lacks",
        "_try_accept",
        "self._orderer.lacking(view.seq - 1)",
        "self._orderer.lacking(view.seq - 1) and view.member(self._local.me.id) is None",
        "Recovery ends before all members are at the same sequence number.",
        64,
    ),
    Bug(
        "datagrams of an old ring are taken for new ones",
        "Underlay._on_datagram",
        (
            "if ring != membership.ring:\n"
            "    membership.on_stranger(now_ns, source, kind, ring, origin, body, out)\n"
            "elif membership.is_whole or kind in (Kind.NAK, Kind.ACCEPT):\n"
            "    membership.on_heard(now_ns, origin)\n"
            "    self._orderer.on_control(now_ns, kind, source, origin, number, body, out)"
        ),
        (
            "if membership.ring < 0:\n"
            "    membership.on_stranger(now_ns, source, kind, ring, origin, body, out)\n"
            "elif membership.is_whole or kind in (Kind.NAK, Kind.ACCEPT):\n"
            "    membership.on_heard(now_ns, origin)\n"
            "    self._orderer.on_control(now_ns, kind, source, origin, number, body, out)"
        ),
        "An old life of a member is taken for the new one.",
        384,
    ),
    Bug(
        "no transitional signal",
        "_finish",
        "out.upcalls.append(Transitional(old.view.id))",
        "",
        "Messages that recovery brought together look as if they were safe.",
        128,
    ),
    Bug(
        "SAFE of the remainder is left out",
        "Sequencer.recover",
        "self._delivery.safe = self._ring.decided = upto",
        "self._ring.decided = upto",
        "A survivor does not deliver a message that the others deliver.",
        128,
    ),
    Bug(
        "own blocks are dropped at a reset",
        "LogRecovery.leftovers",
        "return self._outgoing.own()",
        "return self._outgoing.own()[:0]",
        "Blocks without a sequence number are never sent again after a recovery.",
        16,
    ),
    Bug(
        "came_with names newcomers",
        "view_after",
        "(str(member) for member in view.members if previous.member(member.id))",
        "(str(member) for member in view.members)",
        "A view says that a new member was there before.",
        4,
    ),
    Bug(
        "a newcomer counts as having what follows its join",
        "SequencerRole.admit",
        "self._table[member] = MemberRow(seq, seq)",
        "self._table[member] = MemberRow(seq + 1, seq + 1)",
        "The first message for a new member is purged before the member has it.",
        32,
    ),
    Bug(
        "a fragment is read from the wrong offset",
        "open_part",
        "payload = block[at : len(block) - label]",
        "payload = block[at - 1 : -1]",
        "Large messages have wrong bytes.",
        8,
    ),
    Bug(
        "nobody is ever suspected",
        "Sequencer.suspects",
        "self.detector.suspects(now_ns)",
        "self.detector.suspects(0)",
        "The group waits for dead members.",
        16,
    ),
)
