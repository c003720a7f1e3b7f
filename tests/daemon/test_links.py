"""The connection and the session of a client, call by call and frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from tests.network.quick import within

from ordercast.api.seat import JoinRequest, Seat
from ordercast.client.addresses import DaemonAddress
from ordercast.client.link import DaemonLink, LinkKeeper
from ordercast.config import GroupConfig
from ordercast.daemon.encoding import EventEncoder
from ordercast.engine import StallReason, Transitional
from ordercast.errors import NotMember
from ordercast.groups.events import Batch, Left, PortEvent, Uncertain
from ordercast.service import AGREED
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.block import head_of
from ordercast.wire.client_frames import decode_count, decode_join
from ordercast.wire.daemon_frames import (
    Credit,
    StallNotice,
    ViewWriter,
    Welcome,
    encode_credit,
    encode_resumed,
    encode_stalled,
    encode_transitional,
    encode_welcome_frame,
)
from ordercast.wire.frames import MAX_CLIENT_FRAME, FrameBuffer, FrameKind

DAEMON = Member(node_id("d1", 7), "d1", 7, ("127.0.0.1", 4_803), 4_096)
ALICE = DAEMON.session("alice")
BOB = Member(node_id("d2", 8), "d2", 8, ("127.0.0.1", 4_804), 4_096).session("bob")
WELCOME = Welcome(1, "alice", DAEMON, "sites", GroupConfig(shared=True), 0b10011111, 7, 1 << 20, 59_000, bytes(16))


TRY_S = 0.3  # for a try to connect, where a test waits for it


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


def open_link(keeper: LinkKeeper, welcome: Welcome = WELCOME) -> tuple[DaemonLink, Wire]:
    """A connection that the daemon has answered, before anything else of this process has run."""
    link, wire = DaemonLink(keeper), Wire()
    link.connection_made(wire)
    link.data_received(encode_welcome_frame(welcome))
    return link, wire


@within(60)
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


class BusyKeeper(LinkKeeper):
    """Its process does something else when the daemon has answered, until the time for connecting is up."""

    def on_opened(self, link: DaemonLink, welcome: Welcome) -> None:
        super().on_opened(link, welcome)
        until_s = monotonic() + 2 * TRY_S
        while monotonic() < until_s:
            pass


@within(60)
async def test_an_answer_that_has_come_counts_though_the_client_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ordercast.client.link.TRY_S", TRY_S)
    hellos = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hellos.append(await reader.read(1_000))
        writer.write(encode_welcome_frame(WELCOME))
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "d"):
        keeper = BusyKeeper([DaemonAddress(str(tmp_path / "d"))], "alice", True, 1 << 20)
        await keeper.start(5.0)
        assert keeper.session.is_connected
        assert len(hellos) == 1
        keeper.stop(NotMember("the test is over"))


def view_of(group: str, *members: Member) -> View:
    return View(4, "d1/7", 5, 0, -1, 9, members, {}, Reason.JOIN, str(ALICE), came_with=(str(ALICE),), group=group)


def taken(seat: Seat) -> list[object]:
    """The events that wait at a seat."""
    found: list[object] = []
    while (event := seat.take()) is not None:
        found.append(event)
    return found


@within(60)
async def test_the_signal_comes_once_in_each_view_of_groups_that_lose_a_member() -> None:
    """As at a node, and as clients of Spread have it (docs/protocol-client.md)."""
    keeper = LinkKeeper([DaemonAddress("one")], "alice", True, 1 << 20)
    link, _ = open_link(keeper)
    session = keeper.session
    prices, local = (session.open(name, JoinRequest(GroupConfig(shared=True))) for name in ("prices", "local"))
    frames = ViewWriter()
    wide, narrow = view_of("prices", ALICE, BOB), view_of("local", ALICE)
    link.data_received(frames.frame(wide) + frames.frame(narrow))
    merge = encode_transitional(Transitional("3@d1/7", "", ("d1/7", "d2/8")))
    loss = encode_transitional(Transitional("3@d1/7", "", ("d1/7",)))
    link.data_received(merge + loss + loss)
    assert taken(prices) == [wide, Transitional(wide.id, "prices")]
    assert taken(local) == [narrow]
    later = replace(wide, counter=5)
    link.data_received(frames.frame(later) + encode_transitional(Transitional("4@d1/7")))
    assert taken(prices) == [later, Transitional(later.id, "prices")]
    assert taken(local) == [Transitional(narrow.id, "local")]
    link.connection_lost(None)


@within(60)
async def test_what_waits_for_a_group_that_is_left_without_a_connection_is_told_to_be_uncertain() -> None:
    """It goes out by the name of the group, and when that comes to nothing nobody is there to hear of it."""
    keeper = LinkKeeper([DaemonAddress("one")], "alice", True, 1 << 20)
    link, wire = open_link(keeper, WELCOME._replace(credit=0))
    session = keeper.session
    prices, local = (session.open(name, JoinRequest(GroupConfig(shared=True))) for name in ("prices", "local"))
    frames = ViewWriter()
    link.data_received(frames.frame(view_of("prices", ALICE)) + frames.frame(view_of("local", ALICE)))
    taken(prices), taken(local)
    for seat in (prices, prices, local, prices):
        seat.offer(b"tea", AGREED)
    prices.leave()
    keeper.came()
    assert taken(prices) == [], "a leave waits for what was sent before"
    link.connection_lost(None)
    session.on_lost("killed", 0.0)
    assert taken(prices) == [
        Uncertain(7, 2, "prices"), Uncertain(10, 1, "prices"),
        Left(True, False, "left while the connection was lost: killed", "prices"),
    ]  # fmt: skip
    local.leave()
    keeper.came()
    assert taken(local)[1:] == [
        Uncertain(9, 1, "local"), Left(True, False, "left while there was no connection", "local")
    ]  # fmt: skip
    link, wire = open_link(keeper)
    keeper.came()
    assert wire.joins == []
    assert sum(head_of(body).count for kind, body in wire.written if kind == FrameKind.SEND) == 4
    link.connection_lost(None)


def feed(link: DaemonLink, wire: Wire, event: PortEvent, sent: int, window: int) -> int:
    """The frames of an event, as far as the window is open, as a daemon does it; the bytes that were sent by now."""
    for frame in EventEncoder().frames(event):
        if sent - consumed(wire) >= window:
            break
        link.data_received(frame)
        sent += len(frame)
    return sent


def consumed(wire: Wire) -> int:
    """What the client has told that its application has finished with."""
    return max([decode_count(body) for kind, body in wire.written if kind == FrameKind.CONSUMED], default=0)


@within(60)
async def test_a_client_that_does_not_receive_takes_large_messages_no_further_than_its_window() -> None:
    """The last part of each is small, and the parts before have come to be consumed before it is whole."""
    window, size = 1 << 20, 100_000
    keeper = LinkKeeper([DaemonAddress("one")], "alice", True, window)
    link, wire = open_link(keeper)
    prices = keeper.session.open("prices", JoinRequest(GroupConfig(shared=True)))
    view = view_of("prices", ALICE, BOB)
    sent = feed(link, wire, view, 0, window)
    assert taken(prices) == [view]
    for number in range(100):
        event = Batch(b"", "prices", view.id, str(BOB), number, 1, number, AGREED, [bytes(size)], 0)
        sent = feed(link, wire, event, sent, window)
    assert window <= sent <= window + 2 * size
    assert len(taken(prices)) == sent // size
    keeper.came()
    assert consumed(wire) == sent
    link.connection_lost(None)


@within(60)
async def test_a_client_that_is_closed_is_out_when_its_daemon_has_what_was_sent() -> None:
    """Also to groups that it is not in: no leave of those waits for it."""
    keeper = LinkKeeper([DaemonAddress("one")], "alice", True, 1 << 20)
    link, wire = open_link(keeper, WELCOME._replace(credit=0))
    base = keeper.session.attach("sites", JoinRequest(GroupConfig(shared=True)))
    base.send_to(b"tea", AGREED, 0, ["prices"])
    base.leave()
    keeper.came()
    assert base.gone is None
    link.data_received(encode_credit(Credit(1 << 20, WELCOME.next_number)))
    assert base.gone == Left(True, False, "left")
    assert wire.written[-1][0] == FrameKind.SEND
    link.connection_lost(None)


@within(10)
async def test_a_client_logs_that_its_daemon_stands_still_and_its_status_has_the_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper = LinkKeeper([DaemonAddress(path="nowhere")], "alice", False, 1 << 20)
    link, _ = open_link(keeper)
    (seat,) = keeper.session.open_many(["prices"], b"")
    notice = StallNotice(StallReason.NO_QUORUM, ("d2/8",), 1.5, "1 of 2 members answer", 1, 2)
    with caplog.at_level("INFO", logger="ordercast.group"):
        link.data_received(encode_stalled(notice))
        link.data_received(encode_credit(Credit(7, 1 << 20)))
        status = seat.status
        link.data_received(encode_resumed(StallReason.NO_QUORUM, 2.0))
    assert (status.have, status.need, status.waiting_for) == (1, 2, ("d2/8",))
    assert seat.status.have == seat.status.need == 0
    stalled, resumed = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert stalled[0] == "WARNING"
    assert stalled[1].startswith("alice@d1/7 in 'sites': no progress for ")
    assert stalled[1].endswith(" s: 1 of 2 members answer")
    assert resumed[0] == "INFO"
    assert "goes on after" in resumed[1]
    keeper.stop(NotMember("the test is over"))
