"""How clients of Spread connect: bytes of section 3 of the reference, in and out."""

from __future__ import annotations

import pytest
from tests.daemon.spread_bytes import NULL_CHOICE, hello

from ordercast.daemon.spread.access import AuthRules, parse_access
from ordercast.daemon.spread.handshake import Handshake, Reject, ShakePhase
from ordercast.errors import UsageError

ALICE = b"#alice#lochost"


def begin(auth: AuthRules | None = None, *, is_admitted: bool = False) -> Handshake:
    return Handshake(auth if auth is not None else AuthRules(), is_admitted)


def run(
    data: bytes, sizes: int, auth: AuthRules | None = None, *, is_admitted: bool = False
) -> tuple[Handshake, bytes]:
    """Give the bytes in pieces of this size; the name is free as soon as it is asked for."""
    handshake = begin(auth, is_admitted=is_admitted)
    sent = b""
    for start in range(0, len(data), sizes):
        sent += handshake.receive(data[start : start + sizes])
        if handshake.phase is ShakePhase.NAMING:
            sent += handshake.assign(ALICE)
    return handshake, sent


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("version", "is_authenticated", "accepted"),
    [
        ((5, 0, 1), True, bytes.fromhex("01050001 0e") + ALICE),
        ((4, 4, 0), True, bytes.fromhex("01050001 0e") + ALICE),
        ((4, 0, 0), True, bytes.fromhex("01050001 0e") + ALICE),
        ((3, 17, 4), True, bytes.fromhex("01050001 0e") + ALICE),
        ((3, 16, 0), True, bytes.fromhex("01050001 0e") + ALICE),
        ((3, 15, 2), False, bytes.fromhex("01050001 0e") + ALICE),
        ((3, 14), False, bytes.fromhex("010500 0e") + ALICE),
        ((3, 12), False, bytes.fromhex("010500 0e") + ALICE),
        ((3, 1), False, bytes.fromhex("010500 0e") + ALICE),
        ((6, 0, 0), True, bytes.fromhex("01050001 0e") + ALICE),
        ((127, 3, 9), True, bytes.fromhex("01050001 0e") + ALICE),
    ],
)
def test_every_library_has_its_shape_of_handshake(
    version: tuple[int, ...], is_authenticated: bool, accepted: bytes, size: int
) -> None:
    """Sections 3.1 to 3.4 and 3.7, in pieces of every size."""
    data = hello(b"alice", version) + (NULL_CHOICE if is_authenticated else b"") + b"next"
    handshake, sent = run(data, size)
    assert sent == (b"\x05NULL " if is_authenticated else b"") + accepted
    assert handshake.phase is ShakePhase.ACCEPTED
    assert handshake.take_rest() == b"next"
    assert handshake.hello is not None
    assert handshake.hello.name == b"alice"
    assert handshake.hello.has_view_sets == (version >= (4,))


@pytest.mark.parametrize(
    ("flags", "wants", "priority"),
    [(0, False, False), (1, True, False), (0x10, False, True), (0x11, True, True), (0x81, False, False)],
)
def test_flags_are_read_as_spread_reads_them(flags: int, wants: bool, priority: bool) -> None:
    handshake = begin()
    handshake.receive(hello(b"x", flags=flags))
    assert handshake.hello is not None
    assert (handshake.hello.wants_membership, handshake.hello.has_priority) == (wants, priority)


def test_a_client_without_a_name_gets_one_from_the_caller() -> None:
    handshake = begin()
    assert handshake.receive(hello(b"")) == b""
    assert handshake.phase is ShakePhase.NAMING
    assert handshake.hello is not None
    assert handshake.hello.name == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (hello(b"alice", (3, 0)), 0xF9),
        (hello(b"alice", (2, 9)), 0xF9),
        (hello(b"alice", (0, 0)), 0xF9),
        (hello(b"alice", (200, 0, 0)), 0xF9),
        (hello(b"elevenbytes"), 0xFB),
        (b"\x05\0\x01\x01\xff", 0xFB),
        (hello(b"a#b"), 0xFB),
        (hello(b"a b"), 0xFB),
        (hello(b'a"b'), 0xFB),
        (hello(b"a\x7fb"), 0xFB),
        (hello(b"\xc3\xa9"), 0xFB),
        (hello(b"a\0b"), 0xFB),
        (hello(b"alice") + b"NULLX".ljust(90, b"\0"), 0xF7),
        (hello(b"alice") + b"IP".ljust(90, b"\0"), 0xF7),
        (hello(b"alice") + bytes(90), 0xF7),
        (hello(b"alice") + b"NULL".ljust(30, b"\0") + b"PWORD".ljust(60, b"\0"), 0xF7),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_wrong_is_answered_by_its_byte(data: bytes, code: int, size: int) -> None:
    """Section 3.5."""
    handshake, sent = run(data, size)
    assert sent[-1:] == bytes((code,))
    assert handshake.phase is ShakePhase.REJECTED
    assert handshake.reason
    assert handshake.receive(b"more") == b""


