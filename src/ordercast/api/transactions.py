"""Batches that all members get whole and once, although their publisher may die and begin again at any moment.

A *transaction* is one batch of one query: BEGIN, the rows as messages of their own, COMMIT, from one sender. A
publisher may fail half-way; then another *attempt* publishes the same batch, however it is cut by then. Members read
through `Transactions`, which hands over a batch where its COMMIT stands in the order, and only the first time. It knows
nothing but the order, so all members that read from the same place on decide alike.

Which messages belong to transactions is told by their types: those below FIRST_FREE_TYPE do, in groups that have
transactions. A row of type t has the type ROW_TYPE + t on its way, and its payload is the row's own, so that archives
and members that do not read through this see plain values.
docs/design/pipeline.md, *Sink*, has the rules and what a member sees that joins in the middle.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import Final

from ordercast.api.group import Group
from ordercast.errors import UsageError
from ordercast.groups.events import Batch, MixedBatch, PortEvent
from ordercast.service import RESILIENT, SAFE, Service

ROW_TYPE: Final = -(1 << 15)
MAX_ROW_TYPE: Final = (1 << 14) - 1
"""The greatest type of a row; the least is 0."""
BEGIN_TYPE: Final = ROW_TYPE + MAX_ROW_TYPE + 1
COMMIT_TYPE: Final = BEGIN_TYPE + 1
FIRST_FREE_TYPE: Final = COMMIT_TYPE + 1
"""Messages of lower types belong to transactions."""

# magic, version, bytes of the query's name, batch, rows, bytes of their payloads, attempt, crc (of COMMIT)
MARK: Final = Struct("<4sHHqQQ16sI4x")
MARK_MAGIC: Final = b"OCTX"
MARK_VERSION: Final = 1
if MARK.size != 56:
    raise AssertionError("marks of transactions have a fixed size on the wire")

MAX_BYTES: Final = 256 << 20
"""Payload bytes of the rows of open transactions that a member keeps, and of one that is published."""

ROW_BYTES: Final = 64
"""What a row counts beside its payload against MAX_BYTES: the object that holds it."""

MAX_QUERIES: Final = 100_000
"""Queries whose last batch is remembered; beyond that those are forgotten that have been quiet for longest."""

MAX_VOIDED: Final = 1_000
"""Attempts that were given up, and whose COMMIT may still come from a publisher that is not as dead as it seemed."""

MAX_QUERY_BYTES: Final = 1_024

CHUNK_ROWS: Final = 4_096
"""Rows that are offered to the group at once."""


class TransactionTooLarge(UsageError):
    """A batch has more bytes than a member keeps, or than may be published at once."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One batch, whole. `position` is that of its COMMIT: batches come in the order of their positions."""

    query: str
    batch: int
    rows: Sequence[bytes]
    types: Sequence[int]
    sender: str
    position: int
    group: str
    attempt: str

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.rows)


@dataclass(frozen=True, slots=True)
class Missed:
    """A batch was committed of which this member has not seen the beginning: it came too late for it."""

    query: str
    batch: int
    sender: str
    position: int
    group: str
    attempt: str


Item = PortEvent | Transaction | Missed


# What is sent. -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """The payload of BEGIN and COMMIT."""

    query: str
    batch: int
    attempt: bytes  # 16 bytes that no other attempt has
    rows: int
    nbytes: int
    crc: int = 0

    def pack(self) -> bytes:
        name = self.query.encode()
        head = (MARK_MAGIC, MARK_VERSION, len(name), self.batch, self.rows, self.nbytes, self.attempt, self.crc)
        return MARK.pack(*head) + name


