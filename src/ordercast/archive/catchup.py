"""How recorders of a group help one another: in a side group, a recorder asks the others for what it missed.

docs/design/archive.md, *Resuming and catching up*, has the messages and the bounds. A side group is an ordinary group.
Its messages are checked like any hostile bytes, and ignored if they make no sense. They carry positions as the group
counts them; each recorder adds the base of its own epoch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ordercast.api.group import Group
from ordercast.api.node import NodeBase
from ordercast.archive.builder import Sealed, seal_mark
from ordercast.archive.errors import ArchiveDamaged, ArchiveError
from ordercast.archive.folder import frame_heads, read_frame
from ordercast.archive.frame import Frame
from ordercast.archive.headers import EMPTY, FRAME_BYTES, open_frame_head
from ordercast.archive.log import ArchiveLog
from ordercast.archive.reader import HOLE, Archive
from ordercast.config import MAX_GROUP_NAME
from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.groups.events import Message
from ordercast.view import View

SUFFIX: Final = "#archive"

PIECE_BYTES: Final = 48 << 10
"""Of one GIVE: it fits a block, so it is never fragmented, and a join does not make it begin again."""

WINDOW_PIECES: Final = 16
"""Pieces under way that the asker has not acknowledged yet."""

ANSWER_S: Final = 3.0
"""How long an answer to ASK is waited for. A recorder that has not answered by then counts as having nothing."""

CATCH_S: Final = 2.0
"""How long an asked recorder waits until its own archive has come that far; less than ANSWER_S."""

PIECE_S: Final = 5.0
"""How long a piece, or its acknowledgement, is waited for."""

MAX_SERVED: Final = 4
"""Recorders that are served at the same time; the others are answered with LACK."""

SAMPLES: Final = 16
"""The newest frames are all sampled; of older frames ever fewer."""

ASK, HAVE, WANT, GIVE, LACK, GOT = range(1, 7)

Blocking = Callable[..., Awaitable[Any]]
Sample = tuple[int, str, int]  # position, sender, number


def side_group(group: str) -> str:
    """The name of the group in which the recorders of `group` meet."""
    name = group + SUFFIX
    if len(name.encode()) > MAX_GROUP_NAME:
        raise UsageError(f"the name {group!r} is too long to be recorded: {MAX_GROUP_NAME - len(SUFFIX)} bytes at most")
    return name


class Have(NamedTuple):
    """What one recorder answered to ASK."""

    who: str
    ranges: list[tuple[int, int]]
    is_settled: bool
    agrees: int  # the newest sample that it has too; -1: none
    differs: int  # the oldest sample for which it has another message; -1: none
    is_in: bool = True  # it is a member of the recorded group now, so its newest epoch is the group's log

    @property
    def knows(self) -> bool:
        """Whether it can say what the group's log is."""
        return self.is_settled and self.is_in

    @property
    def is_other_log(self) -> bool:
        """It has other messages than we, and not one in common: the group was created anew."""
        return self.knows and self.differs >= 0 and self.agrees < 0


