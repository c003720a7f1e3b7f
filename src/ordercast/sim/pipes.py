"""What lies between sites in virtual time: one pipe for each direction between two of them (docs/design/simulator.md).

All daemons of a site share its pipes. A pipe is a router with one queue and a line behind it:

1. A datagram that finds the pipe cut is gone.
2. It waits behind everything that came before it, from any daemon of the site, and leaves at the bandwidth of the pipe.
   The queue is bounded in bytes, and drops what does not fit (drop-tail). What has not left in full counts: the
   datagram on the line, too. A pipe with nothing in it takes any datagram, or one that is larger than the queue could
   never pass. On the line a datagram has `FRAME_OVERHEAD` bytes more in each of its frames.
3. On the line it is lost, or arrives after latency and jitter, perhaps twice, perhaps late. Under jitter datagrams keep
   their order; only one that is drawn as reordered, or a second copy, can be overtaken.

What was lost on the line has used the bandwidth; what the queue dropped has not. Datagrams that are in the pipe when it
is cut still arrive.

Whether a datagram fits the queue depends on when it comes, so that a datagram enters a pipe as an event of its own: the
senders of a site work side by side, and the order of their calls is not the order of their datagrams. `enter` takes it,
and `serve` at `next_ns` says where it comes out. Each pipe has a chance of its own: a change of one pipe, or in what it
carries, leaves the others as they were.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.sim.datagrams import COALESCE_NS, Train, kind_of

FRAME_PAYLOAD: Final = 1_472  # bytes of a datagram that fit one frame
FRAME_OVERHEAD: Final = 28  # of IP and UDP, in each frame

Direction = tuple[str, str]
"""From one site to another."""


@dataclass(frozen=True, slots=True)
class PipeModel:
    """What one direction between two sites is like."""

    latency_ns: int = 0
    jitter_ns: int = 0  # up to so much more, evenly distributed
    bits_per_s: int = 0  # 0: it takes no time, and nothing waits
    queue_bytes: int = 0  # 0: no bound
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_ns: int = 10 * MS  # a reordered datagram, or a second copy, comes up to this much later

    def __post_init__(self) -> None:
        for name in ("latency_ns", "jitter_ns", "bits_per_s", "queue_bytes", "reorder_ns"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} of a pipe is 0 or more, not {getattr(self, name)}")
        for name in ("loss", "duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} of a pipe is a probability from 0 to 1, not {getattr(self, name)}")

    def line_bytes(self, size: int) -> int:
        """What one datagram of `size` bytes is on the line and in the queue."""
        return size + (-(-size // FRAME_PAYLOAD) or 1) * FRAME_OVERHEAD

    def line_ns(self, size: int) -> int:
        """How long it occupies the line."""
        return self.line_bytes(size) * 8 * SECOND // self.bits_per_s if self.bits_per_s else 0


@dataclass(slots=True)
class PipeCounters:
    """What became of the datagrams that came to a pipe. Sizes are those of datagrams, without frames.

    `datagrams` and everything by kind count what was sent over the line, also what was lost on it.
    """

    datagrams: int = 0
    bytes: int = 0
    queue_drops: int = 0  # the queue was full
    queue_drop_bytes: int = 0
    lost: int = 0  # on the line, by chance
    cut: int = 0  # the pipe was cut when they came
    duplicated: int = 0
    reordered: int = 0
    peak_queue_bytes: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    bytes_by_kind: Counter[str] = field(default_factory=Counter)
    drops_by_kind: Counter[str] = field(default_factory=Counter)  # by the queue

    def as_json(self) -> dict[str, Any]:
        """All of it; kinds in alphabetical order."""
        return {
            "datagrams": self.datagrams,
            "bytes": self.bytes,
            "queue_drops": self.queue_drops,
            "queue_drop_bytes": self.queue_drop_bytes,
            "lost": self.lost,
            "cut": self.cut,
            "duplicated": self.duplicated,
            "reordered": self.reordered,
            "peak_queue_bytes": self.peak_queue_bytes,
            "by_kind": dict(sorted(self.by_kind.items())),
            "bytes_by_kind": dict(sorted(self.bytes_by_kind.items())),
            "drops_by_kind": dict(sorted(self.drops_by_kind.items())),
        }


class Carried(NamedTuple):
    """Datagrams that come out of a pipe. `is_late`: they may be overtaken."""

    at_ns: int
    target: str
    batch: Train
    is_late: bool


class Pipe:
    """One direction between two sites."""

    __slots__ = ("_free_ns", "_last_ns", "_queue", "_queue_bytes", "_rng", "counters", "is_cut", "model")

    def __init__(self, model: PipeModel, rng: random.Random) -> None:
        self.model = model
        self.counters = PipeCounters()
        self.is_cut = False
        self._rng = rng
        self._queue: deque[tuple[int, int]] = deque()  # (when it has left, bytes on the line) of what is in the queue
        self._queue_bytes = 0
        self._free_ns = 0  # when the line is free
        self._last_ns = 0  # the last arrival: first in, first out

    def queued_bytes(self, now_ns: int) -> int:
        """What waits, or has not left in full."""
        queue = self._queue
        while queue and queue[0][0] <= now_ns:
            self._queue_bytes -= queue.popleft()[1]
        return self._queue_bytes

    def carry(
        self, now_ns: int, target: str, batch: Train, kind: str, name_kind: Callable[[bytes], str] | None = None
    ) -> list[Carried]:
        """A train of datagrams comes to the pipe now; what comes out of it. `kind`: of the first one, and of all others
        where nobody names theirs."""
        counters = self.counters
        if self.is_cut:
            counters.cut += batch.datagrams
            return []
        arrivals: list[tuple[int, int]] = []  # (time, index) of what keeps its order
        late: list[Carried] = []
        size, stride = len(batch.data), batch.stride
        for index in range(batch.datagrams):
            length = min(stride, size - index * stride) if stride else size
            if index and name_kind is not None:
                kind = name_kind(batch.data[index * stride : index * stride + length])
            left_ns = self._enqueue(now_ns, length, kind)
            if left_ns >= 0:
                self._cross(left_ns, index, target, batch, arrivals, late)
        return [*_batches(arrivals, target, batch), *late]

    def report_ns(self, now_ns: int, rng: random.Random) -> int:
        """When a short word of a kernel comes out of the pipe; -1: it is lost. It waits for nothing."""
        if self.is_cut or rng.random() < self.model.loss:
            return -1
        return now_ns + self.model.latency_ns + int(rng.random() * self.model.jitter_ns)

    def _enqueue(self, now_ns: int, length: int, kind: str) -> int:
        """When a datagram has left, or -1: the queue drops it."""
        model, counters = self.model, self.counters
        left_ns = now_ns
        if model.bits_per_s:
            on_line = model.line_bytes(length)
            waiting = self.queued_bytes(now_ns)
            if model.queue_bytes and waiting and waiting + on_line > model.queue_bytes:
                counters.queue_drops += 1
                counters.queue_drop_bytes += length
                counters.drops_by_kind[kind] += 1
                return -1
            left_ns = self._free_ns = max(now_ns, self._free_ns) + model.line_ns(length)
            self._queue.append((left_ns, on_line))
            self._queue_bytes = waiting + on_line
            counters.peak_queue_bytes = max(counters.peak_queue_bytes, self._queue_bytes)
        counters.datagrams += 1
        counters.bytes += length
        counters.by_kind[kind] += 1
        counters.bytes_by_kind[kind] += length
        return left_ns

    def _cross(
        self,
        left_ns: int,
        index: int,
        target: str,
        batch: Train,
        arrivals: list[tuple[int, int]],
        late: list[Carried],
    ) -> None:
        """One datagram on the line."""
        model, rng, counters = self.model, self._rng, self.counters
        if model.loss and rng.random() < model.loss:
            counters.lost += 1
            return
        at_ns = left_ns + model.latency_ns
        if model.jitter_ns:
            at_ns += int(rng.random() * model.jitter_ns)
        at_ns = self._last_ns = max(at_ns, self._last_ns)
        is_reordered = model.reorder > 0 and rng.random() < model.reorder
        if is_reordered:
            counters.reordered += 1
        else:
            arrivals.append((at_ns, index))
        is_double = model.duplicate > 0 and rng.random() < model.duplicate
        if is_double:
            counters.duplicated += 1
        for _ in range(is_reordered + is_double):
            late_ns = at_ns + 1 + int(rng.random() * model.reorder_ns)
            late.append(Carried(late_ns, target, batch.piece(index, index + 1), True))


def _batches(arrivals: Sequence[tuple[int, int]], target: str, batch: Train) -> Iterator[Carried]:
    """Neighbours of a train that arrive within `COALESCE_NS` are read in one call, when the last of them is there."""
    first = 0
    for number in range(1, len(arrivals) + 1):
        if number < len(arrivals):
            begin_ns, last = arrivals[first][0], arrivals[number - 1][1]
            at_ns, index = arrivals[number]
            if index == last + 1 and at_ns - begin_ns <= COALESCE_NS:
                continue
        at_ns, last = arrivals[number - 1]
        yield Carried(at_ns, target, batch.piece(arrivals[first][1], last + 1), False)
        first = number


class Pipes:
    """All pipes of a world, and which site each of its nodes is in."""

    __slots__ = ("_coming", "_models", "_number", "_places", "_sites", "all", "name_kind")

    def __init__(
        self,
        places: Mapping[str, str],
        models: Mapping[Direction, PipeModel],
        stream: Callable[[str], random.Random],
        name_kind: Callable[[bytes], str] = kind_of,
    ) -> None:
        """`places`: node -> its site. `stream` makes a source of chance for a purpose. `name_kind`: what a datagram is
        counted as."""
        self._places = dict(places)
        self._sites = tuple(dict.fromkeys(self._places.values()))
        self._models = dict(models)
        self.name_kind = name_kind
        self.all: dict[Direction, Pipe] = {
            (source, target): Pipe(model, stream(f"pipe/{source}>{target}"))
            for (source, target), model in self._models.items()
        }
        self._coming: list[tuple[int, int, str, Train]] = []  # a heap of what has yet to come to its pipe
        self._number = 0

    # Places. ---------------------------------------------------------------------------------------------------------

    @property
    def sites(self) -> tuple[str, ...]:
        return self._sites

    def site_of(self, node: str) -> str:
        if node not in self._places:
            raise UsageError(f"node {node!r} is in no site; place it in one of {', '.join(self._sites)}")
        return self._places[node]

    def nodes_of(self, site: str) -> tuple[str, ...]:
        return tuple(node for node, place in self._places.items() if place == self._known(site))

    def is_near(self, source: str, target: str) -> bool:
        """Whether two nodes are in one site."""
        return self._places[source] == self._places[target]

    def between(self, source: str, target: str) -> Pipe:
        """The pipe from one site to another."""
        pipe = self.all.get((source, target))
        if pipe is None:
            self._known(source)
            self._known(target)
            raise UsageError(f"there is no pipe from {source} to {target}")
        return pipe

    def joining(self, source: str, target: str) -> Pipe | None:
        """The pipe from one node to another; None: they are in one site."""
        places = self._places
        return self.all.get((places[source], places[target]))

    def _known(self, site: str) -> str:
        if site not in self._sites:
            raise UsageError(f"there is no site {site!r}; the sites are {', '.join(self._sites)}")
        return site

    # Conditions. -----------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Nothing from one site enters the pipe to the other; the other direction is another matter."""
        self.between(source, target).is_cut = True

    def mend(self, source: str, target: str) -> None:
        self.between(source, target).is_cut = False

    def partition(self, sides: Sequence[Iterable[str]]) -> None:
        """Cut every pipe between sites of different sides; sites that no side names are together on one more. Pipes
        that are cut already stay so, and each of them can be mended on its own."""
        for source, target in self.across(sides):
            self.cut(source, target)

    def across(self, sides: Sequence[Iterable[str]]) -> list[Direction]:
        """The directions between sites of different sides."""
        numbers = {self._known(site): number for number, side in enumerate(sides, start=1) for site in side}
        return [each for each in self.all if numbers.get(each[0], 0) != numbers.get(each[1], 0)]

    def heal(self) -> None:
        """Mend all of them."""
        for pipe in self.all.values():
            pipe.is_cut = False

    def change(self, source: str, target: str, **properties: Any) -> None:
        """Give a pipe other properties, by the names of `PipeModel`. They hold for what comes from now on."""
        pipe = self.between(source, target)
        pipe.model = replace(pipe.model, **properties)

    def original(self, source: str, target: str) -> PipeModel:
        """What a pipe was like in the beginning."""
        self.between(source, target)
        return self._models[source, target]

    def reset(self, source: str = "", target: str = "") -> None:
        """The pipe has the properties of the beginning again; without names all of them have."""
        for direction, model in self._models.items():
            if direction == (source, target) or not source:
                self.all[direction].model = model

    def end_losses(self) -> None:
        """From now on no pipe loses, doubles or reorders anything by chance."""
        for pipe in self.all.values():
            pipe.model = replace(pipe.model, loss=0.0, duplicate=0.0, reorder=0.0)

    # Transmission. ---------------------------------------------------------------------------------------------------

    def enter(self, at_ns: int, target: str, batch: Train) -> None:
        """A train to a node of another site comes to its pipe at `at_ns`."""
        self._number += 1
        heappush(self._coming, (at_ns, self._number, target, batch))

    def next_ns(self) -> int:
        """When `serve` is due; NEVER where nothing is on its way to a pipe."""
        return self._coming[0][0] if self._coming else NEVER

    def serve(self, now_ns: int) -> list[Carried]:
        """What comes out of the pipes, and when, of everything that has come to them by now."""
        found: list[Carried] = []
        places = self._places
        while self._coming and self._coming[0][0] <= now_ns:
            at_ns, _, target, batch = heappop(self._coming)
            pipe = self.all[places[batch.source], places[target]]
            found += pipe.carry(at_ns, target, batch, self.name_kind(batch.data), self.name_kind)
        return found
