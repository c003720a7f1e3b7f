"""Group names to addresses (RMP section 3.1), and peers' addresses from text."""

from __future__ import annotations

import ipaddress

import pytest

from ordercast.errors import UsageError
from ordercast.runtime.addresses import (
    FIRST_GROUP_PORT,
    AddressError,
    group_address,
    is_loopback,
    is_multicast,
    parse_bind,
    parse_peer,
)
from ordercast.view import group_tag

NAMES = [f"group-{number}" for number in range(2000)]


@pytest.mark.parametrize(
    ("name", "address"),
    [("chat", ("239.194.96.249", 63458)), ("müsli", ("239.194.215.211", 64700))],
)
def test_addresses_never_change_between_versions(name: str, address: tuple[str, int]) -> None:
    """Golden values: nodes of different versions must meet at the same address."""
    assert group_address(name) == address


def test_group_addresses_lie_in_the_organisation_local_scope_above_the_ephemeral_ports() -> None:
    """RMP section 3.1: the high bit of the port is set."""
    scope = ipaddress.IPv4Network("239.192.0.0/14")
    for host, port in map(group_address, NAMES):
        assert ipaddress.IPv4Address(host) in scope
        assert 32_768 < FIRST_GROUP_PORT <= port <= 65_535


def test_names_are_spread_over_addresses_and_ports() -> None:
    addresses = [group_address(name) for name in NAMES]
    assert len(set(addresses)) == len(NAMES)
    assert len({host for host, _ in addresses}) > 0.98 * len(NAMES)
    assert len({port for _, port in addresses}) > 0.75 * len(NAMES)


def test_groups_that_share_an_address_do_not_share_a_tag() -> None:
    """Section 3.1: what collides here is told apart in each datagram, first by the tag and always by the ring's id."""
    one, two = "group-10162", "group-37459"
    assert group_address(one) == group_address(two)
    assert group_tag(one) != group_tag(two)


def test_another_range_of_addresses_can_be_given() -> None:
    assert group_address("chat", base="239.1.2.3/32")[0] == "239.1.2.3"
    assert group_address("chat", base="239.0.0.0/8")[0].startswith("239.")


@pytest.mark.parametrize("base", ["10.0.0.0/8", "224.0.0.0/3", "239.192.0.1/14", "ff02::/16", "nonsense", ""])
def test_a_range_that_is_no_multicast_network_is_refused(base: str) -> None:
    with pytest.raises(AddressError, match=r"239\.192\.0\.0/14"):
        group_address("chat", base=base)


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_a_name_without_bytes_is_refused(name: str) -> None:
    with pytest.raises(AddressError, match="name"):
        group_address(name)


def test_peers_are_read_from_host_and_port() -> None:
    assert parse_peer("127.0.0.1:7400") == ("127.0.0.1", 7400)
    assert parse_peer(" 10.1.2.3:65535\n") == ("10.1.2.3", 65_535)
    assert parse_peer("localhost:1") == ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected host:port"),
        ("127.0.0.1", "expected host:port"),
        (":7400", "expected host:port"),
        ("127.0.0.1:", "is no port"),
        ("127.0.0.1:http", "is no port"),
        ("127.0.0.1:65536", "is no port"),
        ("127.0.0.1:-1", "is no port"),
        ("127.0.0.1:+1", "is no port"),
        ("127.0.0.1:\N{ARABIC-INDIC DIGIT SEVEN}", "is no port"),
        ("127.0.0.1:" + "9" * 5000, "is no port"),
        ("127.0.0.1:0", "names no peer"),
        ("127.1:7400", "four numbers"),
        ("256.0.0.1:7400", "four numbers"),
        ("1:7400", "four numbers"),
        ("0.0.0.0:7400", "wildcard"),
        ("239.192.0.1:7400", "unicast"),
        ("255.255.255.255:7400", "unicast"),
        ("[::1]:7400", "IPv6 is not supported"),
        ("::1:7400", "IPv6 is not supported"),
        ("fe80::1", "IPv6 is not supported"),
        ("no-such-host.invalid:7400", "no IPv4 address is known"),
        ("a" * 300 + ":7400", "no IPv4 address is known"),
    ],
)
def test_what_is_no_peer_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_peer(text)


def test_a_node_may_leave_its_own_port_to_the_system() -> None:
    assert parse_bind("127.0.0.1") == ("127.0.0.1", 0)
    assert parse_bind("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_bind("127.0.0.1:7400") == ("127.0.0.1", 7400)
    with pytest.raises(AddressError, match="wildcard"):
        parse_bind("0.0.0.0")


def test_loopback_and_multicast_are_told_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "10.0.0.1", "::1", "localhost")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [is_multicast(host) for host in ("224.0.0.1", "239.255.255.255", "240.0.0.1", "x")] == [
        True,
        True,
        False,
        False,
    ]
