"""The send queue of a session: what its blocks carry in their heads."""

from __future__ import annotations

from ordercast.groups.queue import SendQueue
from ordercast.service import AGREED, SAFE
from ordercast.wire.block import AFTER_OFFSET, after_of, head_of, open_messages
from ordercast.wire.calls import NO_HANDLER, WANTS_ACK, CallHead, open_call

LARGEST = 60_000
CALL = CallHead(0, WANTS_ACK, NO_HANDLER, "a/0", ("10.0.0.1", 7_000), 0, 0, "")


class Group:
    """What messages are for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.messages_sent = 0
        self.lost: list[tuple[int, int]] = []

    def lose(self, first: int, count: int) -> None:
        self.lost.append((first, count))


def test_every_kind_of_block_says_what_it_comes_after() -> None:
    queue = SendQueue()
    queue.offer(b"small", AGREED, 0, Group(0))
    queue.offer(bytes(100_000), AGREED, 0, Group(0))
    queue.offer_call(b"call", AGREED, 0, CALL, Group(0))
    small, first, last = (queue.pack(LARGEST, LARGEST, after) for after in (7, 8, 9))
    assert small is not None
    assert first is not None
    assert last is not None
    queue.delivered_large(1)
    call = queue.pack(LARGEST, LARGEST, 10)
    assert call is not None
    assert [after_of(packed.block) for packed in (small, first, last, call)] == [7, 8, 9, 10]
    assert list(open_messages(small.block).payloads) == [b"small"]
    assert [head_of(packed.block).count for packed in (small, first, last, call)] == [1, 0, 1, 1]
    assert open_call(call.block)[1] == b"call"


def test_only_eight_bytes_differ_by_what_a_block_comes_after() -> None:
    blocks = []
    for after in (0, (1 << 64) - 1):
        queue = SendQueue()
        queue.offer_many([b"a", b"bcd"], AGREED, 3, None, Group(0))
        packed = queue.pack(LARGEST, LARGEST, after)
        assert packed is not None
        blocks.append(packed.block)
    changed = [at for at, (one, other) in enumerate(zip(*blocks, strict=True)) if one != other]
    assert changed == list(range(AFTER_OFFSET, AFTER_OFFSET + 8))


def test_equal_messages_have_no_column_of_lengths_where_one_of_another_length_does_not_fit_any_more() -> None:
    queue = SendQueue()
    queue.offer_many([bytes(10)] * 20, AGREED, 0, None, Group(0))
    queue.offer_many([bytes(1_000)], AGREED, 0, None, Group(0))
    alone = SendQueue()
    alone.offer_many([bytes(10)] * 20, AGREED, 0, None, Group(0))
    packed, expected = queue.pack(500, LARGEST), alone.pack(500, LARGEST)
    assert packed is not None
    assert expected is not None
    assert packed.block == expected.block


def test_messages_of_one_priority_share_blocks_and_their_order_stays() -> None:
    queue, group = SendQueue(), Group(0)
    queue.offer(b"a", AGREED, 0, group)
    queue.offer(b"b", AGREED, 0, group, 7)
    queue.offer_many([b"c", b"d"], AGREED, 0, None, group, None, 7)
    queue.offer(bytes(100_000), SAFE, 0, group, 15)
    blocks = [queue.pack(LARGEST, LARGEST) for _ in range(4)]
    heads = [head_of(packed.block) for packed in blocks if packed is not None]
    assert [(head.first, head.count, head.rank, head.k) for head in heads] == [
        (0, 1, AGREED.rank, 0),
        (1, 3, AGREED.rank, 7),
        (4, 0, SAFE.rank, 15),
        (4, 1, SAFE.rank, 15),
    ]
    assert blocks[1] is not None
    assert (open_messages(blocks[1].block).service, blocks[1].service) == (AGREED, AGREED)


def test_a_block_that_is_put_back_keeps_its_priority() -> None:
    queue, group = SendQueue(), Group(0)
    queue.offer(b"b", AGREED, 0, group, 7)
    packed = queue.pack(LARGEST, LARGEST)
    assert packed is not None
    queue.put_back(packed)
    assert queue.priority == 7
    assert queue.pack(LARGEST, LARGEST) == packed


class Groups:
    """Several groups that messages are for."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def numbers(self) -> tuple[int, ...]:
        return self._numbers

    def lose(self, first: int, count: int) -> None:
        raise AssertionError(f"messages {first} to {first + count - 1} are not lost here")


def test_messages_to_the_same_groups_share_blocks() -> None:
    queue, groups = SendQueue(), Groups(3, 5)
    payloads = [bytes(1_000) for _ in range(100)]
    for payload in payloads:
        queue.offer_addressed(payload, AGREED, 7, groups)
    queue.offer_addressed(b"other", AGREED, 8, groups)
    queue.offer_addressed(bytes(LARGEST), AGREED, 8, groups)
    queue.offer_addressed(b"one", AGREED, 8, Groups(3))
    blocks = [packed for _ in range(6) if (packed := queue.pack(LARGEST, LARGEST)) is not None]
    opened = [open_messages(packed.block) for packed in blocks[:3]]
    assert [len(each.payloads) for each in opened] == [59, 41, 1]
    assert [(each.first, each.type, each.groups) for each in opened] == [
        (0, 7, (3, 5)),
        (59, 7, (3, 5)),
        (100, 8, (3, 5)),
    ]
    assert [(packed.first, packed.messages) for packed in blocks[3:]] == [(101, 0), (101, 1)]  # the large one
    queue.delivered_large(101)
    last = queue.pack(LARGEST, LARGEST)
    assert last is not None
    assert open_messages(last.block).groups == 3
    assert (queue.count, queue.queued_bytes) == (0, 0)


def test_messages_to_several_groups_that_are_put_back_are_packed_again() -> None:
    queue, groups = SendQueue(), Groups(3, 5)
    for number in range(5):
        queue.offer_addressed(b"%d" % number, AGREED, 0, groups)
    small = queue.pack(60, LARGEST)
    assert small is not None
    assert small.messages == 2
    queue.put_back(small)
    again = [queue.pack(LARGEST, LARGEST), queue.pack(LARGEST, LARGEST)]
    payloads = [list(open_messages(packed.block).payloads) for packed in again if packed is not None]
    assert payloads == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert (queue.next_number, queue.count, queue.queued_bytes) == (5, 0, 0)
