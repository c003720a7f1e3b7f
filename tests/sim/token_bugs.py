"""Bugs of the token orderer, of locks, calls and recovery as it uses them: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug


def _in_token(
    name: str, function: str, old: str | tuple[str, ...], new: str | tuple[str, ...], breaks: str, bound: int
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, "token")


TOKEN_BUGS: Final[tuple[Bug, ...]] = (
    # Missing packets and repairs
    _in_token(
        "NACKs are not sent",
        "TokenNaks.send",
        "wanted.items()",
        "list(wanted.items())[:0]",
        "A member that lacks a packet waits forever, or is suspected.",
        128,
    ),
    _in_token(
        "NACKs that name a site are not answered",
        "TokenNaks.on_nak",
        "target in (0, ring.me.id)",
        "target == 0 and self._rotation.is_holding",
        "A packet that is lost stays lost.",
        8,
    ),
    _in_token(
        "only assignments that came with their ACK are missed",
        "_on_state",
        "log.highest = max(log.highest, state.highest)",
        "log.highest = max(log.highest, log.received)",
        "A lost ACK is never noticed if nothing follows it.",
        128,
    ),
    _in_token(
        "packets are freed before they are safe",
        "purge_safe",
        "stable = min(safe, self.delivered)",
        "stable = self.delivered",
        "The slowest member asks for a packet that nobody has any more.",
        8,
    ),
    _in_token(
        "packets are never freed",
        "purge_safe",
        "stable > self._log.stable",
        "stable < self._log.stable",
        "Buffers fill up and the group blocks.",
        8,
    ),
    # The token
    Bug(
        "late copies of a pass are answered while our own pass is under way",
        "_on_token",
        "not rotation.is_under_way(now_ns, origin)",
        "True",
        "In a busy group of two each duplicate of the token goes back and forth without an end.",
        1,
        "token",
        profile="endurance",
        first_seed=7_100_013_400,
        is_slow=True,
    ),
    _in_token(
        "the token is accepted although assignments are missing",
        "take_turn",
        "0 <= rotation.named_at <= log.received",
        "0 <= rotation.named_at",
        "One sequence number is assigned twice.",
        8,
    ),
    _in_token(
        "an earlier pass is taken for a new one",
        "Rotation.follow",
        "state.turn > self.turn and not self._ring.has_left",
        "state.turn >= self.turn - 1 and not self._ring.has_left",
        "Two sites hold the token.",
        32,
    ),
    _in_token(
        "the token never rests",
        "_must_hurry",
        ("if self._table.round >= log.received:\n    return False"),
        "",
        "A quiet group sends forever.",
        16,
    ),
    _in_token(
        "an overrun site passes the token on",
        "take_turn",
        "is_overrun = self._delivery.is_overrun()",
        "is_overrun = False",
        "Messages that wait for a slow application have no bound.",
        32,
    ),
    _in_token(
        "nobody is suspected for silence",
        "Vigilance.suspects",
        "self._detector.suspects(now_ns)",
        "self._detector.suspects(0)",
        "The group waits for dead members.",
        32,
    ),
    # Who holds what
    _in_token(
        "a site claims what it has only heard of",
        "take_turn",
        (
            "ring, log, table, rotation, timers = "
            "self._ring, self._ring.log, self._table, self._rotation, self._timers\n"
            "table.learn(ring.me.id, log.received)"
        ),
        (
            "ring, log, table, rotation, timers = "
            "self._ring, self._ring.log, self._table, self._rotation, self._timers\n"
            "table.learn(ring.me.id, log.highest)"
        ),
        "A packet counts as stable while a member lacks it.",
        64,
    ),
    _in_token(
        "a newcomer's row begins one too high",
        "apply",
        "self._rows[member] = view.seq",
        "self._rows[member] = view.seq + 1",
        "The first packet for a new member counts as received.",
        32,
    ),
    _in_token(
        "a member that left stays in the table",
        "_look_at_leaver",
        "self._rows.get(self._leaver, self._leaves_at) >= self._leaves_at",
        "self._rows.get(self._leaver, self._leaves_at) > self._leaves_at",
        "The group waits for a member that has left, and suspects it.",
        128,
    ),
    # When a message is delivered
    _in_token(
        "UNRELIABLE duplicates are delivered",
        "arrived_unreliable",
        ("if not recent.is_new(number):\n    return False"),
        "recent.is_new(number)",
        "UNRELIABLE: a message is delivered more than once.",
        64,
    ),
    _in_token(
        "RELIABLE is delivered on arrival and at its seq",
        "ServiceDelivery.deliver",
        "early and early.pop((origin, number), None) is not None",
        "early and early.pop((origin, number), None) == 0",
        "RELIABLE: a message is delivered twice.",
        16,
    ),
    _in_token(
        "what was delivered early is forgotten with the ring",
        "ServiceDelivery.inherit",
        "self._early = kept",
        "self._early = {}",
        "RELIABLE and FIFO: a message is delivered again after a recovery.",
        32,
    ),
    _in_token(
        "FIFO does not wait for the packets before it",
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
        32,
    ),
    _in_token(
        "CAUSAL is delivered like FIFO",
        "arrived",
        (
            "rank > FIFO_RANK or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen or ring.has_left",
            "rank < FIFO_RANK",
        ),
        (
            "rank > FIFO_RANK + 1 or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen",
            "rank < FIFO_RANK or (rank > FIFO_RANK and number == self._upto[origin])",
        ),
        "CAUSAL: a message is delivered before one that its sender had delivered.",
        128,
    ),
    _in_token(
        "AGREED is delivered on arrival",
        "arrived",
        (
            "rank > FIFO_RANK or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen or ring.has_left",
            "rank < FIFO_RANK",
        ),
        (
            "rank > FIFO_RANK + 2 or flags & (FRAGMENTED | CHANGE | CALLED) or ring.is_frozen",
            "rank != FIFO_RANK",
        ),
        "AGREED: members deliver in different orders.",
        8,
    ),
    _in_token(
        "RESILIENT is content with one holder less",
        "_may_deliver",
        "return holders >= min(entry.head[3], len(self._ring.view.members) - 1)",
        "return holders + 1 >= min(entry.head[3], len(self._ring.view.members) - 1)",
        "RESILIENT(k): a message is delivered before k others hold it.",
        16,
    ),
    _in_token(
        "MAJORITY is content with half",
        "_may_deliver",
        "return 2 * (holders + 1) > table.max_n",
        "return 2 * (holders + 1) >= table.max_n",
        "MAJORITY: a message is delivered before more than half hold it.",
        16,
    ),
    _in_token(
        "SAFE is content with all but one",
        "_may_deliver",
        "return False",
        "return table.holders(seq) >= len(self.view.members) - 2",
        "SAFE: a message is delivered before every member holds it.",
        16,
    ),
    _in_token(
        "tickets begin anew with the ring",
        "ServiceDelivery.inherit",
        "self._ticket = max(self._ticket, memory.ticket)",
        "self._ticket += 0",
        "The token waits for the application, because what it gives back is not recognized.",
        128,
    ),
    # Members without multicast
    _in_token(
        "members without multicast get no copies",
        "copies",
        "return self._routes.copies",
        "return []",
        "They hear nothing and are suspected.",
        32,
    ),
    _in_token(
        "the forwarder multicasts nothing",
        "forward",
        "out.sends.append(Send(To.MULTICAST, (data,), stride))",
        "",
        "No member hears those without multicast.",
        64,
    ),
    # Changes
    _in_token(
        "a change is ordered while strong messages are not safe",
        "_next_change",
        "not changes or not ring.is_decided or safe < pending.last_seq or safe < self._receiver.last_strong_seq",
        "not changes or not ring.is_decided or safe < pending.last_seq",
        "A message before a view is delivered while members of that view lack it.",
        32,
    ),
    _in_token(
        "a lock is granted while it is held",
        "next_view",
        "is_new = holder is None and len(locks) < MAX_LOCKS and _may_lock(view, member)",
        "is_new = len(locks) < MAX_LOCKS and _may_lock(view, member)",
        "A lock has two holders.",
        16,
    ),
    _in_token(
        "a member that is denied a lock is not told",
        "ViewDelivery.deliver",
        "view.reason == Reason.LOCK and view.subject == self._me",
        'view.reason == Reason.LOCK and view.subject == ""',
        "The member that asked waits forever.",
        16,
    ),
    _in_token(
        "a leaver keeps its locks",
        "_with_members",
        "locks={lock: holder for lock, holder in view.locks.items() if holder in present_ids}",
        "locks=dict(view.locks)",
        "No member gets these locks any more.",
        64,
    ),
    _in_token(
        "the dead keep their locks",
        "_new_view",
        "locks={lock: holder for lock, holder in base.locks.items() if holder in present}",
        "locks=dict(base.locks)",
        "No member gets these locks any more.",
        256,
    ),
    _in_token(
        "requests for locks that a recovery lost are not made again",
        "on_view",
        "lock.stage is Stage.RELEASED or (lock.stage is Stage.ASKED and is_reset)",
        "lock.stage is Stage.RELEASED",
        "The tasks that asked wait forever.",
        16,
    ),
    # Calls from outside
    _in_token(
        "nobody acknowledges calls",
        "take_up",
        "self._mine[origin, number] = None",
        "self._mine.pop((origin, number), None)",
        "Callers wait in vain.",
        16,
    ),
    _in_token(
        "a call is acknowledged as soon as it has its seq",
        "OutsideCalls.on_call",
        ("if log.seq_of(origin, number) > self._delivery.delivered:\n    return True"),
        "",
        "A caller gets an acknowledgement before the service holds.",
        128,
    ),
    _in_token(
        "calls do not wait for those that they need",
        "next_of",
        "needs_of(block) <= expected or self._begins.get(origin) == number",
        "needs_of(block) <= number",
        "A call is left out although it is acknowledged.",
        64,
    ),
    _in_token(
        "requests for changes are not repeated",
        "ChangeRequests.repeated",
        "own.due_ns = now_ns + self._rtt.timeout_ns(own.tries)",
        "own.due_ns = NEVER",
        "A lock, a join or a leave whose one request is lost never comes about.",
        256,
    ),
    _in_token(
        "callers' numbers are flushed at once",
        "PendingCalls.kept",
        "found = sorted(callers, key=lambda origin: (spoke_ns[origin], origin))",
        "found = [origin for origin in callers if now_ns - spoke_ns[origin] <= 0 or origin in self._waiting]",
        "A repeated call is delivered again.",
        16,
    ),
    _in_token(
        "a newcomer does not know the callers' numbers",
        "__init__",
        "numbers = {**view.callers, **view.numbers}",
        "numbers = dict(view.numbers)",
        "A new member delivers a call again, or waits for calls from before its join.",
        32,
    ),
    _in_token(
        "views of a recovery have no callers' numbers",
        "_new_view",
        "callers=callers",
        "callers={}",
        "A repeated call is delivered again.",
        32,
    ),
    _in_token(
        "what a newcomer knows of calls is not asked",
        "_with_members",
        "known[origin] = max(number, known.get(origin, 0))",
        "known[origin] = known.get(origin, 0)",
        "A member delivers a call again that it delivered in another ring.",
        256,
    ),
    _in_token(
        "calls without a seq are forgotten with the ring",
        "memory",
        "return DeliveryMemory(self._ticket, early, self._called, self._recent_calls)",
        "return DeliveryMemory(self._ticket, early, self._called, {})",
        "A repeated UNRELIABLE call is delivered again.",
        256,
    ),
    _in_token(
        "calls that were passed over stay",
        "drop_old",
        "log.drop(origin, number)",
        "",
        "Buffers never become empty.",
        128,
    ),
    _in_token(
        "every member that knows a handler's holder answers",
        "deliver",
        "holder != self._node or self._locks.owner(str(head.handler)) not in (None, self._owner)",
        "holder is None",
        "A call has several answers.",
        16,
    ),
    # Recovery
    _in_token(
        "strong messages of the remainder are left out",
        "ServiceDelivery.recover",
        "self.cleared = self.safe = self._ring.decided = upto",
        "self.safe = self._ring.decided = upto",
        "A survivor does not deliver a message that the others deliver.",
        16,
    ),
    _in_token(
        "one member's rule is enough",
        "Electorate.is_quorum",
        "all(required_members(rule, len(self.members), len(counted), has_first) for rule in self.rules)",
        "any(required_members(rule, len(self.members), len(counted), has_first) for rule in self.rules)",
        "Fewer members go on than some member has asked for.",
        256,
    ),
    _in_token(
        "any half is a quorum",
        "Electorate.is_quorum",
        "has_first = bool(counted) and counted[0] == self.members[0]",
        "has_first = bool(counted)",
        "Two groups of the same name order differently.",
        256,
    ),
)
