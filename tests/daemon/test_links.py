"""The connection of a client, call by call: what comes sooner than the task that connects runs again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tests.network.quick import within

from ordercast.api.seat import JoinRequest
from ordercast.client.addresses import DaemonAddress
from ordercast.client.link import DaemonLink, LinkKeeper
from ordercast.config import GroupConfig
from ordercast.view import Member, node_id
from ordercast.wire.client_frames import decode_join
from ordercast.wire.daemon_frames import Welcome, encode_welcome_frame
from ordercast.wire.frames import MAX_CLIENT_FRAME, FrameBuffer, FrameKind

DAEMON = Member(node_id("d1", 7), "d1", 7, ("127.0.0.1", 4_803), 4_096)
WELCOME = Welcome(1, "alice", DAEMON, "sites", GroupConfig(shared=True), 0b10011111, 7, 1 << 20, 59_000, bytes(16))


class Wire(asyncio.Transport):
    """What a connection writes, as frames."""

    def __init__(self) -> None:
        super().__init__()
        self._frames = FrameBuffer(MAX_CLIENT_FRAME)
        self._is_closed = False
        self.written: list[tuple[int, bytes]] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += self._frames.feed(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True

    def abort(self) -> None:
        self._is_closed = True

    @property
    def joins(self) -> list[str]:
        """The groups of its JOIN frames."""
        bodies = [body for kind, body in self.written if kind == FrameKind.JOIN]
        return [name for body in bodies for _, name in decode_join(body).groups]


def open_link(keeper: LinkKeeper) -> tuple[DaemonLink, Wire]:
    """A connection that the daemon has answered, before anything else of this process has run."""
    link, wire = DaemonLink(keeper), Wire()
    link.connection_made(wire)
    link.data_received(encode_welcome_frame(WELCOME))
    return link, wire


@within(10)
async def test_a_client_joins_its_groups_again_where_it_was_answered_last() -> None:
    keeper = LinkKeeper([DaemonAddress("one"), DaemonAddress("two")], "alice", True, 1 << 20)
    link, wire = open_link(keeper)
    keeper.session.open("prices", JoinRequest(GroupConfig(shared=True)))
    keeper.came()
    assert wire.joins == ["prices"]
    link.connection_lost(None)
    keeper.session.on_lost("killed", 0.0)
    again, wire = open_link(keeper)
    assert wire.joins == ["prices"]
    again.connection_lost(None)
