"""A client, or a daemon, whose machine is gone: what both ends ask of the kernel (docs/design/daemon.md, "Timers")."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.daemon.houses import DaemonHouse
from tests.daemon.spread_house import SpreadHouse
from tests.network.quick import within

from ordercast.client.addresses import DaemonAddress
from ordercast.client.link import DaemonLink, LinkKeeper
from ordercast.daemon.listener import ClientSocket
from ordercast.daemon.seat import Limits
from ordercast.daemon.spread.session import SpreadSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have other options, or none")


class TcpTransport(asyncio.Transport):
    """Has a socket, and sends nothing."""

    def __init__(self, found: socket.socket) -> None:
        super().__init__({"socket": found, "peername": ("127.0.0.1", 1)})
        self._is_closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Nobody reads it."""

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Nobody reads it."""

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def abort(self) -> None:
        self._is_closed = True


@pytest.fixture
def found() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        yield made


def seconds_alone(found: socket.socket) -> tuple[int, int]:
    """After how long an idle connection, and one for which bytes wait, ends. 0: after the kernel's own time."""
    tcp = socket.IPPROTO_TCP
    idle, step, times = (
        found.getsockopt(tcp, word) for word in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return idle + step * times, found.getsockopt(tcp, socket.TCP_USER_TIMEOUT) // 1_000


@within(60)
async def test_a_daemon_gives_up_a_client_that_has_vanished_whether_bytes_wait_for_it_or_not(
    tmp_path: Path, found: socket.socket
) -> None:
    async with DaemonHouse(tmp_path) as house:
        client = ClientSocket(house.listener)
        client.connection_made(TcpTransport(found))
        assert seconds_alone(found) == (40, 40)
        client.connection_lost(None)


@within(60)
async def test_with_blocking_a_client_may_stand_still(tmp_path: Path, found: socket.socket) -> None:
    async with DaemonHouse(tmp_path, limits=Limits(is_blocking=True)) as house:
        client = ClientSocket(house.listener)
        client.connection_made(TcpTransport(found))
        assert seconds_alone(found) == (40, 0)
        client.connection_lost(None)


@within(60)
async def test_an_idle_client_of_spread_that_has_vanished_keeps_its_name_no_longer_than_others() -> None:
    """While bytes wait for it, it may stand still."""
    async with SpreadHouse() as house:
        await house.connect(b"alice")
        (session,) = house.daemon.listener.desk.visitors
        assert isinstance(session, SpreadSession)
        assert session._transport is not None
        assert seconds_alone(session._transport.get_extra_info("socket")) == (40, 0)


@within(60)
async def test_a_client_gives_up_a_daemon_that_has_vanished(found: socket.socket) -> None:
    link = DaemonLink(LinkKeeper([DaemonAddress("one")], "alice", True, 1 << 20))
    link.connection_made(TcpTransport(found))
    assert seconds_alone(found) == (40, 40)
    link.connection_lost(None)
