"""What a desk sends and receives: parcels of its courier, long bodies page by page, and questions for the service."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ordercast.config import LAN_DATAGRAM, Timing
from ordercast.engine import Outbox, Send
from ordercast.errors import WireError
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.parts.courier import ConnectionNumbers, Courier, CourierTerms
from ordercast.view import Address, group_tag
from ordercast.wire.courier import Parcel, decode_courier_ack, encode_courier_ack, open_part, part_head
from ordercast.wire.gms import TO_DESKS
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.pages import cut_pages
from ordercast.wire.segments import Datagram
from ordercast.wire.writer import DatagramWriter

MAX_ADDRESSES: Final = 4_096  # of nodes that have written; the one that was silent longest is forgotten
PARCELS_OUT: Final = 16  # to one node; further pages wait here
MAX_PAGES_WAITING: Final = 4_096  # for one node: then it is behind for good, and is told everything later
DESK_BYTES_PER_S: Final = 32_000_000  # of a desk's courier: it has no lanes to keep out of the way of

_KINDS: Final = TO_DESKS | {Kind.WHO, Kind.COURIER_ACK}


class Mailed(NamedTuple):
    """What has come for the desk. Of a question for the service (WHO) the body is all there is."""

    kind: int
    sender: int
    source: Address
    number: int
    body: bytes


class DeskMail:
    __slots__ = ("_addresses", "_courier", "_intake", "_me", "_waiting", "_writer")

    def __init__(
        self, me: int, timing: Timing, counters: dict[str, int], connections: ConnectionNumbers | None = None
    ) -> None:
        tag = group_tag(REGIONS_UNDERLAY)
        self._me = me
        self._intake = Intake(tag, counters)
        self._writer = DatagramWriter(tag, me, LAN_DATAGRAM)
        self._courier = Courier(me, timing, CourierTerms(bytes_per_s=DESK_BYTES_PER_S), connections)
        self._addresses: dict[int, Address] = {}
        self._waiting: dict[int, deque[Parcel]] = {}

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> list[Mailed]:
        """Parcels that are whole, and questions. What is for an engine of the same node is passed over."""
        size = len(data)
        kinds = bytes(data[1::stride]) if 0 < stride < size else bytes(data[1:2])
        if not _KINDS.intersection(kinds):
            return []
        out = []
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                mailed = self._one(now_ns, source, datagram)
            except WireError:
                self._intake.reject()
                continue
            if mailed is not None:
                out.append(mailed)
        return out

    def reject(self) -> None:
        self._intake.reject()

    def _one(self, now_ns: int, source: Address, datagram: Datagram) -> Mailed | None:
        kind = datagram.kind
        if kind == Kind.WHO:
            return Mailed(kind, datagram.origin, source, datagram.number, bytes(datagram.body))
        if kind == Kind.COURIER_ACK:
            ack = decode_courier_ack(datagram.body)
            if ack.to == self._me:
                self._courier.on_ack(now_ns, ack)
            return None
        if kind not in _KINDS:
            return None
        part = open_part(datagram)
        if part.to != self._me:
            return None
        self._meet(part.sender, source)
        parcel = self._courier.on_part(part)
        return Mailed(kind, part.sender, source, parcel.number, bytes(parcel.body)) if parcel is not None else None

    def _meet(self, node: int, address: Address) -> None:
        self._addresses.pop(node, None)
        self._addresses[node] = address
        if len(self._addresses) > MAX_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]

    # Sending.

    def answer(self, to: Address, kind: Kind, body: bytes, number: int, out: Outbox) -> None:
        """One datagram without a courier."""
        out.sends.append(self._writer.control(to, kind, body, ring=0, number=number))

    def post(self, node: int, address: Address, kind: Kind, body: bytes, number: int = 0) -> None:
        self._addresses.setdefault(node, address)
        self._waiting.setdefault(node, deque()).append(Parcel(int(kind), 0, self._me, number, body))

    def post_pages(self, node: int, address: Address, kind: Kind, serial: int, body: bytes) -> None:
        for page in cut_pages(serial, body):
            self.post(node, address, kind, page, serial)

    def has_waiting(self, node: int) -> bool:
        return node in self._waiting

    def is_full(self, node: int) -> bool:
        """Whether so much waits for it that what it says of itself is older than that."""
        return len(self._waiting.get(node, ())) >= PARCELS_OUT

    def drop(self, node: int) -> None:
        """Nothing that waits for it, or is on its way, is of any use. If it comes back, it must not be given up for
        what it has not answered before."""
        self._waiting.pop(node, None)
        self._courier.drop(node)

    def step(self, now_ns: int, out: Outbox) -> list[int]:
        """Let leave what may; the nodes that do not answer."""
        courier = self._courier
        for node, parcels in list(self._waiting.items()):
            if len(parcels) > MAX_PAGES_WAITING:
                del self._waiting[node]
                continue
            while parcels and courier.waiting(node) < PARCELS_OUT and courier.post(node, parcels[0]):
                parcels.popleft()
            if not parcels:
                del self._waiting[node]
        output = courier.step(now_ns)
        for part in output.parts:
            address = self._addresses.get(part.to)
            if address is not None:
                out.sends.append(Send(address, (part_head(self._writer.tag, part), part.parcel.body), 0))
        for ack in output.acks:
            address = self._addresses.get(ack.to)
            if address is not None:
                body = encode_courier_ack(ack)
                out.sends.append(self._writer.control(address, Kind.COURIER_ACK, body, ring=0))
        return [undelivered.peer for undelivered in output.given_up]  # doubts alone are the nodes' to tell

    def expire(self, now_ns: int) -> None:
        self._intake.expire(now_ns)

    def deadline_ns(self) -> int:
        return min(self._courier.deadline_ns(), self._intake.due_ns)
