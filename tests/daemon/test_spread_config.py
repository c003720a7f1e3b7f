"""Where a daemon takes clients of Spread: flags, the table `[spread]`, and a `spread.conf`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.daemon.spread_bytes import NULL_CHOICE, hello
from tests.daemon.spread_house import LOWEST_PORT, RawClient
from tests.network.quick import within

from ordercast.cli.local_sites import free_ports
from ordercast.cli.main import main
from ordercast.daemon.config import DaemonConfig, load_daemon_config
from ordercast.daemon.daemon import OrdercastDaemon, check_daemon
from ordercast.daemon.spread.access import AuthRules, parse_access
from ordercast.daemon.spread.config import SpreadConfig, own_daemon
from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.errors import UsageError
from ordercast.sites import parse_spread_conf

CONF = """\
Spread_Segment 127.0.0.255:24803 {
    elsewhere 203.0.113.7
    here 127.0.0.1 { D 127.0.0.1 C 127.0.0.2 C 127.0.0.1 }
}
MaxSessionMessages = 77
DebugFlags = { PRINT }
"""


def load(tmp_path: Path, text: str, file: str = "daemon.toml", **flags: object) -> DaemonConfig:
    path = tmp_path / file
    path.write_text(text)
    return load_daemon_config(path, flags, {})


def test_without_a_word_no_clients_of_spread_are_taken(tmp_path: Path) -> None:
    assert load_daemon_config(None, {}, {}).spread is None
    assert load(tmp_path, "").spread is None
    assert load(tmp_path, "[spread]", spread="none").spread is None


def test_an_empty_table_and_the_flag_mean_port_4803(tmp_path: Path) -> None:
    usual = SpreadConfig((("127.0.0.1", 4803),), "/tmp", SpreadSettings())
    assert load(tmp_path, "[spread]").spread == usual
    assert load_daemon_config(None, {"spread": "127.0.0.1:4803"}, {}).spread == usual
    assert load_daemon_config(None, {}, {"ORDERCAST_SPREAD": "4803"}).spread == usual
    assert usual.socket_port == 4803


@pytest.mark.parametrize("text", ["24803@127.0.0.3", "127.0.0.3:24803"])
def test_addresses_are_written_in_either_way(text: str) -> None:
    spread = load_daemon_config(None, {"spread": text, "spread_dir": "none"}, {}).spread
    assert spread is not None
    assert spread.listen == (("127.0.0.3", 24803),)
    assert spread.socket_port is None


def test_the_table_says_everything(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("local\n")
    text = f"""\
[spread]
listen = ["127.0.0.1:24803", "24804@127.0.0.2"]
unix_dir = "{tmp_path}"
auth = ["NULL", "IP"]
required_auth = "IP"
access = "{tmp_path / "list"}"
max_sessions = 12
max_message = "14MB"
max_messages = 100
grace = "250ms"
session_limit = "20MiB"
total_limit = "40MiB"
"""
    assert load(tmp_path, text).spread == SpreadConfig(
        (("127.0.0.1", 24803), ("127.0.0.2", 24804)),
        str(tmp_path),
        SpreadSettings(
            auth=AuthRules(("NULL", "IP"), ("IP",)),
            access=parse_access("local", "list"),
            max_sessions=12,
            max_message=14_000_000,
            max_messages=100,
            grace_s=0.25,
            max_bytes=20 << 20,
            total_bytes=40 << 20,
        ),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("port = 4803", r"daemon.toml:2: \[spread\] has no key 'port'"),
        ('listen = "nowhere"', "daemon.toml:2: 'listen': 'nowhere' is no address"),
        ('listen = "127.0.0.1:0"', "daemon.toml:2: 'listen': '127.0.0.1:0' is no address"),
        ('auth = ["PWORD"]', "daemon.toml:2: 'auth': a list of authentication methods"),
        ("max_message = 10", "daemon.toml:2: 'max_message': a limit of messages"),
        ('grace = "soon"', "daemon.toml:2: 'grace'"),
    ],
)
def test_a_mistake_in_the_table_is_told_with_its_line(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        load(tmp_path, f"[spread]\n{line}\n")


def test_a_spread_conf_says_who_the_daemon_is_and_where_clients_connect(tmp_path: Path) -> None:
    config = load(tmp_path, CONF, "spread.conf")
    assert config.name == "here"
    assert config.sites is not None
    assert [daemon.name for daemon in config.sites.daemons] == ["elsewhere", "here"]
    assert config.spread is not None
    assert config.spread.listen == (("127.0.0.2", 24803), ("127.0.0.1", 24803))
    assert config.spread.settings.max_messages == 77
    assert len(config.warnings) == 1
    check_daemon(config)
    assert load(tmp_path, CONF.replace("C 127.0.0.2", "C 0.0.0.0"), "spread.conf").spread == SpreadConfig(
        (("0.0.0.0", 24803),), "/tmp", config.spread.settings
    )
    assert load(tmp_path, CONF, "spread.conf", name="elsewhere").name == "elsewhere"
    assert load(tmp_path, CONF, "spread.conf", spread="none").spread is None


def test_a_file_without_an_address_of_this_machine_asks_for_the_name() -> None:
    conf = parse_spread_conf("Spread_Segment 203.0.113.255 { a 203.0.113.7 }", "spread.conf")
    with pytest.raises(UsageError, match="no daemon of the file has an address of this machine: give --name, one of a"):
        own_daemon(conf.sites)


def test_other_interfaces_than_loopback_need_a_word(tmp_path: Path) -> None:
    config = load(tmp_path, '[spread]\nlisten = "0.0.0.0:4803"\n')
    with pytest.raises(UsageError, match=r"clients would be let in at 0\.0\.0\.0"):
        check_daemon(config)


def test_the_command_checks_a_spread_conf_and_shows_its_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spread.conf"
    path.write_text(CONF)
    assert main(["daemon", str(path), "--check"]) == 0
    shown = capsys.readouterr()
    assert "24803@127.0.0.2, 24803@127.0.0.1" in shown.out
    assert f"{path}:6: DebugFlags has no effect" in shown.err


@within(60)
async def test_a_daemon_of_a_spread_conf_takes_clients_until_it_stops(tmp_path: Path) -> None:
    port = LOWEST_PORT + free_ports(1)[0] % 15_000
    path = tmp_path / "spread.conf"
    path.write_text(f"Spread_Segment 127.0.0.255:{port} {{ here 127.0.0.1 }}")
    flags = {"spread_dir": str(tmp_path), "unix": "none", "listen": ["none"]}
    daemon = OrdercastDaemon(load_daemon_config(path, flags, {}))
    async with daemon:
        assert daemon.addresses == [f"spread:{port}@127.0.0.1"]
        alice = RawClient(*await asyncio.open_connection("127.0.0.1", port))
        await alice.shake(b"alice")
        bob = RawClient(*await asyncio.open_unix_connection(str(tmp_path / str(port))))
        await bob.shake(b"bob")
        await alice.enter(b"g")
        await bob.enter(b"g")
        bob.cast([b"g"], b"hello")
        assert [frame.body for frame in await alice.frames(2)][1] == b"hello"
        late = RawClient(*await asyncio.open_connection("127.0.0.1", port))
        late.send(hello(b"late") + NULL_CHOICE[:10])
    for client in (alice, bob, late):
        await client.closed()
        client.drop()
