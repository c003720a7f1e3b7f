"""Messages of Spread's clients and of the daemon: bytes of sections 4 to 6 of the reference."""

from __future__ import annotations

from struct import pack

import pytest
from tests.daemon.spread_bytes import AGREED, FIFO, JOIN, KILL, LEAVE, SELF_DISCARD, big, field, little

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.encoding import (
    encode_casts,
    encode_membership,
    encode_self_leave,
    encode_transitional,
    group_id_of,
)
from ordercast.daemon.spread.frames import AnyRequest, Disconnect, FrameDecoder, JoinGroup, LeaveGroup, SpreadCast

ME = b"#alice#lochost"


def decode(data: bytes, size: int = 1_000_000) -> tuple[list[AnyRequest], FrameDecoder]:
    decoder = FrameDecoder(ME)
    found: list[AnyRequest] = []
    for start in range(0, len(data), size):
        found += decoder.receive(data[start : start + size])
    return found, decoder


def flat(requests: list[AnyRequest]) -> list[AnyRequest]:
    """With one body in each cast: how many are read at once depends on the pieces."""
    found: list[AnyRequest] = []
    for each in requests:
        found += [each._replace(bodies=[body]) for body in each.bodies] if isinstance(each, SpreadCast) else [each]
    return found


def test_the_join_of_a_c_client_is_read() -> None:
    """Section 5: 80 bytes."""
    data = bytes.fromhex("80000180") + field(ME) + bytes.fromhex("01000000 80000080 00000000") + field(b"grpA")
    assert len(data) == 80
    assert decode(data)[0] == [JoinGroup(b"grpA")]


@pytest.mark.parametrize("write", [little, big])
@pytest.mark.parametrize("size", [1, 5, 47, 48, 49, 1_000_000])
def test_requests_of_either_byte_order_are_read_in_pieces_of_every_size(write, size: int) -> None:  # type: ignore[no-untyped-def]
    data = b"".join(
        (
            write(JOIN, ME, [b"grpA"]),
            write(AGREED, ME, [b"grpA", b"#bob#lochost"], b"one", 0x1234),
            write(AGREED, ME, [b"grpA", b"#bob#lochost"], b"three", 0x1234),
            write(AGREED, ME, [b"grpA", b"#bob#lochost"], b"", 0x1234),
            write(FIFO | SELF_DISCARD, ME, [b"grpB"], b"other", -3),
            write(LEAVE, ME, [b"grpA"]),
            write(KILL, ME, [ME]),
            b"what follows is not read",
        )
    )
    hint = bytes.fromhex("80341280" if write is little else "00123400")
    other = bytes.fromhex("80fdff80" if write is little else "00fffd00")
    both = (b"grpA", b"#bob#lochost")
    found, decoder = decode(data, size)
    assert flat(found) == [
        JoinGroup(b"grpA"),
        *[SpreadCast(AGREED, hint, both, [body]) for body in (b"one", b"three", b"")],
        SpreadCast(FIFO | SELF_DISCARD, other, (b"grpB",), [b"other"]),
        LeaveGroup(b"grpA"),
        Disconnect(),
    ]
    assert decoder.is_over
    assert not decoder.fault


def test_messages_alike_are_read_as_one_cast() -> None:
    data = b"".join([little(AGREED, ME, [b"g"], b"%d" % i) for i in range(500)])
    assert decode(data)[0] == [SpreadCast(AGREED, bits.PLAIN_HINT, (b"g",), [b"%d" % i for i in range(500)])]


def test_messages_that_differ_in_their_groups_only_are_told_apart() -> None:
    data = little(AGREED, ME, [b"g"], b"1") + little(AGREED, ME, [b"h"], b"2") + little(AGREED, ME, [b"h"], b"3")
    assert [(each.groups, each.bodies) for each in decode(data)[0] if isinstance(each, SpreadCast)] == [
        ((b"g",), [b"1"]),
        ((b"h",), [b"2", b"3"]),
    ]


