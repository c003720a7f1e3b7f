"""Probing: what the kernel of another machine knows about the process there (docs/design/detector.md).

A PROBE is a datagram that wants no answer. Where its receiver lives, the socket takes it and nothing comes back. Where
the process is gone and its machine is not, the kernel there returns ICMP "port unreachable", and the kernel here hands
it over together with the datagram that it is about. Two such reports make a member gone. Any word of it between the
two makes it alive again.

ICMP is easily forged, so a report alone is worth nothing. It counts only if it brings back the nonce of a probe that
was sent to that address a moment ago. All others are counted and dropped.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from struct import Struct
from typing import Final

from ordercast.config import SECOND, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.parts.detector import Detector
from ordercast.view import Address, Member, View
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind
from ordercast.wire.writer import DatagramWriter

NONCE: Final = Struct("<Q")
NONCES_KEPT: Final = 8  # of probes to one member, and
BELIEVED_NS: Final = 1 * SECOND  # how long a report of one is believed; it comes within a round trip
EXPECTED_PROBES: Final = 3  # to a member that a recovery waits for, before it is asked to answer again


class Probed:
    """What was sent to one member, and what came back."""

    __slots__ = ("address", "at_ns", "doubted_ns", "nonces")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.at_ns = -1  # of the last probe
        self.nonces: dict[int, int] = {}  # of the last probes, with the time of each
        self.doubted_ns = -1  # when the first report came; -1: none, or there was a word since


class Probing:
    __slots__ = (
        "_counters",
        "_expected",
        "_expected_left",
        "_gone",
        "_probed",
        "_rng",
        "_timing",
        "_writer",
        "due_ns",
    )

    def __init__(
        self, writer: DatagramWriter, timing: Timing, rng: random.Random, counters: dict[str, int] | None = None
    ) -> None:
        self._writer = writer
        self._timing = timing
        # A chance of its own: a forger must not learn from the pauses between other datagrams what comes next. Nothing
        # is drawn from `rng` for it, so that what else is drawn there stays what it would be without probes.
        self._rng = random.Random(str(rng.getstate()))
        self._counters = counters if counters is not None else {}
        self.due_ns = NEVER  # when `look` wants to be called
        self._probed: dict[int, Probed] = {}
        self._gone: set[int] = set()
        self._expected: list[Member] = []  # whose word a recovery waits for
        self._expected_left = 0

    def begin(self) -> None:
        """A new ring begins, or there is none any more."""
        self.due_ns = NEVER
        self._probed.clear()
        self._gone.clear()
        self._expected = []

    def is_gone(self, member: int) -> bool:
        return member in self._gone

    # Whom to probe

    def expire(self, now_ns: int, is_whole: bool, detector: Detector, view: View, out: Outbox) -> None:
        """Ask the kernels of members that should have said something. `is_whole`: the ring works."""
        if is_whole:
            if self.due_ns <= now_ns or detector.is_overdue(now_ns):
                self.look(now_ns, detector, view, out)
        elif self.due_ns <= now_ns:
            self.look_for_expected(now_ns, out)

    def look(self, now_ns: int, detector: Detector, view: View, out: Outbox) -> None:
        """In a ring that works: probe the next member of the view and the one that is silent for longest, if a word of
        them is overdue. Each member probes two, so that their number grows with the view and not with its square."""
        watched = {peer for peer in detector.peers if view.member(peer) is not None}
        if not watched:
            self.due_ns = NEVER
            return
        # A word of a member that is far, or has little to say, is not overdue before its usual pause is over.
        began_ns = {peer: detector.silence_began_ns(peer) for peer in watched}
        waits_ns = {peer: max(self._timing.probe_ns, detector.usual_ns(peer)) for peer in watched}
        at = view.index(self._writer.origin)
        ring = [*view.members[at + 1 :], *view.members[: max(at, 0)]]
        neighbour = next(member.id for member in ring if member.id in watched)
        longest = min([member.id for member in ring if member.id in watched], key=began_ns.__getitem__)
        for peer in dict.fromkeys((neighbour, longest)):
            member = view.member(peer)
            if member is not None and began_ns[peer] + waits_ns[peer] <= now_ns:
                self._probe(now_ns, member, out)
        if not detector.is_busy:
            self.due_ns = NEVER  # the heartbeats of this node are often enough
            return
        due_ns = min(began_ns[neighbour] + waits_ns[neighbour], began_ns[longest] + waits_ns[longest])
        self.due_ns = due_ns if due_ns > now_ns else now_ns + self._timing.probe_ns

    def expect(self, now_ns: int, members: Iterable[Member]) -> None:
        """In a recovery: it waits for a word of these, and has just asked them."""
        self._expected = list(members)
        self._expected_left = EXPECTED_PROBES
        self.due_ns = now_ns + self._timing.probe_ns if self._expected else NEVER

    def look_for_expected(self, now_ns: int, out: Outbox) -> None:
        self._expected_left -= 1
        for member in self._expected:
            if member.id not in self._gone:
                self._probe(now_ns, member, out)
        self.due_ns = now_ns + self._timing.probe_ns if self._expected_left > 0 else NEVER

    # What comes back

    def heard(self, member: int) -> None:
        """A word of it has come."""
        self._gone.discard(member)
        probed = self._probed.get(member)
        if probed is not None:
            probed.doubted_ns = -1

    def on_report(self, now_ns: int, address: Address, quoted: bytes, detector: Detector, out: Outbox) -> int:
        """No process listens at `address`, somebody says, and gives `quoted` of our datagram back. The id of the member
        that is gone by now; 0: none."""
        if len(quoted) < HEADER_BYTES + NONCE.size:
            return self._drop()
        magic, kind, _, _, tag, ring, _, _ = HEADER.unpack_from(quoted)
        if magic != MAGIC or kind != Kind.PROBE or tag != self._writer.tag or ring != self._writer.ring:
            return self._drop()
        (nonce,) = NONCE.unpack_from(quoted, HEADER_BYTES)
        known = [(one, each) for one, each in self._probed.items() if each.address == address and nonce in each.nonces]
        if not known:
            return self._drop()
        found, probed = known[0]
        sent_ns = probed.nonces[nonce]
        if sent_ns + BELIEVED_NS < now_ns:
            return self._drop()
        if probed.doubted_ns < 0 or detector.heard_ns(found) > probed.doubted_ns:
            probed.doubted_ns = now_ns
            self._send(now_ns, probed, out)
        elif sent_ns >= probed.doubted_ns and found not in self._gone:
            self._gone.add(found)
            return found
        return 0

    def _drop(self) -> int:
        self._counters["strange_reports"] = self._counters.get("strange_reports", 0) + 1
        return 0

    def _probe(self, now_ns: int, member: Member, out: Outbox) -> None:
        """Probe a member, unless that was just done."""
        probed = self._probed.get(member.id)
        if probed is None:
            probed = self._probed[member.id] = Probed(member.address)
        if probed.at_ns < 0 or probed.at_ns + self._timing.probe_ns <= now_ns:
            self._send(now_ns, probed, out)

    def _send(self, now_ns: int, probed: Probed, out: Outbox) -> None:
        nonce = self._rng.getrandbits(64)
        probed.at_ns = now_ns
        probed.nonces[nonce] = now_ns
        while len(probed.nonces) > NONCES_KEPT:
            del probed.nonces[next(iter(probed.nonces))]
        out.sends.append(self._writer.control(probed.address, Kind.PROBE, NONCE.pack(nonce)))
