"""Recorders in virtual time: crashes, exclusions, partitions, and a group that is created anew."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.archive.disk import Disk

from ordercast.api.group import Group
from ordercast.archive.errors import ArchiveFull, OtherLog
from ordercast.archive.log import MIN_SEGMENT_BYTES, ArchiveLog, LogConfig
from ordercast.archive.reader import Archive, Loss, Record
from ordercast.archive.recorder import ArchiveRecorder
from ordercast.errors import NotMember
from ordercast.service import AGREED, FIFO, RELIABLE, SAFE
from ordercast.sim.api import SimNode, Simulation, simulate

GROUP = "orders"
PATIENCE_S = 6.0
PACE_S = 0.05


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    """Virtual time has no threads."""
    return work(*arguments)


class Stage:
    """Members that send, and recorders that come and go."""

    def __init__(self, node: Simulation, folder: Path, orderer: str = "token") -> None:
        self._node = node
        self._folder = folder
        self._orderer = orderer
        self.groups: dict[str, Group] = {}
        self.recorders: dict[str, ArchiveRecorder] = {}
        self.nodes: dict[str, SimNode] = {}
        self.words: dict[str, list[str]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._sending: list[asyncio.Task[None]] = []
        self._draining: list[asyncio.Task[None]] = []
        self._is_sending = True

    async def members(self, names: str) -> None:
        for name in names:
            self.nodes[name] = self._node(name)
            self.groups[name] = await self.nodes[name].join(GROUP, orderer=self._orderer)
            self._draining.append(asyncio.create_task(self._drain(self.groups[name])))

    async def _drain(self, group: Group) -> None:
        with suppress(NotMember):
            async for _ in group.batches():
                pass

    def record(self, name: str, disk: Disk | None = None, **settings: Any) -> ArchiveRecorder:
        """Start a recorder, for the first time or again."""
        self.nodes[name] = node = self._node(name)
        config = LogConfig(fsync="never", segment_bytes=2 * MIN_SEGMENT_BYTES)
        log = ArchiveLog.open(self._folder / name, GROUP, config, disk)
        said = self.words.setdefault(name, [])
        recorder = ArchiveRecorder(
            node,
            log,
            say=said.append,
            blocking=inline,
            patience_s=PATIENCE_S,
            join={"orderer": self._orderer},
            **settings,
        )
        self.recorders[name] = recorder
        self._running[name] = asyncio.create_task(recorder.run())
        return recorder

    def send(self, names: str) -> None:
        self._sending += [asyncio.create_task(self._send(name)) for name in names]

    async def _send(self, name: str) -> None:
        group, number = self.groups[name], 0
        with suppress(NotMember):
            while self._is_sending:
                await group.send_many([b"%s %d" % (name.encode(), number + at) for at in range(10)], type=number % 100)
                await group.send(b"no position", RELIABLE if number % 20 else FIFO)
                await group.send(b"safe", SAFE)
                number += 10
                await asyncio.sleep(PACE_S)

    async def quiet(self) -> None:
        self._is_sending = False
        await asyncio.gather(*self._sending)
        await asyncio.sleep(3)

    async def crash(self, name: str) -> None:
        self.nodes[name].crash()
        with pytest.raises(NotMember):
            await self._running.pop(name)

    async def ended(self, name: str) -> None:
        await self._running.pop(name)

    async def end(self) -> None:
        for recorder in self.recorders.values():
            recorder.stop()
        await asyncio.gather(*self._running.values())


def play(folder: Path, story: Callable[[Stage], Awaitable[None]], orderer: str = "token", seed: int = 1) -> Stage:
    stages: list[Stage] = []

    async def program(node: Simulation) -> None:
        stages.append(Stage(node, folder, orderer))
        await story(stages[0])

    simulate(program, seed=seed)
    return stages[0]


def messages(folder: Path) -> list[Record]:
    """All messages of an archive without holes; the timestamps are each recorder's own."""
    return [record._replace(timestamp=0) for record in Archive(folder).records()]


