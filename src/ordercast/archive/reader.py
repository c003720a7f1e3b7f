"""Reading an archive: by position, by time, and behind a recorder that is still writing. It changes nothing.

Files are read, not mapped: a recorder may cut off a torn end, and a mapping would end the reader with SIGBUS.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Final, NamedTuple

from ordercast.archive.arrow import arrow_schema, to_arrow
from ordercast.archive.errors import ArchiveDamaged, DataLoss, NoArchive
from ordercast.archive.folder import (
    check_owner,
    damage,
    find_frame,
    frame_heads,
    list_folder,
    read_head,
    refuse_foreign,
)
from ordercast.archive.frame import Frame, Record
from ordercast.archive.headers import FRAME_BYTES, FrameHead, SegmentHead, open_frame_head

__all__ = ["Archive", "Epoch", "Frame", "Loss", "Record", "arrow_schema", "to_arrow"]

CHUNK_BYTES: Final = 4 << 20
"""Bytes that are read at a time while frames are handed out; a larger frame is read by itself."""

POLL_S: Final = 0.05
"""How often a reader that has reached the end looks again."""

INDEX_STEP_BYTES: Final = 1 << 20
"""A segment's frames are remembered this far apart, so that a reader that comes again does not look from the start."""

HOLE: Final = "hole"
MISSING: Final = "missing"
OPEN: Final = "open"
TORN: Final = "torn"
REMOVED: Final = "removed"
_TEXTS: Final = {
    HOLE: "the archive says that no recorder had them",
    MISSING: "a segment file is missing: put it back",
    TORN: "the segment file before them has a torn end: start the recorder again, and it asks the others for them",
    OPEN: "the recorder had not caught up on them when it ended: start it again",
    REMOVED: "they were removed by retention, or never recorded",
}


class Loss(NamedTuple):
    """Positions `[begin, stop)` that are not there, and why: HOLE, MISSING, TORN, OPEN or REMOVED."""

    begin: int
    stop: int
    reason: str

    def __str__(self) -> str:
        return f"positions {self.begin} to {self.stop - 1} are not in the archive; {_TEXTS[self.reason]}"


class Epoch(NamedTuple):
    """The time of one log of the group: the group counted from 0 again at `base`. It covers `[first, stop)`.

    The group's own position of a message is its position in the archive - `base`.
    """

    base: int
    first: int
    stop: int


class SegmentInfo:
    """One segment as a reader knows it; what lies behind `size` has not been looked at yet."""

    __slots__ = ("first_ns", "head", "holes", "last", "last_ns", "marks", "path", "seen", "size", "stop")

    def __init__(self, path: Path, head: SegmentHead) -> None:
        self.path = path
        self.head = head
        self.size = head.nbytes  # whole up to here
        self.seen = head.nbytes  # how long the file was when it was last looked at
        self.stop = head.first  # it covers [head.first, stop)
        self.last: tuple[int, FrameHead] | None = None  # offset and header of its last frame
        self.first_ns = -1
        self.last_ns = -1
        self.marks: list[tuple[int, int]] = [(head.first, head.nbytes)]  # (begin, offset) of some frames
        self.holes: list[tuple[int, int]] = []

    @property
    def first(self) -> int:
        return self.head.first

    def add(self, at: int, head: FrameHead) -> None:
        self.last = (at, head)
        self.size = at + head.nbytes
        self.stop = head.stop
        if head.count:
            self.first_ns = head.first_ns if self.first_ns < 0 else self.first_ns
            self.last_ns = max(self.last_ns, head.last_ns)
        elif Frame("", head, b"").is_hole:
            self.holes.append((head.begin, head.stop))
        if at - self.marks[-1][1] >= INDEX_STEP_BYTES:
            self.marks.append((head.begin, at))


