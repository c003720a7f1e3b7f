"""Member processes of `demo` and `bench`, and the pipe between them and the command: one JSON object a line.

Every step is asked for and answered (`tell`, `expect`): nothing is timed by hope. A child whose standard input ends has
lost its command and stops, so that no process stays behind, however the command ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

LINE_BYTES: Final = 8 << 20
"""The longest line; samples of latencies are the longest things that are said."""

WAITING_LINES: Final = 10_000
"""Answers that are kept until they are asked for; with more of them the two sides do not understand one another."""

END_TIMEOUT_S: Final = 5.0
"""How long a child that was told to end may take before it is killed."""

Saying = dict[str, Any]


class ChildFailed(Exception):
    """A member process failed, died or did not answer; the text is for the person in front of the terminal."""


class Child:
    """One member process, seen from the command."""

    __slots__ = ("_failure", "_is_wanted", "_news", "_process", "_reader", "_said", "name", "pid", "status")

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self.status: Saying = {}  # the newest: only that matters
        self._process = process
        self._said: dict[str, deque[Saying]] = {}
        self._news = asyncio.Event()
        self._failure: str | None = None
        self._is_wanted = True  # whether its end would be a failure
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, name: str, module: str, settings: Mapping[str, Any], prefix: Sequence[str] = ()) -> Self:
        """Run a module as a member process and hand it its settings; `prefix` is put before the command."""
        command = [*prefix, sys.executable, "-m", module]
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LINE_BYTES)
        except OSError as error:
            raise ChildFailed(f"{name} cannot be started by {' '.join(command)!r}: {error.strerror}") from error
        child = cls(name, process)
        child.tell("settings", **settings)
        return child

    @property
    def is_running(self) -> bool:
        return self._process.returncode is None

    def tell(self, word: str, **fields: Any) -> None:
        """Say something to it. A child that is gone does not hear it; the next `expect` says so."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            stdin.write(json.dumps({"is": word, **fields}).encode() + b"\n")

    async def expect(self, word: str, timeout_s: float) -> Saying:
        """The next thing of that name that it says."""
        try:
            async with asyncio.timeout(timeout_s):
                while not (said := self._said.get(word)):
                    if self._failure is not None:
                        raise ChildFailed(f"{self.name} {self._failure}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ChildFailed(f"{self.name} did not come to {word!r} within {timeout_s:g} s") from None
        return said.popleft()

    async def ask(self, word: str, answer: str, timeout_s: float, **fields: Any) -> Saying:
        """`tell`, then `expect`."""
        self.tell(word, **fields)
        return await self.expect(answer, timeout_s)

    def heard(self, word: str) -> list[Saying]:
        """Everything of that name that it has said and that was not taken yet."""
        return list(self._said.get(word, ()))

    def forget(self, word: str) -> None:
        """Drop what it has said of that name so far."""
        self._said.pop(word, None)

    def check(self) -> None:
        """Raise if it has failed."""
        if self._failure is not None and self._is_wanted:
            raise ChildFailed(f"{self.name} {self._failure}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the member itself, which may be behind a prefix."""
        os.kill(self.pid, number)

    async def fall(self, timeout_s: float) -> None:
        """Wait until it has died, of whatever it was told to die of."""
        self._is_wanted = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            raise ChildFailed(f"{self.name} was to die, and is still there after {timeout_s:g} s") from None
        await self._reader

    async def kill(self) -> None:
        """End it without a warning."""
        self._is_wanted = False
        if self.is_running:
            self._process.kill()
            if self.pid != self._process.pid:
                self.signal(signal.SIGKILL)
        await self._process.wait()
        await self._reader

    async def end(self) -> None:
        """Close the pipe, on which the member stops; kill it if it does not."""
        self._is_wanted = False
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            pass
        await self.kill()

    async def _read(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            raise ChildFailed(f"{self.name} has no pipe")
        while line := await stdout.readline():
            try:
                said = json.loads(line)
                word = said.pop("is")
            except (ValueError, KeyError, AttributeError):
                continue  # somebody's print, not ours
            if word == "status":
                self.status = said
            if word == "up":
                self.pid = said["pid"]
            if word == "failed":
                self._failure = f"failed: {said['text']}"
            self._said.setdefault(word, deque(maxlen=WAITING_LINES if word != "status" else 1)).append(said)
            self._news.set()
        code = await self._process.wait()
        if self._failure is None:
            self._failure = "has ended" if not self._is_wanted else f"ended unexpectedly (exit code {code})"
        self._news.set()


class Command:
    """The command, seen from a member process."""

    __slots__ = ("_reader", "settings")

    def __init__(self, reader: asyncio.StreamReader, settings: Saying) -> None:
        self.settings = settings
        self._reader = reader

    @classmethod
    async def open(cls) -> Self:
        """Connect to standard input and wait for the settings."""
        # The terminal sends Ctrl-C to the whole process group. The command decides when a member ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        command = cls(reader, {})
        settings = await command.next()
        if settings is None:
            raise SystemExit(2)
        command.settings = settings
        command.tell("up", pid=os.getpid())
        return command

    async def next(self) -> Saying | None:
        """The next thing to do; None when the command is gone."""
        line = await self._reader.readline()
        if not line:
            return None
        said: Saying = json.loads(line)
        return said

    def tell(self, word: str, **fields: Any) -> None:
        """Say something to the command. Lines are short, and the command reads all the time: this does not block."""
        try:
            sys.stdout.write(json.dumps({"is": word, **fields}) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(1)
