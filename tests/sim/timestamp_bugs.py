"""Bugs of the timestamp orderer that the harness catches: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

TIMESTAMP_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "the clock does not follow decisions",
        "decide",
        "self.clock = max(self.clock, stamp[0])",
        "",
        "A late block is proposed and decided below a block that is already delivered.",
        4,
        "timestamp",
    ),
    Bug(
        "proposals have the same number",
        "propose",
        "self.clock += 1",
        "self.clock += len(self._waiting) == 0",
        "Two blocks of one sender may change their order.",
        4,
        "timestamp",
    ),
    Bug(
        "a decided block passes one that is not",
        "take",
        ("if is_undecided:\n    return None"),
        ("if is_undecided:\n    heappop(heap)\n    continue"),
        "Order: the block that it passes may still be decided before it.",
        4,
        "timestamp",
    ),
    Bug(
        "a block is decided under the number alone",
        "decide",
        ("each.stamp = stamp\nheappush(self._heap, (stamp, 0, (origin, number)))"),
        ("each.stamp = (stamp[0], self._me)\nheappush(self._heap, (each.stamp, 0, (origin, number)))"),
        "Order: equal numbers are no longer told apart by the member.",
        4,
        "timestamp",
    ),
    Bug(
        "a block whose seq is known stays in the queue",
        "remove",
        "self._waiting.pop(key, None) is not None",
        "self._waiting.get(key) is not None",
        "The block is received twice.",
        4,
        "timestamp",
    ),
    Bug(
        "anticipation moves the block before the bound, too",
        "anticipate",
        "at < first",
        "at < first - 1",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "the smallest proposal is decided",
        "decide",
        "return max([(votes[member].number, member) for member in members])",
        "return min([(votes[member].number, member) for member in members])",
        "Order: a block is delivered although one with a smaller timestamp is still to come.",
        4,
        "timestamp",
    ),
    Bug(
        "the first member's proposal is decided",
        "decide",
        "return max([(votes[member].number, member) for member in members])",
        "return votes[members[0]].number, members[0]",
        "Order: a block is delivered although one with a smaller timestamp is still to come.",
        4,
        "timestamp",
    ),
    Bug(
        "a timestamp does not say whose it is",
        "decide",
        "return max([(votes[member].number, member) for member in members])",
        "return max([votes[member].number for member in members]), members[0]",
        "Two blocks have the same timestamp.",
        4,
        "timestamp",
    ),
    Bug(
        "acknowledgements of a later view decide",
        "is_complete",
        "vote is None or vote.view > view",
        "vote is None",
        "A block is decided without the members that joined meanwhile.",
        64,
        "timestamp",
    ),
    Bug(
        "bounds are of the greatest clock",
        "bounds",
        "max([follows[at] for at, each in enumerate(named) if each == upto])",
        "max(follows)",
        "Anticipation: the member with that clock expects a later block.",
        4,
        "timestamp",
    ),
    Bug(
        "bounds are one too high",
        "bounds",
        "max([follows[at] for at, each in enumerate(named) if each == upto])",
        "max([(follows[at][0] + 1, *follows[at][1:]) for at, each in enumerate(named) if each == upto])",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "bounds name the last member",
        "bounds",
        "Bound(k, upto, number, index)",
        "Bound(k, upto, number, len(members) - 1)",
        "An anticipated timestamp exceeds the final one, by the member alone.",
        8,
        "timestamp",
    ),
    Bug(
        "bounds of one member are taken for those of the next",
        "_anticipate",
        "bound = listed.get(index)",
        "bound = listed.get((index + 1) % len(members))",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "the next expected block is the last proposed one",
        "Vectors.nexts",
        "number = expected.get(member, 0)",
        "number = max(expected.get(member, 0), 1) - 1",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "the next expected block is the next to be received",
        "Vectors.nexts",
        "number = expected.get(member, 0)",
        "number = log.next_number.get(member, 0)",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "a sender of which more is expected is left out of the vector",
        "Vectors.nexts",
        "number == log.next_number.get(member) and seqs.get(member, since + 1) <= since",
        "number == log.next_number.get(member)",
        "An anticipated timestamp exceeds the final one.",
        16,
        "timestamp",
    ),
    Bug(
        "a block that waits does not put its sender into the vector",
        "Vectors.nexts",
        "number == log.next_number.get(member) and seqs.get(member, since + 1) <= since",
        "seqs.get(member, since + 1) <= since",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "the one bound for the rest moves what was acknowledged before, too",
        "_anticipate",
        "queue.first_after(origin, acked)",
        "queue.first_after(origin, 0)",
        "An anticipated timestamp exceeds the final one.",
        4,
        "timestamp",
    ),
    Bug(
        "the moment of an acknowledgement is not remembered",
        "ReceptionQueue.acknowledge",
        "each.acked = self.clock",
        "",
        "The one bound for the rest moves blocks that were acknowledged together with the decided one.",
        64,
        "timestamp",
    ),
    Bug(
        "blocks are proposed for out of order",
        "Agreement.take",
        ("if number == self.expected.get(origin):\n    self.propose_from(origin, head.flags)"),
        (
            "if number > self.expected.get(origin, number):\n"
            "    self.queue.propose(origin, number)\n"
            "    self.owe(origin, number)\n"
            "if number == self.expected.get(origin):\n"
            "    self.propose_from(origin, head.flags)"
        ),
        "A later block of a sender is decided before an earlier one.",
        4,
        "timestamp",
    ),
    Bug(
        "a gap is stepped over",
        "Agreement.take",
        ("if number == self.expected.get(origin):\n    self.propose_from(origin, head.flags)"),
        (
            "if number >= self.expected.get(origin, number + 1):\n"
            "    self.expected[origin] = number\n"
            "    self.propose_from(origin)"
        ),
        "A block that comes late never gets a proposal.",
        4,
        "timestamp",
    ),
    Bug(
        "one number counts for the whole acknowledgement",
        "on_acked",
        "vote = Vote(proposed, stamps.clock, view, nexts)",
        "vote = Vote(numbers[0], stamps.clock, view, nexts)",
        "Later blocks get a timestamp that is too low.",
        4,
        "timestamp",
    ),
    Bug(
        "a sender decides without the first member",
        "Agreement.decide",
        (
            "votes is None or not votes.is_complete(members, view)",
            "following is None or not following.is_complete(members, view)",
            "stamp = votes.decide(members)",
            "bounds = votes.bounds(members, view) if anticipate and is_last else None",
        ),
        (
            "votes is None or not votes.is_complete(members[1:] or members, view)",
            "following is None or not following.is_complete(members[1:] or members, view)",
            "stamp = votes.decide(members[1:] or members)",
            "bounds = None",
        ),
        "A change and a block get the same sequence number.",
        4,
        "timestamp",
    ),
    Bug(
        "a sender decides without the last member",
        "Agreement.decide",
        (
            "votes is None or not votes.is_complete(members, view)",
            "following is None or not following.is_complete(members, view)",
            "stamp = votes.decide(members)",
            "bounds = votes.bounds(members, view) if anticipate and is_last else None",
        ),
        (
            "votes is None or not votes.is_complete(members[:-1] or members, view)",
            "following is None or not following.is_complete(members[:-1] or members, view)",
            "stamp = votes.decide(members[:-1] or members)",
            "bounds = None",
        ),
        "Order, and RESILIENT: one member may lack the block.",
        4,
        "timestamp",
    ),
    Bug(
        "a sender decides without its own proposal",
        "Agreement.decide",
        (
            "votes is None or not votes.is_complete(members, view)",
            "following is None or not following.is_complete(members, view)",
            "stamp = votes.decide(members)",
            "bounds = votes.bounds(members, view) if anticipate and is_last else None",
        ),
        (
            "votes is None or not votes.is_complete([each for each in members if each != self._me] or members, view)",
            "following is None"
            " or not following.is_complete([each for each in members if each != self._me] or members, view)",
            "stamp = votes.decide([each for each in members if each != self._me] or members)",
            "bounds = None",
        ),
        "Order: the sender may be draining, or overrun.",
        32,
        "timestamp",
    ),
    Bug(
        "decisions of a later view are taken at once",
        "on_decided",
        "view != mine",
        "view < mine",
        "Blocks stand before the change that they follow.",
        64,
        "timestamp",
    ),
    Bug(
        "an overrun member goes on proposing",
        "_may_propose",
        "self.is_draining or self.is_overrun or self.is_full()",
        "self.is_draining or self.is_full()",
        "Blocks that wait for a slow application have no bound.",
        32,
        "timestamp",
    ),
    Bug(
        "what was held back is not proposed for",
        "Agreement.release",
        "waiting",
        "list(waiting)[1:]",
        "A sender waits forever.",
        4,
        "timestamp",
    ),
    Bug(
        "nobody decides what a dead sender left",
        "Agreement.answerer",
        "return origin if self._ring.view.member(origin) is not None else self._coordinator",
        "return origin",
        "The block waits in all queues, and so does everything behind it.",
        64,
        "timestamp",
    ),
    Bug(
        "acknowledgements of a dead sender's blocks go to the last member",
        "Agreement.answerer",
        "return origin if self._ring.view.member(origin) is not None else self._coordinator",
        "return origin if self._ring.view.member(origin) is not None else self.members[-1]",
        "The member that sends these blocks again gets no acknowledgement.",
        64,
        "timestamp",
    ),
    Bug(
        "assignments told ahead of a change leave their blocks in the queue",
        "TimestampOrdering.receive",
        "range(seq, log.received + 1)",
        "range(seq, seq)",
        "These blocks are received twice.",
        128,
        "timestamp",
    ),
    Bug(
        "SAFE is delivered when it leaves the queue",
        "_may_deliver",
        ("if entry.rank == SAFE_RANK:\n    return False"),
        ("if entry.rank == SAFE_RANK:\n    return True"),
        "SAFE: a message is delivered before every member has received it.",
        4,
        "timestamp",
    ),
    Bug(
        "MAJORITY is delivered when it leaves the queue",
        "_may_deliver",
        "return 2 * (holders + 1) > table.max_n",
        "return True",
        "MAJORITY: a message is delivered before more than half have received it.",
        4,
        "timestamp",
    ),
    Bug(
        "MAJORITY is one short",
        "_may_deliver",
        "return 2 * (holders + 1) > table.max_n",
        "return 2 * (holders + 2) > table.max_n",
        "MAJORITY: a message is delivered before more than half have received it.",
        4,
        "timestamp",
    ),
    Bug(
        "RESILIENT is delivered on arrival",
        "arrived",
        (
            (
                "if rank > FIFO_RANK or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen or ring.has_left:\n"
                "    return"
            ),
            "(origin, number) in self._early or origin not in self._upto or self.delivered < self._begin",
            ("if number >= self._orphans.get(origin, 0) and ring.view.member(origin) is None:\n    return"),
            "rank < FIFO_RANK",
        ),
        (
            (
                "is_weak = rank <= FIFO_RANK or rank == RESILIENT_RANK\n"
                "if not is_weak or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen or ring.has_left:\n"
                "    return"
            ),
            (
                "(origin, number) in self._early or origin not in self._upto or self.delivered < self._begin"
                " or ring.view.member(origin) is None"
            ),
            "",
            "rank != FIFO_RANK",
        ),
        "RESILIENT: messages are delivered in several orders, and before k others hold them.",
        4,
        "timestamp",
    ),
    Bug(
        "FIFO does not wait for the blocks before it",
        "arrived",
        (
            "if rank < FIFO_RANK:\n"
            "    self._deliver_early(origin, number, block)\n"
            "    if number == self._upto[origin]:\n"
            "        self._follow_up(origin)\n"
            "elif number == self._upto[origin]:\n"
            "    self._follow_up(origin)"
        ),
        (
            "if rank < FIFO_RANK:\n"
            "    self._deliver_early(origin, number, block)\n"
            "    if number == self._upto[origin]:\n"
            "        self._follow_up(origin)\n"
            "else:\n"
            "    self._deliver_early(origin, number, block)"
        ),
        "FIFO: messages are not delivered in the order in which they were sent.",
        4,
        "timestamp",
    ),
    Bug(
        "a decision is noted when its block is received",
        "Receiver.advance",
        "self.reported and (entry.origin, entry.number) in self.reported",
        "(entry.origin, entry.number) not in self.reported",
        "The trace names a wrong time at which a member learned a sequence number.",
        32,
        "timestamp",
    ),
    Bug(
        "members wait for the rest of what a gone sender began",
        "propose_from",
        "not flags & LAST and origin in self.members",
        "not flags & LAST",
        "No member can join or leave any more.",
        128,
        "timestamp",
    ),
    Bug(
        "nobody collects acknowledgements for a dead sender's blocks",
        "Timestamp.install",
        "agreement.answer_for(origin, number)",
        "",
        "These blocks are never decided.",
        64,
        "timestamp",
    ),
    Bug(
        "blocks of a dead sender are not sent again",
        "Timestamp.install",
        "start.orphans",
        "start.orphans[:0]",
        "The view waits for blocks that never come.",
        64,
        "timestamp",
    ),
    Bug(
        "assignments are not asked for",
        "CatchUp.send_naks",
        (
            "if able:\n"
            "    member = ring.view.member(able[(tries - 1) % len(able)])\n"
            "    if member is not None:\n"
            "        out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, missing)))"
        ),
        (
            "if able and tries < 0:\n"
            "    member = ring.view.member(able[(tries - 1) % len(able)])\n"
            "    if member is not None:\n"
            "        out.sends.append(ring.writer.control(member.address, Kind.NAK, encode_nak(acks, missing)))"
        ),
        "A change that is lost stays lost.",
        4,
        "timestamp",
    ),
    Bug(
        "a member that is behind does not ask",
        "catch_up",
        "log.highest = max(log.highest, ahead)",
        "log.highest = max(log.highest, 0)",
        "A block is never received if its decision is known to nobody any more.",
        4,
        "timestamp",
    ),
    Bug(
        "a newcomer's acknowledgement is not needed",
        "_on_view",
        "agreement.members = [member.id for member in view.members]",
        "agreement.members = [member.id for member in view.members if old.member(member.id) is not None]",
        "Order: the new member proposes a higher number, and it is ignored.",
        4,
        "timestamp",
    ),
    Bug(
        "a leaver's acknowledgement is still needed",
        "_on_view",
        "agreement.members = [member.id for member in view.members]",
        "agreement.members = list({member.id: 0 for member in (*view.members, *old.members)})",
        "Nothing is decided any more.",
        4,
        "timestamp",
    ),
    Bug(
        "a newcomer's blocks are awaited from the first",
        "Agreement.admit",
        "self.vectors.admit(member, view.seq)",
        "self.vectors.admit(member, view.seq)\nself.expected[member] = 0",
        "A member that comes back is never heard again.",
        4,
        "timestamp",
    ),
    Bug(
        "a change does not wait until the queue is empty",
        "TimestampOrdering.change",
        "agreement.is_draining and not agreement.queue",
        "agreement.is_draining",
        "Blocks of the old view are decided by the new one.",
        4,
        "timestamp",
    ),
    Bug(
        "a change does not wait until all have what is before it",
        "TimestampOrdering.change",
        "safe >= ring.log.received",
        "ring.log.received >= safe",
        "A message before a view is delivered while members of that view lack it.",
        4,
        "timestamp",
    ),
    Bug(
        "a leave waits for the leaver's long message",
        "TimestampOrdering.change",
        "not agreement.long or changes.first.reason in DEPARTURES",
        "not agreement.long",
        "The rest of that message never comes, so no member can join or leave any more.",
        64,
        "timestamp",
    ),
)
