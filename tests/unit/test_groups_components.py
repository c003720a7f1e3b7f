"""The groups of an underlay whose components part and merge, from hosts down to blocks (docs/design/sites.md)."""

from __future__ import annotations

from tests.unit.fake_engine import events, payloads
from tests.unit.shared_directory import SharedDirectory
from tests.unit.site_engine import Sites

from ordercast.config import GroupConfig
from ordercast.engine import Transitional
from ordercast.groups.events import Left, MixedBatch
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.shared import PASS_CHANGES
from ordercast.service import AGREED
from ordercast.view import Reason, View
from ordercast.wire.block import pack_roster
from ordercast.wire.roster import PART, Operation


def views(port: Port) -> list[View]:
    return [event for event in events(port) if isinstance(event, View)]


def names(view: View | None) -> list[str]:
    return [member.name for member in view.members] if view is not None else []


def pair(sites: Sites) -> tuple[Host, Host]:
    return sites.host("x", 0), sites.host("y", 1)


def find(sites: Sites, name: str, group: str) -> tuple[int, list[int]]:
    """The number and the members of a group at one daemon."""
    port = next(port for port in sites.hosts[name].ports)
    assert port.channel.shared is not None
    record = port.channel.shared.roster.find(group)
    assert record is not None
    return record.number, [key[0] for key in record.members]


# Joins and interest.


def test_a_join_waits_until_its_interest_is_stable() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    (b,) = sites.open(two, "b")
    sites.settle()
    sites.change("x y")
    sites.settle()
    a.offer(b"1", AGREED)
    sites.turn("x")
    (late,) = sites.open(one, "b")
    for _ in range(5):
        sites.turn("x")
    assert list(sites.engines["x"].declared) == ["b"]
    assert not late.is_member, "y has not read what stands before its interest"
    assert names(b.view) == ["y"]
    b.offer(b"2", AGREED)
    sites.turn("y")
    sites.settle()
    assert names(b.view) == names(late.view) == ["y", "x"]
    b.offer(b"3", AGREED)
    sites.settle()
    assert payloads(b) == [b"2", b"3"]
    assert payloads(late) == [b"3"], "its join came behind the first one"


def test_a_block_goes_to_the_sites_of_its_groups_only() -> None:
    sites = Sites()
    one, two = pair(sites)
    a, b = sites.open(one, "a", "b")
    c, _ = sites.open(two, "b", "c")
    sites.settle()
    sites.change("x y")
    sites.settle()
    for port in (a, b, c):
        port.offer(b"m", AGREED)
        sites.settle()
    assert sites.engines["x"].masks == [0b01, 0b11]
    assert sites.engines["y"].masks == [0b11]
    two.leave(c)
    sites.settle()
    b.offer(b"m", AGREED)
    sites.settle()
    assert sites.engines["x"].masks[-1] == 0b01


def test_a_view_voids_an_interest_that_no_join_has_followed() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    (b,) = sites.open(two, "b")
    sites.settle()
    sites.change("x y")
    sites.settle()
    a.offer(b"1", AGREED)
    sites.turn("x")
    (late,) = sites.open(one, "b")
    sites.turn("x")
    sites.change("x y")
    assert not sites.engines["x"].declared
    sites.settle()
    assert names(b.view) == names(late.view) == ["y", "x"]
    assert not sites.engines["x"].interests.mask([0])


# Merges.


def test_components_merge_groups_of_the_same_name_and_give_all_of_them_other_numbers() -> None:
    sites = Sites()
    one, two = pair(sites)
    a, b = sites.open(one, "a", "b")
    bb, c = sites.open(two, "b", "c")
    sites.settle()
    assert (a.number, b.number, bb.number, c.number) == (1, 2, 1, 2)
    kept = a.view, c.view
    sites.change("x y")
    sites.settle()
    assert (a.view, c.view) == kept, "nobody came to them, and nobody is lost"
    assert len({a.number, b.number, c.number}) == 3
    assert b.number == bb.number
    for group in ("a", "b", "c"):
        assert find(sites, "x", group) == find(sites, "y", group)
    mine, theirs = b.view, bb.view
    assert mine is not None
    assert theirs is not None
    assert mine.id == theirs.id
    position, _, underlay = mine.id.partition("@")
    channel = b.channel
    assert channel.view is not None
    assert underlay == channel.view.id
    assert int(position) > channel.view.position
    assert sorted(names(mine)) == ["x", "y"]
    assert mine.came_with == ("x/0",)
    assert theirs.came_with == ("y/0",)
    for port in (a, b, bb, c):
        events(port)
        port.offer(port.group.encode(), AGREED)
    sites.settle()
    assert [payloads(port) for port in (a, b, bb, c)] == [[b"a"], [b"b"] * 2, [b"b"] * 2, [b"c"]]


