"""What every part of the quorum membership knows of its own node, and what its application asked for."""

from __future__ import annotations

import random
from typing import NamedTuple

from ordercast.config import AlonePolicy, Demands, MinMembers, Timing
from ordercast.engine import Departed
from ordercast.errors import WireError
from ordercast.membership.policy import DepartureCause
from ordercast.parts.probing import Probing
from ordercast.view import MAY_RETURN, Address, Member, Reason, View
from ordercast.wire.views import decode_address
from ordercast.wire.writer import DatagramWriter


class LocalMember(NamedTuple):
    """This node in one underlay. `name` is the underlay's."""

    name: str
    me: Member
    writer: DatagramWriter
    timing: Timing
    rng: random.Random
    probing: Probing  # is told whose word a recovery waits for, and knows which processes are gone


class Wishes(NamedTuple):
    """What the application asked for when it joined."""

    create: bool | None = None  # True: the group must be new; False: it must exist; None: either
    min_members: MinMembers = "majority"
    is_manual: bool = False  # recovery waits for reset()
    demands: Demands = Demands()
    header: bytes = b""
    contact: Address | None = None  # a member through which the group is joined (RMP section 3.3)
    is_shared: bool = False  # as an underlay that carries many groups
    alone: AlonePolicy = "create"  # what a member that was put out does where nobody answers it


def installed_text(view: View, old: View | None = None) -> str:
    """A view for people, as the trace has it; after a failure, with the members of the view before that are out."""
    members = ", ".join(map(str, view.members))
    gone = [str(member) for member in old.members if view.member(member.id) is None] if old is not None else []
    without = f"; without {', '.join(gone)}" if gone else ""
    return f"view {view.id} installed: {view.reason.name.lower()} of {view.subject}; members {members}{without}"


def departed_by(view: View, was_leaving: bool, is_manual: bool) -> Departed:
    """How a view without this node ends its membership: by its own leave, or because the others expelled it. A member
    that was evicted comes back when its application receives again. One that `Group.expel` has put out does not, nor
    one whose application recovers by itself: that is out for good after every exclusion."""
    if view.reason != Reason.EXPEL:
        return Departed(True, False, DepartureCause.LEFT.value)
    may_return = view.serial == MAY_RETURN and not was_leaving and not is_manual
    return Departed(was_leaving, may_return, view.header.decode(errors="replace"), may_return)


def onward_of(view: View) -> Address | None:
    """Where the members of a ring that ends are to go; None where its last member left: the header is its own then."""
    try:
        return decode_address(view.header)
    except WireError:
        return None


def coming_along(view: View) -> tuple[int, ...]:
    """The members of a view after a failure that come from the ring before. One that was restarted comes anew, and
    brings no blocks of its former life."""
    return tuple([each.id for each in view.members if view.reason != Reason.RESTART or each.id in view.awaited])
