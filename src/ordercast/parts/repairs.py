"""What is missing here, what to ask for, and what to answer when others ask (Amoeba section 4.1).

Members miss sequence numbers of the log and ask the sequencer. The sequencer misses blocks of senders, or parts of
them, and asks the senders: the paper leaves that to their timeouts, which is slower by a timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ordercast.config import MS, Timing
from ordercast.engine import NEVER, Note
from ordercast.parts.gaps import Gaps
from ordercast.parts.log import Log
from ordercast.parts.rtt import RoundTrip
from ordercast.view import GROUP_ORIGIN
from ordercast.wire.ordering import MAX_MISSING, Missing
from ordercast.wire.segments import Reassembly

PER_NAK: Final = 64  # blocks sent for one request; what is missing still is asked for again
COMING_NS: Final = 50 * MS  # what is repaired comes in its own time, and says nothing about the pace of the network
PIECES: Final = 4  # holes of one block that are asked for separately
ASSIGNMENTS_ALONE: Final = (0xFFFF, 0xFFFF)  # as the segments of a request: not the blocks, only where they stand


class Repairs:
    __slots__ = (
        "_assignments",
        "_blocks",
        "_delay_ns",
        "_heard_ns",
        "_log",
        "_pace_ns",
        "callers",
        "is_answered",
        "partial",
    )

    def __init__(self, log: Log, timing: Timing, datagram: int, rtt: RoundTrip) -> None:
        self._log = log
        self.callers: set[int] = set()  # origins whose numbers may have holes, and that send again by themselves
        self.partial = Reassembly(datagram)
        self._heard_ns: dict[tuple[int, int], int] = {}  # blocks in parts -> when the last part came
        self._pace_ns = 0  # time from part to part, smoothed
        self._delay_ns = timing.nak_delay_ns
        waits = (timing.nak_delay_ns, timing.nak_retry_ns, timing.nak_max_ns)
        self._assignments: Gaps[int] = Gaps(*waits, rtt)
        self._blocks: Gaps[tuple[int, int]] = Gaps(*waits, rtt)
        self.is_answered = False  # something that we asked for has come since the last look

    def is_old(self, origin: int, number: int) -> bool:
        """Whether a block is here already, or was."""
        log = self._log
        if origin == GROUP_ORIGIN:
            return number <= log.received
        next_number = log.next_number.get(origin)
        if next_number is None:
            next_number = log.gone.get(origin, 0)
        return number < next_number or (origin, number) in log.blocks

    def add(self, now_ns: int, origin: int, number: int, segment: int, last: int, body: memoryview) -> bytes | None:
        """A segment has come; the block, if that makes it whole."""
        key = (origin, number)
        block = self.partial.add((*key, 0), segment, last, body)
        heard_ns = self._heard_ns.pop(key, None)
        if heard_ns is not None:
            self._pace_ns += (now_ns - heard_ns - self._pace_ns) // 8
        if block is None:
            self._heard_ns[key] = now_ns
            if len(self._heard_ns) > len(self.partial) + PER_NAK:
                kept = {(origin, number) for origin, number, _ in self.partial}
                self._heard_ns = {key: at_ns for key, at_ns in self._heard_ns.items() if key in kept}
        return block

    def _is_coming(self, now_ns: int, key: tuple[int, int]) -> int:
        """Until when a block of which parts are here is still on its way, at the pace at which parts come; else 0."""
        heard_ns = self._heard_ns.get(key)
        if heard_ns is None:
            return 0
        until_ns = heard_ns + max(self._delay_ns, min(4 * self._pace_ns, COMING_NS))
        return until_ns if until_ns > now_ns else 0

    def is_wanted(self, is_leader: bool) -> bool:
        """Whether `look` could find anything; cheap."""
        log = self._log
        return bool(
            log.received < log.highest
            or self._assignments
            or self._blocks
            or len(self.partial)
            or (is_leader and log.blocks)
        )

    def look(self, now_ns: int, is_leader: bool, blocks: list[tuple[int, int]] | None = None) -> list[Note]:
        """Compare what is here with what must exist: gaps that opened and closed since the last look.

        `blocks`: what senders must have sent and is missing, from an orderer that knows better than its log.
        """
        log = self._log
        is_answer, self.is_answered = self.is_answered, False
        if len(self.partial):
            for origin, number, kind in list(self.partial):
                if self.is_old(origin, number):
                    self.partial.forget((origin, number, kind))
                    self._heard_ns.pop((origin, number), None)
        notes: list[Note] = []
        if log.received < log.highest or self._assignments:
            missing = log.missing(MAX_MISSING) if log.received < log.highest else []
            notes = seq_notes(*self._assignments.update(missing, now_ns, is_answer))
        if is_leader:
            if log.blocks or len(self.partial) or self._blocks or blocks:
                missing_blocks = self._missing_blocks() if blocks is None else blocks
                notes += block_notes(*self._blocks.update(missing_blocks, now_ns, is_answer))
        elif self._blocks:
            # A member that led before asks on for what it lacked, and notices nothing new.
            still = [key for key in self._blocks if not self.is_old(*key)]
            notes += block_notes(*self._blocks.update(still, now_ns, is_answer))
        return notes

    def close(self) -> list[Note]:
        """The ring ends: what was open is no gap any more."""
        return seq_notes([], self._assignments.clear()) + block_notes([], self._blocks.clear())

    def due_seqs(self, now_ns: int) -> list[Missing]:
        """What to ask the sequencer for."""
        wanted: list[Missing] = []
        for seq in self._assignments.due(now_ns):
            key = self._log.assignments.get(seq)
            if key is not None and key in self._log.blocks:
                continue  # it has come since the last look, in this very pass
            if key is not None and (due_ns := self._is_coming(now_ns, key)):
                self._assignments.postpone(seq, due_ns)
                continue
            holes = self.partial.missing((*key, 0)) if key is not None else []
            if holes:
                wanted.extend(Missing(GROUP_ORIGIN, seq, 1, first, stop) for first, stop in holes[:PIECES])
            elif wanted and not wanted[-1].stop and wanted[-1].number + wanted[-1].count == seq:
                wanted[-1] = wanted[-1]._replace(count=wanted[-1].count + 1)
            else:
                wanted.append(Missing(GROUP_ORIGIN, seq, 1, 0, 0))
        return wanted[:MAX_MISSING]

    def due_by_tries(self, now_ns: int) -> dict[int, list[Missing]]:
        """What to ask for, by how often it has been asked for with this time.

        A block whose sequence number is known is asked for by its own name, so that its sender learns of the loss (RMP
        section 4.6). Where only an ACK seems to be lost, since unordered blocks are here, only the sequence numbers are
        asked for."""
        log = self._log
        wanted: dict[int, list[Missing]] = {}
        for seq in self._assignments.due(now_ns):
            tries = self._assignments.tries(seq)
            key = log.assignments.get(seq)
            if key is not None and key in log.blocks:
                continue  # it has come since the last look, in this very pass
            if key is not None and (due_ns := self._is_coming(now_ns, key)):
                self._assignments.postpone(seq, due_ns)
                continue
            asked = wanted.setdefault(tries, [])
            if key is not None and key[0] != GROUP_ORIGIN:
                holes = self.partial.missing((*key, 0)) or [(0, 0)]
                asked.extend(Missing(*key, 1, *hole) for hole in holes[:PIECES])
                continue
            segments = ASSIGNMENTS_ALONE if key is None and log.blocks and tries == 1 else (0, 0)
            last = asked[-1] if asked else None
            if last is not None and last[0] == GROUP_ORIGIN and last[1] + last[2] == seq and last[3:] == segments:
                asked[-1] = last._replace(count=last.count + 1)
            else:
                asked.append(Missing(GROUP_ORIGIN, seq, 1, *segments))
        return {tries: asked[:MAX_MISSING] for tries, asked in wanted.items()}

    def due_blocks(self, now_ns: int) -> dict[int, list[Missing]]:
        """What to ask each sender for."""
        wanted: dict[int, list[Missing]] = {}
        for origin, number in self._blocks.due(now_ns):
            if self.is_old(origin, number):
                continue
            if due_ns := self._is_coming(now_ns, (origin, number)):
                self._blocks.postpone((origin, number), due_ns)
                continue
            holes = self.partial.missing((origin, number, 0)) or [(0, 0)]
            asked = wanted.setdefault(origin, [])
            asked.extend(Missing(origin, number, 1, *hole) for hole in holes[:PIECES])
            del asked[MAX_MISSING:]
        return wanted

    def deadline_ns(self) -> int:
        if not self._assignments and not self._blocks:
            return NEVER
        return min(self._assignments.deadline_ns(), self._blocks.deadline_ns())

    def answer(
        self, missing: list[Missing]
    ) -> tuple[list[tuple[int, int, bytes, int, int]], list[tuple[int, int, int]]]:
        """Blocks to send (origin, number, block, first segment, stop segment), and assignments that go with them."""
        blocks: list[tuple[int, int, bytes, int, int]] = []
        assignments: list[tuple[int, int, int]] = []
        for origin, number, count, first, stop in missing:
            for each in range(number, number + count):
                if len(blocks) >= PER_NAK:
                    return blocks, assignments
                if origin == GROUP_ORIGIN:
                    found = self._log.block_at(each)
                    if found is not None:
                        assignments.append((each, found[0], found[1]))
                        if self._log.has_segment(found[2], first):  # not ASSIGNMENTS_ALONE, and not somebody's nonsense
                            blocks.append((*found, first, stop))
                else:
                    block = self._log.find_block(origin, each)
                    if block is not None and self._log.has_segment(block, first):
                        blocks.append((origin, each, block, first, stop))
        return blocks, assignments

    def holes(self, reveals: Callable[[int, bytes], bool]) -> list[tuple[int, int]]:
        """What senders must have sent: every hole ahead of a block of theirs that is here. `reveals(origin, block)`:
        whether the block behind a hole says that what is missing was sent to us."""
        log = self._log
        held: dict[int, list[int]] = {}
        for origin, number in log.blocks:
            held.setdefault(origin, []).append(number)
        found: list[tuple[int, int]] = []
        for origin, numbers in held.items():
            first = log.next_number.get(origin)
            if first is None or origin in self.callers or max(numbers) - first < len(numbers):
                continue
            for number in sorted(numbers):
                if number > first and reveals(origin, log.blocks[origin, number]):
                    found.extend((origin, hole) for hole in range(first, min(number, first + MAX_MISSING)))
                first = number + 1
        return found[:MAX_MISSING]

    def parts(self) -> list[tuple[int, int]]:
        """Blocks of which parts are here. Parts of what a leaver sent may still come, and are no sign of anything."""
        known = self._log.next_number.keys() | self.callers
        return [(origin, number) for origin, number, _ in self.partial if origin in known]

    def _missing_blocks(self) -> list[tuple[int, int]]:
        """What senders must have sent, for later blocks of theirs are here, or parts. Parts of what a leaver sent may
        still come, and are no sign of anything."""
        known = self._log.next_number.keys() | self.callers
        lowest: dict[int, int] = {}
        for origin, number in self._log.blocks:
            if number < lowest.get(origin, NEVER) and origin not in self.callers:
                lowest[origin] = number
        found = {(origin, number) for origin, number, _ in self.partial if origin in known}
        for origin, number in lowest.items():
            first = self._log.next_number.get(origin, number)
            found.update((origin, hole) for hole in range(first, min(number, first + MAX_MISSING)))
        return sorted(found)[:MAX_MISSING]


def seq_notes(new: list[int], gone: list[int]) -> list[Note]:
    return [Note("gap", GROUP_ORIGIN, first=seq, count=1, detail="place") for seq in new] + [
        Note("repaired", GROUP_ORIGIN, first=seq, count=1, detail="place") for seq in gone
    ]


def block_notes(new: list[tuple[int, int]], gone: list[tuple[int, int]]) -> list[Note]:
    return [
        Note("gap", GROUP_ORIGIN, first=number, count=1, detail=f"block of {origin:016x}") for origin, number in new
    ] + [
        Note("repaired", GROUP_ORIGIN, first=number, count=1, detail=f"block of {origin:016x}")
        for origin, number in gone
    ]
