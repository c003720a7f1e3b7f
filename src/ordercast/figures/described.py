"""Protocols that the Amoeba paper compares its own with (section 5), as far as its text describes them.

Each is a few rules on simulated machines, without loss, retransmission or failures: enough to count packets and
interrupts, and to see how long a message takes on the same machines. What the text leaves out is left out here. Two of
the seven are not described well enough (Luan and Gligor; Melliar-Smith et al.), and ABCAST (Birman and Joseph) is an
orderer of ours.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from ordercast.engine import NEVER, Send, To
from ordercast.sim.lab import EVENT_LIMIT
from ordercast.sim.network import NetworkModel
from ordercast.sim.world import Machine, World
from ordercast.view import Address

GROUP: Final = "described"
PACKET: Final = struct.Struct("!BHI")
DATA_BYTES: Final = 100  # of a packet with an empty message, as the sequencer's: header, acknowledgements, block
CONTROL_BYTES: Final = 64

ASK: Final = 1  # point to point: please broadcast this
DATA: Final = 2
ORDER: Final = 3  # data gets its number
ANSWER: Final = 4  # an acknowledgement, a reply, or the word of a new token site


class Reaction(NamedTuple):
    """What a machine does with a packet: packets to send, and messages that its application may have."""

    sends: Sequence[tuple[int, int, int, int]] = ()  # to whom (ALL: everybody), kind, sender, number
    ready: Sequence[tuple[int, int]] = ()  # sender, number
    done: Sequence[int] = ()  # own messages whose send is over


ALL: Final = -1


class Described(Protocol):
    """One machine of a protocol."""

    def __init__(self, me: int, members: int) -> None: ...

    def send(self, number: int) -> Reaction: ...

    def receive(self, source: int, kind: int, sender: int, number: int) -> Reaction: ...


class CentralAcknowledged:
    """Navaratnam, Chanson and Neufeld: the central site sends the next broadcast when all nodes have acknowledged."""

    __slots__ = ("_me", "_members", "_missing", "_queue")

    def __init__(self, me: int, members: int) -> None:
        self._me = me
        self._members = members
        self._queue: deque[tuple[int, int]] = deque()
        self._missing = 0

    def send(self, number: int) -> Reaction:
        if self._me:
            return Reaction([(0, ASK, self._me, number)])
        self._queue.append((0, number))
        return self._next()

    def receive(self, source: int, kind: int, sender: int, number: int) -> Reaction:  # noqa: ARG002
        if kind == DATA:
            return Reaction([(0, ANSWER, sender, number)], [(sender, number)], [number] if sender == self._me else [])
        if kind == ASK:
            self._queue.append((sender, number))
        else:
            self._missing -= 1
        return self._next()

    def _next(self) -> Reaction:
        if self._missing or not self._queue:
            return Reaction()
        self._missing = self._members - 1
        sender, number = self._queue.popleft()
        return Reaction([(ALL, DATA, sender, number)], [(sender, number)], [number] if sender == self._me else [])


class RotatingToken:
    """Chang and Maxemchuk without fault tolerance: everything is broadcast, and each ordering word moves the token.

    A new token site that has nothing to order says that it has the token: the extra control message of a quiet group.
    """

    __slots__ = ("_me", "_members", "_token", "_unordered")

    def __init__(self, me: int, members: int) -> None:
        self._me = me
        self._members = members
        self._token = 0
        self._unordered: list[tuple[int, int]] = []

    def send(self, number: int) -> Reaction:
        self._unordered.append((self._me, number))
        order = self._order()
        return Reaction([(ALL, DATA, self._me, number), *order.sends], order.ready, order.done)

    def receive(self, source: int, kind: int, sender: int, number: int) -> Reaction:
        if kind == DATA:
            self._unordered.append((sender, number))
            return self._order()
        if kind == ORDER:
            self._unordered.remove((sender, number))
            self._token = (source + 1) % self._members
            done = [number] if sender == self._me else []
            order = self._order()
            took = [(source, ANSWER, sender, number)] if self._token == self._me and not order.sends else []
            return Reaction([*order.sends, *took], [(sender, number), *order.ready], [*done, *order.done])
        return Reaction()

    def _order(self) -> Reaction:
        if self._token != self._me or not self._unordered:
            return Reaction()
        sender, number = self._unordered.pop(0)
        self._token = (self._me + 1) % self._members
        return Reaction([(ALL, ORDER, sender, number)], [(sender, number)], [number] if sender == self._me else [])


class RepliedTo:
    """Cheriton and Zwaenepoel, the V system: members reply, and the first reply ends the call. Nothing is ordered."""

    __slots__ = ("_me", "_replied")

    def __init__(self, me: int, members: int) -> None:  # noqa: ARG002
        self._me = me
        self._replied = -1

    def send(self, number: int) -> Reaction:
        return Reaction([(ALL, DATA, self._me, number)], [(self._me, number)])

    def receive(self, source: int, kind: int, sender: int, number: int) -> Reaction:  # noqa: ARG002
        if kind == DATA:
            return Reaction([(sender, ANSWER, sender, number)], [(sender, number)])
        is_first = number > self._replied
        self._replied = max(self._replied, number)
        return Reaction(done=[number] if is_first else [])


class Recorded:
    """Tseung: a retransmission computer (the first machine) broadcasts, and goes on when the recorder (the last one)
    has acknowledged. Neither is a member: `members` counts both of them."""

    __slots__ = ("_is_waiting", "_me", "_queue", "_recorder")

    def __init__(self, me: int, members: int) -> None:
        self._me = me
        self._recorder = members - 1
        self._queue: deque[tuple[int, int]] = deque()
        self._is_waiting = False

    def send(self, number: int) -> Reaction:
        return Reaction([(0, ASK, self._me, number)])

    def receive(self, source: int, kind: int, sender: int, number: int) -> Reaction:  # noqa: ARG002
        if kind == DATA:
            sends = [(0, ANSWER, sender, number)] if self._me == self._recorder else []
            return Reaction(sends, [(sender, number)], [number] if sender == self._me else [])
        if kind == ASK:
            self._queue.append((sender, number))
        else:
            self._is_waiting = False
        if self._is_waiting or not self._queue:
            return Reaction()
        self._is_waiting = True
        sender, number = self._queue.popleft()
        return Reaction([(ALL, DATA, sender, number)])


class Peer:
    """A machine that runs one of them: a stack of the simulated world."""

    __slots__ = ("_addresses", "_indexes", "_sends", "_waiting", "done", "left", "part", "ready", "sent")

    def __init__(self, part: Described, addresses: Sequence[Address]) -> None:
        self.part = part
        self._addresses = addresses
        self._indexes = {address: index for index, address in enumerate(addresses)}
        self._sends: list[tuple[str, Send]] = []
        self._waiting: list[int] = []  # when each message was handed over that is still to be sent
        self.left = 0  # messages that follow, each when the one before is done
        self.sent: list[int] = []  # when each was handed over
        self.done: list[int] = []  # when each send was over
        self.ready: list[tuple[int, int, int]] = []  # sender, number, when

    def hand_over(self, now_ns: int) -> None:
        self._waiting.append(now_ns)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int) -> None:
        stride = stride or len(data)
        for at in range(0, len(data), stride):
            self._follow(now_ns, self.part.receive(self._indexes[source], *PACKET.unpack_from(data, at)))

    def unreachable(self, now_ns: int, address: Address, quoted: bytes) -> None:
        """Nobody fails here."""

    def expire(self, now_ns: int) -> None:
        """No timers: nothing is lost here."""

    def finish(self, now_ns: int) -> Sequence[tuple[str, Send]]:
        waiting, self._waiting = self._waiting, []
        for at_ns in waiting:
            self.sent.append(at_ns)
            self._follow(now_ns, self.part.send(len(self.sent) - 1))
        sends, self._sends = self._sends, []
        return sends

    def deadline_ns(self) -> int:
        return NEVER

    def audience(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002 - there is multicast
        return ()

    def copies(self, underlay: str) -> Sequence[Address]:  # noqa: ARG002
        return ()

    def unrest(self) -> list[str]:
        return []

    def _follow(self, now_ns: int, reaction: Reaction) -> None:
        for to, kind, sender, number in reaction.sends:
            size = DATA_BYTES if kind in (ASK, DATA) else CONTROL_BYTES
            packet = PACKET.pack(kind, sender, number).ljust(size, b"\0")
            self._sends.append((GROUP, Send(To.ALL if to == ALL else self._addresses[to], [packet], 0)))
        self.ready += [(sender, number, now_ns) for sender, number in reaction.ready]
        for _ in reaction.done:
            self.done.append(now_ns)
            if self.left:
                self.left -= 1
                self.sent.append(now_ns)
                self._follow(now_ns, self.part.send(len(self.sent) - 1))


class PeerGroup:
    """A world of machines that run one of the described protocols."""

    __slots__ = ("machines", "peers", "world")

    def __init__(self, make: Callable[[int, int], Described], machines: int, network: NetworkModel, seed: str) -> None:
        self.world = world = World(seed, network, event_limit=EVENT_LIMIT)
        self.peers: list[Peer] = []
        self.machines = [world.add(f"p{index}", self._boot) for index in range(machines)]
        addresses = [machine.address for machine in self.machines]
        self.peers += [Peer(make(index, machines), addresses) for index in range(machines)]
        for machine in self.machines:
            world.start(machine.name)
            world.listen(machine, GROUP)

    def keep_sending(self, index: int, count: int) -> None:
        """`count` broadcasts of a machine, one after the other."""
        self.peers[index].left = count - 1
        self.peers[index].hand_over(self.world.now_ns)
        self.world.wake(self.machines[index])

    @property
    def arrived(self) -> int:
        return sum(machine.arrived for machine in self.machines)

    @property
    def sent(self) -> int:
        return self.world.network.counters.sent

    def _boot(self, machine: Machine) -> Peer:
        return self.peers[machine.index]
