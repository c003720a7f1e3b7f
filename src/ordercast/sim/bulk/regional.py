"""An engine of regions as a node of the bulk simulation runs it, and views that are given without a service.

The contract of such an engine (`groups/regions/engines.py`) differs from `Engine` in two points: `room` and `submit`
name a region, and upcalls are taken. `RegionalNode` closes the gap: a set of blocks has one block for each of its
lanes, in their order, and what is taken goes into the outbox with the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import SECOND
from ordercast.engine import NEVER, Outbox
from ordercast.errors import InvariantViolation
from ordercast.groups.regions.engines import RegionalEngine
from ordercast.membership.given import Attending, NumberedGroups, ServiceParcel
from ordercast.orderers.regions.given import GivenEpoch
from ordercast.orderers.regions.upcalls import Installed
from ordercast.sim.multicast import NOTHING
from ordercast.view import Address
from ordercast.wire.courier import Parcel
from ordercast.wire.regions import Accused
from ordercast.wire.segments import Datagram

ASK_NS: Final = SECOND  # an address that is no longer needed may be heard for so long


class RegionalNode:
    """An engine of regions with the face of `BulkEngine`. `lanes`: the regions that the node's messages go to."""

    __slots__ = (
        "_ask_ns",
        "_lane",
        "_listens",
        "consume",
        "deadline_ns",
        "engine",
        "expire",
        "is_at_rest",
        "lanes",
        "receive",
        "start",
    )

    def __init__(self, engine: RegionalEngine, lanes: Sequence[int] = ()) -> None:
        self.engine = engine
        self.lanes = tuple(lanes)
        self._lane = 0  # whose block comes next: a set may be taken in part
        self._listens = NOTHING
        self._ask_ns = 0
        # Bound once: a wrapper would cost a call for each reception.
        self.start = engine.start
        self.receive = engine.receive
        self.expire = engine.expire
        self.consume = engine.consume
        self.deadline_ns = engine.deadline_ns
        self.is_at_rest = engine.is_at_rest

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        engine = self.engine
        engine.after_batch(now_ns, out)
        is_asked = now_ns >= self._ask_ns
        found = engine.take()
        if found:
            out.upcalls += found  # type: ignore[arg-type]  # programs of the bulk simulation take both kinds
            for each in found:  # not any(): nearly every pass has one upcall, and a generator costs more than that
                is_asked |= isinstance(each, Installed)
        if is_asked:
            # New addresses come with epochs. Others are dropped some time later, which does no harm.
            self._ask_ns = now_ns + ASK_NS
            listens = engine.listens()
            if listens != self._listens:
                self._listens = listens

    def listens(self) -> frozenset[Address]:
        return self._listens

    def room(self, now_ns: int) -> tuple[int, int]:
        """The least room of the lanes: a message is accepted when all of them take it."""
        rooms = [self.engine.room(now_ns, lane) for lane in self.lanes]
        return min((room for room, _ in rooms), default=0), min((largest for _, largest in rooms), default=0)

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        for taken, block in enumerate(blocks):
            if not self.engine.submit(now_ns, self.lanes[self._lane], [block], out):
                return taken
            self._lane = (self._lane + 1) % len(self.lanes)
        return len(blocks)

    def waits_for_application(self) -> bool:
        return False


class GivenTable:
    """Groups by number; the name of a group is its number."""

    __slots__ = ("_regions",)

    def __init__(self, regions: dict[int, tuple[int, ...]]) -> None:
        self._regions = regions

    def number(self, name: str) -> int:
        return int(name) if name.isdecimal() and int(name) in self._regions else 0

    def name(self, number: int) -> str:
        return str(number) if number in self._regions else ""

    def regions(self, number: int) -> tuple[int, ...]:
        return self._regions.get(number, ())


class GivenViews:
    """A `ViewSource` without a service: epochs are handed to it, and it answers nothing.

    `accused` has whom the engine has accused, for whoever decides the next epoch; `confirmed` the last epoch that it
    has confirmed.
    """

    __slots__ = ("_epochs", "_parcels", "_table", "accused", "confirmed", "state")

    def __init__(self, epoch: GivenEpoch, table: NumberedGroups | None = None) -> None:
        self.state = Attending.IN
        self._table: NumberedGroups = table if table is not None else GivenTable({})
        self._epochs = [epoch]
        self._parcels: list[ServiceParcel] = []  # it has nothing to say
        self.accused: list[tuple[int, Accused]] = []  # with the time
        self.confirmed = 0

    @property
    def table(self) -> NumberedGroups:
        return self._table

    def give(self, epoch: GivenEpoch) -> None:
        """The next decision; the engine installs it in its next pass, so wake the node."""
        self._epochs.append(epoch)

    def take_epochs(self) -> list[GivenEpoch]:
        if not self._epochs:
            return self._epochs
        epochs, self._epochs = self._epochs, []
        return epochs

    def take_parcels(self) -> list[ServiceParcel]:
        return self._parcels

    def confirm(self, now_ns: int, epoch: int) -> None:  # noqa: ARG002
        self.confirmed = max(self.confirmed, epoch)

    def accuse(self, now_ns: int, accused: Accused) -> None:
        self.accused.append((now_ns, accused))

    def start(self, now_ns: int, out: Outbox) -> None:
        """There is nobody to look for."""

    def join(self, now_ns: int, names: Sequence[str]) -> None:
        """What was given holds."""

    def leave(self, now_ns: int, names: Sequence[str]) -> None:
        """What was given holds."""

    def follow(self, now_ns: int, names: Sequence[str]) -> None:
        """What was given holds."""

    def depart(self, now_ns: int) -> None:  # noqa: ARG002
        self.state = Attending.LEFT

    def pending(self) -> int:
        return 0

    def on_parcel(self, now_ns: int, sender: int, parcel: Parcel) -> None:  # noqa: ARG002
        raise InvariantViolation(f"{sender:x} speaks as a service, and there is none: kind {parcel.kind}")

    def on_datagram(self, now_ns: int, source: Address, datagram: Datagram, out: Outbox) -> None:
        """Nobody is found here."""

    def installed(self, now_ns: int, epoch: int) -> None:
        """It is the engine's affair."""

    def expire(self, now_ns: int, out: Outbox) -> None:
        """No timers."""

    def deadline_ns(self) -> int:
        return NEVER
