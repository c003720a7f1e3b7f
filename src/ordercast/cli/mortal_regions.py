"""The engine of regions in processes that faults are played with: it dies when told to, and may lose datagrams."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import Any, ClassVar

from ordercast.config import GroupConfig, Timing
from ordercast.engine import Outbox
from ordercast.groups.regions.engines import RegionalEngine, RegionEngineFactory
from ordercast.view import Address, Member
from ordercast.wire.courier import OVERHEAD_BYTES, PREFIX
from ordercast.wire.header import HEADER_BYTES, Kind

KIND_AT = 1  # in a header


class MortalRegions:
    """An engine of regions whose process can be told to die while it has the token.

    Once `is_condemned` is set, the process dies of SIGKILL in the pass in which a token has come: this member has been
    visited, and nothing of it has left, neither the token nor an acknowledgement that it came. With a `loss`, each
    datagram that arrives is lost with this probability. It is wrapped and not extended: compiled classes have no
    interpreted subclasses.
    """

    __slots__ = ("_engine", "_has_token", "_me")

    is_condemned: ClassVar[bool] = False
    loss: ClassVar[float] = 0.0
    lost: ClassVar[int] = 0
    chance: ClassVar[Random] = Random()

    def __init__(self, engine: RegionalEngine, me: Member) -> None:
        self._engine = engine
        self._me = me.id
        self._has_token = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        if not MortalRegions.loss and not MortalRegions.is_condemned:
            self._engine.receive(now_ns, source, data, stride, out)
            return
        step = stride if 0 < stride < len(data) else len(data)
        for first in range(0, len(data), step):
            if self._loses():
                continue
            datagram = data[first : first + step]
            self._engine.receive(now_ns, source, datagram, 0, out)
            self._has_token = self._has_token or self._is_token(datagram)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if MortalRegions.is_condemned and self._has_token:
            os.kill(os.getpid(), signal.SIGKILL)
        self._has_token = False
        self._engine.after_batch(now_ns, out)

    def _is_token(self, datagram: memoryview) -> bool:
        if len(datagram) < OVERHEAD_BYTES or datagram[KIND_AT] != Kind.REGION_TOKEN:
            return False
        to: int = PREFIX.unpack_from(datagram, HEADER_BYTES)[1]
        return to == self._me

    @staticmethod
    def _loses() -> bool:
        is_lost = MortalRegions.chance.random() < MortalRegions.loss
        MortalRegions.lost += is_lost
        return is_lost


def mortal_regions(engines: RegionEngineFactory) -> RegionEngineFactory:
    """What makes such engines of the others."""

    def make(me: Member, config: GroupConfig, timing: Timing, rng: Random, /) -> Any:
        return MortalRegions(engines(me, config, timing, rng), me)

    return make
