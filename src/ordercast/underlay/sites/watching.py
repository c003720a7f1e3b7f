"""Which daemons are silent or gone, and telling the others that this one lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import Timing
from ordercast.engine import NEVER, Outbox, To
from ordercast.orderers.orderer import Suspicion, SuspicionReason
from ordercast.parts.detector import Detector
from ordercast.parts.probing import Probing
from ordercast.view import Address, View
from ordercast.wire.header import Kind
from ordercast.wire.writer import DatagramWriter

ALIVE: Final = b"\0"  # the body of a heartbeat
FAREWELL: Final = b"\1"  # of the last one: its daemon leaves
WAITING: Final = b"\2"  # of a daemon that has anything outstanding, and takes silence for a failure soon


class SiteWatch:
    """One view: the daemons of the site, and the other ends of the links, hear of us and we of them.

    Those that are overdue are probed (`Probing`, which goes on from view to view: its nonces are never drawn twice). So
    a process that dies is noticed inside of its site as soon as its kernel says so, and silence has to tell only of
    machines.

    One daemon may be busy while the others rest and know nothing of it, as where its WAKE is lost. They answer its
    heartbeats, or it might suspect them before they learn that it waits.
    """

    __slots__ = ("_is_asked", "_looked_ns", "_said_ns", "_timing", "_writer", "detector", "probing")

    def __init__(
        self, timing: Timing, writer: DatagramWriter, probing: Probing, now_ns: int = 0, peers: Sequence[int] = ()
    ) -> None:
        self._timing = timing
        self._writer = writer
        self.probing = probing
        probing.begin()
        self.detector = Detector(timing)
        self.detector.watch(list(peers), now_ns)
        self._said_ns = now_ns - timing.heartbeat_rest_ns  # so that the first word leaves at once
        self._is_asked = False  # somebody has waited since our last word
        self._looked_ns = 0  # when silent ones were last reported: they stay silent, and need not be named at once

    def heard(self, origin: int, now_ns: int) -> None:
        """A word of the membership has come from a daemon."""
        self.detector.heard(origin, now_ns)
        self.probing.heard(origin)

    def beaten(self, origin: int, now_ns: int, body: bytes) -> None:
        """A heartbeat has come from a daemon."""
        self.detector.heard(origin, now_ns)
        self._is_asked = self._is_asked or body == WAITING

    def work(self, is_busy: bool, now_ns: int) -> None:
        """Say whether anything is outstanding; once per pass."""
        self.detector.work(is_busy, now_ns)
        if self.probing.due_ns == NEVER and self.detector.is_watching:
            self.probing.due_ns = now_ns + self._timing.probe_ns

    def probe(self, now_ns: int, view: View, out: Outbox) -> None:
        """Probe those of whom a word is overdue."""
        self.probing.expire(now_ns, True, self.detector, view, out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> list[Suspicion]:
        """A probe came back. Whom to suspect."""
        gone = self.probing.on_report(now_ns, address, quoted, self.detector, out)
        return [Suspicion(gone, SuspicionReason.GONE)] if gone else []

    def silent(self, now_ns: int) -> list[Suspicion]:
        """Whom to suspect."""
        found = [Suspicion(peer, SuspicionReason.SILENCE) for peer in self.detector.suspects(now_ns)]
        if found:
            self._looked_ns = now_ns
        return found

    def beat(self, now_ns: int, has_mates: bool, ends: Sequence[Address], out: Outbox) -> None:
        """Say that we live, when it is time."""
        if self._beat_ns > now_ns:
            return
        self._said_ns = now_ns
        self._is_asked = False
        body = WAITING if self.detector.is_busy else ALIVE
        if has_mates:
            out.sends.append(self._writer.control(To.ALL, Kind.SYNC, body))
        for end in ends:
            out.sends.append(self._writer.control(end, Kind.SYNC, body))

    def deadline_ns(self, is_working: bool) -> int:
        detector = self.detector
        if not detector.peers:
            return NEVER
        due_ns = self._beat_ns
        if is_working:
            look_ns = max(detector.deadline_ns(), self._looked_ns + self._timing.heartbeat_busy_ns)
            due_ns = min(due_ns, look_ns, self.probing.due_ns)
        return due_ns

    @property
    def _beat_ns(self) -> int:
        return self._said_ns + (self._timing.heartbeat_busy_ns if self._is_asked else self.detector.heartbeat_ns)
