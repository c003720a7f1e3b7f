"""The log of an underlay as one member has it: which block has which sequence number, and how far that is complete.

Blocks come from their senders in any order, sequence numbers from the member that orders. A sequence number is
*received* when it and all before it are assigned and their blocks are held; what is received can be delivered,
acknowledged, and given to others until it is stable. This is Amoeba's history buffer and receive window in one (section
4.1): both are indexed by the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ordercast.view import GROUP_ORIGIN
from ordercast.wire.block import CALLED, CHANGE, HEAD, after_of
from ordercast.wire.ordering import Assignment

# What a datagram costs a socket's buffer besides its bytes (docs/design/overview.md section 6).
DATAGRAM_OVERHEAD: Final = 1_024
EVERY_NUMBER: Final = 1 << 62  # more than any block has
MAX_GONE: Final = 64  # members that left, whose late parts are known to be old


class Entry:
    """A received block with its sequence number. `head` is the block's, as `wire.block.HEAD` unpacks it."""

    __slots__ = ("block", "cost", "flags", "head", "number", "origin", "position", "rank", "seq")

    def __init__(
        self,
        seq: int,
        origin: int,
        number: int,
        block: bytes,
        position: int,
        head: tuple[int, int, int, int, int, int],
        cost: int,
    ) -> None:
        self.seq = seq
        self.origin = origin
        self.number = number
        self.block = block
        self.position = position
        self.head = head
        self.rank = head[2]
        self.flags = head[4]
        self.cost = cost

    @property
    def is_change(self) -> bool:
        return bool(self.flags & CHANGE)


