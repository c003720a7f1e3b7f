"""Parts of Spread sessions: how messages travel, views as clients get them, and what waits for a socket."""

from __future__ import annotations

from dataclasses import replace
from struct import unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.spread_bytes import AGREED, FIFO, SELF_DISCARD, little

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.flavours import address, show
from ordercast.daemon.spread.membership import MemberOrder, Memberships
from ordercast.daemon.spread.relay import CACHE_BYTES, Relay
from ordercast.daemon.spread.settings import SpreadSettings
from ordercast.daemon.spread.socket_queue import WRITE_BYTES, SocketQueue
from ordercast.engine import Transitional
from ordercast.errors import UsageError
from ordercast.groups.events import Batch
from ordercast.service import AGREED as AGREED_SERVICE
from ordercast.service import CAUSAL, MAJORITY
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.endings import SessionEnd, encode_ending

LITTLE = bytes.fromhex("80000080")

# How messages travel. ------------------------------------------------------------------------------------------------

names = st.binary(min_size=1, max_size=31).filter(lambda name: b"\0" not in name and not name.startswith(b"#!"))
hints = st.binary(min_size=4, max_size=4).map(lambda raw: bytes((raw[0] & 0x80, raw[1], raw[2], raw[3] & 0x80)))
services = st.sampled_from([1, 2, 4, 8, 16, 32])
others = st.integers(0, (1 << 31) - 1).map(lambda word: word & ~(bits.DAEMONS_OWN | bits.COMMANDS | 0x800000BF))


def is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(services, others, hints, st.lists(names, min_size=1, max_size=100))
def test_a_message_comes_out_as_it_went_in(service: int, other: int, hint: bytes, groups: list[bytes]) -> None:
    """Whatever its bits, hint and groups are: only names that are no text are lost."""
    word = service | other
    sent = address(word, hint, tuple(groups))
    if not any(map(is_text, groups)):
        assert sent is None
        return
    assert sent is not None
    assert all(len(name.encode()) <= 255 for name in sent.groups)
    assert len(sent.groups) <= 101
    shown = show(sent.groups, sent.service.rank, sent.type)
    assert shown.type == word
    assert shown.hint == hint
    assert shown.groups == tuple([name if is_text(name) else b"" for name in groups])
    assert shown.is_discarding == bool(word & SELF_DISCARD)


def test_plain_messages_travel_as_any_other() -> None:
    assert address(AGREED, bytes.fromhex("80341280"), (b"g",)) == (("g",), AGREED_SERVICE, 0x1234)
    assert address(AGREED, LITTLE, (b"g", b"h")) == (("g", "h"), AGREED_SERVICE, 0)
    assert address(0x08, LITTLE, (b"g",)) == (("g",), CAUSAL, 0)


def test_weak_messages_to_several_groups_are_made_stronger_and_shown_as_they_were() -> None:
    sent = address(FIFO, LITTLE, (b"g", b"h"))
    assert sent is not None
    assert sent.service is AGREED_SERVICE
    assert show(sent.groups, sent.service.rank, 0) == (FIFO, LITTLE, (b"g", b"h"))


@pytest.mark.parametrize("groups", [(), (b"",), (b"\xff",), (b"#!10.3.",)])
def test_what_goes_to_nobody_is_not_sent(groups: tuple[bytes, ...]) -> None:
    assert address(AGREED, LITTLE, groups) is None


@pytest.mark.parametrize("name", ["#!", "#!zz.3.", "#!10.9.", "#!1100.3.", "#!10", "#!-10.3.", "#!80000010.3."])
def test_a_flavour_that_somebody_has_made_up_means_nothing(name: str) -> None:
    assert show(("g", name), AGREED_SERVICE.rank, 5) == (AGREED, bytes.fromhex("80050080"), (b"g",))


def test_a_pattern_of_groups_that_are_not_there_is_no_error() -> None:
    assert show(("g", "#!10.3.\u0100\u0105-"), AGREED_SERVICE.rank, 0).groups == (b"g", b"", b"")


def test_native_services_and_long_names_are_shown_as_near_as_can_be() -> None:
    assert show(("g",), MAJORITY.rank, 0).type == AGREED
    assert show(("g", "n" * 40), AGREED_SERVICE.rank, 0).groups == (b"g",)


# Blocks as bytes. ----------------------------------------------------------------------------------------------------


