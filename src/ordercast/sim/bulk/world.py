"""Virtual time for hundreds of engines: one heap, few events, and no object for a reception.

The world of `sim/world.py` runs whole nodes and writes down everything. This one runs engines, and counts. It differs
where that is cheaper, and nowhere in what an engine sees:

- A multicast is *one* event, at the time at which it reaches the ports of its receivers. They are handled in a loop. A
  receiver whose port is taken gets it later; all that get it at the same time share one event.
- A receiver whose processor is free works on what arrives within that event. It needs an event of its own only if it is
  busy, and for timers.
- Losses are drawn as distances (`skips.py`), for each receiver from a stream of its own.
- Multicast addresses are a table from address to listeners, kept up by what engines say after their passes.

Processor, socket buffer, ports and passes are those of `sim/world.py` and `sim/network.py`: reading and sending cost
processor time, a sender's port takes one datagram after the other, and so does a receiver's. A train is split where it
takes more of processor or port than `coalesce_ns`. Only switched networks (or such that take no time) with multicast
are modelled; datagrams are neither doubled nor reordered. Kernels say nothing of processes that are gone.

The heap is ordered by (time, number of the event), and no set is iterated where order matters: one seed, one result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, Note, Outbox, Send, To
from ordercast.errors import UsageError
from ordercast.sim.bulk.flight import Flight, check_model
from ordercast.sim.bulk.node import NO_TURN, TURN_NOW, BulkEngine, BulkNode, Program, QueuedBatch
from ordercast.sim.bulk.skips import Skips
from ordercast.sim.bulk.tally import BLOCK_KINDS, KINDS
from ordercast.sim.datagrams import COALESCE_NS, KIND_OFFSET
from ordercast.sim.machine import NORMAL_SPEED
from ordercast.sim.multicast import NOTHING, MulticastTable, is_multicast
from ordercast.sim.network import IDEAL, SOCKET_OVERHEAD_BYTES, NetworkModel
from ordercast.sim.world import BUFFER_BYTES, DRAIN_BATCHES, REST_HOLD_NS, SPIN_PASSES, SYMBOLIC, Livelock
from ordercast.view import Address
from ordercast.wire.header import FORWARD

MAX_NODES: Final = 10_000
EVENT_LIMIT: Final = 1 << 40  # runs are long on purpose; a test sets a smaller one
UNIFORM: Final = "uniform"  # the cause of losses that the model of the network has
REST_CHECK_NS: Final = 50 * MS
EVERYBODY: Final = frozenset({To.ALL})


class BulkWorld:
    """Everything that one seed makes happen to many engines."""

    __slots__ = (
        "_by_address",
        "_coalesce_ns",
        "_cuts",
        "_event_limit",
        "_heap",
        "_jitter",
        "_multicasts",
        "_out",
        "_sequence",
        "_sides",
        "_weights",
        "events",
        "model",
        "nodes",
        "notes",
        "now_ns",
        "passes",
        "receptions",
        "seed",
        "unroutable",
    )

    def __init__(
        self,
        seed: int | str,
        model: NetworkModel = IDEAL,
        *,
        stands_for: int = 1,
        coalesce_ns: int = COALESCE_NS,
        event_limit: int = EVENT_LIMIT,
    ) -> None:
        """stands_for: each datagram that carries a block takes as much of processors, ports and socket buffers as so
        many. Packet rates are then divided by it, and control costs what it does."""
        check_model(model)
        self.seed = seed
        self.model = model
        self.now_ns = 0
        self.nodes: dict[str, BulkNode] = {}
        # what has happened
        self.events = 0
        self.passes = 0
        self.receptions = 0  # batches that were handed to engines
        self.unroutable = 0  # unicasts to addresses of no node
        self.notes: dict[str, Callable[[BulkNode, int, list[Note]], None]] = {}  # by node: who wants its notes
        # the network
        self._by_address: dict[Address, BulkNode] = {}
        self._multicasts: MulticastTable[BulkNode] = MulticastTable()
        self._cuts: set[tuple[BulkNode, BulkNode]] = set()
        self._sides: dict[str, int] = {}  # empty: no partition
        self._jitter = self.stream("jitter")
        self._weights = [stands_for if kind in BLOCK_KINDS else 1 for kind in range(KINDS)]
        # time
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._sequence = 0
        self._event_limit = event_limit
        self._coalesce_ns = coalesce_ns
        self._out = Outbox()  # of the pass that runs: there is never more than one

    def stream(self, purpose: str) -> Random:
        """A source of chance of its own."""
        return Random(f"{self.seed}/{purpose}")

    def __getitem__(self, name: str) -> BulkNode:
        return self.nodes[name]

    # Nodes and what happens to them. ---------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        boot: Callable[[BulkNode], BulkEngine],
        *,
        program: Program | None = None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> BulkNode:
        """A node that is still down; `start` makes `boot` give it an engine, in every life a new one."""
        if name in self.nodes:
            raise UsageError(f"there is a node {name!r} already")
        if len(self.nodes) >= MAX_NODES:
            raise UsageError(f"a world has at most {MAX_NODES} nodes")
        skips = Skips(self.stream(f"loss/{name}"))
        skips.change(UNIFORM, self.model.loss)
        node = BulkNode(len(self.nodes), name, boot, buffer_bytes, program, skips)
        node.is_barred = bool(self._sides)
        self.nodes[name] = node
        self._by_address[node.address] = node
        return node

    def start(self, name: str) -> None:
        """Begin the next life of a node that is down; nothing happens to one that is up."""
        node = self.nodes[name]
        if node.engine is not None:
            return
        node.life += 1
        node.is_paused = False
        node.wake_ns = node.deadline_ns = NEVER
        node.busy_until_ns = self.now_ns + 1  # nothing is read before `start` was called
        node.engine = engine = node.boot(node)
        node.listens = getattr(engine, "listens", None)
        node.has_work = node.program is not None
        if node.program is not None:
            node.program.begin()
        self._multicasts.hear(node, EVERYBODY)
        self.at(self.now_ns, self._begin, (node, node.life))

    def start_all(self) -> None:
        for name in self.nodes:
            self.start(name)

    def crash(self, name: str) -> None:
        """Everything that the node knew is lost; what it had sent before is on its way."""
        node = self.nodes[name]
        if node.engine is None:
            return
        self._multicasts.hear(node, NOTHING)
        node.engine = node.listens = None
        node.listening = NOTHING
        node.inbox.clear()
        node.inbox_bytes = 0
        node.wake_ns = node.deadline_ns = NEVER
        node.has_work = False

    def pause(self, name: str) -> None:
        """The node stands still: its timers do not run and its socket buffer fills."""
        self.nodes[name].is_paused = True

    def resume(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_paused:
            node.is_paused = False
            node.wake_ns = NEVER
            if node.engine is not None:
                self._plan(node, self.now_ns)

    def slow(self, name: str, factor: float = 1.0) -> None:
        """Processor costs of the node times `factor`; 1 is normal."""
        self.nodes[name].slowness = int(NORMAL_SPEED * factor)

    def lose(self, name: str, cause: str, rate: float, burst: int = 1) -> None:
        """What would reach the node is lost with this probability, for one of several causes; 0 ends it. `burst`: so
        many datagrams in a row."""
        node = self.nodes[name]
        node.skips.change(cause, rate, burst)
        node.until_loss = node.skips.draw()

    def cut(self, source: str, target: str) -> None:
        """Nothing from `source` reaches `target`; the other direction is another matter."""
        self._cuts.add((self.nodes[source], self.nodes[target]))
        self.nodes[target].is_barred = True

    def mend(self, source: str, target: str) -> None:
        self._cuts.discard((self.nodes[source], self.nodes[target]))
        self._bar()

    def partition(self, sides: Sequence[Iterable[str]]) -> None:
        """Only nodes of the same side reach one another; nodes that no side names are together on one more."""
        self._sides = {name: number for number, side in enumerate(sides, start=1) for name in side}
        self._bar()

    def heal(self) -> None:
        """End the partition and all cuts."""
        self._sides = {}
        self._cuts.clear()
        self._bar()

    def _bar(self) -> None:
        targets = {target for _, target in self._cuts}
        for node in self.nodes.values():
            node.is_barred = bool(self._sides) or node in targets

    def _is_cut(self, source: BulkNode, target: BulkNode) -> bool:
        if (source, target) in self._cuts:
            return True
        sides = self._sides
        return bool(sides) and sides.get(source.name, 0) != sides.get(target.name, 0)

    # Events. ---------------------------------------------------------------------------------------------------------

    def at(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Call `action(argument)` at a time; a time that has passed means now, after what is planned for now."""
        self._sequence += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._sequence, action, argument))

    def after(self, delay_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        self.at(self.now_ns + delay_ns, action, argument)

    def wake(self, node: BulkNode) -> None:
        """The program of a node wants its turn, as soon as the processor is free."""
        node.has_work = True
        if node.engine is not None and not node.is_paused:
            self._plan(node, max(self.now_ns, node.busy_until_ns))

    def run_until(self, limit_ns: int) -> None:
        """Go on to a time."""
        heap, events = self._heap, 0
        allowed = self._event_limit - self.events
        try:
            while heap and heap[0][0] <= limit_ns:
                events += 1
                if events > allowed:
                    raise Livelock(
                        f"more than {self._event_limit} events, at {self.now_ns / SECOND:.3f} s of virtual time"
                    )
                self.now_ns, _, action, argument = heappop(heap)
                action(argument)
        finally:
            self.events += events
        self.now_ns = max(self.now_ns, limit_ns)

    def run_to_rest(self, limit_ns: int, hold_ns: int = REST_HOLD_NS) -> list[str]:
        """Go on until nothing is outstanding anywhere, and has not been for `hold_ns`: what is under way between two
        nodes is seen at neither. What was not at rest at `limit_ns`, in words."""
        since_ns = NEVER
        while True:
            unrest = self.unrest()
            since_ns = NEVER if unrest else min(since_ns, self.now_ns)
            if self.now_ns >= limit_ns or self.now_ns - since_ns >= hold_ns:
                return unrest
            self.run_until(min(self.now_ns + REST_CHECK_NS, limit_ns))

    def unrest(self) -> list[str]:
        """Which nodes are not at rest now."""
        texts = []
        for node in self.nodes.values():
            if node.engine is None:
                continue
            if node.is_paused:
                texts.append(f"{node} is paused")
            elif node.inbox:
                texts.append(f"{node}: {len(node.inbox)} batches wait in its socket")
            elif not node.engine.is_at_rest():
                texts.append(f"{node}: its engine is not at rest")
            elif node.program is not None and not node.program.is_done():
                texts.append(f"{node}: its program has more to do")
        return texts

    def listeners(self, address: Address) -> list[str]:
        """The nodes that hear a multicast address now."""
        return [node.name for node in self._multicasts.listeners(address)]

    # Arrivals. -------------------------------------------------------------------------------------------------------

    def _arrive(self, flight: Flight) -> None:
        """A multicast is at the ports of those that listen now."""
        self._pass_ports(flight, self._multicasts.listeners(flight.to))

    def _arrive_alone(self, flight: Flight) -> None:
        node = self._by_address[flight.to]
        if node.engine is not None:
            self._pass_ports(flight, (node,))

    def _pass_ports(self, flight: Flight, nodes: Iterable[BulkNode]) -> None:
        """What gets through to which receiver, and when. Hot: one turn of the loop per reception.

        Measured by `python -m benches.bulk`.
        """
        source, _, _, _, datagrams, wire_ns, _ = flight
        now_ns = self.now_ns
        jitter_ns = self.model.jitter_ns
        ready: list[BulkNode] = []
        late: dict[int, list[BulkNode]] | None = None
        for node in nodes:
            if node is source:
                continue
            if node.is_barred and self._is_cut(source, node):
                node.tally.cut += datagrams
                continue
            left = node.until_loss - datagrams
            if left < 0:
                self._lose_some(node, flight)
                continue
            node.until_loss = left
            at_ns = node.ingress_free_ns + wire_ns
            if jitter_ns:
                at_ns = max(at_ns, now_ns + int(self._jitter.random() * jitter_ns))
            if at_ns > now_ns:
                node.ingress_free_ns = at_ns
                if late is None:
                    late = {}
                late.setdefault(at_ns, []).append(node)
            else:
                node.ingress_free_ns = now_ns
                ready.append(node)
        if late is not None:
            for at_ns, some in late.items():
                self.at(at_ns, self._arrive_late, (flight, some))
        if ready:
            self._reach(flight, ready)

    def _arrive_late(self, argument: tuple[Flight, list[BulkNode]]) -> None:
        flight, nodes = argument
        self._reach(flight, [node for node in nodes if node.engine is not None])

    def _lose_some(self, node: BulkNode, flight: Flight) -> None:
        """A receiver does not get everything: what is left of a train comes in pieces. They wait in the socket
        together, as they would on a real node."""
        source, to, body, stride, datagrams, wire_ns, kind = flight
        until, draw = node.until_loss, node.skips.draw
        pieces: list[tuple[int, int]] = []
        first = lost = 0
        while until < datagrams:
            if until > first:
                pieces.append((first, until))
            lost += 1
            first = until + 1
            until = first + draw()
        node.until_loss = until - datagrams
        node.tally.lost += lost
        if first < datagrams:
            pieces.append((first, datagrams))
        for first, stop in pieces:
            some = stop - first
            part = body[first * stride : stop * stride]
            taken_ns = wire_ns * some // datagrams
            node.ingress_free_ns = at_ns = max(self.now_ns, node.ingress_free_ns + taken_ns)
            piece = Flight(source, to, part, stride if some > 1 else 0, some, taken_ns, kind)
            if at_ns > self.now_ns:
                self.at(at_ns, self._arrive_late, (piece, [node]))
            else:
                self._queue(node, piece)

    def _reach(self, flight: Flight, nodes: list[BulkNode]) -> None:
        """Datagrams are at the sockets of nodes that are up. Hot: one turn of the loop per reception."""
        source, _, body, stride, datagrams, _, kind = flight
        now_ns = self.now_ns
        size = len(body)
        model = self.model
        cost_ns = (model.pass_ns + model.receive_cost_ns(datagrams, size)) * self._weights[kind]
        address, out = source.address, self._out
        for node in nodes:
            engine = node.engine
            if node.busy_until_ns > now_ns or node.inbox or node.is_paused or engine is None:
                if engine is not None:
                    self._queue(node, flight)
                continue
            tally = node.tally
            tally.received[kind] += datagrams
            tally.received_bytes[kind] += size
            at_ns = now_ns + (cost_ns if node.slowness == NORMAL_SPEED else cost_ns * node.slowness // NORMAL_SPEED)
            engine.receive(at_ns, address, body, stride, out)
            self.receptions += 1
            self._finish(node, engine, at_ns)

    def _queue(self, node: BulkNode, flight: Flight) -> None:
        """Put datagrams into the socket buffer. Those that do not fit are dropped and counted."""
        source, _, body, stride, datagrams, _, kind = flight
        size = len(body)
        fits = datagrams
        weight = self._weights[kind]
        taken = (size + datagrams * SOCKET_OVERHEAD_BYTES) * weight
        if node.inbox_bytes + taken > node.buffer_bytes:
            each = ((stride if datagrams > 1 else size) + SOCKET_OVERHEAD_BYTES) * weight
            fits = max(0, min(datagrams - 1, (node.buffer_bytes - node.inbox_bytes) // each))
            node.tally.dropped += datagrams - fits
            if not fits:
                return
            body = body[: fits * stride]
            size, taken = fits * stride, fits * each
        node.tally.received[kind] += fits
        node.tally.received_bytes[kind] += size
        node.inbox.append(QueuedBatch(source.address, body, stride if fits > 1 else 0, fits, weight))
        node.inbox_bytes += taken
        if not node.is_paused:
            at_ns = max(self.now_ns, node.busy_until_ns)
            if at_ns < node.wake_ns:
                self._plan(node, at_ns)

    # Passes. ---------------------------------------------------------------------------------------------------------

    def _plan(self, node: BulkNode, at_ns: int) -> None:
        """A pass at `at_ns`; an earlier plan stays."""
        if at_ns < node.wake_ns:
            node.wake_ns = at_ns
            self._sequence += 1
            heappush(self._heap, (at_ns, self._sequence, self._run_pass, node))

    def _begin(self, argument: tuple[BulkNode, int]) -> None:
        node, life = argument
        engine = node.engine
        if engine is not None and node.life == life:
            engine.start(self.now_ns, self._out)
            self._finish(node, engine, self.now_ns)

    def _run_pass(self, node: BulkNode) -> None:
        """A pass that was planned: for what waits in the socket, for a timer, or for the program."""
        now_ns = self.now_ns
        engine = node.engine
        if node.wake_ns != now_ns or engine is None or node.is_paused:
            return  # another plan replaced it, or the node is down
        node.wake_ns = NEVER
        if node.busy_until_ns > now_ns:
            self._plan(node, node.busy_until_ns)
            return
        inbox = node.inbox
        if not inbox:
            if not node.has_work and node.deadline_ns > now_ns:
                # Only a timer was due when this was planned; most are put off before they run.
                if node.deadline_ns < NEVER:
                    self._plan(node, node.deadline_ns)
                return
            at_ns = now_ns + self.model.pass_ns * node.slowness // NORMAL_SPEED
            self._finish(node, engine, at_ns)
            if node.wake_ns > at_ns:
                node.spins = 0
            else:
                self._note_spin(node)
            return
        model, out = self.model, self._out
        batches: list[QueuedBatch] = []
        cost_ns, heaviest = 0, 1
        while inbox and len(batches) < DRAIN_BATCHES:
            batch = inbox.popleft()
            batches.append(batch)
            size = len(batch.body)
            weight = batch.weight
            heaviest = max(heaviest, weight)
            node.inbox_bytes -= (size + batch.datagrams * SOCKET_OVERHEAD_BYTES) * weight
            cost_ns += model.receive_cost_ns(batch.datagrams, size) * weight
        at_ns = now_ns + (cost_ns + model.pass_ns * heaviest) * node.slowness // NORMAL_SPEED
        for source, body, stride, _, _ in batches:
            engine.receive(at_ns, source, body, stride, out)
        self.receptions += len(batches)
        self._finish(node, engine, at_ns)

    def _finish(self, node: BulkNode, engine: BulkEngine, at_ns: int) -> None:
        """The second half of a pass: timers, program, `after_batch`, what leaves, what is handed over. Hot: once per
        pass of the simulated world."""
        out = self._out
        self.passes += 1
        program = node.program
        want = NO_TURN
        if node.deadline_ns <= at_ns:
            engine.expire(at_ns, out)
        if node.has_work:
            node.has_work = False
            if program is not None:
                want = program.turn(at_ns, engine, out)
        engine.after_batch(at_ns, out)
        busy_ns = at_ns
        if out.sends:
            for send in out.sends:
                busy_ns = self._transmit(node, send, busy_ns)
            out.sends.clear()
        node.busy_until_ns = busy_ns
        if out.upcalls:
            if program is not None:
                wanted = program.take(at_ns, engine, out.upcalls)
                if wanted > want:
                    want = wanted
            out.upcalls.clear()
        if out.notes:
            if self.notes and node.name in self.notes:
                self.notes[node.name](node, at_ns, out.notes[:])
            out.notes.clear()
        if node.listens is not None:
            listening = node.listens()
            if listening is not node.listening and listening != node.listening:
                node.listening = listening
                self._multicasts.hear(node, listening | EVERYBODY)
        node.deadline_ns = deadline_ns = engine.deadline_ns()
        if want:
            node.has_work = True
        wake_ns = busy_ns if want is TURN_NOW or node.inbox or deadline_ns < busy_ns else deadline_ns
        if wake_ns < node.wake_ns:
            self._plan(node, wake_ns)

    def _note_spin(self, node: BulkNode) -> None:
        """A pass that received and sent nothing that took time is to be followed by another one at once: an overdue
        timer that does not run, or a program that sends without end where sending costs nothing."""
        node.spins += 1
        if node.spins > SPIN_PASSES:
            raise Livelock(
                f"{node} has asked {SPIN_PASSES} times in a row for a pass at once, at {self.now_ns / SECOND:.3f} s of "
                "virtual time: `expire` does not clear a timer, or a program sends where nothing takes time"
            )

    def _transmit(self, node: BulkNode, send: Send, now_ns: int) -> int:
        """Put one transmission on the network; when the processor is done with it.

        The processor hands one datagram of a train over after the other, and each leaves when the port is free.
        """
        to, buffers, stride = send
        data = b"".join(buffers)  # a copy: engines use their buffers again
        size = len(data)
        datagrams = 1 if stride <= 0 or stride >= size else -(-size // stride)
        kind = data[KIND_OFFSET] & ~FORWARD if size > KIND_OFFSET else 0
        tally = node.tally
        tally.sent[kind] += datagrams
        tally.sent_bytes[kind] += size
        arrive = self._arrive
        if to in SYMBOLIC:
            to = To.ALL
        elif to in self._by_address:
            arrive = self._arrive_alone
        elif not is_multicast(to):
            self.unroutable += datagrams
        model = self.model
        weight = self._weights[kind]
        body = memoryview(data)
        if datagrams == 1:
            done_ns = now_ns + model.send_cost_ns(1, size) * weight * node.slowness // NORMAL_SPEED
            wire_ns = model.wire_ns(size) * weight
            node.egress_free_ns = end_ns = max(done_ns, node.egress_free_ns) + wire_ns
            self._sequence += 1
            flight = Flight(node, to, body, 0, 1, wire_ns, kind)
            heappush(self._heap, (end_ns + model.latency_ns, self._sequence, arrive, flight))
            return done_ns
        each_ns = model.send_cost_ns(1, stride) * weight * node.slowness // NORMAL_SPEED
        wire_ns = model.wire_ns(stride) * weight
        together = max(1, self._coalesce_ns // max(each_ns, wire_ns, 1))
        for first in range(0, datagrams, together):
            stop = min(first + together, datagrams)
            part = body[first * stride : stop * stride]
            some = stop - first
            taken_ns = wire_ns * (some - 1) + model.wire_ns(len(part) - stride * (some - 1)) * weight
            done_ns = now_ns + stop * each_ns
            end_ns = max(node.egress_free_ns + taken_ns, done_ns + taken_ns - wire_ns * (some - 1))
            node.egress_free_ns = end_ns
            self._sequence += 1
            flight = Flight(node, to, part, stride if some > 1 else 0, some, taken_ns, kind)
            heappush(self._heap, (end_ns + model.latency_ns, self._sequence, arrive, flight))
        return now_ns + datagrams * each_ns
