"""Golden bytes: the format of every datagram, as hex, so that it cannot change unnoticed.

A difference here means that nodes of two versions no longer understand each other: change `MAGIC` with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.unit import wire_samples as sample

from ordercast.service import AGREED, RESILIENT, SAFE
from ordercast.view import Reason, group_tag, node_id, ring_id
from ordercast.wire.block import (
    Head,
    after_of,
    come_after,
    head_of,
    open_messages,
    open_part,
    pack_fragment,
    pack_grouped,
    pack_multi,
    pack_roster,
    pack_run,
    roster_body,
)
from ordercast.wire.calls import (
    FIRST,
    RELAY,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    needs_of,
    open_call,
    pack_call,
)
from ordercast.wire.codec import Reader
from ordercast.wire.header import FORWARD, HEADER, MAGIC, Kind, detail_of
from ordercast.wire.names import decode_names, encode_names, encode_question
from ordercast.wire.ordering import (
    decode_accept,
    decode_acks,
    decode_carrier,
    decode_held,
    decode_lead,
    decode_nak,
    decode_ordered,
    decode_propose,
    encode_accept,
    encode_acks,
    encode_carrier,
    encode_held,
    encode_lead,
    encode_nak,
    encode_ordered,
    encode_propose,
)
from ordercast.wire.roster import (
    JoinGroups,
    LeaveGroups,
    NameGroups,
    RosterPart,
    SeedGroups,
    SeedPart,
    SeedProgress,
    SeedState,
    decode_operation,
    decode_part,
    encode_joins,
    encode_leaves,
    encode_name_groups,
    encode_parts,
    encode_seed,
)
from ordercast.wire.stamps import decode_stamps, encode_stamps
from ordercast.wire.token import (
    decode_change,
    decode_list,
    decode_state,
    decode_token,
    encode_change,
    encode_list,
    encode_state,
    encode_token,
)
from ordercast.wire.views import (
    decode_address,
    decode_asking,
    decode_ballot,
    decode_cut,
    decode_decision,
    decode_ended,
    decode_invite,
    decode_refusal,
    decode_result,
    decode_ring,
    decode_suspects,
    decode_view,
    decode_welcome,
    decode_withdrawal,
    encode_address,
    encode_asking,
    encode_ballot,
    encode_cut,
    encode_decision,
    encode_ended,
    encode_invite,
    encode_refusal,
    encode_result,
    encode_ring,
    encode_suspects,
    encode_view,
    encode_welcome,
    encode_withdrawal,
)

GOLDEN: Final[dict[str, str]] = {
    "header": ("c7010103ddccbbaa8877665544332211d03cc0c6a16ce1df0c00000000000000"),
    "block_equal": ("07000000000000000200000004000201000000000000000001000000020000000200000003000000616263646566"),
    "block_mixed_lengths": (
        "07000000000000000300000005020001000000000000000001000000feff0000030000000100000004006164656667"
    ),
    "block_grouped": (
        "070000000000000003000000070001010201000000000000000000000500000003000000010000000403020101000000"
        "01000200010061626364"
    ),
    "block_grouped_equal": (
        "070000000000000002000000040003010000000000000000000000000000000002000000010000000200000003000000616263646566"
    ),
    "block_multi": (
        "07000000000000000200000007004001020100000000000000000000050000000200000002000000090000000403020101000200616263"
    ),
    "block_multi_equal": (
        "070000000000000002000000040042010000000000000000000000000000000002000000010000000900000003000000616263646566"
    ),
    "block_roster": ("070000000000000000000000040080010201000000000000000000000000000000000000626f6479"),
    "fragment_multi": (
        "0700000000000000000000000400440102010000000000000000000002000000000000000a0000000400000002000000"
        "090000000403020134353637"
    ),
    "fragment": ("0700000000000000000000000400040100000000000000000100000002000000000000000a0000000400000034353637"),
    "last_fragment": ("07000000000000000100000004000c0100000000000000000100000002000000010000000a000000080000003839"),
    "come_after": ("0000000000000000010000000400020102010000000000000000000000000000010000000100000078"),
    "roster_join": ("01026d6502006869020000000104616772c3bc6e"),
    "roster_leave": ("02026d6502006869020000000100000004030201"),
    "roster_name": ("0300010000000161"),
    "roster_seed": (
        "0401000000000800000000000000"
        "0a000000000000000400000000000000020000000000000003000000000000000100000001000700000000000000"
        "05000000000000000200020100000000000000000200000000000000017800010000000300000000000100"
        "0161"
    ),
    "roster_part": ("05010000000002000201000000000000000002000000000000000178000100000001000001000161"),
    "lead": ("29000000000000001e00000000000000230000000000000002000000"),
    "accept": (
        "29000000000000001e000000000000002300000000000000020000002900000000000000d03cc0c6a16ce1df0c000000"
        "00000000030000002c00000000000000442ffd62d23cbe41050000000000000001000000"
    ),
    "ordered": ("29000000000000001e000000000000002300000000000000020000002900000000000000d03cc0c6a16ce1df"),
    "acks": ("28000000000000002600000000000000"),
    "nak": (
        "28000000000000002600000000000000442ffd62d23cbe41000000000000000027000000000000000200000000000000"
        "442ffd62d23cbe4105000000000000000100000002000400"
    ),
    "held": ("28000000000000002600000000000000d03cc0c6a16ce1df0f00000000000000442ffd62d23cbe410600000000000000"),
    "carrier": ("020028000000000000002600000000000000d03cc0c6a16ce1df0f00000000000000442ffd62d23cbe410600000000000000"),
    "propose": ("28000000000000002600000000000000020300627965"),
    "call_block": (
        "070000000000000001000000040022010000000000000000000000000000000001000000320000000300000000000000"
        "03020000000000000000000000000000000007006361726f6c2f31080031302e302e302e335a1b362a37"
    ),
    "answer_block": (
        "070000000000000001000000040022010000000000000000000000000500000001000000300000000000000000000000"
        "04ffd03cc0c6a16ce1df04000000000000000500626f622f32000000000700616c6963652f303432"
    ),
    "call": (
        "030600707269636573000000000000000001000000070022010000000000000000000000000000000001000000320000"
        "00030000000000000003020000000000000000000000000000000007006361726f6c2f31080031302e302e302e335a1b"
        "362a37"
    ),
    "reply": ("000001005814418b389a33c001e8030000000000003432"),
    "state": ("5a00000000000000442ffd62d23cbe412c0000000000000029000000000000000300030000000000040000002c000000"),
    "token": (
        "5a00000000000000442ffd62d23cbe412c0000000000000029000000000000000300030000000000040000002c000000"
        "2900000000000000d03cc0c6a16ce1df0c00000000000000030000002c00000000000000442ffd62d23cbe4105000000"
        "0000000001000000"
    ),
    "list": (
        "300000005a00000000000000442ffd62d23cbe412c000000000000002900000000000000030003000000000004000000"
        "2c00000061206368616e6765"
    ),
    "stamps": (
        "2900000000000000ef030000000000002c000000000000000f000000000000000d000000000000000200010002000300"
        "0100000000000400000001000800000000000000d03cc0c6a16ce1df0d0000000000000002000300000000000000442f"
        "fd62d23cbe410500000000000000010007000000d03cc0c6a16ce1df0c00000000000000eb03000000000000442ffd62"
        "d23cbe412900000000000000030003000000010000000d00000000000000020000000100010005000000000000000400"
        "00000000d03cc0c6a16ce1df0d00000000000000ed03000000000000442ffd62d23cbe41290000000000000001000100"
        "00000100d03cc0c6a16ce1df0b00000000000000e903000000000000d03cc0c6a16ce1df1e000000000000000000"
    ),
    "silent_stamps": (
        "2900000000000000000000000000000029000000000000000000000000000000000000000000000000000000000000000000"
    ),
    "join": (
        "01080706050403020105000000000000000000020068690300626f620200000000000000080031302e302e302e32591b"
        "0040030000080200010000005814418b389a33c00400000000000000"
    ),
    "lock": (
        "050300000000000000000000000000000006006c656467657200000500616c6963650000000000000000080031302e30"
        "2e302e31581b000040000101ffff00000000"
    ),
    "view": (
        "07000000000000000700616c6963652f308877665544332211030000002900000000000000e803000000000000010500"
        "626f622f320200686902000500616c6963650000000000000000080031302e302e302e31581b000040000101ffff0300"
        "626f620200000000000000080031302e302e302e32591b00400300000802000100d03cc0c6a16ce1dfffff0200000044"
        "2ffd62d23cbe410500000000000000d03cc0c6a16ce1df0c00000000000000010000005814418b389a33c00400000000"
        "00000001000000d03cc0c6a16ce1df0e00000000000000030006006c656467657203000000000000000200010032d03c"
        "c0c6a16ce1df070000000000000006006c6564676572442ffd62d23cbe410600000000000000"
    ),
    "address": ("080031302e302e302e32591b"),
    "suspects": ("0200d03cc0c6a16ce1df442ffd62d23cbe41"),
    "asking": (
        "06007072696365730300626f620200000000000000080031302e302e302e32591b004003000008020008070605040302"
        "010105000000000000000800000000000000ffffffffffffffff0000100000000000ffffffffffffffff020068690100"
        "00005814418b389a33c00400000000000000"
    ),
    "ring": (
        "0600707269636573887766554433221107000000000000000700616c6963652f300200030500616c6963650000000000"
        "000000080031302e302e302e31581b000040000101ffff090073657175656e6365720110000000010000000000800000"
        "0000001000000000007805000004006f70656e01030000e40b5402000000"
    ),
    "welcome": (
        "06007072696365730807060504030201090073657175656e636572011000000001000000000080000000000010000000"
        "00007805000004006f70656e01030000e40b5402000000"
        "07000000000000000700616c6963652f3088776655443322110300000029000000"
        "00000000e803000000000000010500626f622f320200686902000500616c6963650000000000000000080031302e302e"
        "302e31581b000040000101ffff0300626f620200000000000000080031302e302e302e32591b00400300000802000100"
        "d03cc0c6a16ce1dfffff02000000442ffd62d23cbe410500000000000000d03cc0c6a16ce1df0c000000000000000100"
        "00005814418b389a33c0040000000000000001000000d03cc0c6a16ce1df0e00000000000000030006006c6564676572"
        "03000000000000000200010032d03cc0c6a16ce1df070000000000000006006c6564676572442ffd62d23cbe41060000"
        "0000000000"
    ),
    "refusal": ("0600707269636573040066756c6c"),
    "ballot": ("020000002800000000000000ffffd03cc0c6a16ce1df"),
    "invite": ("020000002800000000000000ffffd03cc0c6a16ce1df0200010200676f"),
    "cut": (
        "020000002800000000000000ffffd03cc0c6a16ce1df28000000000000002300000000000000010000002a0000000000"
        "0000442ffd62d23cbe4105000000000000000100000002000000d03cc0c6a16ce1df0c0000000000000002000000442f"
        "fd62d23cbe4105000000000000000100000007000000000000000700616c6963652f3088776655443322110300000029"
        "00000000000000e803000000000000010500626f622f320200686902000500616c696365000000000000000008003130"
        "2e302e302e31581b000040000101ffff0300626f620200000000000000080031302e302e302e32591b00400300000802"
        "000100d03cc0c6a16ce1dfffff02000000442ffd62d23cbe410500000000000000d03cc0c6a16ce1df0c000000000000"
        "00010000005814418b389a33c0040000000000000001000000d03cc0c6a16ce1df0e00000000000000030006006c6564"
        "67657203000000000000000200010032d03cc0c6a16ce1df070000000000000006006c6564676572442ffd62d23cbe41"
        "0600000000000000110000000000000001020000002800000000000000ffffd03cc0c6a16ce1df012600000000000000"
        "010000002700000000000000442ffd62d23cbe4104000000000000000200000007000000000000000700616c6963652f"
        "308877665544332211030000002900000000000000e803000000000000010500626f622f320200686902000500616c69"
        "63650000000000000000080031302e302e302e31581b000040000101ffff0300626f620200000000000000080031302e"
        "302e302e32591b00400300000802000100d03cc0c6a16ce1dfffff02000000442ffd62d23cbe410500000000000000d0"
        "3cc0c6a16ce1df0c00000000000000010000005814418b389a33c0040000000000000001000000d03cc0c6a16ce1df0e"
        "00000000000000030006006c656467657203000000000000000200010032d03cc0c6a16ce1df07000000000000000600"
        "6c6564676572442ffd62d23cbe410600000000000000020300050068656c6c6ffeff0000"
    ),
    "result": (
        "020000002800000000000000ffffd03cc0c6a16ce1df020000002800000000000000ffffd03cc0c6a16ce1df01260000"
        "0000000000010000002700000000000000442ffd62d23cbe410400000000000000020000000700000000000000070061"
        "6c6963652f308877665544332211030000002900000000000000e803000000000000010500626f622f32020068690200"
        "0500616c6963650000000000000000080031302e302e302e31581b000040000101ffff0300626f620200000000000000"
        "080031302e302e302e32591b00400300000802000100d03cc0c6a16ce1dfffff02000000442ffd62d23cbe4105000000"
        "00000000d03cc0c6a16ce1df0c00000000000000010000005814418b389a33c0040000000000000001000000d03cc0c6"
        "a16ce1df0e00000000000000030006006c656467657203000000000000000200010032d03cc0c6a16ce1df0700000000"
        "00000006006c6564676572442ffd62d23cbe410600000000000000"
    ),
    "decision": ("290000000000000001"),
    "withdrawal": ("0600707269636573010208070605040302010900000000000000"),
    "ended": ("0600707269636573"),
    "question": ("00"),
    "names": ("0102000600707269636573040063686174"),
}

SESSIONS: Final = ((1, ""), (2, "x"))
SEED_STATE: Final = SeedState(10, 4, SeedProgress(2, 3, 1), {7: 5})
NONCE: Final = 0x0102030405060708
VALUES: Final[dict[str, bytes]] = {
    "header": HEADER.pack(MAGIC, Kind.DATA, 1, 3, 0xAABBCCDD, 0x1122334455667788, sample.ALICE.id, 12),
    "block_equal": pack_run(7, AGREED, [b"abc", b"def"], 1, 2),
    "block_mixed_lengths": pack_run(7, RESILIENT(2), [b"a", b"", b"defg"], 1, -2),
    "block_grouped": pack_grouped(7, SAFE, [b"a", b"bc", b"d"], [1, 0x01020304, 1], 5, 0x0102),
    "block_grouped_equal": pack_grouped(7, AGREED, [b"abc", b"def"], [1, 2]),
    "block_multi": pack_multi(7, SAFE, [b"a", b"bc"], [9, 0x01020304], 5, 0x0102),
    "block_multi_equal": pack_multi(7, AGREED, [b"abc", b"def"], [9]),
    "block_roster": pack_roster(7, b"body", 0x0102),
    "fragment": pack_fragment(7, AGREED, 1, 2, b"0123456789", 4, 8),
    "fragment_multi": pack_fragment(7, AGREED, 0, 2, b"0123456789", 4, 8, 0x0102, [9, 0x01020304]),
    "last_fragment": pack_fragment(7, AGREED, 1, 2, b"0123456789", 8, 10),
    "come_after": come_after(pack_run(0, AGREED, [b"x"]), 0x0102),
    "roster_join": next(encode_joins("me", b"hi", ["a", "grün"], 500)),
    "roster_leave": next(encode_leaves("me", b"hi", [1, 0x01020304], 500)),
    "roster_name": next(encode_name_groups("", ["a"], 500)),
    "roster_seed": next(encode_seed(8, iter([(3, "a", SESSIONS, ())]), SEED_STATE, 500)),
    "roster_part": next(encode_parts(iter([(True, "a", SESSIONS, ())]), 500)),
    "lead": encode_lead(sample.LEAD),
    "accept": encode_accept(sample.LEAD, sample.ASSIGNMENTS),
    "ordered": encode_ordered(sample.LEAD, 41, sample.ALICE.id),
    "acks": encode_acks(sample.ACKS),
    "nak": encode_nak(sample.ACKS, sample.MISSING, sample.BOB.id),
    "held": encode_held(sample.ACKS, sample.HOLDING),
    "carrier": encode_carrier(sample.ACKS, sample.HOLDING),
    "propose": encode_propose(sample.ACKS, Reason.LEAVE, b"bye"),
    "call_block": pack_call(7, AGREED, sample.CALL, b"6*7"),
    "answer_block": pack_call(7, AGREED, sample.ANSWER, b"42", 5),
    "call": encode_call(FIRST | RELAY, "prices", pack_call(0, SAFE, sample.CALL, b"6*7")),
    "reply": encode_reply(sample.REPLY),
    "state": encode_state(sample.STATE),
    "token": encode_token(sample.STATE, sample.ASSIGNMENTS),
    "list": encode_list(encode_state(sample.STATE), b"a change"),
    "stamps": encode_stamps(sample.STAMPS),
    "silent_stamps": encode_stamps(sample.SILENT),
    "join": encode_change(sample.JOIN),
    "lock": encode_change(sample.LOCK),
    "view": encode_view(sample.VIEW),
    "address": encode_address(sample.BOB.address),
    "suspects": encode_suspects([sample.ALICE.id, sample.BOB.id]),
    "asking": encode_asking(sample.ASKING),
    "ring": encode_ring(sample.RING),
    "welcome": encode_welcome("prices", NONCE, sample.CONFIG, sample.VIEW),
    "refusal": encode_refusal("prices", "full"),
    "ballot": encode_ballot(sample.BALLOT),
    "invite": encode_invite(sample.BALLOT, 2, True, b"go"),
    "cut": encode_cut(sample.BALLOT, sample.CUT),
    "result": encode_result(sample.BALLOT, sample.PROPOSAL),
    "decision": encode_decision(*sample.DECISION),
    "withdrawal": encode_withdrawal(*sample.WITHDRAWAL),
    "ended": encode_ended("prices"),
    "question": encode_question(),
    "names": encode_names(["prices", "chat"]),
}
SEEDED: Final = SeedGroups(array("I", [3]), ["a"], [SESSIONS, ()], array("H", [0]), array("H", [1]))
OPENED: Final[dict[str, tuple[Callable[[bytes], Any], Any]]] = {
    "roster_join": (decode_operation, JoinGroups("me", b"hi", ["a", "grün"])),
    "roster_leave": (decode_operation, LeaveGroups("me", b"hi", array("I", [1, 0x01020304]))),
    "roster_name": (decode_operation, NameGroups("", ["a"])),
    "roster_seed": (decode_operation, SeedPart(8, 0, SEED_STATE, SEEDED)),
    "roster_part": (decode_part, RosterPart(b"\1", ["a"], [SESSIONS, ()], array("H", [0]), array("H", [1]))),
    "lead": (decode_lead, sample.LEAD),
    "accept": (decode_accept, (sample.LEAD, sample.ASSIGNMENTS)),
    "acks": (decode_acks, sample.ACKS),
    "nak": (decode_nak, (sample.ACKS, sample.BOB.id, sample.MISSING)),
    "held": (decode_held, (sample.ACKS, sample.HOLDING)),
    "carrier": (
        lambda prefix: decode_carrier(prefix + b"block"),
        (sample.ACKS, sample.HOLDING, memoryview(b"block")),
    ),
    "propose": (decode_propose, (sample.ACKS, Reason.LEAVE, b"bye")),
    "call_block": (open_call, (sample.CALL, b"6*7")),
    "answer_block": (open_call, (sample.ANSWER, b"42")),
    "call": (decode_call, (FIRST | RELAY, "prices", pack_call(0, SAFE, sample.CALL, b"6*7"))),
    "reply": (decode_reply, sample.REPLY),
    "state": (decode_state, (sample.STATE, 48)),
    "token": (decode_token, (sample.STATE, sample.ASSIGNMENTS)),
    "list": (decode_list, (encode_state(sample.STATE), b"a change")),
    "stamps": (decode_stamps, sample.STAMPS),
    "silent_stamps": (decode_stamps, sample.SILENT._replace(acks=[], decisions=[])),
    "join": (decode_change, sample.JOIN),
    "lock": (decode_change, sample.LOCK),
    "view": (lambda body: decode_view(Reader(body)), sample.VIEW),
    "address": (decode_address, sample.BOB.address),
    "suspects": (decode_suspects, [sample.ALICE.id, sample.BOB.id]),
    "asking": (decode_asking, sample.ASKING),
    "ring": (decode_ring, sample.RING),
    "welcome": (decode_welcome, ("prices", NONCE, sample.CONFIG, sample.VIEW)),
    "refusal": (decode_refusal, ("prices", "full")),
    "ballot": (decode_ballot, sample.BALLOT),
    "invite": (decode_invite, (sample.BALLOT, 2, True, b"go")),
    "cut": (decode_cut, (sample.BALLOT, sample.CUT)),
    "result": (decode_result, (sample.BALLOT, sample.PROPOSAL)),
    "decision": (decode_decision, sample.DECISION),
    "withdrawal": (decode_withdrawal, sample.WITHDRAWAL),
    "ended": (decode_ended, "prices"),
    "question": (decode_names, None),
    "names": (decode_names, ["prices", "chat"]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_what_they_always_were(name: str) -> None:
    assert VALUES[name].hex() == GOLDEN[name]


@pytest.mark.parametrize("name", OPENED)
def test_golden_bytes_are_read_back(name: str) -> None:
    decode, value = OPENED[name]
    assert decode(bytes.fromhex(GOLDEN[name])) == value


def test_golden_blocks_are_opened() -> None:
    equal = open_messages(bytes.fromhex(GOLDEN["block_equal"]))
    assert (equal.first, equal.service, list(equal.payloads)) == (7, AGREED, [b"abc", b"def"])
    assert (equal.groups, equal.type) == (1, 2)
    mixed = open_messages(bytes.fromhex(GOLDEN["block_mixed_lengths"]))
    assert (mixed.service, list(mixed.payloads)) == (RESILIENT(2), [b"a", b"", b"defg"])
    assert (mixed.groups, mixed.type) == (1, -2)
    grouped = open_messages(bytes.fromhex(GOLDEN["block_grouped"]))
    assert (grouped.type, grouped.groups, list(grouped.payloads)) == (
        5,
        array("I", [1, 0x01020304, 1]),
        [b"a", b"bc", b"d"],
    )
    assert open_messages(bytes.fromhex(GOLDEN["block_grouped_equal"])).groups == array("I", [1, 2])
    multi = open_messages(bytes.fromhex(GOLDEN["block_multi"]))
    assert (multi.type, multi.groups, list(multi.payloads)) == (5, (9, 0x01020304), [b"a", b"bc"])
    assert open_messages(bytes.fromhex(GOLDEN["block_multi_equal"])).groups == (9,)


def test_a_golden_roster_block_is_opened() -> None:
    block = bytes.fromhex(GOLDEN["block_roster"])
    assert (bytes(roster_body(block, head_of(block))), after_of(block)) == (b"body", 0x0102)


def test_golden_fragments_are_opened() -> None:
    part = open_part(bytes.fromhex(GOLDEN["fragment"]))
    assert (part.first, part.size, part.offset, part.payload, part.is_last) == (7, 10, 4, b"4567", False)
    multi = open_part(bytes.fromhex(GOLDEN["fragment_multi"]))
    assert (multi.group, multi.targets, multi.offset, multi.payload) == (0, (9, 0x01020304), 4, b"4567")
    last = open_part(bytes.fromhex(GOLDEN["last_fragment"]))
    assert (last.offset, last.payload, last.is_last) == (8, b"89", True)
    assert head_of(bytes.fromhex(GOLDEN["last_fragment"])) == Head(7, 1, AGREED.rank, 0, 12, 1)


def test_a_golden_ordered_block_is_opened() -> None:
    block = VALUES["block_equal"]
    lead, seq, origin, rest = decode_ordered(bytes.fromhex(GOLDEN["ordered"]) + block)
    assert (lead, seq, origin, bytes(rest)) == (sample.LEAD, 41, sample.ALICE.id, block)


def test_golden_calls_are_opened_like_any_block_of_one_message() -> None:
    block = bytes.fromhex(GOLDEN["call_block"])
    assert needs_of(block) == sample.CALL.needs
    opened = open_messages(block)
    assert (opened.first, opened.service, len(opened.payloads), opened.groups) == (7, AGREED, 1, 0)
    assert opened.payloads[0].endswith(b"6*7")
    assert open_messages(bytes.fromhex(GOLDEN["answer_block"])).type == 5


def test_ids_are_derived_as_they_always_were() -> None:
    assert node_id("alice", 0) == sample.ALICE.id == int("dfe16ca1c6c03cd0", 16)
    assert group_tag("prices") == int("7b543e12", 16)
    assert ring_id("prices", sample.ALICE.id, 7) == int("bedc09a6ec5ab113", 16)


def test_kinds_keep_their_numbers() -> None:
    """The value is on the wire: append, never renumber."""
    assert {kind.name: kind.value for kind in Kind} == {
        "DATA": 1,
        "REQUEST": 2,
        "ORDERED": 3,
        "ACCEPT": 4,
        "REPAIR": 5,
        "NAK": 6,
        "STATUS": 7,
        "ACK": 8,
        "SYNC": 9,
        "HELD": 10,
        "PROPOSE": 11,
        "TOKEN": 12,
        "CONFIRM": 13,
        "UNRELIABLE": 14,
        "LIST": 15,
        "STAMPS": 16,
        "DECISION": 17,
        "CARRIER": 18,
        "PROBE": 19,
        "FIND": 20,
        "HERE": 21,
        "JOIN": 22,
        "WELCOME": 23,
        "REFUSE": 24,
        "RETURN": 25,
        "BEACON": 26,
        "VOTE": 27,
        "DECIDED": 28,
        "DEPART": 29,
        "SUSPECT": 30,
        "INVITE": 31,
        "CUT": 32,
        "DENY": 33,
        "RESULT": 34,
        "RESULT_ACK": 35,
        "COMMIT": 36,
        "CHECK": 37,
        "WITHDRAW": 38,
        "ENDED": 39,
        "CALL": 40,
        "REPLY": 41,
        "NAMES": 42,
        "PACKET": 43,
        "SKIP": 44,
        "UPDATE": 45,
        "HOP_ACK": 46,
        "HOP_NAK": 47,
        "SITE_TOKEN": 48,
        "WAKE": 49,
        "HELLO": 50,
        "GATHER": 51,
        "SITE_CUT": 52,
        "PROPOSAL": 53,
        "ACCEPTED": 54,
        "INSTALL": 55,
        "FETCH": 56,
        "SHOW": 57,
        "COURIER_ACK": 64,
        "CLOSE": 65,
        "REGION_TOKEN": 66,
        "REGION_ACK": 67,
        "REGION_NAK": 68,
        "GONE": 69,
        "PUSH": 70,
        "PULL": 71,
        "PULLED": 72,
        "LOST": 73,
        "DRAINED": 74,
        "ACCUSE": 75,
        "WHO": 76,
        "SERVICE": 77,
        "ASK": 78,
        "TOLD": 79,
        "EPOCH": 80,
        "PING": 81,
        "PONG": 82,
        "OUT": 83,
        "LEADER": 84,
    }
    assert all(kind < FORWARD for kind in Kind), "the bit beside the kind is free"
    assert detail_of(Kind.NAK | FORWARD) == detail_of(Kind.NAK)
