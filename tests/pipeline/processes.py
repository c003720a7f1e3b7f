"""Member processes for tests of streams, and waiting for what they do; whatever happens they end with the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

HERE = Path(__file__).parent
PATIENCE_S = 120.0
POLL_S = 0.03


def until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Wait for what another process does; its result once that is true."""
    end = monotonic() + patience_s
    while not (found := condition()):
        assert monotonic() < end, f"{what}: not within {patience_s:g} s"
        sleep(POLL_S)
    return found


class Process:
    """One process with a process group of its own; `lines` is what it has said, as JSON."""

    def __init__(self, *words: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.lines.append(json.loads(line))

    def end(self) -> list[dict[str, Any]]:
        """Let it end by itself: its input is over. What it said in all."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0
        self._reading.join(PATIENCE_S)
        return self.lines

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(PATIENCE_S) == 0

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """It and all that it started, at once."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._reading.join(PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def member(name: str, group: str, *command: str) -> Process:
    return Process(str(HERE / "stream_member.py"), name, group, *command)


def recorder(group: str, folder: Path) -> Process:
    return Process("-m", "ordercast.cli.main", "record", group, "--out", str(folder), "--name", "recorder")


def driver(*arguments: str) -> Process:
    return Process(str(HERE / "stream_driver.py"), *arguments)
