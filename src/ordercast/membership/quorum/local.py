"""What every part of the quorum membership knows of its own node, and what its application asked for."""

from __future__ import annotations

import random
from typing import NamedTuple

from ordercast.config import AlonePolicy, Demands, MinMembers, Timing
from ordercast.view import Address, Member, Reason, View
from ordercast.wire.writer import DatagramWriter


class LocalMember(NamedTuple):
    """This node in one underlay. `name` is the underlay's."""

    name: str
    me: Member
    writer: DatagramWriter
    timing: Timing
    rng: random.Random


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


def installed_text(view: View) -> str:
    """A view for people, as the trace has it."""
    members = ", ".join(map(str, view.members))
    return f"view {view.id} installed: {view.reason.name.lower()} of {view.subject}; members {members}"


def coming_along(view: View) -> tuple[int, ...]:
    """The members of a view after a failure that come from the ring before. One that was restarted comes anew, and
    brings no blocks of its former life."""
    return tuple([each.id for each in view.members if view.reason != Reason.RESTART or each.id in view.awaited])
