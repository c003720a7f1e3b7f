"""The trace rows of a node of regions (docs/trace.md, "Regions"). Whoever drives an engine of regions calls, in order:

| call | when |
|---|---|
| `submit` | messages got their numbers in a lane: one call for each run of consecutive serials |
| `carry` | a block was packed for a lane, fragments included: once for each block, after its `submit` |
| `deliver` | messages of a block were handed to the application, own ones as well; `wanted` where some were not |
| `lost` | `BlocksLost` came up |
| `confirm` | a confirmed send returned: once for each lane that the message went to |
| `view` | this node installed a view of its own region |
| `group_view` | a view of a group is shown: lazily |
| `join`, `leave` | this node came into or went out of a group; without a group, of the service and so of everything |

Numbers are those of a lane's region: `first` of a block's head, over all views of that region, and over all stays of a
life (a node that was excluded and comes back without a restart goes on counting). The *serial* counts what the
application handed over, 0, 1, 2, ... in a life, whatever group and region it goes to: a message that enters two lanes
has two numbers and one serial. It shows whether a node that moves gets everything once and in order.

Blocks of a lane are counted here as the engine counts them: from 1 on in each view, since block 0 is OPEN. Blocks of
UNRELIABLE messages have no number. A `lost` row names blocks, because a member cannot know what it never got held.

Where nothing is recorded every call returns at once; ask `is_on` before something is made for a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from ordercast.groups.rows import Rows
from ordercast.orderers.regions.given import REGIONS_UNDERLAY, GivenView
from ordercast.service import RELIABLE_RANK, Service
from ordercast.trace import recorder as trace
from ordercast.trace.naming import region_underlay
from ordercast.trace.recorder import NULL, Recorder, rows_like
from ordercast.view import View
from ordercast.wire.block import Groups

MAX_LANES: Final = 4_096
"""Regions whose names are remembered; at the bound all are looked up again."""
MAX_CARRIED: Final = 4_096
"""Groups, or sets of groups, of messages that are remembered by their numbers; at the bound all are looked up again."""

_FIRST: Final = np.ones(1, dtype=np.bool_)
_NO_IDS: Final = np.zeros(0, dtype=np.uint32)
FIRST_BLOCK: Final = 1  # block 0 of a lane is OPEN


class LaneBlocks:
    """The number of a lane's next block, and where the message begins that its last blocks hold fragments of."""

    __slots__ = ("begin", "next", "view")

    def __init__(self, view: str) -> None:
        self.view = view
        self.next = FIRST_BLOCK
        self.begin = FIRST_BLOCK


