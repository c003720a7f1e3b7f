"""`Batch.columns`: what a recorder takes of a block, without an object per message, is what everybody else reads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import WireError
from ordercast.groups.events import Batch
from ordercast.service import AGREED
from ordercast.wire.block import Messages, open_columns, open_messages, pack_grouped, pack_multi, pack_run

payloads = st.lists(st.binary(max_size=12), min_size=1, max_size=40)
grouped = st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=6)), min_size=1, max_size=60)


def batch_of(block: bytes, count: int) -> Batch:
    return Batch(block, "g", "1@a/1", "a/1", 5, count, 9, AGREED)


def packed(messages: list[tuple[int, bytes]]) -> bytes:
    return pack_grouped(5, AGREED, [payload for _, payload in messages], [group for group, _ in messages], -3)


def check(block: bytes, count: int) -> None:
    lengths, values, types = batch_of(block, count).columns()
    read = batch_of(block, count)
    cut, at = [], 0
    for length in lengths:
        cut.append(bytes(values[at : at + length]))
        at += length
    assert cut == list(read.messages)
    assert at == len(values)
    assert ([types] * count if isinstance(types, int) else list(types)) == list(read.types)
    again = batch_of(block, count)
    assert list(again.messages) == cut
    opened_lengths, opened_values, _ = again.columns()
    assert (list(opened_lengths), bytes(opened_values)) == (list(lengths), bytes(values)), "also of an opened one"


@given(payloads)
@settings(max_examples=100, deadline=None)
def test_columns_of_a_run_are_its_messages(messages: list[bytes]) -> None:
    check(pack_run(5, AGREED, messages, type_=7), len(messages))


@given(st.binary(max_size=9), st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_columns_of_equal_messages_are_its_messages(message: bytes, count: int) -> None:
    check(pack_run(5, AGREED, [message] * count), count)


@given(grouped)
@settings(max_examples=100, deadline=None)
def test_columns_of_messages_to_many_groups_are_its_messages(messages: list[tuple[int, bytes]]) -> None:
    check(packed(messages), len(messages))
    check(pack_multi(5, AGREED, [payload for _, payload in messages], [3, 1], -3), len(messages))


@given(grouped, st.booleans(), st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_block_is_read_alike_or_refused_by_both(
    messages: list[tuple[int, bytes]], is_multi: bool, data: st.DataObject
) -> None:
    payloads = [payload for _, payload in messages]
    block = bytearray(pack_multi(5, AGREED, payloads, [3, 1]) if is_multi else packed(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(block[: data.draw(st.integers(0, len(block)))]) if data.draw(st.booleans()) else bytes(block)
    opened: Messages | None
    try:
        opened = open_messages(cut)
    except WireError:
        opened = None
    try:
        columns = open_columns(cut)
    except WireError:
        assert opened is None
        assert batch_of(cut, 3).columns() == ((), b"", 0)
        return
    assert opened is not None
    assert [len(payload) for payload in opened.payloads] == list(columns.lengths)
    assert b"".join(opened.payloads) == columns.payloads
    assert (opened.type, opened.groups) == (columns.type, columns.groups)
