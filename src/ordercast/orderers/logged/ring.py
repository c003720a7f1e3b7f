"""The ring as one member has it: what all parts of its orderer read.

The log is the ring's. A view is applied when everything before it is received; its delivery follows in order.
"""

from __future__ import annotations

from ordercast.config import GroupConfig, Timing
from ordercast.parts.log import Log
from ordercast.parts.rtt import RoundTrip
from ordercast.view import DEPARTURES, Member, Reason, View
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.views import pack_change
from ordercast.wire.writer import DatagramWriter


class RingState:
    """State that survives joins and leaves and ends with the ring. `apply` and the orderer write it; parts read it."""

    __slots__ = (
        "applied",
        "callers",
        "config",
        "counter",
        "counters",
        "decided",
        "first_seq",
        "has_left",
        "is_frozen",
        "joined",
        "leaver",
        "log",
        "me",
        "next_block",
        "rtt",
        "timing",
        "view",
        "writer",
    )

    def __init__(
        self,
        me: Member,
        writer: DatagramWriter,
        config: GroupConfig,
        timing: Timing,
        view: View,
        next_block: int,
        counter: int,
        counters: dict[str, int],
    ) -> None:
        """`counter` is the highest view counter that this node has used: none is used twice (RMP section 3.1)."""
        self.me = me
        self.writer = writer
        self.config = config
        self.timing = timing
        self.rtt = RoundTrip(timing)  # of what members ask of each other
        self.view = view  # as of what is received
        self.next_block = next_block  # the number of the next own block
        self.counter = max(counter, view.counter)
        self.counters = counters  # the underlay's: they outlive the ring
        self.is_frozen = False
        self.has_left = False  # our log ends here, with our own leave or with the ring
        self.leaver: Member | None = None  # the member that the last change took out of the view
        # The last change that is known to be decided. A newcomer may not know that of its own join.
        self.decided = view.seq - 1 if view.reason == Reason.JOIN else view.seq
        ahead = 4 * config.history_blocks + 1_024
        numbers = {**view.callers, **view.numbers}
        self.log = Log(view.seq, view.position, numbers, ahead, config.datagram - HEADER_BYTES)
        if view.reason == Reason.JOIN:
            # We are the newcomer. The others may not have this view yet, and may lose the member that would repair it.
            self.log.begin_with(pack_change(view))
        self.callers = set(view.callers)  # origins that are no members (RMP section 4.5)
        self.applied: list[View] = []  # views since the underlay last took them
        self.first_seq = view.seq  # of the first view that this node has of the ring
        self.joined: dict[int, int] = {}  # members that came later -> the sequence number of their join

    @property
    def is_first(self) -> bool:
        """Whether we are the first member of the view, and still in it."""
        return self.view.leader.id == self.me.id and not self.has_left

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    @property
    def is_decided(self) -> bool:
        """Whether the change that made the view is known to be decided. Until then no other is ordered."""
        return self.decided >= self.view.seq

    @property
    def deliverable(self) -> int:
        """Entries up to this sequence number may be delivered: a view, and what stands behind it, waits until the
        change that made it is known to be decided. Otherwise a part of the group that goes on without this change could
        deliver something else."""
        received = self.log.received
        return received if self.decided >= self.view.seq else min(received, self.view.seq - 1)

    def take_views(self) -> list[View]:
        """Views that were applied since the last call."""
        views, self.applied = self.applied, []
        return views

    def apply(self, view: View) -> View:
        """A view and everything before it are received: members, callers and numbers change. The view before it."""
        old, self.view = self.view, view
        self.counter = max(self.counter, view.counter)
        # One change is decided before the next is ordered; one that changes nothing needs no decision.
        self.decided = max(self.decided, old.seq if view.prior else view.seq)
        if view.id != old.id:
            self.applied.append(view)
        numbers = self.log.next_number
        for member in view.members:
            if old.member(member.id) is None:
                self.joined[member.id] = view.seq
            numbers[member.id] = max(numbers.get(member.id, 0), view.numbers.get(member.id, 0))
        self.leaver = next((member for member in old.members if view.member(member.id) is None), None)
        if self.leaver is not None and view.reason in DEPARTURES:
            self.log.dismiss(self.leaver.id, view.reason == Reason.EXPEL)
            self.joined.pop(self.leaver.id, None)
        for origin in self.callers - view.callers.keys():
            if view.member(origin) is None:
                numbers.pop(origin, None)
        for origin, number in view.callers.items():
            numbers[origin] = max(numbers.get(origin, 0), number)
        self.callers = set(view.callers)
        self.has_left = view.member(self.me.id) is None or view.reason == Reason.DISSOLVE
        return old
