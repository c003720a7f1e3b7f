"""Every decoder of `ordercast.wire`, with valid bytes to start from."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

from tests.unit import gms_samples as gms
from tests.unit import region_samples as region
from tests.unit import site_samples as site
from tests.unit import wire_samples as sample

from ordercast.errors import WireError
from ordercast.membership.epochs import decode_news, encode_news
from ordercast.service import AGREED, RESILIENT
from ordercast.wire.block import (
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
    FIRST,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
    open_call,
    pack_call,
)
from ordercast.wire.codec import Reader, Writer
from ordercast.wire.courier import decode_courier_ack, encode_courier_ack, part_head
from ordercast.wire.courier import open_part as open_parcel_part
from ordercast.wire.fragments import Assembler
from ordercast.wire.gms import (
    decode_answer,
    decode_batch,
    decode_replica,
    decode_request,
    decode_standing,
    decode_who,
    encode_answer,
    encode_batch,
    encode_replica,
    encode_request,
    encode_standing,
    encode_who,
)
from ordercast.wire.header import HEADER, HEADER_BYTES, MAGIC, Kind
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
from ordercast.wire.pages import cut_pages, read_page
from ordercast.wire.ranges import decode_set, encode_set
from ordercast.wire.regions import (
    decode_accused,
    decode_close,
    decode_drained,
    decode_numbers,
    decode_open,
    encode_accused,
    encode_close,
    encode_drained,
    encode_numbers,
    encode_open,
)
from ordercast.wire.regions import decode_ack as decode_region_ack
from ordercast.wire.regions import decode_token as decode_region_token
from ordercast.wire.regions import encode_ack as encode_region_ack
from ordercast.wire.regions import encode_token as encode_region_token
from ordercast.wire.roster import (
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
from ordercast.wire.segments import Datagram, Reassembly, strip_train, train
from ordercast.wire.sites import (
    decode_hello,
    decode_hop_ack,
    decode_hop_nak,
    decode_site_token,
    decode_skip,
    decode_update,
    decode_wake,
    encode_hello,
    encode_hop_ack,
    encode_ranges,
    encode_site_token,
    encode_skip,
    encode_stamp,
    encode_update,
    encode_wake,
    open_packet,
    open_stamped,
    packet_head,
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
    decode_config,
    decode_cut,
    decode_decision,
    decode_ended,
    decode_invite,
    decode_member,
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
    encode_config,
    encode_cut,
    encode_decision,
    encode_ended,
    encode_invite,
    encode_member,
    encode_refusal,
    encode_result,
    encode_ring,
    encode_suspects,
    encode_view,
    encode_welcome,
    encode_withdrawal,
    open_change,
    pack_change,
)

Decode = Callable[[bytes], Any]


def _assemble(block: bytes) -> Any:
    return Assembler(1 << 20).add(1, block)


def _reassemble(data: bytes) -> Any:
    """Two bytes of segment and last, then the segment."""
    return Reassembly(0).add((1, 2, 3), data[0], data[1], data[2:]) if len(data) >= 2 else None


def _strip(data: bytes) -> Any:
    """As the underlay calls it: at least one whole header in each but the last datagram."""
    stride = HEADER_BYTES + 8
    return strip_train(memoryview(data), stride, -(-len(data) // stride)) if len(data) > stride else None


def _open_packet(data: bytes) -> Any:
    """As the engine does: behind the header."""
    if len(data) <= HEADER_BYTES:
        return None
    _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(data)
    return open_packet(Datagram(kind, segment, last, ring, origin, number, memoryview(data)[HEADER_BYTES:]))


def _open_parcel_part(data: bytes) -> Any:
    """The same for parcels of a courier."""
    if len(data) <= HEADER_BYTES:
        return None
    _, kind, segment, last, _, ring, origin, number = HEADER.unpack_from(data)
    return open_parcel_part(Datagram(kind, segment, last, ring, origin, number, memoryview(data)[HEADER_BYTES:]))


def _open_list(body: bytes) -> Any:
    """As the orderer does."""
    token, change = decode_list(body)
    return decode_token(token), open_change(change)


def _written(encode: Callable[[Writer, Any], None], value: Any) -> bytes:
    writer = Writer()
    encode(writer, value)
    return writer.bytes()


BLOCKS: Final = (
    pack_run(7, AGREED, [b"abc", b"def"], 1, 2),
    pack_run(7, RESILIENT(2), [b"a", b"", b"defg"], 1, -2),
    pack_grouped(7, AGREED, [b"a", b"bc", b"d"], [1, 1, 2], 5),
    pack_grouped(7, AGREED, [b"abc"] * 40, range(40)),
    pack_multi(7, AGREED, [b"a", b"bc"], [3, 1, 2], -5),
    pack_multi(7, AGREED, [b"a", b"b"], [3]),
    pack_run(0, AGREED, [b""] * 5),
)
FRAGMENTS: Final = (
    pack_fragment(7, AGREED, 1, 2, b"0123456789", 0, 4),
    pack_fragment(7, AGREED, 1, 2, b"0123456789", 4, 10),
    pack_fragment(7, AGREED, 1, 2, b"0123456789", 0, 10),
    pack_fragment(7, AGREED, 0, 2, b"0123456789", 4, 10, targets=[3, 1]),
)
ROSTERS: Final = (pack_roster(7, b"an operation"), pack_roster(0, b"", 5))
SESSIONS: Final = ((1, ""), (2, "x"))
SEED: Final = encode_seed(
    8,
    iter([(3, "a", SESSIONS, ()), (5, "grün", SESSIONS[:1], SESSIONS), (9, "c", (), SESSIONS[1:])]),
    SeedState(10, 4, SeedProgress(2, 3, 1), {7: 5}),
    80,
)
OPERATIONS: Final = (
    *encode_joins("me", b"hi", ["a", "grün"], 500),
    *encode_leaves("me", b"hi", [1, 2], 500),
    *encode_name_groups("", ["a"], 500),
    *SEED,
)
PARTS: Final = tuple(encode_parts(iter([(True, "a", SESSIONS, ()), (False, "grün", SESSIONS[:1], SESSIONS)]), 40))
CALLS: Final = (pack_call(7, AGREED, sample.CALL, b"6*7"), pack_call(0, RESILIENT(2), sample.ANSWER, b"", 5))
TOKEN: Final = encode_token(sample.STATE, sample.ASSIGNMENTS)
TRAIN: Final = b"".join(train(Kind.DATA, 1, 2, 3, 4, bytes(range(30)), HEADER_BYTES + 8)[0])

DECODERS: Final[dict[str, tuple[Decode, tuple[bytes, ...]]]] = {
    "head_of": (head_of, BLOCKS + FRAGMENTS + ROSTERS),
    "groups_of": (lambda block: groups_of(block, head_of(block)), BLOCKS + FRAGMENTS),
    "payload_bytes": (lambda block: payload_bytes(block, head_of(block)), BLOCKS + FRAGMENTS + ROSTERS),
    "open_messages": (open_messages, BLOCKS),
    "open_columns": (open_columns, BLOCKS),
    "open_payloads": (lambda block: open_payloads(block, head_of(block)), BLOCKS),
    "roster_body": (lambda block: roster_body(block, head_of(block)), ROSTERS),
    "decode_operation": (decode_operation, OPERATIONS),
    "decode_part": (decode_part, PARTS),
    "open_part": (open_part, FRAGMENTS),
    "Assembler": (_assemble, FRAGMENTS),
    "Reassembly": (_reassemble, (b"\0\1abc", b"\0\0abc", b"\3\2abc")),
    "strip_train": (_strip, (TRAIN,)),
    "open_change": (open_change, (pack_change(sample.VIEW),)),
    "open_call": (open_call, CALLS),
    "decode_call": (decode_call, (encode_call(FIRST, "prices", CALLS[0]), encode_call(0, "", CALLS[1]))),
    "decode_reply": (decode_reply, (encode_reply(sample.REPLY),)),
    "decode_names": (decode_names, (encode_question(), encode_names(["prices", "chat"]), encode_names([]))),
    "decode_lead": (decode_lead, (encode_lead(sample.LEAD),)),
    "decode_accept": (decode_accept, (encode_accept(sample.LEAD, sample.ASSIGNMENTS),)),
    "decode_ordered": (decode_ordered, (encode_ordered(sample.LEAD, 41, 5) + BLOCKS[0],)),
    "decode_acks": (decode_acks, (encode_acks(sample.ACKS),)),
    "decode_nak": (decode_nak, (encode_nak(sample.ACKS, sample.MISSING), encode_nak(sample.ACKS, sample.MISSING, 5))),
    "decode_held": (decode_held, (encode_held(sample.ACKS, sample.HOLDING),)),
    "decode_carrier": (decode_carrier, (encode_carrier(sample.ACKS, sample.HOLDING) + BLOCKS[0],)),
    "decode_propose": (decode_propose, (encode_propose(sample.ACKS, 2, b"bye"),)),
    "decode_state": (decode_state, (encode_state(sample.STATE),)),
    "decode_token": (decode_token, (TOKEN, encode_token(sample.STATE, ()))),
    "decode_list": (_open_list, (encode_list(TOKEN, pack_change(sample.VIEW)),)),
    "decode_stamps": (decode_stamps, (encode_stamps(sample.STAMPS), encode_stamps(sample.SILENT))),
    "decode_change": (decode_change, (encode_change(sample.JOIN), encode_change(sample.LOCK))),
    "decode_address": (decode_address, (encode_address(sample.BOB.address),)),
    "decode_suspects": (decode_suspects, (encode_suspects([1, 2, 3]),)),
    "decode_view": (lambda body: decode_view(Reader(body)), (encode_view(sample.VIEW),)),
    "decode_member": (lambda body: decode_member(Reader(body)), (_written(encode_member, sample.BOB),)),
    "decode_config": (lambda body: decode_config(Reader(body)), (_written(encode_config, sample.CONFIG),)),
    "decode_asking": (decode_asking, (encode_asking(sample.ASKING),)),
    "decode_ring": (decode_ring, (encode_ring(sample.RING),)),
    "decode_welcome": (decode_welcome, (encode_welcome("prices", 1, sample.CONFIG, sample.VIEW),)),
    "decode_refusal": (decode_refusal, (encode_refusal("prices", "full"),)),
    "decode_ballot": (decode_ballot, (encode_ballot(sample.BALLOT),)),
    "decode_invite": (decode_invite, (encode_invite(sample.BALLOT, "all", True, b"go"),)),
    "decode_cut": (decode_cut, (encode_cut(sample.BALLOT, sample.CUT),)),
    "decode_decision": (decode_decision, (encode_decision(*sample.DECISION),)),
    "decode_ended": (decode_ended, (encode_ended("prices"),)),
    "decode_withdrawal": (decode_withdrawal, (encode_withdrawal(*sample.WITHDRAWAL),)),
    "open_packet": (_open_packet, (packet_head(1, 2, 3, 4, site.PACKET) + b"body",)),
    "open_stamped": (open_stamped, (encode_stamp(site.STAMP) + BLOCKS[0],)),
    "decode_skip": (decode_skip, (encode_skip(site.SKIP),)),
    "decode_update": (decode_update, (encode_update(site.UPDATE),)),
    "decode_hop_ack": (decode_hop_ack, (encode_hop_ack(site.ACK),)),
    "decode_hop_nak": (decode_hop_nak, (encode_ranges(site.RANGES),)),
    "decode_site_token": (decode_site_token, (encode_site_token(site.TOKEN), encode_site_token(site.RESTING))),
    "decode_wake": (decode_wake, (encode_wake(258),)),
    "decode_hello": (decode_hello, (encode_hello(site.HELLO),)),
    "decode_set": (decode_set, (encode_set(region.BLOCKS), encode_set(region.CUT_OFF))),
    "open_parcel_part": (_open_parcel_part, (part_head(1, region.PART) + b"body",)),
    "decode_courier_ack": (decode_courier_ack, (encode_courier_ack(region.COURIER_ACK),)),
    "decode_open": (decode_open, (encode_open(region.OPENING),)),
    "decode_close": (decode_close, (encode_close(region.CLOSING),)),
    "decode_region_token": (
        decode_region_token,
        (encode_region_token(region.TOKEN), encode_region_token(region.RESTING)),
    ),
    "decode_region_ack": (decode_region_ack, (encode_region_ack(region.ACK),)),
    "decode_numbers": (decode_numbers, (encode_numbers(region.SEGMENTS),)),
    "decode_drained": (decode_drained, (encode_drained(0x0102),)),
    "decode_accused": (decode_accused, (encode_accused(region.ACCUSED),)),
    "decode_who": (decode_who, (encode_who(gms.SERVICE),)),
    "decode_replica": (decode_replica, (encode_replica(gms.REPLICA),)),
    "decode_request": (
        decode_request,
        tuple(
            map(encode_request, (gms.REGISTER, gms.JOIN, gms.SIGNED, gms.LEAVE, gms.CONFIRM, gms.EXCLUDE, gms.PLACE))
        ),
    ),
    "decode_answer": (decode_answer, tuple(map(encode_answer, (gms.NUMBERS, gms.REFUSED, gms.WAIT)))),
    "decode_standing": (decode_standing, (encode_standing(gms.STANDING),)),
    "decode_batch": (decode_batch, (encode_batch(gms.BATCH),)),
    "decode_news": (decode_news, (encode_news(gms.NEWS),)),
    "read_page": (read_page, tuple(cut_pages(7, b"body"))),
    "decode_result": (decode_result, (encode_result(sample.BALLOT, sample.PROPOSAL),)),
}

HEADERS: Final = tuple(
    HEADER.pack(MAGIC, kind, segment, last, 1, 2, 3, 4) for kind in Kind for segment, last in ((0, 0), (1, 3))
)


def survives(decode: Decode, data: bytes) -> bool:
    """Whether it parses; any other exception than WireError is for the test to fail with."""
    try:
        decode(data)
    except WireError:
        return False
    return True


def peak_bytes(decode: Decode, data: bytes) -> int:
    """The most memory that decoding took at once."""
    survives(decode, data)  # what is made once and kept (caches of structures) is not what is measured
    tracemalloc.start()
    try:
        survives(decode, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
