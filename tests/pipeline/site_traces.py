"""Traces of daemons in two sites, with sessions, for the tests of both judges: executions that are legal, and one fault
in each of the others.

Daemons a and b are in the east, c and d in the west. Their sessions are r@a, s@b, t@a, u@a, v@b, w@c and x@c; d is a
program of its own, without sessions. In group g are s, t, u, v, w and d; in h are v, x and d; in k are u and v, which
are in one site; r is in none. Every part of a partition goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.pipeline.site_land import DAEMONS, EAST, G_EAST, G_WEST, GROUPS, WEST, Land, of_names, story
from tests.unit.trace_builder import Event, Message, World

# Faults of virtual synchrony -----------------------------------------------------------------------------------------


def signal_at_another_place() -> World:
    one = story()
    one.world.move_before(
        one.land.of("v@b", "deliver", one.messages["stable"]), one.land.of("v@b", "transitional", group="g")
    )
    return one.world


def signal_of_a_node_at_another_place() -> World:
    """Of members that write the underlay's views: all are programs of their own."""
    land = Land(sessions=(), groups={"g": tuple(DAEMONS)})
    one = land.submit("a", "g")
    land.signal(EAST)
    land.deliver(EAST, one)
    land.view(2, EAST)
    land.group_view("g", EAST)
    land.signal(WEST)
    land.view(2, WEST)
    land.group_view("g", WEST)
    land.world.move_before(land.of("b", "deliver", one), land.of("b", "transitional"))
    return land.world


def session_without_the_signal() -> World:
    one = story()
    one.world.drop(one.land.of("x@c", "transitional", group="h"))
    return one.world


def daemon_without_the_signal() -> World:
    one = story()
    one.world.drop(one.land.of("d", "transitional"))
    return one.world


def nobody_has_the_signal() -> World:
    one = story()
    for name in WEST:
        one.world.drop(one.land.of(name, "transitional"))
    for name, group in (("w@c", "g"), ("x@c", "h")):
        one.world.drop(one.land.of(name, "transitional", group=group))
    return one.world


def lost_after_the_signal() -> World:
    return story().drop("v@b", "unstable").world


def lost_before_the_signal() -> World:
    """The last of its sender, so that no hole shows it."""
    one = story()
    return one.drop("t@a", "outside").world


def lost_in_a_group_that_keeps_its_view() -> World:
    return story().drop("v@b", "rest of k").world


def in_a_view_of_the_other_component() -> World:
    one = story()
    one.land.of("v@b", "deliver", one.messages["k goes on"]).columns["view"] = "2@c/0"
    return one.world


def back_in_the_old_view() -> World:
    one = story()
    one.land.of("v@b", "deliver", one.messages["k goes on"]).columns["view"] = "1@a/0"
    return one.world


def came_with_another_component() -> World:
    one = story()
    merged = one.land.of("u@a", "view", group="g", members=of_names(GROUPS["g"]), came_with=of_names(G_EAST))
    merged.columns["came_with"] = of_names(GROUPS["g"])
    return one.world


def class_told_differently() -> World:
    one = story()
    merged = one.land.of("v@b", "view", group="g", members=of_names(GROUPS["g"]), came_with=of_names(G_EAST))
    merged.columns["came_with"] = of_names(("v@b",))
    return one.world


def daemon_came_with_another_component() -> World:
    one = story()
    one.land.of("b", "view", view="3@a/0").columns["came_with"] = of_names(("b", "c"))
    return one.world


def one_name_for_two_group_views() -> World:
    """Both halves name their views of g alike: a position is unique only together with the underlay's view."""
    one = story()
    for name in (*G_EAST, *G_WEST):
        for event in one.world.find(name, "view"):
            if event.columns["members"] in (of_names(G_EAST), of_names(G_WEST)):
                event.columns["view"] = "40@2@a/0"
    return one.world


