"""Flow and congestion control of a sender: how many bytes may be under way, and how large a packet may be (RMP 4.6).

The paper wants these policies beside the protocol, so that they can be exchanged; an orderer knows `FlowPolicy` only,
and a group names its policy (`GroupConfig.flow`). A *packet* is a block. Round-trip estimation and the back-off of
timers, the paper's algorithms (1) and (4), are `parts/rtt.py`; (2) and (3), slow start and the window, are here.

Deviations, with reasons:
- The window has a ceiling, set by the owner: the sender's share of the smallest receive buffer in the view
  (docs/design/overview.md section 6). The paper's window grows until a receiver drops something.
- The window is never halved below one smallest packet ("the window size quickly drops to a single minimum size
  packet"; the paper gives no other bound). A smaller window would make packets that are mostly headers.
- "One packet" is the smallest packet, at the start and with each ACK. Were it the packet that the ACK names, the ACKs
  of what was under way when the window was halved would undo that within a round trip. So a window doubles in a round
  trip while packets are small, and grows in O(W) while they grow with it, as the paper says it does.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from ordercast.errors import InvariantViolation, UsageError

LOST_KEPT: Final = 3  # the paper's cache: "the last three messages sent by this site that were dropped"


class FlowPolicy(Protocol):
    """What an orderer asks of flow and congestion control. Numbers are its own block numbers.

    Bounds: a policy keeps one entry for each number that is sent and not acknowledged; the owner bounds how many there
    are (by `room`, and by the group's history).
    """

    def __init__(self, min_packet: int, max_packet: int) -> None: ...

    @property
    def window(self) -> int:
        """Bytes that may be under way."""

    @property
    def in_flight(self) -> int:
        """Bytes that are: sent and not acknowledged."""

    def limit(self, ceiling_bytes: int) -> None:
        """The most that the receivers allow."""

    def sent(self, number: int, size: int) -> None:
        """A packet leaves for the first time."""

    def acked(self, number: int) -> None:
        """The first ACK of a packet. What is not outstanding is ignored."""

    def timed_out(self, number: int) -> None:
        """Its retransmission timer has expired. What is not outstanding is ignored."""

    def nacked(self, number: int) -> bool:
        """Somebody lacks what the owner sent, acknowledged or not; whether that changed the window."""

    def restart(self) -> None:
        """A new ring: nothing is outstanding, and the window begins anew. The ceiling stays until it is set."""

    def room(self) -> tuple[int, int]:
        """Bytes that may leave now (0: wait for an ACK), and the largest packet among them."""


def packet_size(window: int, available: int, offered: int, min_packet: int, max_packet: int) -> int:
    """S of figure 4.2, line by line: the most that the next packet may hold; 0 where it has to wait for an ACK.

    `available` is what is left of the window, negative where that was halved below what is under way. What is offered
    may be less than S, since S is at least a smallest packet: then all of it leaves.
    """
    # Avoid the "silly window" effect.
    if available < min_packet and available < window:
        return 0
    # Send up to half of the window at a time.
    size = min(offered, window // 2)
    # Send at least the smallest packet.
    size = max(size, min_packet)
    # No more than there is room for.
    size = min(size, available)
    # Reduce the effect of lost packets.
    return min(size, max_packet)


class PacketsOut:
    """Packets that are sent and not acknowledged."""

    __slots__ = ("_sizes", "bytes")

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}  # number -> size; bounded by the owner's window
        self.bytes = 0

    def __contains__(self, number: int) -> bool:
        return number in self._sizes

    def send(self, number: int, size: int) -> None:
        if number in self._sizes:
            raise InvariantViolation(f"block {number} is under way already")
        self._sizes[number] = size
        self.bytes += size

    def acknowledge(self, number: int) -> None:
        self.bytes -= self._sizes.pop(number, 0)

    def clear(self) -> None:
        self._sizes.clear()
        self.bytes = 0


def room_of(window: int, in_flight: int, min_packet: int, max_packet: int) -> tuple[int, int]:
    """Figure 4.2 for a sender with more to say than the window holds.

    Several packets may follow one another; what the last of them would have left below a smallest packet waits, as
    it would if the figure were asked for each of them.
    """
    available = window - in_flight
    largest = packet_size(window, available, max_packet, min_packet, max_packet)
    if not largest:
        return 0, 0
    rest = available % largest
    return (available - rest if rest < min_packet else available), largest


def _check_packets(min_packet: int, max_packet: int) -> None:
    if not 0 < min_packet <= max_packet:
        raise InvariantViolation(f"packets of {min_packet} to {max_packet} bytes")


class Open:
    """A sliding window that always is what the receivers allow: no slow start, and losses change nothing.

    For networks that lose nothing but what a receiver drops.
    """

    __slots__ = ("_max_packet", "_min_packet", "_out", "window")

    def __init__(self, min_packet: int, max_packet: int) -> None:
        _check_packets(min_packet, max_packet)
        self._min_packet = min_packet
        self._max_packet = max_packet
        self._out = PacketsOut()
        self.window = max_packet  # until the owner knows better: one packet is always borne

    @property
    def in_flight(self) -> int:
        return self._out.bytes

    def limit(self, ceiling_bytes: int) -> None:
        """As FlowPolicy. One smallest packet is allowed in any case, or nothing would ever leave."""
        self.window = max(ceiling_bytes, self._min_packet)

    def sent(self, number: int, size: int) -> None:
        self._out.send(number, size)

    def acked(self, number: int) -> None:
        self._out.acknowledge(number)

    def timed_out(self, number: int) -> None:
        pass

    def nacked(self, number: int) -> bool:  # noqa: ARG002
        return False

    def restart(self) -> None:
        self._out.clear()

    def room(self) -> tuple[int, int]:
        return room_of(self.window, self._out.bytes, self._min_packet, self._max_packet)


class SlowStart:
    """Van Jacobson's window as RMP has it: begins with one packet, grows with each ACK, is halved by each loss.

    What the network bears and what the receivers allow are kept apart, and the window is the smaller: the ceiling falls
    and rises with the number of senders, and what was found out about the network meanwhile stays true.
    """

    __slots__ = ("_borne", "_ceiling", "_lost", "_max_packet", "_min_packet", "_out", "window")

    def __init__(self, min_packet: int, max_packet: int) -> None:
        _check_packets(min_packet, max_packet)
        self._min_packet = min_packet
        self._max_packet = max_packet
        self._ceiling = max_packet  # until the owner knows better: one packet is always borne
        self._out = PacketsOut()
        self.window = min_packet
        self._borne = min_packet  # by the network, as far as we know
        self._lost: deque[int] = deque(maxlen=LOST_KEPT)

    @property
    def in_flight(self) -> int:
        return self._out.bytes

    def limit(self, ceiling_bytes: int) -> None:
        """As FlowPolicy. A window above it comes down to it at once; one below grows on with the next ACKs."""
        self._ceiling = max(ceiling_bytes, self._min_packet)
        self.window = min(self._borne, self._ceiling)

    def sent(self, number: int, size: int) -> None:
        self._out.send(number, size)

    def acked(self, number: int) -> None:
        """Slow start: one packet more with each first ACK, as long as the receivers let us use it."""
        if number in self._out:
            self._out.acknowledge(number)
            if self._borne < self._ceiling:
                self.window = self._borne = min(self._borne + self._min_packet, self._ceiling)

    def timed_out(self, number: int) -> None:
        """Each time that a timer expires: what was sent again and is not acknowledged was lost again."""
        if number in self._out:
            self._lose(number)

    def nacked(self, number: int) -> bool:
        """As an expired timer, once for each lost packet: many members may miss the same one, and a timer may have
        told of it before."""
        if number in self._lost:
            return False
        return self._lose(number)

    def restart(self) -> None:
        self._out.clear()
        self.window = self._borne = self._min_packet
        self._lost.clear()

    def room(self) -> tuple[int, int]:
        return room_of(self.window, self._out.bytes, self._min_packet, self._max_packet)

    def _lose(self, number: int) -> bool:
        if number not in self._lost:
            self._lost.append(number)
        before = self.window
        self.window = self._borne = max(before // 2, self._min_packet)
        return self.window < before


POLICIES: Final[dict[str, type[FlowPolicy]]] = {"slow-start": SlowStart, "open": Open}


def make_policy(name: str, min_packet: int, max_packet: int) -> FlowPolicy:
    """A policy by its name, for packets between these sizes (bytes)."""
    if name not in POLICIES:
        raise UsageError(f"unknown flow control {name!r}; this version has {', '.join(map(repr, POLICIES))}")
    return POLICIES[name](min_packet, max_packet)
