"""Which nodes the leader asks whether they live, and which of them do not (REGIONS section 2: ping before removal).

A node is asked when another one accuses it, when the courier gives up on it, when nobody else watches it and it is
silent, and once by each new leader. So are all others once it has not answered for a second: what cuts off one node
often cuts off several. Its region finds one after the other, and a region whose leader is cut off loses its patience
after three seconds only. In a large service only the other members of its region are asked: thousands of answers at
once would keep the leader from its work. A node that others watch is asked as well when it has been silent for long:
where all of its region is gone at once, nobody is left to accuse anybody. Any word from a node ends that.

Deviation from the paper, which leaves it open: a node that answers the service and not its neighbours stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ordercast.config import SECOND

PING_NS: Final = SECOND // 2  # between two questions
DEAD_NS: Final = 5 * PING_NS  # without a word since the first of them
DOUBT_NS: Final = 2 * PING_NS  # the same, before others are asked as well
EVERYBODY_NS: Final = DEAD_NS  # between two times that all are asked
MOST_ASKED: Final = 1_024  # nodes of a service that asks all of them
SILENT_NS: Final = 4 * SECOND  # of a node that nobody else watches, before it is asked
QUIET_NS: Final = 25 * SECOND  # the same of any other node: it says a word every 10 to 11 s
LOOK_NS: Final = SECOND // 4  # between two looks at all of them


class VigilFindings(NamedTuple):
    """Whom to ask, because of whom others have to be asked as well, and who is gone."""

    pings: list[int]
    doubted: list[int]
    dead: list[int]


class Vigil:
    __slots__ = ("_asked", "_doubted", "_everybody_ns", "_heard", "_look_ns", "_pinged")

    def __init__(self) -> None:
        self._heard: dict[int, int] = {}  # node -> when
        self._asked: dict[int, int] = {}  # node -> since when it has been asked
        self._pinged: dict[int, int] = {}  # node -> when it was asked last
        self._doubted: dict[int, None] = {}  # nodes that have not answered for a while
        self._everybody_ns = 0  # from when on all may be asked
        self._look_ns = 0

    def begin(self, now_ns: int, nodes: Iterable[int]) -> None:
        """A new leader has heard nothing of anybody."""
        self._heard.clear()
        self._pinged.clear()
        self._doubted.clear()
        self._asked = dict.fromkeys(nodes, now_ns)
        self._everybody_ns = now_ns + EVERYBODY_NS
        self._look_ns = now_ns

    def heard(self, now_ns: int, node: int) -> None:
        self._heard[node] = now_ns
        for table in (self._asked, self._pinged, self._doubted):
            table.pop(node, None)

    def suspect(self, now_ns: int, node: int) -> None:
        if node not in self._asked:
            self._asked[node] = now_ns
            self._look_ns = now_ns

    def suspect_all(self, now_ns: int, nodes: Iterable[int]) -> None:
        """Others than one that does not answer: nobody else is asked because of them."""
        for node in nodes:
            self._doubted[node] = None
            self.suspect(now_ns, node)

    def suspect_everybody(self, now_ns: int, nodes: Collection[int]) -> None:
        """The same of all, if they are not too many, and not where they were just asked."""
        if now_ns >= self._everybody_ns and len(nodes) <= MOST_ASKED:
            self._everybody_ns = now_ns + EVERYBODY_NS
            self.suspect_all(now_ns, nodes)

    def forget(self, node: int) -> None:
        for table in (self._heard, self._asked, self._pinged, self._doubted):
            table.pop(node, None)

    def look(self, now_ns: int, unwatched: Iterable[int], watched: Iterable[int]) -> VigilFindings:
        """`unwatched`: nodes that are alone in a region, or in none. `watched`: all others."""
        for nodes, patience_ns in ((unwatched, SILENT_NS), (watched, QUIET_NS)):
            for node in nodes:
                if now_ns - self._heard.setdefault(node, now_ns) >= patience_ns:
                    self.suspect(now_ns, node)
        self._look_ns = now_ns + LOOK_NS
        pings, doubted, dead = [], [], []
        for node, since_ns in self._asked.items():
            if now_ns - since_ns >= DOUBT_NS and node not in self._doubted:
                self._doubted[node] = None
                doubted.append(node)
            if now_ns - since_ns >= DEAD_NS:
                dead.append(node)
            elif now_ns - self._pinged.get(node, -PING_NS) >= PING_NS:
                self._pinged[node] = now_ns
                pings.append(node)
        return VigilFindings(pings, doubted, dead)

    @property
    def due_ns(self) -> int:
        return self._look_ns
