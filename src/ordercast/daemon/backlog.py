"""What a client has sent and its session has not taken: blocks that the queue has no room for, requests behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ordercast.errors import WireError
from ordercast.service import Service
from ordercast.wire.block import Head
from ordercast.wire.frames import FrameKind

LATER_BYTES: Final = 1 << 20
"""Requests of one client that wait behind what it has sent, each as its bytes and `LATER_EACH`. At the bound it is
disconnected."""

LATER_EACH: Final = 64


class WaitingFrame(NamedTuple):
    """A frame of the client whose turn has not come."""

    kind: int
    body: bytes
    head: Head | None  # of a block


class OpenedMessage(NamedTuple):
    """A message of a block that had to be opened, on its way to the seat."""

    payload: bytes
    groups: Sequence[str]
    service: Service
    type: int
    priority: int


class Backlog:
    """The line of one connection. Credit bounds its messages, and `LATER_BYTES` its requests."""

    __slots__ = ("_later_bytes", "frames", "message_bytes", "opened")

    def __init__(self) -> None:
        self.frames: deque[WaitingFrame] = deque()
        self.opened: deque[OpenedMessage] = deque()  # of one block, before all frames
        self.message_bytes = 0
        self._later_bytes = 0

    def __bool__(self) -> bool:
        return bool(self.frames or self.opened)

    def add_block(self, block: bytes, head: Head) -> None:
        self.frames.append(WaitingFrame(FrameKind.SEND, block, head))
        self.message_bytes += len(block)

    def add_request(self, kind: int, body: bytes) -> None:
        """Keep a request behind the messages that the client has sent before."""
        self._later_bytes += len(body) + LATER_EACH
        if self._later_bytes > LATER_BYTES:
            raise WireError(f"requests of more than {LATER_BYTES} bytes wait behind messages that were sent before")
        self.frames.append(WaitingFrame(kind, body, None))

    def add_opened(self, message: OpenedMessage) -> None:
        self.opened.append(message)
        self.message_bytes += len(message.payload)

    def drop_frame(self) -> None:
        """The first frame has had its turn."""
        _, body, head = self.frames.popleft()
        if head is None:
            self._later_bytes -= len(body) + LATER_EACH
        else:
            self.message_bytes -= len(body)

    def drop_opened(self) -> None:
        """The first opened message has been taken."""
        self.message_bytes -= len(self.opened.popleft().payload)
