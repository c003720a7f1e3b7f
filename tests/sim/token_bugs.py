"""Bugs of the token orderer, of locks, calls and recovery as it uses them: each is one mutation."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import (
    CALLS,
    CHANGES,
    CUTS,
    DELIVERY,
    KEEPER,
    MEMBER_CALLS,
    MEMBER_LOCKS,
    PLACING,
    REFORM,
    TABLE_OF_ROWS,
    TOKEN,
    UNDERLAY,
    Bug,
)


def _in_token(name: str, module: str, old: str, new: str, breaks: str, bound: int) -> Bug:
    return Bug(name, module, old, new, breaks, bound, "token")


# The first test of every block that arrives, which two bugs change.
COMES_BACK: Final = (
    "        if number >= self._orphans.get(origin, 0) and self.view.member(origin) is None:\n"
    "            return  # it has come back, and its join is not here yet\n"
)
ON_ARRIVAL: Final = (
    "        if rank > FIFO_RANK or head.flags & (FRAGMENTED | CHANGE | CALLED) or self.is_frozen or self.has_left:\n"
    "            return\n"
    "        if (origin, number) in self._early or origin not in self._upto:\n"
    "            return\n" + COMES_BACK + "        if rank < FIFO_RANK:\n"
)

TOKEN_BUGS: Final[tuple[Bug, ...]] = (
    # Missing packets and repairs
    _in_token(
        "NACKs are not sent",
        TOKEN,
        "        for tries, missing in wanted.items():\n",
        "        for tries, missing in list(wanted.items())[:0]:\n",
        "who lacks something is taken for dead, or waits for ever",
        128,
    ),
    _in_token(
        "NACKs that name a site are not answered",
        TOKEN,
        "        if target in (0, self.me.id):\n",
        "        if target == 0 and self.is_holding:\n",
        "what is lost is lost for ever",
        8,
    ),
    _in_token(
        "only assignments that came with their ACK are missed",
        TOKEN,
        "            log.highest = max(log.highest, state.highest)\n",
        "            log.highest = max(log.highest, log.received)\n",
        "a lost ACK that nothing follows is never noticed",
        128,
    ),
    _in_token(
        "packets are freed before they are safe",
        DELIVERY,
        "        stable = min(safe, self.delivered)\n",
        "        stable = self.delivered\n",
        "what the slowest member asks for is gone",
        8,
    ),
    _in_token(
        "packets are never freed",
        DELIVERY,
        "        if stable > self.log.stable:\n            me",
        "        if stable < self.log.stable:\n            me",
        "buffers fill, and the group blocks",
        8,
    ),
    # The token
    _in_token(
        "the token is accepted although assignments are missing",
        TOKEN,
        "        if 0 <= self._named_at <= log.received:\n",
        "        if 0 <= self._named_at:\n",
        "assignments are given twice",
        8,
    ),
    _in_token(
        "an earlier pass is taken for a new one",
        TOKEN,
        "        if state.turn > self._turn and not self.has_left:\n",
        "        if state.turn >= self._turn - 1 and not self.has_left:\n",
        "two sites have the token",
        32,
    ),
    _in_token(
        "the token never rests",
        PLACING,
        "        if self._table.round >= log.received:\n            return False\n",
        "",
        "a quiet group sends for ever",
        16,
    ),
    _in_token(
        "an overrun site passes the token on",
        TOKEN,
        "        if not self.is_holding or self._is_overrun():\n",
        "        if not self.is_holding:\n",
        "what waits for a slow application has no bound",
        32,
    ),
    _in_token(
        "nobody is suspected for silence",
        TOKEN,
        "self._detector.suspects(now_ns)",
        "self._detector.suspects(0)",
        "the group waits for the dead",
        32,
    ),
    # Who holds what
    _in_token(
        "a site claims what it has only heard of",
        TOKEN,
        "        log = self.log\n        self._table.learn(self.me.id, log.received)\n        if 0 <=",
        "        log = self.log\n        self._table.learn(self.me.id, log.highest)\n        if 0 <=",
        "packets count as stable that a member lacks",
        64,
    ),
    _in_token(
        "a newcomer's row begins one too high",
        TABLE_OF_ROWS,
        "            self._rows[member] = view.seq\n",
        "            self._rows[member] = view.seq + 1\n",
        "the first packet for a newcomer counts as received",
        32,
    ),
    _in_token(
        "who left stays in the table",
        TABLE_OF_ROWS,
        "        if self._rows.get(self._leaver, self._leaves_at) >= self._leaves_at:\n",
        "        if self._rows.get(self._leaver, self._leaves_at) > self._leaves_at:\n",
        "a leaver is waited for, and taken for dead",
        128,
    ),
    # When a message is delivered
    _in_token(
        "UNRELIABLE duplicates are delivered",
        DELIVERY,
        "        if not recent.is_new(number):\n            return False\n",
        "        recent.is_new(number)\n",
        "UNRELIABLE: at most once",
        64,
    ),
    _in_token(
        "RELIABLE is delivered on arrival and at its seq",
        DELIVERY,
        "                if early and early.pop((origin, number), None) is not None:\n",
        "                if early and early.pop((origin, number), None) == 0:\n",
        "RELIABLE: once",
        16,
    ),
    _in_token(
        "what was delivered early is forgotten with the ring",
        DELIVERY,
        "        self._early = kept\n",
        "        self._early = {}\n",
        "RELIABLE and FIFO: once, also where the ring is re-formed",
        32,
    ),
    _in_token(
        "FIFO does not wait for the packets before it",
        DELIVERY,
        "        elif number == self._upto[origin]:\n            self._follow_up(origin)\n",
        "        else:\n            self._deliver_early(origin, number, block)\n",
        "FIFO: in the order sent",
        32,
    ),
    _in_token(
        "CAUSAL is delivered like FIFO",
        DELIVERY,
        ON_ARRIVAL,
        "        if rank > FIFO_RANK + 1 or head.flags & (FRAGMENTED | CHANGE | CALLED) or self.is_frozen:\n"
        "            return\n        if (origin, number) in self._early or origin not in self._upto:\n"
        "            return\n"
        + COMES_BACK
        + "        if rank < FIFO_RANK or (rank > FIFO_RANK and number == self._upto[origin]):\n",
        "CAUSAL: after what its sender knew",
        128,
    ),
    _in_token(
        "AGREED is delivered on arrival",
        DELIVERY,
        ON_ARRIVAL,
        "        if rank > AGREED_RANK or head.flags & (FRAGMENTED | CHANGE | CALLED) or self.is_frozen:\n"
        "            return\n        if (origin, number) in self._early or origin not in self._upto:\n"
        "            return\n" + COMES_BACK + "        if rank != FIFO_RANK:\n",
        "AGREED: in one order",
        8,
    ),
    _in_token(
        "RESILIENT is content with one holder less",
        DELIVERY,
        "            return holders >= min(entry.head[3], len(self.view.members) - 1)\n",
        "            return holders + 1 >= min(entry.head[3], len(self.view.members) - 1)\n",
        "RESILIENT(k): k others hold it",
        16,
    ),
    _in_token(
        "MAJORITY is content with half",
        DELIVERY,
        "        return 2 * (holders + 1) > table.max_n\n",
        "        return 2 * (holders + 1) >= table.max_n\n",
        "MAJORITY: more than half hold it",
        16,
    ),
    _in_token(
        "SAFE is content with all but one",
        DELIVERY,
        "        if entry.rank == SAFE_RANK:\n            return False\n",
        "        if entry.rank == SAFE_RANK:\n            return table.holders(seq) >= len(self.view.members) - 2\n",
        "SAFE: everybody holds it",
        16,
    ),
    _in_token(
        "tickets begin anew with the ring",
        DELIVERY,
        "        self._ticket = max(self._ticket, memory.ticket)\n",
        "        self._ticket += 0\n",
        "what the application gives back is not known, and the token waits for it",
        128,
    ),
    # Members without multicast
    _in_token(
        "members without multicast get no copies",
        UNDERLAY,
        "        return self._routes.copies\n",
        "        return []\n",
        "they hear nothing, and are taken for dead",
        32,
    ),
    _in_token(
        "who forwards multicasts nothing",
        UNDERLAY,
        "            out.sends.append(Send(To.MULTICAST, (data,), stride))\n",
        "",
        "nobody hears members without multicast",
        64,
    ),
    # Changes
    _in_token(
        "a change is ordered while strong messages are not safe",
        PLACING,
        "        if not changes or safe < self._last_change or safe < self._last_safe_seq:\n",
        "        if not changes or safe < self._last_change:\n",
        "what stands before a view is delivered before its members have it",
        32,
    ),
    _in_token(
        "a lock is granted while it is held",
        CHANGES,
        "        is_new = holder is None and len(locks)",
        "        is_new = len(locks)",
        "a lock has one holder",
        16,
    ),
    _in_token(
        "who is denied a lock is not told",
        KEEPER,
        "        elif view.reason == Reason.LOCK and view.subject == str(self.me):\n",
        '        elif view.reason == Reason.LOCK and view.subject == "":\n',
        "it waits for ever",
        16,
    ),
    _in_token(
        "a leaver keeps its locks",
        CHANGES,
        "        locks={lock: holder for lock, holder in view.locks.items() if holder in present_ids},\n",
        "        locks=dict(view.locks),\n",
        "nobody gets them any more",
        64,
    ),
    _in_token(
        "the dead keep their locks",
        REFORM,
        "            locks={lock: holder for lock, holder in base.locks.items() if holder in present},\n",
        "            locks=dict(base.locks),\n",
        "nobody gets them any more",
        256,
    ),
    _in_token(
        "requests for locks that a recovery lost are not made again",
        MEMBER_LOCKS,
        "                elif lock.stage is Stage.RELEASED or (lock.stage is Stage.ASKED and is_reset):\n",
        "                elif lock.stage is Stage.RELEASED:\n",
        "they wait for ever",
        16,
    ),
    # Calls from outside
    _in_token(
        "nobody acknowledges calls",
        CALLS,
        "        self._mine[origin, number] = None\n",
        "        self._mine.pop((origin, number), None)\n",
        "callers wait in vain",
        16,
    ),
    _in_token(
        "a call is acknowledged as soon as it has its seq",
        TOKEN,
        "            if log.seq_of(origin, number) > self.delivered:\n"
        "                return True  # its answer follows its delivery\n",
        "",
        "an acknowledgement says that the service holds",
        128,
    ),
    _in_token(
        "calls do not wait for those that they need",
        CALLS,
        "            elif needs_of(block) <= expected or self._begins.get(origin) == number:\n",
        "            elif needs_of(block) <= number:\n",
        "a call is left out, and acknowledged",
        64,
    ),
    _in_token(
        "callers' numbers are flushed at once",
        CALLS,
        "now_ns - placed[origin] <= flush_ns or",
        "now_ns - placed[origin] <= 0 or",
        "a call is delivered again when it comes again",
        16,
    ),
    _in_token(
        "a newcomer does not know the callers' numbers",
        KEEPER,
        "        numbers = {**view.callers, **view.numbers}\n",
        "        numbers = dict(view.numbers)\n",
        "it delivers a call again, or waits for calls before its time",
        32,
    ),
    _in_token(
        "views of a recovery have no callers' numbers",
        REFORM,
        "            callers=callers,\n",
        "            callers={},\n",
        "a call is delivered again when it comes again",
        32,
    ),
    _in_token(
        "what a newcomer knows of calls is not asked",
        CHANGES,
        "        known[origin] = max(number, known.get(origin, 0))\n",
        "        known[origin] = known.get(origin, 0)\n",
        "a call comes again to who delivered it in another ring",
        256,
    ),
    _in_token(
        "calls without a seq are forgotten with the ring",
        DELIVERY,
        "        return DeliveryMemory(self._ticket, early, self._called, recent)\n",
        "        return DeliveryMemory(self._ticket, early, self._called, {})\n",
        "an UNRELIABLE call that comes again is delivered again",
        128,
    ),
    _in_token(
        "calls that were passed over stay",
        CALLS,
        "            waiting.discard(number)\n            log.drop(origin, number)\n        if not waiting:\n"
        "            del self._waiting[origin]\n\n    def origins",
        "            waiting.discard(number)\n        if not waiting:\n"
        "            del self._waiting[origin]\n\n    def origins",
        "buffers are never empty again",
        128,
    ),
    _in_token(
        "whoever knows a handler's holder answers",
        MEMBER_CALLS,
        "        if holder != self._me.id:\n",
        "        if holder is None:\n",
        "a call has one answer",
        16,
    ),
    # Recovery
    _in_token(
        "strong messages of the remainder are left out",
        DELIVERY,
        "        self._cleared = upto\n        super()",
        "        self._cleared = 0\n        super()",
        "a survivor does not deliver what the others do",
        16,
    ),
    _in_token(
        "what the dead had asked for does not count",
        REFORM,
        "            rules += [member.min_members for member in base.members]",
        "            rules += [member.min_members for member in base.members if member.id in self._cuts]",
        "too few go on",
        128,
    ),
    _in_token(
        "both halves of a group go on",
        CUTS,
        "            if not required_members(rule, len(members), len(present), members[0] in counted):\n",
        "            if not required_members(rule, len(members), len(present), True):\n",
        "two groups of one name order differently",
        256,
    ),
    _in_token(
        "a change counts as known to all",
        CUTS,
        "    if not change_is_known and base.prior:\n",
        "    if not change_is_known and not base.prior:\n",
        "two parts have a majority, each of another view",
        128,
    ),
)
