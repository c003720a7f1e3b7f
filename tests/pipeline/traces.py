"""Traces for the tests of `verify`: executions that are legal, and one fault in each of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.pipeline.group_traces import GROUP_FAULTS, GROUP_LEGAL
from tests.unit.trace_builder import Message, World

from ordercast.trace.convert import write_rows
from ordercast.trace.run import RunInfo
from ordercast.trace.schema import Row


class Case(NamedTuple):
    """A fault, the property that it breaks, and the member at which it shows; None, None: it is legal."""

    name: str
    rows: list[Row]
    breaks: str | None
    at: str | None
    options: dict[str, Any]


def write(
    folder: Path,
    rows: Iterable[Row],
    *,
    clock: str = "virtual",
    quiet: bool = True,
    rules: Any = "majority",
    bootstrap: int = 1,
    partitions: str | None = None,
) -> Path:
    """As a trace folder; the run is named for the folder."""
    parameters: dict[str, Any] = {"quiet": quiet, "name": folder.name, "bootstrap": bootstrap}
    if partitions is not None:
        parameters["partitions"] = partitions
    if isinstance(rules, dict):
        parameters |= {"nodes": list(rules), "rules": list(rules.values())}
    else:
        parameters["min_members"] = rules
    info = RunInfo.simulated(seed=1, orderer="token", services=("AGREED",), parameters=parameters)
    dataclasses.replace(info, clock=clock, run_id=folder.name).write(folder)
    write_rows(folder, rows)
    return folder


def busy(service: str = "AGREED", rounds: int = 3, names: str = "abc") -> tuple[World, list[Message]]:
    """Each member sends in turn, then all go on to a second view and send once more."""
    world = World(*names)
    messages = [world.send(sender, names, 2, service) for _ in range(rounds) for sender in names]
    world.view(2, names)
    messages += [world.send(sender, names, 2, service) for sender in names]
    return world, messages


def duplicate() -> World:
    world, messages = busy()
    world.repeat(world.find("b", "deliver", messages[3])[0])
    return world


def spurious() -> World:
    world, messages = busy()
    world.deliver("b", dataclasses.replace(messages[0], sender="ghost/0", position=1000))
    return world


def before_its_submit() -> World:
    world, messages = busy()
    world.find("b", "deliver", messages[0])[0].at_ns = 4
    return world


def weaker() -> World:
    world, messages = busy("RESILIENT(1)")
    world.find("b", "deliver", messages[2])[0].columns["service"] = "AGREED"
    return world


def fifo_swap() -> World:
    world = World(*"abc")
    one, two = (world.submit("a", 1, "FIFO") for _ in range(2))
    for message in (one, two):
        world.hold("abc", message)
    world.deliver("abc", one)
    world.deliver("abc", two)
    world.swap(world.find("b", "deliver", one)[0], world.find("b", "deliver", two)[0])
    return world


def fifo_hole() -> World:
    world, messages = busy("FIFO")
    world.drop(world.find("b", "deliver", messages[3])[0])
    return world


def causal(service: str = "CAUSAL") -> World:
    world = World(*"abc")
    question = world.submit("a", 1, service)
    world.hold("abc", question)
    world.deliver("ab", question)
    answer = world.submit("b", 1, service)
    world.hold("abc", answer)
    world.deliver("abc", answer)
    world.deliver("c", question)
    return world


def causal_agreed() -> World:
    return causal("AGREED")


def order_swap() -> World:
    world = World(*"abc")
    one, two = world.submit("a"), world.submit("b")
    for message in (one, two):
        world.hold("abc", message)
        world.placed("abc", message)
    for message in (one, two):
        world.deliver("abc", message)
    world.swap(world.find("c", "deliver", one)[0], world.find("c", "deliver", two)[0])
    return world


def cross_group_swap() -> World:
    world = World(*"abc")
    for group, counter in (("g", 10), ("h", 20)):
        world.view(counter, "abc", came={name: [name] for name in "abc"}, group=group)
    one, two = world.submit("a", group="g"), world.submit("b", group="h")
    for message in (one, two):
        world.hold("abc", message)
        world.placed("abc", message)
    for message in (one, two):
        world.deliver("abc", message)
    world.swap(world.find("c", "deliver", one)[0], world.find("c", "deliver", two)[0])
    return world


def two_positions() -> World:
    world, messages = busy()
    for event in world.find("c", "deliver", messages[-1]):
        event.columns["position"] += 100
    return world


def one_position_for_two() -> World:
    world = World(*"ab")
    one, two = world.submit("a"), world.submit("b")
    world.hold("ab", one)
    world.hold("ab", two)
    world.deliver("a", one)
    world.deliver("a", two)
    world.deliver("b", two, position=0)
    world.deliver("b", one, position=1)
    return world


def lying_recorder() -> list[Row]:
    rows = busy()[0].rows()
    at = max(index for index, row in enumerate(rows) if row.kind == "deliver" and row.node == "b")
    rows[at] = rows[at]._replace(prev_position=3)
    return rows


def dropped_in_view() -> World:
    """The last message of one that crashes: nothing follows that would show a hole."""
    world = World(*"abc")
    world.send("a", "abc")
    world.send("b", "abc")
    last = world.send("c", "abc")
    world.event("c", "crash")
    world.view(2, "ab", at="ab")
    world.send("a", "ab")
    world.drop(world.find("b", "deliver", last)[0])
    return world


def wrong_view() -> World:
    world, messages = busy()
    world.find("b", "deliver", messages[-1])[0].columns["view"] = "1@a/0"
    return world


def members_differ() -> World:
    world, _ = busy()
    world.find("b", "view")[1].columns["members"] = ("b/0", "a/0", "c/0")
    return world


def came_with() -> World:
    world, _ = busy()
    world.find("b", "view")[1].columns["came_with"] = ("a/0", "b/0")
    return world


def views_in_two_orders() -> World:
    world = World(*"ab")
    for name, order in (("a", (2, 3)), ("b", (3, 2))):
        for counter in order:
            world.view(counter, "ab", at=[name], came={each: [each] for each in "ab"})
    return world


def two_parts_go_on() -> World:
    world = World(*"abcd")
    for name in "abcd":
        world.event(name, "transitional", view="1@a/0")
    world.view(2, "ab", at="ab")
    world.view(2, "cd", at="cd")
    return world


def safe_early() -> World:
    world = World(*"abc")
    message = world.submit("a", 1, "SAFE")
    world.hold("ab", message)
    world.placed("abc", message)
    world.deliver("a", message)
    world.hold("c", message)
    world.deliver("bc", message)
    return world


def resilient_early() -> World:
    world = World(*"abc")
    message = world.submit("a", 1, "RESILIENT(2)")
    world.hold("ab", message)
    world.placed("abc", message)
    world.deliver("b", message)
    world.hold("c", message)
    world.deliver("ac", message)
    return world


def dropped_at_end() -> World:
    world, messages = busy()
    world.drop(world.find("b", "deliver", messages[-1])[0])
    return world


def open_gap() -> World:
    world, _ = busy()
    world.event("b", "gap", sender="a/0", first=900, count=2)
    return world


def lost_after_confirm() -> World:
    world = World(*"abcd")
    message = world.submit("a", 1, "RESILIENT(1)")
    world.hold("abcd", message)
    world.placed("abcd", message)
    world.deliver("a", message)
    world.confirm("a", message)
    world.event("a", "crash")
    for name in "bcd":
        world.event(name, "transitional", view="1@a/0")
    world.view(2, "bcd", at="bcd")
    return world


def two_locks() -> World:
    world = World(*"abc")
    world.event("a", "lock", view="1@a/0", detail="printer")
    world.event("b", "lock", view="1@a/0", detail="printer")
    return world


def two_answers() -> World:
    world = World(*"abc")
    call = world.send("a", "abc")
    for name in "bc":
        world.event(name, "reply", sender=call.sender, first=call.first, view="1@a/0")
    return world


def legal_crash() -> World:
    """It delivered something that the others never hear of."""
    world = World(*"abc")
    world.send("a", "abc")
    last = world.submit("c")
    world.hold("c", last)
    world.placed("c", last)
    world.deliver("c", last)
    world.event("c", "crash")
    for name in "ab":
        world.event(name, "transitional", view="1@a/0")
    world.view(2, "ab", at="ab")
    world.send("b", "ab")
    return world


def legal_partition() -> World:
    """Both sides go on, which nobody forbade, and merge."""
    world = World(*"abcd")
    world.send("a", "abcd")
    for name in "abcd":
        world.event(name, "transitional", view="1@a/0")
    world.view(2, "ab", at="ab")
    world.view(2, "cd", at="cd")
    world.send("a", "ab")
    world.send("c", "cd")
    world.view(3, "abcd", came={"a": "ab", "b": "ab", "c": "cd", "d": "cd"})
    world.send("d", "abcd")
    return world


def legal_cuts() -> World:
    """The same messages in differently cut rows."""
    world = World(*"ab")
    message = world.submit("a", 6)
    world.hold("ab", message)
    world.placed("ab", message)
    world.deliver("a", message)
    world.deliver("b", message, part=(0, 2))
    world.deliver("b", message, part=(2, 4))
    return world


FAULTS: tuple[tuple[Callable[[], World | list[Row]], str, str], ...] = (
    (duplicate, "integrity", "b/0"),
    (spurious, "integrity", "b/0"),
    (before_its_submit, "integrity", "b/0"),
    (weaker, "integrity", "b/0"),
    (fifo_swap, "fifo", "b/0"),
    (fifo_hole, "fifo", "b/0"),
    (causal, "causal", "c/0"),
    (causal_agreed, "causal", "c/0"),
    (order_swap, "total_order", "c/0"),
    (cross_group_swap, "total_order", "c/0"),
    (two_positions, "total_order", "c/0"),
    (one_position_for_two, "total_order", "b/0"),
    (lying_recorder, "total_order", "b/0"),
    (dropped_in_view, "virtual_synchrony", "b/0"),
    (wrong_view, "virtual_synchrony", "b/0"),
    (members_differ, "virtual_synchrony", "b/0"),
    (came_with, "virtual_synchrony", "b/0"),
    (views_in_two_orders, "virtual_synchrony", "b/0"),
    (two_parts_go_on, "virtual_synchrony", "a/0"),
    (safe_early, "resilience", "a/0"),
    (resilient_early, "resilience", "b/0"),
    (dropped_at_end, "liveness", "b/0"),
    (open_gap, "liveness", "b/0"),
    (lost_after_confirm, "promises", "b/0"),
    (two_locks, "promises", "b/0"),
    (two_answers, "promises", "c/0"),
    *GROUP_FAULTS,
)
LEGAL: tuple[tuple[Callable[[], World], Any], ...] = (
    (legal_crash, "majority"),
    (legal_partition, 1),
    (legal_cuts, "majority"),
    (lambda: busy()[0], "majority"),
    *((make, "majority") for make in GROUP_LEGAL),
)
# A list of rows that contradicts itself is nothing that a checker of executions can see.
UNSEEN_BY_REFERENCE = {"lying_recorder"}


def cases() -> list[Case]:
    """All of them."""
    found = []
    for make, breaks, at in FAULTS:
        made = make()
        found.append(Case(make.__name__, made.rows() if isinstance(made, World) else made, breaks, at, {}))
    for index, (make, rules) in enumerate(LEGAL):
        name = make.__name__ if make.__name__ != "<lambda>" else f"legal_{index}"
        found.append(Case(name, make().rows(), None, None, {"rules": rules}))
    return found
