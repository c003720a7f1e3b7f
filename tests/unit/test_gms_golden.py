"""Golden bytes of what nodes and the membership service say to each other, so that they cannot change unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit import gms_samples as sample
from tests.unit.bodies import check_body

from ordercast.errors import InvariantViolation, WireError
from ordercast.membership.epochs import EpochNews, decode_news, encode_news
from ordercast.wire.codec import Writer
from ordercast.wire.gms import (
    Signature,
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
    signature_of,
    write_runs,
)
from ordercast.wire.header import Kind, detail_of
from ordercast.wire.pages import MAX_BODIES, MAX_PAGES, PAGE, PAGE_BYTES, PagedBodies, cut_pages, read_page

GOLDEN: dict[str, tuple[bytes, str]] = {
    "who": (
        encode_who(sample.SERVICE),
        "8877665544332211",
    ),
    "replica": (
        encode_replica(sample.REPLICA),
        "88776655443322110c000000000000009900000000000000080031302e302e302e39581b9800000000000000080031302e30"
        "2e302e38591b",
    ),
    "register": (
        encode_request(sample.REGISTER),
        "0100000000000000000500616c6963650100000000000000080031302e302e302e31e605001000000101ffff01",
    ),
    "join": (
        encode_request(sample.JOIN),
        "028877665544332211020100000000000000000000000000000200000002000000020466786e657773",
    ),
    "follow by signature": (
        encode_request(sample.SIGNED),
        "048877665544332211020100000000000000000000000000000300000000000000",
    ),
    "leave": (
        encode_request(sample.LEAVE),
        "03887766554433221106000000020602fe0d01",
    ),
    "confirm": (
        encode_request(sample.CONFIRM),
        "0588776655443322110c00000000000000",
    ),
    "exclude": (
        encode_request(sample.EXCLUDE),
        "11000000000000000009006e6f20616e73776572",
    ),
    "place": (
        encode_request(sample.PLACE),
        "12000000000000000001020000000500616c696365030000000300626f6203000000",
    ),
    "numbers": (
        encode_answer(sample.NUMBERS),
        "0288776655443322110c0000000000000005000000020e020f03",
    ),
    "refused": (
        encode_answer(sample.REFUSED),
        "0488776655443322110c0000000000000002006e6f",
    ),
    "wait": (
        encode_answer(sample.WAIT),
        "0588776655443322110c000000000000000300",
    ),
    "standing": (
        encode_standing(sample.STANDING),
        "88776655443322110c00000000000000",
    ),
    "batch": (
        encode_batch(sample.BATCH),
        "0d0000000000000006006465736b2f31020000000f5069dc972cc1fe0200000000000000110000000588776655443322110c"
        "00000000000000000000000000000000000000000000001400000011000000000000000009006e6f20616e73776572",
    ),
    "news": (
        encode_news(sample.NEWS),
        "0b00000000000000020000000000000088776655443322110c00000000000000090000000000000000000000000000000400"
        "000001020000000400000077000000000000000c0000000000000006006465736b2f31010d003233392e3139352e3232342e"
        "31ffff0500020066000000000000006700000000000000020000000500616c6963650100000000000000080031302e302e30"
        "2e31e605001000000101ffff0300626f620100000000000000080031302e302e302e311b05001000000101ffff0500000078"
        "000000000000000c0000000000000006006465736b2f310005000000010000000300626f620100000000000000080031302e"
        "302e302e311b05001000000101ffff010000006600000000000000010000005500000000000000010000000b000000000000"
        "0001000000040000000300000001020405000000020e010202",
    ),
    "page": (
        cut_pages(7, b"body")[0],
        "070000000000000000000100b20ba8db626f6479",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_bytes_are_as_they_were(name: str) -> None:
    made, golden = GOLDEN[name]
    assert made.hex() == golden


@pytest.mark.parametrize(
    ("decode", "made", "value"),
    [
        (decode_who, encode_who(5), 5),
        (decode_replica, encode_replica(sample.REPLICA), sample.REPLICA),
        (decode_request, encode_request(sample.REGISTER), sample.REGISTER),
        (decode_request, encode_request(sample.JOIN), sample.JOIN),
        (decode_request, encode_request(sample.SIGNED), sample.SIGNED),
        (decode_request, encode_request(sample.LEAVE), sample.LEAVE),
        (decode_request, encode_request(sample.CONFIRM), sample.CONFIRM),
        (decode_request, encode_request(sample.EXCLUDE), sample.EXCLUDE),
        (decode_request, encode_request(sample.PLACE), sample.PLACE),
        (decode_answer, encode_answer(sample.NUMBERS), sample.NUMBERS),
        (decode_answer, encode_answer(sample.REFUSED), sample.REFUSED),
        (decode_answer, encode_answer(sample.WAIT), sample.WAIT),
        (decode_standing, encode_standing(sample.STANDING), sample.STANDING),
        (decode_batch, encode_batch(sample.BATCH), sample.BATCH),
        (decode_news, encode_news(sample.NEWS), sample.NEWS),
    ],
)
def test_a_body_is_read_as_it_was_written(decode: Callable[[bytes], Any], made: bytes, value: object) -> None:
    check_body(decode, made, value)


def spoilt(body: bytes, at: int, value: int, size: int = 1) -> bytes:
    return body[:at] + value.to_bytes(size, "little") + body[at + size :]


def runs(*pairs: tuple[int, int]) -> bytes:
    writer = Writer().u8(3).u64(1)
    write_runs(writer, pairs)
    return writer.bytes()


def news_since(*epochs: int) -> EpochNews:
    return sample.NEWS._replace(epoch=sample.NEWS.epoch._replace(since=epochs))


JOINED = encode_request(sample.JOIN)
TOLD = encode_news(sample.NEWS)
HOSTILE: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "an unknown request": (decode_request, spoilt(JOINED, 0, 99)),
    "a signature of nothing": (decode_request, spoilt(encode_request(sample.SIGNED), 25, 0, 4)),
    "a signature of too many": (decode_request, spoilt(encode_request(sample.SIGNED), 25, 1 << 20, 4)),
    "more names than there are bytes": (decode_request, spoilt(JOINED, 29, 1 << 30, 4)),
    "fewer names than the signature counts": (decode_request, spoilt(JOINED, 25, 3, 4)),
    "a name of no length": (decode_request, spoilt(JOINED, 33, 0)),
    "names that do not rise": (decode_request, JOINED[:35] + b"zxnews"),
    "a name that is no text": (decode_request, JOINED[:35] + b"\xff\xffnews"),
    "runs that do not rise": (decode_request, runs((5, 6), (3, 4))),
    "runs that touch": (decode_request, runs((3, 4), (4, 6))),
    "group 0": (decode_request, runs((0, 4))),
    "a group beyond 32 bits": (decode_request, runs((1 << 32, (1 << 32) + 1))),
    "a registration with a strange flag": (decode_request, encode_request(sample.REGISTER)[:-1] + b"\2"),
    "an unknown answer": (decode_answer, spoilt(encode_answer(sample.WAIT), 0, 9)),
    "a replica without an id": (decode_replica, spoilt(encode_replica(sample.REPLICA), 16, 0, 8)),
    "an epoch of no service": (decode_news, spoilt(TOLD, 16, 0, 8)),
    "an epoch that is settled before it is made": (decode_news, spoilt(TOLD, 32, 13, 8)),
    "an epoch that knows of a later exclusion": (decode_news, spoilt(TOLD, 40, 13, 8)),
    "an epoch that follows a later one": (decode_news, spoilt(TOLD, 0, 13, 8)),
    "an epoch that puts out a node later": (decode_news, encode_news(news_since(13))),
    "an epoch that does not say since when each node is out": (decode_news, encode_news(news_since(11, 11))),
    "an epoch with more views than bytes": (decode_news, spoilt(TOLD, 53, 1 << 30, 4)),
    "a batch with more requests than bytes": (decode_batch, spoilt(encode_batch(sample.BATCH), 16, 4_000, 4)),
    "a page beyond the last": (read_page, spoilt(cut_pages(7, b"body")[0], 8, 1, 2)),
    "a body of too many pages": (read_page, spoilt(cut_pages(7, b"body")[0], 10, MAX_PAGES + 1, 2)),
    "an empty page": (read_page, cut_pages(7, b"body")[0][: PAGE.size]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_honest_node_says_is_refused(name: str) -> None:
    decode, body = HOSTILE[name]
    with pytest.raises(WireError):
        decode(body)


def test_a_long_body_comes_together_in_any_order() -> None:
    body = bytes(range(256)) * 300
    pages = [read_page(page) for page in cut_pages(3, body)]
    assert len(pages) == -(-len(body) // PAGE_BYTES) == 3
    bodies = PagedBodies()
    assert bodies.add(pages[2]) is None
    assert bodies.prefix(pages[2]) == 0
    assert bodies.add(pages[0]) is None
    assert bodies.prefix(pages[0]) == 1
    assert bodies.add(pages[0]) is None
    assert bodies.add(pages[1]) == body
    assert bodies.prefix(pages[1]) == 3


def test_two_bodies_of_one_serial_are_not_mixed() -> None:
    one, other = [[read_page(page) for page in cut_pages(3, each * PAGE_BYTES * 2)] for each in (b"a", b"b")]
    bodies = PagedBodies()
    assert bodies.add(one[0]) is None
    assert bodies.add(other[1]) is None
    assert bodies.add(other[0]) == b"b" * PAGE_BYTES * 2
    with pytest.raises(WireError):
        bodies.add(read_page(cut_pages(3, b"body")[0])._replace(checksum=5))


def test_bodies_that_never_come_together_are_forgotten() -> None:
    bodies = PagedBodies()
    begun = [read_page(cut_pages(serial, b"x" * PAGE_BYTES * 2)[0]) for serial in range(MAX_BODIES + 1)]
    for page in begun:
        assert bodies.add(page) is None
    last = read_page(cut_pages(0, b"x" * PAGE_BYTES * 2)[1])
    assert bodies.add(last) is None


def test_a_body_that_no_pages_can_hold_is_not_sent() -> None:
    with pytest.raises(InvariantViolation):
        cut_pages(1, bytes(PAGE_BYTES * MAX_PAGES + 1))
    with pytest.raises(InvariantViolation):
        encode_request(sample.JOIN._replace(names=("x" * 256, "y")))


def test_a_signature_does_not_depend_on_the_order_and_counts() -> None:
    assert signature_of(["a", "b"]) == signature_of(["b", "a"])
    assert signature_of(["a", "b"]) != signature_of(["a", "c"])
    assert signature_of([]) == Signature(0, 0)


def test_what_concerns_the_service_is_membership_in_traces() -> None:
    assert {detail_of(kind) for kind in range(Kind.WHO, Kind.LEADER + 1)} == {"membership"}
