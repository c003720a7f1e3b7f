"""Large groups in virtual time: the real orderers on the simulated machines, in a view that is given and never changes.

A group of hundreds cannot be formed by joins on machines that take half a millisecond for a packet, and its forming is
not what is measured. So a station is an orderer and nothing around it: no membership, no host, no trace. The
application takes each message at once. `StationGroup.disorder` is the judge: when all is delivered, all stations must
have delivered the same messages in the same order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from ordercast.config import MS, SECOND, GroupConfig, Timing
from ordercast.engine import Outbox, Run, Send
from ordercast.orderers import ORDERERS
from ordercast.orderers.orderer import Start
from ordercast.service import AGREED, Service
from ordercast.sim.lab import EVENT_LIMIT, MeasurementFailed
from ordercast.sim.network import NetworkModel
from ordercast.sim.world import Machine, World
from ordercast.view import Address, Member, View, group_tag
from ordercast.wire.block import pack_run
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.writer import DatagramWriter

GROUP: Final = "stations"
BUFFER_BYTES: Final = 1 << 30  # half of it bounds what may be unstable: no buffer sets the pace here
RING: Final = 1
VIEW_SEQ: Final = 1
STEP_NS: Final = 50 * MS  # how often it is looked whether all is delivered
LIMIT_NS: Final = 600 * SECOND


class Station:
    """One member: a stack of the simulated world around an orderer."""

    __slots__ = (
        "_intake",
        "_is_installed",
        "_me",
        "_orderer",
        "_out",
        "_waiting",
        "delivered",
        "left",
        "service",
        "submitted_ns",
    )

    def __init__(self, me: Member, view: View, config: GroupConfig, timing: Timing) -> None:
        writer = DatagramWriter(group_tag(GROUP), me.id, config.datagram)
        writer.ring = RING
        counters: dict[str, int] = {}
        self._me = me
        self._orderer = ORDERERS[config.orderer](me, writer, config, timing, view, 0, view.counter, counters)
        self._intake = Intake(writer.tag, counters)
        self._out = Outbox()
        self._is_installed = False
        self._waiting: deque[int] = deque()  # when each was handed over
        # what is measured
        self.service: Service = AGREED
        self.left = 0  # broadcasts that follow, each when the one before has come back: SendToGroup blocks its caller
        self.submitted_ns: list[int] = []  # by number
        self.delivered: list[tuple[int, int, int]] = []  # sender's index, number, when

    def hand_over(self, now_ns: int) -> None:
        """One empty message."""
        self._waiting.append(now_ns)

    # The stack of a machine. -----------------------------------------------------------------------------------------

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        orderer, out = self._orderer, self._out
        for kind, segment, last, _, origin, number, body in self._intake.read(now_ns, data, stride):
            if kind not in (Kind.DATA, Kind.REPAIR):
                orderer.on_control(now_ns, kind, source, origin, number, body, out)
            elif last:
                orderer.on_segment(now_ns, origin, number, segment, last, body, kind == Kind.REPAIR, out)
            else:
                orderer.on_data(now_ns, origin, number, bytes(body), kind == Kind.REPAIR, out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        """Nobody fails here."""

    def expire(self, now_ns: int) -> None:
        self._orderer.expire(now_ns, self._out)

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:
        orderer, out = self._orderer, self._out
        if not self._is_installed:
            self._is_installed = True
            orderer.install(now_ns, Start(), out)
        self._submit(now_ns)
        orderer.after_batch(now_ns, out)
        orderer.take_views()
        for upcall in out.upcalls:
            if isinstance(upcall, Run):
                for delivery in upcall.deliveries:
                    self.delivered.append((delivery.origin - 1, delivery.number, now_ns))
                    orderer.consume(delivery.seq)
                    if delivery.origin == self._me.id and self.left:
                        self.left -= 1
                        self._waiting.append(now_ns)
        if self._waiting:
            self._submit(now_ns)
            orderer.after_batch(now_ns, out)
        sends = [(GROUP, send) for send in out.sends]
        for kept in (out.sends, out.upcalls, out.notes):
            kept.clear()
        return sends

    def deadline_ns(self) -> int:
        return self._orderer.deadline_ns()

    def audience(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002 - there is multicast
        return ()

    def copies(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return ()

    def unrest(self) -> list[str]:
        return ["messages wait"] if self._waiting else []

    def _submit(self, now_ns: int) -> None:
        while self._waiting and self._orderer.room(now_ns)[0] > 0:
            block = pack_run(len(self.submitted_ns), self.service, [b""])
            self.submitted_ns.append(self._waiting.popleft())
            self._orderer.submit(now_ns, [block], self._out)


class StationGroup:
    """A world of stations; the first of them is the sequencer, where there is one."""

    __slots__ = ("machines", "stations", "world")

    def __init__(self, members: int, network: NetworkModel, config: GroupConfig, timing: Timing, seed: str) -> None:
        self.world = world = World(seed, network, event_limit=EVENT_LIMIT)
        self.stations: list[Station] = []
        self.machines = [world.add(f"m{index}", self._boot, buffer_bytes=BUFFER_BYTES) for index in range(members)]
        given = tuple(
            Member(machine.index + 1, machine.name, 0, machine.address, BUFFER_BYTES) for machine in self.machines
        )
        view = View(1, "m0/0", RING, 0, VIEW_SEQ, 0, given, {member.id: 0 for member in given})
        self.stations += [Station(member, view, config, timing) for member in given]
        for machine in self.machines:
            world.start(machine.name)
            world.listen(machine, GROUP)

    def send(self, index: int) -> None:
        """One broadcast of a member now, whether or not the one before has come back."""
        self.stations[index].hand_over(self.world.now_ns)
        self.world.wake(self.machines[index])

    def keep_sending(self, index: int, count: int, service: Service) -> None:
        """`count` broadcasts of a member, one after the other."""
        self.stations[index].service = service
        self.stations[index].left = count - 1
        self.send(index)

    @property
    def arrived(self) -> int:
        """Datagrams that reached machines: interrupts."""
        return sum(machine.arrived for machine in self.machines)

    @property
    def sent(self) -> Counter[str]:
        return self.world.network.counters.sent_by_kind.copy()

    def delays_ns(self, since_ns: int = 0, until_ns: int = 1 << 62) -> list[int]:
        """Of all broadcasts that were handed over in a span of time: until the sender has its own back."""
        found = []
        for index, station in enumerate(self.stations):
            for sender, number, at_ns in station.delivered:
                if sender == index and since_ns <= station.submitted_ns[number] < until_ns:
                    found.append(at_ns - station.submitted_ns[number])
        return found

    def finish(self, broadcasts: int) -> None:
        """Go on until all stations have delivered so many."""
        world = self.world
        limit_ns = world.now_ns + LIMIT_NS
        while (least := min(len(station.delivered) for station in self.stations)) < broadcasts:
            if world.now_ns >= limit_ns:
                raise MeasurementFailed(f"of {broadcasts} broadcasts a station has delivered {least}")
            world.run_until(world.now_ns + STEP_NS)

    def disorder(self) -> int:
        """Stations that delivered something else than the first one, messages that came twice, and datagrams that
        sockets dropped."""
        orders = [[(sender, number) for sender, number, _ in station.delivered] for station in self.stations]
        wrong = sum(order != orders[0] for order in orders)
        repeated = len(orders[0]) - len(set(orders[0]))
        return wrong + repeated + self.world.network.counters.socket_drops

    def _boot(self, machine: Machine) -> Station:
        return self.stations[machine.index]
