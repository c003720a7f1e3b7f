"""Blocks that a client of a daemon has packed, in the send queue of its session (docs/design/daemon.md)."""

from __future__ import annotations

import pytest
from tests.unit.test_groups_queue import LARGEST, Group

from ordercast.errors import WireError
from ordercast.groups.queue import SendQueue
from ordercast.groups.queued import OPENED_BYTES
from ordercast.service import AGREED, SAFE
from ordercast.wire.block import (
    ENTRY,
    HEAD_BYTES,
    after_of,
    head_of,
    label_of,
    open_messages,
    pack_grouped,
    pack_run,
    with_label,
)

LARGE = [bytes([at % 251]) * 100 for at in range(400)]
RAGGED = [bytes(at % 97) for at in range(900)]


def offered(queue: SendQueue, block: bytes, group: Group, priority: int = 0) -> bool:
    return queue.offer_block(block, head_of(block), group, priority)


@pytest.mark.parametrize("payloads", [LARGE, RAGGED])
def test_a_large_block_leaves_as_it_is_with_number_group_and_label_filled_in(payloads: list[bytes]) -> None:
    queue = SendQueue(7, b"alice")
    block = pack_run(0, SAFE, payloads, 99, type_=5)
    assert len(block) >= OPENED_BYTES
    assert offered(queue, block, Group(3))
    assert (queue.count, queue.end_number) == (len(payloads), 7 + len(payloads))
    packed = queue.pack(LARGEST, LARGEST, 12)
    assert packed is not None
    opened = open_messages(packed.block)
    assert (opened.first, opened.service, opened.type, opened.groups) == (7, SAFE, 5, 3)
    assert list(opened.payloads) == payloads
    assert (after_of(packed.block), label_of(packed.block)) == (12, "alice")
    assert packed.payload_bytes == sum(map(len, payloads))
    assert (queue.count, queue.queued_bytes, queue.next_number) == (0, 0, 7 + len(payloads))


def test_small_blocks_share_a_block() -> None:
    queue = SendQueue()
    for at in range(3):
        assert offered(queue, pack_run(0, AGREED, [bytes([at])] * 2), Group(1))
    packed = queue.pack(LARGEST, LARGEST)
    assert packed is not None
    assert list(open_messages(packed.block).payloads) == [b"\0", b"\0", b"\1", b"\1", b"\2", b"\2"]


def test_a_block_waits_for_room_and_is_opened_where_blocks_are_smaller() -> None:
    queue = SendQueue()
    assert offered(queue, pack_run(0, AGREED, LARGE), Group(1))
    assert queue.pack(10_000, LARGEST) is None
    found: list[bytes] = []
    while (packed := queue.pack(10_000, 10_000)) is not None:
        assert len(packed.block) <= 10_000
        found += open_messages(packed.block).payloads
    assert found == LARGE
    assert queue.queued_bytes == 0


def test_a_block_waits_until_its_group_has_a_number_and_comes_back_if_it_was_not_sent() -> None:
    queue, group = SendQueue(), Group(-1)
    assert offered(queue, pack_run(0, AGREED, LARGE), group)
    assert queue.is_waiting
    group.number = 4
    packed = queue.pack(LARGEST, LARGEST)
    assert packed is not None
    queue.put_back(packed)
    group.number = 9
    again = queue.pack(LARGEST, LARGEST)
    assert again is not None
    assert ENTRY.unpack_from(again.block, HEAD_BYTES)[0] == 9
    assert list(open_messages(again.block).payloads) == LARGE


def test_a_block_that_is_no_clients_is_refused_and_a_full_queue_takes_none() -> None:
    queue = SendQueue()
    block = pack_run(0, AGREED, LARGE)
    for wrong in (
        block[:-1],
        with_label(block, b"bob"),
        pack_grouped(0, AGREED, [b"a", b"b"], [1, 2]),
        pack_run(0, AGREED, [b"a"])[:-1],
    ):
        with pytest.raises(WireError):
            offered(queue, wrong, Group(1))
    assert queue.count == 0
    taken = 0
    while offered(queue, block, Group(1)):
        taken += 1
    assert 20 <= taken <= 40