def group_view_with_a_ghost() -> World:
    """v@b goes on in the view of h that names members of the other part."""
    one = story()
    land, world = one.land, one.world
    world.drop(land.of("v@b", "transitional", group="h"), land.of("v@b", "view", group="h", members=of_names(("v@b",))))
    ghost = land.submit("r@a", "h", at=EAST, position=102)
    world.deliver(["v@b"], ghost, view="2@a/0")
    before = land.of("a", "transitional", view="2@a/0")
    for event in [event for event in world.events if _is_about(event, ghost)]:
        world.move_before(event, before)
    return world


def after_the_signal_in_the_next_view() -> World:
    """Its view of k should have ended with the signal."""
    one = story()
    one.world.event("u@a", "transitional", group="k")
    one.world.move_before(one.world.events[-1], one.land.of("u@a", "deliver", one.messages["rest of k"]))
    one.land.group_view("k", (*GROUPS["k"], "w@c"), GROUPS["k"], ("w@c",))
    return one.world


def merged_group_view_left_out() -> World:
    """A view of h after the merge, which x@c passes over before the daemons go on."""
    one = story()
    one.land.group_view("h", (*GROUPS["h"], "u@a"), GROUPS["h"], ("u@a",))
    one.world.drop(one.world.find("x@c", "view")[-1])
    one.land.view(4, DAEMONS)
    return one.world


# Faults of resilience ------------------------------------------------------------------------------------------------


def safe_without_the_daemon_of_a_member() -> World:
    one = story()
    world, message = one.world, one.messages["third"]
    late = world.find("c", "hold", message)[0]
    world.drop(late)
    world.events.insert(world.events.index(one.land.of("w@c", "deliver", message)), late)
    late.at_ns = one.land.of("w@c", "deliver", message).at_ns - 1
    return world


def safe_after_the_signal_without_one_of_the_class() -> World:
    one = story()
    one.world.drop(one.land.of("b", "placed", one.messages["unstable"]))
    return one.world


def safe_to_a_group_that_keeps_its_view() -> World:
    """The signal of g says nothing about k."""
    one = story()
    one.world.drop(one.land.of("b", "hold", one.messages["rest of k"]))
    return one.world


def safe_to_two_groups_after_one_signal() -> World:
    """After the signal of h v@b is alone there; but it goes to k as well, and so to a."""
    land = Land()
    both = land.submit("v@b", "h", "k", service="SAFE", at="b")
    land.signal((*EAST, *G_EAST), "g")
    land.signal(("v@b",), "h")
    land.deliver(("v@b",), both)
    land.world.hold("a", both)
    land.world.placed("a", both)
    land.deliver(("u@a",), both)
    _part(land)
    return land.world


def _part(land: Land) -> None:
    """The views of both parts, and the signal of the west."""
    land.view(2, EAST)
    land.group_view("g", G_EAST)
    land.group_view("h", ("v@b",))
    land.signal((*WEST, "w@c"), "g")
    land.signal(("x@c",), "h")
    land.view(2, WEST)
    land.group_view("g", G_WEST)
    land.group_view("h", ("x@c", "d"))


def safe_lost_in_the_other_component() -> World:
    """The west delivered it before its signal, and nobody in the east delivers it."""
    one = story()
    for name in G_EAST:
        one.drop(name, "stable")
    # Its sender says nothing more, so that no hole shows it.
    for name in ("merged", "again", "k goes on"):
        for event in [event for event in one.world.events if _is_about(event, one.messages[name])]:
            one.world.drop(event)
    return one.world


def safe_lost_by_those_that_came_along() -> World:
    """b installs the view of the east and dies. v@b had delivered behind its signal what t@a and u@a, which were to
    come along, never deliver: a goes on alone."""
    land = Land()
    last = land.submit("v@b", "g", service="SAFE", at=EAST)
    land.signal(("b", "s@b", "v@b"), "g")
    land.signal(("v@b",), "h")
    land.deliver(("s@b", "v@b"), last)
    land.view(2, EAST)
    land.world.drop(land.of("a", "view", view="2@a/0"))
    land.views["a"] = "1@a/0"
    land.group_view("g", G_EAST, at=("s@b", "v@b"))
    for name in ("b", "s@b", "v@b"):
        land.world.event(name, "crash")
    land.signal(("a", "t@a", "u@a"), "g")
    land.signal(("u@a",), "k")
    land.view(3, "a")
    land.group_view("g", ("t@a", "u@a"))
    land.group_view("k", ("u@a",))
    land.signal((*WEST, "w@c"), "g")
    land.signal(("x@c",), "h")
    land.view(2, WEST)
    land.group_view("g", G_WEST)
    land.group_view("h", ("x@c", "d"))
    return land.world


