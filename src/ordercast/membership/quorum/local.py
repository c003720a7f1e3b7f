"""What every part of the quorum membership knows of its own node, and what its application asked for."""

from __future__ import annotations

import random
from typing import NamedTuple

from ordercast.config import AlonePolicy, Demands, MinMembers, Timing
from ordercast.view import Address, Member, View
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


def installed_text(view: View, old: View | None = None) -> str:
    """A view for people, as the trace has it. `old`: after a failure, the view before; it says which members are out."""
    members = ", ".join(map(str, view.members))
    gone = [str(member) for member in old.members if view.member(member.id) is None] if old is not None else []
    without = f"; without {', '.join(gone)}" if gone else ""
    return f"view {view.id} installed: {view.reason.name.lower()} of {view.subject}; members {members}{without}"
