"""`ordercast record` and `ordercast replay` as real processes on loopback: killed, stopped, full disks, bad folders."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.archive.test_log import recorded
from tests.archive.tmpfs import mounted
from tests.network.quick import QUICK, fresh, within

from ordercast import AGREED, RELIABLE, Group, Node, NotMember
from ordercast.archive.reader import Archive, Loss, Record
from ordercast.cli.main import main
from ordercast.groups.events import Batch

COMMAND = [sys.executable, "-m", "ordercast.cli.main"]
TMPFS_BYTES = 1 << 20
START_S = 60.0


class Recording:
    """One `ordercast record` process, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.words: list[str] = []
        self._news = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, group: str, folder: Path, *flags: str) -> Recording:
        words = [*COMMAND, "record", group, "--out", str(folder), "--patience", "4", "--segment-bytes", "200K", *flags]
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe))

    async def _read(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while line := await stderr.readline():
            self.words.append(line.decode().strip())
            self._news.set()
        self._news.set()

    async def says(self, text: str) -> str:
        """Wait until it says that."""
        async with asyncio.timeout(START_S):
            while True:
                for word in self.words:
                    if text in word:
                        return word
                assert not self._reading.done(), self.words
                self._news.clear()
                await self._news.wait()

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reading

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code and what it printed."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self.end()

    async def end(self) -> tuple[int, str]:
        stdout = self._process.stdout
        assert stdout is not None
        async with asyncio.timeout(START_S):
            said = (await stdout.read()).decode()
            code = await self._process.wait()
        await self._reading
        return code, said


async def drain(group: Group) -> None:
    with suppress(NotMember):
        async for _ in group.batches():
            pass


@asynccontextmanager
async def senders(group: str, count: int = 3) -> AsyncIterator[list[Group]]:
    """So many members that send all the time."""
    nodes = [Node(f"s{number}", timing=QUICK) for number in range(count)]
    groups = [await node.join(group) for node in nodes]
    tasks = [asyncio.create_task(drain(each)) for each in groups]
    is_on = True

    async def send(each: Group, name: bytes) -> None:
        number = 0
        while is_on:
            await each.send_many([b"%s %d " % (name, number + at) + b"x" * 80 for at in range(25)])
            await each.send(b"weak", RELIABLE)
            number += 25
            await asyncio.sleep(0.02)

    sending = [asyncio.create_task(send(each, b"s%d" % at)) for at, each in enumerate(groups)]
    try:
        yield groups
    finally:
        is_on = False
        await asyncio.gather(*sending)
        for each in groups:
            await each.flush()
        # Whoever delivers this has everything before it.
        await groups[0].send(b"the end", AGREED, confirm=True)
        await asyncio.gather(*(node.close() for node in nodes))
        for task in tasks:
            task.cancel()


async def archived(folder: Path, beyond: int) -> int:
    """Wait until an archive has got further than that; how far."""
    archive = Archive(folder)
    async with asyncio.timeout(START_S):
        while True:
            bounds = archive.bounds() if folder.exists() else None
            if bounds is not None and bounds[1] > beyond:
                return bounds[1]
            await asyncio.sleep(0.02)


async def until_the_end(*folders: Path) -> None:
    """Wait until archives have the last message."""
    for folder in folders:
        archive = Archive(folder)
        async with asyncio.timeout(START_S):
            while True:
                bounds = archive.bounds()
                assert bounds is not None
                newest = list(archive.records(bounds[1] - 1)) if bounds[1] else []
                if newest and newest[-1].value == b"the end":
                    break
                await asyncio.sleep(0.05)


def messages(folder: Path, fail_on_loss: bool = True) -> list[Record]:
    return [record._replace(timestamp=0) for record in Archive(folder).records(fail_on_loss=fail_on_loss)]


@within(120)
async def test_a_recorder_killed_in_full_flight_ends_up_with_the_same_archive_as_the_other(tmp_path: Path) -> None:
    group, one, two = fresh(), tmp_path / "one", tmp_path / "two"
    first, second = await asyncio.gather(Recording.start(group, one), Recording.start(group, two, "--fsync", "always"))
    await asyncio.gather(first.says("from position"), second.says("from position"))
    async with senders(group):
        await archived(one, 500)
        await first.kill()
        killed_at = (Archive(one).bounds() or (0, 0))[1]
        await archived(two, killed_at + 1_000)
        first = await Recording.start(group, one)
        await first.says("were caught up from")
        again = await archived(one, killed_at + 2_000)
        assert again > killed_at
    await until_the_end(one, two)
    (code, said), (code_two, _) = await asyncio.gather(first.stop(), second.stop(signal.SIGINT))
    assert (code, code_two) == (0, 0)
    assert "positions were caught up from other recorders" in said
    assert "messages weaker than AGREED were passed over" in said
    left, right = messages(one), messages(two)
    start = max(left[0].position, right[0].position)
    left, right = ([record for record in each if record.position >= start] for each in (left, right))
    assert left == right
    assert len(left) > 2_000
    numbers = {
        sender: [record.number for record in left if record.sender == sender] for sender in {r.sender for r in left}
    }
    assert all(each == sorted(set(each)) for each in numbers.values()), "every message once, in its sender's order"
    assert Archive(one).losses == []


@within(120)
async def test_what_nobody_recorded_is_said_to_be_a_hole(tmp_path: Path) -> None:
    group, folder = fresh(), tmp_path / "one"
    recording = await Recording.start(group, folder)
    await recording.says("from position")
    async with senders(group, 2) as groups:
        await archived(folder, 300)
        await recording.kill()
        await groups[0].send(b"nobody writes this down", AGREED, confirm=True)
        recording = await Recording.start(group, folder, "--patience", "0.5")
        word = await recording.says("are a hole: no recorder that could be asked has them")
    await until_the_end(folder)
    code, said = await recording.stop()
    assert code == 0
    assert "positions are holes: no recorder had them" in said
    (loss,) = [loss for loss in _losses(folder) if loss.reason == "hole"]
    assert f"positions {loss.begin} to {loss.stop - 1} are a hole" in word
    replayed = subprocess.run([*COMMAND, "replay", str(folder)], capture_output=True, text=True, check=False)
    assert replayed.returncode == 2
    assert f"positions {loss.begin} to {loss.stop - 1} are not in the archive" in replayed.stderr
    allowed = subprocess.run(
        [*COMMAND, "replay", str(folder), "--allow-loss"], capture_output=True, text=True, check=False
    )
    assert allowed.returncode == 0
    assert len(allowed.stdout.splitlines()) == len(messages(folder, fail_on_loss=False))


def _losses(folder: Path) -> list[Loss]:
    archive = Archive(folder)
    archive.refresh()
    return archive.losses


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a megabyte."""
    with mounted(tmp_path / "small", TMPFS_BYTES) as folder:
        yield folder


@within(120)
async def test_a_disk_that_is_really_full_ends_the_recorder_and_loses_nothing(tmp_path: Path, small_disk: Path) -> None:
    group, folder, other = fresh(), small_disk / "archive", tmp_path / "other"
    second = await Recording.start(group, other)
    first = await Recording.start(group, folder)
    await asyncio.gather(first.says("from position"), second.says("from position"))
    async with senders(group, 2):
        await first.says("No space left on device")
        code, _ = await first.end()
        assert code == 1
        assert any("is kept and whole; make room and start the recorder again" in word for word in first.words)
        await archived(other, (Archive(folder).bounds() or (0, 0))[1] + 200)
    await until_the_end(other)
    assert (await second.stop())[0] == 0
    kept = messages(folder)
    assert kept
    everything = {record.position: record for record in messages(other)}
    assert kept == [everything[record.position] for record in kept]


@within(120)
async def test_an_archive_can_be_sent_into_a_group_again(tmp_path: Path) -> None:
    recorded(tmp_path / "archive", 40)
    group = fresh()
    async with Node("listener", timing=QUICK) as node:
        joined = await node.join(group)
        words = [*COMMAND, "replay", str(tmp_path / "archive"), "--into", group]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        got: list[tuple[bytes, int]] = []
        expected = [(record.value, record.type) for record in Archive(tmp_path / "archive").records()]
        async for batch in joined.batches():
            if isinstance(batch, Batch):
                got += zip(batch.messages, batch.types, strict=True)
            if len(got) >= len(expected):
                break
        draining = asyncio.create_task(drain(joined))
        said, _ = await process.communicate()
        assert process.returncode == 0
        draining.cancel()
    assert got == expected
    assert f"{len(expected)} messages sent to {group}" in said.decode()


# Bad input: a word, and exit code 2. ---------------------------------------------------------------------------------


def test_replay_prints_positions_times_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path, 4)
    assert main(["replay", str(tmp_path), "--from", "1", "--to", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "1 1970-01-01T00:00:00.000Z a/1 101 AGREED type 3 1.x",
        "2 1970-01-01T00:00:00.000Z a/1 102 AGREED type 3 2.xx",
    ]
    assert main(["replay", str(tmp_path), "--since", "2020-01-01"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["replay", str(tmp_path), "--until", "2020-01-01", "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["position"] for each in shown] == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13]
    assert shown[0] == {
        "group": "orders", "position": 0, "view": "7@a/1", "sender": "a/1", "number": 100, "service": "AGREED",
        "timestamp": 0, "type": 3, "value": "0.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["replay", "{}/nowhere"], "there is no folder"),
        (["replay", "{}/empty"], "holds no segment of an archive"),
        (["replay", "{}/foreign"], "notes.txt in"),
        (["replay", "{}/missing"], "a segment file is missing: put it back"),
        (["replay", "{}/good", "--from", "9", "--to", "3"], "the first position, 9, comes after the end, 3"),
        (["replay", "{}/good", "--since", "yesterday"], "--since is a time such as"),
        (["replay", "{}/good", "--json", "--into", "g"], "choose one"),
        (["record", "prices", "--out", "{}/good"], "is of the group 'orders', not of 'prices'"),
        (["record", "orders", "--out", "{}/foreign"], "notes.txt in"),
        (["record", "orders", "--out", "{}/missing"], "put it back, or have it fetched from other recorders"),
        (["record", "orders", "--out", "{}/newer"], "has format 7"),
        (["record", "orders", "--out", "{}/new", "--segment-bytes", "big"], "--segment-bytes is a size such as 64M"),
        (["record", "orders", "--out", "{}/new", "--keep-age", "old"], "--keep-age is a time such as"),
        (["record", "orders", "--out", "{}/new", "--host", "192.0.2.1"], "is not loopback"),
        (["record", "x" * 250, "--out", "{}/new"], "is too long to be recorded"),
    ],
)
def test_bad_input_is_answered_with_what_to_do_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("good", "foreign", "missing", "newer"):
        recorded(tmp_path / name, 60)
    (tmp_path / "foreign" / "notes.txt").write_text("dear diary", encoding="utf-8")
    sorted((tmp_path / "missing").glob("segment-*"))[1].unlink()
    newer = max((tmp_path / "newer").glob("segment-*"))
    newer.write_bytes(newer.read_bytes()[:8] + b"\7\0" + newer.read_bytes()[10:])
    assert main([word.format(tmp_path) for word in words]) == 2
    assert complaint in capsys.readouterr().err
