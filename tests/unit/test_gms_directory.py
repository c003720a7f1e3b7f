"""The directory of the membership service: batches to epochs (QSM section 2.2; docs/design/gms.md)."""

from __future__ import annotations

import pytest
from tests.unit.gms_samples import LEADER, SERVICE, Clerk, member

from ordercast.errors import WireError
from ordercast.gms.directory import HISTORY, RegionDirectory
from ordercast.gms.dump import dump, load
from ordercast.gms.pool import AddressPool
from ordercast.wire.gms import Ask, EpochBatch, EpochOperation, NodeRequest, signature_of

A, B, C, D = [member(name) for name in "abcd"]


def clerk(*nodes: str) -> Clerk:
    made = Clerk()
    made.register(*[member(name) for name in nodes])
    return made


def test_nodes_with_the_same_groups_share_a_region_and_others_do_not() -> None:
    """QSM figure 2: a node is in exactly one region."""
    desk = clerk("a", "b", "c")
    desk.apply([desk.joining(A, "fx", "news"), desk.joining(B, "news", "fx"), desk.joining(C, "fx")])
    assert desk.region_of(A) == desk.region_of(B) != desk.region_of(C)
    assert desk.view_of(A).members == (A, B)
    assert desk.view_of(C).members == (C,)
    assert desk.view_of(A).id == f"3@{LEADER}"


def test_groups_are_numbered_from_one_on_in_the_order_of_their_names() -> None:
    desk = clerk("a", "b")
    desk.join(A, "c", "a", "b")
    assert [desk.directory.names.number(name) for name in "abc"] == [1, 2, 3]
    desk.join(B, "b", "aa")
    assert desk.directory.names.number("aa") == 4
    request = NodeRequest(Ask.JOIN, signature=signature_of(["aa", "b"]), names=("aa", "b"))
    assert desk.directory.numbers(request) == ((4, 5), (2, 3))


def test_a_region_with_one_recipient_has_no_multicast_address() -> None:
    desk = clerk("a", "b")
    desk.join(A, "fx")
    assert desk.view_of(A).address is None
    desk.join(B, "fx")
    assert desk.view_of(A).address == ("239.195.224.0", 65_535)


def test_an_address_is_used_again_only_when_the_view_that_used_it_has_settled() -> None:
    desk = clerk("a", "b", "c", "d")
    desk.apply([desk.joining(A, "fx"), desk.joining(B, "fx")])
    first = desk.view_of(A).address
    desk.leave(A, "fx")
    assert desk.view_of(B).address is None
    desk.apply([desk.joining(C, "news"), desk.joining(D, "news")])
    assert desk.view_of(C).address not in (None, first)
    desk.confirm(A, B)
    desk.apply([desk.joining(A, "x"), desk.joining(B, "x"), desk.joining(C, "x"), desk.joining(D, "x")])
    assert first in {state.view.address for state in desk.directory.regions.values()}


def test_an_epoch_is_settled_when_all_who_saw_its_ended_views_have_confirmed_it() -> None:
    desk = clerk("a", "b", "c", "d")
    desk.join(A, "fx")
    desk.follow(C, "fx")
    desk.join(B, "fx")  # ends the view of A alone
    ended = desk.directory.epoch
    assert desk.directory.settled == ended - 1
    desk.confirm(A)
    assert desk.directory.settled == ended - 1, "C may have a lane in it"
    outcome = desk.confirm(C, epoch=ended)
    assert desk.directory.settled == desk.directory.epoch
    assert set(outcome.affected) == {A.id, C.id}, "who waits for it hears that it is settled"
    (news,) = desk.directory.news_for(A.id, ended)
    assert news.epoch.settled == desk.directory.epoch
    assert (news.epoch.views, news.epoch.ended, news.epoch.groups) == ((), (), ())


def test_a_node_that_is_out_is_not_waited_for() -> None:
    desk = clerk("a", "b", "c")
    desk.apply([desk.joining(each, "fx") for each in (A, B, C)])
    desk.exclude(C)
    desk.confirm(A)
    assert desk.directory.settled < desk.directory.epoch
    desk.exclude(B)
    desk.confirm(A)
    assert desk.directory.settled == desk.directory.epoch


def test_a_crash_of_a_node_in_very_many_groups_is_one_view() -> None:
    desk = clerk("a", "b", "c")
    names = [f"g{index}" for index in range(5_000)]
    desk.apply([desk.joining(each, *names) for each in (A, B, C)])
    before = desk.view_of(A)
    since = desk.directory.epoch
    outcome = desk.exclude(C)
    assert outcome.touched == (before.region,)
    (news,) = desk.directory.news_for(A.id, since)
    assert news.epoch.ended == (before.view,)
    assert [view.members for view in news.epoch.views] == [(A, B)]
    assert news.epoch.excluded == (C.id,)
    assert news.epoch.groups == ()
    assert news.epoch.views[0].parents == (before.view,)