def own_message_lost() -> World:
    """The west delivered it in the old view; its sender goes on without it, and so does all of the east."""
    one = story()
    for name in G_EAST:
        one.drop(name, "own")
    return one.world


def own_message_lost_at_the_end() -> World:
    """A node's own, in the last view; others deliver it there."""
    one = story()
    last = one.land.post("t@a", GROUPS["g"], "g", position=300)
    one.world.drop(one.land.of("t@a", "deliver", last))
    return one.world


def _is_about(event: Event, message: Message) -> bool:
    return (event.columns.get("sender"), event.columns.get("first")) == (message.sender, message.first)


# Faults of other properties ------------------------------------------------------------------------------------------


def hole_at_a_session() -> World:
    return story().drop("w@c", "second").world


def hole_after_the_merge() -> World:
    """The first that w@c gets of v@b in the view that they share again."""
    return story().drop("w@c", "merged").world


def numbers_swapped_at_a_session() -> World:
    one = story()
    first, behind = (one.land.of("w@c", "deliver", one.messages[name]) for name in ("merged", "last"))
    one.world.move_before(first, behind)
    return one.world


def order_swapped_at_a_session() -> World:
    one = story()
    first, behind = (one.land.of("u@a", "deliver", one.messages[name]) for name in ("stable", "unstable"))
    one.world.move_before(first, behind)
    return one.world


def effect_before_its_cause_at_a_session() -> World:
    one = story()
    first, behind = (one.land.of("v@b", "deliver", one.messages[name]) for name in ("to both", "to k"))
    one.world.move_before(first, behind)
    return one.world


def twice_for_two_groups() -> World:
    one = story()
    one.world.repeat(one.land.of("v@b", "deliver", one.messages["to both"]))
    return one.world


def two_positions_of_a_message() -> World:
    one = story()
    one.land.of("w@c", "deliver", one.messages["last"]).columns["position"] = 210
    return one.world


def lost_at_the_end() -> World:
    return story().drop("v@b", "last").world


def weak_message_lost_at_the_end() -> World:
    """Of a session that is not in the group."""
    one = story()
    last = one.land.post("x@c", GROUPS["g"], "g", service="RELIABLE")
    one.world.drop(one.land.of("u@a", "deliver", last))
    return one.world


def never_delivered() -> World:
    one = story()
    one.land.submit("u@a", "k", position=300)
    return one.world


def group_view_missing_at_the_end() -> World:
    one = story()
    one.land.group_view("k", (*GROUPS["k"], "w@c"), GROUPS["k"], ("w@c",))
    one.world.drop(one.world.find("v@b", "view")[-1])
    return one.world


def waits_for_a_view_at_the_end() -> World:
    one = story()
    one.world.event("u@a", "transitional", group="k")
    return one.world


def daemon_waits_for_a_view_at_the_end() -> World:
    one = story()
    one.world.event("c", "transitional", view="3@a/0")
    return one.world


