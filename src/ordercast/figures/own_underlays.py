"""A node with an underlay of its own for each group: the baseline of QSM's figure 1, where the paper has JGroups.

Each underlay is a whole engine of regions, with its own token, acknowledgements and rate. They share the node: its
processor, its port and its socket. Messages go to one group after the other. What an engine costs a processor besides
its datagrams is not counted, so a real node would do worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from ordercast.engine import NEVER, Outbox
from ordercast.orderers.regions.upcalls import LaneRun
from ordercast.sim.bulk.regional import RegionalNode
from ordercast.view import Address, group_tag
from ordercast.wire.header import HEADER_BYTES, TAG, TAG_OFFSET


class OwnUnderlays:
    """Engines side by side, with the face of `BulkEngine`."""

    __slots__ = ("_by_tag", "_due", "_heap", "_listens", "_nodes", "_stirred", "_turn")

    def __init__(self, engines: Sequence[tuple[str, RegionalNode]]) -> None:
        """By the names of their underlays."""
        self._nodes = [node for _, node in engines]
        self._by_tag = {group_tag(name): index for index, (name, _) in enumerate(engines)}
        self._due = [NEVER] * len(engines)  # the deadline of each
        self._heap: list[tuple[int, int]] = []  # of these; entries that no longer hold are passed over
        self._stirred = dict.fromkeys(range(len(engines)))  # in whom something has happened in this pass, in order
        self._listens: frozenset[Address] = frozenset()
        self._turn = 0  # whose the next message is

    def start(self, now_ns: int, out: Outbox) -> None:
        for node in self._nodes:
            node.start(now_ns, out)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        if len(data) < HEADER_BYTES:
            return
        index = self._by_tag.get(TAG.unpack_from(data, TAG_OFFSET)[0])
        if index is not None:
            self._stirred[index] = None
            self._nodes[index].receive(now_ns, source, data, stride, out)

    def expire(self, now_ns: int, out: Outbox) -> None:
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now_ns:
            at_ns, index = heappop(heap)
            if due[index] == at_ns:  # else another entry has replaced it
                due[index] = NEVER
                self._stirred[index] = None
                self._nodes[index].expire(now_ns, out)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        stirred, self._stirred = self._stirred, {}
        has_moved = False
        for index in stirred:
            node = self._nodes[index]
            before, heard = len(out.upcalls), node.listens()
            node.after_batch(now_ns, out)
            fresh: list[object] = [*out.upcalls[before:]]
            for upcall in fresh:
                if isinstance(upcall, LaneRun) and upcall.deliveries:
                    node.consume(now_ns, upcall.deliveries[-1].seq, out)
            has_moved = has_moved or node.listens() != heard
            due_ns = node.deadline_ns()
            if due_ns != self._due[index]:
                self._due[index] = due_ns
                if due_ns < NEVER:
                    heappush(self._heap, (due_ns, index))
        if has_moved:
            self._listens = frozenset().union(*[node.listens() for node in self._nodes])

    def deadline_ns(self) -> int:
        heap, due = self._heap, self._due
        while heap and due[heap[0][1]] != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def listens(self) -> frozenset[Address]:
        return self._listens

    def room(self, now_ns: int) -> tuple[int, int]:
        return self._nodes[self._turn].room(now_ns)

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        taken = 0
        for block in blocks:
            if not self._nodes[self._turn].submit(now_ns, [block], out):
                break
            self._stirred[self._turn] = None
            self._turn = (self._turn + 1) % len(self._nodes)
            taken += 1
        return taken

    def consume(self, now_ns: int, seq: int, out: Outbox) -> None:
        """Each engine has its own sequence, and got it back with the pass."""

    def waits_for_application(self) -> bool:
        return False

    def is_at_rest(self) -> bool:
        return all(node.is_at_rest() for node in self._nodes)
