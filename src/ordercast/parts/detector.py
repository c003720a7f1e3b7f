"""The failure detector (docs/design/overview.md section 7): silence, measured against what was going on.

While anything is outstanding peers speak every 100 ms and 1.3 s of silence is suspicious; at rest 1 s and 5 s. Silence
counts from the last word or from the moment work began, whichever is later: nobody is blamed for having been idle.
"""

from __future__ import annotations

from ordercast.config import Timing
from ordercast.engine import NEVER


class Detector:
    __slots__ = ("_busy_since_ns", "_heard_ns", "_is_busy", "_timing")

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._heard_ns: dict[int, int] = {}
        self._is_busy = False
        self._busy_since_ns = 0

    def watch(self, peers: list[int], now_ns: int) -> None:
        """Exactly these peers are watched from now on; one that is new has just been heard."""
        self._heard_ns = {peer: self._heard_ns.get(peer, now_ns) for peer in peers}

    def heard(self, peer: int, now_ns: int) -> None:
        if peer in self._heard_ns:
            self._heard_ns[peer] = now_ns

    def work(self, is_busy: bool, now_ns: int) -> None:
        """Say whether anything is outstanding."""
        if is_busy and not self._is_busy:
            self._busy_since_ns = now_ns
        self._is_busy = is_busy

    @property
    def heartbeat_ns(self) -> int:
        return self._timing.heartbeat_busy_ns if self._is_busy else self._timing.heartbeat_rest_ns

    def is_missing(self, now_ns: int) -> bool:
        """Whether somebody has been silent for half of what is suspicious at rest: it may be asked for a word."""
        return any(heard_ns + self._timing.suspect_rest_ns // 2 <= now_ns for heard_ns in self._heard_ns.values())

    def unheard(self, now_ns: int, for_ns: int) -> list[int]:
        """Who has been silent for so long, suspicious or not."""
        return [peer for peer, heard_ns in self._heard_ns.items() if heard_ns + for_ns <= now_ns]

    def suspects(self, now_ns: int) -> list[int]:
        return [peer for peer in self._heard_ns if self._deadline_of(peer) <= now_ns]

    def deadline_ns(self) -> int:
        return min(map(self._deadline_of, self._heard_ns), default=NEVER)

    def _deadline_of(self, peer: int) -> int:
        heard_ns = self._heard_ns[peer]
        at_rest_ns = heard_ns + self._timing.suspect_rest_ns
        if not self._is_busy:
            return at_rest_ns
        return min(at_rest_ns, max(heard_ns, self._busy_since_ns) + self._timing.suspect_busy_ns)
