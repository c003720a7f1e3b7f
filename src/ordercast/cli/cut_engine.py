"""The engine of the daemons of `ordercast demo --orderer sites`: while the network is cut, it drops what comes over it.

No privilege is needed for that. A cut in both directions is one at each end.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ordercast.engine import Outbox
from ordercast.groups.engines import EngineFactory, engines_of_sites
from ordercast.sites import SitesConfig
from ordercast.view import Address


class CutEngine:
    """An engine that does not hear the addresses of `cut`. It is wrapped and not extended: compiled classes have no
    interpreted subclasses."""

    __slots__ = ("_engine",)

    cut: ClassVar[frozenset[Address]] = frozenset()
    dropped: ClassVar[int] = 0

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
        else:
            self._engine.receive(now_ns, source, data, stride, out)


def cut_engines(sites: SitesConfig) -> EngineFactory:
    """What makes such engines."""
    inner = engines_of_sites(sites)

    def make(*args: Any, **options: Any) -> Any:
        return CutEngine(inner(*args, **options))

    return make
