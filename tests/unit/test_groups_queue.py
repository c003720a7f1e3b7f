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
