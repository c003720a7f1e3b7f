"""Requests that wait to be ordered: 5 batches a second, and one view of a region in a second (REGIONS section 2).

Both are means. After a pause a few may follow one another at once: otherwise a node that joins one group after the
other would wait a second for each, and the first join for the batches that found the service and register the node.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.gms.directory import RegionDirectory
from ordercast.wire.gms import MAX_BATCH, Ask, EpochBatch, EpochOperation, NodeRequest

BATCH_NS: Final = SECOND // 5  # between two batches, on average
BATCHES_AT_ONCE: Final = 10  # after a pause
VIEW_NS: Final = SECOND  # between two views of one region, on average
VIEWS_AT_ONCE: Final = 3  # of one region after a pause: a lane may have eight of it that have not drained
STALE_NS: Final = 3 * SECOND  # for which a batch may be under way: then this leader leads nobody
MAX_BATCH_NAMES: Final = 262_144  # of one batch; of more, the rest waits


class Gathering:
    __slots__ = ("_batch_ns", "_confirms", "_own", "_requests", "_sent_ns", "_touched", "_view_ns")

    def __init__(self) -> None:
        self._requests: dict[int, EpochOperation] = {}  # node -> its request; one each
        self._confirms: dict[int, int] = {}  # node -> epoch
        self._own: dict[tuple[int, Ask, int], EpochOperation] = {}  # of the service itself
        self._view_ns: dict[int, int] = {}  # region -> when all of its views would be paid for, at one in `VIEW_NS`
        self._touched: dict[int, tuple[int, EpochOperation, frozenset[int]]] = {}  # node -> regions, as of an epoch
        self._batch_ns = 0  # when all batches would be paid for, at one in `BATCH_NS`
        self._sent_ns = -1  # since when a batch is under way; -1: none is

    def ask(self, node: int, number: int, request: NodeRequest) -> None:
        self._requests[node] = EpochOperation(node, number, request)

    def has(self, node: int, number: int) -> bool:
        """Whether this request waits here, or is under way."""
        known = self._requests.get(node)
        return known is not None and known.number == number

    def confirm(self, node: int, epoch: int) -> None:
        self._confirms[node] = max(epoch, self._confirms.get(node, 0))

    def order(self, node: int, request: NodeRequest) -> None:
        """Something that the service itself wants. Parts of a plan stay in their order."""
        part = len(self._own) if request.what is Ask.PLACE else 0
        self._own.setdefault((node, request.what, part), EpochOperation(node, 0, request))

    def spare(self, node: int) -> None:
        """It was to be excluded, and has said something."""
        self._own.pop((node, Ask.EXCLUDE, 0), None)

    @property
    def requests(self) -> dict[int, EpochOperation]:
        return self._requests

    def is_stale(self, now_ns: int) -> bool:
        """Whether what was ordered does not come back: the replicas of this side are too few."""
        return self._sent_ns >= 0 and now_ns - self._sent_ns >= STALE_NS

    def next_batch(self, now_ns: int, directory: RegionDirectory, leader: str) -> EpochBatch | None:
        """What is to be ordered now; None: nothing, or not yet."""
        if self._sent_ns >= 0 or now_ns < self._next_ns:
            return None
        taken: list[EpochOperation] = list(self._own.values())[:MAX_BATCH]
        for node, epoch in list(self._confirms.items())[: MAX_BATCH - len(taken)]:
            taken.append(EpochOperation(node, 0, NodeRequest(Ask.CONFIRM, epoch=epoch)))
        left = MAX_BATCH_NAMES
        for operation in self._requests.values():
            names = len(operation.request.names)
            if len(taken) >= MAX_BATCH or (names > left and left < MAX_BATCH_NAMES):
                break
            if self._ready_ns(operation, directory) <= now_ns:
                taken.append(operation)
                left -= names
        if not taken:
            return None
        self._sent_ns = now_ns
        return EpochBatch(directory.epoch + 1, leader, tuple(taken))

    def ordered(self, now_ns: int, batch: EpochBatch, directory: RegionDirectory, touched: tuple[int, ...]) -> None:
        """A batch has been applied, or came too late: then what it had waits for the next one."""
        self._sent_ns = -1
        self._batch_ns = max(now_ns, self._batch_ns) + BATCH_NS
        for region in touched:
            self._view_ns[region] = max(now_ns, self._view_ns.get(region, 0)) + VIEW_NS
        for region in [region for region in self._view_ns if region not in directory.regions]:
            del self._view_ns[region]
        for node, number, request in batch.operations:
            if request.what is Ask.CONFIRM and self._confirms.get(node, -1) <= request.epoch:
                self._confirms.pop(node, None)
            if not number:
                for key in [key for key, each in self._own.items() if each.request == request and each.node == node]:
                    del self._own[key]

    def done(self, node: int) -> None:
        """Its request is answered, or it is out."""
        self._requests.pop(node, None)
        self._touched.pop(node, None)

    def forget(self, node: int) -> None:
        self._requests.pop(node, None)
        self._touched.pop(node, None)
        self._confirms.pop(node, None)

    def failed(self, now_ns: int) -> None:
        """A batch could not be sent: the next one not at once."""
        self._sent_ns = -1
        self._batch_ns = now_ns + BATCHES_AT_ONCE * BATCH_NS

    def clear(self) -> None:
        self._requests.clear()
        self._touched.clear()
        self._confirms.clear()
        self._own.clear()
        self._view_ns.clear()
        self._sent_ns = -1

    def due_ns(self, now_ns: int, directory: RegionDirectory) -> int:
        """When there will be a batch; NEVER: something else has to happen first."""
        if self._sent_ns >= 0:
            return NEVER
        if self._own or self._confirms:
            return max(now_ns, self._next_ns)
        ready = [self._ready_ns(operation, directory) for operation in self._requests.values()]
        return max(now_ns, self._next_ns, min(ready)) if ready else NEVER

    @property
    def _next_ns(self) -> int:
        """When the next batch may leave."""
        return self._batch_ns - (BATCHES_AT_ONCE - 1) * BATCH_NS

    def _ready_ns(self, operation: EpochOperation, directory: RegionDirectory) -> int:
        """When each region that it changes may have another view. Looking up 100,000 names takes time: what was found
        holds until the next epoch."""
        epoch, known, touched = self._touched.get(operation.node, (-1, operation, frozenset()))
        if epoch != directory.epoch or known is not operation:
            touched = frozenset(directory.touched_by(operation))
            self._touched[operation.node] = (directory.epoch, operation, touched)
        return max([self._view_ns.get(region, 0) for region in touched], default=0) - (VIEWS_AT_ONCE - 1) * VIEW_NS