SITE_FAULTS: Final[tuple[tuple[Callable[[], World], str, str], ...]] = (
    (signal_at_another_place, "virtual_synchrony", "v@b/0"),
    (signal_of_a_node_at_another_place, "virtual_synchrony", "a/0"),
    (session_without_the_signal, "virtual_synchrony", "x@c/0"),
    (daemon_without_the_signal, "virtual_synchrony", "d/0"),
    (nobody_has_the_signal, "virtual_synchrony", "c/0"),
    (lost_after_the_signal, "virtual_synchrony", "v@b/0"),
    (lost_before_the_signal, "virtual_synchrony", "t@a/0"),
    (lost_in_a_group_that_keeps_its_view, "virtual_synchrony", "v@b/0"),
    (in_a_view_of_the_other_component, "virtual_synchrony", "v@b/0"),
    (back_in_the_old_view, "virtual_synchrony", "v@b/0"),
    (came_with_another_component, "virtual_synchrony", "u@a/0"),
    (class_told_differently, "virtual_synchrony", "v@b/0"),
    (daemon_came_with_another_component, "virtual_synchrony", "b/0"),
    (one_name_for_two_group_views, "virtual_synchrony", "s@b/0"),
    (group_view_with_a_ghost, "virtual_synchrony", "v@b/0"),
    (after_the_signal_in_the_next_view, "virtual_synchrony", "u@a/0"),
    (merged_group_view_left_out, "virtual_synchrony", "x@c/0"),
    (safe_without_the_daemon_of_a_member, "resilience", "s@b/0"),
    (safe_after_the_signal_without_one_of_the_class, "resilience", "s@b/0"),
    (safe_to_a_group_that_keeps_its_view, "resilience", "u@a/0"),
    (safe_to_two_groups_after_one_signal, "resilience", "v@b/0"),
    (safe_lost_in_the_other_component, "resilience", "s@b/0"),
    (safe_lost_by_those_that_came_along, "resilience", "t@a/0"),
    (own_message_lost, "resilience", "t@a/0"),
    (own_message_lost_at_the_end, "resilience", "t@a/0"),
    (hole_at_a_session, "fifo", "w@c/0"),
    (hole_after_the_merge, "fifo", "w@c/0"),
    (numbers_swapped_at_a_session, "fifo", "w@c/0"),
    (order_swapped_at_a_session, "total_order", "u@a/0"),
    (effect_before_its_cause_at_a_session, "causal", "v@b/0"),
    (twice_for_two_groups, "integrity", "v@b/0"),
    (two_positions_of_a_message, "total_order", "w@c/0"),
    (lost_at_the_end, "liveness", "v@b/0"),
    (weak_message_lost_at_the_end, "liveness", "u@a/0"),
    (never_delivered, "liveness", "u@a/0"),
    (group_view_missing_at_the_end, "liveness", "v@b/0"),
    (waits_for_a_view_at_the_end, "liveness", "u@a/0"),
    (daemon_waits_for_a_view_at_the_end, "liveness", "c/0"),
)


# What is legal -------------------------------------------------------------------------------------------------------


def legal_merge() -> World:
    return story().world


def at_once(world: World, ticks: int) -> World:
    """The same on a coarse clock: what one pass writes has one time."""
    for event in world.events:
        event.at_ns = event.at_ns // ticks * ticks
    return world


def legal_passes() -> World:
    return at_once(story().world, 9)


def legal_long_passes() -> World:
    return at_once(story().world, 40)


def legal_nodes() -> World:
    """Programs that are their own daemons, with one group that has the underlay's name."""
    land = Land(sessions=(), groups={})
    world = land.world
    world.send("a", DAEMONS, 2, "SAFE")
    stable = world.submit("c", 1, "SAFE")
    world.hold(DAEMONS, stable)
    world.placed(DAEMONS, stable)
    world.deliver(WEST, stable)
    for part in (EAST, WEST):
        land.signal(part)
        if part == EAST:
            world.deliver(EAST, stable)
        land.view(2, part)
        world.send(part[0], part, 1, "SAFE")
    land.signal(DAEMONS)
    land.view(3, DAEMONS, EAST, WEST)
    world.send("d", DAEMONS, 1, "SAFE")
    return world


def legal_classes() -> World:
    """What b delivered last nobody else can get; so it goes to the same view in a class of its own."""
    land = Land()
    only = land.submit("x@c", "g", at="bc")
    own = land.submit("v@b", "g", at="b")
    land.deliver(("s@b", "v@b"), only)
    land.world.event("c", "crash")
    for name in ("w@c", "x@c"):
        land.world.event(name, "crash")
    rest = ("s@b", "t@a", "u@a", "v@b", "d")
    land.signal(("a", "b", "d", *rest[:4]), "g")
    land.signal(("v@b",), "h")
    land.signal(("u@a", "v@b"), "k")
    land.deliver(("s@b", "v@b"), own)
    land.view(2, "abd", "ad", "b")
    land.group_view("g", rest, ("t@a", "u@a", "d"), ("s@b", "v@b"))
    land.group_view("h", ("v@b", "d"), ("v@b",), ("d",))
    land.group_view("k", ("u@a", "v@b"), ("u@a",), ("v@b",))
    land.post("v@b", rest, "g", service="SAFE", at="abd")
    return land.world


