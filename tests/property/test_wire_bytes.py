"""Any bytes against every decoder: only WireError escapes, and nothing is allocated that bytes only claim."""

from __future__ import annotations

import random
from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.decoders import DECODERS, peak_bytes, survives
from tests.unit import wire_samples as sample

from ordercast.config import MAX_BLOCK, MinMembers
from ordercast.engine import Change
from ordercast.errors import UsageError, WireError
from ordercast.service import AGREED, FIFO, RELIABLE, RESILIENT, SAFE
from ordercast.view import Member, Reason, View, node_id
from ordercast.wire.block import (
    CALLED,
    CHANGE,
    ENTRY,
    EQUAL,
    FRAGMENT,
    FRAGMENT_OVERHEAD,
    FRAGMENTED,
    GROUPED,
    HEAD,
    LAST,
    LENGTH,
    MAX_COUNT,
    MAX_TARGETS,
    MULTI,
    ROSTER,
    after_of,
    fits,
    groups_of,
    head_of,
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
    roster_body,
)
from ordercast.wire.calls import (
    HANDLERS,
    IS_ANSWER,
    NO_HANDLER,
    CallHead,
    Reply,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    needs_of,
    open_call,
    pack_call,
)
from ordercast.wire.codec import Reader
from ordercast.wire.fragments import Assembler
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.ordering import (
    ACKS,
    ASSIGNMENT,
    LEAD,
    MISSING,
    TARGET,
    Acks,
    Assignment,
    Missing,
    decode_nak,
    encode_nak,
)
from ordercast.wire.segments import MAX_PARTIAL, MAX_PARTIAL_BYTES, Reassembly, pieces, strip_train, train
from ordercast.wire.token import (
    LIST_SIZE,
    STATE,
    State,
    decode_change,
    decode_state,
    decode_token,
    encode_change,
    encode_state,
    encode_token,
)
from ordercast.wire.views import BALLOT, decode_view, encode_view

NAMES = sorted(DECODERS)
ALLOWANCE = 20_000  # a few objects and an exception with its traceback
SERVICES = st.sampled_from([RELIABLE, FIFO, AGREED, RESILIENT(1), RESILIENT(255), SAFE])
U64 = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(0, 1 << 60)  # what counters and places stay below


