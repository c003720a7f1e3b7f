"""Broken views and promises: each must be flagged by exactly the property that it breaks, whatever else it disturbs.

Broken messages and orders are in `test_checkers_illegal_order.py`.
"""

from __future__ import annotations

import pytest
from tests.unit.broken_traces import assert_only, busy
from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import check_all

# virtual_synchrony


def test_one_of_two_that_go_together_lacks_a_message() -> None:
    world, _ = busy()
    last = world.send("a", "abc", 5)
    world.view(3, "abc")
    world.drop(world.find("c", "deliver", last)[0])
    verdict = assert_only(world, "virtual_synchrony")
    assert (verdict.violations[0].node, verdict.violations[0].first, verdict.violations[0].count) == ("c", 8, 5)


def test_a_message_slips_into_the_next_view_at_one_member() -> None:
    world = World(*"abc")
    message = world.submit("a")
    world.hold("abc", message)
    world.deliver("ab", message)
    world.view(2, "abc")
    world.deliver("c", message)
    assert_only(world, "virtual_synchrony")


def test_survivors_recover_different_sets() -> None:
    world = World(*"abc")
    message = world.submit("a")
    world.hold("abc", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.deliver("b", message)
    world.view(2, "bc")
    assert_only(world, "virtual_synchrony")


def test_a_view_has_two_lists_of_members() -> None:
    world, _ = busy()
    event = world.find("b", "view")[-1]
    event.columns["members"] = ("a/0", "b/0", "c/0", "d/0")
    assert_only(world, "virtual_synchrony", 1)


def test_a_delivery_in_a_view_that_is_over() -> None:
    world, messages = busy("RELIABLE")
    world.find("b", "deliver", messages[-1])[0].columns["view"] = "1@a/0"
    assert_only(world, "virtual_synchrony")


def test_a_delivery_after_leaving() -> None:
    world = World(*"abc")
    message = world.submit("b", service="FIFO")
    world.deliver("bc", message)
    world.leave("a")
    world.deliver("a", message, view="1@a/0")
    world.view(2, "bc")
    assert_only(world, "virtual_synchrony")


def test_views_in_different_orders() -> None:
    world = World(*"ab")
    for order, name in (((2, 3), "a"), ((3, 2), "b")):
        for counter in order:
            world.view(counter, "ab", at=name, came={"a": "a", "b": "b"} if counter == order[0] else None)
    assert not check_all(world.rows()).properties["virtual_synchrony"].held


def test_came_with_excuses_a_member_that_came_along() -> None:
    world = World(*"ab")
    message = world.submit("a")
    world.deliver("a", message)
    world.view(2, "ab", came={"a": "a", "b": "b"})
    verdict = check_all(world.rows(), quiet=False)
    assert not verdict.properties["virtual_synchrony"].held


def parted(left: str, right: str, members: str = "abcd") -> World:
    """A partition after which both sides go on."""
    world = World(*members)
    world.send("a", members)
    for side in (left, right):
        for name in side:
            world.event(name, "transitional")
        world.view(2, side)
        world.send(side[0], side)
    return world


@pytest.mark.parametrize(("left", "right"), [("ab", "cd"), ("abc", "d"), ("a", "bcd")])
def test_two_parts_of_a_partition_go_on(left: str, right: str) -> None:
    verdict = assert_only(parted(left, right), "virtual_synchrony")
    assert "two parts of u went on from view 1@a/0" in verdict.violations[0].evidence


def test_two_parts_go_on_of_which_one_knew_a_later_view() -> None:
    world = World(*"abc")
    world.event("d", "start", underlay="")
    world.view(2, "abcd", at="cd", came={"d": "d", "c": "abc"})  # a and b were cut off before they heard of d
    for part, counter in (("cd", 3), ("ab", 4)):
        for name in part:
            world.event(name, "transitional")
        world.view(counter, part)
    assert_only(world, "virtual_synchrony")


def test_a_fork_is_reported_once_however_long_its_branches_are() -> None:
    world = parted("ab", "cd")
    for counter, (side, name) in enumerate((("ab", "a"), ("cd", "c")), start=3):
        for member in side:
            world.event(member, "transitional")
        world.view(counter, side, at=side)
        world.send(name, side)
    assert_only(world, "virtual_synchrony")


def test_one_member_that_asks_for_a_majority_is_enough() -> None:
    """RMP section 4.4: the largest minimum that any member asked for."""
    rules = {"a": 1, "b": 1, "c": "majority", "d": 1}
    assert_only(parted("ab", "cd"), "virtual_synchrony", min_members=rules)
    assert_only(parted("abc", "d"), "virtual_synchrony", min_members={"a": 3, "b": 1, "c": 1, "d": 1})


def test_members_of_a_lightweight_group_lack_a_message_of_it() -> None:
    world = World(*"abc")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    message = world.send("c", "ab", group="g")
    world.view(2, "abc")
    world.drop(world.find("b", "deliver", message)[0])
    assert_only(world, "virtual_synchrony")


def test_a_message_slips_over_a_lightweight_view() -> None:
    world = World(*"abc")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    message = world.submit("c", group="g")
    world.deliver("a", message)
    world.view(11, "abc", group="g", came={"c": "c"})
    world.deliver("b", message)
    assert_only(world, "virtual_synchrony")


# resilience


def strong(service: str) -> tuple[World, Message]:
    world = World(*"abcde")
    message = world.send("a", "abcde", 500, service)
    return world, message


@pytest.mark.parametrize(("members", "enough"), [("ab", "ab"), ("abc", "ab"), ("abcd", "abc"), ("abcde", "abc")])
def test_a_majority_is_more_than_half_of_the_view(members: str, enough: str) -> None:
    """docs/design/overview.md section 3: the deliverer included, held and placed."""

    def world_with(holders: str) -> World:
        world = World(*members)
        message = world.submit("a", service="MAJORITY")
        world.hold(holders, message)
        world.placed(holders, message)
        world.deliver("a", message)
        late = members[len(holders) :]
        world.hold(late, message)
        world.placed(late, message)
        world.deliver(members[1:], message)
        return world

    assert check_all(world_with(enough).rows()).held
    assert_only(world_with(enough[:-1]), "resilience")


@pytest.mark.parametrize("service", ["RESILIENT(4)", "RESILIENT(9)", "SAFE"])
def test_delivered_before_the_last_holder_holds(service: str) -> None:
    world, message = strong(service)
    world.move_before(world.find("b", "deliver", message)[0], world.find("e", "hold", message)[0])
    assert_only(world, "resilience")


@pytest.mark.parametrize(("service", "last"), [("RESILIENT(1)", "b"), ("RESILIENT(2)", "c")])
def test_delivered_by_the_sender_with_too_few_holders(service: str, last: str) -> None:
    world, message = strong(service)
    world.move_before(world.find("a", "deliver", message)[0], world.find(last, "hold", message)[0])
    assert_only(world, "resilience")


@pytest.mark.parametrize(("service", "last"), [("MAJORITY", "c"), ("SAFE", "e")])
def test_held_but_not_placed_by_enough(service: str, last: str) -> None:
    world, message = strong(service)
    world.move_before(world.find("a", "deliver", message)[0], world.find(last, "placed", message)[0])
    assert_only(world, "resilience")


def test_enough_holders_are_enough() -> None:
    world, message = strong("RESILIENT(2)")
    world.move_before(world.find("a", "deliver", message)[0], world.find("d", "hold", message)[0])
    assert check_all(world.rows()).held


def test_a_part_of_a_range_is_not_held() -> None:
    world, message = strong("SAFE")
    world.find("e", "hold", message)[0].columns["count"] = 499
    assert_only(world, "resilience", 5)


def test_recovered_messages_count_only_who_came_along_but_all_of_them() -> None:
    world = World(*"abc")
    message = world.submit("b", service="SAFE")
    world.hold("ab", message)
    world.placed("abc", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.deliver("b", message)
    world.hold("c", message)
    world.deliver("c", message)
    world.view(2, "bc")
    assert_only(world, "resilience")


# liveness


def test_the_last_message_is_missing_at_one_member() -> None:
    world, messages = busy("RELIABLE")
    world.drop(world.find("c", "deliver", messages[-1])[0])
    assert_only(world, "liveness")
    assert check_all(world.rows(), quiet=False).held


@pytest.mark.parametrize("service", ["RELIABLE", "FIFO", "CAUSAL"])
def test_a_message_of_a_weak_service_is_missing_at_one_member(service: str) -> None:
    world = World(*"abc")
    world.send("a", "abc", service=service)
    message = world.send("b", "abc", service=service)
    world.drop(*world.find("c", "deliver", message))
    assert_only(world, "liveness")


@pytest.mark.parametrize("service", ["RELIABLE", "FIFO", "AGREED", "SAFE"])
def test_a_call_from_outside_reached_only_a_part_of_the_group(service: str) -> None:
    """RMP section 4.5: calls are delivered with all the guarantees of a member's messages."""
    world = World(*"abc")
    world.event("x", "start")
    world.send("x", "abc", service=service)
    message = world.send("x", "abc", service=service)
    world.drop(*world.find("c", "deliver", message))
    verdict = assert_only(world, "liveness")
    assert (verdict.violations[0].node, verdict.violations[0].sender) == ("c", "x/0")


def test_a_message_is_never_delivered() -> None:
    world, _ = busy()
    world.hold("a", world.submit("a"))
    verdict = assert_only(world, "liveness")
    assert "a/0, b/0, c/0" in verdict.violations[0].evidence


def test_a_node_stopped_at_the_end_without_a_message() -> None:
    world, messages = busy("RELIABLE")
    world.drop(world.find("c", "deliver", messages[-1])[0])
    for name in "abc":
        world.event(name, "stop", underlay="")
    assert_only(world, "liveness")


def test_a_majority_hangs_after_a_crash() -> None:
    world, _ = busy()
    world.event("c", "crash")
    world.hold("ab", world.submit("a"))
    assert_only(world, "liveness")


def test_a_gap_stays_open() -> None:
    world, _ = busy()
    world.event("b", "gap", sender="a/0", first=8, count=2)
    world.event("b", "repaired", sender="a/0", first=8, count=1)
    verdict = assert_only(world, "liveness")
    assert verdict.violations[0].first == 9


def test_a_message_to_a_lightweight_group_never_arrives() -> None:
    world = World(*"ab")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    message = world.submit("a", service="RELIABLE", group="g")
    world.deliver("a", message)
    assert_only(world, "liveness")


def test_a_joiner_misses_what_was_submitted_after_it_came() -> None:
    world, _ = busy()
    world.event("d", "start")
    world.view(3, "abcd", came={"d": "d"})
    world.send("a", "abc", service="RELIABLE")
    assert_only(world, "liveness")


# promises


def test_a_confirmed_message_is_lost_with_its_sender() -> None:
    world = World(*"abc")
    message = world.submit("a", service="RESILIENT(1)")
    world.hold("ab", message)
    world.deliver("a", message)
    world.confirm("a", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    world.send("b", "bc")
    assert_only(world, "promises", 2)


def test_two_members_hold_one_lock() -> None:
    world = World(*"abc")
    world.event("a", "lock", detail="x")
    world.event("b", "lock", detail="x")
    world.event("a", "unlock", detail="x")
    assert_only(world, "promises")


def test_two_members_hold_one_lock_at_the_end_whatever_the_clocks_say() -> None:
    world = World(*"abc")
    world.event("a", "lock", detail="x")
    world.event("b", "lock", detail="x")
    assert_only(world, "promises", clock="many")


def test_a_call_has_two_answers() -> None:
    world = World(*"abc")
    world.send("a", "abc")
    world.event("b", "reply", sender="a/0", first=0)
    world.event("c", "reply", sender="a/0", first=0)
    verdict = assert_only(world, "promises")
    assert (verdict.violations[0].node, verdict.violations[0].other) == ("c", "b/0")


def test_a_call_is_answered_again_in_a_later_view() -> None:
    world = World(*"abc")
    world.event("x", "start")
    message = world.send("x", "abc")
    world.event("b", "reply", sender="x/0", first=0)
    world.view(2, "abc")
    world.deliver("c", message, kind="redeliver")
    world.event("c", "reply", sender="x/0", first=0)
    assert_only(world, "promises")


def test_a_member_left_behind_answered_a_call_that_the_majority_answers_again() -> None:
    world = World(*"abc")
    world.event("x", "start")
    call = world.submit("x")
    world.hold("abc", call)
    world.deliver("c", call)
    world.event("c", "reply", sender="x/0", first=0)
    for name in "ab":
        world.event(name, "transitional")
    world.view(2, "ab")
    world.deliver("ab", call, position=7)
    world.event("a", "reply", sender="x/0", first=0)
    world.leave("c")
    assert_only(world, "promises")


def test_an_answer_to_a_call_that_was_not_delivered() -> None:
    world = World(*"abc")
    world.event("x", "start")
    message = world.submit("x")
    world.event("b", "reply", sender="x/0", first=0)
    world.hold("abc", message)
    world.deliver("abc", message)
    assert_only(world, "promises")


def test_a_call_is_answered_again_after_it_was_delivered_again() -> None:
    """The answer to a call that is handed over again has no row: there is at most one for each call."""
    world = World(*"ab")
    world.event("x", "start")
    message = world.send("x", "ab")
    world.event("a", "reply", sender="x/0", first=0)
    world.deliver("b", message, kind="redeliver")
    world.event("b", "reply", sender="x/0", first=0)
    assert_only(world, "promises")


def test_a_call_is_confirmed_that_nobody_delivered() -> None:
    world = World(*"ab")
    world.event("x", "start")
    message = world.submit("x", service="RELIABLE")
    world.confirm("x", message)
    assert_only(world, "promises")


def test_a_call_is_confirmed_before_anybody_has_delivered_it() -> None:
    """RMP section 3.3: "acknowledged after being delivered to the group with the requested QoS"."""
    world = World(*"ab")
    world.event("x", "start")
    message = world.submit("x", service="AGREED")
    world.confirm("x", message)
    world.deliver("ab", message)
    assert_only(world, "promises")
