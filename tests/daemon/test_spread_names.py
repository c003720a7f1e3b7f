"""Private names, groups and labels of sessions. Section 2 of the reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordercast.daemon.spread.names import (
    MAX_GROUP,
    MAX_PRIVATE_NAME,
    daemon_name,
    field,
    is_legal,
    label_of,
    name_of,
    private_group,
    private_group_of,
    read_field,
)
from ordercast.wire.labels import wrong_with

private_names = st.binary(min_size=1, max_size=10).map(lambda raw: bytes([0x24 + byte % (0x7F - 0x24) for byte in raw]))


@given(private_names)
def test_every_legal_private_name_has_a_label_of_its_own(name: bytes) -> None:
    assert is_legal(name, MAX_PRIVATE_NAME)
    label = label_of(name)
    assert not wrong_with(label)
    assert name_of(label) == name


@given(st.text(max_size=30))
def test_every_label_has_a_private_group_that_fits(label: str) -> None:
    group = private_group(label, "a.daemon-with.a_name")
    assert len(group) <= MAX_GROUP
    assert group.count(b"#") == 2
    assert read_field(field(group)) == group


def test_sessions_of_other_kinds_have_names_that_no_client_can_have() -> None:
    for label in ("", "a native client of a long name", "Zoë", "a b"):
        assert not is_legal(name_of(label), MAX_PRIVATE_NAME)
    assert name_of("a native client of a long name") != name_of("a native client of a longer name")


def test_members_are_known_by_their_private_groups() -> None:
    assert private_group_of("alice@east1/1731919") == b"#alice#east1"
    assert private_group_of("a!sb@east1/7") == b"#a/b#east1"
    assert private_group_of("east1/1731919") == b"#!node#east1"


def test_long_names_of_daemons_are_shortened_apart() -> None:
    one, other = daemon_name("a-very-long-name-of-a-daemon-1"), daemon_name("a-very-long-name-of-a-daemon-2")
    assert one != other
    assert max(len(one), len(other)) <= 19
    assert daemon_name("nineteen-characters") == b"nineteen-characters"


def test_a_name_without_a_nul_is_cut() -> None:
    assert read_field(b"x" * 32) == b"x" * 31
    assert field(b"x" * 40) == b"x" * 31 + b"\0"