def test_codes_are_the_signed_bytes_of_the_reference() -> None:
    assert {code.name: code.byte.hex() for code in Reject} == {
        "QUOTA": "fd",
        "NO_NAME": "fc",
        "ILLEGAL_NAME": "fb",
        "NOT_UNIQUE": "fa",
        "VERSION": "f9",
        "AUTH": "f7",
    }


def test_a_method_may_be_named_twice() -> None:
    choice = (b"NULL".ljust(30, b"\0") * 2).ljust(90, b"\0")
    assert run(hello(b"alice") + choice, 1000)[0].phase is ShakePhase.ACCEPTED


def test_what_stands_behind_an_empty_slot_is_not_read() -> None:
    choice = b"NULL".ljust(60, b"\0") + b"PWORD".ljust(30, b"\0")
    assert run(hello(b"alice") + choice, 1000)[0].phase is ShakePhase.ACCEPTED


@pytest.mark.parametrize("is_admitted", [True, False])
def test_the_address_decides_where_ip_is_chosen_or_required(is_admitted: bool) -> None:
    """Sections 3.2, 3.3 and 9."""
    expected = ShakePhase.ACCEPTED if is_admitted else ShakePhase.REJECTED
    both = AuthRules(("NULL", "IP"))
    handshake, sent = run(hello(b"alice") + b"IP".ljust(90, b"\0"), 1000, both, is_admitted=is_admitted)
    assert sent.startswith(b"\x08NULL IP ")
    assert handshake.phase is expected
    assert run(hello(b"alice") + NULL_CHOICE, 1000, both, is_admitted=is_admitted)[0].phase is ShakePhase.ACCEPTED
    required = AuthRules(("NULL",), ("IP",))
    assert run(hello(b"alice") + NULL_CHOICE, 1000, required, is_admitted=is_admitted)[0].phase is expected
    assert run(hello(b"alice", (3, 12)), 1000, both, is_admitted=is_admitted)[0].phase is expected


def test_where_nothing_is_allowed_nobody_gets_in() -> None:
    handshake, sent = run(hello(b"alice"), 1000, AuthRules(()))
    assert sent == b"\0\xf7"
    assert handshake.phase is ShakePhase.REJECTED
    assert run(hello(b"alice", (3, 12)), 1000, AuthRules(()))[1] == b"\xf7"


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", b""),
        (b"\x05", b""),
        (b"\x05\0\x01\x01", b""),
        (b"\x05\0\x01\x01\x05ali", b"\xfb"),
        (hello(b"alice") + b"NULL", b"\x05NULL \xf7"),
    ],
)
def test_a_client_that_stops_in_the_middle_is_refused(data: bytes, answer: bytes) -> None:
    handshake, sent = run(data, 1000)
    assert sent + handshake.end() == answer
    assert handshake.phase is ShakePhase.REJECTED


def test_an_access_list_admits_what_its_lines_name() -> None:
    """Section 9."""
    rules = parse_access("# ours\nlocal\n10.1.0.0/16\n192.168.7.9\nunix\n", "spread.access_ip")
    admitted = ["127.0.0.1", "127.9.9.9", "10.1.255.3", "192.168.7.9", "::1", None]
    assert [host for host in [*admitted, "10.2.0.1", "192.168.7.8", "nonsense"] if rules.admits(host)] == admitted
    nobody = parse_access("", "spread.access_ip")
    assert not nobody.admits("127.0.0.1")
    assert not nobody.admits(None)


def test_a_wrong_line_of_an_access_list_is_named() -> None:
    with pytest.raises(UsageError, match=r"^spread.access_ip:2: '10.1' is no rule; write"):
        parse_access("local\n10.1\n", "spread.access_ip")


def test_a_method_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="no authentication method 'PWORD'"):
        AuthRules(("NULL", "PWORD"))
