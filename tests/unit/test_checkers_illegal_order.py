"""Broken messages and orders: each must be flagged by exactly the property that it breaks, and by no other.

Broken views and promises are in `test_checkers_illegal.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.broken_traces import assert_only, busy
from tests.unit.trace_builder import Message, World

from ordercast.sim.checkers import check_all

# well_formed


def test_a_number_of_events_is_missing() -> None:
    world, _ = busy()
    rows = world.rows()
    rows.remove(next(row for row in rows if row.node == "b" and row.kind == "hold"))
    found = check_all(rows)
    assert [name for name, result in found.properties.items() if result.total] == ["well_formed"]


def test_a_dishonest_prev_position() -> None:
    world, _ = busy()
    rows = world.rows()
    at = max(index for index, row in enumerate(rows) if row.kind == "deliver" and row.node == "b")
    rows[at] = rows[at]._replace(prev_position=3)
    found = check_all(rows)
    assert [name for name, result in found.properties.items() if result.total] == ["well_formed"]


def test_an_unknown_kind() -> None:
    world, _ = busy()
    world.event("a", "deliverd")
    assert_only(world, "well_formed")


def test_a_view_id_without_a_creator() -> None:
    world = World("a", view=False)
    world.event("a", "view", view="7", members=("a/0",), came_with=("a/0",))
    assert_only(world, "well_formed")


def test_a_submit_skips_numbers() -> None:
    world = World(*"ab")
    world.next_number["a/0", "u"] = 5
    world.send("a", "ab")
    assert_only(world, "well_formed")


def test_a_view_without_its_writer() -> None:
    world = World(*"ab")
    world.event("a", "view", view="2@b/0", members=("b/0",), came_with=("b/0",))
    assert not check_all(world.rows()).properties["well_formed"].held


def test_rows_after_a_crash() -> None:
    world = World(*"ab")
    world.event("b", "crash")
    world.event("b", "tx")
    assert_only(world, "well_formed")


def test_an_ordered_delivery_without_a_position() -> None:
    world = World(*"ab")
    message = world.submit("a")
    world.hold("ab", message)
    world.deliver("ab", replace(message, position=None))
    assert not check_all(world.rows()).properties["well_formed"].held


def test_a_row_names_a_view_that_its_node_never_installed() -> None:
    world = World(*"ab")
    world.event("a", "hold", sender="b/0", first=0, count=1, view="9@b/0")
    assert_only(world, "well_formed")


# integrity


def test_delivered_twice() -> None:
    world, messages = busy()
    world.repeat(world.find("b", "deliver", messages[4])[0])
    assert_only(world, "integrity")


def test_delivered_twice_although_unreliable_and_cut_differently() -> None:
    world = World(*"ab")
    message = world.send("a", "ab", 10, "UNRELIABLE")
    world.deliver("b", message, part=(4, 2))
    verdict = assert_only(world, "integrity")
    assert (verdict.violations[0].first, verdict.violations[0].count) == (4, 2)


def test_delivered_again_after_coming_back_in_the_same_life() -> None:
    world = World(*"abc")
    message = world.send("b", "abc", service="RELIABLE")
    world.leave("a")
    world.view(2, "bc")
    world.event("a", "join")
    world.view(3, "bca", came={"a": "a"})
    world.deliver("a", message)
    assert_only(world, "integrity")


def test_delivered_but_never_submitted() -> None:
    world, messages = busy()
    ghost = Message("a/0", 8, 1, "AGREED", 100)
    world.hold("abc", ghost)
    world.deliver("abc", ghost)
    assert len(messages) == 12
    assert_only(world, "integrity", 3)


def test_delivered_of_a_sender_that_does_not_exist() -> None:
    world, _ = busy()
    world.deliver("b", Message("z/0", 0, 1, "AGREED", 100))
    assert_only(world, "integrity")


def test_delivered_again_but_never_submitted() -> None:
    world = World(*"abc")
    message = world.send("a", "abc")
    world.deliver("b", replace(message, first=7), kind="redeliver")
    assert_only(world, "integrity")


def test_a_call_is_delivered_twice() -> None:
    world = World(*"ab")
    world.event("x", "start")
    message = world.send("x", "ab", service="RELIABLE")
    world.deliver("b", message)
    assert_only(world, "integrity")


def test_delivered_in_the_wrong_underlay() -> None:
    world = World(*"ab")
    world.view(1, "ba", underlay="v", came={"a": "a", "b": "b"})
    message = world.send("a", "ab")
    world.deliver("b", replace(message, underlay="v"))
    assert_only(world, "integrity")


def test_delivered_before_it_was_submitted() -> None:
    world, messages = busy("RELIABLE")
    world.move_before(world.find("b", "deliver", messages[3])[0], world.find("a", "submit", messages[3])[0])
    assert_only(world, "integrity")


def test_delivered_under_a_weaker_service() -> None:
    world, messages = busy()
    event = world.find("b", "deliver", messages[-1])[0]
    event.columns["service"] = "FIFO"
    assert not check_all(world.rows()).properties["integrity"].held


# fifo


@pytest.mark.parametrize("service", ["FIFO", "CAUSAL", "AGREED", "SAFE"])
def test_two_messages_of_one_sender_change_places(service: str) -> None:
    world = World(*"abc")
    messages = [world.submit("a", 2, service) for _ in range(4)]
    for message in messages:
        world.hold("abc", message)
        world.placed("abc", message)
    for message in messages:
        world.deliver("abc", message)
    world.swap(world.find("b", "deliver", messages[1])[0], world.find("b", "deliver", messages[2])[0])
    assert_only(world, "fifo")


def test_a_message_in_the_middle_is_missing() -> None:
    world, messages = busy("FIFO")
    world.drop(world.find("b", "deliver", messages[4])[0])
    verdict = assert_only(world, "fifo")
    violation = verdict.violations[0]
    assert (violation.node, violation.life, violation.sender, violation.first, violation.count) == ("b", 0, "b/0", 2, 2)


def test_an_agreed_message_in_the_middle_is_missing_and_reported_once() -> None:
    world, messages = busy()
    world.drop(world.find("b", "deliver", messages[3])[0])
    assert_only(world, "fifo")


def test_the_first_message_after_joining_is_missing() -> None:
    world, _ = busy()
    world.event("d", "start")
    world.view(3, "abcd", came={"d": "d"})
    first = world.send("a", "abcd", service="FIFO")
    world.send("a", "abcd", service="FIFO")
    world.drop(world.find("d", "deliver", first)[0])
    assert_only(world, "fifo")


def test_a_message_to_a_lightweight_group_is_missing() -> None:
    world = World(*"ab")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    lost = [world.send("a", "ab", service="FIFO", group="g") for _ in range(3)][1]
    world.drop(world.find("b", "deliver", lost)[0])
    assert_only(world, "fifo")


def test_a_sender_outside_the_group_is_delivered_out_of_order() -> None:
    world = World(*"ab")
    world.event("x", "start")
    one, two = world.submit("x", service="FIFO"), world.submit("x", service="FIFO")
    world.deliver("a", one)
    world.deliver("a", two)
    world.deliver("b", two)
    world.deliver("b", one)
    assert_only(world, "fifo")


# causal


def causal_chain(service: str) -> tuple[World, Message, Message]:
    world = World(*"abc")
    cause = world.submit("a", service=service)
    world.hold("abc", cause)
    world.deliver("ab", cause)
    effect = world.submit("b", service=service)
    world.hold("abc", effect)
    world.deliver("ab", effect)
    return world, cause, effect


def test_an_answer_before_its_question() -> None:
    world, cause, effect = causal_chain("CAUSAL")
    world.deliver("c", effect)
    world.deliver("c", cause)
    verdict = assert_only(world, "causal")
    assert (verdict.violations[0].node, verdict.violations[0].other) == ("c", "b/0")


def test_an_agreed_answer_before_its_question_is_causal_not_order() -> None:
    world, cause, effect = causal_chain("AGREED")
    world.deliver("c", effect)
    world.deliver("c", cause)
    assert_only(world, "causal")


def test_all_members_agree_on_an_order_against_causality() -> None:
    world = World(*"abc")
    cause = world.submit("a", service="AGREED")
    world.hold("abc", cause)
    world.deliver("b", cause, position=10)
    effect = world.submit("b")
    world.deliver("ac", effect, position=5)
    world.deliver("ac", cause, position=10)
    verdict = check_all(world.rows())
    assert verdict.properties["causal"].total == 2


def test_causality_over_a_message_that_the_victim_does_not_get() -> None:
    """a's cause reaches d through b and c, by groups that d is not in."""
    world = World(*"abcd")
    world.view(10, "abcd", group="g", came={name: name for name in "abcd"})
    world.view(11, "bc", group="h", came={name: name for name in "bc"})
    cause = world.submit("a", service="CAUSAL", group="g")
    world.deliver("abc", cause)
    link = world.submit("b", service="CAUSAL", group="h")
    world.deliver("bc", link)
    effect = world.submit("c", service="CAUSAL", group="g")
    world.deliver("abcd", effect)
    world.deliver("d", cause)
    assert_only(world, "causal")


