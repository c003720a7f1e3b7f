"""Daemons and clients as real processes: the commands, kill -9 of a client and of a daemon, a stop in order."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.daemon.processes import command, daemon, two_sites
from tests.network.quick import within

from ordercast import Group, Left, Message, OutcomeUnknown, Uncertain, View, connect, connect_blocking
from ordercast.cli.main import main
from ordercast.daemon.config import load_daemon_config
from ordercast.wire.endings import SessionEnd, read_ending

QUIET = ("--listen", "none")
CLIENT = """
import sys, ordercast

async def main():
    node = await ordercast.connect(sys.argv[1], name=sys.argv[2])
    group = await node.join("prices")
    await group.send(b"here", confirm=True)
    async for event in group:
        pass

ordercast.run(main())
"""


async def next_view(group: Group, *labels: str) -> View:
    """The view whose members have these labels."""
    while True:
        event, _ = await group.receive()
        if isinstance(event, View) and sorted(member.label for member in event.members) == sorted(labels):
            return event


async def next_payload(group: Group) -> bytes:
    while True:
        event, _ = await group.receive()
        if isinstance(event, Message):
            return event.payload


@within(60)
async def test_the_commands_work_through_a_daemon(tmp_path: Path) -> None:
    async with daemon(tmp_path, "d", *QUIET) as one:
        where = ("--daemon", one.address)
        assert one.ready["clients"] == [one.address]
        assert one.ready["orderer"] == "sites"
        async with await connect(one.address, name="alice") as alice:
            group = await alice.join("prices")
            code, out, errors = await command("send", "prices,trades", "hello", "--json", *where)
            assert (code, errors) == (0, "")
            assert json.loads(out)["sent"] == 1
            assert await next_payload(group) == b"hello"
            code, out, _ = await command("members", "prices", *where)
            assert (code, out.strip()) == (0, str(alice.member))
            code, out, _ = await command("groups", "--json", *where)
            assert json.loads(out)["groups"] == [{"name": "prices", "members": 1}]
            code, out, _ = await command("status", *where)
            assert code == 0
            assert str(alice.member) in out
            listening = asyncio.create_task(command("listen", "prices", "--count", "1", "--json", *where))
            while len((await alice.ask("members", "prices"))["members"]) < 2:
                await asyncio.sleep(0.01)
            await group.send(b"to all")
            code, out, _ = await listening
            assert code == 0
            assert json.loads(out.splitlines()[-1])["payload"] == "to all"
        assert (await command("members", "nobody", *where))[0] == 2
        code, _, errors = await command("status", "--daemon", f"unix:{tmp_path}/elsewhere")
        assert code == 2
        assert "start one with `ordercast daemon`" in errors
        assert await one.terminate() == 0
        assert "has connected" in one.log
        assert not one.path.exists()


@within(60)
async def test_a_client_that_is_killed_leaves_its_groups_and_the_others_see_why(tmp_path: Path) -> None:
    async with daemon(tmp_path, "d", *QUIET) as one, await connect(one.address, name="alice") as alice:
        group = await alice.join("prices")
        words = [sys.executable, "-c", CLIENT, one.address, "bob"]
        process = await asyncio.create_subprocess_exec(*words)
        await next_view(group, "alice", "bob")
        assert await next_payload(group) == b"here"
        process.kill()
        view = await next_view(group, "alice")
        ending = read_ending(view.header)
        assert ending is not None
        assert ending.why is SessionEnd.LOST
        await process.wait()


@within(60)
async def test_a_client_that_sleeps_is_put_out_and_delays_nobody(tmp_path: Path) -> None:
    async with (
        daemon(tmp_path, "d", *QUIET, "--session-limit", "256KiB", "--patience", "0s") as one,
        await connect(one.address, name="alice") as alice,
    ):
        group = await alice.join("prices")
        words = [sys.executable, "-c", CLIENT, one.address, "bob"]
        process = await asyncio.create_subprocess_exec(*words)
        await next_view(group, "alice", "bob")
        process.send_signal(signal.SIGSTOP)
        try:
            sending = asyncio.create_task(group.send_many([bytes(1_000)] * 20_000))
            view = await next_view(group, "alice")
            ending = read_ending(view.header)
            assert ending is not None
            assert ending.why is SessionEnd.SLOW
            sending.cancel()
            await asyncio.wait([sending])
        finally:
            process.kill()
            await process.wait()
        assert "was put out (slow)" in one.log


@within(90)
async def test_a_client_of_a_killed_daemon_goes_on_at_another_one(tmp_path: Path) -> None:
    file = str(two_sites(tmp_path))
    async with (
        daemon(tmp_path, "d1", file, *QUIET) as one,
        daemon(tmp_path, "d2", file, *QUIET) as two,
        await connect([one.address, two.address], name="alice") as alice,
        await connect(two.address, name="bob") as bob,
    ):
        mine, others = await alice.join("prices"), await bob.join("prices")
        await next_view(others, "alice", "bob")
        await next_view(mine, "alice", "bob")
        await mine.send(b"before", confirm=True)
        assert await next_payload(others) == b"before"
        os.kill(one.process.pid, signal.SIGSTOP)  # what is sent now is on its way when the daemon dies
        sending = asyncio.create_task(mine.send(b"perhaps", confirm=True))
        await asyncio.sleep(0)
        await one.kill()
        with pytest.raises(OutcomeUnknown):
            await sending
        told: list[type] = []
        while Left not in told:
            event, _ = await mine.receive()
            told.append(type(event))
        assert Uncertain in told
        view = await next_view(mine, "alice", "bob")
        assert {member.name for member in view.members} == {"d2"}
        await mine.send(b"after", confirm=True)
        while (payload := await next_payload(others)) == b"perhaps":
            pass
        assert payload == b"after"


@within(60)
async def test_a_daemon_that_stops_lets_its_sessions_leave_in_order(tmp_path: Path) -> None:
    file = str(two_sites(tmp_path))
    async with daemon(tmp_path, "d1", file, *QUIET) as one, daemon(tmp_path, "d2", file, *QUIET) as two:
        alice = await connect(one.address, name="alice", reconnect=False)
        async with await connect(two.address, name="bob") as bob:
            await alice.join("prices")
            group = await bob.join("prices")
            await next_view(group, "alice", "bob")
            assert await one.terminate() == 0
            view = await next_view(group, "bob")
            ending = read_ending(view.header)
            assert ending is not None
            assert ending.why is SessionEnd.STOPPED
        alice.abort()


@within(60)
async def test_a_daemon_tells_systemd_when_it_is_ready_and_when_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(tmp_path / "notify"))
        told.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with daemon(tmp_path, "d", *QUIET) as one:
            assert told.recv(1_000).startswith(b"READY=1")
            assert await one.terminate() == 0
            assert told.recv(1_000) == b"STOPPING=1"


def test_a_program_without_asyncio_uses_a_daemon(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/d.sock"
    words = [sys.executable, "-m", "ordercast.cli.main", "daemon", *QUIET, "--unix", f"{tmp_path}/d.sock"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert b"ready" in process.stdout.readline()
            with connect_blocking(address, name="alice") as alice, connect_blocking(address, name="bob") as bob:
                mine, others = alice.join("prices"), bob.join("prices")
                mine.send(b"hello", confirm=True)
                payloads: list[bytes] = []
                while not payloads:
                    event, _ = others.receive(timeout=10)
                    if isinstance(event, Message):
                        payloads.append(event.payload)
                assert payloads == [b"hello"]
                assert alice.ask("status", timeout=10)["sessions"] == 2
                assert alice.underlay.groups == ["prices"]
        finally:
            process.terminate()


def test_a_configuration_is_checked_and_errors_say_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = two_sites(tmp_path)
    assert main(["daemon", str(file), "--name", "d1", "--check", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["daemons"] == ["d1", "d2"]
    assert shown["session_limit"] == 1 << 20
    wrong = {
        (str(file),): "--name: d1, d2",
        (str(file), "--name", "d9"): "no daemon 'd9'",
        ("--listen", "192.0.2.1:4810"): "--insecure",
        ("--orderer", "dice"): "sites, sequencer",
        ("--session-limit", "1GiB"): "hold up all others",
        ("--unix", "none", "--listen", "none"): "--unix PATH",
        (str(file), "--orderer", "token"): "leave out the one or the other",
        ("--peers", "127.0.0.1:1"): "--orderer token",
        ("--port", "x"): "--port: a whole number",
        ("--name", "a@b"): "no name of a daemon",
        ("--orderer", "token", "--name", "a/b"): "no slash",
        ("--orderer", "token", "--host", "300.1.1.1"): "no IPv4 address",
        ("--orderer", "token", "--host", "192.0.2.1"): "--insecure",
        ("--orderer", "token", "--peers", "x:y"): "x:y",
        ("--orderer", "token", "--underlay", "x" * 300): "1 to 255 bytes",
        ("--site", "east"): "give its file",
        ("--listen", "4810"): "write host:port",
    }
    for words, text in wrong.items():
        assert main(["daemon", *words, "--check"]) == 2, words
        assert text in capsys.readouterr().err
    file.write_text(file.read_text(encoding="utf-8") + "colour = 3\n", encoding="utf-8")
    assert main(["daemon", str(file), "--name", "d1", "--check"]) == 2
    assert "[clients] has no key 'colour'" in capsys.readouterr().err


def test_flags_count_before_variables_and_both_before_the_file(tmp_path: Path) -> None:
    file = two_sites(tmp_path)
    variables = {"ORDERCAST_SESSION_LIMIT": "2MiB", "ORDERCAST_NAME": "d2", "ORDERCAST_CONFIG": str(file)}
    config = load_daemon_config(None, {"name": "d1"}, variables)
    assert (config.name, config.limits.session_bytes) == ("d1", 2 << 20)
    assert load_daemon_config(file, {}, {}).limits.session_bytes == 1 << 20
    assert load_daemon_config(None, {}, {}).sites is None