def batch(first: int, payloads: list[bytes], *, block: bytes | None = None) -> Batch:
    packed = pack_run(first, AGREED_SERVICE, payloads, 1, 7) if block is None else block
    return Batch(packed, "g", "v", "ann@d1/5", first, len(payloads), 0, AGREED_SERVICE)


def test_a_block_is_encoded_once_for_all_receivers_and_stays_unopened() -> None:
    relay = Relay()
    one = batch(0, [b"a", b"bb"])
    (first,) = relay.encode(one)
    (again,) = relay.encode(one)
    assert first.data is again.data
    assert (relay.encoded, relay.shared) == (1, 1)
    assert one.block
    assert first.data == b"".join([little(AGREED, b"#ann#d1", [b"g"], body, 7) for body in (b"a", b"bb")])
    assert (first.messages, first.sender, first.is_discarding) == (2, "ann@d1/5", False)
    relay.forget()
    relay.encode(one)
    assert relay.encoded == 2


def test_encoded_blocks_are_bounded() -> None:
    relay = Relay()
    body = bytes(50_000)
    count = CACHE_BYTES // len(body) + 5
    for number in range(count):
        relay.encode(batch(number, [body]))
    relay.encode(batch(0, [body]))
    assert relay.encoded == count + 1
    relay.encode(batch(count - 1, [body]))
    assert relay.shared == 1


def test_a_block_that_nobody_can_read_has_no_messages() -> None:
    (relayed,) = Relay().encode(batch(0, [b"a"], block=b"nonsense" * 8))
    assert (relayed.messages, relayed.data) == (0, b"")


# Views. --------------------------------------------------------------------------------------------------------------


def member(text: str, daemon: str = "d1", life: int = 5) -> Member:
    return Member(node_id(daemon, life), daemon, life, ("127.0.0.1", 1)).session(text)


def view(
    number: int, members: list[Member], reason: Reason = Reason.RESET, subject: str = "", header: bytes = b""
) -> View:
    return View(number, "d1/5", 1, 0, 0, 0, tuple(members), {}, reason, subject, header, group="g")


ANN, BOB, CEC = member("ann"), member("bob"), member("cec", "d2")


def told(data: bytes) -> tuple[int, int, int]:
    """Type, members, and the bytes of the body."""
    return unpack("<I", data[:4])[0] & ~0x80000080, unpack("<i", data[36:40])[0], unpack("<i", data[44:48])[0]


def memberships(*, has_sets: bool = True) -> Memberships:
    return Memberships(str(ANN), MemberOrder(["d2", "d1"]), has_sets=has_sets)


def test_causes_follow_the_reason_of_a_view() -> None:
    mine = memberships()
    assert told(mine.on_view(view(1, [ANN], Reason.JOIN, str(ANN))))[0] == 0x1100
    assert told(mine.on_view(view(2, [ANN, BOB], Reason.JOIN, str(BOB))))[0] == 0x1100
    assert told(mine.on_view(view(3, [ANN], Reason.LEAVE, str(BOB), b"so long")))[0] == 0x1200
    mine.on_view(view(4, [ANN, BOB], Reason.JOIN, str(BOB)))
    ended = encode_ending(SessionEnd.SLOW, "it did not receive")
    assert told(mine.on_view(view(5, [ANN], Reason.LEAVE, str(BOB), ended)))[0] == 0x1400
    assert told(mine.on_view(view(6, [ANN, CEC])))[0] == 0x1800


def test_a_daemon_that_leaves_is_the_network() -> None:
    """With another orderer the view of the underlay has the reason of the daemon's own leave."""
    mine = memberships()
    mine.on_view(view(1, [ANN, CEC], Reason.JOIN, str(ANN)))
    assert told(mine.on_view(view(2, [ANN], Reason.LEAVE, "d2/5")))[0] == 0x1800


def test_the_first_view_of_a_group_is_a_join_whatever_made_it() -> None:
    """A join may take effect with a view of the underlay."""
    data = memberships().on_view(replace(view(1, [ANN, CEC]), came_with=(str(ANN),)))
    assert told(data) == (0x1100, 2, 56)


