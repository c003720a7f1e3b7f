"""The view that a change makes: Amoeba's JoinGroup and LeaveGroup (section 3), RMP's New List (section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ordercast.config import members_needed
from ordercast.engine import Change
from ordercast.view import Member, Reason, View
from ordercast.wire.views import MAX_LOCKS

MEMBERSHIP = frozenset((Reason.JOIN, Reason.LEAVE, Reason.DISSOLVE))


def next_view(
    view: View,
    change: Change,
    counter: int,
    max_members: int,
    seq: int,
    position: int,
    next_number: Mapping[int, int],
    callers: Mapping[int, int],
    me: Member,
    after: int = 0,
) -> View | None:
    """The view that a change makes; None where it changes nothing (any more).

    A newcomer comes directly after the member `after`, at the end where that is none. What is denied, or concerns no
    member, makes the same view once more: same id, same members and locks, at its own sequence number.
    """
    if change.reason in MEMBERSHIP:
        return _with_members(view, change, counter, max_members, seq, position, next_number, callers, me, after)
    locks, tokens = dict(view.locks), dict(view.tokens)
    holder, member = locks.get(change.lock), change.member.id
    if change.reason == Reason.LOCK:
        is_new = holder is None and len(locks) < MAX_LOCKS and _may_lock(view, member)
        if is_new:
            locks[change.lock] = member
            tokens[change.lock] = counter
    else:
        is_new = change.reason == Reason.UNLOCK and holder == member
        if is_new:
            del locks[change.lock]
            tokens.pop(change.lock, None)
    return replace(
        view,
        counter=counter if is_new else view.counter,
        creator=str(me) if is_new else view.creator,
        seq=seq,
        position=position,
        numbers=dict(next_number),
        reason=change.reason,
        subject=str(change.member),
        header=b"",
        prior=tuple(member.id for member in view.members) if is_new else (),
        prior_rules=tuple(member.min_members for member in view.members) if is_new else (),
        came_with=(),
        locks=locks,
        tokens=tokens,
        callers=dict(callers),
        awaited={},
        lock=change.lock,
        serial=change.serial,
    )


def _may_lock(view: View, member: int) -> bool:
    """Whether a member may get a lock: it is in the view, and the view is large enough for it. It asked in a view that
    was; a leave may have been ordered since. Bootstrap needs no second look: once reached, it stays so in the chain."""
    asker = view.member(member)
    return asker is not None and len(view.members) >= members_needed(asker.min_members)


def _with_members(
    view: View,
    change: Change,
    counter: int,
    max_members: int,
    seq: int,
    position: int,
    next_number: Mapping[int, int],
    callers: Mapping[int, int],
    me: Member,
    after: int,
) -> View | None:
    members = view.members
    present = view.member(change.member.id) is not None
    if change.reason == Reason.JOIN:
        if present or len(members) >= max_members:
            return None
        at = view.index(after) + 1 or len(members)
        members = (*members[:at], change.member, *members[at:])
    elif change.reason == Reason.LEAVE:
        if not present:
            return None
        # The last leaver dissolves the group: no member is left, and a view is never empty.
        members = tuple(member for member in members if member.id != change.member.id) or members
    # Those of senders that are gone too: what they left behind may still be ordered.
    numbers = dict(next_number)
    if change.reason == Reason.JOIN:
        numbers[change.member.id] = max(change.next_block, next_number.get(change.member.id, 0))
    is_last = change.reason == Reason.LEAVE and len(view.members) == 1
    present_ids = {member.id for member in members}
    known = dict(callers)
    for origin, number in change.callers.items():
        # It was delivered to the newcomer in another ring of the group: here it must not be ordered again.
        known[origin] = max(number, known.get(origin, 0))
    return View(
        counter,
        str(me),
        view.ring,
        view.incarnation,
        seq,
        position,
        members,
        numbers,
        Reason.DISSOLVE if is_last else change.reason,
        str(change.member),
        change.header,
        tuple(member.id for member in view.members),
        tuple(member.min_members for member in view.members),
        locks={lock: holder for lock, holder in view.locks.items() if holder in present_ids},
        tokens={lock: token for lock, token in view.tokens.items() if view.locks.get(lock) in present_ids},
        largest_before=view.largest,
        callers={origin: number for origin, number in known.items() if origin not in present_ids},
        serial=change.serial,
    )