def legal_ends() -> World:
    """A session ends and one leaves; a daemon crashes with its sessions, and what only it had delivered is lost."""
    land = Land()
    land.post("s@b", GROUPS["g"], "g")
    land.world.event("s@b", "stop", underlay="")
    land.group_view("g", ("t@a", "u@a", "v@b", "w@c", "d"))
    land.world.leave("t@a", group="g")
    land.group_view("g", ("u@a", "v@b", "w@c", "d"))
    land.post("u@a", ("u@a", "v@b", "w@c", "d"), "g", service="SAFE")
    lost = land.submit("v@b", "g", at="b")
    land.deliver(("v@b",), lost)
    land.world.event("b", "crash")
    land.signal(("a", "c", "d", "u@a", "w@c"), "g")
    land.signal(("x@c",), "h")
    land.signal(("u@a",), "k")
    land.view(2, "acd")
    land.group_view("g", ("u@a", "w@c", "d"))
    land.group_view("h", ("x@c", "d"))
    land.group_view("k", ("u@a",))
    land.post("d", ("u@a", "w@c", "d", "x@c"), "g", "h", service="SAFE", at="acd")
    return land.world


def legal_interrupted_merge() -> World:
    """The parts meet, part in another way before their groups have met, and meet again."""
    land = Land()
    land.signal((*EAST, *G_EAST), "g")
    land.signal(("v@b",), "h")
    _part(land)
    land.signal(DAEMONS)
    land.view(3, DAEMONS, EAST, WEST)
    land.signal((*"ac", "t@a", "u@a", "w@c"), "g")
    land.signal(("u@a",), "k")
    land.signal(("x@c",), "h")
    land.view(4, "ac")
    land.group_view("g", ("t@a", "u@a", "w@c"), ("t@a", "u@a"), ("w@c",))
    land.group_view("h", ("x@c",))
    land.group_view("k", ("u@a",))
    land.signal((*"bd", "s@b", "v@b"), "g")
    land.signal(("v@b",), "k")
    land.view(4, "bd")
    land.group_view("g", ("s@b", "v@b", "d"), ("s@b", "v@b"), ("d",))
    land.group_view("h", ("v@b", "d"), ("v@b",), ("d",))
    land.group_view("k", ("v@b",))
    land.post("u@a", ("t@a", "u@a", "w@c"), "g", service="SAFE", at="ac", position=50)
    land.post("d", ("s@b", "v@b", "d"), "g", "h", service="SAFE", at="bd", position=50)
    land.signal(DAEMONS)
    land.view(5, DAEMONS, "ac", "bd")
    land.group_view("g", GROUPS["g"], ("t@a", "u@a", "w@c"), ("s@b", "v@b", "d"))
    land.group_view("h", GROUPS["h"], ("x@c",), ("v@b", "d"))
    land.group_view("k", GROUPS["k"], ("u@a",), ("v@b",))
    land.post("v@b", GROUPS["g"], "g", service="SAFE", position=90)
    return land.world


def legal_silence() -> World:
    """A session that wrote nothing is a member like others; a confirmation behind the signal is one for its class."""
    land = Land()
    everyone = (*GROUPS["g"], "z@d")
    land.group_view("g", everyone, GROUPS["g"], ("z@d",), at=GROUPS["g"])
    land.view(2, DAEMONS)
    land.post("u@a", GROUPS["g"], "g", service="SAFE")
    late = land.submit("u@a", "g", service="SAFE", at=EAST)
    land.signal((*EAST, *G_EAST), "g")
    land.signal(("v@b",), "h")
    land.deliver(G_EAST, late)
    land.world.confirm("u@a", late)
    land.view(3, EAST)
    land.group_view("g", G_EAST)
    land.group_view("h", ("v@b",))
    land.signal((*WEST, "w@c"), "g")
    land.signal(("x@c",), "h")
    land.view(3, WEST)
    land.group_view("g", (*G_WEST, "z@d"), at=G_WEST)
    land.group_view("h", ("x@c", "d"))
    return land.world


