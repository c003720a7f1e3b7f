"""Which sites want which groups (docs/design/sites.md, "Interest")."""

from __future__ import annotations

import pytest

from ordercast.orderers.sites import interests as module
from ordercast.orderers.sites.interests import EVERY_SITE, Interests, group_key
from ordercast.orderers.sites.progress import ExchangeProgress
from ordercast.wire.roster import encode_joins, encode_parts

A, B = group_key("a"), group_key("b")


def three() -> Interests:
    """Daemons 1, 2 and 3, of which the last two are at one site; group 7 is "a", group 8 is "b"."""
    found = Interests()
    found.place({1: 0, 2: 5, 3: 5})
    found.begin_view(100, {1, 2, 3})
    found.name(7, A)
    found.name(8, B)
    return found


def test_keys_of_groups_are_64_bits_and_the_same_everywhere() -> None:
    assert group_key("a") == 0xD8150FDBFB54B0EC
    assert group_key("a") != group_key("b")
    assert group_key("grün") == group_key("gr\u00fcn")


def test_an_interest_counts_from_its_receipt_on() -> None:
    found = three()
    assert found.mask([7]) == found.mask([]) == found.mask([99]) == 0
    found.received(2, A, 101)
    assert found.mask([7]) == 1 << 5
    assert found.mask([8]) == 0
    found.joined(1, B)
    assert found.mask([8]) == 1
    assert found.mask([7, 8]) == 1 << 5 | 1


def test_a_leave_ends_interests_that_were_stamped_before_it_and_no_others() -> None:
    found = three()
    found.received(1, A, 101)
    found.joined(1, A)
    found.left(1, A, 105)
    assert found.mask([7]) == 0
    found.received(1, A, 110)
    found.joined(1, A)
    found.received(1, A, 120)  # of the next join, which overtook the leave
    found.left(1, A, 115)
    assert found.mask([7]) == 1
    found.left(1, A, 121)
    found.left(1, A, 121)
    found.left(9, A, 121)
    assert found.mask([7]) == 0


def test_interest_belongs_to_a_daemon_and_not_to_its_site() -> None:
    found = three()
    found.joined(2, A)
    found.received(3, A, 101)
    found.left(2, A, 105)
    assert found.mask([7]) == 1 << 5, "the other daemon of the site still waits for its join"
    assert found.is_interested(3, A)
    assert not found.is_interested(2, A)


def test_a_view_voids_interests_without_a_join_and_keeps_those_that_are_stamped_in_it() -> None:
    found = three()
    found.received(1, A, 101)
    found.joined(2, A)
    found.received(3, B, 201)  # it came before the roster has come to the view
    found.begin_view(200, {1, 2, 3})
    assert found.mask([7]) == 1 << 5
    assert found.mask([8]) == 1 << 5
    found.received(1, A, 150)
    assert not found.is_interested(1, A), "of a view that is over"
    found.begin_view(300, {1})
    assert found.mask([7, 8]) == 0


def test_an_exchange_adds_members_and_keeps_interests_of_the_view() -> None:
    found = three()
    found.joined(3, B)
    found.received(1, A, 101)
    found.received(1, group_key("c"), 102)
    found.exchange_done([(1, B, [1]), (2, A, [2])])
    assert found.mask([7]) == found.mask([8]) == 0, "other numbers"
    assert found.mask([1]) == 1, "3 is in no roster any more"
    assert found.mask([2]) == 1 << 5 | 1
    found.name(3, group_key("c"))
    assert found.mask([3]) == 1
    found.left(1, A, 100)
    assert found.mask([2]) == 1 << 5 | 1


def test_groups_that_have_ended_are_forgotten() -> None:
    found = three()
    found.joined(1, A)
    found.left(1, A, 105)
    found.unname(7)
    assert found.size == 1
    found.keep_names([])
    assert found.size == 0
    found.received(1, A, 106)
    found.name(9, A)
    found.unname(9)
    assert found.size == 1, "somebody waits for it"
    found.begin_view(200, {1})
    assert found.size == 0


def test_a_daemon_whose_site_is_not_known_yet_gets_everything() -> None:
    found = three()
    found.received(4, A, 101)
    assert found.mask([7]) == EVERY_SITE
    found.place({4: 2})
    found.begin_view(101, {1, 2, 3, 4})
    assert found.mask([7]) == 1 << 2


def test_a_daemon_that_declares_too_much_gets_everything_until_the_next_view() -> None:
    found = three()
    for key in range(module.MAX_AWAITED):
        found.received(2, key, 101)
    size = found.size
    assert found.mask([7]) == 0
    found.received(2, A, 102)
    assert found.mask([7]) == found.mask([8]) == 1 << 5
    found.received(1, B, 102)
    assert found.mask([8]) == 1 << 5 | 1, "the others are served as before"
    for key in range(1 << 40, 1 << 40 | 100):
        found.received(2, key, 103)
    assert found.size == size
    found.begin_view(200, {1, 2, 3})
    assert found.mask([7, 8]) == 0
    found.received(2, A, 201)
    assert found.mask([7]) == 1 << 5


def test_an_exchange_is_complete_when_each_speaker_has_said_its_last_part() -> None:
    progress = ExchangeProgress()
    progress.begin([])
    assert progress.is_complete
    progress.begin([(1, 2)])
    assert progress.is_complete
    progress.begin([(1, 2), (3,)])
    parts = list(encode_parts(iter([(False, f"group {at}", ((1, ""),), ()) for at in range(9)]), 60))
    assert len(parts) > 2
    assert not progress.on_body(1, next(encode_joins("", b"", ["a"], 500)))
    assert not progress.on_body(2, parts[0]), "it does not speak"
    assert not progress.on_body(1, parts[1]), "not yet"
    for part in parts:
        assert not progress.is_complete
        assert progress.on_body(1, part)
        assert not progress.on_body(1, part)
    assert not progress.is_complete
    assert progress.on_body(3, next(encode_parts(iter(()), 60)))
    assert progress.is_complete
    progress.begin([(1,), (2,), (3,)])
    assert not progress.is_complete


@pytest.mark.parametrize("body", [b"", b"\5", b"\5\2\0\0\0\0", b"\4\1\0\0\0\0"])
def test_what_is_no_part_is_not_counted(body: bytes) -> None:
    progress = ExchangeProgress()
    progress.begin([(1,), (2,)])
    assert not progress.on_body(1, body)
