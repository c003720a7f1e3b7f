"""The application of `ordercast bench`: what senders send, and what receivers do with each message.

Every message begins and ends with the low byte of its number, so that a receiver which reads these two bytes, as any
application would at least, checks the order of all messages on the way. The first message of each chunk also carries
its whole number and the time at which it was handed over: a sample, since a clock reading per message would distort
what is measured. The same code runs over the group and over the floor.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from time import monotonic_ns
from typing import Final
from zlib import crc32

STAMP: Final = Struct("<BQQ")  # low byte of the number, number, CLOCK_MONOTONIC of this host in ns
MIN_SIZE: Final = STAMP.size + 1
MAX_SIZE: Final = 59_000
"""One block holds it; larger messages are cut up, and blocks are what is measured here."""

CHUNK_BYTES: Final = 1 << 18
CHUNK_MESSAGES: Final = 2_048
"""What one `send_many` gets, a power of two of both bounds: a few blocks, far less than the queue holds."""

SAMPLES: Final = 200_000
"""Latencies kept; later ones are left out."""

END: Final = b"END!"
"""How the last message of a phase begins. The second byte cannot be that of a stamp, which repeats the first."""

_WHEEL: Final = bytes(range(256)) * 260  # longer than a block has messages, from any start
_FIRST: Final = itemgetter(0)
_LAST: Final = itemgetter(-1)


class Source:
    """Numbered messages of one size, in chunks."""

    __slots__ = ("_padding", "_payloads", "chunk", "sent", "size")

    def __init__(self, size: int, chunk: int | None = None) -> None:
        self.size = size
        self.chunk = chunk if chunk is not None else chunk_of(size)
        self.sent = 0
        middle = bytes(size - 2)
        wheel = [bytes((low,)) + middle + bytes((low,)) for low in range(256)]
        self._payloads = wheel * max(2, self.chunk // 256)
        self._padding = bytes(size - MIN_SIZE)

    def next(self) -> list[bytes]:
        """The next chunk; its first message says when."""
        number = self.sent
        low = number & 255
        payloads = self._payloads[low : low + self.chunk]
        payloads[0] = STAMP.pack(low, number, monotonic_ns()) + self._padding + bytes((low,))
        self.sent = number + self.chunk
        return payloads

    def end(self) -> bytes:
        """The message behind the last."""
        return END.ljust(self.size, b"!")


class Sink:
    """What one receiver has seen of all senders in one phase.

    Where not even each sender's order is promised, messages are checked by their own numbers: `begins` says with which
    each sender began the phase. They may come in any order, and what does not come is lost.
    """

    __slots__ = ("_begins", "_chunk", "_position", "delivered", "digest", "latencies_ns", "misordered", "next", "open")

    def __init__(self, senders: Iterable[str], chunk: int, begins: Mapping[str, int] | None = None) -> None:
        self.delivered = 0
        self.misordered = 0
        self.latencies_ns = array("q")
        self.next: dict[str, int] = dict.fromkeys(senders, 0)  # the number that follows; without order: how many came
        self.open = set(self.next)  # senders whose end has not come
        self.digest = 0  # over the order of blocks: equal at all members
        self._chunk = chunk
        self._begins = begins
        self._position = -1

    def take(self, sender: str, messages: Sequence[bytes], first: int = 0) -> None:
        """Read the first and last byte of every message, and the stamps. `first`: the sender's number of the first."""
        # Hot: this is the application's cost in every number of the bench, about 50 ns a message.
        count = len(messages)
        number = self.next[sender] if self._begins is None else first - self._begins[sender]
        low = number & 255
        wanted = _WHEEL[low : low + count]
        if bytes(map(_FIRST, messages)) != wanted or bytes(map(_LAST, messages)) != wanted:
            if count == 1 and messages[0].startswith(END):
                self.open.discard(sender)
                return
            self.misordered += sum(
                message[0] != byte or message[-1] != byte for message, byte in zip(messages, wanted, strict=True)
            )
        self.next[sender] += count
        self.delivered += count
        for at in range(-number % self._chunk, count, self._chunk):
            _, told, sent_ns = STAMP.unpack_from(messages[at])
            if told != number + at:
                self.misordered += 1
            if len(self.latencies_ns) < SAMPLES:
                self.latencies_ns.append(monotonic_ns() - sent_ns)

    def take_one(self, sender: str, payload: bytes, first: int = 0) -> None:
        """The same for the per-message API."""
        number = self.next[sender] if self._begins is None else first - self._begins[sender]
        low = number & 255
        if payload[0] != low or payload[-1] != low:
            if payload.startswith(END):
                self.open.discard(sender)
                return
            self.misordered += 1
        self.next[sender] += 1
        self.delivered += 1

    def ordered(self, position: int, first: int, count: int) -> None:
        """A block came at this position: positions rise, and all members see the same blocks in the same order."""
        if position < 0:
            return  # a service without order
        if position <= self._position:
            self.misordered += count
        self._position = position + count - 1
        self.digest = crc32(b"%d %d" % (position, first), self.digest)


def chunk_of(size: int) -> int:
    """Messages in a chunk: a power of two."""
    chunk = CHUNK_MESSAGES
    while chunk > 1 and chunk * size > CHUNK_BYTES:
        chunk //= 2
    return chunk
