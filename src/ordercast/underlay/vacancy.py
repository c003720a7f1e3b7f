"""What an underlay has in the place of an orderer while there is no ring: it takes nothing and wants nothing.

With it the underlay needs no test for a missing orderer. The membership decides what is given to an orderer at all, so
most of these methods are never called.
"""
# ruff: noqa: ARG002 - it takes what the contract names, and uses none of it

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import Timing
from ordercast.engine import NEVER, Change, Outbox
from ordercast.orderers.orderer import Standing, Suspicion, Usage
from ordercast.parts.detector import Detector
from ordercast.parts.memory import DeliveryMemory
from ordercast.view import Address, Member, View

NO_VIEW: Final = View(0, "", 0, 0, 0, 0, (), {})
NOTHING: Final = Usage(0, 0)
NOBODY: Final = Detector(Timing())  # watches no member


class Vacancy:
    """The part of `Orderer` and `Recoverable` that the underlay uses. It keeps what was delivered in the last ring."""

    __slots__ = ("_memory", "_standing", "next_block", "view")

    def __init__(self, me: Member, memory: DeliveryMemory) -> None:
        self._memory = memory
        self._standing = Standing(False, False, False, me, False, False, False)
        self.view = NO_VIEW
        self.next_block = 0

    # Questions

    @property
    def detector(self) -> Detector:
        return NOBODY

    @property
    def calls(self) -> None:
        """No call is taken."""

    @property
    def has_left(self) -> bool:
        return False

    @property
    def decided(self) -> int:
        return 0

    @property
    def is_busy(self) -> bool:
        return False

    def standing(self) -> Standing:
        return self._standing

    def usage(self) -> Usage:
        return NOTHING

    def memory(self) -> DeliveryMemory:
        return self._memory

    def room(self, now_ns: int) -> tuple[int, int]:
        return 0, 0

    def waits_for_application(self) -> bool:
        return False

    def deadline_ns(self) -> int:
        return NEVER

    def suspects(self, now_ns: int) -> list[Suspicion]:
        return []

    def blocked_by(self, now_ns: int) -> None:
        """The membership knows what this node waits for."""

    def take_views(self) -> list[View]:
        return []

    def leftovers(self) -> list[tuple[int, bytes]]:
        return []

    def undelivered(self) -> int:
        return self.next_block

    # Inputs

    def after(self) -> int:
        return 0

    def submit(self, now_ns: int, blocks: Sequence[bytes], out: Outbox) -> int:
        return 0

    def consume(self, seq: int) -> None:
        pass

    def propose(self, now_ns: int, change: Change) -> None:
        pass

    def on_data(self, now_ns: int, origin: int, number: int, block: bytes, is_repair: bool, out: Outbox) -> None:
        pass

    def on_segment(
        self,
        now_ns: int,
        origin: int,
        number: int,
        segment: int,
        last: int,
        body: memoryview,
        is_repair: bool,
        out: Outbox,
    ) -> None:
        pass

    def on_control(
        self, now_ns: int, kind: int, source: Address, origin: int, number: int, body: memoryview, out: Outbox
    ) -> None:
        pass

    def after_batch(self, now_ns: int, out: Outbox) -> None:
        pass

    def expire(self, now_ns: int, out: Outbox) -> None:
        pass

    def recover(self, upto: int, out: Outbox) -> None:
        pass

    def abandon(self, out: Outbox) -> None:
        pass
