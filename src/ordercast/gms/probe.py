"""Looks for replicas of the membership service, without attending it: how many there are, and who leads."""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.config import LAN_DATAGRAM, Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.errors import WireError
from ordercast.groups.driven import LogLine
from ordercast.groups.rows import Meter
from ordercast.orderers.regions.given import REGIONS_UNDERLAY
from ordercast.view import Address, Member, group_tag
from ordercast.wire.gms import Replica, decode_replica, encode_who
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.writer import DatagramWriter


class ServiceProbe:
    """Asks again and again, until it is detached. `found` has what each replica said last, by the id of its desk."""

    __slots__ = (
        "_addresses",
        "_ask_ns",
        "_find_ns",
        "_intake",
        "_writer",
        "armed_ns",
        "deadline_ns",
        "found",
        "is_over",
        "log",
        "order",
        "out",
        "sent",
    )

    def __init__(self, me: Member, timing: Timing, order: int, addresses: Sequence[Address] = ()) -> None:
        tag = group_tag(REGIONS_UNDERLAY)
        self._addresses = tuple(addresses)
        self._find_ns = timing.find_ns
        self._ask_ns = 0
        self._intake = Intake(tag, {})
        self._writer = DatagramWriter(tag, me.id, LAN_DATAGRAM)
        self.found: dict[int, Replica] = {}
        self.order = order
        self.out = Outbox()
        self.sent = Meter()
        self.log: list[LogLine] = []
        self.is_over = False
        self.deadline_ns = NEVER
        self.armed_ns = NEVER

    @property
    def driven(self) -> ServiceProbe:
        return self

    @property
    def underlay(self) -> str:
        return REGIONS_UNDERLAY

    @property
    def leader(self) -> Replica | None:
        """A replica of a service that works."""
        return next((each for each in self.found.values() if each.leader and each.service), None)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:  # noqa: ARG002
        for datagram in self._intake.read(now_ns, data, stride):
            if datagram.kind == Kind.SERVICE:
                try:
                    replica = decode_replica(datagram.body)
                except WireError:
                    self._intake.reject()
                    continue
                self.found[replica.desk] = replica

    def expire(self, now_ns: int) -> None:
        self._intake.expire(now_ns)

    def finish(self, now_ns: int) -> None:
        if self._ask_ns <= now_ns and not self.is_over:
            self._ask_ns = now_ns + self._find_ns
            for address in (To.ANYONE, *self._addresses):
                self.out.sends.append(self._writer.control(address, Kind.WHO, encode_who(0), ring=0))
        self.deadline_ns = min(NEVER if self.is_over else self._ask_ns, self._intake.due_ns)

    def take_news(self) -> tuple[()]:
        return ()

    def stop(self) -> None:
        self.is_over = True