def test_a_node_hears_only_of_regions_of_its_groups() -> None:
    desk = clerk("a", "b", "c")
    desk.join(A, "fx")
    desk.join(B, "news")
    since = desk.directory.epoch
    desk.join(C, "fx", "x")
    assert desk.directory.news_for(B.id, since) == []
    (news,) = desk.directory.news_for(A.id, since)
    assert [view.members for view in news.epoch.views] == [(C,)]
    fx = desk.directory.names.number("fx")
    assert [groups.added for groups in news.epoch.groups] == [((fx, fx + 1),)], "of C's groups, those that it shares"


def test_a_view_that_a_node_loses_interest_in_is_seen_until_it_ends() -> None:
    """A lane must not be closed and opened again in one view."""
    desk = clerk("a", "b", "c")
    desk.apply([desk.joining(A, "fx", "x"), desk.joining(B, "fx")])
    other = desk.view_of(B)
    since = desk.directory.epoch
    desk.leave(A, "fx")
    (news,) = desk.directory.news_for(A.id, since)
    assert other.view not in news.epoch.ended
    assert [groups.removed for groups in news.epoch.groups if groups.region == other.region] == [((1, 2),)]
    since = desk.directory.epoch
    desk.join(C, "fx")
    (news,) = desk.directory.news_for(A.id, since)
    assert news.epoch.ended == (other.view,)
    assert news.epoch.views == ()
    since = desk.directory.epoch
    desk.leave(C, "fx")
    assert desk.directory.news_for(A.id, since) == []


def test_a_node_that_comes_back_with_its_life_gets_new_views_of_what_it_sees() -> None:
    """Its lanes of before may be in views that have not changed: numbers would begin anew in them."""
    desk = clerk("a", "b")
    desk.join(A, "fx")
    desk.follow(B, "fx")
    before = desk.view_of(A)
    desk.exclude(B)
    assert desk.view_of(A) == before
    desk.register(B, is_back=True)
    assert desk.view_of(A) == before
    desk.follow(B, "fx")
    assert desk.view_of(A).view != before.view
    assert desk.view_of(A).members == before.members
    again = desk.view_of(A)
    desk.follow(B, "other")
    assert desk.view_of(A) == again


def test_a_later_life_of_a_name_puts_the_former_one_out() -> None:
    desk = clerk("a", "b")
    desk.apply([desk.joining(A, "fx"), desk.joining(B, "fx")])
    outcome = desk.register(member("a", life=2, port=9))
    assert outcome.excluded == (A,)
    assert desk.view_of(B).members == (B,)
    assert desk.register(A).excluded == ()
    assert desk.directory.node(A.id) is None, "an earlier life does not come back"


def test_a_node_at_the_address_of_another_one_puts_that_out() -> None:
    desk = clerk("a")
    assert desk.register(member("z", port=A.address[1])).excluded == (A,)


def test_requests_are_applied_once() -> None:
    desk = clerk("a")
    joining = desk.joining(A, "fx")
    desk.apply([joining])
    desk.leave(A, "fx")
    desk.apply([joining])
    assert desk.region_of(A) == 0


def test_a_batch_that_comes_too_late_changes_nothing() -> None:
    desk = clerk("a")
    before = dump(desk.directory)
    assert desk.directory.apply(EpochBatch(desk.directory.epoch, LEADER, (desk.joining(A, "fx"),))) is None
    assert dump(desk.directory) == before


def test_a_set_of_names_is_known_by_its_signature_afterwards() -> None:
    desk = clerk("a", "b")
    names = tuple(sorted(f"g{index}" for index in range(100)))
    by_signature = NodeRequest(Ask.JOIN, signature=signature_of(names))
    assert desk.directory.numbers(by_signature) is None
    desk.apply([desk.operation(B, by_signature)])
    assert desk.region_of(B) == 0, "a signature that nobody knows changes nothing"
    desk.join(A, *names)
    assert desk.directory.numbers(by_signature) == ((1, 101),)
    desk.apply([desk.operation(B, by_signature)])
    assert desk.region_of(B) == desk.region_of(A)