class RegionRows:
    """Writes what happens at a node of regions. `name_of` gives the name of a group by its number."""

    __slots__ = ("_carried", "_ids", "_lanes", "_me", "_name_of", "_recorder", "_underlays", "node")

    def __init__(self, recorder: Recorder | None, me: str, name_of: Callable[[int], str]) -> None:
        self.node = Rows(recorder, REGIONS_UNDERLAY, me, name_of)  # also for traffic, stalled and notes
        self._recorder = recorder
        self._me = recorder.string(me) if recorder else 0
        self._name_of = name_of
        self._underlays: dict[int, int] = {}  # region -> the recorder's number of its name
        self._carried: dict[int | tuple[int, ...], int] = {}  # groups -> the recorder's number of the list of names
        self._ids = _NO_IDS  # the same of single groups, by their numbers; 0: not known
        self._lanes: dict[int, LaneBlocks] = {}  # by region

    @property
    def is_on(self) -> bool:
        """Whether anything is written."""
        return self._recorder is not None

    # Sending.

    def submit(
        self, now_ns: int, region: int, view: str, first: int, count: int, serial: int, service: Service, nbytes: int
    ) -> None:
        """`count` messages with numbers from `first` on and serials from `serial` on go to a region view."""
        recorder = self._recorder
        if recorder and count:
            recorder.row(
                trace.SUBMIT, now_ns, self._underlay(region), 0, recorder.string(view), self._me, first, count,
                service.rank, position=serial, nbytes=nbytes,
            )  # fmt: skip

    def carry(
        self, now_ns: int, region: int, view: str, first: int, count: int, groups: Groups, service: Service
    ) -> None:
        """The next block of a lane: `count` messages from `first` on, with their groups as a block has them: a number,
        a column of numbers, or a tuple where all go to several. A fragment that completes no message has count 0."""
        recorder = self._recorder
        if not recorder:
            return
        block = begin = NULL
        if service.rank >= RELIABLE_RANK:
            lane = self._lanes.get(region)
            if lane is None or lane.view != view:
                if len(self._lanes) >= MAX_LANES and region not in self._lanes:
                    self._lanes.pop(next(iter(self._lanes)))
                lane = self._lanes[region] = LaneBlocks(view)
            block, begin = lane.next, lane.begin
            lane.next = block + 1
            if count:
                lane.begin = lane.next
        underlay, at = self._underlay(region), recorder.string(view)
        if isinstance(groups, (int, tuple)):
            recorder.row(
                trace.CARRY, now_ns, underlay, 0, at, self._me, first, count, service.rank, position=block,
                prev_position=begin, groups=self._names(groups),
            )  # fmt: skip
            return
        # One row for each run of messages with the same group: with very many groups, for each message. Hot then:
        # `ordercast bench --orderer regions --groups 100000` measures it.
        numbers = np.frombuffer(groups, dtype=np.uint32)
        starts = np.flatnonzero(np.concatenate((_FIRST, numbers[1:] != numbers[:-1])))
        rows = np.repeat(
            rows_like(
                trace.CARRY, now_ns, underlay, 0, at, self._me, NULL, NULL, service.rank, position=block,
                prev_position=block,
            ),
            len(starts),
        )  # fmt: skip
        rows["groups"] = self._names_of(numbers[starts])
        rows["first"] = starts + first
        rows["count"] = np.diff(starts, append=count)
        rows["prev_position"][0] = begin  # only the first message of a block has parts in earlier ones
        recorder.many(rows)

    def confirm(self, now_ns: int, region: int, view: str, first: int, count: int, service: Service) -> None:
        """Messages are stable in a region, as `confirm` promised."""
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.CONFIRM, now_ns, self._underlay(region), 0, recorder.string(view), self._me, first, count,
                service.rank,
            )  # fmt: skip

    # Receiving.

    def deliver(
        self,
        now_ns: int,
        region: int,
        view: str,
        sender: str,
        first: int,
        count: int,
        service: Service,
        nbytes: int,
        wanted: Sequence[bool] | None = None,
    ) -> None:
        """Messages `[first, first + count)` of `sender` (`name/life`) were handed over; where `wanted` is given, only
        those that it marks: then one row for each run of them, the first of which has all bytes."""
        recorder = self._recorder
        if not recorder or not count:
            return
        underlay, at, source = self._underlay(region), recorder.string(view), recorder.string(sender)
        if wanted is None:
            recorder.row(
                trace.DELIVER, now_ns, underlay, 0, at, source, first, count, service.rank, nbytes=nbytes
            )  # fmt: skip
            return
        for is_wanted, marks in groupby(wanted):
            run = len(list(marks))
            if is_wanted:
                recorder.row(trace.DELIVER, now_ns, underlay, 0, at, source, first, run, service.rank, nbytes=nbytes)
                nbytes = 0
            first += run

    def lost(self, now_ns: int, region: int, view: str, sender: str, first: int, count: int) -> None:
        """`count` blocks of a lane, from block `first` on, will never be delivered here."""
        recorder = self._recorder
        if recorder and count:
            recorder.row(
                trace.LOST, now_ns, self._underlay(region), 0, recorder.string(view), recorder.string(sender), first,
                count,
            )  # fmt: skip

    # Views and groups.

    def view(self, now_ns: int, view: GivenView) -> None:
        """A view of the region that this node is in from now on. Of other regions it writes none."""
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.VIEW, now_ns, self._underlay(view.region), 0, recorder.string(view.id),
                members=recorder.strings(map(str, view.members)),
            )  # fmt: skip

    def group_view(self, now_ns: int, view: View) -> None:
        """A view of a group, when it is shown."""
        self.node.group_view(now_ns, view)

    def join(self, now_ns: int, group: str = "") -> None:
        """This node is in a group, or with the service. Before the `view` of the same epoch."""
        self.node.join(now_ns, group)

    def leave(self, now_ns: int, group: str = "", text: str = "left") -> None:
        """This node is out of a group: it delivers nothing of it from here on. Without a group: of everything."""
        if group:
            self.node.group_leave(now_ns, group, text)
            return
        self.node.leave(now_ns, text)
        self._lanes.clear()  # what comes next is another stay, with views of its own
        self._carried.clear()
        self._ids = _NO_IDS

    def forget_groups(self) -> None:
        """Groups have other numbers from here on."""
        self.node.forget_groups()
        self._carried.clear()
        self._ids = _NO_IDS

    def _underlay(self, region: int) -> int:
        found = self._underlays.get(region)
        if found is None and self._recorder is not None:
            if len(self._underlays) >= MAX_LANES:
                self._underlays.clear()
            found = self._underlays[region] = self._recorder.string(region_underlay(region))
        return found or 0

    def _names(self, targets: int | tuple[int, ...]) -> int:
        """The recorder's number of a list of groups."""
        found = self._carried.get(targets)
        if found is None and self._recorder is not None:
            if len(self._carried) >= MAX_CARRIED:
                self._carried.clear()
            numbers = (targets,) if isinstance(targets, int) else targets
            names = [self._name_of(number) or f"#{number}" for number in numbers]
            found = self._carried[targets] = self._recorder.strings(names)
        return found or 0

    def _names_of(self, numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """The same of many single groups."""
        most = int(numbers.max(initial=0))
        if most >= len(self._ids):
            self._ids = np.pad(self._ids, (0, most + 1 + most // 2 - len(self._ids)))
        found: npt.NDArray[np.uint32] = self._ids[numbers]
        recorder = self._recorder
        if recorder is not None and not found.all():
            for number in np.unique(numbers[found == 0]).tolist():
                self._ids[number] = recorder.strings((self._name_of(number) or f"#{number}",))
            found = self._ids[numbers]
        return found