def test_the_view_after_a_merge_says_which_members_came_from_which_component() -> None:
    sites = Sites()
    hosts = [sites.host(name, at) for at, name in enumerate("wxyz")]
    w, *_ = sites.open(hosts[0], "a", "b")
    x, _ = sites.open(hosts[1], "a", "c")
    (y,) = sites.open(hosts[2], "a")
    (z,) = sites.open(hosts[3], "c")
    session = hosts[0].open_session("s")
    (s,) = sites.open(hosts[0], "a", session=session)
    sites.settle()
    sites.change("w x", "y z")
    sites.settle()
    assert [view.components for view in (w.view, y.view) if view is not None] == [
        (("w/0", "s@w/0"), ("x/0",)),
        (),
    ], "z is not in the group"
    sites.change("w x y z")
    sites.settle()
    assert w.view is not None
    assert sorted(w.view.components) == [("w/0", "s@w/0", "x/0"), ("y/0",)]
    assert [name for part in w.view.components for name in part] == [str(each) for each in w.view.members]
    assert {view.components for view in (x.view, y.view, s.view) if view is not None} == {w.view.components}
    assert z.view is not None
    assert sorted(z.view.components) == [("x/0",), ("z/0",)]
    (late,) = sites.open(hosts[3], "a")
    sites.settle()
    assert late.view is not None
    assert late.view.reason is Reason.JOIN
    assert (late.view.components, w.view.components) == ((), ()), "no merge has made these"


def test_a_split_gives_views_to_groups_that_lost_members_and_to_no_others() -> None:
    sites = Sites()
    one, two = pair(sites)
    three = sites.host("z", 1)
    a, alone = sites.open(one, "a", "b")
    (b,) = sites.open(two, "a")
    (c,) = sites.open(three, "a")
    sites.settle()
    sites.change("x y z")
    sites.settle()
    kept, before = alone.view, a.view
    assert len(names(before)) == 3
    events(a)
    sites.change("x y", "z")
    sites.settle()
    assert alone.view is kept
    assert sorted(names(a.view)) == sorted(names(b.view)) == ["x", "y"]
    assert a.view is not None
    assert sorted(a.view.came_with) == ["x/0", "y/0"]
    assert names(c.view) == ["z"]
    told = events(a)
    assert isinstance(told[0], Transitional)
    assert told[0].group == "a"
    assert told[1:] == [a.view]
    sites.change("x y z")
    sites.settle()
    assert sorted(names(a.view)) == ["x", "y", "z"]
    assert sorted(a.view.came_with) == ["x/0", "y/0"]
    assert c.view is not None
    assert c.view.came_with == ("z/0",)


def test_an_interrupted_exchange_begins_again_and_groups_go_on_where_they_were() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    b, own = sites.open(two, "a", "b")
    sites.settle()
    kept = a.view, b.view, a.number, b.number, own.number
    sites.change("x y")
    sites.turn("x")  # it says its roster, and y does not come to it
    a.offer(b"waits", AGREED)
    sites.turn("x")
    assert payloads(a) == []
    sites.change("x", "y")
    sites.settle()
    assert (a.view, b.view, a.number, b.number, own.number) == kept
    assert payloads(a) == [b"waits"]
    sites.change("x y")
    sites.turn("x")
    sites.change("x y")
    sites.turn("y")
    sites.change("x y")
    sites.settle()
    assert sorted(names(a.view)) == sorted(names(b.view)) == ["x", "y"]
    assert a.view is not None
    assert b.view is not None
    assert a.view.components == b.view.components
    assert sorted(a.view.components) == [("x/0",), ("y/0",)], "the underlay's view ended no component"
    assert a.number == b.number != own.number
    a.offer(b"2", AGREED)
    sites.settle()
    assert payloads(b) == [b"2"]


