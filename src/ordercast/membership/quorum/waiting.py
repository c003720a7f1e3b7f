"""What a node waits for that is not in a ring that works, or whose last change is not decided: in words, for people.

Nothing is decided here. The parts of the membership say what they have and what they lack; these are pure functions of
that, asked when something has made no progress for a second (docs/design/stalled.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from ordercast.config import required_members
from ordercast.engine import StallReason, Waiting
from ordercast.membership.quorum.joining import Joining
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.recovery import Recovery
from ordercast.membership.quorum.returning import Returning
from ordercast.membership.quorum.ring import QuorumRing
from ordercast.membership.quorum.roles import Role
from ordercast.membership.quorum.rule import Electorate, electorate, electorate_before
from ordercast.view import Member, View, id_of


def waiting_of(local: LocalMember, joining: Joining | None, state: QuorumRing | None) -> Waiting | None:
    """What keeps a node from being in a ring that works; None where it is in one and nothing is undecided."""
    if joining is not None:
        return join_waits(local.name, joining)
    if state is None:
        return None
    if state.recovery is not None:
        return recovery_waits(state.orderer.view, local.me, state.recovery)
    return change_waits(state)


def join_waits(name: str, joining: Joining) -> Waiting:
    """A newcomer, or a member on its way back."""
    if joining.leader is not None:
        text = f"{joining.leader} was asked to let this node into {name!r}, and has not done so yet"
        return Waiting(StallReason.JOIN, (str(joining.leader),), text)
    if joining.frozen is not None:
        text = f"{joining.frozen} answers that {name!r} does not work at present: this node comes in when it does"
        return Waiting(StallReason.JOIN, (str(joining.frozen),), text)
    asked = joining.ask_whom
    whom = " and ".join(asked) if asked else "no member"
    verb = "does not answer" if asked else "answers"
    return Waiting(StallReason.JOIN, (), f"{whom} {verb} as a member of {name!r}")


def recovery_waits(view: View, me: Member, recovery: Recovery) -> Waiting:
    """A member of a ring that is frozen."""
    own = recovery.own_round
    known = {member.id: member for member in view.members}
    if recovery.role is Role.FAILED:
        return Waiting(StallReason.FAILED, (), "the group has failed; reset() re-forms it")
    if own is not None:
        known.update(own.invitees)
        if own.is_patient:
            missing = shortfall(own.electorates, set(own.answered), known)
            if missing is not None:
                return missing
        silent = names_of([member for member in own.silent if member != me.id], known)
        text = f"the group is being re-formed by this node; waiting for {' and '.join(silent) or 'its members'}"
        return Waiting(StallReason.RECOVERY, silent, text)
    if recovery.answered:
        missing = shortfall([electorate(view)], {me.id, *recovery.answered}, known)
        if missing is not None:
            return missing
    coordinator = names_of([recovery.coordinator_id] if recovery.coordinator_id != me.id else [], known)
    text = f"the group is being re-formed by {' and '.join(coordinator) or 'another member'}"
    return Waiting(StallReason.RECOVERY, coordinator, text)


def return_waits(now_ns: int, returning: Returning) -> Waiting:
    """A member that was restarted with its folder."""
    view = returning.kept.view
    electorates, last = returning.electorates()
    known: dict[int, Member | str] = {id_of(last.subject): last.subject}  # it may have left, and still have a vote
    known.update({member.id: member for member in (*view.members, *last.members)})
    coordinator, present = returning.coordinator(now_ns), returning.present(now_ns)
    if coordinator and coordinator in known:
        text = f"this node was restarted, and the group is being re-formed by {known[coordinator]}"
        return Waiting(StallReason.RECOVERY, (str(known[coordinator]),), text)
    missing = shortfall(electorates, present, known) if returning.is_patient(now_ns) else None
    if missing is not None:
        return missing
    silent = names_of([member.id for member in last.members if member.id not in present], known)
    text = (
        f"this node was restarted, and comes back from view {view.id}; waiting for {' and '.join(silent) or 'a result'}"
    )
    return Waiting(StallReason.RECOVERY, silent, text)


def change_waits(state: QuorumRing) -> Waiting | None:
    """A member of a ring that works, and whose last change is not known to be decided."""
    view = state.deciding.undecided
    if view is None:
        return None
    known = {member.id: member for member in view.members}
    leaver = state.orderer.leaver
    if leaver is not None:
        known[leaver.id] = leaver
    voters, holders = electorate_before(view), state.deciding.holders
    missing = names_of([member for member in voters.members if member not in holders], known)
    what = f"{view.reason.name.lower()} of {view.subject}"
    text = f"the {what} is not decided; no word from {' and '.join(missing) or str(known.get(id_of(view.creator)))}"
    counted = len(voters.members) - len(missing)
    return Waiting(StallReason.NETWORK, missing, text, counted, least(voters, holders))


def shortfall(
    electorates: Iterable[Electorate], present: AbstractSet[int], known: Mapping[int, Member | str]
) -> Waiting | None:
    """The first of these views of which the members that answer are no quorum."""
    for voters in electorates:
        if not voters.is_quorum(present):
            missing = names_of([member for member in voters.members if member not in present], known)
            have, need = len(voters.members) - len(missing), least(voters, present)
            text = (
                f"{have} of {len(voters.members)} members answer, and {need} are needed; missing: "
                f"{', '.join(missing)}. The group goes on when enough of them are back"
            )
            return Waiting(StallReason.NO_QUORUM, missing, text, have, need)
    return None


def least(voters: Electorate, present: AbstractSet[int]) -> int:
    """How many of these members are a quorum, if those that are present are among them."""
    size = len(voters.members)
    has_first = bool(voters.members) and voters.members[0] in present
    enough = (
        count
        for count in range(1, size + 1)
        if all(required_members(rule, size, count, has_first) for rule in voters.rules)
    )
    return next(enough, size)


def names_of(members: Iterable[int], known: Mapping[int, Member | str]) -> tuple[str, ...]:
    """As name/life; by number where nobody here knows the name."""
    return tuple(str(known[member]) if member in known else f"{member:016x}" for member in members)
