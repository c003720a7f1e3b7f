"""Groups that hostile bytes are sent to: what the tests of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from tests.property.wiretap import Lab, Seen

from ordercast.config import MS, SECOND
from ordercast.service import AGREED
from ordercast.sim.checkers import check_all
from ordercast.sim.scenario import LockUse
from ordercast.view import View, group_tag
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind

ORDERERS = ("sequencer", "token", "timestamp")
CALLED_BY = {"token": "x"}  # who takes calls from outside, and so has somebody who makes them
STRANGER = ("192.0.2.1", 9)
TAG = group_tag("sim")
FAR = 1 << 60
STRIDES = (0, 1, 7, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, 100, 600, 70_000)
MEETING = (Kind.FIND, Kind.HERE, Kind.JOIN, Kind.WELCOME, Kind.REFUSE, Kind.BEACON, Kind.CALL)
"""How strangers meet: another group's are not to be dropped."""

MEMBERSHIP = {"FIND", "JOIN", "WELCOME", "BEACON", "INVITE", "CUT", "RESULT", "RESULT_ACK", "COMMIT"}
ORDERING = {
    "sequencer": {"DATA", "REQUEST", "ORDERED", "ACCEPT", "REPAIR", "NAK", "ACK", "SYNC", "HELD", "PROPOSE"},
    "token": {
        "DATA",
        "UNRELIABLE",
        "TOKEN",
        "LIST",
        "CONFIRM",
        "SYNC",
        "NAK",
        "REPAIR",
        "ACCEPT",
        "PROPOSE",
        "CALL",
        "REPLY",
    },
    "timestamp": {"DATA", "STAMPS", "DECISION", "LIST", "SYNC", "NAK", "REPAIR", "ACCEPT", "PROPOSE"},
}


def formed(seed: str, orderer: str, nodes: str = "abc") -> Lab:
    lab = Lab(seed, orderer=orderer, nodes=nodes)
    lab.form()
    return lab


def working(orderer: str) -> Iterator[Lab]:
    """A group that works; afterwards it must work still, and its trace must hold."""
    lab = formed("hostile", orderer)
    views = [member.view for member in lab.members]
    yield lab
    before = [member.delivered for member in lab.members]
    for member in lab.members:
        member.send(2, AGREED, 100)
    lab.run(2 * SECOND)
    assert [member.delivered - count for member, count in zip(lab.members, before, strict=True)] == [6, 6, 6]
    assert [member.view for member in lab.members] == views, "nobody was thrown out"
    assert not lab.cluster.run_to_rest(lab.world.now_ns + 20 * SECOND)
    verdict = check_all(lab.world.rows(), clock="virtual", quiet=True)
    assert not verdict.violations, "\n".join(verdict.summary())


def still_works(lab: Lab) -> bool:
    """Whether all come together in one view again, and a message of each reaches all."""
    lab.run(20 * SECOND)
    before = [member.delivered for member in lab.members]
    for member in lab.members:
        member.send(1, AGREED, 100)
    lab.run(20 * SECOND)
    views = {member.view.id for member in lab.members if member.view is not None}
    return len(views) == 1 and all(
        member.delivered >= count + 3 for member, count in zip(lab.members, before, strict=True)
    )


@cache
def traffic_of(orderer: str) -> list[Seen]:
    """What crossed the wire of another group of the same name: joins, all services, losses, a leave, a recovery; calls
    and locks where there are any."""
    lab = Lab("t0", nodes="abcd", orderer=orderer, callers=CALLED_BY.get(orderer, ""))
    lab.form(1_234 * MS)
    if orderer == "token":
        lab.members[1].holding.want(LockUse("b", "2", 0, SECOND))
        lab.members[2].holding.want(LockUse("c", "2", 0, SECOND))
        lab.chatter()
    lab.tap.set_model(replace(lab.tap.model, loss=0.1))
    lab.chatter()
    lab.chatter()
    lab.members[3].leave()
    lab.run(500 * MS)
    lab.world.crash("a" if orderer == "token" else lab.members[0].view.leader.name)  # type: ignore[union-attr]
    lab.chatter()
    lab.run(5 * SECOND)
    kinds = {Kind(seen.kind).name for seen in lab.tap.seen}
    assert kinds >= ORDERING[orderer] | MEMBERSHIP, (ORDERING[orderer] | MEMBERSHIP) - kinds
    return lab.tap.seen


def view_of(lab: Lab) -> View:
    view = lab.members[0].view
    assert view is not None
    return view


def from_member(lab: Lab, kind: int, body: bytes, number: int = 0) -> bytes:
    """A datagram of member b."""
    host = lab.members[1].host
    assert host is not None
    return HEADER.pack(MAGIC, kind, 0, 0, TAG, view_of(lab).ring, host.me.id, number) + body
