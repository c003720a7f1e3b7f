"""The membership service in virtual time: three replicas, nodes that only attend (docs/design/gms.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.sim.gms_world import GmsWorld

from ordercast.config import SECOND
from ordercast.gms.dump import dump
from ordercast.membership.given import Attending
from ordercast.sim.api import Simulation, simulate
from ordercast.wire.regions import Accusation, Accused

LIMIT_NS = 600 * SECOND


def run(program: Callable[[GmsWorld], Awaitable[None]], seed: int = 1) -> None:
    async def whole(make: Simulation) -> None:
        world = GmsWorld(make)
        await program(world)
        await world.stop()

    simulate(whole, seed=f"gms/{seed}", limit_ns=LIMIT_NS)


def test_one_replica_is_enough_and_nodes_with_the_same_groups_meet() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        for name in ("a", "b", "c"):
            world.attend(name, "fx", "news")
        world.attend("d", "fx")
        await world.settled()
        assert world.attendants["a"].neighbours == ["a", "b", "c"]
        assert world.attendants["d"].neighbours == ["d"]
        table = world.attendants["d"].attendance.table
        assert len(table.regions(table.number("fx"))) == 2
        assert table.number("news") == 0

    run(program)


@pytest.mark.parametrize("seed", range(3))
def test_replicas_have_the_same_directory(seed: int) -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for index, name in enumerate("abcdef"):
            world.attend(name, "fx", f"g{index % 2}")
        await world.settled()
        world.act("a", lambda now_ns: world.attendants["a"].attendance.leave(now_ns, ["fx"]))
        world.act("b", lambda now_ns: world.attendants["b"].attendance.follow(now_ns, ["g0", "x"]))
        await world.settled()
        await asyncio.sleep(2)
        dumps = {dump(replica.desk.directory) for replica in world.replicas.values()}
        assert len(dumps) == 1
        assert world.attendants["c"].neighbours == ["c", "e"]

    run(program, seed)


@pytest.mark.parametrize("seed", range(3))
def test_the_next_replica_goes_on_when_the_leader_crashes(seed: int) -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for name in "abc":
            world.attend(name, "fx")
        await world.settled()
        service = world.attendants["a"].attendance.service
        former = world.leader
        world.crash(former)
        world.act("a", lambda now_ns: world.attendants["a"].attendance.join(now_ns, ["news"]))
        world.attend("d", "fx")
        await world.settled()
        assert world.leader not in ("", former)
        assert world.attendants["b"].neighbours == ["b", "c", "d"]
        assert {each.attendance.service for each in world.attendants.values()} == {service}
        assert not any(each.outs for each in world.attendants.values())

    run(program, seed)


def test_replicas_are_restarted_one_after_the_other_and_the_directory_goes_on() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for name in "abc":
            world.attend(name, "fx", *[f"g{index}" for index in range(500)])
        await world.settled()
        service = world.attendants["a"].attendance.service
        restarted: list[str] = []
        for _ in range(4):
            restarted.append(world.leader)
            world.crash(world.leader)
            await world.until(lambda: world.leader not in ("", restarted[-1]), "another replica leads")
            await world.replica(restarted[-1])
            directories = {dump(replica.desk.directory) for replica in world.replicas.values()}
            assert len(directories) == 1
        world.attend("d", "fx")
        await world.settled()
        assert len(set(restarted)) > 1
        assert {each.attendance.service for each in world.attendants.values()} == {service}
        assert not any(each.outs for each in world.attendants.values())

    run(program)


def test_a_node_that_crashed_is_pinged_and_excluded_after_an_accusation() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for name in "abc":
            world.attend(name, "fx")
        await world.settled()
        gone = world.attendants["c"].me.id
        world.crash("c")
        await asyncio.sleep(10)
        assert world.attendants["a"].neighbours == ["a", "b", "c"], "nobody has accused it"
        accused = Accused(gone, world.attendants["a"].views[1].view, 1, Accusation.TOKEN)
        world.act("a", lambda now_ns: world.attendants["a"].attendance.accuse(now_ns, accused))
        accused = accused._replace(node=world.attendants["b"].me.id)
        world.act("a", lambda now_ns: world.attendants["a"].attendance.accuse(now_ns, accused))
        before = world.now_s()
        await world.until(lambda: world.attendants["a"].neighbours == ["a", "b"], "it is out")
        assert world.now_s() - before < 6
        assert gone in world.attendants["b"].epochs[-1].excluded or world.attendants["b"].neighbours == ["a", "b"]
        await world.settled()
        assert world.attendants["b"].outs == 0, "b answered its ping"

    run(program)


def test_a_node_that_is_alone_in_its_region_is_missed_without_an_accusation() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        world.attend("a", "fx")
        world.attend("b", "news")
        await world.settled()
        world.crash("b")
        await world.settled()

    run(program)


def test_a_node_that_was_away_comes_back_as_new() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        for name in "ab":
            world.attend(name, "fx")
        await world.settled()
        world.make.world.network.partition([["r1", "a"], ["b"]])
        accused = Accused(world.attendants["b"].me.id, 1, 1, Accusation.TOKEN)
        world.act("a", lambda now_ns: world.attendants["a"].attendance.accuse(now_ns, accused))
        await world.until(lambda: world.attendants["a"].neighbours == ["a"], "b is out")
        world.make.world.network.heal()
        world.act("b", lambda now_ns: world.attendants["b"].attendance.join(now_ns, ["news"]))
        await world.until(lambda: world.attendants["b"].outs == 1, "b hears that it is out")
        world.act("a", lambda now_ns: world.attendants["a"].attendance.join(now_ns, ["news"]))
        await world.settled()
        assert world.attendants["a"].neighbours == ["a", "b"]

    run(program)


@pytest.mark.parametrize("seed", range(3))
def test_the_larger_side_of_a_partition_goes_on_and_the_other_installs_nothing(seed: int) -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for name in "abcd":
            world.attend(name, "fx")
        await world.settled()
        minority = world.leader
        majority = [name for name in world.replicas if name != minority]
        world.make.world.network.partition([[*majority, "a", "b"], [minority, "c", "d"]])
        frozen = {name: len(world.attendants[name].epochs) for name in "cd"}
        await world.until(lambda: world.leader in majority, "the majority has a leader")
        world.act("a", lambda now_ns: world.attendants["a"].attendance.join(now_ns, ["news"]))
        await world.until(lambda: world.attendants["a"].neighbours == ["a"], "the majority goes on")
        await world.until(lambda: world.attendants["b"].neighbours == ["b"], "and excludes the others")
        assert {name: len(world.attendants[name].epochs) for name in "cd"} == frozen
        world.make.world.network.heal()
        for name in "cd":
            world.join(name, "news")
        await world.settled()
        assert world.attendants["a"].neighbours == ["a", "c", "d"]

    run(program, seed)


def test_a_node_that_does_not_confirm_is_excluded() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        world.attend("a", "fx")
        world.attend("b", "fx", confirms=False)
        await world.until(lambda: world.attendants["a"].neighbours == ["a", "b"], "both are in")
        world.attend("c", "fx")
        await world.until(lambda: world.attendants["b"].outs == 1, "b is out", 60)

    run(program)


def test_a_node_may_attend_the_replica_that_it_runs() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1", "r2", "r3")
        for name in ("r1", "r2", "a"):
            world.attend(name, "fx", addresses=(world.nodes["r1"].host.me.address,))
        await world.settled()
        assert world.attendants["a"].neighbours == ["r1", "r2", "a"]
        world.crash("r2")
        world.accuse("a", world.replicas["r2"].desk.id)
        world.accuse("a", world.nodes["r2"].host.me.id)
        await world.settled()
        assert world.attendants["r1"].neighbours == ["r1", "a"]

    run(program)


def test_a_node_departs_in_order() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        for name in "ab":
            world.attend(name, "fx")
        await world.settled()
        leaver = world.attendants.pop("b")
        world.attendants["b"] = leaver
        world.act("b", leaver.attendance.depart)
        await world.until(lambda: leaver.attendance.state is Attending.LEFT, "b has left")
        del world.attendants["b"]
        await world.settled()
        assert world.attendants["a"].neighbours == ["a"]

    run(program)


def test_when_all_replicas_are_gone_nodes_go_to_the_next_service_as_new() -> None:
    async def program(world: GmsWorld) -> None:
        await world.replica("r1")
        for name in "ab":
            world.attend(name, "fx")
        await world.settled()
        service = world.attendants["a"].attendance.service
        world.crash("r1")
        await world.replica("r2")
        for name in "ab":
            world.join(name, "news")
        await world.settled()
        assert world.attendants["a"].outs == 1
        assert world.attendants["a"].attendance.service != service
        assert world.attendants["b"].neighbours == ["a", "b"]

    run(program)
