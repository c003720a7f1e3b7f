"""A network for scripts: it says what crosses the wire, and loses what a script wants to be lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ordercast.errors import WireError
from ordercast.sim.datagrams import Arrival, kind_of
from ordercast.sim.network import Network, NetworkModel
from ordercast.sim.pipes import Pipes
from ordercast.sim.site_texts import site_text
from ordercast.view import node_id
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.token import decode_list, decode_token

MAX_LIVES: Final = 8  # of a node that a token may name
PASSES_TOKEN: Final = ("token", "ordered", "list")


class WatchedNetwork(Network):
    """`told` has one text for each transmission of the `watched` kinds since it was last cleared."""

    __slots__ = ("_doomed", "_names", "_sites", "told", "watched")

    def __init__(
        self,
        model: NetworkModel,
        rng: random.Random,
        names: Sequence[str],
        pipes: Pipes | None = None,
        sites: Sequence[str] = (),
    ) -> None:
        """`sites`: their names, in the order of the configuration, where datagrams name them."""
        super().__init__(model, rng, pipes)
        self._sites = tuple(sites)
        self._names = {node_id(name, life): name for name in names for life in range(MAX_LIVES)}
        self._doomed: Counter[tuple[str, str]] = Counter()  # (kind, target) -> how many will be lost
        self.watched: frozenset[str] = frozenset()
        self.told: list[str] = []

    def lose(self, kind: str, target: str, count: int = 1) -> None:
        """Lose the next transmissions of this kind on their way to this node."""
        self._doomed[kind, target] += count

    @property
    def has_lost_all(self) -> bool:
        """Whether everything is lost that was to be."""
        return not any(self._doomed.values())

    def transmit(self, leave_ns: int, source: str, targets: Sequence[str], data: bytes, stride: int) -> list[Arrival]:
        kind = kind_of(data)
        lost = [target for target in targets if self._doomed[kind, target]]
        for target in lost:
            self._doomed[kind, target] -= 1
        if self.watched:
            self.told += self._texts(source, targets, kind, lost, data, stride or len(data))
        reached = [target for target in targets if target not in lost]
        return super().transmit(leave_ns, source, reached, data, stride)

    def _texts(
        self, source: str, targets: Sequence[str], kind: str, lost: Sequence[str], data: bytes, stride: int
    ) -> list[str]:
        """One for a transmission; of sites, whose trains may have several kinds, one for each datagram."""
        to = f" to {targets[0]}" if len(targets) == 1 else ""
        where = f" (lost at {' '.join(lost)})" if lost else ""
        if self._sites:
            each = [data[at : at + stride] for at in range(0, len(data), stride)]
            said = [(kind_of(part), site_text(part, self._sites)) for part in each if kind_of(part) in self.watched]
            return [f"{source} {sort}{' ' * bool(text)}{text}{to}{where}" for sort, text in said]
        if kind not in self.watched:
            return []
        passed = self._passed(kind, data[HEADER_BYTES:stride]) if kind in PASSES_TOKEN else ""
        return [f"{source} {kind}{to}{passed}{where}"]

    def _passed(self, kind: str, body: bytes) -> str:
        """What a datagram of the token orderer orders, and to whom it passes the token."""
        try:
            state, assignments = decode_token(body if kind == "token" else decode_list(body)[0])
        except WireError:
            return ""  # another orderer's
        count = sum(assignment.count for assignment in assignments)
        return f" of {count}, next {self._names.get(state.site, 'unknown')}"