def test_a_node_departs_when_its_lanes_are_closed() -> None:
    desk = clerk("a", "b")
    desk.apply([desk.joining(A, "fx"), desk.joining(B, "fx")])
    since = desk.directory.epoch
    desk.apply([desk.operation(B, NodeRequest(Ask.DEPART))])
    assert desk.view_of(A).members == (A,)
    (news,) = desk.directory.news_for(B.id, since)
    assert news.epoch.mine == 0
    assert len(news.epoch.ended) == 1
    assert desk.directory.node(B.id) is not None
    departed = desk.directory.epoch
    desk.confirm(B)
    assert desk.directory.node(B.id) is not None, "A may have a lane to it"
    outcome = desk.confirm(A, epoch=departed)
    assert outcome.excluded == (B,)
    assert desk.directory.node(B.id) is None


def test_a_plan_places_nodes_with_different_groups_in_one_region() -> None:
    desk = clerk("a", "b", "c")
    desk.apply([desk.joining(A, "fx"), desk.joining(B, "news"), desk.joining(C, "x")])
    desk.apply([EpochOperation(0, 0, NodeRequest(Ask.PLACE, placed=(("a", 7), ("b", 7)), is_first=True))])
    assert desk.region_of(A) == desk.region_of(B) != desk.region_of(C)
    assert desk.directory.regions[desk.region_of(A)].groups == ((1, 3),)
    before = desk.view_of(A)
    desk.join(A, "y")
    assert desk.view_of(A) == before, "its members are the same"
    assert desk.directory.regions[desk.region_of(A)].groups == ((1, 3), (4, 5))
    desk.apply([EpochOperation(0, 0, NodeRequest(Ask.PLACE, is_first=True))])
    assert len({desk.region_of(each) for each in (A, B, C)}) == 3


def test_a_node_that_is_too_far_behind_gets_everything() -> None:
    desk = clerk("a", "b")
    desk.join(A, "fx")
    for _ in range(HISTORY + 1):
        desk.follow(B, "fx")
    (news,) = desk.directory.news_for(A.id, 3)
    assert news.epoch.is_whole
    assert news.epoch == desk.directory.snapshot_for(A.id)
    assert desk.directory.news_for(A.id, desk.directory.epoch) == []


def test_a_snapshot_names_views_that_are_not_drained_as_ended() -> None:
    desk = clerk("a", "b")
    desk.join(A, "fx")
    before = desk.view_of(A)
    desk.join(B, "fx")
    snapshot = desk.directory.snapshot_for(A.id)
    assert snapshot.views == (before, desk.view_of(A))
    assert snapshot.ended == (before.view,)
    assert desk.directory.snapshot_for(B.id).ended == ()
    desk.confirm(A)
    assert desk.directory.snapshot_for(A.id).ended == ()


def test_a_snapshot_names_nodes_that_were_out_and_are_back_and_since_when() -> None:
    """Whoever missed that goes on in views of before, and would wait for them there."""
    desk = clerk("a", "b", "c")
    for node in (A, B, C):
        desk.join(node, "fx")
    old = desk.view_of(A)
    desk.exclude(B)
    out = desk.directory.epoch
    desk.register(B)
    desk.join(B, "fx")
    snapshot = desk.directory.snapshot_for(A.id)
    assert old in snapshot.views
    assert (snapshot.excluded, snapshot.since, snapshot.exclusions) == ((B.id,), (out,), out)
    assert desk.directory.snapshot_for(B.id).excluded == (), "it is not out"


def test_a_dump_is_the_directory() -> None:
    desk = clerk("a", "b", "c")
    names = [f"g{index}" for index in range(100)]
    desk.apply([desk.joining(A, *names), desk.joining(B, *names), desk.joining(C, "g3", "x")])
    desk.follow(B, "x")
    desk.exclude(C)
    desk.apply([EpochOperation(0, 0, NodeRequest(Ask.PLACE, placed=(("a", 7),), is_first=True))])
    made = load(dump(desk.directory))
    assert dump(made) == dump(desk.directory)
    assert made.service == SERVICE
    batch = EpochBatch(
        made.epoch + 1, LEADER, (desk.joining(A, "y"), EpochOperation(B.id, 0, NodeRequest(Ask.CONFIRM, epoch=99)))
    )
    assert made.apply(batch) == desk.directory.apply(batch)
    assert dump(made) == dump(desk.directory)
    assert made.snapshot_for(B.id) == desk.directory.snapshot_for(B.id)


@pytest.mark.parametrize("body", [b"", b"nonsense", dump(RegionDirectory())[:-1], dump(RegionDirectory()) + b"x"])
def test_bytes_that_are_no_dump_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        load(body)


def test_a_pool_without_addresses_gives_none() -> None:
    pool = AddressPool(2)
    one, other = pool.take(), pool.take()
    assert one != other
    assert pool.take() is None
    assert one is not None
    pool.give_back(one)
    assert pool.take() == one
