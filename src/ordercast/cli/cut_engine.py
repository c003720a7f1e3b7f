"""The engine of the daemons of `ordercast demo --orderer sites` and `benches/chaos.py --loopback`: while the network is
cut, it drops what comes over it, and it loses some of what comes from far away.

No privilege is needed for that. A cut in both directions is one at each end.
"""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar

from ordercast.engine import Outbox
from ordercast.groups.engines import EngineFactory, engines_of_sites
from ordercast.sites import SitesConfig
from ordercast.view import Address


class CutEngine:
    """An engine that does not hear the addresses of `cut`, and loses each datagram of the addresses of `far` with the
    probability `loss`. It is wrapped and not extended: compiled classes have no interpreted subclasses."""

    __slots__ = ("_engine",)

    cut: ClassVar[frozenset[Address]] = frozenset()
    dropped: ClassVar[int] = 0
    far: ClassVar[frozenset[Address]] = frozenset()
    loss: ClassVar[float] = 0.0
    lost: ClassVar[int] = 0
    chance: ClassVar[Random] = Random()

    def __init__(self, engine: Any) -> None:
        self._engine = engine

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
        if source in CutEngine.cut:
            CutEngine.dropped += 1
        elif CutEngine.loss and source in CutEngine.far:
            # Each datagram of a train has its own fate, as on a wire.
            step = stride if 0 < stride < len(data) else len(data)
            for first in range(0, len(data), step):
                if CutEngine.chance.random() < CutEngine.loss:
                    CutEngine.lost += 1
                else:
                    self._engine.receive(now_ns, source, data[first : first + step], 0, out)
        else:
            self._engine.receive(now_ns, source, data, stride, out)


def cut_engines(sites: SitesConfig) -> EngineFactory:
    """What makes such engines."""
    inner = engines_of_sites(sites)

    def make(*args: Any, **options: Any) -> Any:
        return CutEngine(inner(*args, **options))

    return make