def open_mark(payload: bytes) -> Mark | None:
    """What a BEGIN or a COMMIT says; None where it is none."""
    if len(payload) < MARK.size:
        return None
    magic, version, size, batch, rows, nbytes, attempt, crc = MARK.unpack_from(payload)
    name = payload[MARK.size :]
    if magic != MARK_MAGIC or version != MARK_VERSION or size != len(name) or not 0 < size <= MAX_QUERY_BYTES:
        return None
    try:
        query = name.decode()
    except UnicodeDecodeError:
        return None
    return Mark(query, batch, attempt, rows, nbytes, crc)


async def publish(
    group: Group, query: str, batch: int, rows: Sequence[bytes], *, type: int = 0, service: Service = SAFE
) -> int:
    """Send one batch of rows, all of one type; the position of its COMMIT. See `publish_chunks`."""
    return await publish_chunks(group, query, batch, [(rows, type)], len(rows), sum(map(len, rows)), service=service)


async def publish_chunks(
    group: Group,
    query: str,
    batch: int,
    chunks: Iterable[tuple[Sequence[bytes], int]],
    rows: int,
    nbytes: int,
    *,
    service: Service = SAFE,
    max_bytes: int = MAX_BYTES,
) -> int:
    """Send one batch: `rows` payloads of `nbytes` bytes in all, as chunks that have one type each; COMMIT's position.

    It returns when the COMMIT is delivered here with its service. Some task has to go on receiving from the group, and
    sees by `Transactions` whether the batch was handed over: another attempt may have begun meanwhile. One batch at a
    time may be published by one node. Errors as a confirmed `send`. No member gets the batch unless the COMMIT was
    sent, which is after all rows are known to be delivered.
    """
    _check(query, batch, service)
    if size_of(rows, nbytes) > max_bytes:
        raise TransactionTooLarge(
            f"batch {batch} has {rows} rows of {nbytes} bytes, more than the {max_bytes} that members are to keep: "
            "publish smaller batches, or have the members keep more"
        )
    seat = group._seat
    # Unique: no message of this node's life has this number twice.
    attempt = blake2b(f"{group.name}/{seat.member}/{seat.end_number}".encode(), digest_size=16).digest()
    await group.send(Mark(query, batch, attempt, rows, nbytes).pack(), service, BEGIN_TYPE)
    crc = sent = size = 0
    for payloads, type_ in chunks:
        if not 0 <= type_ <= MAX_ROW_TYPE:
            raise UsageError(f"the type of a row lies between 0 and {MAX_ROW_TYPE}, not {type_}")
        for at in range(0, len(payloads), CHUNK_ROWS):
            chunk = payloads[at : at + CHUNK_ROWS]
            joined = b"".join(chunk)
            crc, size, sent = zlib.crc32(joined, crc), size + len(joined), sent + len(chunk)
            await group.send_many(chunk, service, ROW_TYPE + type_)
    if (sent, size) != (rows, nbytes):
        raise UsageError(f"batch {batch} was to have {rows} rows of {nbytes} bytes, and has {sent} of {size}")
    # Were this node excluded, some rows could be lost and later messages not: the flush would say so.
    await group.flush()
    return await group.send(Mark(query, batch, attempt, rows, nbytes, crc).pack(), service, COMMIT_TYPE, confirm=True)


def _check(query: str, batch: int, service: Service) -> None:
    if not 0 < len(query.encode()) <= MAX_QUERY_BYTES:
        raise UsageError(f"the name of a query has 1 to {MAX_QUERY_BYTES} bytes, not {len(query.encode())}")
    if not 0 <= batch < 1 << 63:
        raise UsageError(f"batches count from 0 on, not {batch}")
    if service < RESILIENT(1):
        raise UsageError(
            f"what is confirmed has to survive its publisher: use SAFE, MAJORITY or RESILIENT(k), not {service}"
        )


# What is received. ---------------------------------------------------------------------------------------------------


class _Open:
    """A transaction whose COMMIT has not come."""

    __slots__ = ("count", "crc", "mark", "nbytes", "number", "rows", "sender", "types")

    def __init__(self, mark: Mark, sender: str, number: int) -> None:
        self.mark = mark
        self.sender = sender
        self.number = number  # its next message has at least this one: the sender may send to other groups in between
        self.count = 0
        self.nbytes = 0
        self.crc = 0
        self.rows: list[bytes] = []
        self.types: list[int] = []


