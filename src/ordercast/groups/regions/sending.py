"""How messages to groups get into lanes (QSM section 2.1; docs/design/regions.md, "What a sender does").

A message waits in the queue of its route, the set of its group's regions (`route.py`). It leaves for all of them in one
pass, when each lane has room for it; lanes pack blocks on their own, across groups and routes. So nobody who moves
misses a message, and a region that takes nothing holds up only the groups that it is in.

Messages to several groups have the regions of all of them. What the same node sends to one of these groups afterwards
stays behind, also where it has another route.

An epoch changes routes. What waits is sorted again; a large message of which fragments are out begins anew, since
nobody can have it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ordercast.engine import Outbox
from ordercast.errors import OrdercastError, OutcomeUnknown
from ordercast.groups.queue import QUEUE_BYTES, SMALL_SHARE
from ordercast.groups.queued import AddressedMessages, LargeMessage, NumberedTargets, Routes, Stretch, Target
from ordercast.groups.regions.engines import RegionalEngine
from ordercast.groups.regions.joined import JoinedGroups
from ordercast.groups.regions.lanes import SendLane, SentNumbers
from ordercast.groups.regions.route import Route, copy_of, stretch_of
from ordercast.groups.regions.routing import Routing
from ordercast.groups.regions.rows import RegionRows
from ordercast.groups.regions.targets import NamedGroups
from ordercast.groups.regions.views import RegionViews
from ordercast.groups.regions.waits import LaneWait
from ordercast.groups.watches import Watch
from ordercast.membership.given import NumberedGroups
from ordercast.service import Service
from ordercast.wire.block import FRAGMENT_OVERHEAD, GROUP_BYTES, LENGTH, OVERHEAD, groups_of, head_of

ALL_BYTES: Final = 16 << 20
"""Payload bytes that wait in all routes together. At the bound nothing more is taken, and callers wait."""

ALL_MESSAGES: Final = 1 << 20
"""The same for messages."""

COLUMN_BYTES: Final = 2 + GROUP_BYTES
"""What a message takes in the columns of a block."""

PASS_WAVES: Final = 256
"""Blocks that leave for a lane in one round of a pass; the rest of the queue follows in the next one."""

MAX_BUDGET: Final = 1 << 40
"""Of messages to groups that nobody is in: they leave for no lane."""

FREE_LANES: Final = 1_024
"""Lanes that have nothing out and are kept for the regions that hold; beyond it only their numbers are."""


class RegionSending:
    """The routes and lanes of one node."""

    __slots__ = (
        "_engine",
        "_is_held",
        "_joined",
        "_numbers",
        "_out",
        "_passed",
        "_routing",
        "_rows",
        "_touched",
        "_views",
        "_waits",
        "count",
        "dropped_blocks",
        "lanes",
        "nbytes",
        "serial",
        "settled",
    )

    def __init__(
        self,
        engine: RegionalEngine,
        table: NumberedGroups,
        views: RegionViews,
        rows: RegionRows,
        out: Outbox,
        joined: JoinedGroups,
        sent: SentNumbers,
    ) -> None:
        self._engine = engine
        self._views = views
        self._rows = rows
        self._out = out
        self._joined = joined  # counts messages by group
        # what waits
        self._routing = Routing(table)
        self._is_held = True  # this node is not in the service
        self.count = 0
        self.nbytes = 0
        self.serial = sent.serial  # of the next message that leaves
        self.dropped_blocks = 0  # that an engine has refused although it had room, until their region had another view
        # lanes
        self.lanes: dict[int, SendLane] = {}  # by region
        # Of regions without a lane: its next message, and its blocks.
        self._numbers = {region: (number, 0) for region, number in sent.regions.items()}
        # the pass
        self._touched: dict[int, SendLane] = {}
        self._passed: list[tuple[LaneWait, list[SendLane]]] = []
        # waits
        self._waits: dict[Watch, LaneWait] = {}
        self.settled: list[Watch] = []  # for the API to take

    # State.

    @property
    def has_work(self) -> bool:
        """Whether something waits to leave."""
        return self.count > 0

    @property
    def has_out(self) -> bool:
        """Whether something is not acknowledged."""
        return any(lane.acked < lane.submitted or lane.ready for lane in self.lanes.values())

    @property
    def has_waits(self) -> bool:
        return bool(self._waits)

    @property
    def has_room(self) -> bool:
        return self.nbytes < ALL_BYTES and self.count < ALL_MESSAGES

    def sent_numbers(self) -> SentNumbers:
        """For who sends when this is over."""
        regions = {region: number for region, (number, _) in self._numbers.items()}
        regions |= {region: lane.queue.end_number for region, lane in self.lanes.items()}
        return SentNumbers(regions, self.serial)

    def is_waited_for(self, name: str, number: int) -> bool:
        """Whether something for this group has not left."""
        return bool(self.count) and self._routing.has_any(name, number)

    def marks(self) -> object:
        """Something that changes when anything goes on; None: nothing waits."""
        if not self.count and not self.has_out:
            return None
        return (self.serial, self.count, tuple([(lane.submitted, lane.acked) for lane in self.lanes.values()]))

    def route_of(self, number: int) -> Route:
        """Where messages to a group wait."""
        return self._routing.route_of(number)

    def room(self, now_ns: int, number: int) -> int:
        """Bytes that may leave for a group now; 0 while something waits before it."""
        route = self._routing.route_of(number)
        if self._is_held or route is self._routing.unnumbered or not route.is_idle or self._routing.has_multis:
            return 0
        rooms = [self._engine.room(now_ns, region)[0] for region in route.regions]
        return min([max(0, room) for room in rooms], default=QUEUE_BYTES)

    def any_room(self, now_ns: int) -> int:
        """Bytes that may leave for the region that takes most; 0 while something waits."""
        if self._is_held or self.count:
            return 0
        rooms = [self._engine.room(now_ns, region)[0] for region in self._views.current]
        return min(max(rooms, default=QUEUE_BYTES), QUEUE_BYTES)

    # In.

    def offer(self, payload: bytes, service: Service, type_: int, group: Target, route: Route) -> None:
        """Queue one message to a group. Hot: once per `send`."""
        routing = self._routing
        route.offer(payload, service, type_, group, routing.next_order(), routing.barrier)
        self.count += 1
        self.nbytes += len(payload)

    def offer_many(
        self, payloads: Sequence[bytes], service: Service, type_: int, lengths: list[int] | None, group: Target
    ) -> int:
        """Queue messages to one group, from the first on; how many were taken."""
        if not self.has_room:
            return 0
        route = self._routing.route_of(group.number)
        before = route.nbytes
        taken = route.offer_many(payloads, service, type_, lengths, group, None, self._routing.next_order())
        self.count += taken
        self.nbytes += route.nbytes - before
        return taken

    def offer_numbered(
        self,
        payloads: Sequence[bytes],
        service: Service,
        type_: int,
        lengths: list[int],
        numbers: npt.NDArray[np.uint32],
        routes: Routes,
    ) -> int:
        """Queue messages, each to the group of its number; how many were taken.

        Hot: benches measure it as `send_many` to many groups. Mostly all groups have one route.
        """
        if not self.has_room or not len(payloads):
            return 0
        take, total = 0, 0
        for length in lengths:  # as many as fit a queue: one call must not fill all of them
            if total >= QUEUE_BYTES:
                break
            total += length
            take += 1
        found = self._routing.numbers.of_all(numbers[:take])
        if not all(self._routing.route(regions).has_room for regions, _ in found):
            return 0
        order = self._routing.next_order()
        for regions, at in found:
            route = self._routing.route(regions)
            if at is None:
                some, sizes, which = payloads[:take], lengths[:take], numbers[:take]
            else:
                index: list[int] = at.tolist()
                some, sizes, which = [payloads[i] for i in index], [lengths[i] for i in index], numbers[at]
            before, start = route.nbytes, 0
            while start < len(some):  # the bound of the route was asked for: it may be crossed once
                targets = NumberedTargets(which[start:], routes)
                done = route.offer_many(some[start:], service, type_, sizes[start:], None, targets, order)
                start += done or self._force(route, some, sizes, service, type_, targets, start)
            self.count += len(some)
            self.nbytes += route.nbytes - before
        return take

    def _force(
        self,
        route: Route,
        payloads: Sequence[bytes],
        lengths: list[int],
        service: Service,
        type_: int,
        targets: NumberedTargets,
        start: int,
    ) -> int:
        rest = stretch_of(payloads[start:], service, type_, lengths[start:], None, targets)
        route.put(self._routing.order, rest)
        return len(payloads) - start

    def offer_addressed(self, payload: bytes, service: Service, type_: int, groups: NamedGroups) -> bool:
        """Queue one message to several groups, or to one that this node is not in; False: there is no room."""
        regions = self._routing.regions_of(groups)
        route = self._routing.unnumbered if regions is None else self._routing.route(regions)
        if not self.has_room or not route.has_room:
            return False
        order = self._routing.next_order()
        route.offer_addressed([payload], service, type_, groups, order)
        self.count += 1
        self.nbytes += len(payload)
        if len(groups.names) > 1:
            self._routing.add_multi(order, regions)
        return True

    # Waits.

    def watch(self, watch: Watch, route: Route | None = None, *, is_whole: bool = True) -> LaneWait:
        """Wait for what was offered to a route so far, or to all. Not `is_whole`: more is to come, then `mark`."""
        wait = self._waits[watch] = LaneWait(watch)
        if is_whole:
            self.mark(wait, route)
        return wait

    def flush(self, number: int = 0) -> Watch | None:
        """Wait for everything that was offered to a group, or to all groups; None: there is nothing to wait for."""
        route = self._routing.route_of(number) if number else None
        if not self.has_out and not (self.count if route is None else route.count):
            return None
        watch = Watch(0, 0, None)
        wait = self.watch(watch, route)
        if route is not None:
            self._wait_for_lanes(wait)
        return watch

    def mark(self, wait: LaneWait, route: Route | None) -> None:
        """Everything that a wait is for was offered."""
        for each in [route] if route is not None else self._routing.all:
            if each.count or each is route:
                each.mark(wait)
                if each is not self._routing.unnumbered:
                    self._routing.routes.setdefault(each.regions, each)
        if route is None:
            self._wait_for_lanes(wait)

    def forget(self, watch: Watch) -> None:
        """Nobody waits for it any more."""
        self._waits.pop(watch, None)

    def _wait_for_lanes(self, wait: LaneWait) -> None:
        for lane in self.lanes.values():
            if lane.acked < lane.submitted:
                lane.waits.add(lane.submitted, wait)

    def _settle(self, now_ns: int, waits: Sequence[LaneWait]) -> None:
        for wait in waits:
            watch = wait.watch
            if self._waits.pop(watch, None) is None:
                continue
            self.settled.append(watch)
            if watch.error is None and watch.service is not None:
                watch.remaining = 0
                for region, view, number in wait.shown:
                    self._rows.confirm(now_ns, region, view, number, 1, watch.service)

    # One pass.

    def submit(self, now_ns: int) -> bool:
        """Let leave what there is room for; whether anything did."""
        if self._is_held:
            return False
        has_moved = False
        for _ in range(PASS_WAVES):
            if not self._wave(now_ns):
                break
            has_moved = True
        return has_moved

    def _wave(self, now_ns: int) -> bool:
        """Let one block leave for each lane that has room: an engine takes one while there is any room at all. More it
        may refuse, and what other lanes have sent meanwhile would reach a member that moves twice, or never."""
        self._touched.clear()
        for lane in self.lanes.values():
            if lane.ready:
                self._touch(now_ns, lane)
        has_moved = False
        for route in sorted(self._routing.routes.values(), key=_order_of) if self._routing.routes else ():
            has_moved |= self._advance(now_ns, route)
            if route.is_idle:
                del self._routing.routes[route.regions]
        for lane in self._touched.values():
            has_moved |= self._flush(now_ns, lane)
        if self._passed:
            passed, self._passed = self._passed, []
            for wait, lanes in passed:
                self._pass_mark(now_ns, wait, lanes)
        return has_moved

    def acked(self, now_ns: int, region: int, count: int) -> None:
        """So many blocks to a region are stable at its cachers."""
        lane = self.lanes.get(region)
        if lane is not None and count > lane.acked:
            lane.acked = min(count, lane.submitted)
            self._settle(now_ns, lane.waits.acked(lane.acked))

    def use(self, engine: RegionalEngine) -> None:
        """Another engine, which has taken nothing yet. Messages go on with their numbers."""
        self._engine = engine
        for lane in self.lanes.values():
            lane.submitted = lane.acked = 0
        self._numbers = {region: (number, 0) for region, (number, _) in self._numbers.items()}

    def begin(self) -> None:
        """This node is in the service."""
        self._is_held = False

    def install(self, now_ns: int) -> None:
        """An epoch was installed: routes, and the numbers of groups, may be others."""
        waits = self._routing.sort()
        for lane in self.lanes.values():
            lane.large = None  # it begins again
        for wait in waits:
            self.mark(wait, None)
        for wait in self._waits.values():
            if wait not in waits:  # some of what it is for may have left for lanes that have ended
                self._wait_for_lanes(wait)
        self._settle(now_ns, [wait for wait in waits if wait.is_over])
        self._end_lanes()

    def depart(self, now_ns: int) -> None:
        """This node is out of the service. What waits is kept, by names: groups get other numbers."""
        self._is_held = True
        lost = OutcomeUnknown("this node was out of the regions before its messages were acknowledged")
        for lane in self.lanes.values():
            lane.ready.clear()
            lane.large = None
            lane.acked = lane.submitted
            self._settle(now_ns, lane.waits.fail(lost))
        self.list_targets()

    def list_targets(self) -> None:
        """Numbers of groups are about to be forgotten, or to become others: keep the names of all that waits."""
        for route in self._routing.routes.values():
            route.list_targets()

    def fail(self, error: OrdercastError) -> None:
        """All waits end with `error`."""
        for watch in self._waits:
            watch.error = error
            self.settled.append(watch)
        self._waits.clear()

    # In detail.

    def _lane(self, region: int) -> SendLane:
        lane = self.lanes.get(region)
        if lane is None:
            lane = self.lanes[region] = SendLane(region, *self._numbers.pop(region, (0, 0)))
        return lane

    def _touch(self, now_ns: int, lane: SendLane) -> None:
        if lane.region not in self._touched:
            self._touched[lane.region] = lane
            lane.open(*self._engine.room(now_ns, lane.region), self._views.id_of(lane.region))

    def _advance(self, now_ns: int, route: Route) -> bool:
        """Let messages of a route leave for its lanes."""
        lanes = [self._lane(region) for region in route.regions]
        for lane in lanes:
            self._touch(now_ns, lane)
        has_moved = False
        while (head := route.head) is not None:
            if self._routing.has_multis and self._routing.must_wait(route, head):
                break
            room = min([lane.room for lane in lanes], default=MAX_BUDGET)
            largest = min([lane.largest for lane in lanes], default=MAX_BUDGET)
            is_small = room * SMALL_SHARE < largest and route.nbytes > room  # room is sure to come
            if room <= 0 or (is_small and any(lane.acked < lane.submitted for lane in lanes)):
                break
            groups = None if isinstance(head, Stretch) else head.groups
            kind = (head.service, head.type, groups)
            if not all(lane.takes(kind, head) for lane in lanes):
                break
            space = min([lane.space for lane in lanes], default=MAX_BUDGET)
            if isinstance(head, Stretch):
                part = route.draw(space, largest - OVERHEAD, COLUMN_BYTES)
                if part is None:
                    if route.head is head:
                        break
                    continue
                self._spread(lanes, part)
            elif isinstance(head, LargeMessage):
                if any(lane.kind is not None for lane in lanes) or not self._fragment(route, lanes, head, largest):
                    break
            elif not self._spread_addressed(route, lanes, head, space, largest):
                break
            for lane in lanes:
                lane.kind = kind
            has_moved = True
        for wait in route.take_marks():
            self._passed.append((wait, lanes))
        return has_moved

    def _spread(self, lanes: list[SendLane], part: Stretch) -> None:
        count, nbytes = len(part.lengths), part.nbytes
        if part.group is not None:
            part.group.messages_sent += count
        elif isinstance(part.groups, NumberedTargets):
            self._joined.wanted.count(part.groups.numbers)
        elif part.groups is not None:
            for target in part.groups:
                target.messages_sent += 1
        for at, lane in enumerate(lanes):
            lane.add(copy_of(part) if at else part, self.serial)
        for lane in lanes:
            lane.space -= nbytes + COLUMN_BYTES * count
        self.serial += count
        self.count -= count
        self.nbytes -= nbytes

    def _spread_addressed(
        self, route: Route, lanes: list[SendLane], head: AddressedMessages, space: int, largest: int
    ) -> bool:
        numbers = head.groups.numbers() or ()
        extra = LENGTH.size + GROUP_BYTES * len(numbers)
        size = sum(head.lengths) + 2 * len(head.lengths) + extra
        if size > space:
            if size + OVERHEAD > largest:
                route.make_addressed_large(head)
            return False  # with the next wave
        order = route.order
        item = route.draw_addressed()
        if item is None:
            return False
        self._routing.end_multi(order, item)
        for lane in lanes:
            lane.add_addressed(item, self.serial)
        for lane in lanes:
            lane.space -= size
        count = len(item.payloads)
        self.serial += count
        self.count -= count
        self.nbytes -= sum(item.lengths)
        return True

    def _fragment(self, route: Route, lanes: list[SendLane], large: LargeMessage, limit: int) -> bool:
        """Let the next fragment of a large message leave; all lanes get the same."""
        if large.groups is not None:
            numbers = list(large.groups.numbers() or ())
        else:
            numbers = [large.group.number] if large.group is not None else []
        overhead = FRAGMENT_OVERHEAD + (LENGTH.size + GROUP_BYTES * len(numbers) if len(numbers) > 1 else 0)
        if limit <= overhead:
            return False
        size, start = len(large.payload), large.offset
        stop = min(start + limit - overhead, size) if lanes else size
        for lane in lanes:
            lane.add_fragment(large, start, stop, numbers, self.serial)
        for lane in lanes:
            lane.space = 0
        large.offset = stop
        if stop == size:
            order = route.order
            route.end_large()
            self._routing.end_multi(order, large)
            if large.group is not None:
                large.group.messages_sent += 1
            self.serial += 1
            self.count -= 1
            self.nbytes -= size
        return True

    def _flush(self, now_ns: int, lane: SendLane) -> bool:
        """Pack what a lane got in this pass, and give it to the engine."""
        lane.pack()
        ready = lane.ready
        if not ready:
            return False
        count = self._engine.submit(now_ns, lane.region, [packed.block for packed in ready], self._out)
        taken = ready[:count]
        del ready[:count]
        is_on, view = self._rows.is_on, self._views.id_of(lane.region)
        for packed in taken:
            lane.submitted += 1
            if is_on:
                nbytes = packed.payload_bytes
                for first, run, serial in lane.serials(packed.messages):
                    self._rows.submit(now_ns, lane.region, view, first, run, serial, packed.service, nbytes)
                    nbytes = 0
                groups = groups_of(packed.block, head_of(packed.block))
                self._rows.carry(now_ns, lane.region, view, packed.first, packed.messages, groups, packed.service)
            else:
                lane.serials(packed.messages)
        return count > 0

    def _pass_mark(self, now_ns: int, wait: LaneWait, lanes: list[SendLane]) -> None:
        """Everything before a mark has been given to these lanes."""
        wait.marks -= 1
        for lane in lanes:
            wait.shown.append((lane.region, self._views.id_of(lane.region), lane.queue.end_number - 1))
            count = lane.submitted + len(lane.ready)
            if lane.acked < count:
                lane.waits.add(count, wait)
        if wait.is_over:
            self._settle(now_ns, [wait])

    def _end_lanes(self) -> None:
        """Keep only the numbers of lanes whose regions have ended, once everything is acknowledged."""
        current = self._views.current
        for region, lane in list(self.lanes.items()):
            # What the engine has refused, and others have: to other members than those it was for it must not go.
            if lane.ready and self._views.id_of(region) != lane.view:
                self.dropped_blocks += len(lane.ready)
                lane.ready.clear()
            if region in current and len(self.lanes) <= FREE_LANES:
                continue
            if lane.is_idle:
                self._numbers[region] = (lane.queue.end_number, lane.submitted)
                del self.lanes[region]


def _order_of(route: Route) -> int:
    return route.order
