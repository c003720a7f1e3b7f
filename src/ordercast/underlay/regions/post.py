"""Parcels of one node: its courier, where peers are, and parcels to itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from ordercast.config import Timing
from ordercast.engine import Outbox, Send
from ordercast.parts.courier import ConnectionNumbers, Courier, CourierTerms
from ordercast.view import Address, Member
from ordercast.wire.courier import CourierAck, Parcel, encode_courier_ack, open_part, part_head
from ordercast.wire.header import HEADER, MAGIC, Kind
from ordercast.wire.segments import Datagram

MAX_LEARNT: Final = 4_096  # addresses of peers that are in no view here; the oldest is forgotten
REPAIRS: Final = frozenset({Kind.PUSH, Kind.PULLED})


class Post:
    __slots__ = ("_counters", "_learnt", "_me", "_members", "_tag", "courier", "local")

    def __init__(
        self,
        me: int,
        tag: int,
        timing: Timing,
        terms: CourierTerms,
        connections: ConnectionNumbers | None = None,
        counters: dict[str, int] | None = None,
    ) -> None:
        self._me = me
        self._tag = tag
        self._counters = counters if counters is not None else {}
        self.courier = Courier(me, timing, terms, connections)
        self._members: dict[int, Address] = {}
        self._learnt: dict[int, Address] = {}
        self.local: deque[Parcel] = deque()  # to this node itself

    def meet(self, members: Iterable[Member]) -> None:
        """The service says where these are."""
        for member in members:
            self._members[member.id] = member.address

    def forget_all_but(self, members: Iterable[Member]) -> None:
        self._members = {member.id: member.address for member in members}

    def learn(self, peer: int, address: Address) -> None:
        """A datagram of a peer came from there."""
        if self._learnt.get(peer) == address or peer in self._members:
            return
        if len(self._learnt) >= MAX_LEARNT:
            del self._learnt[next(iter(self._learnt))]
        self._learnt[peer] = address

    def address_of(self, peer: int) -> Address | None:
        return self._members.get(peer) or self._learnt.get(peer)

    def send(self, peer: int, parcel: Parcel, is_urgent: bool = True) -> bool:
        if peer == self._me:
            self.local.append(parcel)
            return True
        if self.address_of(peer) is None:
            return False  # its next datagram tells where it is
        return self.courier.post(peer, parcel, is_urgent)

    def drop(self, peer: int) -> None:
        self.courier.drop(peer)

    def on_part(self, datagram: Datagram, source: Address) -> tuple[int, Parcel] | None:
        """Who sent it, and the parcel that is whole now."""
        part = open_part(datagram)
        if part.to == self._me:
            self.learn(part.sender, source)
        parcel = self.courier.on_part(part)
        return None if parcel is None else (part.sender, parcel)

    def flush(self, now_ns: int, out: Outbox) -> list[int]:
        """Peers that do not answer, or have not for a while."""
        parts, acks, given_up, doubted = self.courier.step(now_ns)
        for part in parts:
            address = self.address_of(part.to)
            if address is not None:
                out.sends.append(Send(address, (part_head(self._tag, part), part.parcel.body), 0))
                if part.parcel.kind in REPAIRS:
                    self.count_repairs(part.parcel.origin, 1)
        for ack in acks:
            self._send_ack(ack, out)
        return [*[each.peer for each in given_up], *doubted]

    def count_repairs(self, sender: int, datagrams: int) -> None:
        """Datagrams that bring segments of this sender to members that lack them."""
        counters = self._counters
        counters["repairs"] = counters.get("repairs", 0) + datagrams
        if sender == self._me:
            counters["own_repairs"] = counters.get("own_repairs", 0) + datagrams

    def _send_ack(self, ack: CourierAck, out: Outbox) -> None:
        address = self.address_of(ack.to)
        if address is not None:
            head = HEADER.pack(MAGIC, Kind.COURIER_ACK, 0, 0, self._tag, 0, self._me, 0)
            out.sends.append(Send(address, (head, encode_courier_ack(ack)), 0))
