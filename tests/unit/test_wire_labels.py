"""Labels of sessions in blocks and roster operations (docs/design/roster.md)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import UsageError, WireError
from ordercast.service import AGREED, FIFO
from ordercast.wire.block import (
    ENTRY,
    ENTRY_BYTES,
    HEAD_BYTES,
    after_of,
    groups_of,
    head_of,
    label_of,
    open_columns,
    open_messages,
    open_part,
    open_payloads,
    pack_fragment,
    pack_grouped,
    pack_multi,
    pack_roster,
    pack_run,
    payload_bytes,
    with_label,
)
from ordercast.wire.calls import CallHead, open_call, pack_call
from ordercast.wire.labels import MAX_LABEL, read_label, wrong_with
from ordercast.wire.roster import decode_operation, encode_joins

LABEL = "käthe"


def test_a_labelled_block_is_the_same_block_with_its_label_at_the_end() -> None:
    block = with_label(pack_run(7, AGREED, [b"abc", b"def"], 9, 2, 0x0102), b"anna")
    plain = pack_run(7, AGREED, [b"abc", b"def"], 9, 2, 0x0102)
    assert len(block) == len(plain) + 4
    assert block[HEAD_BYTES + 6 : HEAD_BYTES + 8] == b"\x04\0"
    assert block[: HEAD_BYTES + 6] + plain[HEAD_BYTES + 6 : HEAD_BYTES + 8] + block[HEAD_BYTES + 8 :] == plain + b"anna"
    assert (label_of(block), label_of(plain)) == ("anna", "")


MESSAGES = (
    pack_run(7, AGREED, [b"abc", b"def"], 9, 2, 5),
    pack_run(7, FIFO, [b"a", b"", b"defg"], 9, -2, 5),
    pack_run(7, FIFO, [b"", b""], 9),
    pack_grouped(7, AGREED, [b"a", b"bc"], [1, 2], 5),
    pack_grouped(7, AGREED, [b"aa", b"bc"], [1, 2], 5),
    pack_multi(7, AGREED, [b"a", b"bc"], [9, 8], 5),
)


@pytest.mark.parametrize("plain", MESSAGES)
def test_all_readers_see_what_they_see_without_a_label(plain: bytes) -> None:
    block = with_label(plain, LABEL.encode())
    head = head_of(block)
    assert head == head_of(plain)
    assert (label_of(block), after_of(block)) == (LABEL, after_of(plain))
    assert open_messages(block) == open_messages(plain)
    assert open_payloads(block, head) == open_payloads(plain, head)
    assert payload_bytes(block, head) == payload_bytes(plain, head)
    assert groups_of(block, head) == groups_of(plain, head)
    opened, before = open_columns(block), open_columns(plain)
    assert (opened.lengths, bytes(opened.payloads)) == (before.lengths, bytes(before.payloads))


@pytest.mark.parametrize("targets", [(), (4, 5)])
def test_a_fragment_has_its_label_behind_its_part(targets: Sequence[int]) -> None:
    plain = pack_fragment(7, AGREED, 0 if targets else 3, 1, b"0123456789", 4, 10, 5, targets)
    block = with_label(plain, LABEL.encode())
    assert open_part(block) == open_part(plain)
    assert label_of(block) == LABEL
    assert payload_bytes(block, head_of(block)) == 10


def _claiming(plain: bytes, size: int) -> bytes:
    group, type_, _, count = ENTRY.unpack_from(plain, HEAD_BYTES)
    return plain[:HEAD_BYTES] + ENTRY.pack(group, type_, size, count) + plain[HEAD_BYTES + ENTRY_BYTES :]


def test_blocks_that_are_no_session_s_have_no_label() -> None:
    plain = pack_roster(1, b"x" * 80)
    head_of(plain)
    with pytest.raises(WireError, match="label"):
        head_of(_claiming(plain, 4))


def test_a_call_of_a_session_has_its_label_behind_the_payload() -> None:
    plain = pack_call(1, AGREED, CallHead(0, 0, 2, "a/0", ("", 0)), b"x" * 80)
    labelled = with_label(plain, LABEL.encode())
    assert label_of(labelled) == LABEL
    assert open_call(labelled) == open_call(plain)


@pytest.mark.parametrize("size", [MAX_LABEL + 1, 0xFFFF])
def test_a_label_that_claims_too_much_is_refused(size: int) -> None:
    with pytest.raises(WireError, match="label"):
        head_of(_claiming(pack_run(1, AGREED, [b"x" * 200]), size))
    with pytest.raises(WireError, match="label"):
        head_of(_claiming(pack_run(1, AGREED, [b""]), 8))


def test_a_label_that_takes_bytes_of_the_payload_makes_the_block_unreadable() -> None:
    block = _claiming(pack_run(1, AGREED, [b"abc", b"defg"]), 3)
    assert label_of(block) == "efg"
    with pytest.raises(WireError):
        open_messages(block)


@pytest.mark.parametrize("label", ["a@b", "a/b", "a\nb", "\x7f", "a\x85", "x" * (MAX_LABEL + 1), "é" * 33, "\ud800"])
def test_labels_that_no_session_may_have(label: str) -> None:
    assert wrong_with(label)
    with pytest.raises(UsageError, match="the label of a session has"):
        list(encode_joins(label, b"", ["g"], 500))
    data = label.encode(errors="surrogatepass")
    with pytest.raises(WireError):
        read_label(data)
    if len(data) < 256:
        body = next(encode_joins("", b"", ["g"], 500))
        with pytest.raises(WireError):
            decode_operation(body[:1] + bytes([len(data)]) + data + body[2:])


@given(st.text(max_size=MAX_LABEL))
def test_what_may_be_sent_is_read_back_and_nothing_else(label: str) -> None:
    if not wrong_with(label):
        assert read_label(label.encode()) == label
        block = with_label(MESSAGES[0], label.encode())
        assert label_of(block) == label
        operation = decode_operation(next(encode_joins(label, b"hi", ["g"], 500)))
        assert operation == (label, b"hi", ["g"])


@given(st.binary(max_size=120), st.integers(0, 0xFFFF), st.sampled_from(MESSAGES))
def test_random_ends_of_blocks_are_read_or_refused(end: bytes, size: int, plain: bytes) -> None:
    block = _claiming(plain, size) + end
    try:
        head = head_of(block)
        label = label_of(block)
        opened = open_messages(block)
    except WireError:
        return
    assert not wrong_with(label)
    assert len(opened.payloads) == head.count
