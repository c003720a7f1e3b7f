"""The membership service on real sockets: replicas, embedded ones, and the command (docs/design/gms.md)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.sim.gms_world import Attendant

from ordercast import Node
from ordercast.cli.gms import tell_replicas
from ordercast.cli.main import main
from ordercast.config import Timing
from ordercast.errors import UsageError
from ordercast.gms.replica import GmsReplica
from ordercast.runtime.node import SessionNode
from ordercast.view import Address
from ordercast.wire.gms import Replica

NAMES = [f"topic/{index:06}" for index in range(20_000)]


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def whole() -> None:
        asyncio.run(test())

    return whole


async def until(holds: Callable[[], bool], within_s: float = 30) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.02)


def attend(node: SessionNode, names: list[str], *addresses: Address) -> Attendant:
    driver, _ = node.parts
    attendant = Attendant(driver.host, driver.now_ns(), addresses)
    driver.host.attached.add(attendant)
    attendant.attendance.join(driver.now_ns(), names)
    driver.host.touch(attendant)
    driver.wake()
    return attendant


def knows_all(attendant: Attendant, names: list[str]) -> bool:
    table = attendant.attendance.table
    return not attendant.attendance.pending() and all(table.regions(table.number(name)) for name in names)


@in_loop
async def test_nodes_in_very_many_groups_share_one_region() -> None:
    """One node tells the names, the others their signature."""
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(SessionNode("desk"))
        replica = GmsReplica(desk, desk.parts[0], Timing())
        running = asyncio.create_task(replica.run())
        nodes = [await stack.enter_async_context(SessionNode(name)) for name in ("a", "b", "c", "d")]
        attendants = [attend(node, NAMES, desk.address) for node in nodes]
        await until(lambda: all(len(each.neighbours) == 4 and knows_all(each, NAMES) for each in attendants))
        directory = replica.desk.directory
        assert len(directory.names) == len(NAMES)
        assert len(directory.regions) == 1
        assert {each.attendance.table.number(NAMES[-1]) for each in attendants} == {len(NAMES)}
        replica.stop()
        await running


@in_loop
async def test_the_first_nodes_of_a_network_are_its_service() -> None:
    async with AsyncExitStack() as stack:
        nodes = []
        for name in ("e1", "e2", "e3", "e4"):
            nodes.append(await stack.enter_async_context(Node(name, gms="embedded")))
            await until(lambda: _replicas(nodes) == min(len(nodes), 3))
        assert nodes[0].service_addresses == [nodes[0].address]
        assert _replicas(nodes) == 3
    assert all(node.is_closed for node in nodes)


def _replicas(nodes: list[Node]) -> int:
    services = [node.embedded_service for node in nodes]
    replicas = [service.replica for service in services if service is not None]
    return sum([replica is not None and replica.is_ready for replica in replicas])


@in_loop
async def test_addresses_of_the_service_are_checked() -> None:
    with pytest.raises(UsageError, match="embedded"):
        Node("x", gms="10.0.0.1:7000")
    with pytest.raises(UsageError, match="not 3"):
        Node("x", gms=3)  # type: ignore[arg-type]
    async with Node("y", gms=["127.0.0.1:7000"]) as node:
        assert node.service_addresses == [("127.0.0.1", 7_000)]
        assert node.embedded_service is None


@in_loop
async def test_the_command_runs_a_replica_until_it_is_told_to_stop() -> None:
    """What it leaves behind is what `ordercast plan` begins from."""
    with TemporaryDirectory() as folder:
        kept = Path(folder) / "now.csv"
        command = [sys.executable, "-m", "ordercast.cli.main", "gms", "--name", "cli", "--json", "--dump", str(kept)]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(20):
                status = json.loads(await process.stdout.readline())
            assert status["is_leading"]
            host, port = status["address"].split(":")
            async with SessionNode("a") as node:
                attendant = attend(node, ["fx"], (host, int(port)))
                await until(lambda: attendant.neighbours == ["a"])
                async with asyncio.timeout(20):
                    while json.loads(await process.stdout.readline())["groups"] != 1:
                        pass
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(20):
                    assert await process.wait() == 0
            assert kept.read_text().splitlines() == ["node,group", "a,fx"]
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_what_the_command_cannot_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["--plan", str(tmp_path)], "is no plan: it has no plan.json"),
        (["--dump", str(tmp_path / "now.txt")], "now.txt is neither .parquet nor .csv"),
        (["--dump", str(tmp_path / "none" / "now.csv")], "none is no folder"),
        (["--host", "192.0.2.7"], "192.0.2.7 is not on loopback, and nothing is encrypted yet: add --insecure"),
    ):
        assert main(["gms", *words]) == 2
        assert says in capsys.readouterr().err


def test_a_status_that_nobody_answers_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    tell_replicas([], has_peers=False, as_json=False)
    told = capsys.readouterr()
    assert not told.out
    assert told.err == (
        "ordercast gms: no replica answered within 1 s; where multicast does not reach them, name them with --peers\n"
    )
    tell_replicas([Replica(7, 3, 1, ("127.0.0.1", 7_000), 0, ("", 0))], has_peers=False, as_json=False)
    told = capsys.readouterr()
    assert told.out == "127.0.0.1:7000: service 0000000000000007, epoch 3, leader at None\n"
    assert not told.err


@in_loop
async def test_placements_are_checked() -> None:
    with pytest.raises(UsageError, match="a placement is for a node that runs the service"):
        Node("x", placement={"x": 0})
    wrong: list[Any] = [{"x": -1}, {"x": "1"}, {"x": True}, {"": 0}, [("x", 0)]]
    for placement in wrong:
        with pytest.raises(UsageError, match="placement"):
            Node("x", gms="embedded", placement=placement)
