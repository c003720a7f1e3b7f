"""Bugs of groups that wait for members, and of fencing tokens: planted into the scenarios of the profile gathering."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

PROFILE: Final = "gathering"


def _bug(name: str, function: str, old: str, new: str, breaks: str, bound: int, orderer: str = "token") -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, PROFILE)


GATHERING_BUGS: Final[tuple[Bug, ...]] = (
    # How many members it takes
    _bug(
        "bootstrap is ignored",
        "members_needed",
        "max(least, bootstrap) if largest < bootstrap else least",
        "least",
        "The first member sends to a group that has not begun.",
        30,
        "sequencer",
    ),
    _bug(
        "a number is for recoveries only",
        "members_needed",
        "least = rule if isinstance(rule, int) else 1",
        "least = 1",
        "A member confirms in a view that is smaller than it asked for.",
        20,
        "timestamp",
    ),
    _bug(
        "one member less is enough",
        "View.shortage",
        "(len(self.members), need) if len(self.members) < need else None",
        "(len(self.members), need) if len(self.members) < need - 1 else None",
        "A group of two takes messages where three were asked for.",
        10,
        "sequencer",
    ),
    _bug(
        "a group that shrinks waits for its bootstrap again",
        "_with_members",
        "largest_before=view.largest",
        "largest_before=0",
        "After a leave nobody takes messages.",
        20,
        "timestamp",
    ),
    _bug(
        "a recovery forgets that the group has begun",
        "Coordinator._new_view",
        "largest_before=base.largest",
        "largest_before=0",
        "The survivors of a crash take no messages.",
        100,
        "sequencer",
    ),
    _bug(
        "newcomers are not told that the group has begun",
        "encode_view",
        "writer.u16(view.largest_before)",
        "writer.u16(0)",
        "A member that comes into a small group never sends.",
        60,
    ),
    _bug(
        "a channel that waits for members waits for good",
        "Channel._on_view",
        "stream.is_short = is_short and not stream.is_system",
        "stream.is_short = stream.is_short or (is_short and not stream.is_system)",
        "What was queued before the last member came is never sent.",
        10,
        "timestamp",
    ),
    # What has to wait for them
    _bug(
        "locks do not wait for the bootstrap",
        "Underlay.lock",
        "if self.short_of() is not None:\n    out.upcalls.append(Denied(lock))\nelse:\n"
        "    self._propose_lock(now_ns, Reason.LOCK, lock)",
        "self._propose_lock(now_ns, Reason.LOCK, lock)",
        "A lone member holds a lock.",
        20,
    ),
    _bug(
        "a lock is granted although members have left",
        "_may_lock",
        "asker is not None and len(view.members) >= members_needed(asker.min_members)",
        "asker is not None",
        "A request that was made in time is granted in a view that is too small.",
        20,
    ),
    _bug(
        "messages under way are confirmed although members have left",
        "Stream.delivered",
        "self.is_short",
        "False",
        "A send is confirmed in a view that is too small.",
        150,
        "sequencer",
    ),
    _bug(
        "calls do not wait for the bootstrap",
        "Outside.on_call",
        "not membership.is_whole or membership.phase is not Phase.MEMBER or is_short",
        "not membership.is_whole or membership.phase is not Phase.MEMBER",
        "A call from outside is carried out by a group that has not begun.",
        50,
    ),
    # Fencing tokens
    _bug(
        "tokens count members",
        "next_view",
        "tokens[change.lock] = counter",
        "tokens[change.lock] = len(view.members)",
        "The next holder has the token of the one before.",
        10,
    ),
    _bug(
        "a join or a leave loses the tokens",
        "_with_members",
        "tokens={lock: token for lock, token in view.tokens.items() if view.locks.get(lock) in present_ids}",
        "tokens={}",
        "A lock that is held has another token in the next view.",
        20,
    ),
    _bug(
        "a recovery loses the tokens",
        "Coordinator._new_view",
        "tokens={lock: token for lock, token in base.tokens.items() if base.locks.get(lock) in present}",
        "tokens={}",
        "A lock that is held through a crash has another token afterwards.",
        60,
    ),
)