@pytest.mark.parametrize("orderer", ["token", "sequencer", "timestamp"])
def test_a_recorder_that_crashed_catches_up_without_a_hole_and_without_a_duplicate(
    tmp_path: Path, orderer: str
) -> None:
    async def story(stage: Stage) -> None:
        await stage.members("abc")
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(2)
        stage.send("abc")
        await asyncio.sleep(2)
        await stage.crash("r1")
        await asyncio.sleep(4)
        stage.record("r1")
        await asyncio.sleep(4)
        await stage.quiet()
        await stage.end()

    stage = play(tmp_path, story, orderer)
    one, two = messages(tmp_path / "r1"), messages(tmp_path / "r2")
    assert one == two
    assert len(one) > 1_000
    assert [record.position for record in one] == sorted({record.position for record in one})
    assert {record.service for record in one} == {"AGREED", "SAFE"}
    tally = stage.recorders["r1"].tally
    assert tally.caught_up > 300
    assert tally.holes == 0
    assert tally.weak > 0
    assert any("were caught up from r2/" in word for word in stage.words["r1"])


def test_when_all_recorders_were_down_what_they_missed_is_a_hole_and_they_say_so(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.members("abc")
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(2)
        stage.send("abc")
        await asyncio.sleep(1)
        await stage.crash("r1")
        await asyncio.sleep(1.5)
        await stage.crash("r2")
        await asyncio.sleep(2)
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(12)
        await stage.quiet()
        await stage.end()

    stage = play(tmp_path, story)
    ends = []
    kept = []
    for name in ("r1", "r2"):
        archive = Archive(tmp_path / name)
        lost: list[Loss] = []
        kept.append(
            [record._replace(timestamp=0) for record in archive.records(fail_on_loss=False, on_loss=lost.append)]
        )
        assert [loss.reason for loss in lost] == ["hole"]
        ends.append(lost[0])
        assert any(f"positions {lost[0].begin} to {lost[0].stop - 1} are a hole" in word for word in stage.words[name])
        assert not [record for record in kept[-1] if lost[0].begin <= record.position < lost[0].stop]
    assert any("were caught up from r2/" in word for word in stage.words["r1"]), "what r2 still saw is no hole"
    common = max(loss.stop for loss in ends)
    assert [record for record in kept[0] if record.position >= common] == [
        record for record in kept[1] if record.position >= common
    ]
    first = min(loss.begin for loss in ends)
    assert [record for record in kept[0] if record.position < first] == [
        record for record in kept[1] if record.position < first
    ]


def test_a_recorder_that_was_excluded_and_comes_back_in_the_same_life_catches_up(tmp_path: Path) -> None:
    async def story(stage: Stage) -> None:
        await stage.members("abc")
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(2)
        stage.send("abc")
        await asyncio.sleep(1)
        world = stage._node.world
        world.pause("r1")
        await asyncio.sleep(6)
        world.resume("r1")
        await asyncio.sleep(5)
        await stage.quiet()
        await stage.end()

    stage = play(tmp_path, story)
    assert messages(tmp_path / "r1") == messages(tmp_path / "r2")
    assert any("this member was excluded" in word for word in stage.words["r1"])
    assert stage.recorders["r1"].tally.caught_up > 0


def test_what_only_a_member_left_behind_was_given_is_moved_away_and_replaced(tmp_path: Path) -> None:
    """docs/design/overview.md section 3: AGREED does not rule it out. The sequencer is cut off with r1, and goes on
    ordering."""

    async def story(stage: Stage) -> None:
        await stage.members("abcd")
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(2)
        for number in range(20):
            await stage.groups["b"].send(b"before %d" % number, AGREED)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        stage._node.world.network.partition([("a", "r1")])
        for number in range(5):
            await stage.groups["a"].send(b"alone %d" % number, AGREED)
            await asyncio.sleep(0.01)
        await asyncio.sleep(8)
        for number in range(30):
            await stage.groups["b"].send(b"after %d" % number, AGREED)
        await asyncio.sleep(1)
        stage._node.world.network.partition([])
        await asyncio.sleep(10)
        await stage.groups["b"].send(b"together", AGREED)
        await asyncio.sleep(2)
        await stage.end()

    stage = play(tmp_path, story, "sequencer")
    one, two = messages(tmp_path / "r1"), messages(tmp_path / "r2")
    assert one == two
    assert [record.value for record in two][-1] == b"together"
    assert not [record for record in one if record.value.startswith(b"alone") and record not in two]
    said = [word for word in stage.words["r1"] if "were given to this member alone" in word]
    assert said, stage.words["r1"]
    assert list((tmp_path / "r1").glob("fork-*.ocl"))


async def one_life(stage: Stage) -> None:
    """A group of one sender and r1, which both stop at the end."""
    await stage.members("a")
    stage.record("r1")
    await asyncio.sleep(1)
    await stage.groups["a"].send_many([b"old %d" % number for number in range(10)])
    await asyncio.sleep(2)
    await stage.end()


def epochs_of(folder: Path) -> list[list[bytes]]:
    """The values of each epoch; every position of one lies before every position of the next."""
    archive = Archive(folder)
    archive.refresh()
    return [[record.value for record in archive.records(each.first, each.stop)] for each in archive.epochs]


def test_a_recorder_goes_on_in_its_folder_when_the_group_was_created_anew(tmp_path: Path) -> None:
    async def again(stage: Stage) -> None:
        stage.record("r1")  # it creates the group
        await asyncio.sleep(1)
        await stage.members("a")
        await stage.groups["a"].send_many([b"new %d" % number for number in range(5)])
        await asyncio.sleep(2)
        await stage.end()

    play(tmp_path, one_life)
    before = messages(tmp_path / "r1")
    stage = play(tmp_path, again, seed=2)
    assert any("was created anew and counts from 0 again: a new epoch begins" in word for word in stage.words["r1"])
    after = messages(tmp_path / "r1")
    assert after[: len(before)] == before
    assert [record.value for record in after[len(before) :]] == [b"new %d" % number for number in range(5)]
    assert [record.position for record in after] == sorted({record.position for record in after})
    archive = Archive(tmp_path / "r1")
    archive.refresh()
    old, new = archive.epochs
    assert (old.base, old.stop) == (0, new.base)
    assert after[len(before)].position - new.base == 0, "the group's own position"
    # A third life: an archive with two epochs is resumed like any other.
    play(tmp_path, again, seed=3)
    assert [len(each) for each in epochs_of(tmp_path / "r1")] == [10, 5, 5]


def test_a_recorder_that_comes_late_to_a_new_group_gets_its_beginning_from_another_recorder(tmp_path: Path) -> None:
    """The other archive begins with this log, so the two have different bases, and the same messages in the epoch."""

    async def second(stage: Stage, sent: int) -> None:
        await stage.members("b")
        stage.record("r2")
        await asyncio.sleep(1)
        if sent:
            await stage.groups["b"].send_many([b"new %d" % number for number in range(sent)])
        await asyncio.sleep(1)
        stage.record("r1")
        await asyncio.sleep(3)
        await stage.groups["b"].send_many([b"last"] * 3)
        await asyncio.sleep(5)
        await stage.end()

    for sent in (0, 5, 50):
        shutil.rmtree(tmp_path / "r1", ignore_errors=True)
        shutil.rmtree(tmp_path / "r2", ignore_errors=True)
        play(tmp_path, one_life)
        stage = play(tmp_path, partial(second, sent=sent), seed=2)
        expected = [b"new %d" % number for number in range(sent)] + [b"last"] * 3
        assert epochs_of(tmp_path / "r1") == [[b"old %d" % number for number in range(10)], expected]
        assert epochs_of(tmp_path / "r2") == [expected]
        assert stage.recorders["r1"].tally.holes == 0
        assert not list((tmp_path / "r1").glob("fork-*"))


def test_a_recorder_with_a_later_epoch_serves_one_that_was_away(tmp_path: Path) -> None:
    """r1 has the base 10 and r2 the base 0: the pieces that r1 gives have the group's positions."""

    async def second(stage: Stage) -> None:
        await stage.members("b")
        stage.record("r1")
        stage.record("r2")
        await asyncio.sleep(2)
        await stage.groups["b"].send_many([b"both"] * 20)
        await asyncio.sleep(1)
        await stage.crash("r2")
        await asyncio.sleep(4)
        await stage.groups["b"].send_many([b"only r1"] * 20)
        await asyncio.sleep(1)
        stage.record("r2")
        await asyncio.sleep(6)
        await stage.end()

    play(tmp_path, one_life)
    stage = play(tmp_path, second, seed=2)
    assert any("were caught up from r1/" in word for word in stage.words["r2"]), stage.words
    expected = [b"both"] * 20 + [b"only r1"] * 20
    assert epochs_of(tmp_path / "r2") == [expected]
    assert epochs_of(tmp_path / "r1")[1:] == [expected]
    base = Archive(tmp_path / "r1")
    base.refresh()
    moved = [record._replace(position=record.position + base.epochs[-1].base) for record in messages(tmp_path / "r2")]
    assert messages(tmp_path / "r1")[10:] == moved


def test_a_new_group_that_went_on_before_the_end_of_the_archive_is_told_without_another_recorder(
    tmp_path: Path,
) -> None:
    """r1 comes when the new group has 4 messages, and has 10 of the old one: what it missed is a hole of the epoch."""

    async def second(stage: Stage) -> None:
        await stage.members("b")
        await stage.groups["b"].send_many([b"missed"] * 4)
        await asyncio.sleep(1)
        stage.record("r1")
        await asyncio.sleep(PATIENCE_S + 2)
        await stage.groups["b"].send_many([b"new"] * 5)
        await asyncio.sleep(PATIENCE_S + 2)
        await stage.end()

    play(tmp_path, one_life)
    stage = play(tmp_path, second, seed=2)
    archive = Archive(tmp_path / "r1")
    archive.refresh()
    assert [each.base for each in archive.epochs] == [0, 10]
    (loss,) = archive.losses
    assert (loss.begin, loss.stop, loss.reason) == (10, 14, "hole")
    assert stage.recorders["r1"].tally.holes == 4
    kept = [record.value for record in archive.records(fail_on_loss=False)]
    assert kept == [b"old %d" % number for number in range(10)] + [b"new"] * 5


def test_what_nobody_can_tell_is_asked_of_the_user_and_the_flag_is_enough(tmp_path: Path) -> None:
    """The other recorder comes after r1, which took the new group for the old one: r1 refuses, and names the flag."""

    async def first(stage: Stage) -> None:
        await stage.members("a")
        stage.record("r1")
        await asyncio.sleep(1)
        await stage.groups["a"].send_many([b"old"] * 10)
        await asyncio.sleep(2)
        await stage.end()

    async def second(stage: Stage) -> None:
        await stage.members("bcde")
        stage.record("r2")
        await asyncio.sleep(1)
        await stage.groups["b"].send_many([b"new"] * 50)
        await asyncio.sleep(1)
        await stage.crash("r2")
        await asyncio.sleep(3)
        stage.record("r1")
        await asyncio.sleep(2)
        stage.record("r2")
        with pytest.raises(OtherLog, match="the group was created anew; start the recorder once with --new-epoch"):
            await stage.ended("r1")
        await stage.nodes["r1"].close()
        stage.record("r1", new_epoch=True)
        await asyncio.sleep(PATIENCE_S + 4)
        await stage.end()

    play(tmp_path, first)
    stage = play(tmp_path, second, seed=2)
    archive = Archive(tmp_path / "r1")
    archive.refresh()
    last = archive.epochs[-1]
    assert [record.value for record in archive.records(last.first, last.stop)] == [b"new"] * 50, stage.words
    assert [record.value for record in Archive(tmp_path / "r1").records(0, 10)] == [b"old"] * 10


@pytest.mark.parametrize("when_full", ["stop", "wait"])
def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path: Path, when_full: str) -> None:
    disk = Disk(room=20_000)

    async def story(stage: Stage) -> None:
        await stage.members("ab")
        stage.record("r2")
        await asyncio.sleep(2)
        stage.record("r1", disk, when_full=when_full)
        await asyncio.sleep(2)
        stage.send("ab")
        if when_full == "stop":
            with pytest.raises(ArchiveFull, match="No space left"):
                await stage.ended("r1")
            await stage.nodes["r1"].close()
            stage.record("r1")
        else:
            while not any("waits for room" in word for word in stage.words["r1"]):
                await asyncio.sleep(0.1)
            await asyncio.sleep(3)
            disk.room = 1 << 40
        await asyncio.sleep(5)
        await stage.quiet()
        await stage.end()

    stage = play(tmp_path, story)
    one, two = messages(tmp_path / "r1"), messages(tmp_path / "r2")
    assert one == two[len(two) - len(one) :]
    assert len(one) > 300
    if when_full == "wait":
        assert any("recording waits for room" in word for word in stage.words["r1"])
        assert any("there is room again" in word for word in stage.words["r1"])
        assert stage.recorders["r1"].tally.caught_up == 0
    else:
        assert stage.recorders["r1"].tally.caught_up > 0
