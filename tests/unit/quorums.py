"""Views, cuts, proposals and members for tests of the quorum rule."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from ordercast.config import LAN_DATAGRAM, GroupConfig, MinMembers, Timing
from ordercast.engine import Outbox
from ordercast.membership.quorum.local import LocalMember
from ordercast.orderers import ORDERERS, LoggedOrderer
from ordercast.orderers.orderer import Start
from ordercast.parts.probing import Probing
from ordercast.view import GROUP_ORIGIN, Address, Member, Reason, View, node_id
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.views import Ballot, Cut, Proposal, pack_change
from ordercast.wire.writer import DatagramWriter

NAMES: Final = "abcdefg"
A, B, C, D, E, F, G = (node_id(name, 0) for name in NAMES)
LAST_SEQ: Final = 10  # of the change that made the view of `view_of`


def local_member(me: Member, writer: DatagramWriter, timing: Timing) -> LocalMember:
    return LocalMember("g", me, writer, timing, random.Random(1), Probing(writer, timing, random.Random(2)))


def member_of(name: str, rule: MinMembers = "majority") -> Member:
    return Member(node_id(name, 0), name, 0, (f"10.0.0.{ord(name)}", 7_000), min_members=rule)


def view_of(
    names: str,
    prior: str = "",
    reason: Reason = Reason.CREATE,
    creator: str = "a",
    rules: dict[str, MinMembers] | None = None,
    subject: str = "",
) -> View:
    """The view of the members of these names. `prior`: it was made by a change of the view of those."""
    asked = rules or {}
    before = tuple(member_of(name, asked.get(name, "majority")) for name in prior)
    return View(
        counter=4,
        creator=f"{creator}/0",
        ring=5,
        incarnation=0,
        seq=LAST_SEQ,
        position=0,
        members=tuple(member_of(name, asked.get(name, "majority")) for name in names),
        numbers={node_id(name, 0): 0 for name in names},
        reason=reason,
        subject=subject or f"{creator}/0",
        prior=tuple(member.id for member in before),
        prior_rules=tuple(member.min_members for member in before),
    )


def joined(names: str, prior: str, creator: str = "a", rules: dict[str, MinMembers] | None = None) -> View:
    """The view that the join of the last of `names` made."""
    return view_of(names, prior, Reason.JOIN, creator, rules, f"{names[-1]}/0")


def left(names: str, prior: str, creator: str = "a", rules: dict[str, MinMembers] | None = None) -> View:
    """The view that a leave made."""
    gone = next(name for name in prior if name not in names)
    return view_of(names, prior, Reason.LEAVE, creator, rules, f"{gone}/0")


def cut_of(view: View, decided: int = 0, accepted: Proposal | None = None, received: int = LAST_SEQ) -> Cut:
    return Cut(received, decided, (), (), view, 0, accepted)


def proposal_of(round_: int, coordinator: str, names: str, fresh: bool = True) -> Proposal:
    ballot = Ballot(round_, LAST_SEQ, 0, node_id(coordinator, 0))
    return Proposal(ballot, fresh, LAST_SEQ, (), view_of(names, reason=Reason.RESET, creator=coordinator))


class Party:
    """A member of a ring of the sequencer, and what it sends. `first`: the view that the ring begins with for it."""

    def __init__(self, name: str, first: View) -> None:
        self.me = member_of(name)
        self.out = Outbox()
        self.writer = DatagramWriter(1, self.me.id, LAN_DATAGRAM)
        self.writer.ring = first.ring
        self.local = local_member(self.me, self.writer, Timing())
        self.orderer: LoggedOrderer = ORDERERS["sequencer"](
            self.me, self.writer, GroupConfig("sequencer"), Timing(), first, 0, first.counter, {}
        )
        self.orderer.install(0, Start(), Outbox())

    def receive(self, view: View) -> None:
        """The change that makes a view comes in, from whichever member ordered it."""
        log = self.orderer.log
        assert log.hold(GROUP_ORIGIN, view.seq, pack_change(view))
        assert log.assign(view.seq, GROUP_ORIGIN, view.seq)
        self.orderer.after_batch(0, Outbox())
        assert self.orderer.view == view

    def sent(self) -> list[tuple[Address, Kind, bytes]]:
        """What was sent since the last call: to, kind and body."""
        found = []
        for to, buffers, _ in self.out.sends:
            data = b"".join(buffers)
            found.append((to, Kind(data[1]), data[HEADER_BYTES:]))
        self.out.sends.clear()
        return found


def party_of(name: str, change: View) -> Party:
    """A member that has received a change; a newcomer begins with it."""
    first = next((each for each in change.members if str(each) == change.subject), None)
    if change.reason == Reason.JOIN and first is not None and first.name == name:
        return Party(name, change)
    by_id = {node_id(each, 0): each for each in NAMES}
    before = view_of("".join(by_id[member] for member in change.prior), reason=Reason.RESET)
    party = Party(name, replace(before, seq=LAST_SEQ - 1, counter=3))
    party.receive(change)
    return party
