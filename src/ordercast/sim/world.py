"""Virtual time, nodes with a processor and a socket buffer, and everything that can happen to them.

See docs/design/overview.md section 8 and docs/design/simulator.md.

A `World` owns one heap of events ordered by (time, sequence number), so that two events of the same nanosecond happen
in the order in which they were made, under any PYTHONHASHSEED. Nodes run *stacks* (a `Host` with its engines, or a fake
in a test); the world never looks into one.

A pass of a node is the runtime's: when its processor is free, everything that has arrived is read (drain), the stack
works on it (process), and what it wants to send leaves (flush). Reading and sending cost processor time, so that a
busy node reads more in one pass and a slow one overflows its socket buffer. The stack is told the time after its last
read; each transmission leaves when the processor has got to it. What falls between (a crash in the middle of a pass)
happens after the pass.

Chance comes in streams, one for each purpose, all derived from the seed: a change in how one part draws leaves all
others as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.engine import NEVER, Send, To
from ordercast.errors import OrdercastError, UsageError
from ordercast.sim.datagrams import KIND_OFFSET, Arrival, Train
from ordercast.sim.machine import NORMAL_SPEED as NORMAL_SPEED
from ordercast.sim.machine import PORT as PORT
from ordercast.sim.machine import Machine as Machine
from ordercast.sim.multicast import NOTHING, MulticastTable
from ordercast.sim.network import IDEAL, SOCKET_OVERHEAD_BYTES, Network, NetworkModel
from ordercast.sim.pipes import Pipes
from ordercast.sim.stack import Stack
from ordercast.sim.topology import Topology
from ordercast.sim.unreachable import Report, Reports
from ordercast.trace.recorder import CRASH, Recorder
from ordercast.trace.schema import Row
from ordercast.view import Address
from ordercast.wire.header import Kind

BUFFER_BYTES: Final = 4 << 20
EVENT_LIMIT: Final = 5_000_000  # a run that needs more is taken for a livelock
DRAIN_BATCHES: Final = 256  # reads in one pass, as in the runtime; the rest waits in the socket
REST_CHECK_NS: Final = 20 * MS  # how often a world that is to come to rest is looked at
REST_HOLD_NS: Final = 200 * MS  # rest must last this long to count
SPIN_PASSES: Final = 1_000  # passes in a row of a node whose timer is always overdue and never runs
PROBE: Final = bytes([Kind.PROBE])
SYMBOLIC: Final = frozenset({To.ALL, To.MULTICAST, To.ANYONE})


class Livelock(OrdercastError):
    """The run needed more events than it was allowed: something happens again and again without progress."""


class World:
    """Everything that one seed makes happen."""

    __slots__ = (
        "_by_address",
        "_event_limit",
        "_events",
        "_heap",
        "_medium_ns",
        "_multicasts",
        "_sequence",
        "network",
        "nodes",
        "now_ns",
        "passes",
        "peers",
        "reports",
        "seed",
        "topology",
    )

    def __init__(
        self,
        seed: int | str,
        network: NetworkModel = IDEAL,
        *,
        event_limit: int = EVENT_LIMIT,
        topology: Topology | None = None,
    ) -> None:
        self.seed = seed
        self.now_ns = 0
        self.topology = topology  # None: all nodes are in one place
        pipes = Pipes(topology.places, topology.models, self.stream) if topology is not None else None
        self.network = Network(network, self.stream("network"), pipes)
        self.reports = Reports(self.network, self.stream("reports"))
        self.nodes: dict[str, Machine] = {}
        self.passes = 0
        self.peers: dict[str, list[str]] = {}  # static ones of a node without multicast; by default all others
        self._by_address: dict[Address, Machine] = {}
        self._multicasts: MulticastTable[Machine] = MulticastTable()  # of addresses that stacks listen to
        # The third and fourth of an event are never compared: no two events have the same sequence number.
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._sequence = 0
        self._medium_ns = NEVER  # when the network is to be asked whose turn it is on its medium
        self._events = 0
        self._event_limit = event_limit

    @property
    def events(self) -> int:
        """Events that have happened; the measure of a run's work."""
        return self._events

    @property
    def has_events(self) -> bool:
        """False when nothing more can happen by itself."""
        return bool(self._heap)

    @property
    def pipes(self) -> Pipes:
        """What lies between the sites of a world that has them."""
        if self.network.pipes is None:
            raise UsageError("this world has no sites: give it a topology")
        return self.network.pipes

    def stream(self, purpose: str) -> random.Random:
        """A source of chance of its own; `random.Random` digests a text the same way everywhere."""
        return random.Random(f"{self.seed}/{purpose}")

    # Nodes and what happens to them. ---------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        boot: Callable[[Machine], Stack],
        *,
        buffer_bytes: int = BUFFER_BYTES,
        has_multicast: bool = True,
    ) -> Machine:
        """A machine that is still down; `start` makes `boot` give it a stack, in every life a new one."""
        if name in self.nodes:
            raise ValueError(f"there is a node {name!r} already")
        node = Machine(len(self.nodes), name, boot, buffer_bytes, has_multicast)
        if self.topology is not None:
            node.address = self.topology.address_of(name)
        self.nodes[name] = node
        self._by_address[node.address] = node
        return node

    def start(self, name: str) -> None:
        """Begin the next life of a node that is down; nothing happens to one that is up."""
        node = self.nodes[name]
        if node.is_up:
            return
        node.life += 1
        node.is_paused = node.is_dead = False
        node.busy_until_ns = self.now_ns
        node.last_ns = max(node.last_ns, self.now_ns)
        node.wake_ns = NEVER
        if node.folder is not None:
            node.folder.begin()
        node.stack = node.boot(node)
        self.wake(node)

    def crash(self, name: str, is_process: bool = False) -> None:
        """Everything that the node knew is lost; what it had sent before is on its way. Where only the process is gone,
        the kernel of its machine tells senders so."""
        node = self.nodes[name]
        if not node.is_up:
            return
        node.is_dead = not is_process
        if node.recorders and node.recorders[-1].life == node.life:
            node.recorders[-1].row(CRASH, max(self.now_ns, node.last_ns))
        self._down(node)

    def doom(self, name: str) -> None:
        """The node crashes when it stores something next, before anything of that pass leaves."""
        folder = self.nodes[name].folder
        if folder is not None:
            folder.is_deadly = True

    def is_doomed(self, name: str) -> bool:
        """Whether it is up, and has not stored anything since."""
        folder = self.nodes[name].folder
        return self.nodes[name].is_up and folder is not None and folder.is_deadly

    def forget(self, name: str) -> None:
        """The folder of a node that is down is lost."""
        folder = self.nodes[name].folder
        if folder is not None and not self.nodes[name].is_up:
            folder.lose()

    def halt(self, name: str) -> None:
        """Take a node that has stopped of its own will off the network."""
        self._down(self.nodes[name])

    def _down(self, node: Machine) -> None:
        node.stack = None
        node.after_pass = None
        node.inbox.clear()
        node.reports.clear()
        node.inbox_bytes = 0
        node.listening.clear()
        self._multicasts.hear(node, NOTHING)
        node.wake_ns = NEVER
        node.has_work = False

    def pause(self, name: str) -> None:
        """The node stands still, as under SIGSTOP: its timers do not run and its socket buffer fills."""
        self.nodes[name].is_paused = True

    def resume(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_paused:
            node.is_paused = False
            node.wake_ns = NEVER
            if node.is_up:
                self.wake(node)

    def slow(self, name: str, factor: float = 1.0) -> None:
        """Processor costs of the node times `factor`; 1 is normal."""
        self.nodes[name].slowness = int(NORMAL_SPEED * factor)

    def forge(self, name: str, others: Iterable[str], has_seen: bool = False) -> None:
        """Somebody tells a node that the processes of others are gone. They are not. `has_seen`: a switch has flooded
        the last probe to each of them, so that its nonce is known."""
        node = self.nodes[name]
        for other in others:
            for report in self.reports.forge(name, self.nodes[other].address, has_seen):
                self._on_report((node, report))

    def has_multicast(self, node: Machine) -> bool:
        """Whether the node and its network have it."""
        return node.has_multicast and self.network.model.has_multicast

    def listen(self, node: Machine, underlay: str) -> None:
        node.listening[underlay] = None

    def unlisten(self, node: Machine, underlay: str) -> None:
        node.listening.pop(underlay, None)

    # Events. ---------------------------------------------------------------------------------------------------------

    def at(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Call `action(argument)` at a time; a time that has passed means now, after what is planned for now."""
        self._sequence += 1
        heappush(self._heap, (max(at_ns, self.now_ns), self._sequence, action, argument))

    def after(self, delay_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        self.at(self.now_ns + delay_ns, action, argument)

    def wake(self, node: Machine, at_ns: int = 0) -> None:
        """Plan a pass for `at_ns` (0: there is work now), or when the processor is free; an earlier plan stays."""
        if not at_ns:
            node.has_work = True
        at_ns = max(at_ns, self.now_ns, node.busy_until_ns)
        if at_ns < node.wake_ns and node.stack is not None and not node.is_paused:
            node.wake_ns = at_ns
            self._sequence += 1
            heappush(self._heap, (at_ns, self._sequence, self._run_pass, (node, at_ns, node.life)))

    def clock(self, node: Machine) -> int:
        """The time as a program on the node reads it: never before what its stack was told last."""
        return max(self.now_ns, node.last_ns)

    def step(self, limit_ns: int = NEVER) -> bool:
        """Let the next event happen; False if there is none up to `limit_ns`, which is then the time."""
        heap = self._heap
        if not heap or heap[0][0] > limit_ns:
            if limit_ns < NEVER:
                self.now_ns = max(self.now_ns, limit_ns)
            return False
        self._events += 1
        if self._events > self._event_limit:
            raise Livelock(
                f"more than {self._event_limit} events, at {self.now_ns / SECOND:.3f} s of virtual time: a livelock"
            )
        self.now_ns, _, action, argument = heappop(heap)
        action(argument)
        return True

    def run_until(self, condition: int | Callable[[], bool], limit_ns: int = NEVER) -> bool:
        """Go on to a time, or until a condition holds (looked at after every event); False if it never did."""
        if isinstance(condition, int):
            while self.step(condition):
                pass
            return True
        while not condition():
            if not self.step(limit_ns):
                return condition()
        return True

    def run_to_rest(
        self, limit_ns: int, also: Callable[[], list[str]] | None = None, hold_ns: int = REST_HOLD_NS
    ) -> list[str]:
        """Go on until nothing is outstanding anywhere; what was not at rest at `limit_ns`, in words.

        `also` adds what others (the applications) still have to do. Rest must last for `hold_ns`: a node between two
        passes may look as if it had nothing to do.
        """
        since_ns: int | None = None
        unrest: list[str] = []
        events = -1
        while True:
            if self._events != events:  # at rest most looks find that nothing has happened since the last one
                events = self._events
                unrest = self.unrest() + (also() if also is not None else [])
            if unrest:
                since_ns = None
                if self.now_ns >= limit_ns:
                    return unrest
            elif since_ns is None:
                since_ns = self.now_ns
            elif self.now_ns - since_ns >= hold_ns:
                return []
            # A world that has come to rest just before its limit may have the time to prove it.
            self.run_until(self.now_ns + REST_CHECK_NS)

    def unrest(self) -> list[str]:
        """What is not at rest now."""
        texts: list[str] = []
        for node in self.nodes.values():
            if node.stack is None:
                continue
            if node.is_paused:
                texts.append(f"{node} is paused")
            texts.extend(f"{node}: {text}" for text in node.stack.unrest())
        return texts

    # Passes. ---------------------------------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        node = self.nodes[arrival.target]
        if node.stack is None:
            return
        batch = arrival.batch
        node.arrived += batch.datagrams
        size = len(batch.data) + batch.datagrams * SOCKET_OVERHEAD_BYTES
        if node.inbox_bytes + size > node.buffer_bytes:
            self._arrive_in_part(node, batch)
            return
        node.inbox.append(batch)
        node.inbox_bytes += size
        if node.wake_ns > self.now_ns:
            self.wake(node)

    def _arrive_alone(self, arrival: Arrival) -> None:
        """A unicast: where it finds no process, the kernel may say so. Of a multicast it never does."""
        node = self.nodes[arrival.target]
        if node.stack is None and not node.is_dead:
            source = self.nodes[arrival.batch.source]
            for at_ns, report in self.reports.answer(self.now_ns, node.name, node.address, arrival.batch):
                self.at(at_ns, self._on_report, (source, report))
            return
        self._arrive(arrival)

    def _on_report(self, argument: tuple[Machine, Report]) -> None:
        node, report = argument
        if node.stack is not None:
            node.reports.append(report)
            self.wake(node)

    def _arrive_in_part(self, node: Machine, batch: Train) -> None:
        """What still fits the socket buffer of a batch that as a whole does not; the rest is dropped and counted."""
        stride = batch.stride or len(batch.data)
        room = node.buffer_bytes - node.inbox_bytes
        fits = min(batch.datagrams - 1, room // (stride + SOCKET_OVERHEAD_BYTES))
        dropped = batch.datagrams - fits
        node.dropped += dropped
        self.network.counters.socket_drops += dropped
        if fits > 0:
            node.inbox.append(Train(batch.source, batch.data[: fits * stride], stride if fits > 1 else 0, fits))
            node.inbox_bytes += fits * (stride + SOCKET_OVERHEAD_BYTES)
        self.wake(node)

    def _run_pass(self, planned: tuple[Machine, int, int]) -> None:
        """Drain, process, flush. Hot: one call per pass of the simulated world."""
        node, at_ns, life = planned
        stack = node.stack
        if stack is None or node.wake_ns != at_ns or node.life != life or node.is_paused:
            return  # an earlier pass replaced it, or the node is down
        node.wake_ns = NEVER
        if not node.has_work and not node.inbox:
            # Only a timer was due when this was planned; most are put off before they run.
            deadline_ns = stack.deadline_ns()
            if deadline_ns > self.now_ns:
                self.wake(node, deadline_ns)
                return
        node.has_work = False
        self.passes += 1
        model = self.network.model
        slowness = node.slowness
        # drain
        inbox = node.inbox
        batches: list[Train] = []
        cost_ns = model.pass_ns
        while inbox and len(batches) < DRAIN_BATCHES:
            batch = inbox.popleft()
            batches.append(batch)
            size = len(batch.data)
            node.inbox_bytes -= size + batch.datagrams * SOCKET_OVERHEAD_BYTES
            cost_ns += model.receive_cost_ns(batch.datagrams, size)
        now_ns = max(self.now_ns + cost_ns * slowness // NORMAL_SPEED, node.last_ns)
        node.last_ns = now_ns
        # process
        nodes = self.nodes
        for batch in batches:
            stack.receive(now_ns, nodes[batch.source].address, memoryview(batch.data), batch.stride)
        if node.reports:
            reports, node.reports = node.reports, []
            for report in reports:
                stack.unreachable(now_ns, report.address, report.quoted)
        if stack.deadline_ns() <= now_ns:
            stack.expire(now_ns)
        sends = stack.finish(now_ns)
        hears = getattr(stack, "hears", None)  # of a `HearingStack`
        if hears is not None:
            self._multicasts.hear(node, hears())
        if node.folder is not None and node.folder.has_struck:
            self.crash(node.name)  # what it stored is on disk, and nothing of the pass leaves
            return
        # flush
        leave_ns = now_ns
        for underlay, send in sends:
            leave_ns = self._transmit(leave_ns, node, stack, underlay, send)
        node.busy_until_ns = leave_ns
        # the application's turn, which may ask for another pass
        if node.after_pass is not None:
            node.after_pass(now_ns)
            if node.stack is not stack:
                return
        if inbox:
            self.wake(node)
        deadline_ns = stack.deadline_ns()
        if deadline_ns > now_ns or batches:
            node.spins = 0
        else:
            self._note_spin(node, now_ns - deadline_ns)
        if deadline_ns < node.wake_ns:
            self.wake(node, deadline_ns)

    def _note_spin(self, node: Machine, overdue_ns: int) -> None:
        """A pass without input left a timer overdue: now and then that divides a long pass, always it is a bug."""
        node.spins += 1
        if node.spins > SPIN_PASSES:
            raise Livelock(
                f"{node} has asked {SPIN_PASSES} times in a row for a timer that is overdue by {overdue_ns} ns, at "
                f"{self.now_ns / SECOND:.3f} s of virtual time: `expire` does not clear it"
            )

    def _transmit(self, leave_ns: int, node: Machine, stack: Stack, underlay: str, send: Send) -> int:
        """Put one transmission on the network; when the processor is done with it."""
        to, buffers, stride = send
        data = b"".join(buffers)
        size = len(data)
        datagrams = 1 if stride <= 0 or stride >= size else -(-size // stride)
        arrive = self._arrive_alone
        if data[KIND_OFFSET : KIND_OFFSET + 1] == PROBE:
            self.reports.overheard[node.name, to] = data
        if to in SYMBOLIC and self.has_multicast(node):
            arrive = self._arrive  # the first transmission; the others are copies
            self.reports.overheard[node.name, To.ALL] = data
        elif to not in SYMBOLIC and to not in self._by_address:
            arrive = self._arrive  # a multicast address
        for targets in self._targets(node, stack, underlay, to):
            leave_ns += self.network.model.send_cost_ns(datagrams, size) * node.slowness // NORMAL_SPEED
            for arrival in self.network.transmit(leave_ns, node.name, targets, data, stride):
                self._sequence += 1
                heappush(self._heap, (arrival.at_ns, self._sequence, arrive, arrival))
            arrive = self._arrive_alone
        if self.network.is_served:
            self._plan_turn()
        return leave_ns

    def _plan_turn(self) -> None:
        """On a medium that nodes take turns on, somebody has to ask whose turn it is when it is free. What is on
        its way to a pipe must be let in when it gets there."""
        at_ns = max(self.network.next_ns(), self.now_ns)
        if at_ns < self._medium_ns:
            self._medium_ns = at_ns
            self.at(at_ns, self._take_turn, at_ns)

    def _take_turn(self, planned_ns: int) -> None:
        if planned_ns != self._medium_ns:
            return  # an earlier plan replaced it
        self._medium_ns = NEVER
        for arrival in self.network.serve(self.now_ns):
            # Pipes carry nothing but unicasts.
            arrive = self._arrive if self._is_near(arrival.batch.source, arrival.target) else self._arrive_alone
            self._sequence += 1
            heappush(self._heap, (arrival.at_ns, self._sequence, arrive, arrival))
        self._plan_turn()

    def _targets(self, node: Machine, stack: Stack, underlay: str, to: Address) -> list[list[str]]:
        """The transmissions that a destination takes, each with its receivers."""
        if to not in SYMBOLIC:
            target = self._by_address.get(to)
            return [[target.name]] if target is not None else self._hearing(node, to)
        multicasts: list[list[str]] = []
        alone: Sequence[Address] = ()
        if self.has_multicast(node):
            nodes = self.nodes.values()
            hear = [
                each.name for each in nodes if underlay in each.listening and each.has_multicast and each is not node
            ]
            if self.topology is not None:
                hear = [name for name in hear if self._is_near(node.name, name)]  # no router passes it on
            multicasts.append(hear)
            if to == To.ALL:
                alone = stack.copies(underlay)
        elif to == To.ANYONE:
            peers = self.peers.get(node.name)
            alone = list(self._by_address) if peers is None else [self.nodes[name].address for name in peers]
        elif to == To.ALL:
            alone = stack.audience(underlay)
        known = (self._by_address.get(address) for address in alone)
        return multicasts + [[other.name] for other in known if other is not None and other is not node]

    def _hearing(self, node: Machine, to: Address) -> list[list[str]]:
        """The same of a multicast address: one transmission, or none without multicast."""
        if not self.has_multicast(node):
            return []
        listeners = self._multicasts.listeners(to)
        hear = [other.name for other in listeners if other.has_multicast and other is not node]
        return [[name for name in hear if self._is_near(node.name, name)]] if listeners else []

    def _is_near(self, source: str, target: str) -> bool:
        """Whether two nodes are in one place."""
        pipes = self.network.pipes
        return pipes is None or pipes.is_near(source, target)

    # Evidence. -------------------------------------------------------------------------------------------------------

    def recorders(self) -> Iterable[Recorder]:
        """All traces: by node in the order in which nodes were added, then by life."""
        for node in self.nodes.values():
            yield from node.recorders

    def rows(self) -> list[Row]:
        return [row for recorder in self.recorders() for row in recorder.rows()]
