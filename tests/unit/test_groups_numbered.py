"""Messages to many groups, named by the numbers of these: columns of the send queue, and `floor.resolve`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.channels import come_back, make_host, open_ports, pump
from tests.unit.fake_engine import Exchange, events, fake, payloads
from tests.unit.fake_node import FakeNode
from tests.unit.test_group_api import on_loop, turns
from tests.unit.test_groups_queue import LARGEST, Group
from tests.unit.test_shared_api import messages, pair

from ordercast.api.resolved import ResolvedGroups
from ordercast.api.shared import SharedUnderlay
from ordercast.engine import Departed, UnknownOutcome
from ordercast.errors import NotMember
from ordercast.groups.events import Left, Uncertain
from ordercast.groups.port import LEAVE_PATIENCE_NS, Port
from ordercast.groups.queue import LARGE_BYTES, Packed, SendQueue
from ordercast.groups.queued import NumberedTargets, listed
from ordercast.groups.stream import NUMBERED_MESSAGES
from ordercast.service import AGREED
from ordercast.view import Reason
from ordercast.wire.block import Messages, open_messages

TOPICS = [f"topic {number}" for number in range(NUMBERED_MESSAGES)]


class Groups:
    """Groups by their numbers."""

    def __init__(self, count: int) -> None:
        self.each = [Group(number) for number in range(count)]

    def target_of(self, number: int) -> Group:
        return self.each[number]

    def numbered(self, numbers: Sequence[int]) -> NumberedTargets:
        return NumberedTargets(np.array(numbers, dtype=np.uint32), self)


def pack_all(queue: SendQueue, limit: int) -> list[Packed]:
    found: list[Packed] = []
    while (packed := queue.pack(limit, LARGEST)) is not None:
        found.append(packed)
    return found


def numbers_in(packed: Packed) -> list[int]:
    opened: Messages = open_messages(packed.block)
    return [opened.groups] * len(opened.payloads) if isinstance(opened.groups, int) else list(opened.groups)


def send(ports: Sequence[Port], said: Sequence[bytes]) -> int:
    """Messages to the groups of these ports in turn, by numbers where they have them."""
    each = [ports[at % len(ports)] for at in range(len(said))]
    return ports[0].stream.offer_many_to(said, AGREED, 0, list(map(len, said)), each, numbered=2)


@pytest.mark.parametrize("sizes", [[10] * 100, [10, 20] * 50], ids=["equal", "different"])
def test_a_column_is_cut_with_its_messages(sizes: list[int]) -> None:
    groups, numbers = Groups(200), list(range(100, 200))
    queue = SendQueue()
    said = [bytes([at]) * size for at, size in enumerate(sizes)]
    assert queue.offer_many(said, AGREED, 0, None, groups.each[100], groups.numbered(numbers)) == 100
    blocks = pack_all(queue, 500)
    assert len(blocks) > 2
    assert [number for packed in blocks for number in numbers_in(packed)] == numbers
    assert [payload for packed in blocks for payload in open_messages(packed.block).payloads] == said
    for packed in blocks:
        assert packed.groups is not None
        assert list(listed(packed.groups)) == [groups.each[number] for number in numbers_in(packed)]


def test_columns_share_blocks_with_each_other_and_with_messages_to_single_groups() -> None:
    groups, queue = Groups(10), SendQueue()
    queue.offer(b"0", AGREED, 0, groups.each[9])
    queue.offer_many([b"1", b"2"], AGREED, 0, None, groups.each[3], groups.numbered([3, 4]))
    queue.offer_many([b"3", b"4"], AGREED, 0, None, groups.each[5], groups.numbered([5, 5]))
    queue.offer(b"5", AGREED, 0, groups.each[1])
    (packed,) = pack_all(queue, LARGEST)
    assert numbers_in(packed) == [9, 3, 4, 5, 5, 1]
    assert packed.groups is not None
    assert list(listed(packed.groups)) == [groups.each[number] for number in (9, 3, 4, 5, 5, 1)]
    queue.offer_many([b"1", b"2"], AGREED, 0, None, groups.each[3], groups.numbered([3, 4]))
    queue.offer_many([b"3", b"4"], AGREED, 0, None, groups.each[5], groups.numbered([5, 6]))
    (packed,) = pack_all(queue, LARGEST)
    assert isinstance(packed.groups, NumberedTargets), "no group was looked up"
    assert packed.groups.numbers.tolist() == numbers_in(packed) == [3, 4, 5, 6]


def test_large_messages_of_a_column_go_to_their_groups() -> None:
    groups, queue = Groups(5), SendQueue()
    said = [b"small", bytes(LARGE_BYTES + 1), b"small, too"]
    assert queue.offer_many(said, AGREED, 0, None, groups.each[2], groups.numbered([2, 3, 4])) == 3
    assert numbers_in(pack_all(queue, LARGEST)[0]) == [2]
    assert queue.head_large[0] is groups.each[3]
    queue.delivered_large(1)
    assert [numbers_in(packed) for packed in pack_all(queue, LARGEST)] == [[4]]


def test_a_message_of_a_column_that_is_too_large_for_the_blocks_of_its_underlay() -> None:
    groups, queue = Groups(5), SendQueue()
    queue.offer_many([bytes(900), b"small"], AGREED, 0, None, groups.each[2], groups.numbered([2, 3]))
    assert queue.pack(500, 500) is not None
    assert queue.head_large[0] is groups.each[2]


def test_what_does_not_fit_the_queue_is_cut_off_the_column() -> None:
    groups, queue = Groups(5), SendQueue()
    half = bytes(1 << 15)
    said, numbers = [half] * 40, [1, 2, 3, 4] * 10
    assert queue.offer_many(said, AGREED, 0, None, groups.each[1], groups.numbered(numbers)) == 32
    assert [number for packed in pack_all(queue, LARGEST) for number in numbers_in(packed)] == numbers[:32]


def test_messages_are_counted_by_group() -> None:
    exchange = Exchange()
    host, other = make_host(exchange, "x"), make_host(exchange, "y")
    a, b, c = open_ports(host, "a", "b", "c")
    open_ports(other, "c")
    pump(host, other)
    assert send([a, b], [b"x"] * 5) == 5
    pump(host, other)
    assert [port.counters["messages_sent"] for port in (a, b, c)] == [3, 2, 0]
    assert send([b, c, b], [b"x"] * 6) == 6
    pump(host, other)
    host.leave(c)
    pump(host, other)
    (again,) = open_ports(host, "c")
    pump(host, other)
    assert again.number == c.number, "the group has another member"
    assert [port.counters["messages_sent"] for port in (again, a, b, c)] == [0, 3, 6, 2]
    assert payloads(a) == [b"x"] * 3


def test_messages_wait_for_a_group_that_has_no_number_yet() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    (a,) = open_ports(host, "a")
    pump(host)
    exchange.is_open = False
    b, c = open_ports(host, "b", "c")
    assert send([a, b, c], [b"1", b"2", b"3"]) == 3
    pump(host)
    exchange.is_open = True
    exchange.order()
    pump(host)
    assert [payloads(port) for port in (a, b, c)] == [[b"1"], [b"2"], [b"3"]]


def test_messages_lost_with_the_membership_are_named_by_group() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    pump(host)
    events(a), events(b)
    exchange.is_open = False
    first = fake(a).next_block
    send([a, b], [b"1", b"2", b"3"])
    pump(host)
    exchange.waiting.clear()
    fake(a).pending += [UnknownOutcome(first, first + 1), Departed(wanted=False, returning=True, text="excluded")]
    pump(host)
    left = Left(wanted=False, returning=True, text="excluded")
    assert events(a) == [Uncertain(0, 1, "a"), Uncertain(2, 1, "a"), Left(left.wanted, True, left.text, "a")]
    assert events(b) == [Uncertain(1, 1, "b"), Left(left.wanted, True, left.text, "b")]


def test_messages_are_lost_after_one_of_their_groups_was_left() -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b = open_ports(host, "a", "b")
    pump(host)
    exchange.is_open = False
    first = fake(a).next_block
    send([a, b], [b"1", b"2"])
    pump(host)
    exchange.fail("y is silent")
    pump(host)
    host.leave(a)
    pump(host, now_ns=LEAVE_PATIENCE_NS + 1)
    pump(host, now_ns=2 * LEAVE_PATIENCE_NS + 2)
    assert a.gone is not None
    events(b)
    fake(b).pending.append(UnknownOutcome(first, first + 1))
    pump(host)
    assert events(b) == [Uncertain(1, 1, "b")]


@pytest.mark.parametrize("is_packed", [False, True], ids=["queued", "packed"])
def test_what_waits_while_the_node_is_out_goes_to_its_groups_whatever_their_numbers_are_then(is_packed: bool) -> None:
    exchange = Exchange()
    host = make_host(exchange)
    a, b, c = open_ports(host, "a", "b", "c")
    pump(host)
    numbers = [port.number for port in (a, b, c)]
    if is_packed:
        exchange.take_blocks = 0
    else:
        exchange.room_bytes = 0
    send([c, b, a, b], [b"1", b"2", b"3", b"4"])
    pump(host)
    assert bool(a.stream.ready) == is_packed
    host.leave(a)
    fake(b).pending.append(Departed(wanted=False, returning=True, text="excluded"))
    pump(host)
    exchange.take_blocks, exchange.room_bytes = 1 << 20, 1 << 20
    exchange.install(Reason.CREATE, "x/0", b"", [fake(b)])
    pump(host)
    assert [port.number for port in (b, c)] != numbers[1:]
    assert payloads(c) == [b"1"]
    assert payloads(b) == [b"2", b"4"]
    assert payloads(a) == []


def test_messages_to_a_group_that_is_left_and_joined_again_are_those_of_the_port_that_sent_them() -> None:
    """The leave does not wait for ever for what was sent, and the group lives on with another member."""
    exchange = Exchange()
    x, y = make_host(exchange, "x"), make_host(exchange, "y")
    a, b = open_ports(x, "a", "b")
    (other,) = open_ports(y, "a")
    pump(x, y)
    exchange.room_bytes = 0
    send([a, b], [b"1", b"2"])
    x.leave(a)
    pump(x, y, now_ns=0)
    exchange.room_bytes = 1 << 20
    for host in (x, y):
        pump(host, now_ns=LEAVE_PATIENCE_NS + 1)
    pump(x, y, now_ns=LEAVE_PATIENCE_NS + 2)
    assert a.gone is not None
    (again,) = open_ports(x, "a")
    pump(x, y, now_ns=LEAVE_PATIENCE_NS + 3)
    assert again.number == a.number == other.number
    assert payloads(other) == [b"1"]
    assert payloads(b) == [b"2"]
    assert [port.counters["messages_sent"] for port in (a, again, b)] == [1, 0, 1]


async def attached(names: Sequence[str]) -> tuple[FakeNode, SharedUnderlay]:
    node, _ = pair()
    floor = await node.attach("floor")
    await floor.join_many(names)
    return node, floor


async def sent(floor: SharedUnderlay, groups: Sequence[str]) -> list[tuple[str, str]]:
    """Send each group its name: what comes, and to which group."""
    await floor.send_many([name.encode() for name in groups], groups=groups)
    found = await messages(floor.events(), len(groups)) if groups else []
    return [(message.payload.decode(), message.group) for message in found]


def each_its_own(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


@on_loop
async def test_names_that_were_resolved_serve_many_sends_whole_and_in_parts() -> None:
    node, floor = await attached(TOPICS)
    wanted = TOPICS * 3
    topics = floor.resolve(name for name in wanted)
    assert isinstance(topics, ResolvedGroups)
    assert (len(topics), list(topics), topics[0], topics[-1]) == (len(wanted), wanted, wanted[0], wanted[-1])
    assert repr(topics) == f"<ResolvedGroups, {len(wanted)} names>"
    with pytest.raises(IndexError):
        topics[len(wanted)]
    total = 0
    for part in (slice(None), slice(5, -5), slice(1, None, 2), slice(3, 5), slice(70, 3)):
        assert await sent(floor, topics[part]) == each_its_own(wanted[part])
        total += len(wanted[part])
    assert await sent(floor, topics[10:][5:90][-80:]) == each_its_own(wanted[20:100])
    one = floor.resolve(["topic 1"] * 100)
    assert await sent(floor, one) == each_its_own(["topic 1"] * 100)
    assert sum(node.group(name).stats["messages_sent"] for name in TOPICS) == total + 180
    await node.close()


@on_loop
async def test_a_group_that_was_left_is_missed_where_it_is_sent_to_and_found_again() -> None:
    node, floor = await attached(TOPICS)
    with pytest.raises(NotMember, match="not in 'elsewhere'"):
        floor.resolve([*TOPICS, "elsewhere"])
    topics = floor.resolve(TOPICS + TOPICS)
    leaving = asyncio.create_task(floor.leave_many(["topic 7"]))
    await asyncio.sleep(0)
    with pytest.raises(NotMember, match="leaving 'topic 7'"):
        await sent(floor, topics)
    await leaving
    with pytest.raises(NotMember, match="not in 'topic 7'"):
        await sent(floor, topics[:70])
    assert await sent(floor, topics[8:71]) == each_its_own((TOPICS * 2)[8:71])
    number = node.group("topic 8")._seat.port.number  # type: ignore[attr-defined]
    await floor.join_many(["topic 7"])
    assert node.group("topic 7")._seat.port.number > number  # type: ignore[attr-defined]
    assert await sent(floor, topics) == each_its_own(TOPICS * 2)
    await node.close()


@on_loop
async def test_a_list_holds_over_a_return_to_the_underlay_with_other_numbers() -> None:
    node, floor = await attached(["first to go", *TOPICS, "last"])
    topics = floor.resolve(TOPICS)
    assert await sent(floor, topics) == each_its_own(TOPICS)
    await floor.leave_many(["first to go"])
    port = node.group(TOPICS[0])._seat.port  # type: ignore[attr-defined]
    before = port.number
    come_back(fake(port).exchange, node.host, port)
    await turns()
    assert port.number != before
    assert await sent(floor, topics) == each_its_own(TOPICS)
    await node.close()


@on_loop
async def test_a_list_that_another_node_has_resolved_is_a_list_of_names() -> None:
    a, b = pair()
    floors = [await node.attach("floor") for node in (a, b)]
    for floor, names in zip(floors, (TOPICS, TOPICS[::-1]), strict=True):
        await floor.join_many(names)
    topics = floors[0].resolve(TOPICS)
    assert await sent(floors[1], topics) == each_its_own(TOPICS)
    await a.close()
    await b.close()
