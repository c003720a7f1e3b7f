"""Groups of well over a thousand members (Amoeba section 5): what goes over the wire, and a broadcast to all of them.

The members are real orderers with one first view, and what one says is handed to those that it is for. A simulation
would have to let them join one by one, with a view for each member at each join: far too many for a test.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from ordercast.config import LAN_DATAGRAM, MAX_MEMBERS, MS, GroupConfig, Timing
from ordercast.engine import Outbox, Run, Send, To
from ordercast.errors import UsageError
from ordercast.orderers.orderer import Start
from ordercast.orderers.sequencer import Sequencer
from ordercast.parts.memory import DeliveryMemory
from ordercast.service import AGREED, SAFE, Service
from ordercast.view import Address, Member, Reason, View, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.header import HEADER, HEADER_BYTES
from ordercast.wire.intake import Intake
from ordercast.wire.views import (
    Ballot,
    Cut,
    Proposal,
    ResetDemand,
    decode_cut,
    decode_welcome,
    encode_cut,
    encode_welcome,
    open_change,
    pack_change,
)
from ordercast.wire.writer import DatagramWriter

LARGE = 1_200
RING = 7


def members(count: int) -> tuple[Member, ...]:
    """With names and addresses of a usual length."""
    return tuple(
        Member(node_id(f"node-{at:04}", 0), f"node-{at:04}", 0, (f"192.168.{at // 250}.{1 + at % 250}", 7_000), 1 << 20)
        for at in range(count)
    )


def view_of(count: int) -> View:
    everybody = members(count)
    return View(
        counter=1,
        creator=str(everybody[0]),
        ring=RING,
        incarnation=0,
        seq=10,
        position=0,
        members=everybody,
        numbers={member.id: 0 for member in everybody},
        reason=Reason.CREATE,
        subject=str(everybody[0]),
        prior=tuple(member.id for member in everybody[:-1]),
        prior_rules=tuple(member.min_members for member in everybody[:-1]),
    )


def datagrams_of(send: Send) -> list[bytes]:
    """What a send is on the wire."""
    data = b"".join(bytes(part) for part in send.buffers)
    stride = send.stride or len(data)
    return [data[at : at + stride] for at in range(0, len(data), stride)]


class Everybody:
    """All members of a view, on a network that loses nothing."""

    def __init__(self, view: View) -> None:
        config = GroupConfig(max_members=len(view.members), datagram=LAN_DATAGRAM)
        self.now_ns = MS
        self.sent = 0
        self.orderers: dict[Address, Sequencer] = {}
        self.delivered: dict[Address, int] = {}
        for me in view.members:
            writer = DatagramWriter(1, me.id, config.datagram)
            writer.ring = view.ring
            orderer = Sequencer(me, writer, config, Timing(), view, 0, view.counter, {})
            self.orderers[me.address] = orderer
            self.delivered[me.address] = 0
            out = Outbox()
            orderer.install(self.now_ns, Start([], [], {}, DeliveryMemory()), out)
            self.settle(me.address, out)

    def settle(self, address: Address, out: Outbox) -> None:
        """What one member has said goes to those that it is for, and so on."""
        waiting = [(address, out)]
        while waiting:
            source, out = waiting.pop(0)
            for upcall in out.upcalls:
                if isinstance(upcall, Run):
                    self.delivered[source] += len(upcall.deliveries)
                    self.orderers[source].consume(upcall.deliveries[-1].seq)
            for send in out.sends:
                datagrams = datagrams_of(send)
                self.sent += len(datagrams)
                receivers = [to for to in self.orderers if to != source] if send.to == To.ALL else [send.to]
                waiting.extend((to, self.receive(to, source, datagrams)) for to in receivers)

    def receive(self, to: Address, source: Address, datagrams: list[bytes]) -> Outbox:
        orderer, out = self.orderers[to], Outbox()
        for datagram in datagrams:
            _, kind, _, _, _, _, origin, number = HEADER.unpack_from(datagram)
            body = memoryview(datagram)[HEADER_BYTES:]
            orderer.on_control(self.now_ns, kind, source, origin, number, body, out)
        orderer.after_batch(self.now_ns, out)
        return out

    def broadcast(self, address: Address, service: Service) -> int:
        """How many datagrams it takes until nobody has anything more to say."""
        before, out = self.sent, Outbox()
        orderer = self.orderers[address]
        orderer.submit(self.now_ns, [pack_run(0, service, [b"to everybody"])], out)
        orderer.after_batch(self.now_ns, out)
        self.settle(address, out)
        return self.sent - before


def test_well_over_a_thousand_members_get_a_broadcast_for_two_datagrams() -> None:
    """Sections 4.1 and 5: a request and a broadcast, however many members there are; SAFE takes all their answers."""
    view = view_of(LARGE)
    everybody = Everybody(view)
    sender = view.members[LARGE // 2].address
    assert everybody.broadcast(sender, AGREED) == 2
    assert set(everybody.delivered.values()) == {1}
    sent = everybody.broadcast(sender, SAFE)
    assert set(everybody.delivered.values()) == {2}
    assert LARGE + 1 <= sent <= LARGE + 3, "request, broadcast, an answer of each member, and the word that all have it"


@pytest.mark.parametrize("count", [LARGE, MAX_MEMBERS])
def test_views_of_so_many_members_go_over_the_wire(count: int) -> None:
    """As a change, a welcome, and twice in a cut: in segments of 1,400 bytes, of which a body has at most 256."""
    view = view_of(count)
    assert open_change(pack_change(view)) == view
    config = GroupConfig(max_members=count, datagram=LAN_DATAGRAM)
    writer = DatagramWriter(1, view.leader.id, LAN_DATAGRAM)
    welcome = writer.control(view.members[1].address, 23, encode_welcome("many", 5, config, view))
    assert decode_welcome(reassembled(datagrams_of(welcome))) == ("many", 5, config, view)
    ballot = Ballot(1, 10, 65_535, view.leader.id)
    proposal = Proposal(ballot, True, 9, (), view)
    cut = Cut(10, 10, (), (), view, 0, proposal, (ResetDemand(count, b"all of them"),))
    told = writer.control(view.members[1].address, 32, encode_cut(ballot, cut))
    assert decode_cut(reassembled(datagrams_of(told))) == (ballot, cut)


def reassembled(datagrams: list[bytes]) -> bytes:
    """What a receiver makes of the datagrams of one long body."""
    segments = [HEADER.unpack_from(datagram)[2] for datagram in datagrams]
    assert all(after == before + 1 for before, after in pairwise(segments))
    intake = Intake(1, {})
    bodies = [each.body for datagram in datagrams for each in intake.read(0, memoryview(datagram), 0)]
    assert len(bodies) == 1
    return bytes(bodies[0])


def test_more_members_than_that_are_refused_when_the_group_is_made() -> None:
    assert GroupConfig(max_members=MAX_MEMBERS).max_members == MAX_MEMBERS
    with pytest.raises(UsageError, match="between 1 and 2000"):
        GroupConfig(max_members=MAX_MEMBERS + 1)
