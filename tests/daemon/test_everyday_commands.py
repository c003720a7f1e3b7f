"""`ordercast status, groups, members, send, listen, call`: through a daemon, and as nodes of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.daemon.processes import command, daemon
from tests.network.quick import QUICK, fresh, within

from ordercast import Group, Message, Node, connect
from ordercast.cli.main import main


async def swallow(group: Group) -> None:
    async for _ in group:
        pass


@asynccontextmanager
async def serving(group: Group) -> AsyncIterator[None]:
    """The group has a member that answers in capital letters, as handler 2."""

    async def serve() -> None:
        async with group.handler(2) as requests:
            async for request in requests:
                await request.reply(request.payload.upper())

    tasks = [asyncio.create_task(swallow(group)), asyncio.create_task(serve())]
    while "2" not in group.locks:
        await asyncio.sleep(0.005)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


@within(120)
async def test_calls_work_through_a_daemon_whose_orderer_has_them(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path, f"d-{fresh()}", "--orderer", "token", "--underlay", fresh(), "--listen", "none") as one,
        await connect(one.address, name="server") as server,
    ):
        where = ("--daemon", one.address)
        async with serving(await server.join("calculator")):
            code, out, errors = await command("call", "calculator", "what?", "--handler", "2", *where)
            assert (code, out, errors) == (0, "WHAT?\n", "")
            code, out, _ = await command("call", "calculator", "what?", "--handler", "2", "--json", *where)
            assert json.loads(out) == {
                "group": "calculator", "handler": 2, "service": "AGREED", "answer": "WHAT?",
            }  # fmt: skip
            code, out, _ = await command("call", "calculator", "only told", *where)
            assert (code, out) == (0, "delivered to calculator\n")
            code, _, errors = await command("call", "calculator", "?", "--handler", "3", *where)
            assert code == 1
            assert "nobody holds handler 3" in errors


@within(120)
async def test_calls_through_a_daemon_of_sites_say_that_its_orderer_has_none(tmp_path: Path) -> None:
    async with daemon(tmp_path, "d", "--listen", "none") as one:
        code, _, errors = await command("call", "calculator", "?", "--handler", "2", "--daemon", one.address)
        assert code == 2
        assert 'need orderer="token"' in errors


@within(120)
async def test_the_commands_work_without_a_daemon() -> None:
    name = fresh()
    async with Node("ann", timing=QUICK) as ann:
        group = await ann.join(name)
        async with serving(group):
            code, out, errors = await command("call", name, "what?", "--handler", "2", "--embedded")
            assert (code, out, errors) == (0, "WHAT?\n", "")
            code, out, _ = await command("members", name, "--embedded", "--json")
            assert (code, json.loads(out)["members"]) == (0, [str(ann.member)])
            host, port = ann.member.address
            code, out, _ = await command("groups", "--embedded", "--peers", f"{host}:{port}", "--json")
            assert [each["name"] for each in json.loads(out)["groups"]] == [name]
            code, out, _ = await command("status", "--embedded", "--peers", f"{host}:{port}")
            assert code == 0
            assert f"{host}:{port}" in out
            listening = asyncio.create_task(command("listen", name, "--count", "1", "--json", "--embedded"))
            while len(group.members) < 2:
                await asyncio.sleep(0.01)
            code, out, errors = await command("send", name, "hello", "--embedded", "--json")
            assert (code, errors) == (0, "")
            assert json.loads(out)["sent"] == 1
            code, out, _ = await listening
            assert code == 0
            assert json.loads(out.splitlines()[-1])["payload"] == "hello"


@within(120)
async def test_the_commands_work_as_a_node_in_a_shared_underlay() -> None:
    floor = fresh()
    async with Node("ann", timing=QUICK) as ann:
        shared = await ann.attach(floor)
        own = ("--embedded", "--underlay", floor)
        group = await ann.join("prices", underlay=floor)
        async with serving(group):
            code, out, errors = await command("status", "--json", *own)
            assert (code, errors) == (0, "")
            status = json.loads(out)
            assert str(ann.member) in status["daemons"]
            assert (status["underlay"], status["orderer"], status["groups"]) == (floor, "token", 1)
            code, out, _ = await command("groups", "--json", *own)
            assert json.loads(out)["groups"] == [{"name": "prices", "members": 1}]
            code, out, _ = await command("members", "prices", *own)
            assert out.strip() == str(ann.member)
            code, out, _ = await command("call", "prices", "what?", "--handler", "2", *own)
            assert (code, out) == (0, "WHAT?\n")
            assert len(shared.members) == 1
        code, out, _ = await command("send", "prices,trades", "hello", *own)
        assert (code, out) == (0, "1 delivered to prices, trades\n")


@within(120)
async def test_send_without_a_daemon_is_received_by_the_members() -> None:
    name = fresh()
    async with Node("ann", timing=QUICK) as ann:
        group = await ann.join(name)
        sending = asyncio.create_task(command("send", name, "one", "two", "--embedded", "--service", "SAFE"))
        found: list[tuple[bytes, str]] = []
        while len(found) < 2:
            event, _ = await group.receive()
            if isinstance(event, Message):
                found.append((event.payload, str(event.service)))
        assert found == [(b"one", "SAFE"), (b"two", "SAFE")]
        receiving = asyncio.create_task(swallow(group))
        assert (await sending)[0] == 0
        receiving.cancel()


WRONG = {
    "no daemon there": (["status", "--daemon", "unix:/nowhere/at/all"], "no daemon answers"),
    "a host that can be none": (["status", "--daemon", "tcp://a..b:4810"], "is no name of a host"),
    "a door that can be none": (["daemon", "--listen", "a..b:4810", "--insecure"], "is no name of a host"),
    "an address that is none": (["groups", "--daemon", "udp:1"], "a daemon is at"),
    "a flag of nodes without --embedded": (["listen", "g", "--orderer", "token"], "give --embedded with it"),
    "an underlay without --embedded": (["send", "g", "x", "--underlay", "u"], "give --embedded with it"),
    "a daemon with --embedded": (["listen", "g", "--embedded", "--daemon", "unix:x"], "leave --daemon out"),
    "nothing to look at": (["groups", "--embedded"], "--underlay NAME, or --peers"),
    "status of nothing": (["status", "--embedded"], "--underlay NAME, or --peers"),
    "sites without a file": (["members", "g", "--embedded", "--orderer", "sites"], "give --sites FILE"),
    "another orderer with sites": (["listen", "g", "--embedded", "--orderer", "token", "--sites", "x"], "goes with"),
    "several groups without an underlay": (["send", "a,b", "x", "--embedded"], "needs a shared underlay"),
    "no service": (["call", "g", "x", "--service", "BEST"], "BEST"),
    "an address of no interface": (["listen", "g", "--embedded", "--host", "10.255.1.2"], "loopback"),
    "a group's name that is none": (["send", "\x01,b", "x"], "name"),
}


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_one_sentence_and_exit_code_2(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, text = WRONG[what]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert text in captured.err
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["call", "g"],
        ["call", "g", "x", "--handler", "6"],
        ["call", "g", "x", "--timeout", "soon"],
        ["send", "g", "x", "--priority", "16"],
        ["listen"],
        ["listen", "g", "--embedded", "--orderer", "magic"],
        ["members", ""],
    ],
)
def test_flags_that_cannot_be_are_refused_by_the_parser(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("ordercast")