def test_parts_of_an_interrupted_exchange_are_not_sent_in_the_next_view() -> None:
    sites = Sites()
    one, two = pair(sites)
    three = sites.host("z", 0)
    (a,) = sites.open(one, "a")
    sites.open(two, "b")
    sites.open(three, "a")
    sites.settle()
    sites.change("x z", "y")
    sites.settle()
    assert sorted(names(a.view)) == ["x", "z"]
    sites.engines["x"].is_open = False
    sites.change("x y z")
    sites.settle(3)  # the roster of x and z waits in the queue of x
    sites.change("x y", "z")
    sites.engines["x"].is_open = True
    sites.settle()
    assert names(a.view) == ["x"], "the roster that was said knows of the loss"


def test_what_is_queued_goes_to_the_same_groups_after_a_merge() -> None:
    sites = Sites()
    two, one = sites.host("y", 1), sites.host("x", 0)  # so y speaks first
    c, d = sites.open(two, "c", "b")
    a, b = sites.open(one, "a", "b")
    sites.settle()
    sites.engines["x"].is_open = False
    a.offer(b"single", AGREED)
    rosters = a.stream.rosters
    a.stream.offer_many_to([b"n1", b"n2", b"n3"], AGREED, 0, [2, 2, 2], [a, b, a], numbered=2)
    a.stream.offer_to(["b", "c"], b"several", AGREED)
    b.offer(bytes(70_000), AGREED)
    watch = b.watch(b.offer(b"last", AGREED), b.end_number, AGREED)
    before = a.number, b.number
    sites.change("y x")
    sites.engines["x"].is_open = True
    sites.settle()
    assert (a.number, b.number) != before
    assert a.stream.rosters == rosters + 1, "resolved names are looked up anew"
    assert payloads(a) == [b"single", b"n1", b"n3"]
    assert [len(each) for each in payloads(b)] == [2, 7, 70_000, 4]
    assert [len(each) for each in payloads(d)] == [2, 7, 70_000, 4], "what names two of its groups comes by the first"
    assert payloads(c) == []
    assert watch in b.take_settled()
    assert watch.error is None


def test_a_block_of_before_a_merge_names_its_groups_as_they_were() -> None:
    sites = Sites()
    two, one = sites.host("y", 1), sites.host("x", 0)  # so y speaks first
    a, b = sites.open(one, "a", "b")
    sites.open(two, "c")
    sites.settle()
    a.stream.offer_to(["b", "a"], b"both", AGREED)
    a.stream.offer_many_to([b"1", b"2"], AGREED, 0, [1, 1], [a, b], numbered=2)
    sites.settle()
    sites.change("y x")
    sites.settle()
    assert (a.number, b.number) != (1, 2)
    found = [event for event in events(a) + events(b) if isinstance(event, MixedBatch)]
    assert [tuple(batch.groups) for batch in found] == [("a",), ("b", "a"), ("b",)]


def test_joins_and_leaves_behind_the_signal_count_with_the_next_view() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    b, own = sites.open(two, "a", "b")
    sites.settle()
    sites.change("x y")
    sites.settle()
    events(a)
    two.leave(b)
    (late,) = sites.open(one, "b")
    for _ in range(3):
        sites.turn("y", 0)
        sites.turn("x", 0)
    before = a.view
    sites.change("x y")  # the leave, and the join if it was stamped, are in the remainder
    sites.settle()
    assert b.gone is not None
    assert b.gone.wanted
    assert names(a.view) == ["x"]
    assert a.view is not None
    assert before is not None
    assert a.view.came_with == ("x/0",)
    assert sorted(names(own.view)) == sorted(names(late.view)) == ["x", "y"]
    a.offer(b"1", AGREED)
    late.offer(b"2", AGREED)
    sites.settle()
    assert payloads(a) == [b"1"]
    assert payloads(own) == payloads(late) == [b"2"]


def test_a_leave_that_waits_is_carried_out_after_a_merge() -> None:
    sites = Sites()
    two, one = sites.host("y", 1), sites.host("x", 0)  # so y speaks first
    a, b = sites.open(one, "a", "b")
    (bb,) = sites.open(two, "b")
    sites.settle()
    left = b.number
    sites.engines["x"].is_open = False
    one.leave(b, b"bye")
    sites.settle(3)
    sites.change("y x")
    sites.settle()
    assert b.gone is None
    sites.engines["x"].is_open = True
    sites.settle()
    assert a.number == left, "it has the number that the leave was for"
    assert all(isinstance(event, View) for event in events(a))
    assert b.gone == Left(wanted=True, returning=False, text="left", group="b")
    assert names(bb.view) == ["y"]
    assert bb.view is not None
    assert bb.view.header == b"bye"
    assert a.is_member


