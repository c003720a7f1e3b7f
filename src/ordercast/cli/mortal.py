"""The engine of member processes that faults are played with: it dies when told to, and may lose datagrams."""

from __future__ import annotations

import os
import signal
from random import Random
from typing import Any, ClassVar

from ordercast.engine import Outbox
from ordercast.underlay import Underlay
from ordercast.view import Address


class MortalEngine:
    """An engine whose process can be told to die while it assigns sequence numbers.

    Once `is_condemned` is set, the process dies of SIGKILL in the first pass in which this member orders. With the
    token that is the pass in which the token has arrived, before it is passed on: nothing of that pass leaves.

    With a `loss`, each datagram that arrives is lost with this probability, and each report of the kernel that a
    process is gone. That needs no privilege. Losses of a bridge between namespaces take a whole train at once, since a
    train crosses it as one packet; here each datagram has its own fate, as on a wire.

    All the rest is the real engine's. It is wrapped and not extended: compiled classes have no interpreted subclasses.
    """

    __slots__ = ("_engine",)

    is_condemned: ClassVar[bool] = False
    loss: ClassVar[float] = 0.0
    lost: ClassVar[int] = 0
    chance: ClassVar[Random] = Random()

    def __init__(self, *args: Any, **options: Any) -> None:
        self._engine = Underlay(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    # These are looked up on the class.

    def carry(self) -> object:
        return self._engine.carry()

    def inherit(self, memory: object) -> None:
        self._engine.inherit(memory)

    def durable(self) -> bytes | None:
        return self._engine.durable()

    def restore(self, entry: bytes) -> None:
        self._engine.restore(entry)

    def receive(self, now_ns: int, source: Address, data: memoryview, stride: int, out: Outbox) -> None:
        if not MortalEngine.loss:
            self._engine.receive(now_ns, source, data, stride, out)
            return
        step = stride if 0 < stride < len(data) else len(data)
        for first in range(0, len(data), step):
            if not self._loses():
                self._engine.receive(now_ns, source, data[first : first + step], 0, out)

    def unreachable(self, now_ns: int, address: Address, quoted: bytes, out: Outbox) -> None:
        if not self._loses():
            self._engine.unreachable(now_ns, address, quoted, out)

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        if MortalEngine.is_condemned and self._engine.is_ordering:
            os.kill(os.getpid(), signal.SIGKILL)
        self._engine.after_batch(now_ns, out)

    def _loses(self) -> bool:
        is_lost = MortalEngine.chance.random() < MortalEngine.loss
        MortalEngine.lost += is_lost
        return is_lost


def mortal_engine(*args: Any, **options: Any) -> Any:
    """The factory of such engines."""
    return MortalEngine(*args, **options)