SITE_LEGAL: Final = (
    legal_merge,
    legal_passes,
    legal_long_passes,
    legal_nodes,
    legal_classes,
    legal_ends,
    legal_interrupted_merge,
    legal_silence,
)


# Sessions where only a quorum goes on --------------------------------------------------------------------------------


def confirmed_at_a_session_and_lost() -> World:
    """The daemon of u@a crashes after a message of it was confirmed; those that go on never deliver it."""
    land = Land()
    land.view(2, DAEMONS)
    lost = land.submit("u@a", "g", service="RESILIENT(1)")
    land.deliver(("u@a",), lost)
    land.world.confirm("u@a", lost)
    land.world.event("a", "crash")
    land.signal(("b", "c", "d", "s@b", "v@b", "w@c"), "g")
    land.signal(("v@b",), "k")
    land.view(3, "bcd")
    land.group_view("g", ("s@b", "v@b", "w@c", "d"))
    land.group_view("k", ("v@b",))
    return land.world


def hole_of_a_session_in_a_quorum() -> World:
    land = Land()
    land.post("u@a", GROUPS["g"], "g", service="FIFO")
    second = land.post("u@a", GROUPS["g"], "g", service="FIFO")
    land.post("u@a", GROUPS["g"], "g", service="FIFO")
    land.world.drop(land.of("v@b", "deliver", second))
    return land.world


def lost_at_a_session_in_a_quorum() -> World:
    land = Land()
    last = land.post("u@a", GROUPS["g"], "g")
    land.world.drop(land.of("v@b", "deliver", last))
    return land.world


def other_set_at_a_session_in_a_quorum() -> World:
    """k keeps its view, and v@b goes with u@a from view to view without a message."""
    land = Land()
    last = land.post("u@a", GROUPS["k"], "k")
    land.view(2, DAEMONS)
    land.world.drop(land.of("v@b", "deliver", last))
    return land.world


def group_view_over_a_message_at_a_session() -> World:
    land = Land()
    message = land.post("x@c", GROUPS["g"], "g")
    land.group_view("k", (*GROUPS["k"], "s@b"), GROUPS["k"], ("s@b",))
    late = land.of("v@b", "view", group="k", came_with=of_names(GROUPS["k"]))
    land.world.move_before(late, land.of("v@b", "deliver", message))
    return land.world


def legal_sessions_in_a_quorum() -> World:
    """A daemon crashes with its sessions; what it had not finished is lost, and the rest goes on."""
    land = Land()
    first = land.post("u@a", GROUPS["g"], "g", service="RESILIENT(2)")
    land.world.confirm("u@a", first)
    lost = land.submit("u@a", "g", "k", service="SAFE", at="a")
    land.world.event("a", "crash")
    land.signal(("b", "c", "d", "s@b", "v@b", "w@c"), "g")
    land.signal(("v@b",), "k")
    land.view(2, "bcd")
    land.group_view("g", ("s@b", "v@b", "w@c", "d"))
    land.group_view("k", ("v@b",))
    land.post("v@b", ("s@b", "v@b", "w@c", "d"), "g", "k", service="SAFE", at="bcd")
    assert lost.position is not None
    return land.world


QUORUM_FAULTS: Final[tuple[tuple[Callable[[], World], str, str], ...]] = (
    (confirmed_at_a_session_and_lost, "promises", "d/0"),
    (hole_of_a_session_in_a_quorum, "fifo", "v@b/0"),
    (lost_at_a_session_in_a_quorum, "liveness", "v@b/0"),
    (other_set_at_a_session_in_a_quorum, "virtual_synchrony", "v@b/0"),
    (group_view_over_a_message_at_a_session, "virtual_synchrony", "v@b/0"),
)
QUORUM_LEGAL: Final = (legal_sessions_in_a_quorum, legal_ends)
