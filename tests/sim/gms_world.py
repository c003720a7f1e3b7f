"""Replicas of the membership service and nodes that only attend it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ordercast.config import LAN_DATAGRAM, SECOND, Timing
from ordercast.engine import NEVER, Outbox, Send
from ordercast.errors import NotMember, WireError
from ordercast.gms.replica import GmsReplica
from ordercast.groups.driven import LogLine
from ordercast.groups.host import Host
from ordercast.groups.rows import Meter
from ordercast.membership.attendance import Attendance
from ordercast.membership.given import Attending
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenEpoch, GivenView
from ordercast.parts.courier import Courier
from ordercast.parts.runs import Runs, difference, union
from ordercast.sim.api import SimNode, Simulation
from ordercast.view import Address, group_tag
from ordercast.wire.courier import decode_courier_ack, encode_courier_ack, open_part, part_head
from ordercast.wire.gms import TO_NODES
from ordercast.wire.header import Kind
from ordercast.wire.intake import Intake
from ordercast.wire.regions import Accusation, Accused
from ordercast.wire.writer import DatagramWriter

STEP_S = 0.25


class Attendant:
    """What stands in the place of an engine of regions: it installs each epoch at once, and confirms it."""

    def __init__(self, host: Host, now_ns: int, addresses: tuple[Address, ...] = (), confirms: bool = True) -> None:
        tag = group_tag(REGIONS_UNDERLAY)
        self.me = host.me
        self.attendance = Attendance(host.me, Timing(), addresses)
        self.confirms = confirms
        self.epochs: list[GivenEpoch] = []
        self.outs = 0
        self.views: dict[int, GivenView] = {}  # that hold
        self.groups: dict[int, Runs] = {}
        self.was_in: list[GivenView] = []
        self.counters: dict[str, int] = {}
        self._courier = Courier(host.me.id, Timing())
        self._intake = Intake(tag, self.counters)
        self._writer = DatagramWriter(tag, host.me.id, LAN_DATAGRAM)
        self._addresses: dict[int, Address] = {}
        self.order = host.take_order()
        self.out = Outbox()
        self.sent = Meter()
        self.log: list[LogLine] = []
        self.is_over = False
        self.deadline_ns = NEVER
        self.armed_ns = NEVER
        self.attendance.start(now_ns, self.out)

    @property
    def driven(self) -> Attendant:
        return self

    @property
    def underlay(self) -> str:
        return REGIONS_UNDERLAY

    def take_news(self) -> tuple[()]:
        return ()

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        for datagram in self._intake.read(now_ns, data, stride):
            try:
                if datagram.kind == Kind.SERVICE:
                    self.attendance.on_datagram(now_ns, source, datagram, self.out)
                elif datagram.kind == Kind.COURIER_ACK:
                    ack = decode_courier_ack(datagram.body)
                    if ack.to == self.me.id:
                        self._courier.on_ack(now_ns, ack)
                elif datagram.kind in TO_NODES:
                    part = open_part(datagram)
                    if part.to == self.me.id:
                        self._addresses[part.sender] = source
                        parcel = self._courier.on_part(part)
                        if parcel is not None:
                            self.attendance.on_parcel(now_ns, part.sender, parcel)
            except WireError:
                self._intake.reject()

    def expire(self, now_ns: int) -> None:
        self.attendance.expire(now_ns, self.out)

    def finish(self, now_ns: int) -> None:
        attendance = self.attendance
        for epoch in attendance.take_epochs():
            self._install(epoch)
            attendance.installed(now_ns, epoch.number)
            if self.confirms:
                attendance.confirm(now_ns, epoch.number)
        if attendance.state is Attending.OUT:
            self.outs += 1
            self.views.clear()
            self.groups.clear()
            attendance.start(now_ns, self.out)
        for peer, address, parcel, is_urgent in attendance.take_parcels():
            self._addresses[peer] = address
            self._courier.post(peer, parcel, is_urgent)
        output = self._courier.step(now_ns)
        for part in output.parts:
            head = part_head(self._writer.tag, part)
            self.out.sends.append(Send(self._addresses[part.to], (head, part.parcel.body), 0))
        for ack in output.acks:
            body = encode_courier_ack(ack)
            self.out.sends.append(self._writer.control(self._addresses[ack.to], Kind.COURIER_ACK, body, ring=0))
        for given_up in output.given_up:
            attendance.accuse(now_ns, Accused(given_up.peer, 0, 0, Accusation.PARCEL))
        self.deadline_ns = min(self._courier.deadline_ns(), attendance.deadline_ns(), self._intake.due_ns)

    def _install(self, epoch: GivenEpoch) -> None:
        before = self.epochs[-1] if self.epochs else None
        assert epoch.is_whole or (before is not None and before.service == epoch.service)
        assert before is None or before.service != epoch.service or epoch.number > before.number
        self.epochs.append(epoch)
        if epoch.is_whole:
            self.views.clear()
            self.groups.clear()
        for ended in epoch.ended:
            self.views = {region: view for region, view in self.views.items() if view.view != ended}
        self.views.update({view.region: view for view in epoch.views if view.view not in epoch.ended})
        for each in epoch.groups:
            known = union(self.groups.get(each.region, ()), each.added)
            self.groups[each.region] = difference(known, each.removed)
        if epoch.mine and (not self.was_in or self.was_in[-1] != self.views[epoch.mine]):
            self.was_in.append(self.views[epoch.mine])

    @property
    def view(self) -> GivenView | None:
        """Of its region."""
        return self.views.get(self.epochs[-1].mine) if self.epochs else None

    @property
    def neighbours(self) -> list[str]:
        view = self.view
        return [member.name for member in view.members] if view is not None else []


class GmsWorld:
    """What a program of a test has: replicas and attendants by name."""

    def __init__(self, make: Simulation) -> None:
        self.make = make
        self.replicas: dict[str, GmsReplica] = {}
        self.nodes: dict[str, SimNode] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.attendants: dict[str, Attendant] = {}

    async def replica(self, *names: str) -> None:
        for name in names:
            node = self.nodes[name] = self.make(name)
            replica = self.replicas[name] = GmsReplica(node, node.parts[0], Timing())
            self.tasks[name] = asyncio.create_task(_run(replica))
        await self.until(lambda: all(self.replicas[name].is_ready for name in names), "the replicas are ready")

    def attend(self, name: str, *groups: str, addresses: tuple[Address, ...] = (), confirms: bool = True) -> Attendant:
        node = self.nodes[name] = self.nodes[name] if name in self.replicas else self.make(name)
        driver = node.parts[0]
        attendant = self.attendants[name] = Attendant(node.host, driver.now_ns(), addresses, confirms)
        node.host.attached.add(attendant)
        self.act(name, lambda now_ns: attendant.attendance.join(now_ns, groups))
        return attendant

    def act(self, name: str, what: Callable[[int], None]) -> None:
        """An application does something with its attendance."""
        node = self.nodes[name]
        driver = node.parts[0]
        what(driver.now_ns())
        node.host.touch(self.attendants[name])
        driver.wake()

    def join(self, name: str, *groups: str) -> None:
        self.act(name, lambda now_ns: self.attendants[name].attendance.join(now_ns, groups))

    def accuse(self, name: str, node: int) -> None:
        accused = Accused(node, 1, 1, Accusation.TOKEN)
        self.act(name, lambda now_ns: self.attendants[name].attendance.accuse(now_ns, accused))

    def crash(self, name: str) -> None:
        self.nodes[name].crash()
        self.attendants.pop(name, None)

    @property
    def leader(self) -> str:
        up = {name: replica for name, replica in self.replicas.items() if self.nodes[name].is_up}
        leading = [name for name, replica in up.items() if replica.desk.is_leading]
        return leading[-1] if leading else ""

    async def until(self, holds: Callable[[], bool], what: str, within_s: float = 60) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not holds():
            assert loop.time() < end, f"not within {within_s} s: {what}; {self.describe()}"
            await asyncio.sleep(STEP_S)

    async def settled(self) -> None:
        """Everybody knows what the leader knows."""

        def agree() -> bool:
            if not self.leader:
                return False
            directory = self.replicas[self.leader].desk.directory
            if directory.settled != directory.epoch or len(directory.nodes) != len(self.attendants):
                return False
            for attendant in self.attendants.values():
                if attendant.attendance.pending() or directory.node(attendant.me.id) is None or not attendant.epochs:
                    return False
                whole = directory.snapshot_for(attendant.me.id)
                views = {view.region: view for view in whole.views if view.view not in whole.ended}
                groups = {each.region: each.added for each in whole.groups}
                told = {region: runs for region, runs in attendant.groups.items() if region in attendant.views and runs}
                if (attendant.views, told, attendant.epochs[-1].mine) != (views, groups, whole.mine):
                    return False
            return True

        await self.until(agree, "all attendants know what the directory says")

    def describe(self) -> str:
        replicas = {name: replica.status() for name, replica in self.replicas.items() if self.nodes[name].is_up}
        states = {name: (each.attendance.state, each.neighbours) for name, each in self.attendants.items()}
        return f"{replicas} {states}"

    async def stop(self) -> None:
        for name, replica in self.replicas.items():
            if self.nodes[name].is_up:
                replica.stop()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    def now_s(self) -> float:
        return self.make.world.now_ns / SECOND


async def _run(replica: GmsReplica) -> None:
    with suppress(NotMember):  # its node has crashed
        await replica.run()