@dataclass(slots=True)
class _Question:
    waiting: set[str]
    base: int
    answers: list[Have] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Exchange:
    """One recorder's membership of the side group: it answers the others, and asks them."""

    __slots__ = (
        "_archive",
        "_blocking",
        "_credits",
        "_group",
        "_log",
        "_me",
        "_node",
        "_pieces",
        "_questions",
        "_serial",
        "_tasks",
        "changed",
        "is_in",
        "is_settled",
        "peers",
    )

    def __init__(self, node: NodeBase, log: ArchiveLog, blocking: Blocking) -> None:
        self._node = node
        self._log = log
        self._archive = Archive(log.folder, strict=False)
        self._blocking = blocking
        self._group: Group | None = None
        self._me = str(node.member)
        self._tasks: set[asyncio.Task[None]] = set()
        # what this recorder knows
        self.peers: set[str] = set()
        self.is_in = False  # a member of the recorded group, and its log goes on in this archive
        self.is_settled = False  # it has caught up, or had nothing to catch up on: others may believe it
        self.changed = asyncio.Event()  # peers came or went, or the log has grown
        # what it has asked
        self._serial = 0
        self._questions: dict[int, _Question] = {}
        self._pieces: dict[int, tuple[str, asyncio.Queue[tuple[int, dict[str, Any], bytes] | None]]] = {}
        # what it gives
        self._credits: dict[tuple[str, int], asyncio.Semaphore] = {}

    async def open(self, **join: Any) -> None:
        """Join the side group. Any number of recorders may go on after a failure, because the group keeps no state."""
        self._group = await self._node.join(side_group(self._log.group), min_members=1, **join)
        self._on_view(self._group.view)

    async def run(self) -> None:
        """Receive until the group is left."""
        group = self._group
        if group is None:
            raise UsageError("open the exchange before it is run")
        try:
            with suppress(NotMember):
                async for event in group:
                    if isinstance(event, Message):
                        self._on_message(event)
                    elif isinstance(event, View):
                        self._on_view(event)
        finally:
            for task in self._tasks:
                task.cancel()

    async def close(self) -> None:
        if self._group is not None:
            await self._group.leave()

    def grown(self) -> None:
        """The log has grown: wake the answers that wait for it."""
        self.changed.set()

    # Asking.

    async def ask(self, begin: int, stop: int, samples: list[Sample]) -> list[Have]:
        """What the others have of `[begin, stop)`, and whether they have the same messages as the samples."""
        peers = set(self.peers)
        if not peers:
            return []
        self._serial += 1
        serial, base = self._serial, self._log.base
        question = self._questions[serial] = _Question(peers, base)
        asked = [(position - base, sender, number) for position, sender, number in samples]
        try:
            await self._send(ASK, {"id": serial, "begin": begin - base, "stop": stop - base, "samples": asked})
            async with asyncio.timeout(ANSWER_S):
                await question.done.wait()
        except TimeoutError:
            pass
        finally:
            del self._questions[serial]
        return question.answers

    async def fetch(self, who: str, begin: int, stop: int) -> int:
        """Fill the gap that begins at `begin` with what `who` gives, at most up to `stop`; how far that went."""
        self._serial += 1
        serial = self._serial
        queue: asyncio.Queue[tuple[int, dict[str, Any], bytes] | None] = asyncio.Queue()
        self._pieces[serial] = (who, queue)
        filler = await self._blocking(self._log.fill, begin)
        base = self._log.base
        stream = _FrameStream(self._log.group, base)
        try:
            await self._send(WANT, {"to": who, "id": serial, "begin": begin - base, "stop": stop - base})
            while filler.at < stop:
                async with asyncio.timeout(PIECE_S):
                    piece = await queue.get()
                if piece is None or piece[0] == LACK:
                    break
                frames = await self._blocking(stream.feed, piece[2])
                for frame in frames:
                    if frame.begin != filler.at or frame.stop > stop or frame.is_hole:
                        raise ArchiveDamaged(f"{who} gave [{frame.begin}, {frame.stop}), not what comes at {filler.at}")
                    await self._blocking(filler.append, frame.sealed())
                await self._send(GOT, {"to": who, "id": serial})
        except (TimeoutError, ArchiveDamaged):
            pass  # whole frames are kept; another recorder is asked for the rest
        finally:
            del self._pieces[serial]
            await self._blocking(filler.finish)
        return int(filler.at)

    # What comes.

    def _on_view(self, view: View | None) -> None:
        self.peers = {str(member) for member in view.members} - {self._me} if view is not None else set()
        for question in self._questions.values():
            self._settle(question)
        for who, queue in self._pieces.values():
            if who not in self.peers:
                queue.put_nowait(None)
        self.changed.set()

    def _on_message(self, message: Message) -> None:
        if message.sender == self._me:
            return
        head, _, data = message.payload.partition(b"\n")
        try:
            said = json.loads(head)
            serial = int(said["id"])
            to = said.get("to", self._me)
            if to != self._me:
                return
            if message.type == ASK:
                base = self._log.base
                samples = [(_here(at, base), str(sender), int(number)) for at, sender, number in said["samples"]]
                begin, stop = _here(said["begin"], base), _here(said["stop"], base)
                self._spawn(self._answer(message.sender, serial, begin, stop, samples))
            elif message.type == HAVE:
                ranges = [(int(begin), int(stop)) for begin, stop in said["ranges"]]
                agrees, differs, is_in = int(said["agrees"]), int(said["differs"]), bool(said.get("in", True))
                have = Have(message.sender, ranges, bool(said["settled"]), agrees, differs, is_in)
                self._on_have(serial, have)
            elif message.type == WANT:
                base = self._log.base
                begin, stop = _here(said["begin"], base), _here(said["stop"], base)
                self._spawn(self._give(message.sender, serial, begin, stop))
            elif message.type in (GIVE, LACK):
                who, queue = self._pieces.get(serial, ("", None))
                if queue is not None and who == message.sender and queue.qsize() <= 2 * WINDOW_PIECES:
                    queue.put_nowait((message.type, said, data))
            elif message.type == GOT:
                credit = self._credits.get((message.sender, serial))
                if credit is not None:
                    credit.release()
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # bytes of a stranger

    def _on_have(self, serial: int, have: Have) -> None:
        question = self._questions.get(serial)
        if question is not None and have.who in question.waiting:
            question.waiting.discard(have.who)
            base = question.base
            question.answers.append(
                have._replace(
                    ranges=[(begin + base, stop + base) for begin, stop in have.ranges],
                    agrees=have.agrees + base if have.agrees >= 0 else -1,
                    differs=have.differs + base if have.differs >= 0 else -1,
                )
            )
            self._settle(question)

    def _settle(self, question: _Question) -> None:
        question.waiting &= self.peers
        if not question.waiting:
            question.done.set()

    # Answering.

    async def _answer(self, who: str, serial: int, begin: int, stop: int, samples: list[Sample]) -> None:
        """Say what we have, when our own archive has come as far as is asked for, or the time is over."""
        base = self._log.base
        until_s = asyncio.get_running_loop().time() + CATCH_S
        while (self._log.stop or 0) < stop and (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            self.changed.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self.changed.wait()
            except TimeoutError:
                break
        try:
            ranges = await self._blocking(covered, self._archive, begin, stop)
            agrees, differs = await self._blocking(compare, self._archive, samples)
        except (ArchiveError, OSError):
            ranges, agrees, differs = [], -1, -1
        said = {"to": who, "id": serial, "settled": self.is_settled, "in": self.is_in}
        said["ranges"] = [(low - base, high - base) for low, high in ranges]
        said["agrees"] = agrees - base if agrees >= 0 else -1
        said["differs"] = differs - base if differs >= 0 else -1
        await self._send(HAVE, said)

    async def _give(self, who: str, serial: int, begin: int, stop: int) -> None:
        if len(self._credits) >= MAX_SERVED:
            await self._send(LACK, {"to": who, "id": serial})
            return
        credit = self._credits[(who, serial)] = asyncio.Semaphore(WINDOW_PIECES)
        pieces = give(self._archive, begin, stop, self._log.base)
        try:
            while (piece := await self._blocking(next, pieces, None)) is not None:
                async with asyncio.timeout(PIECE_S):
                    await credit.acquire()
                await self._send(GIVE, {"to": who, "id": serial}, piece)
        except TimeoutError:
            return  # the asker takes no more
        except (ArchiveError, OSError):
            await self._send(LACK, {"to": who, "id": serial})
        finally:
            del self._credits[(who, serial)]

    async def _send(self, kind: int, said: dict[str, Any], data: bytes = b"") -> None:
        if self._group is not None:
            await self._group.send(json.dumps(said).encode() + b"\n" + data, type=kind)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(_quiet(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _quiet(work: Any) -> None:
    """An answer that fails is not sent. The asker times out, and this recorder goes on."""
    with suppress(OrdercastError, OSError):
        await work


def _here(position: Any, base: int) -> int:
    """A position of the group as one of this archive. Raises ValueError for what is no position."""
    found = int(position)
    if found < 0:
        raise ValueError(position)
    return found + base


# What the files say. -------------------------------------------------------------------------------------------------


def covered(archive: Archive, begin: int, stop: int) -> list[tuple[int, int]]:
    """Which parts of `[begin, stop)` an archive has without a hole."""
    archive.refresh()
    holes = {loss for loss in archive.losses if loss.reason == HOLE}
    ranges: list[tuple[int, int]] = []

    def add(first: int, upto: int) -> None:
        first, upto = max(first, begin), min(upto, stop)
        if first < upto:
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], upto)
            else:
                ranges.append((first, upto))

    for segment in archive.segments:
        at = segment.first
        for hole in sorted(loss for loss in holes if segment.first <= loss.begin < segment.stop):
            add(at, hole.begin)
            at = hole.stop
        add(at, segment.stop)
    return ranges


def samples_of(archive: Archive, before: int) -> list[Sample]:
    """Messages of the newest epoch below `before`, the newest first: the last ones of frames, sparser with age."""
    archive.refresh()
    samples: list[Sample] = []
    seen, wanted = 0, 0
    base = archive.epochs[-1].base if archive.segments else 0
    for segment in reversed(archive.segments):
        if segment.first >= before or segment.head.base != base:
            continue
        with open(segment.path, "rb") as file:
            fd = file.fileno()
            heads = list(frame_heads(fd, segment.head.nbytes, segment.size, segment.first))
            for at, head in reversed(heads):
                if not head.count or head.first >= before:
                    continue
                if seen == wanted:
                    frame = read_frame(fd, archive.group, at, head)
                    if frame is None:
                        return samples
                    last = frame.rows(None, before).stop - 1
                    for row in {last, 0} if seen < SAMPLES else {last}:
                        sender = frame.tables[1][int(frame.sender_index[row])]
                        samples.append((int(frame.position[row]), sender, int(frame.number[row])))
                    wanted = seen + 1 if seen < SAMPLES else 2 * seen
                seen += 1
    return sorted(samples, reverse=True)


def compare(archive: Archive, samples: list[Sample]) -> tuple[int, int]:
    """The newest sample that an archive has too, and the oldest for which it has another message; -1: none."""
    agrees = differs = -1
    for position, sender, number in samples:
        if not covered(archive, position, position + 1):
            continue
        records = list(archive.records(position, position + 1, fail_on_loss=False))
        if [(record.sender, record.number) for record in records] == [(sender, number)]:
            agrees = max(agrees, position)
        else:
            differs = position if differs < 0 else min(differs, position)
    return agrees, differs


def give(archive: Archive, begin: int, stop: int, base: int = 0) -> Iterator[bytes]:
    """The frames that cover `[begin, stop)`, as bytes in pieces, with the positions of the group (`base` less).

    Raises ArchiveError if not all of them are here.
    """
    waiting = bytearray()
    for sealed in _sealed(archive, begin, stop):
        if base:
            sealed = Frame(archive.group, sealed.head, sealed.tobytes()).shifted(-base).sealed()
        for buffer in sealed.buffers:
            waiting += buffer
        while len(waiting) >= PIECE_BYTES:
            yield bytes(memoryview(waiting)[:PIECE_BYTES])
            del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)


