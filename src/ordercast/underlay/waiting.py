"""What an underlay waits for: a return after a restart and the membership answer first, then the orderer of a ring that
works."""

from __future__ import annotations

from ordercast.engine import StallReason, Waiting
from ordercast.membership.policy import Membership
from ordercast.membership.quorum.returning import Returning
from ordercast.membership.quorum.waiting import return_waits
from ordercast.orderers import LoggedOrderer
from ordercast.underlay.vacancy import Vacancy


def underlay_waits(
    now_ns: int,
    name: str,
    is_in: bool,
    short: tuple[int, int] | None,
    returning: Returning | None,
    membership: Membership[LoggedOrderer],
    orderer: LoggedOrderer | Vacancy,
) -> Waiting | None:
    """`is_in`: the application has a view. `short`: members that there are, and that the group needs to begin."""
    if returning is not None:
        return return_waits(now_ns, returning)
    found = membership.waiting()
    if found is not None or not membership.is_whole:
        return found
    if short is not None:
        have, need = short
        text = f"the group begins with {need} members, and has {have}"
        return Waiting(StallReason.BOOTSTRAP, (), text, have, need)
    found = orderer.blocked_by(now_ns)
    if found is None and not is_in:
        leader = str(orderer.view.leader)
        text = f"{leader} leads a ring of {name!r} that let this node in, and it cannot go on there yet"
        found = Waiting(StallReason.JOIN, (leader,), text)
    return found
