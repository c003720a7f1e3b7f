"""Processes that are killed and started again with their folders. docs/design/restarts.md."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from tests.network.quick import QUICK, fresh, within

from ordercast import Node, UsageError

NAMES = ("a", "b", "c")
GENEROUS_S = 60.0  # the goal is 5 s on a quiet machine


class Program:
    """One life of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, name: str, folder: Path, group: str, orderer: str) -> Program:
        words = [sys.executable, "-m", "tests.network.restarting", name, str(folder / name), group, orderer]
        return cls(await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE))

    async def until(self, wanted: Callable[[str], bool]) -> str:
        """The first line from now on that is wanted."""
        assert self._process.stdout is not None
        while line := (await self._process.stdout.readline()).decode():
            if wanted(line.rstrip()):
                return line.rstrip()
        raise AssertionError("the process has ended")

    async def until_whole(self, reason: str) -> None:
        """All three are in a view that this or a later reason made, and messages of all of them come."""
        await self.until(lambda line: line.startswith(f"view {reason}"))
        waiting = set(NAMES)
        while waiting:
            line = await self.until(lambda line: line.startswith("message"))
            waiting.discard(line.split()[1])

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def whole_group(folder: Path, group: str, orderer: str) -> dict[str, Program]:
    programs: dict[str, Program] = {}
    for name in NAMES:
        programs[name] = await Program.start(name, folder, group, orderer)
        members = ",".join(sorted(programs))
        for program in programs.values():
            await program.until(lambda line, members=members: line.startswith("view") and line.endswith(f" {members}"))  # type: ignore[misc]
    return programs


@pytest.mark.parametrize(
    ("orderer", "victims"), [("token", ("a", "b")), ("sequencer", NAMES)], ids=["two of three", "all"]
)
def test_killed_processes_come_back_with_their_folders(
    orderer: str, victims: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Two of three do not leave the survivor behind, and all three form the group again."""

    @within(2 * GENEROUS_S)
    async def story() -> None:
        group = fresh()
        programs = await whole_group(tmp_path, group, orderer)
        try:
            for name in victims:
                await programs[name].kill()
            for name in victims:
                programs[name] = await Program.start(name, tmp_path, group, orderer)
            began_s = monotonic()
            await asyncio.gather(*[program.until_whole("RESTART") for program in programs.values()])
            took_s = monotonic() - began_s
            print(f"{orderer}: {len(victims)} were restarted, and the group works after {took_s:.2f} s")
            record_property("took_s", took_s)
            assert took_s < GENEROUS_S
        finally:
            for program in programs.values():
                await program.kill()

    story()


@within(60)
async def test_two_nodes_cannot_have_one_folder(tmp_path: Path) -> None:
    node = Node("a", data_dir=tmp_path, timing=QUICK)
    try:
        with pytest.raises(UsageError, match="in use by another node"):
            Node("a", data_dir=tmp_path, timing=QUICK)
    finally:
        await node.close()
    again = Node(data_dir=tmp_path, timing=QUICK)
    try:
        assert again.member.name == "a"
        assert again.member.life > node.member.life
    finally:
        await again.close()


@within(60)
async def test_a_node_that_left_comes_back_as_a_new_member(tmp_path: Path) -> None:
    """A clean leave removes the entry: nobody waits for the node, and it waits for nobody."""
    group = fresh()
    async with Node("a", data_dir=tmp_path, timing=QUICK) as node:
        await node.join(group)
    assert not list(tmp_path.glob("*.entry"))
    async with Node("a", data_dir=tmp_path, timing=QUICK) as node:
        joined = await node.join(group)
        assert joined.view is not None
        assert [member.name for member in joined.view.members] == ["a"]
