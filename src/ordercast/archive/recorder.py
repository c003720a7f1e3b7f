"""A member that records: delivered messages become frames of its archive, and missed ones are caught up.

docs/design/archive.md has the states. The event loop's thread never waits for the disk: one other thread does all of
the log's work, in order. A batch counts as received by the group when it is recorded, so a slow disk slows the group
down instead of filling the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic_ns, time_ns
from typing import Any, Final, Literal

from ordercast.api.group import Group
from ordercast.api.node import NodeBase
from ordercast.archive.builder import FrameBuilder
from ordercast.archive.catchup import Exchange, Have, samples_of
from ordercast.archive.errors import ArchiveFull, GapGone, OtherLog, SyncFailed
from ordercast.archive.log import ArchiveLog
from ordercast.archive.reader import Archive
from ordercast.config import DEFAULT_ORDERER, SITES_ORDERER
from ordercast.errors import NotMember, OrdercastError, UsageError
from ordercast.groups.events import Batch, Left, PortEvent
from ordercast.view import View

TAKE: Final = 256
"""Events taken at once: those that came while the last frame was written become the next one."""

FRAME_MESSAGES: Final = 1 << 16
FRAME_VALUES: Final = 4 << 20
"""A frame is closed at these bounds; a single batch, or message, may overshoot them."""

PATIENCE_S: Final = 10.0
"""How long a recorder that missed something looks for others that have it, before it declares a hole."""

ROUND_S: Final = 1.0
"""Between two questions to the others, while no recorder has what is missing."""

LEAVE_S: Final = 5.0
"""How long the end waits until the groups have seen this member leave."""

FULL_S: Final = 1.0
"""Between two tries to write to a full disk."""

SLEW_NS: Final = 1_000_000_000
"""A clock that is set back by less than this does not make timestamps go back; a larger step is taken over."""

WhenFull = Literal["stop", "wait"]
WHEN_FULL: Final = ("stop", "wait")

Say = Callable[[str], None]
Blocking = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class Tally:
    """What a recorder has done since it was started."""

    recorded: int = 0  # messages written and, with fsync "always", durable
    weak: int = 0  # messages without a position, which are not archived
    caught_up: int = 0  # positions got from other recorders
    holes: int = 0  # positions that no recorder had
    unreadable: int = 0  # messages of blocks that a faulty member made unreadable: empty at every member


class ArchiveRecorder:
    """One recorder: `await run()` returns after `stop()`, or raises what ended it."""

    __slots__ = (
        "_archive",
        "_base",
        "_blocking",
        "_builder",
        "_catching",
        "_exchange",
        "_group",
        "_is_in",
        "_is_new_epoch",
        "_is_stopping",
        "_join",
        "_last_ns",
        "_node",
        "_over",
        "_patience_s",
        "_pool",
        "_say",
        "_side",
        "_tasks",
        "_when_full",
        "log",
        "tally",
    )

    def __init__(
        self,
        node: NodeBase,
        log: ArchiveLog,
        *,
        when_full: WhenFull = "stop",
        patience_s: float = PATIENCE_S,
        new_epoch: bool = False,
        say: Say = lambda _: None,
        blocking: Blocking | None = None,
        join: dict[str, Any] | None = None,
        side: dict[str, Any] | None = None,
    ) -> None:
        """new_epoch: the group was created anew, so begin an epoch without looking for signs of it. blocking: calls a
        function that may wait for the disk, by default in a thread. join, side: arguments of `node.join` for the group
        and for the side group."""
        if when_full not in WHEN_FULL:
            raise UsageError(f"when_full is one of {', '.join(WHEN_FULL)}, not {when_full!r}")
        self.log = log
        self.tally = Tally()
        self._node = node
        self._when_full = when_full
        self._patience_s = patience_s
        self._say = say
        self._pool: ThreadPoolExecutor | None = None
        if blocking is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._blocking = blocking or self._in_thread
        self._join = dict(join or {})
        self._side = dict(side or {})
        if "underlay" not in self._side:
            self._side.setdefault("orderer", DEFAULT_ORDERER)  # whatever the node's is: recorders call each other
        self._archive = Archive(log.folder, strict=False)
        # the group
        self._group: Group | None = None
        self._is_in = False  # the next view is not the one that this member comes in with
        self._is_stopping = False
        self._over: asyncio.Future[None]  # of `run`
        self._tasks: set[asyncio.Task[None]] = set()
        # recording
        self._builder = FrameBuilder()
        self._base = log.base  # of the epoch: added to the positions of the group
        self._is_new_epoch = new_epoch
        self._last_ns = 0
        # catching up
        self._exchange = Exchange(node, log, self._blocking)
        self._catching: asyncio.Task[None] | None = None

    # State.

    @property
    def group(self) -> Group | None:
        return self._group

    @property
    def position(self) -> int:
        """The position that comes next."""
        return self.log.stop or 0

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def is_catching_up(self) -> bool:
        return self._catching is not None and not self._catching.done()

    # Running.

    async def run(self) -> None:
        """Join, record until `stop`, leave. What was recorded stays whole, whatever this raises."""
        self._over = asyncio.get_running_loop().create_future()
        try:
            for word in self.log.words:
                self._say(word)
            await self._exchange.open(**self._side)
            self._spawn(self._exchange.run())
            self._group = await self._node.join(self.log.group, **self._join)
            if self._group.config.orderer == SITES_ORDERER:
                raise UsageError(
                    f"{self.log.group!r} has the orderer 'sites', whose positions have gaps and begin anew in each "
                    "component: an archive needs a group with another orderer, such as orderer='token'"
                )
            if self.log.config.fsync == "interval":
                self._spawn(self._sync())
            self._spawn(self._receive(self._group))
            await self._over
        finally:
            await self._end()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in the background: if it fails, the recorder ends with its error."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._over.done():
            self._over.set_exception(error)

    def stop(self) -> None:
        """Leave the group in order; `run` returns when everything up to the leave is recorded."""
        if not self._is_stopping and self._group is not None:
            self._is_stopping = True
            self._spawn(self._group.leave())

    async def _end(self) -> None:
        with suppress(OrdercastError, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if self._group is not None and self._group.is_member:
                    await self._group.leave()
                await self._exchange.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await self._blocking(self.log.close)
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    async def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        # Shielded: a write that is under way when the recorder is told to stop is waited for.
        running = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        return await asyncio.shield(running)

    async def _sync(self) -> None:
        """Fsync "interval": within the interval, also if no more messages come."""
        while True:
            await asyncio.sleep(self.log.config.interval_ms / 4_000)
            due_ns = self.log.sync_due_ns
            if due_ns is not None and monotonic_ns() >= due_ns:
                await self._blocking(self.log.sync)

    # Recording.

    async def _receive(self, group: Group) -> None:
        # Hot: once per frame, and `_add` once per block.
        while True:
            try:
                events = await group.take(TAKE)
            except NotMember:
                if not self._is_stopping:
                    raise
                if not self._over.done():
                    self._over.set_result(None)
                return
            for event in events:
                if isinstance(event, Batch):
                    for run in event.runs():
                        await self._add(run)
                else:
                    await self._on_event(event)
            await self._flush()
            self._exchange.grown()

    async def _add(self, batch: Batch) -> None:
        """Take a batch into the frame that is being made."""
        position = batch.position
        if position < 0:
            self.tally.weak += len(batch)
            return
        lengths, values, types = batch.columns()
        if not lengths:
            self.tally.unreadable += len(batch)
            return
        builder = self._builder
        if not builder.fits(len(lengths), len(values)):
            await self._flush()
        now_ns = time_ns()
        if 0 < self._last_ns - now_ns < SLEW_NS:
            now_ns = self._last_ns
        self._last_ns = now_ns
        position += self._base
        builder.add(position, batch.view, batch.sender, batch.first, str(batch.service), now_ns, types, lengths, values)
        if builder.count >= FRAME_MESSAGES or builder.values_bytes >= FRAME_VALUES:
            await self._flush()

    async def _flush(self) -> None:
        builder = self._builder
        if builder.count:
            count = builder.count
            await self._write(self.log.append, builder.seal(self.position))
            self.tally.recorded += count

    async def _write(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Have the log do something; on a full disk try again for as long as it takes, if that was chosen."""
        is_said = False
        while True:
            try:
                done = await self._blocking(work, *arguments)
            except SyncFailed:
                raise
            except ArchiveFull as error:
                if self._when_full == "stop" or self._is_stopping:
                    raise
                if not is_said:
                    self._say(f"{error.strerror}; recording waits for room at position {self.position}")
                    is_said = True
                await asyncio.sleep(FULL_S)
            else:
                if is_said:
                    self._say(f"there is room again: recording goes on at position {self.position}")
                return done

    async def _on_event(self, event: PortEvent) -> None:
        if isinstance(event, View):
            await self._flush()
            if self._is_in:
                # This member was there, so the positions between had weaker or unreadable messages.
                await self._write(self.log.cover, event.position + self._base)
            else:
                self._is_in = True
                await self._enter(event)
        elif isinstance(event, Left):
            await self._flush()
            self._is_in = self._exchange.is_in = False
            if event.returning:
                self._say(f"this member was excluded ({event.text}); it is on its way back")

    # Catching up.

    async def _enter(self, view: View) -> None:
        """This member comes in: everything from `view.position` on will be given to it."""
        stop = self.log.stop
        if stop is None:
            await self._write(self.log.start, view.position)
            self._exchange.is_in = self._exchange.is_settled = True
            self._say(f"recording {self.log.group!r} from position {view.position} on")
            return
        self._exchange.is_in = self._exchange.is_settled = False
        if self.is_catching_up and self._catching is not None:
            # What is being filled stays, and the rest of it is one of the gaps.
            self._catching.cancel()
            await asyncio.gather(self._catching, return_exceptions=True)
        is_new, self._is_new_epoch = self._is_new_epoch, False
        if is_new or not await self._goes_on(view, stop):
            await self._begin_epoch(view.position)
        else:
            first = view.position + self._base
            gap = await self._write(self.log.start, first)
            missed = f"positions {gap[0]} to {gap[1] - 1} were missed" if gap else "nothing was missed"
            self._say(f"recording {self.log.group!r} from position {first} on" + (f"; {missed}" if stop else ""))
        self._exchange.is_in = True
        self._catching = self._spawn(self._catch_up(view.position + self._base))

    async def _goes_on(self, view: View, stop: int) -> bool:
        """Whether the group's log is the one of the archive's newest epoch, which ends before `stop`.

        Other recorders can tell. Without them a group that goes on before the end of the archive is another log, and
        one that goes on behind it is taken for the same. A tail of the archive that the group does not have is moved
        away (docs/design/archive.md, *Left behind*).
        """
        first = view.position + self._base
        is_behind = first < stop
        if is_behind and view.position == 0:
            return False
        until_s = self._now_s() + self._patience_s
        samples = await self._blocking(samples_of, self._archive, min(first, stop))
        while True:
            for have in await self._exchange.ask(self._base, self._base, samples):
                if have.is_other_log:
                    return False
                if have.knows and have.agrees >= 0:
                    if is_behind:
                        await self._fork(have.agrees + 1 if have.differs >= 0 else first, stop, have.who)
                    return True
            if not is_behind:
                return True
            if self._now_s() >= until_s:
                return False
            await self._pause(until_s)

    async def _begin_epoch(self, position: int) -> None:
        """The group was created anew: its position 0 is where the archive ends."""
        lost = [(begin, stop) for begin, stop in self.log.gaps if begin < stop]
        gap = await self._write(self.log.begin_epoch, position)
        self._base = self.log.base
        for begin, stop in lost:
            self.tally.holes += stop - begin
            self._say(f"positions {begin} to {stop - 1} are a hole: they belong to an epoch that is over")
        text = (
            f"the group {self.log.group!r} was created anew and counts from 0 again: a new epoch begins at position "
            f"{self._base} of the archive"
        )
        missed = f"; positions {gap[0]} to {gap[1] - 1} were missed" if gap else ""
        self._say(f"{text}, recording from position {self._base + position} on{missed}")

    async def _catch_up(self, entered: int) -> None:
        """Fill all gaps with what the others have; the rest becomes a hole."""
        until_s = self._now_s() + self._patience_s
        is_checked = False
        while True:
            gaps = await self._blocking(lambda: self.log.gaps)
            begin, stop = gaps[0] if gaps else (entered, entered)
            if begin == stop and is_checked:
                break
            try:
                is_checked = await self._step(begin, stop, until_s)
            except GapGone:
                continue
        self._exchange.is_settled = True

    async def _step(self, begin: int, stop: int, until_s: float) -> bool:
        """Ask the others once and act on the answers; whether they have the same messages as this archive."""
        if begin < self._base:
            await self._declare(begin, stop)  # of an earlier epoch: nobody can be asked
            return False
        samples = await self._blocking(samples_of, self._archive, begin)
        haves = await self._exchange.ask(begin, stop, samples)
        if await self._is_forked(haves, begin):
            return False
        if begin == stop or await self._fetch(haves, begin, stop):
            return True
        if self._now_s() < until_s:
            await self._pause(until_s)
        else:
            upto = min((low for have in haves if have.is_in for low, _ in have.ranges if low > begin), default=stop)
            await self._declare(begin, upto)
        return True

    async def _is_forked(self, haves: list[Have], begin: int) -> bool:
        """Whether the tail of this archive before `begin` was not the group's, and has been moved away."""
        for have in haves:
            if have.differs < 0:
                continue
            if not have.knows:
                self._say(
                    f"{have.who} has another message at position {have.differs}, and has not caught up itself: "
                    "neither recorder knows which message is right"
                )
                continue
            if have.is_other_log:
                raise OtherLog(
                    f"{have.who} has another message at position {have.differs}, and nothing in common with "
                    f"{self.log.folder}: the group was created anew; start the recorder once with --new-epoch"
                )
            await self._fork(have.agrees + 1, begin, have.who)
            return True
        return False

    async def _fork(self, at: int, upto: int, who: str) -> None:
        moved = await self._write(self.log.fork, at, upto)
        self._say(
            f"positions {at} to {upto - 1} were given to this member alone, {who} has other messages there: they were "
            "moved to " + ", ".join(path.name for path in moved)
        )

    async def _fetch(self, haves: list[Have], begin: int, stop: int) -> bool:
        """Whether a recorder gave something of the gap."""
        able = [(high, have.who) for have in haves if have.is_in for low, high in have.ranges if low <= begin < high]
        for high, who in sorted(able, reverse=True):
            try:
                reached = await self._exchange.fetch(who, begin, min(high, stop))
            except SyncFailed:
                raise
            except ArchiveFull as error:
                if self._when_full == "stop":
                    raise
                self._say(f"{error.strerror}; catching up waits for room")
                await asyncio.sleep(FULL_S)
                return True
            if reached > begin:
                self.tally.caught_up += reached - begin
                self._say(f"positions {begin} to {reached - 1} were caught up from {who}")
                return True
        return False

    async def _declare(self, begin: int, upto: int) -> None:
        await self._write(self.log.declare_hole, begin, upto)
        self.tally.holes += upto - begin
        self._say(f"positions {begin} to {upto - 1} are a hole: no recorder that could be asked has them")

    async def _pause(self, until_s: float) -> None:
        """Until the recorders change, a moment passes, or patience ends."""
        self._exchange.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.01, min(ROUND_S, until_s - self._now_s()))):
                await self._exchange.changed.wait()
                # Live messages also count as a change: do not ask for each of them.
                await asyncio.sleep(min(ROUND_S, max(0.0, until_s - self._now_s())))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
