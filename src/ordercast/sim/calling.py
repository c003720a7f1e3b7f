"""The simulated application on a node that never joins: it calls the group from outside (RMP section 4.5).

It makes its calls, waits for what comes back, and gives up after a while. What it remembers is whether each answer was
the one to its call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ordercast.groups.caller import Call
from ordercast.groups.caller import Caller as CallerPort
from ordercast.groups.host import Host
from ordercast.service import AGREED, Service, parse_service
from ordercast.sim.application import HostStack, boot_host, payload
from ordercast.sim.holding import answer_to
from ordercast.sim.scenario import CallPlan
from ordercast.sim.world import Machine

if TYPE_CHECKING:
    from ordercast.sim.cluster import Cluster

MAX_CORRUPT: Final = 10


class SimCaller:
    """The application on one node outside the group, through all its lives."""

    __slots__ = ("_cluster", "_created", "_open", "answers", "calls", "corruptions", "host", "node")

    def __init__(self, cluster: Cluster, node: Machine) -> None:
        self._cluster = cluster
        self.node = node
        # the present life
        self.host: Host | None = None
        self._created = 0
        self._open: dict[Call, None] = {}
        # what it saw, over all lives
        self.calls = 0
        self.answers = 0  # acknowledgements included
        self.corruptions: list[str] = []

    def __str__(self) -> str:
        return str(self.node)

    @property
    def waiting(self) -> int:
        """Calls that the application waits for."""
        return len(self._open)

    def boot(self, node: Machine) -> HostStack:
        """A new life begins; it is no member of anything."""
        cluster = self._cluster
        self.host = boot_host(cluster.world, node, cluster.terms.timing, cluster.engines, cluster.terms.directory)
        self._created = 0
        self._open = {}
        node.after_pass = self.turn
        return HostStack(self.host)

    def call(self, asked: CallPlan, count: int) -> None:
        """Make so many calls of a kind at once; nothing if the node is down."""
        service = parse_service(asked.service)
        to = self._cluster.world.nodes[asked.to].address if asked.to else None
        for _ in range(count):
            self._make(
                service,
                asked.size,
                asked.patience_ns,
                handler=asked.handler if asked.handler >= 0 else None,
                to=to,
                wants_ack=asked.wants_ack,
                wants_again=asked.wants_again,
            )

    def probe(self, size: int, patience_ns: int) -> Call | None:
        """One call that must be acknowledged; None if the node is down."""
        return self._make(AGREED, size, patience_ns)

    def _make(self, service: Service, size: int, patience_ns: int, **how: Any) -> Call | None:
        host, world, node = self.host, self._cluster.world, self.node
        if not node.is_up or host is None:
            return None
        call = Call(payload(str(self), self._created, size), service, **how)
        self._created += 1
        self.calls += 1
        self._open[call] = None
        members = [member.node for member in self._cluster.members.values()]
        # Where everybody has multicast there is no need for static peers.
        is_simple = all(map(world.has_multicast, (node, *members)))
        contacts = [] if is_simple else [member.address for member in members]
        port = host.caller(self._cluster.terms.group, datagram=self._cluster.terms.config.datagram, contacts=contacts)
        port.offer(call)
        host.touch(port)
        world.wake(node)
        life = node.life
        world.after(patience_ns, lambda _: self._give_up(call) if node.life == life else None)
        return call

    def _give_up(self, call: Call) -> None:
        """Nobody has answered: the handler is free, its holder is gone or silent, or there is no group."""
        host = self.host
        if call not in self._open or host is None or not self.node.is_up:
            return
        del self._open[call]
        for port in host.callers:
            if call in port.waiting:
                port.forget(call)
                host.touch(port)
                self._cluster.world.wake(self.node)

    def turn(self, _now_ns: int) -> None:
        """After every pass of the node: what came back."""
        for port in self.host.take_news() if self.host is not None else ():
            if isinstance(port, CallerPort):
                settled = list(port.settled)
                port.settled.clear()
                for call in settled:
                    self._on_settled(call)

    def _on_settled(self, call: Call) -> None:
        if call not in self._open:
            return
        del self._open[call]
        if call.error is not None or not call.wants_ack:
            return
        self.answers += 1
        right = answer_to(str(self), call.first) if call.handler is not None else b""
        if call.answer != right and len(self.corruptions) < MAX_CORRUPT:
            self.corruptions.append(f"{self}: the answer to call {call.first} is {call.answer!r}, not {right!r}")