class Transactions:
    """Hands over batches that are whole, each once. Feed it everything that the group delivers, in order.

    A batch is handed over at its COMMIT, if all its rows have come, no other attempt of the query has begun since its
    BEGIN, and no batch of the query with its number or a greater one was handed over before. What it remembers of a
    query is one number, and at most one transaction that is open.
    """

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, decided: Mapping[str, int] | None = None, keep_rows: bool = True
    ) -> None:
        """max_bytes: of rows kept of open transactions. decided: that of a member whose state this one continues.

        keep_rows=False: for who only wants to know what was decided; batches come without rows.
        """
        self._max_bytes = max_bytes
        self._keep_rows = keep_rows
        self._decided: dict[str, int] = dict(decided or {})  # by the time of the last batch, the oldest first
        self._open: dict[str, _Open] = {}  # by sender; at most one of a query
        self._open_bytes = 0
        self._voided: dict[bytes, None] = {}  # attempts, the oldest first
        self.dropped = 0
        """Attempts that were given up: another one began, or their rows were not all there."""
        self.repeated = 0
        """Attempts of batches that had been handed over."""
        self.ignored = 0
        """Messages of no transaction that is open here, and marks that cannot be read."""

    @property
    def decided(self) -> dict[str, int]:
        """The last batch of each query that was handed over: what a member gives to one that continues its state."""
        return dict(self._decided)

    @property
    def open(self) -> int:
        """Transactions that have begun. Where it is 0, `decided` is all there is to know."""
        return len(self._open)

    def feed(self, event: PortEvent) -> Iterator[Item]:
        """What the event brings: itself, unless it belongs to a transaction; batches that are whole by now.

        Raises TransactionTooLarge where a transaction has more bytes than this member keeps.
        """
        if isinstance(event, MixedBatch):
            for run in event.runs():
                yield from self._feed(run)
        else:
            yield from self._feed(event)

    def _feed(self, event: PortEvent) -> Iterator[Item]:
        if not isinstance(event, Batch):
            yield event
            return
        if not event.service.is_ordered or event.__class__ is not Batch:
            yield event  # weaker messages and calls are nobody's rows
            return
        types, at, stop = event.types, 0, len(event)
        if len(event.messages) != stop:
            yield event  # unreadable, at every member
            return
        is_uniform = types.count(types[0]) == stop
        while at < stop:
            type_ = types[at]
            end = stop if is_uniform else _run(types, at)
            if type_ >= FIRST_FREE_TYPE:
                yield event if (at, end) == (0, stop) else _cut(event, at, end, type_)
            elif type_ < BEGIN_TYPE:
                self._on_rows(event, at, end, type_ - ROW_TYPE)
            else:
                for seq in range(at, end):
                    yield from self._on_mark(event, seq, type_)
            at = end

    # In detail.

    def _on_rows(self, event: Batch, at: int, end: int, type_: int) -> None:
        open_ = self._open.get(event.sender)
        if open_ is None or event.first + at < open_.number:
            self.ignored += end - at
            return
        rows = event.messages[at:end]
        joined = b"".join(rows)
        open_.number = event.first + end
        open_.count += len(rows)
        open_.nbytes += len(joined)
        open_.crc = zlib.crc32(joined, open_.crc)
        if open_.count > open_.mark.rows or open_.nbytes > open_.mark.nbytes:
            self._void(event.sender)  # more than it said: no correct publisher does that
        elif self._keep_rows:
            open_.rows += rows
            open_.types += [type_] * len(rows)

    def _on_mark(self, event: Batch, seq: int, type_: int) -> Iterator[Item]:
        mark = open_mark(event.messages[seq])
        if mark is None:
            self.ignored += 1
        elif type_ == BEGIN_TYPE:
            self._on_begin(event, seq, mark)
        else:
            yield from self._on_commit(event, seq, mark)

    def _on_begin(self, event: Batch, seq: int, mark: Mark) -> None:
        for sender, open_ in list(self._open.items()):
            if sender == event.sender or open_.mark.query == mark.query:
                self._void(sender)
        if mark.batch <= self._decided.get(mark.query, -1):
            # Its rows are passed over as they come; nothing is kept for what will not be handed over.
            return
        if self._keep_rows:
            size = size_of(mark.rows, mark.nbytes)
            # Attempts that were never finished make room, the oldest first.
            while self._open and self._open_bytes + size > self._max_bytes:
                self._close(next(iter(self._open)))
                self.dropped += 1
            if size > self._max_bytes:
                raise TransactionTooLarge(
                    f"batch {mark.batch} of {mark.query} has {mark.rows} rows of {mark.nbytes} bytes, and this member "
                    f"keeps {self._max_bytes}: give Transactions a larger max_bytes, or publish smaller batches"
                )
            self._open_bytes += size
        self._open[event.sender] = _Open(mark, event.sender, event.first + seq + 1)

    def _on_commit(self, event: Batch, seq: int, mark: Mark) -> Iterator[Item]:
        if mark.batch <= self._decided.get(mark.query, -1):
            self.repeated += 1
            return
        if mark.attempt in self._voided:
            return
        open_ = self._open.get(event.sender)
        position = event.position + seq
        attempt = mark.attempt.hex()
        if open_ is None or open_.mark.attempt != mark.attempt:
            self.ignored += 1
            yield Missed(mark.query, mark.batch, event.sender, position, event.group, attempt)
            return
        found = (open_.mark.query, open_.mark.batch, open_.count, open_.nbytes, open_.crc)
        is_whole = found == (mark.query, mark.batch, mark.rows, mark.nbytes, mark.crc)
        self._close(event.sender)
        if not is_whole:
            self.dropped += 1
            return
        self._decide(mark.query, mark.batch)
        yield Transaction(mark.query, mark.batch, open_.rows, open_.types, event.sender, position, event.group, attempt)

    def _decide(self, query: str, batch: int) -> None:
        self._decided.pop(query, None)
        self._decided[query] = batch
        if len(self._decided) > MAX_QUERIES:
            del self._decided[next(iter(self._decided))]

    def _void(self, sender: str) -> None:
        """Give up an attempt; should its COMMIT come, that means nothing any more."""
        self._voided[self._close(sender).mark.attempt] = None
        self.dropped += 1
        if len(self._voided) > MAX_VOIDED:
            del self._voided[next(iter(self._voided))]

    def _close(self, sender: str) -> _Open:
        open_ = self._open.pop(sender)
        if self._keep_rows:
            self._open_bytes -= size_of(open_.mark.rows, open_.mark.nbytes)
        return open_


async def transactions(group: Group, reading: Transactions | None = None) -> AsyncIterator[Item]:
    """Everything that the group delivers, as `group.batches()`, with whole batches in place of their messages."""
    reading = reading or Transactions()
    async for event in group.batches():
        for item in reading.feed(event):
            yield item


def size_of(rows: int, nbytes: int) -> int:
    """What a transaction counts against the bytes that members keep."""
    return nbytes + rows * ROW_BYTES


def _run(types: Sequence[int], at: int) -> int:
    """Where the run of equal types that begins at `at` ends."""
    type_, end = types[at], at + 1
    while end < len(types) and types[end] == type_:
        end += 1
    return end


def _cut(event: Batch, at: int, end: int, type_: int) -> Batch:
    """The ordinary messages between those of transactions."""
    return Batch(
        b"",
        event.group,
        event.view,
        event.sender,
        event.first + at,
        end - at,
        event.position + at,
        event.service,
        event.messages[at:end],
        type_,
    )