def test_a_daemon_that_comes_back_meets_the_others_as_one_set() -> None:
    mine = memberships()
    mine.on_view(view(1, [ANN, BOB, CEC], Reason.JOIN, str(ANN)))
    came = replace(view(2, [BOB, CEC, ANN], Reason.JOIN, str(ANN)), came_with=(str(ANN),))
    data = mine.on_view(came)
    assert told(data) == (0x1800, 3, 20 + (4 + 64) + (4 + 32))
    number, offset = unpack("<II", data[48 + 96 + 12 :][:8])
    assert (number, offset) == (2, 68)


def test_who_is_new_in_a_group_of_the_own_part_comes_alone() -> None:
    mine = memberships()
    mine.on_underlay(
        View(7, "d1/5", 1, 0, 0, 0, (member(""), member("", "d2")), {}, rosters=((ANN_NODE,), (CEC_NODE,)))
    )
    mine.on_view(view(1, [ANN], Reason.JOIN, str(ANN)))
    data = mine.on_view(replace(view(2, [ANN, BOB, CEC]), came_with=(str(ANN),)))
    assert told(data) == (0x1800, 3, 20 + 3 * 36)
    assert unpack("<II", data[48 + 96 + 12 :][:8]) == (3, 36)  # cec of d2 stands first


ANN_NODE, CEC_NODE = node_id("d1", 5), node_id("d2", 5)


def test_only_groups_that_lose_a_daemon_are_signalled_and_once() -> None:
    mine = memberships()
    mine.on_view(view(1, [ANN, CEC], Reason.JOIN, str(ANN)))
    mine.on_view(replace(view(1, [ANN, BOB], Reason.JOIN, str(ANN)), group="local"))
    signal = Transitional("v", "", ("d1/5",))
    assert [group for group, _ in mine.on_transitional(signal)] == ["g"]
    assert mine.on_transitional(signal) == []
    mine.on_view(view(2, [ANN]))
    assert mine.on_transitional(signal) == []
    # Where it is not said who comes along, all may lose somebody.
    assert [group for group, _ in mine.on_transitional(Transitional("v"))] == ["g", "local"]


def test_a_group_that_was_left_is_forgotten() -> None:
    mine = memberships()
    mine.on_view(view(1, [ANN, BOB], Reason.JOIN, str(ANN)))
    assert told(mine.on_left("g")) == (0x0200, 0, 0)
    assert mine.on_transitional(Transitional("v")) == []
    assert told(mine.on_view(view(3, [ANN, BOB], Reason.JOIN, str(ANN))))[0] == 0x1100


# What waits for a socket. --------------------------------------------------------------------------------------------


def test_messages_are_counted_until_the_socket_has_taken_them() -> None:
    queue = SocketQueue()
    queue.add(b"a" * 10, 1)
    queue.add(b"b" * 20, 3)
    assert queue.take() == b"a" * 10 + b"b" * 20
    queue.block()
    queue.settle()
    assert (queue.messages, queue.waiting_bytes) == (4, 30)
    queue.add(b"c", 1)
    assert queue.messages == 5
    queue.unblock()
    assert (queue.messages, queue.waiting_bytes) == (1, 1)
    assert queue.take() == b"c"
    queue.settle()
    assert (queue.messages, queue.waiting_bytes) == (0, 0)
    assert queue.take() == b""


def test_large_chunks_are_written_without_a_copy() -> None:
    queue = SocketQueue()
    chunk = bytes(WRITE_BYTES)
    queue.add(chunk, 1)
    queue.add(b"x", 1)
    assert queue.take() is chunk
    assert queue.take() == b"x"


def test_the_grace_counts_from_when_too_many_wait() -> None:
    queue = SocketQueue()
    queue.block()
    queue.add(b"x", 10)
    assert not queue.is_over(10, 1.0, 0.5)
    queue.add(b"x", 1)
    assert not queue.is_over(10, 2.0, 0.5)
    assert not queue.is_over(10, 2.4, 0.5)
    assert queue.is_over(10, 2.5, 0.5)
    assert queue.is_over(10, 2.0, 0)
    queue.clear()
    assert not queue.is_over(10, 9.0, 0.5)
    assert queue.over_since is None


@pytest.mark.parametrize(
    "wrong",
    [{"max_message": 10}, {"max_message": 1 << 30}, {"max_sessions": 0}, {"max_bytes": 5}, {"version": (3, 7, 9)}],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        SpreadSettings(**wrong)  # type: ignore[arg-type]