class Log:
    __slots__ = (
        "_named",
        "_seqs",
        "_step",
        "active",
        "ahead",
        "assignments",
        "blocks",
        "entries",
        "gone",
        "highest",
        "next_number",
        "position",
        "received",
        "stable",
        "unstable_bytes",
    )

    def __init__(self, start: int, position: int, next_number: dict[int, int], ahead: int, datagram_body: int) -> None:
        self.received = start  # inclusive
        self.stable = start  # inclusive
        self.highest = start  # highest sequence number anybody spoke of
        self.position = position  # of the next message after `received`
        self.assignments: dict[int, tuple[int, int]] = {}  # beyond `received`
        self.blocks: dict[tuple[int, int], bytes] = {}  # held and not yet received
        self.entries: dict[int, Entry] = {}  # received and not yet stable
        self.next_number = dict(next_number)  # next block number of each origin, as of `received`
        self.active: dict[int, int] = {}  # origins with unstable entries, and how many
        self.unstable_bytes = 0
        self.ahead = ahead  # how far beyond the window numbers may run before they are taken for hostile
        self.gone: dict[int, int] = {}  # members that left lately -> the number after their last block
        self._named: set[tuple[int, int]] = set()  # blocks of callers that are ordered and have no number here yet
        self._seqs: dict[tuple[int, int], int] = {}  # origin and number of an entry -> its sequence number
        self._step = datagram_body

    def dismiss(self, origin: int, is_expelled: bool = False) -> None:
        """A member has left. Parts of its blocks may still be on their way. One that was expelled had perhaps sent more
        than was ordered: that will not be, unless recovery has found a later sequence number for it."""
        number = self.next_number.pop(origin, None)
        if number is None:
            return
        self.gone[origin] = EVERY_NUMBER if is_expelled else number
        if len(self.gone) > MAX_GONE:
            del self.gone[next(iter(self.gone))]
        if is_expelled:
            ordered = set(self.assignments.values())
            for key in [key for key in self.blocks if key[0] == origin and key not in ordered]:
                del self.blocks[key]

    def begin_with(self, change: bytes) -> None:
        """The log starts at a change that others may still lack: keep it for them."""
        seq = self.received
        entry = Entry(seq, GROUP_ORIGIN, seq, change, self.position, (0, 0, 0, 0, CHANGE, 1), self.cost(change))
        self.entries[seq] = entry
        self.stable = seq - 1
        self.active[GROUP_ORIGIN] = 1
        self.unstable_bytes += entry.cost

    def cost(self, block: bytes) -> int:
        """What a block takes of a receive buffer."""
        return len(block) + DATAGRAM_OVERHEAD * (-(-len(block) // self._step))

    def has_segment(self, block: bytes, segment: int) -> bool:
        return segment * self._step < len(block)

    def hold(self, origin: int, number: int, block: bytes, from_stranger: bool = False) -> bool:
        """Keep a block; False if it is old, known, of a stranger, or too far ahead to be true.

        `from_stranger`: in a recovery the join of its sender may be among what is being fetched.
        """
        next_number = self.next_number.get(origin) if origin != GROUP_ORIGIN else self.received + 1
        if next_number is None:
            if not (from_stranger or (origin, number) in self._named) or len(self.blocks) >= self.ahead:
                return False
        elif not next_number <= number < next_number + self.ahead:
            return False
        key = (origin, number)
        if key in self.blocks:
            return False
        self.blocks[key] = block
        return True

    def drop(self, origin: int, number: int) -> None:
        """A block that will never be ordered."""
        self.blocks.pop((origin, number), None)

    def assign(self, seq: int, origin: int, number: int, count: int = 1) -> bool:
        """Learn sequence numbers; False if they contradict what is known or lie too far ahead."""
        received = self.received
        if seq + count <= received + 1:
            return True
        if seq + count > received + self.ahead:
            return False
        assignments = self.assignments
        for offset in range(max(0, received + 1 - seq), count):
            if assignments.setdefault(seq + offset, (origin, number + offset)) != (origin, number + offset):
                return False
        if origin not in self.next_number and origin != GROUP_ORIGIN:
            self._named.update((origin, number + offset) for offset in range(count))
        if seq + count - 1 > self.highest:
            self.highest = seq + count - 1
        return True

    def advance(self) -> Iterator[Entry]:
        """Turn what has become complete into entries, one by one: a caller that stops asking stops the log there."""
        assignments, blocks, unpack = self.assignments, self.blocks, HEAD.unpack_from
        seq = self.received + 1
        while True:
            key = assignments.get(seq)
            if key is None:
                break
            block = blocks.get(key)
            if block is None:
                break
            origin, number = key
            del assignments[seq], blocks[key]
            head = unpack(block)
            count = head[1]
            entry = Entry(seq, origin, number, block, self.position, head, self.cost(block))
            self.entries[seq] = entry
            self._seqs[key] = seq
            self.position += count
            self.unstable_bytes += entry.cost
            self.active[origin] = self.active.get(origin, 0) + 1
            if origin != GROUP_ORIGIN:
                self.next_number[origin] = number + 1
                if self._named:
                    self._named.discard(key)
            self.received = seq
            if seq > self.highest:
                self.highest = seq
            yield entry
            seq += 1

    def purge(self, stable: int) -> list[Entry]:
        """Forget what everybody has consumed (inclusive); what was forgotten."""
        gone: list[Entry] = []
        entries, active = self.entries, self.active
        for seq in range(self.stable + 1, min(stable, self.received) + 1):
            entry = entries.pop(seq)
            self._seqs.pop((entry.origin, entry.number), None)
            self.unstable_bytes -= entry.cost
            left = active[entry.origin] - 1
            if left:
                active[entry.origin] = left
            else:
                del active[entry.origin]
            gone.append(entry)
            self.stable = seq
        return gone

    def reach(self, origin: int) -> int:
        """One past the last block of `origin` that is held without a hole (half-open), with what it depends on."""
        number = self.next_number.get(origin, 0)
        blocks = self.blocks
        while (block := blocks.get((origin, number))) is not None and after_of(block) <= self.received:
            number += 1
        return number

    def held_upto(self, origin: int, number: int) -> int:
        """One past the last block of `origin` that is held without a hole (half-open), from `number` on."""
        blocks = self.blocks
        while (origin, number) in blocks:
            number += 1
        return number

    def missing(self, most: int) -> list[int]:
        """The first sequence numbers up to `highest` that are not complete, at most `most`."""
        found = []
        assignments, blocks = self.assignments, self.blocks
        for seq in range(self.received + 1, self.highest + 1):
            key = assignments.get(seq)
            if key is None or key not in blocks:
                found.append(seq)
                if len(found) >= most:
                    break
        return found

    def block_at(self, seq: int) -> tuple[int, int, bytes] | None:
        """Origin, number and block of a sequence number that is complete here."""
        entry = self.entries.get(seq)
        if entry is not None:
            return entry.origin, entry.number, entry.block
        key = self.assignments.get(seq)
        if key is None or key not in self.blocks:
            return None
        return key[0], key[1], self.blocks[key]

    def seq_of(self, origin: int, number: int) -> int:
        """The sequence number of a block that is received and not stable, else 0."""
        return self._seqs.get((origin, number), 0)

    def find_block(self, origin: int, number: int) -> bytes | None:
        """A block by its own number, wherever it is."""
        block = self.blocks.get((origin, number))
        if block is not None:
            return block
        seq = self._seqs.get((origin, number))
        return self.entries[seq].block if seq is not None else None

    def preview(self, upto: int) -> tuple[int, dict[int, int], bytes | None]:
        """Position, next numbers and last change as they will be when `upto` is received; all of it must be here."""
        position, numbers, change = self.position, dict(self.next_number), None
        for seq in range(self.received + 1, upto + 1):
            origin, number = self.assignments[seq]
            block = self.blocks[origin, number]
            head = HEAD.unpack_from(block)
            position += head[1]
            if head[4] & CHANGE:
                change = block
            else:
                numbers[origin] = number + 1
        return position, numbers, change

    def callers_upto(self, upto: int) -> set[int]:
        """Origins with calls between `received` and `upto`, members among them; all of it must be here."""
        keys = [self.assignments[seq] for seq in range(self.received + 1, upto + 1)]
        return {key[0] for key in keys if HEAD.unpack_from(self.blocks[key])[4] & CALLED}

    def assigned_runs(self, first: int, stop: int) -> list[Assignment]:
        """What is known of sequence numbers [first, stop), as runs."""
        return list(runs_of(self._known(first, stop)))

    def held_runs(self) -> list[tuple[int, int, int]]:
        """(origin, first number, count) of all blocks held and not received, as runs."""
        runs: list[tuple[int, int, int]] = []
        for origin, number in sorted(self.blocks):
            if runs and runs[-1][0] == origin and runs[-1][1] + runs[-1][2] == number:
                runs[-1] = (origin, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((origin, number, 1))
        return runs

    def _known(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        for seq in range(first, stop):
            entry = self.entries.get(seq)
            if entry is not None:
                yield seq, entry.origin, entry.number
            elif seq in self.assignments:
                yield (seq, *self.assignments[seq])


def runs_of(assignments: Iterable[tuple[int, int, int]]) -> Iterator[Assignment]:
    """Single assignments (sequence number, origin, number), in order, as runs."""
    run: Assignment | None = None
    for seq, origin, number in assignments:
        if run is not None and (run.seq + run.count, run.origin, run.number + run.count) == (seq, origin, number):
            run = run._replace(count=run.count + 1)
            continue
        if run is not None:
            yield run
        run = Assignment(seq, origin, number, 1)
    if run is not None:
        yield run