def test_what_stands_after_a_nul_is_ignored() -> None:
    """Section 1, rule 8."""
    garbage = ME + b"\0" + b"x" * 17
    data = pack("<I", KILL | 0x80000080) + garbage + pack("<i", 1) + bytes.fromhex("80000080 00000000") + garbage
    assert decode(data)[0] == [Disconnect()]
    group = b"grpA\0" + b"y" * 27
    data = pack("<I", AGREED | 0x80000080) + garbage + pack("<i", 1) + bytes.fromhex("80000080 01000000") + group + b"z"
    assert decode(data)[0] == [SpreadCast(AGREED, bits.PLAIN_HINT, (b"grpA",), [b"z"])]


def test_bits_that_mean_nothing_to_the_daemon_stay_and_its_own_go() -> None:
    """Sections 1 (rule 4) and 5.2."""
    passed = 0x0100_0000 | 0x4000_0000 | SELF_DISCARD
    assert decode(little(AGREED | passed | 0x1100, ME, [b"g"]))[0] == [
        SpreadCast(AGREED | passed, bits.PLAIN_HINT, (b"g",), [b""])
    ]


def raw(type_: int = AGREED, name: bytes = ME, count: int = 0, hint: str = "80000080", length: int = 0) -> bytes:
    return pack("<I", type_ | 0x80000080) + field(name) + pack("<i", count) + bytes.fromhex(hint) + pack("<i", length)


@pytest.mark.parametrize(
    "data",
    [
        raw(0),
        raw(AGREED | FIFO),
        raw(AGREED | JOIN),
        raw(JOIN | LEAVE),
        raw(0x080000),
        raw(AGREED | 0x080000),
        raw(name=b"#bob#lochost"),
        raw(name=b"#alice#other"),
        raw(name=b"#alice#lochostx"),
        raw(name=b"alice"),
        raw(name=b""),
        raw(count=-1),
        raw(count=101),
        raw(hint="81000080"),
        raw(hint="80000081"),
        raw(hint="01000000"),
        raw(length=-1),
        raw(length=143_953),
        raw(count=1, length=143_921),
        raw(length=2**31 - 1),
        bytes(48),
        b"\xff" * 48,
    ],
)
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_what_spread_closes_the_connection_for_is_a_fault(data: bytes, size: int) -> None:
    """Section 5.2. What came before counts, and nothing after it is read."""
    found, decoder = decode(little(JOIN, ME, [b"g"]) + data + little(JOIN, ME, [b"h"]), size)
    assert found == [JoinGroup(b"g")]
    assert decoder.fault
    assert decoder.is_over
    assert decoder.buffered_bytes == 0


def test_a_fault_in_a_message_like_the_one_before_is_seen() -> None:
    data = raw(length=1) + b"x"
    assert decode(data + raw(length=-1))[1].fault
    assert decode(data + raw(length=143_953))[1].fault


def test_the_largest_message_is_taken() -> None:
    body = bytes(143_952 - 32)
    assert decode(little(AGREED, ME, [b"g"], body), 4096)[0] == [SpreadCast(AGREED, bits.PLAIN_HINT, (b"g",), [body])]
    hundred = [b"g%d" % i for i in range(100)]
    body = bytes(143_952 - 3200)
    assert flat(decode(big(AGREED, ME, hundred, body), 50_000)[0]) == [
        SpreadCast(AGREED, bytes(4), tuple(hundred), [body])
    ]


def test_a_larger_limit_may_be_configured() -> None:
    decoder = FrameDecoder(ME, 14_400_000)
    assert decoder.receive(little(AGREED, ME, [b"g"], bytes(300_000)))
    assert not decoder.fault


@pytest.mark.parametrize("hint", ["80341280", "00123400", "80123400", "00123480", "80ffff80", "00800000"])
def test_a_hint_is_made_again_bit_for_bit(hint: str) -> None:
    data = bytes.fromhex(hint)
    number, marks = bits.read_hint(data)
    assert bits.make_hint(number, marks) == data


def test_hints_are_read_in_their_own_byte_order() -> None:
    """Section 4.2."""
    assert bits.read_hint(bytes.fromhex("80341280")) == (0x1234, 3)
    assert bits.read_hint(bytes.fromhex("00123400")) == (0x1234, 0)
    assert bits.read_hint(bytes.fromhex("80feff80")) == (-2, 3)