def test_a_sender_from_outside_keeps_the_names_of_its_groups() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    (b,) = sites.open(two, "b")
    sites.settle()
    a.stream.offer_to(["b"], b"nobody is there", AGREED)
    sites.settle()
    sites.change("y x")
    sites.settle()
    a.stream.offer_to(["b"], b"now", AGREED)
    sites.settle()
    assert payloads(b) == [b"now"]
    sites.engines["x"].is_open = False
    a.stream.offer_to(["c"], b"not named yet", AGREED)
    sites.settle(3)
    sites.change("x y")
    sites.engines["x"].is_open = True
    (c,) = sites.open(two, "c")
    sites.settle()
    a.stream.offer_to(["c"], b"named", AGREED)
    sites.settle()
    assert payloads(c)[-1] == b"named"


def test_a_large_message_that_a_joiner_has_no_beginning_of_begins_again() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    (b,) = sites.open(two, "b")
    sites.settle()
    sites.change("x y")
    sites.settle()
    a.offer(bytes(150_000), AGREED)
    sites.turn("x", 0)
    component = sites.world.daemons["x"].component
    assert component is not None
    assert [entry.mask for entry in component.entries if entry.body is None] == [0b01] * 3
    # The last fragment comes behind the join, as if it had been stamped later.
    last = component.entries.pop()
    (late,) = sites.open(two, "a")
    sites.settle(2)
    assert late.is_member
    component.entries.append(last._replace(position=component.lts + 1 << 24, mask=0b11))
    component.lts += 1
    sites.settle()
    assert [len(each) for each in payloads(late)] == [150_000]
    assert [len(each) for each in payloads(a)] == [150_000]
    assert not payloads(b)


def test_a_roster_that_nobody_can_read_costs_its_groups_and_they_are_joined_again() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    (b,) = sites.open(two, "b")
    sites.settle()
    sites.change("x y")
    sites.engines["y"].is_open = False
    sites.settle(3)
    daemon = sites.world.daemons["y"]
    sites.world.stamp(daemon, b"", None, 0)  # takes the number of its block
    body = PART.pack(Operation.PART, 1, 0) + b"\xff\xff"
    sites.world.stamp(daemon, pack_roster(0, body, 0), body)
    sites.settle(3)
    told = events(b)
    assert isinstance(told[-1], Left)
    assert told[-1].returning
    sites.engines["y"].is_open = True
    sites.settle()
    assert b.is_member
    assert a.is_member
    for name in ("a", "b"):
        assert find(sites, "x", name) == find(sites, "y", name)


def test_very_many_groups_are_exchanged_in_parts_and_told_in_passes() -> None:
    topics = [f"a longer name of a topic {number}" for number in range(2_500)]
    sites = Sites(directory=SharedDirectory("floor", *topics, "own"))
    one, two = pair(sites)
    mine, theirs = sites.open(one, *topics), sites.open(two, *topics, "own")
    sites.settle(40)
    assert all(port.is_member for port in mine)
    sites.change("x y")
    sites.settle(1)
    component = sites.world.daemons["x"].component
    assert component is not None
    sites.settle(1)
    parts = [entry for entry in component.entries if entry.body is not None and entry.body[0] == Operation.PART]
    assert len(parts) >= 4
    told = [sum(len(names(port.view)) == 2 for port in ports) for ports in (mine, theirs)]
    assert 0 < max(told) <= 2 * PASS_CHANGES, "as many as a few passes tell"
    sites.settle(6)
    assert all(len(names(port.view)) == 2 for port in (*mine, *theirs[:-1]))
    assert [port.number for port in mine] == [port.number for port in theirs[:-1]]
    assert names(theirs[-1].view) == ["y"]


def test_a_daemon_without_groups_merges_like_any_other() -> None:
    sites = Sites()
    one, two = pair(sites)
    (a,) = sites.open(one, "a")
    two.attach(0, "floor", config=GroupConfig())
    two.finish(0)
    sites.settle()
    kept = a.view
    sites.change("x y")
    sites.settle()
    assert a.view is kept
    (b,) = sites.open(two, "a")
    sites.settle()
    assert names(a.view) == names(b.view) == ["x", "y"]
