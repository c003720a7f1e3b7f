"""Daemons as processes: `ordercast daemon`, as people start it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ordercast.cli.local_sites import free_ports

START_S = 60.0


class DaemonProcess:
    """One daemon, which is ready once `start` has returned."""

    def __init__(self, folder: Path, name: str, words: list[str]) -> None:
        self.path = folder / f"{name}.sock"
        self.ready: dict[str, Any] = {}
        self._log = folder / f"{name}.log"
        self._words = ["daemon", *words, "--unix", str(self.path), "--json"]

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    async def start(self) -> None:
        self.process = await spawn(self._words, self._log)
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            line = await self.process.stdout.readline()
        assert line, self.log
        self.ready = json.loads(line)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        self.process.terminate()
        async with asyncio.timeout(START_S):
            return await self.process.wait()


@asynccontextmanager
async def daemon(folder: Path, name: str, *words: str) -> AsyncIterator[DaemonProcess]:
    """A daemon, as long as it is used."""
    process = DaemonProcess(folder, name, [*words, "--name", name])
    await process.start()
    try:
        yield process
    finally:
        if process.process.returncode is None:
            await process.kill()


async def spawn(words: list[str], log: Path | None = None) -> asyncio.subprocess.Process:
    """The command `ordercast` with these words."""
    with open(log if log is not None else os.devnull, "wb") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ordercast.cli.main", *words, stdout=asyncio.subprocess.PIPE, stderr=errors
        )


async def command(*words: str) -> tuple[int, str, str]:
    """Run the command `ordercast` to its end: exit code, output, errors."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ordercast.cli.main", *words, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(START_S):
        out, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


def two_sites(folder: Path) -> Path:
    """A configuration with the daemons d1 and d2, each in a site of its own on loopback."""
    ports = free_ports(2)
    lines = ["[defaults]", 'rate = "1000Mbit"']
    for at, port in enumerate(ports, 1):
        lines += ["[[site]]", f'name = "s{at}"', "[[daemon]]", f'name = "d{at}"', f'site = "s{at}"']
        lines += ['host = "127.0.0.1"', f"port = {port}"]
    lines += ["[clients]", 'session_limit = "1MiB"']
    file = folder / "sites.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