def test_a_message_is_sent_on_with_a_little_endian_header() -> None:
    """Sections 1 and 6.1: the hint as it came."""
    sent = encode_casts(AGREED, ME, bytes.fromhex("00123400"), [b"g", b"h"], [b"body"])
    assert sent == (
        bytes.fromhex("90000080")
        + field(ME)
        + bytes.fromhex("02000000 00123400 04000000")
        + field(b"g")
        + field(b"h")
        + b"body"
    )


@pytest.mark.parametrize("bodies", [[b"aa", b"bb", b"cc"], [b"", b"b", b"ccc"], [b""], [b"", b""], []])
def test_a_block_is_encoded_as_its_messages_one_by_one(bodies: list[bytes]) -> None:
    one_by_one = [encode_casts(FIFO, ME, bits.PLAIN_HINT, [b"g"], [body]) for body in bodies]
    assert encode_casts(FIFO, ME, bits.PLAIN_HINT, [b"g"], bodies) == b"".join(one_by_one)
    assert one_by_one == [little(FIFO, ME, [b"g"], body) for body in bodies]


def test_the_join_of_the_reference_is_encoded_byte_for_byte() -> None:
    """Section 6.2, the complete example."""
    group_id = bytes.fromhex("7d8121d0 f849f96a 01000000")
    sent = encode_membership(0x100, b"grpA", group_id, [ME], [[ME]], 0, has_sets=True)
    assert sent == (
        bytes.fromhex("80110080") + field(b"grpA") + bytes.fromhex("01000000 80000080 38000000")
        + field(ME)
        + group_id + bytes.fromhex("01000000 00000000 01000000") + field(ME)
    )  # fmt: skip


def test_the_merge_of_the_reference_has_its_offset() -> None:
    """Section 6.2: a member of the second set, num=2, offset=36, data_len=188."""
    sets = [[b"#c1#c"], [b"#a1#a", b"#a2#a", b"#nm#a", b"#b1#b"]]
    members = [*sets[1], *sets[0]]
    sent = encode_membership(0x800, b"g", bytes(12), members, sets, 1, has_sets=True)
    assert sent[:4] == bytes.fromhex("80180080")
    assert sent[36:40] == pack("<i", 5)
    assert sent[44:48] == pack("<i", 188)
    body = sent[48 + 5 * 32 :]
    assert len(body) == 188
    assert body[12:20] == pack("<ii", 2, 36)
    own = body[20 + 36 :]
    assert own == pack("<i", 4) + b"".join(map(field, sets[1]))
    first = encode_membership(0x800, b"g", bytes(12), members, sets, 0, has_sets=True)
    assert first[48 + 160 :][16:20] == bytes(4)


def test_a_library_before_4_gets_its_own_set_only() -> None:
    """Section 6.7: 48 bytes of body for a join."""
    sent = encode_membership(0x100, b"grpA", b"i" * 12, [ME], [[ME]], 0, has_sets=False)
    assert sent[44:48] == pack("<i", 48)
    assert sent[48 + 32 :] == b"i" * 12 + pack("<i", 1) + field(ME)
    sets = [[b"#c1#c"], [b"#a1#a", b"#b1#b"]]
    sent = encode_membership(0x800, b"g", bytes(12), [*sets[1], *sets[0]], sets, 1, has_sets=False)
    assert sent[48 + 96 :] == bytes(12) + pack("<i", 2) + field(b"#a1#a") + field(b"#b1#b")


def test_self_leave_and_signal_are_short() -> None:
    """Sections 6.3 and 6.4."""
    assert encode_self_leave(b"grpA") == (
        bytes.fromhex("80020080") + field(b"grpA") + bytes.fromhex("00000000 80000080 00000000")
    )
    assert encode_transitional(b"grpA", b"i" * 12) == (
        bytes.fromhex("80200080") + field(b"grpA") + bytes.fromhex("00000000 80000080 0c000000") + b"i" * 12
    )


def test_ids_of_views_differ_and_repeat() -> None:
    """Section 6.5."""
    assert len(group_id_of("7@3@a/1")) == 12
    assert group_id_of("7@3@a/1") == group_id_of("7@3@a/1")
    assert len({group_id_of(f"{n}@3@a/1") for n in range(1000)}) == 1000