def _sealed(archive: Archive, begin: int, stop: int) -> Iterator[Sealed]:
    archive.refresh()
    if covered(archive, begin, stop) != [(begin, stop)]:
        raise ArchiveError(f"positions {begin} to {stop - 1} are not all here")
    at = begin
    for frame in archive.frames(begin, stop, fail_on_loss=False):
        if frame.begin > at:
            yield seal_mark(EMPTY, at, frame.begin, frame.head.first_ns)
            at = frame.begin
        sealed = frame.part(at, stop)
        yield sealed
        at = sealed.head.stop
    if at < stop:
        yield seal_mark(EMPTY, at, stop, 0)


class _FrameStream:
    """Frames out of pieces, with positions of this archive (`base` more than the group's)."""

    __slots__ = ("_base", "_group", "_waiting")

    def __init__(self, group: str, base: int) -> None:
        self._group = group
        self._base = base
        self._waiting = bytearray()

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that are whole by now, checked. Raises ArchiveDamaged for bytes that are no frame."""
        waiting = self._waiting
        waiting += piece
        frames = []
        while len(waiting) >= FRAME_BYTES:
            head = open_frame_head(waiting)
            if head is None:
                raise ArchiveDamaged("what was given is no frame")
            if len(waiting) < head.nbytes:
                break
            frame = Frame(self._group, head, bytes(memoryview(waiting)[: head.nbytes]))
            frame.check("what was given")
            frames.append(frame.shifted(self._base))
            del waiting[: head.nbytes]
        return frames