def cut(payload: bytes, limit: int, first: int = 0, group: int = 0, type_: int = 0) -> list[bytes]:
    """The blocks of one large message, each at most `limit` bytes."""
    size, step = len(payload), limit - FRAGMENT_OVERHEAD
    return [
        pack_fragment(first, AGREED, group, type_, payload, offset, min(offset + step, size))
        for offset in range(0, size, step)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_valid_bytes_parse(name: str) -> None:
    decode, valid = DECODERS[name]
    if name not in ("Assembler", "Reassembly"):
        assert all(survives(decode, data) for data in valid)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_refused_or_parse(name: str, data: bytes) -> None:
    survives(DECODERS[name][0], data)


@pytest.mark.parametrize("name", NAMES)
def test_every_truncation_is_refused_or_parses(name: str) -> None:
    decode, valid = DECODERS[name]
    for data in valid:
        for size in range(len(data)):
            survives(decode, data[:size])
        survives(decode, data + b"\0")


@pytest.mark.parametrize("name", NAMES)
def test_every_flipped_bit_is_refused_or_parses(name: str) -> None:
    decode, valid = DECODERS[name]
    for data in valid:
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            survives(decode, bytes(flipped))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_overwritten_at_random_are_refused_or_parse(name: str) -> None:
    decode, valid = DECODERS[name]
    rng = random.Random(f"hostile/{name}")
    for _ in range(400):
        data = bytearray(rng.choice(valid))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            word = rng.choice((b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", rng.randbytes(4)))
            data[at : at + len(word)] = word[: len(data) - at]
        survives(decode, bytes(data))


@pytest.mark.parametrize("name", NAMES)
def test_memory_follows_the_bytes_that_are_there(name: str) -> None:
    """Lengths of all ones wherever a length may stand: nothing is allocated before the bytes are seen."""
    decode, valid = DECODERS[name]
    for data in valid:
        for at in range(0, len(data), 2):
            claim = data[:at] + b"\xff" * min(4, len(data) - at) + data[at + 4 :]
            assert peak_bytes(decode, claim) <= 40 * len(claim) + ALLOWANCE


CRAFTED = {
    "a block that claims as many messages as there may be": HEAD.pack(0, MAX_COUNT, 4, 0, 0, 1)
    + ENTRY.pack(0, 0, 0, MAX_COUNT),
    "a block whose groups are not there": HEAD.pack(0, MAX_COUNT, 4, 0, GROUPED, 1) + ENTRY.pack(0, 0, 0, MAX_COUNT),
    "messages to 4 billion groups": HEAD.pack(0, 1, 4, 0, MULTI | EQUAL, 1)
    + ENTRY.pack(0, 0, 0, 1)
    + b"\xff\xff\xff\xff"
    + bytes(64),
    "a fragment to 4 billion groups": HEAD.pack(0, 0, 4, 0, FRAGMENTED | MULTI, 1)
    + ENTRY.pack(0, 0, 0, 0)
    + FRAGMENT.pack(100, 0)
    + b"\xff\xff\xff\xff",
    "equal messages of 4 GB": HEAD.pack(0, 2, 4, 0, EQUAL, 1) + ENTRY.pack(0, 0, 0, 2) + b"\xff\xff\xff\xff",
    "a fragment of a message of 4 GB": HEAD.pack(0, 0, 4, 0, FRAGMENTED, 1)
    + ENTRY.pack(0, 0, 0, 0)
    + FRAGMENT.pack(0xFFFFFFFF, 0)
    + b"x",
    "a run of 4 billion places": LEAD.pack(1, 0, 0, 0, 0) + ASSIGNMENT.pack(1, 1, 1, 0xFFFFFFFF),
    "a request for 4 billion repairs": ACKS.pack(1, 1) + TARGET.pack(0) + MISSING.pack(0, 1, 0xFFFFFFFF, 0, 0),
    "4 billion places of a result": BALLOT.pack(1, 1, 1, 1) * 2 + b"\1" + bytes(8) + b"\xff\xff\xff\xff",
    "a call of 4 GB": HEAD.pack(0, 1, 4, 0, EQUAL | CALLED, 1) + ENTRY.pack(0, 0, 0, 1) + b"\xff\xff\xff\xff",
    "a table of more members than there may be": STATE.pack(1, 1, 1, 1, 0xFFFF, 0) + bytes(8),
    "a new list of 4 GB": LIST_SIZE.pack(0xFFFFFFFF) + bytes(64),
    "a change with 4 billion callers": encode_change(sample.JOIN)[:-20] + b"\xff" * 4,
    "4 billion places of a cut": BALLOT.pack(1, 1, 1, 1) + bytes(16) + b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted_lengths_allocate_nothing(name: str) -> None:
    data = CRAFTED[name]
    for decode, _ in DECODERS.values():
        assert peak_bytes(decode, data) <= ALLOWANCE + 40 * len(data)


def test_a_block_of_empty_messages_allocates_no_more_than_the_bound_on_messages() -> None:
    """The one place where bytes are not what bounds: empty messages need none, so that MAX_COUNT does."""
    data = HEAD.pack(0, MAX_COUNT, 4, 0, EQUAL, 1) + ENTRY.pack(0, 0, 0, MAX_COUNT) + bytes(4)
    assert len(open_messages(data).payloads) == MAX_COUNT
    assert peak_bytes(open_messages, data) <= 10 * MAX_COUNT + ALLOWANCE
    with pytest.raises(WireError):
        open_messages(HEAD.pack(0, MAX_COUNT + 1, 4, 0, EQUAL, 1) + ENTRY.pack(0, 0, 0, MAX_COUNT + 1) + bytes(4))


# Round trips. ---------------------------------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.tuples(st.one_of(st.integers(0, 3), st.integers(0, (1 << 32) - 1)), st.binary(max_size=40)),
    min_size=1,
    max_size=60,
)


@given(first=NUMBERS, service=SERVICES, messages=MESSAGES, type_=st.integers(-(1 << 15), (1 << 15) - 1), after=NUMBERS)
@settings(deadline=None)
def test_messages_come_out_of_a_block_as_they_went_in(
    first: int, service: Any, messages: list[tuple[int, bytes]], type_: int, after: int
) -> None:
    payloads, groups = [payload for _, payload in messages], [group for group, _ in messages]
    columns: dict[str, Any] = {
        "list": groups,
        "array": array("I", groups),
        "numpy": np.array(groups, "u4"),
        "big-endian": np.array(groups, ">u4"),
    }
    blocks = {name: pack_grouped(first, service, payloads, column, type_, after) for name, column in columns.items()}
    assert len(set(blocks.values())) == 1, "one block, whatever the column was"
    block = blocks["list"]
    opened = open_messages(block)
    assert (opened.first, opened.service, list(opened.payloads), opened.type) == (first, service, payloads, type_)
    assert after_of(block) == after
    for found in (opened.groups, open_columns(block).groups, groups_of(block, head_of(block))):
        assert isinstance(found, int) == (len(set(groups)) == 1), "a column only where there are several groups"
        assert found == groups[0] if isinstance(found, int) else list(found) == groups
    assert payload_bytes(block, head_of(block)) == sum(map(len, payloads))


@given(
    first=NUMBERS,
    payloads=st.lists(st.binary(max_size=40), min_size=1, max_size=20),
    groups=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=MAX_TARGETS, unique=True),
    type_=st.integers(-(1 << 15), (1 << 15) - 1),
    after=NUMBERS,
)
@settings(deadline=None)
def test_messages_to_several_groups_come_out_as_they_went_in(
    first: int, payloads: list[bytes], groups: list[int], type_: int, after: int
) -> None:
    block = pack_multi(first, AGREED, payloads, groups, type_, after)
    opened = open_messages(block)
    assert (opened.first, opened.service, list(opened.payloads), opened.type) == (first, AGREED, payloads, type_)
    for found in (opened.groups, open_columns(block).groups, groups_of(block, head_of(block))):
        assert found == tuple(groups)
    assert (payload_bytes(block, head_of(block)), after_of(block)) == (sum(map(len, payloads)), after)
    part = open_part(pack_fragment(first, AGREED, 0, type_, b"0123456789", 3, 8, after, groups))
    assert (part.offset, part.payload, part.targets) == (3, b"34567", tuple(groups))


def test_messages_are_read_alike_whether_the_groups_are_opened_or_not() -> None:
    """A block that is unreadable is so at every member, and for every reader."""

    def read(block: bytes, is_whole: bool) -> tuple[list[bytes], int] | None:
        try:
            if is_whole:
                opened = open_messages(block)
                return list(opened.payloads), opened.type
            payloads, type_ = open_payloads(block, head_of(block))
        except WireError:
            return None
        return list(payloads), type_

    for block in DECODERS["open_messages"][1]:
        changed = [block, *[block[:size] for size in range(len(block))]]
        for bit in range(8 * len(block)):
            flipped = bytearray(block)
            flipped[bit // 8] ^= 1 << bit % 8
            changed.append(bytes(flipped))
        for one in changed:
            assert read(one, True) == read(one, False)


def test_a_column_or_list_of_groups_that_cannot_be_is_a_mistake_of_the_caller() -> None:
    for column in ([1], [1, 2, 3], array("I"), np.array([1], "u4")):
        with pytest.raises(UsageError, match="2 messages need 2 group numbers"):
            pack_grouped(0, AGREED, [b"x", b"y"], column)
    for groups in ([], [4, 4], list(range(MAX_TARGETS + 1))):
        with pytest.raises(UsageError, match="1 to 255 different groups"):
            pack_multi(0, AGREED, [b"x"], groups)


@pytest.mark.parametrize("flag", [GROUPED, MULTI, ROSTER])
@pytest.mark.parametrize("other", [FRAGMENTED, CHANGE, CALLED | EQUAL, GROUPED, MULTI, ROSTER, LAST])
def test_flags_that_do_not_go_together_are_refused(flag: int, other: int) -> None:
    block = HEAD.pack(0, 0, AGREED.rank, 0, flag | other, 1) + ENTRY.pack(0, 0, 0, 0) + bytes(200)
    goes = flag == other or (flag, other) == (MULTI, FRAGMENTED)
    assert survives(head_of, block) == goes


def test_a_list_of_groups_is_neither_empty_nor_too_long_and_names_none_twice() -> None:
    def block(flags: int, *groups: int, group: int = 0) -> bytes:
        front = HEAD.pack(0, 1, AGREED.rank, 0, flags | EQUAL, 1) + ENTRY.pack(group, 0, 0, 1)
        count = LENGTH.pack(len(groups)) if flags == MULTI else b""
        return front + count + array("I", groups).tobytes() + LENGTH.pack(1) + b"x"

    assert open_messages(block(MULTI, *range(MAX_TARGETS))).groups == tuple(range(MAX_TARGETS))
    assert open_messages(block(GROUPED, 9)).groups == array("I", [9])
    for wrong in (block(MULTI), block(MULTI, *range(MAX_TARGETS + 1)), block(MULTI, 4, 5, 4)):
        for decode in (open_messages, open_columns, lambda data: groups_of(data, head_of(data))):
            assert not survives(decode, wrong)
    for wrong in (block(MULTI, 4, group=3), block(GROUPED, 4, group=3)):
        assert not survives(open_messages, wrong)
        assert not survives(open_columns, wrong)


def test_a_roster_block_is_agreed_and_holds_no_messages() -> None:
    block = pack_roster(7, b"an operation", 9)
    head = head_of(block)
    assert (head.first, head.count, head.rank, bytes(roster_body(block, head))) == (7, 0, AGREED.rank, b"an operation")
    assert (after_of(block), payload_bytes(block, head)) == (9, len(b"an operation"))
    for decode in (open_messages, open_columns, open_part):
        assert not survives(decode, block)
    for count, service in ((1, AGREED), (0, FIFO), (0, SAFE)):
        wrong = HEAD.pack(7, count, service.rank, 0, ROSTER, 1) + ENTRY.pack(0, 0, 0, count)
        assert not survives(head_of, wrong)
    run = pack_run(0, AGREED, [b"x"])
    with pytest.raises(WireError):
        roster_body(run, head_of(run))


@given(lengths=st.lists(st.integers(0, 5_000), min_size=1, max_size=60), limit=st.integers(512, MAX_BLOCK))
@settings(deadline=None)
def test_what_fits_a_block_fits_it(lengths: list[int], limit: int) -> None:
    stop = fits(lengths, 0, limit)
    if stop:
        assert len(pack_run(0, AGREED, [bytes(length) for length in lengths[:stop]])) <= limit


@given(payload=st.binary(min_size=1, max_size=3_000), limit=st.integers(60, 700))
@settings(deadline=None)
def test_a_large_message_is_put_together_again(payload: bytes, limit: int) -> None:
    assembler = Assembler(4_096)
    *before, last = [assembler.add(9, block) for block in cut(payload, limit, 5, 1, 2)]
    assert before == [None] * len(before)
    assert last is not None
    assert (last.first, last.group, last.type, last.payload) == (5, 1, 2, payload)
    assert assembler.is_empty


@given(body=st.binary(min_size=1, max_size=2_000), datagram=st.integers(40, 600), seed=st.integers(0, 99))
@settings(deadline=None)
def test_segments_in_any_order_make_the_body(body: bytes, datagram: int, seed: int) -> None:
    if len(body) > 200 * (datagram - HEADER_BYTES):
        return
    buffers, stride = train(Kind.DATA, 1, 2, 3, 4, body, datagram)
    data = b"".join(buffers)
    if stride:
        count = -(-len(data) // stride)
        assert strip_train(memoryview(data), stride, count) == body
        datagrams = [data[at : at + stride] for at in range(0, len(data), stride)]
        random.Random(seed).shuffle(datagrams)
        parts = Reassembly(datagram)
        made = [parts.add((3, 4, 0), each[2], each[3], each[HEADER_BYTES:]) for each in datagrams]
        assert made[:-1] == [None] * (count - 1)
        assert made[-1] == body
        again, _ = pieces(Kind.REPAIR, 1, 2, 3, 4, body, datagram, 0, count)
        assert b"".join(again)[HEADER_BYTES : HEADER_BYTES + 5] == body[:5]


@given(
    counter=NUMBERS,
    seq=NUMBERS,
    position=NUMBERS,
    names=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True),
    life=st.integers(-(1 << 63), (1 << 63) - 1),
    reason=st.sampled_from(Reason),
    header=st.binary(max_size=1_024),
    prior=st.lists(st.tuples(U64, st.sampled_from(["majority", "all", 1, 2, 1_000])), max_size=8),
    asked=st.tuples(st.booleans(), st.integers(0, 255), st.sampled_from(["majority", "all", 1, 2, 1_000])),
    locks=st.dictionaries(st.text(max_size=60), U64, max_size=8),
    callers=st.dictionaries(U64, NUMBERS, max_size=8),
    awaited=st.dictionaries(U64, NUMBERS, max_size=8),
    request=st.tuples(st.text(max_size=60), U64),
)
@settings(deadline=None)
def test_a_view_is_read_as_it_was_written(
    counter: int,
    seq: int,
    position: int,
    names: Any,
    life: int,
    reason: Reason,
    header: bytes,
    prior: list[tuple[int, MinMembers]],
    asked: Any,
    locks: dict[str, int],
    callers: dict[int, int],
    awaited: dict[int, int],
    request: tuple[str, int],
) -> None:
    members = tuple(Member(node_id(name, life), name, life, ("10.1.2.3", 7_000), 1 << 20, *asked) for name in names)
    view = View(
        counter=counter,
        creator="me/0",
        ring=5,
        incarnation=6,
        seq=seq,
        position=position,
        members=members,
        numbers={member.id: index for index, member in enumerate(members)},
        reason=reason,
        subject="subject",
        header=header,
        prior=tuple(member for member, _ in prior),
        prior_rules=tuple(rule for _, rule in prior),
        locks=locks,
        tokens=dict.fromkeys(locks, counter),
        callers=callers,
        awaited=awaited,
        lock=request[0],
        serial=request[1],
    )
    reader = Reader(encode_view(view))
    assert decode_view(reader) == view
    reader.end()


CALL_HEADS = st.builds(
    CallHead,
    needs=NUMBERS,
    flags=st.integers(0, 255),
    handler=st.sampled_from([*range(HANDLERS), NO_HANDLER]),
    caller=st.text(max_size=100),
    address=st.sampled_from([("", 0), ("10.1.2.3", 7_000)]),
    asker=U64,
    asked=NUMBERS,
    asked_by=st.text(max_size=100),
)


@given(
    first=NUMBERS,
    service=SERVICES,
    head=CALL_HEADS,
    payload=st.binary(max_size=200),
    flags=st.integers(0, 255),
    group=st.text(max_size=60),
)
@settings(deadline=None)
def test_a_call_is_read_as_it_was_written(
    first: int, service: Any, head: CallHead, payload: bytes, flags: int, group: str
) -> None:
    block = pack_call(first, service, head, payload, -3)
    assert decode_call(encode_call(flags, group, block)) == (flags, group, block)
    assert open_call(block) == (head if head.flags & IS_ANSWER else head._replace(asked_by=""), payload)
    assert needs_of(block) == head.needs
    opened = open_messages(block)
    assert (opened.first, opened.service, opened.groups, opened.type) == (first, service, 0, -3)


@given(block=st.binary(max_size=120), flags=st.integers(0, 255), kinds=st.integers(0, 3), count=st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_what_opens_as_a_call_has_its_needs_where_they_are_looked_for(
    block: bytes, flags: int, kinds: int, count: int
) -> None:
    """A peer chooses the layout of its blocks; only one of them is a call."""
    body = pack_call(0, AGREED, CallHead(7, 0, NO_HANDLER, "", ("", 0)), block)[HEAD.size :]
    data = HEAD.pack(0, count, 4, 0, flags, kinds) + body
    if survives(open_call, data):
        assert needs_of(data) == 7


BROKEN_CALLS = {
    "a handler that there is not": CallHead(0, 0, HANDLERS, "a/0", ("10.1.2.3", 7_000)),
    "a name as the address": CallHead(0, 0, 0, "a/0", ("example.org", 7_000)),
    "an address without a port": CallHead(0, 0, 0, "a/0", ("10.1.2.3", 0)),
    "a port without an address": CallHead(0, 0, 0, "a/0", ("", 7_000)),
    "needs out of all reason": CallHead((1 << 60) + 1, 0, 0, "a/0", ("10.1.2.3", 7_000)),
    "an answer to a call out of all reason": CallHead(0, 0, 0, "a/0", ("", 0), 5, (1 << 60) + 1),
}


@pytest.mark.parametrize("name", BROKEN_CALLS)
def test_a_call_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        open_call(pack_call(0, AGREED, BROKEN_CALLS[name], b"x"))


@given(caller=U64, status=st.integers(0, 1), position=st.integers(-1, 1 << 60), payload=st.binary(max_size=200))
@settings(deadline=None)
def test_a_reply_is_read_as_it_was_written(caller: int, status: int, position: int, payload: bytes) -> None:
    reply = Reply(caller, status, position, payload, position + 1 & 0xFFFF)
    assert decode_reply(encode_reply(reply)) == reply
    with pytest.raises(WireError):
        decode_reply(encode_reply(reply._replace(status=status + 2)))


@given(
    received=NUMBERS,
    target=U64,
    missing=st.lists(st.tuples(U64, NUMBERS, st.integers(1, 256), st.integers(0, 9), st.integers(9, 256)), max_size=20),
)
@settings(deadline=None)
def test_a_request_for_repair_is_read_as_it_was_written(received: int, target: int, missing: Any) -> None:
    acks, asked = Acks(received, received // 2), [Missing(*each) for each in missing]
    assert decode_nak(encode_nak(acks, asked, target)) == (acks, target, asked)


@given(
    turn=NUMBERS,
    site=U64,
    highest=NUMBERS,
    view=NUMBERS,
    flags=st.integers(0, 0xFFFF),
    behind=st.lists(st.integers(0, 0xFFFF_FFFE), max_size=40),
    runs=st.lists(st.tuples(st.integers(0, 1 << 32), U64, NUMBERS, st.integers(1, 100)), max_size=20),
)
@settings(deadline=None)
def test_a_token_is_read_as_it_was_written(
    turn: int, site: int, highest: int, view: int, flags: int, behind: list[int], runs: Any
) -> None:
    rows = tuple(max(0, highest - each) for each in behind)
    state = State(turn, site, highest, view, flags, rows)
    assignments = [Assignment(*run) for run in runs if run[0] + run[3] - 1 <= highest]
    body = encode_token(state, assignments)
    assert decode_token(body) == (state, assignments)
    assert decode_state(body) == (state, len(encode_state(state)))
    with pytest.raises(WireError):
        decode_token(encode_token(state, [Assignment(highest, 1, 1, 2)]))


def test_a_row_far_behind_says_nothing() -> None:
    """What is known of a member is told as its distance from the highest place, in 32 bits."""
    state = State(1, 2, 1 << 40, 3, 0, (1 << 40, 5))
    assert decode_state(encode_state(state))[0].rows == (1 << 40, (1 << 40) - 0xFFFF_FFFF)


@given(
    reason=st.sampled_from([Reason.JOIN, Reason.LEAVE, Reason.DISSOLVE, Reason.LOCK, Reason.UNLOCK]),
    header=st.binary(max_size=1_024),
    next_block=NUMBERS,
    lock=st.text(max_size=60),
    serial=U64,
    callers=st.dictionaries(U64, NUMBERS, max_size=8),
)
@settings(deadline=None)
def test_a_change_is_read_as_it_was_written(
    reason: Reason, header: bytes, next_block: int, lock: str, serial: int, callers: dict[int, int]
) -> None:
    change = Change(reason, sample.BOB, header, next_block, lock, serial, callers)
    assert decode_change(encode_change(change)) == change
    for other in (Reason.CREATE, Reason.RESET):
        with pytest.raises(WireError):
            decode_change(encode_change(change._replace(reason=other)))


# Bounds. --------------------------------------------------------------------------------------------------------------


def test_bodies_under_reassembly_are_bounded_in_number_and_bytes() -> None:
    parts = Reassembly(0)
    for number in range(2 * MAX_PARTIAL):
        parts.add((1, number, 0), 0, 1, b"x")
    assert len(parts) == MAX_PARTIAL
    assert parts.evicted == MAX_PARTIAL
    big = bytes(60_000)
    parts = Reassembly(0)
    for number in range(MAX_PARTIAL_BYTES // len(big) + 10):
        parts.add((1, number, 0), 0, 1, big)
    assert len(parts) * len(big) <= MAX_PARTIAL_BYTES


def test_segments_that_contradict_each_other_are_refused_or_begin_anew() -> None:
    parts = Reassembly(HEADER_BYTES + 10)
    with pytest.raises(WireError):
        parts.add((1, 1, 0), 3, 2, b"x")
    with pytest.raises(WireError):
        parts.add((1, 1, 0), 0, 2, b"too short")
    with pytest.raises(WireError):
        parts.add((1, 1, 0), 2, 2, b"")
    assert parts.add((1, 1, 0), 0, 1, bytes(10)) is None
    assert parts.add((1, 1, 0), 0, 2, bytes(10)) is None, "another length: another body"
    assert parts.missing((1, 1, 0)) == [(1, 3)]


def test_an_assembler_keeps_no_more_than_the_largest_message_of_each_sender() -> None:
    assembler = Assembler(10_000)
    with pytest.raises(WireError, match="max_message"):
        assembler.add(1, cut(bytes(10_001), 600)[0])
    first, second, *_ = cut(bytes(5_000), 600)
    assert assembler.add(1, first) is None
    with pytest.raises(WireError, match="does not continue"):
        assembler.add(1, cut(bytes(5_000), 600)[2])
    with pytest.raises(WireError, match="does not continue"):
        assembler.add(1, second)
    assert assembler.is_empty
