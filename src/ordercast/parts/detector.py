"""The failure detector (docs/design/detector.md): silence, measured against what was going on and what is usual.

While anything is outstanding peers speak every 100 ms and 1.3 s of silence is suspicious; at rest 1 s and 5 s. Silence
counts from the last word or from the moment work began, whichever is later: nobody is blamed for having been idle.

Two things are learned. A peer whose words come irregularly gets more time: the mean and the deviation of the pauses
between its words, as Jacobson estimates round trips, give a bound between `suspect_busy_ns` and `suspect_max_ns`.
It never falls below the former: a process that is stopped for a second and goes on is no failure, whatever the history
of its heartbeats says. And this node may have stood still itself: if its own pass comes late, the peers may have spoken
meanwhile, and the time by which it is late does not count as their silence.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS, Timing
from ordercast.engine import NEVER

DEVIATIONS: Final = 6  # by so many deviations a pause may be longer than the mean
USUAL: Final = 2  # by so many deviations a usual pause may be longer than the mean
OFTEN: Final = 10  # times as long as a long pause: who speaks for so long without one speaks often
STALL_NS: Final = 50 * MS  # a pass that is late by more than this was held up: the scheduler explains less


class Detector:
    __slots__ = (
        "_busy_since_ns",
        "_heard_ns",
        "_long_ns",
        "_paused_ns",
        "_pauses",
        "_seen_ns",
        "_timing",
        "is_busy",
        "stalls",
    )

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._heard_ns: dict[int, int] = {}
        self._pauses: dict[int, tuple[int, int]] = {}  # peer -> mean and deviation of the pauses between its words
        self._paused_ns: dict[int, int] = {}  # peer -> when the last of these ended
        self._long_ns = timing.heartbeat_busy_ns // 2  # shorter pauses say nothing about heartbeats
        self.is_busy = False  # anything is outstanding
        self._busy_since_ns = 0
        self._seen_ns = -1  # when this node last had its turn; -1: not yet
        self.stalls = 0  # times that it had its turn too late

    def watch(self, peers: list[int], now_ns: int) -> None:
        """Exactly these peers are watched from now on; one that is new has just been heard."""
        self._heard_ns = {peer: self._heard_ns.get(peer, now_ns) for peer in peers}
        self._pauses = {peer: pause for peer, pause in self._pauses.items() if peer in self._heard_ns}
        self._paused_ns = {peer: at_ns for peer, at_ns in self._paused_ns.items() if peer in self._heard_ns}

    def heard(self, peer: int, now_ns: int) -> None:
        # Hot: once per datagram.
        before_ns = self._heard_ns.get(peer)
        if before_ns is not None:
            self._heard_ns[peer] = now_ns
            if now_ns - before_ns > self._long_ns and self.is_busy:
                self._learn(peer, before_ns, now_ns)

    def work(self, is_busy: bool, now_ns: int) -> None:
        """Say whether anything is outstanding; once per pass."""
        self._notice_stall(now_ns)
        if is_busy and not self.is_busy:
            self._busy_since_ns = now_ns
        self.is_busy = is_busy

    @property
    def heartbeat_ns(self) -> int:
        return self._timing.heartbeat_busy_ns if self.is_busy else self._timing.heartbeat_rest_ns

    @property
    def is_watching(self) -> bool:
        """Whether words of somebody are waited for, because anything is outstanding."""
        return self.is_busy and bool(self._heard_ns)

    @property
    def peers(self) -> list[int]:
        """The peers that are watched."""
        return list(self._heard_ns)

    def heard_ns(self, peer: int) -> int:
        """When a peer was heard last; -1 if it is not watched."""
        return self._heard_ns.get(peer, -1)

    def silence_began_ns(self, peer: int) -> int:
        """Since when a word of a peer has been waited for. At rest none is before two heartbeats are over."""
        if self.is_busy:
            return max(self._heard_ns[peer], self._busy_since_ns)
        return self._heard_ns[peer] + 2 * self._timing.heartbeat_rest_ns

    def usual_ns(self, peer: int) -> int:
        """How long pauses between words of a peer usually are, while anything is outstanding; 0: none was long lately.

        A peer that has spoken for a while since its last long pause, and so without another one, speaks often: that
        pause was an accident, as where datagrams are lost. Not sooner, or members of a quiet group, which speak now and
        then, would be probed in every pause."""
        if self._heard_ns[peer] - self._paused_ns.get(peer, 0) > OFTEN * self._long_ns:
            return 0
        mean_ns, deviation_ns = self._pauses.get(peer, (0, 0))
        return mean_ns + USUAL * deviation_ns

    def is_overdue(self, now_ns: int) -> bool:
        """Whether two heartbeats of somebody are missing, at rest."""
        if self.is_busy:
            return False
        long_ago_ns = now_ns - 2 * self._timing.heartbeat_rest_ns
        return any(heard_ns <= long_ago_ns for heard_ns in self._heard_ns.values())

    def is_missing(self, now_ns: int) -> bool:
        """Whether somebody has been silent for half of what is suspicious at rest: it may be asked for a word."""
        return any(heard_ns + self._timing.suspect_rest_ns // 2 <= now_ns for heard_ns in self._heard_ns.values())

    def unheard(self, now_ns: int, for_ns: int) -> list[int]:
        """Who has been silent for so long, suspicious or not."""
        return [peer for peer, heard_ns in self._heard_ns.items() if heard_ns + for_ns <= now_ns]

    def suspects(self, now_ns: int) -> list[int]:
        self._notice_stall(now_ns)
        return [peer for peer in self._heard_ns if self._deadline_of(peer) <= now_ns]

    def deadline_ns(self) -> int:
        return min(map(self._deadline_of, self._heard_ns), default=NEVER)

    def patience_ns(self, peer: int) -> int:
        """How long a peer may be silent while anything is outstanding."""
        least_ns = self._timing.suspect_busy_ns
        mean_ns, deviation_ns = self._pauses.get(peer, (0, 0))
        return min(max(mean_ns + DEVIATIONS * deviation_ns, least_ns), max(self._timing.suspect_max_ns, least_ns))

    def _deadline_of(self, peer: int) -> int:
        heard_ns = self._heard_ns[peer]
        at_rest_ns = heard_ns + self._timing.suspect_rest_ns
        if not self.is_busy:
            return at_rest_ns
        return min(at_rest_ns, max(heard_ns, self._busy_since_ns) + self.patience_ns(peer))

    def _learn(self, peer: int, before_ns: int, now_ns: int) -> None:
        """One pause between two words, while heartbeats were expected."""
        self._paused_ns[peer] = now_ns
        if now_ns - self._seen_ns - self.heartbeat_ns > STALL_NS:
            return  # it was our own
        took_ns = now_ns - max(before_ns, self._busy_since_ns)
        mean_ns, deviation_ns = self._pauses.get(peer, (self._timing.heartbeat_busy_ns, 0))
        error_ns = took_ns - mean_ns
        deviation_ns += (abs(error_ns) - deviation_ns) // 4
        self._pauses[peer] = (mean_ns + error_ns // 8, deviation_ns)

    def _notice_stall(self, now_ns: int) -> None:
        """A pass comes with every heartbeat at the latest. By how much this one is late, nobody was silent."""
        late_ns = now_ns - self._seen_ns - self.heartbeat_ns
        if late_ns > STALL_NS and self._seen_ns >= 0:
            self.stalls += 1
            self._heard_ns = {peer: min(heard_ns + late_ns, now_ns) for peer, heard_ns in self._heard_ns.items()}
            self._busy_since_ns = min(self._busy_since_ns + late_ns, now_ns)
        self._seen_ns = now_ns
