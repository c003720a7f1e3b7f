"""Executions that docs/trace.md allows: no checker may raise its voice."""

from __future__ import annotations

import pytest
from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import check_all


def assert_held(world: World, *expect: str, **options: object) -> None:
    verdict = check_all(world.rows(), expect=expect, **options)  # type: ignore[arg-type]
    assert verdict.held, "\n".join(verdict.summary())


def test_an_empty_trace_holds_and_examines_nothing() -> None:
    verdict = check_all([])
    assert verdict.held
    assert all(result.checked == 0 for result in verdict.properties.values())


def test_every_service_in_one_view() -> None:
    world = World(*"abc")
    for service in ("UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "RESILIENT(1)", "MAJORITY", "SAFE"):
        for sender in "abc":
            world.send(sender, "abc", 3, service)
    world.view(2, "abc")
    assert_held(
        world,
        "well_formed",
        "integrity",
        "fifo",
        "causal",
        "total_order",
        "virtual_synchrony",
        "resilience",
        "liveness",
    )


def test_a_member_crashes_with_a_message_that_only_it_delivered() -> None:
    """docs/design/overview.md section 3: a member that a failure leaves behind may have delivered what the others never
    see."""
    world = World(*"abc")
    world.send("b", "abc")
    lost = world.submit("a")
    world.hold("a", lost)
    world.placed("a", lost)
    world.deliver("a", lost)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    world.send("b", "bc")
    assert_held(world)


def test_a_crashed_sequencer_delivered_in_an_order_that_the_others_change() -> None:
    """docs/trace.md 4: left behind in V with b before c; the others deliver both later, c before b."""
    world = World(*"abc")
    one, two = world.submit("b"), world.submit("c")
    for message in (one, two):
        world.hold("abc", message)
        world.placed("a", message)
        world.deliver("a", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    for message, position in ((two, 10), (one, 11)):  # submitted again under the same numbers
        world.deliver("bc", message, position=position)
    assert_held(world)


def test_an_excluded_member_goes_on_in_its_old_view_until_it_learns_of_it() -> None:
    world = World(*"abc")
    world.send("a", "abc")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc", at="bc")
    alone = world.submit("a")
    world.hold("a", alone)
    world.placed("a", alone)
    world.deliver("a", alone)
    world.send("b", "bc")
    world.leave("a")
    assert_held(world)


def test_a_member_is_blocked_for_ever_in_a_minority() -> None:
    world = World(*"abc")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc", at="bc")
    waiting = world.submit("a")
    world.hold("a", waiting)
    world.event("a", "gap", sender="b/0", first=0, count=1)
    world.send("b", "bc")
    assert_held(world, "liveness")


def test_the_last_of_three_is_blocked_when_the_others_crash() -> None:
    world = World(*"abc")
    world.send("a", "abc")
    world.event("b", "crash")
    world.event("c", "crash")
    world.hold("a", world.submit("a"))
    assert_held(world)


def test_any_loss_may_block_a_group_that_needs_all() -> None:
    world = World(*"abc")
    world.event("c", "crash")
    world.hold("a", world.submit("a"))
    assert_held(world, min_members="all")
    assert not check_all(world.rows()).held


def test_a_member_rejoins_with_the_same_life() -> None:
    world = World(*"abc")
    world.send("a", "abc")
    world.leave("a")
    world.view(2, "bc")
    missed = world.send("b", "bc")
    outside = world.submit("a", service="FIFO")  # lost: its outcome is unknown to a
    world.event("a", "join")
    world.view(3, "bca", came={"a": "a"})
    for sender in "abc":
        world.send(sender, "abc")
    assert missed.first < 1
    assert outside.first == 1
    assert_held(world, "fifo", "virtual_synchrony", "liveness")


def test_a_rejoined_member_starts_below_its_own_old_positions() -> None:
    """A ring that dissolves has positions of its own (docs/design/overview.md section 3), SAFE ones too."""
    world = World(*"abc")
    world.view(2, "bc", at="bc")
    world.view(2, "a", at="a")
    alone = world.submit("a", service="SAFE")
    world.hold("a", alone)
    world.placed("a", alone)
    world.deliver("a", alone, position=1000)
    world.leave("a")
    world.event("a", "join")
    world.view(3, "bca", came={"a": "a"})
    world.send("b", "abc", service="SAFE")
    assert_held(world, "total_order")


def test_a_member_restarts_with_its_next_life() -> None:
    world = World(*"abc")
    world.send("a", "abc", 2)
    world.event("a", "crash")
    world.view(2, "bc")
    world.event("a/1", "start")
    world.view(3, ["b", "c", "a/1"], came={"a/1": ["a/1"]})
    world.send("a/1", ["a/1", "b", "c"])
    world.send("b", ["a/1", "b", "c"])
    assert_held(world)


def test_the_coordinator_submits_a_crashed_senders_message_again_and_one_before_it_is_lost() -> None:
    world = World(*"abc")
    world.submit("a")
    second = world.submit("a")
    world.hold("bc", second)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    world.deliver("bc", second, position=5)
    assert_held(world)


def test_the_sender_submits_its_message_again_in_the_next_view() -> None:
    world = World(*"abc")
    message = world.submit("b", service="RESILIENT(1)")
    world.hold("bc", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    world.placed("bc", message)
    world.deliver("bc", message, position=7)
    world.confirm("b", message)
    assert_held(world, "resilience", "promises")


def test_what_recovery_brought_together_is_judged_against_those_who_came_along() -> None:
    """docs/trace.md 6: after `transitional` the came_with of the next view counts."""
    world = World(*"abc")
    message = world.submit("b", service="SAFE")
    world.hold("bc", message)
    world.placed("bc", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.deliver("bc", message)
    world.view(2, "bc")
    assert_held(world, "resilience")


def test_after_a_transitional_without_a_next_view_nothing_is_judged() -> None:
    world = World(*"abc")
    message = world.submit("b", service="SAFE")
    world.hold("b", message)
    world.event("b", "transitional")
    world.deliver("b", message)
    world.event("b", "crash")
    assert_held(world, quiet=False)


def test_components_of_a_partition_go_on_and_merge() -> None:
    """EVS: each side goes its own way and uses the same positions; came_with tells the sides apart."""
    world = World(*"abcd")
    world.send("a", "abcd")
    world.view(2, "ab")
    world.view(2, "cd")
    left, right = world.submit("a"), world.submit("c")
    world.hold("ab", left)
    world.deliver("ab", left, position=10)
    world.hold("cd", right)
    world.deliver("cd", right, position=10)
    for name, friends in (("a", "ab"), ("b", "ab"), ("c", "cd"), ("d", "cd")):
        world.view(3, "abcd", at=name, came=dict.fromkeys("abcd", friends))
    world.next_position["u"] = 20
    for sender in "abcd":
        world.send(sender, "abcd")
    assert_held(world)


@pytest.mark.parametrize("rules", [1, 2, {"a": 1, "b": 2, "c": 1, "d": 2}])
def test_two_parts_go_on_where_nobody_asked_for_a_majority(rules: object) -> None:
    """docs/design/overview.md section 3: a smaller number may leave two rings, which never merge."""
    world = World(*"abcd")
    for side in ("ab", "cd"):
        for name in side:
            world.event(name, "transitional")
        world.view(2, side)
        world.send(side[0], side)
    assert_held(world, "virtual_synchrony", min_members=rules)


def test_a_member_left_behind_had_delivered_a_join_that_the_others_never_knew_of() -> None:
    world = World(*"abc")
    world.event("d", "start", underlay="")
    world.view(2, "cabd", at="c", came={"d": "d"})
    for name in "ab":
        world.event(name, "transitional")
    world.view(3, "ab")
    world.leave("c")
    world.view(4, "abc", came={"c": "c"})
    world.send("c", "abc")
    assert_held(world, "virtual_synchrony")


def test_one_recovery_follows_another() -> None:
    world = World(*"abcde")
    for members, counter in (("abcd", 2), ("abc", 3), ("ab", 4)):
        for name in members:
            world.event(name, "transitional")
        world.view(counter, members)
        world.send("a", members)
    assert_held(world, "virtual_synchrony")


def test_locks_change_hands_by_views_with_the_same_members() -> None:
    world = World(*"abc")
    for counter, (name, kind) in enumerate((("a", "lock"), ("a", "unlock"), ("b", "lock"), ("b", "unlock")), start=2):
        world.view(counter, "abc")
        world.event(name, kind, detail="x")
        world.send(name, "abc")
    assert_held(world, "virtual_synchrony", "promises")


def test_rows_of_the_same_messages_are_cut_differently() -> None:
    world = World(*"abc")
    for service in ("RESILIENT(2)", "SAFE"):
        message = world.submit("a", 500, service)
        world.hold("abc", message)
        world.placed("abc", message)
        world.deliver("a", message)
        half = message.first + 250
        world.deliver("bc", message, part=(message.first, 250))
        world.deliver("bc", message, part=(half, 250))
    world.view(2, "abc")
    assert_held(world, "resilience", "virtual_synchrony")


def test_one_row_covers_several_submits() -> None:
    world = World(*"ab")
    one, two = world.submit("a", 2), world.submit("a", 3)
    world.hold("ab", one)
    world.hold("ab", two)
    both = Message("a/0", 0, 5, "AGREED", 0)
    world.deliver("a", one)
    world.deliver("a", two)
    world.deliver("b", both)
    world.view(2, "ab")
    assert_held(world)


def test_redelivery_is_not_a_duplicate() -> None:
    world = World(*"ab")
    message = world.send("a", "ab")
    world.deliver("b", message, kind="redeliver")
    assert_held(world)


def test_unreliable_messages_may_be_lost_and_come_in_any_order() -> None:
    world = World(*"ab")
    one, two, _ = (world.submit("a", service="UNRELIABLE") for _ in range(3))
    world.deliver("b", two)
    world.deliver("b", one)
    world.event("b", "gap", sender="a/0", first=2, count=1)
    world.send("a", "ab", service="FIFO")
    assert_held(world, "fifo", "liveness")


def test_reliable_messages_come_in_any_order() -> None:
    world = World(*"ab")
    one, two = world.submit("a", service="RELIABLE"), world.submit("a", service="RELIABLE")
    world.deliver("a", one)
    world.deliver("a", two)
    world.deliver("b", two)
    world.deliver("b", one)
    assert_held(world, "liveness")


def test_a_sender_outside_the_group() -> None:
    world = World(*"ab")
    world.event("x", "start")
    first, second = world.submit("x"), world.submit("x")
    world.hold("ab", second)
    world.deliver("ab", second)
    assert first.first == 0
    assert_held(world)


@pytest.mark.parametrize("service", ["UNRELIABLE", "RELIABLE", "FIFO", "CAUSAL", "AGREED", "MAJORITY", "SAFE"])
def test_calls_from_outside_with_every_service(service: str) -> None:
    """RMP section 4.5: some are lost with their caller, the others go the way of members' messages."""
    world = World(*"abc")
    world.event("x", "start")
    world.submit("x", service=service)  # the caller gave up
    message = world.send("x", "abc", service=service)
    world.event("b", "reply", sender="x/0", first=1)
    world.confirm("x", message)
    world.event("x", "crash")
    world.event("y", "start")
    world.submit("y", service=service)
    assert_held(world, "promises")


def test_a_joiner_owes_nothing_of_what_a_caller_sent_before() -> None:
    world = World(*"ab")
    world.event("x", "start")
    world.event("c", "start", underlay="")
    world.send("x", "ab", service="FIFO")
    world.view(2, "abc", came={"c": "c"})
    world.send("x", "abc", service="FIFO")
    assert_held(world, "liveness")


def test_a_later_handler_hears_of_a_call_for_the_first_time_when_it_comes_again() -> None:
    world = World(*"ab")
    world.event("x", "start")
    world.event("c", "start", underlay="")
    message = world.send("x", "ab")
    world.view(2, "abc", came={"c": "c"})
    world.deliver("c", message, kind="redeliver")
    world.event("c", "reply", sender="x/0", first=0)
    assert_held(world, "promises")


def test_a_failure_comes_between_two_members_that_answer_one_call_where_both_sides_may_go_on() -> None:
    world = World(*"abc")
    world.event("x", "start")
    call = world.submit("x")
    world.hold("abc", call)
    world.deliver("c", call)  # it had the token and the handler, and was cut off
    world.event("c", "reply", sender="x/0", first=0)
    for name in "ab":
        world.event(name, "transitional")
    world.view(2, "ab")
    world.deliver("ab", call, position=7)
    world.event("a", "reply", sender="x/0", first=0)
    world.leave("c")
    assert_held(world, "promises", min_members=1)


def test_two_rings_that_have_yet_to_find_each_other_answer_one_call() -> None:
    world = World(*"ab", view=False)
    world.view(1, "a", came={"a": "a"})
    world.view(1, "b", came={"b": "b"})
    world.event("x", "start")
    call = world.submit("x")
    for name in "ab":
        world.hold(name, call)
        world.deliver(name, call)
        world.event(name, "reply", sender="x/0", first=0)
    assert_held(world, "promises")


def test_several_underlays_number_and_order_apart() -> None:
    world = World(*"ab")
    world.view(1, "ba", underlay="v", came={"a": "a", "b": "b"})
    for _ in range(3):
        world.send("a", "ab")
        world.send("a", "ab", underlay="v")
    assert_held(world)


def test_lightweight_groups_get_only_their_messages() -> None:
    world = World(*"abc")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    world.view(11, "bc", group="h", came={"c": "c", "b": "b"})
    for _ in range(3):
        world.send("a", "ab", group="g")
        world.send("a", "bc", group="h")
        world.send("b", "abc", groups=("g", "h"))
    world.view(12, "b", group="g", at="b")
    world.leave("a", group="g")
    world.send("b", "b", group="g")
    world.view(2, "abc")
    world.send("a", "b", group="g")
    assert_held(world, "virtual_synchrony", "liveness", "fifo")


def test_a_member_comes_into_a_lightweight_group_between_messages() -> None:
    world = World(*"ab")
    world.view(10, "a", group="g", came={"a": "a"})
    world.send("a", "a", group="g")
    world.view(11, "ab", group="g", came={"b": "b"})
    world.send("a", "ab", group="g")
    world.view(2, "ab")
    assert_held(world, "virtual_synchrony")


def test_a_joiner_owes_nothing_of_before() -> None:
    world = World(*"ab")
    world.send("a", "ab", 5)
    world.send("b", "ab", 5, "FIFO")
    world.event("c", "start")
    world.view(2, "abc", came={"c": "c"})
    world.send("a", "abc")
    world.send("b", "abc", 1, "FIFO")
    assert_held(world, "liveness", "fifo")


def test_a_gap_that_was_filled_is_not_open() -> None:
    world = World(*"ab")
    message = world.submit("a", 3)
    world.event("b", "gap", sender="a/0", first=0, count=3)
    world.event("b", "repaired", sender="a/0", first=0, count=3)
    world.hold("ab", message)
    world.deliver("ab", message)
    assert_held(world)


def test_a_lock_passes_from_hand_to_hand_and_outlives_an_excluded_holder() -> None:
    world = World(*"abc")
    world.event("a", "lock", detail="x")
    world.event("a", "unlock", detail="x")
    world.event("b", "lock", detail="x")
    world.event("b", "unlock", detail="x")
    world.event("a", "lock", detail="x")
    world.view(2, "bc", at="bc")
    world.event("b", "lock", detail="x")  # a is cut off and believes that it still holds it
    world.leave("a")
    assert_held(world, "promises")


def test_more_than_k_failed_at_once_and_the_confirmed_message_is_gone() -> None:
    world = World(*"abcde")
    message = world.submit("a", service="RESILIENT(1)")
    world.hold("ab", message)
    world.deliver("a", message)
    world.confirm("a", message)
    world.event("a", "crash")
    world.event("b", "crash")
    for name in "cde":
        world.event(name, "transitional")
    world.view(2, "cde")
    assert_held(world)


def test_causality_through_weaker_messages_binds_nobody() -> None:
    world = World(*"abc")
    cause = world.submit("a", service="RELIABLE")
    world.deliver("b", cause)
    effect = world.submit("b", service="CAUSAL")
    world.deliver("abc", effect)
    world.deliver("ac", cause)
    assert_held(world)


def test_clocks_that_cannot_be_compared() -> None:
    world = World(*"ab")
    message = world.submit("a", service="SAFE")
    world.deliver("ab", message)
    for event in world.find("b", "deliver"):
        event.at_ns = 0
    verdict = check_all(world.rows(), clock="many")
    assert verdict.held
    assert not verdict.properties["resilience"].judged
    assert any("not judged" in line for line in verdict.summary())


def test_nodes_stopped_at_the_end_stayed_in_and_are_judged() -> None:
    world = World(*"ab")
    world.send("a", "ab")
    for name in "ab":
        world.event(name, "stop", underlay="")
    assert_held(world, "liveness")


def test_a_node_stopped_in_the_middle_owes_nothing() -> None:
    world = World(*"abc")
    message = world.submit("a")
    world.hold("abc", message)
    world.event("c", "stop")
    world.deliver("ab", message)
    world.view(2, "ab")
    world.send("a", "ab")
    assert_held(world, "liveness")
