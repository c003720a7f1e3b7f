"""The engine of the daemons of `ordercast demo --orderer sites`, `benches/chaos.py --loopback` and tests: while the
network is cut, it drops what comes over it, and it loses some of what comes from far away.

No privilege is needed for that. A cut in both directions is one at each end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ordercast.engine import Outbox
from ordercast.groups.engines import EngineFactory, engines_of_sites
from ordercast.sites import SitesConfig
from ordercast.view import Address


@dataclass(slots=True)
class Hearing:
    """What one daemon does not hear: the addresses of `cut`, and each datagram of the addresses of `far` with the
    probability `loss`. During a cut it also does not hear ports that the configuration does not name: probes leave by
    such a port, and of which daemon it is cannot be told."""

    cut: frozenset[Address] = frozenset()
    far: frozenset[Address] = frozenset()
    loss: float = 0.0
    dropped: int = 0  # by the cut
    lost: int = 0  # by chance
    chance: Random = field(default_factory=Random)


class CutEngine:
    """An engine behind such a network. It is wrapped and not extended: compiled classes have no interpreted
    subclasses."""

    __slots__ = ("_engine", "_hearing", "_named")

    def __init__(self, engine: Any, hearing: Hearing, named: Collection[Address]) -> None:
        """`named`: the addresses in the configuration."""
        self._engine = engine
        self._hearing = hearing
        self._named = named

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    # These are looked up on the class.

    def carry(self) -> object:
        return self._engine.carry()

    def inherit(self, memory: object) -> None:
        self._engine.inherit(memory)

    def durable(self) -> bytes | None:
        found: bytes | None = self._engine.durable()
        return found

    def restore(self, entry: bytes) -> None:
        self._engine.restore(entry)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        hearing = self._hearing
        if hearing.cut and (source in hearing.cut or source not in self._named):
            hearing.dropped += 1
        elif hearing.loss and source in hearing.far:
            # Each datagram of a train has its own fate, as on a wire.
            step = stride if 0 < stride < len(data) else len(data)
            for first in range(0, len(data), step):
                if hearing.chance.random() < hearing.loss:
                    hearing.lost += 1
                else:
                    self._engine.receive(now_ns, source, data[first : first + step], 0, out)
        else:
            self._engine.receive(now_ns, source, data, stride, out)


def cut_engines(sites: SitesConfig, hearing: Hearing) -> EngineFactory:
    """What makes such engines for one daemon."""
    inner, named = engines_of_sites(sites), frozenset(each.address for each in sites.daemons)

    def make(*args: Any, **options: Any) -> Any:
        return CutEngine(inner(*args, **options), hearing, named)

    return make