# total_order


def two_orders(service: str = "AGREED") -> tuple[World, Message, Message]:
    world = World(*"abc")
    one, two = world.submit("a", 2, service), world.submit("b", 2, service)
    for message in (one, two):
        world.hold("abc", message)
        world.placed("abc", message)
    world.deliver("ab", one)
    world.deliver("ab", two)
    return world, one, two


def test_two_members_deliver_in_different_orders() -> None:
    world, one, two = two_orders()
    world.deliver("c", two)
    world.deliver("c", one)
    assert_only(world, "total_order")


def test_two_members_use_one_position_for_different_messages() -> None:
    world, one, two = two_orders()
    world.deliver("c", two, position=one.position)
    world.deliver("c", one, position=two.position)
    verdict = check_all(world.rows())
    assert {name for name, result in verdict.properties.items() if result.total} == {"total_order"}


def test_a_message_has_two_positions_in_one_view() -> None:
    world, one, two = two_orders()
    world.deliver("c", two, position=50)
    world.deliver("c", one, position=60)
    verdict = check_all(world.rows())
    assert {name for name, result in verdict.properties.items() if result.total} == {"total_order"}


def test_orders_differ_across_lightweight_groups() -> None:
    world = World(*"ab")
    world.view(10, "ab", group="g", came={"a": "a", "b": "b"})
    world.view(11, "ab", group="h", came={"a": "a", "b": "b"})
    one, two = world.submit("a", group="g"), world.submit("b", group="h")
    world.deliver("a", one)
    world.deliver("a", two)
    world.deliver("b", two)
    world.deliver("b", one)
    assert_only(world, "total_order")


@pytest.mark.parametrize("service", ["SAFE", "MAJORITY"])
def test_a_member_left_behind_placed_strong_messages_differently(service: str) -> None:
    """What AGREED allows (see test_checkers_legal) SAFE and MAJORITY forbid."""
    world = World(*"abc")
    one, two = world.submit("b", service=service), world.submit("c", service=service)
    for message in (one, two):
        world.hold("abc", message)
        world.placed("abc", message)
        world.deliver("a", message)
    world.event("a", "crash")
    for name in "bc":
        world.event(name, "transitional")
    world.view(2, "bc")
    world.deliver("bc", two, position=10)
    world.deliver("bc", one, position=11)
    assert_only(world, "total_order", 2)


def test_positions_fall_across_views() -> None:
    world, messages = busy()
    world.next_position["u"] = 0
    world.view(3, "abc")
    world.send("a", "abc")
    assert len(messages) == 12
    assert_only(world, "total_order", 3)
