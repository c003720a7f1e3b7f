"""The region views of a node, epoch by epoch (docs/design/regions.md, "States")."""

from __future__ import annotations

from tests.unit.gms_samples import member

from ordercast.groups.regions.views import RegionViews
from ordercast.orderers.regions.given import GivenEpoch, GivenView
from ordercast.view import Member

A, B, C = [member(name) for name in "abc"]


def view(epoch: int, *members: Member, region: int = 1) -> GivenView:
    return GivenView(region, 100 * epoch + region, epoch, "gms", None, members)


def snapshot(number: int, *views: GivenView, ended: tuple[GivenView, ...] = ()) -> GivenEpoch:
    names = tuple([each.view for each in ended])
    return GivenEpoch(7, number, 0, 1, (*views, *ended), names, is_whole=True)


def test_views_that_have_ended_before_this_node_heard_of_them_are_told() -> None:
    """It stood still. They may bring it something yet, and a trace has to say that it is in them."""
    views = RegionViews(B)
    first, second, third = view(3, A, B, C), view(4, A, B), view(6, B, C)
    assert views.install(snapshot(3, first))
    assert views.passed == []
    others = view(5, A, C, region=2)
    assert views.install(snapshot(6, third, ended=(second, others, first)))
    assert views.passed == [second], "not those of others, and not the one that it has had"
    assert views.own == third
    views.install(GivenEpoch(7, 7, 0, 1))
    assert views.passed == []


def test_a_newcomer_has_passed_over_nothing() -> None:
    views = RegionViews(B)
    views.install(snapshot(6, view(6, B, C), ended=(view(4, A, B),)))
    assert views.passed == []