class Archive:
    """One folder, open for reading. Cheap to make and to pickle: it looks at the files when it is asked something."""

    def __init__(self, folder: str | Path, *, group: str | None = None, strict: bool = True) -> None:
        """group: refuse the archive of another group. strict: refuse a folder that also holds other files."""
        self.folder = Path(folder)
        self._group = group
        self._strict = strict
        self._archive: bytes | None = None
        self._segments: list[SegmentInfo] = []
        self._losses: list[Loss] = []

    def __getstate__(self) -> dict[str, object]:
        return {"folder": self.folder, "group": self._group, "strict": self._strict}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["folder"], group=state["group"], strict=state["strict"])  # type: ignore[misc]

    # What there is.

    def refresh(self) -> None:
        """Look at the folder again. Raises NoArchive, ForeignFile, WrongGroup, NewerFormat, ArchiveDamaged."""
        listing = list_folder(self.folder)
        if self._strict:
            refuse_foreign(self.folder, listing.foreign)
        known = {info.head.first: info for info in self._segments}
        neighbours = {one.first: two.first for one, two in pairwise(self._segments)}
        following = dict(pairwise(first for first, _ in listing.segments))
        segments: list[SegmentInfo] = []
        for first, path in listing.segments:
            info = known.get(first)
            # An end can only have been cut off if nothing followed it, or if something else follows it now.
            is_inner = first in neighbours and neighbours[first] == following.get(first)
            if info is None or info.last is None or not (is_inner or _is_same(info)):
                info = self._open(first, path)
            if info is not None:
                segments.append(info)
        self._segments = segments
        changed = [info for info in segments if info.size == info.head.nbytes] + segments[-1:]
        for info in dict.fromkeys(changed):
            self._look(info)
        # What was the last segment when it was looked at may have grown before the next one was begun.
        for info, behind in pairwise(segments):
            if info.stop < behind.first and known.get(info.first) is info:
                self._look(info)
            if info.stop < behind.first and (again := self._open(behind.first, behind.path)) is not None:
                behind.head = again.head  # a recorder that found a torn end has written there what is missing
        self._losses = self._find_losses()

    @property
    def group(self) -> str:
        """The group's name."""
        if self._group is None:
            self.refresh()
        if self._group is None:
            raise NoArchive(f"{self.folder} holds no segment of an archive yet")
        return self._group

    @property
    def archive_id(self) -> str:
        """What tells this archive from every other one; empty while there is no segment."""
        return self._archive.hex() if self._archive is not None else ""

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """As of the last `refresh`."""
        return tuple(self._segments)

    @property
    def nbytes(self) -> int:
        """As of the last `refresh`."""
        return sum(info.size for info in self._segments)

    @property
    def losses(self) -> list[Loss]:
        """Holes, and what is missing between segments, as of the last `refresh`."""
        return list(self._losses)

    @property
    def epochs(self) -> list[Epoch]:
        """The logs of the group that this archive holds, the oldest first, as of the last `refresh`."""
        epochs: list[Epoch] = []
        for info in self._segments:
            if epochs and epochs[-1].base == info.head.base:
                epochs[-1] = epochs[-1]._replace(stop=info.stop)
            else:
                epochs.append(Epoch(info.head.base, info.first, info.stop))
        return epochs

    def bounds(self) -> tuple[int, int] | None:
        """`[first, stop)`: what can be read now; None while there is nothing. Looks at the folder again.

        `stop` is before a gap that the recorder is still catching up on: later it is filled, or declared a hole.
        """
        self.refresh()
        if not self._segments:
            return None
        for loss in self._losses:
            if loss.reason == OPEN:
                return self._segments[0].first, loss.begin
        return self._segments[0].first, self._segments[-1].stop

    def wait(self, beyond: int, timeout_s: float | None = None, poll_s: float = POLL_S) -> int | None:
        """Wait until positions from `beyond` on can be read; returns their end, or None after `timeout_s` seconds."""
        end = None if timeout_s is None else monotonic() + timeout_s
        while True:
            bounds = self.bounds() if self._exists() else None
            if bounds is not None and bounds[1] > beyond:
                return bounds[1]
            if end is not None and monotonic() >= end:
                return None
            sleep(poll_s)

    def position_at(self, time_ns: int) -> int:
        """The first position that was recorded at `time_ns` or later; the end if there is none."""
        bounds = self.bounds()
        if bounds is None:
            return 0
        for info in self._segments:
            if info.last_ns < time_ns:
                self._look(info)
            if info.last_ns < time_ns:
                continue
            fd = os.open(info.path, os.O_RDONLY)
            try:
                for at, head in frame_heads(fd, info.head.nbytes, info.size, info.first):
                    if head.count and head.last_ns >= time_ns:
                        frame = Frame(self.group, head, os.pread(fd, head.nbytes, at))
                        rows = (frame.timestamp >= time_ns).nonzero()[0]
                        return int(frame.position[int(rows[0])])
            finally:
                os.close(fd)
        return bounds[1]

    # Frames.

    def frames(
        self,
        first: int | None = None,
        stop: int | None = None,
        *,
        fail_on_loss: bool = True,
        on_loss: Callable[[Loss], None] | None = None,
        verify: bool = True,
    ) -> Iterator[Frame]:
        """The frames of messages that have some of `[first, stop)`, in order; by default all that is there now.

        A frame may begin before `first` and end behind `stop`: `rows`, `records` and `to_arrow` take both. Where
        positions are not there it raises DataLoss, or with fail_on_loss=False tells `on_loss` and goes on. verify:
        check each frame's checksum and columns before it is handed out.
        """
        bounds = self.bounds()
        if bounds is None:
            return
        low, high = bounds
        if not fail_on_loss:
            high = self._segments[-1].stop
        if first is None:
            first = low
        if stop is None or stop > high:
            stop = high
        losses = list(self._losses)
        if first < low:
            losses.insert(0, Loss(first, low, REMOVED))
        at = first
        for info in list(self._segments):
            if info.stop <= at or at >= stop:
                continue
            at = self._pass_losses(losses, at, min(info.first, stop), fail_on_loss, on_loss)
            for frame in self._frames(info, at, stop, verify):
                at = self._pass_losses(losses, at, min(frame.begin, stop), fail_on_loss, on_loss)
                if at >= stop:
                    return
                if not frame.is_hole:
                    at = frame.stop
                    if frame.head.count and frame.head.last >= first and frame.head.first < stop:
                        yield frame
            at = self._pass_losses(losses, at, min(info.stop, stop), fail_on_loss, on_loss)

    def records(
        self,
        first: int | None = None,
        stop: int | None = None,
        *,
        fail_on_loss: bool = True,
        on_loss: Callable[[Loss], None] | None = None,
    ) -> Iterator[Record]:
        """The messages one by one."""
        for frame in self.frames(first, stop, fail_on_loss=fail_on_loss, on_loss=on_loss):
            yield from frame.records(first, stop)

    def follow(
        self,
        first: int | None = None,
        *,
        fail_on_loss: bool = True,
        on_loss: Callable[[Loss], None] | None = None,
        poll_s: float = POLL_S,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Frame]:
        """As `frames`, and then what the recorder goes on writing, until `is_over`. Rows before `first` are cut off."""
        at = first
        while not is_over():
            bounds = self.bounds() if self._exists() else None
            if bounds is None or (at is not None and bounds[1] <= at):
                sleep(poll_s)
                continue
            at = bounds[0] if at is None else at
            stop = bounds[1]
            for frame in self.frames(at, stop, fail_on_loss=fail_on_loss, on_loss=on_loss):
                yield frame if frame.begin >= at or frame.head.first >= at else _cut(frame, at)
                at = frame.stop
            at = max(at, stop)

    # In detail.

    def _exists(self) -> bool:
        return self.folder.is_dir()

    def _open(self, first: int, path: Path) -> SegmentInfo | None:
        """A segment whose header is whole; None if it has just been begun, or is gone by now."""
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            head = read_head(fd, path, first)
            if head is None:
                if (later := find_frame(fd, "", 0, os.fstat(fd).st_size)) is not None:
                    raise damage(path, 0, later[1])
                return None
            check_owner(head, path, self._group, self._archive)
            self._group, self._archive = head.group, head.archive
            return SegmentInfo(path, head)
        finally:
            os.close(fd)

    def _look(self, info: SegmentInfo) -> None:
        """Find out how far a segment is whole by now."""
        try:
            fd = os.open(info.path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            size = os.fstat(fd).st_size
            if self._advance(fd, info, size) and size != info.seen:
                # The rest is being written, or torn; or it is damage, if good frames follow. A second look, because the
                # recorder may have put another frame there meanwhile.
                later = find_frame(fd, "", info.size + 1, size)
                if later is not None and self._advance(fd, info, os.fstat(fd).st_size):
                    raise damage(info.path, info.size, later[1])
            info.seen = size
        finally:
            os.close(fd)

    def _advance(self, fd: int, info: SegmentInfo, size: int) -> bool:
        """Take in whole frames up to `size`; whether something else than a frame is in the way."""
        for at, head in frame_heads(fd, info.size, size, info.stop):
            if at + head.nbytes == size and not self._is_whole(fd, at, head):
                return False  # the last one: being written just now, or torn
            info.add(at, head)
        return size - info.size > FRAME_BYTES

    def _is_whole(self, fd: int, at: int, head: FrameHead) -> bool:
        data = os.pread(fd, head.nbytes, at)
        return len(data) == head.nbytes and Frame("", head, data).is_intact

    def _find_losses(self) -> list[Loss]:
        losses: list[Loss] = []
        for at, info in enumerate(self._segments):
            losses += [Loss(begin, stop, HOLE) for begin, stop in info.holes]
            following = self._segments[at + 1] if at + 1 < len(self._segments) else None
            if following is not None and info.stop < following.first:
                is_known = following.head.after < following.first
                reason = OPEN if is_known else TORN if info.seen > info.size else MISSING
                losses.append(Loss(info.stop, following.first, reason))
        return losses

    def _pass_losses(
        self, losses: list[Loss], at: int, upto: int, fail_on_loss: bool, on_loss: Callable[[Loss], None] | None
    ) -> int:
        """Report what is lost in `[at, upto)`; returns where to go on."""
        while losses and losses[0].begin < upto:
            loss = losses.pop(0)
            if loss.stop <= at:
                continue
            loss = loss._replace(begin=max(loss.begin, at), stop=loss.stop)
            if fail_on_loss:
                raise DataLoss(f"{self.folder}: {loss}")
            if on_loss is not None:
                on_loss(loss)
            at = loss.stop
        return max(at, upto)

    def _frames(self, info: SegmentInfo, first: int, stop: int, verify: bool) -> Iterator[Frame]:
        """The frames of one segment that cover some of `[first, stop)`, holes among them."""
        mark = bisect_right(info.marks, (first, 1 << 62)) - 1
        begin, at = info.marks[max(mark, 0)]
        try:
            fd = os.open(info.path, os.O_RDONLY)
        except FileNotFoundError:
            raise DataLoss(
                f"{self.folder}: {info.path.name} was removed while it was read; positions {first} to {info.stop - 1}"
            ) from None
        group = self.group
        try:
            # By the headers to the first frame that is wanted; then whole chunks.
            for place, head in frame_heads(fd, at, info.size, begin):
                at, begin = place, head.begin
                if head.stop > first:
                    break
            chunk, base = b"", at
            while at < info.size and begin < stop:
                if at + FRAME_BYTES > base + len(chunk):
                    chunk, base = os.pread(fd, min(CHUNK_BYTES, info.size - at), at), at
                head_or_none = open_frame_head(chunk, at - base)
                if head_or_none is None or head_or_none.begin != begin:
                    raise self._damaged(fd, info, at)
                head = head_or_none
                if at + head.nbytes > base + len(chunk):
                    size = max(head.nbytes, min(CHUNK_BYTES, info.size - at))
                    chunk, base = os.pread(fd, size, at), at
                    if len(chunk) < head.nbytes:
                        raise self._damaged(fd, info, at)
                frame = Frame(group, head, chunk, at - base)
                if verify:
                    frame.check(f"{info.path} at byte {at}")
                yield frame
                at += head.nbytes
                begin = head.stop
        finally:
            os.close(fd)

    def _damaged(self, fd: int, info: SegmentInfo, at: int) -> ArchiveDamaged:
        later = find_frame(fd, "", at + 1, os.fstat(fd).st_size)
        if later is not None:
            return damage(info.path, at, later[1])
        return ArchiveDamaged(f"{info.path} is damaged at byte {at}, and nothing good follows")


def _is_same(info: SegmentInfo) -> bool:
    """Whether a segment still has what a reader knows of it: a recorder may have cut off, or moved away, its end."""
    if info.last is None:
        return True
    at, head = info.last
    try:
        with open(info.path, "rb", buffering=0) as file:
            return open_frame_head(os.pread(file.fileno(), FRAME_BYTES, at)) == head
    except FileNotFoundError:
        return False


def _cut(frame: Frame, first: int) -> Frame:
    sealed = frame.cut(first, frame.stop)
    return Frame(frame.group, sealed.head, sealed.tobytes())
