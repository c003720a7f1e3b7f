"""Processes of a world: what runs together, stands still together and dies together.

Everything of this project that is not an engine runs on asyncio. A process is a context (`contextvars`): callbacks and
tasks have that of whoever made them, so that the loop knows whose they are. Those of a process that was killed never
run again, and those of one that stands still wait, as after SIGKILL and SIGSTOP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final

from ordercast.sim.loop import DEFAULT_LIMIT_NS, VirtualTimeLoop
from ordercast.sim.world import World

if TYPE_CHECKING:
    from ordercast.sim.sessions.streams import Streams, StreamServer, StreamTransport

MAX_HELD: Final = 100_000
"""Callbacks that wait for a process that stands still. More are a livelock."""

_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """One program on one machine, from its start to its end."""

    __slots__ = (
        "_held",
        "context",
        "dropped",
        "host",
        "is_dead",
        "is_paused",
        "loop",
        "name",
        "servers",
        "tasks",
        "transports",
    )

    def __init__(self, loop: ProcessLoop, name: str, host: str) -> None:
        """`host`: the address of its machine."""
        self.loop = loop
        self.name = name
        self.host = host
        self.is_dead = False
        self.is_paused = False
        self._held: list[Guarded] = []
        self.dropped: list[Guarded] = []  # steps of tasks that did not run any more: without them no task ends
        self.transports: dict[StreamTransport, None] = {}  # open ones
        self.servers: list[StreamServer] = []
        self.tasks: list[asyncio.Task[Any]] = []  # a loop does not keep them
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        loop.processes.append(self)

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def start(self, program: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in it."""
        task = self.loop.create_task(program, context=self.context.copy())
        self.tasks.append(task)
        return task

    def kill(self) -> None:
        """As by SIGKILL: nothing of it runs any more, and its kernel closes what it had open."""
        if self.is_dead:
            return
        self.is_dead = True
        self.dropped, self._held = self._held, []
        for server in list(self.servers):
            server.close()
        for transport in list(self.transports):
            transport.vanish()

    def pause(self) -> None:
        """As by SIGSTOP."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for guarded in held:
            guarded.again()

    def hold(self, guarded: Guarded) -> None:
        self._held.append(guarded)
        if len(self._held) > MAX_HELD:
            raise RuntimeError(f"{self.name} stands still, and more than {MAX_HELD} callbacks wait for it")


class Guarded:
    """A callback of a process."""

    __slots__ = ("_args", "_callback", "_context", "_process", "handle")

    def __init__(self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], context: Context):
        self._process = process
        self._callback = callback
        self._args = args
        self._context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        process = self._process
        if process.is_dead:
            if "Task" in type(self._callback).__name__ or isinstance(
                getattr(self._callback, "__self__", None), asyncio.Task
            ):
                process.dropped.append(self)
            return
        if process.is_paused:
            process.hold(self)
            return
        self._callback(*self._args)

    def again(self) -> None:
        """The process goes on. What was cancelled meanwhile stays so."""
        if self.handle is None or not self.handle.cancelled():
            self.handle = self._process.loop.plain_call_soon(self, self._context)


class ProcessLoop(VirtualTimeLoop):
    """Knows whose callbacks it runs, and has byte streams instead of sockets."""

    def __init__(self, world: World, limit_ns: int = DEFAULT_LIMIT_NS) -> None:
        super().__init__(world, limit_ns)
        self.processes: list[Process] = []
        self.streams: Streams | None = None

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        context = context if context is not None else copy_context()
        process = context.get(_PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        guarded = Guarded(process, callback, args, context)
        guarded.handle = super().call_soon(guarded, context=context)
        return guarded.handle

    def plain_call_soon(self, guarded: Guarded, context: Context) -> asyncio.Handle:
        return super().call_soon(guarded, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = context if context is not None else copy_context()
        process = context.get(_PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        guarded = Guarded(process, callback, args, context)
        handle = super().call_at(when, guarded, context=context)
        guarded.handle = handle
        return handle

    def end_all(self) -> None:
        """The world ends: what is left of processes is cancelled next, and has to run for that."""
        for process in self.processes:
            process.is_dead = process.is_paused = False
            for guarded in process.dropped:
                guarded.again()
            for transport in list(process.transports):
                transport.vanish()

    @property
    def _wires(self) -> Streams:
        if self.streams is None:
            raise RuntimeError("this loop has no streams")
        return self.streams

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._wires.connect(current_process(), protocol_factory, (host, port))

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> StreamServer:
        return self._wires.listen(current_process(), protocol_factory, (host, port))


def current_process() -> Process:
    """Whose callback runs."""
    process = _PROCESS.get()
    if process is None:
        raise RuntimeError("this is outside of every process")
    return process
