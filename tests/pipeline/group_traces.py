"""Traces of a shared underlay for the tests of both judges: executions that are legal, and one fault in each of the
others.

Nodes a, b, c and d are in the underlay. At first a, b and d are in group g, and b, c and d in group h; d crashes later.
"""

from __future__ import annotations

from typing import Any, Final

from tests.unit.trace_builder import Event, Message, World

NODES: Final = "abcd"
MEMBERS: Final = {"g": "abd", "h": "bcd"}


def alone(names: str) -> dict[str, str]:
    """`came_with` of members that all come from outside."""
    return {name: name for name in names}


def floor(names: str = NODES) -> World:
    """The underlay, and the first views of its groups: 10 of g, 20 of h."""
    world = World(*names)
    for counter, (group, members) in zip((10, 20), MEMBERS.items(), strict=True):
        world.view(counter, members, came=alone(members), group=group)
    return world


def submit(world: World, sender: str, *groups: str, service: str = "AGREED", at: str = NODES) -> Message:
    """Submitted, held and placed by all nodes of the underlay."""
    several: dict[str, Any] = {"group": groups[0]} if len(groups) == 1 else {"groups": groups}
    message = world.submit(sender, 1, service, **several)
    world.hold(at, message)
    if message.position is not None:
        world.placed(at, message)
    return message


def post(world: World, sender: str, to: str, *groups: str, service: str = "AGREED", at: str = NODES) -> Message:
    """The same, and delivered."""
    message = submit(world, sender, *groups, service=service, at=at)
    world.deliver(to, message)
    return message


def crash(world: World) -> None:
    """d crashes: a view of the underlay, and one of each of its groups."""
    world.event("d", "crash")
    for name in "abc":
        world.event(name, "transitional", view="1@a/0")
    world.view(2, "abc", at="abc")
    world.view(12, "abc", group="g", at="abc")
    world.view(22, "bc", group="h", at="bc")


def town() -> tuple[World, list[Message]]:
    """Sends to one group, to two and from outside; c joins g; d crashes; all go on."""
    world = floor()
    messages = [
        post(world, "a", "abd", "g"),
        post(world, "b", "bcd", "h"),
        post(world, "c", "abd", "g"),  # from outside
        post(world, "a", "abcd", "g", "h"),
        post(world, "b", "bcd", "h", service="FIFO"),
    ]
    world.view(11, "abdc", group="g", came={"c": "c"})
    messages += [post(world, "b", "abcd", "g"), post(world, "d", "abcd", "h", "g")]
    crash(world)
    messages += [
        post(world, "a", "abc", "g", "h", at="abc"),
        post(world, "c", "bc", "h", at="abc"),
        post(world, "b", "abc", "g", service="SAFE", at="abc"),
        post(world, "a", "", "nobody is in it", at="abc"),
    ]
    return world, messages


def of(world: World, name: str, kind: str, message: Message | None = None, *, view: str = "") -> Event:
    """The first event of a member, kind, message and view."""
    return next(one for one in world.find(name, kind, message) if not view or one.columns["view"] == view)


# Faults --------------------------------------------------------------------------------------------------------------


def groups_swapped() -> World:
    """Two messages of two groups, of which one member is in both, and delivers them the other way round than d."""
    world = floor()
    one, two = submit(world, "a", "g"), submit(world, "c", "h")
    world.deliver("abd", one)
    world.deliver("bcd", two)
    world.swap(of(world, "b", "deliver", one), of(world, "b", "deliver", two))
    return world


def to_one_of_its_groups() -> World:
    """The last message of one that crashes goes to g and h; c, which is in h alone, goes on without it."""
    world = floor()
    last = post(world, "d", "abcd", "g", "h")
    world.event("d", "crash")
    world.view(2, "abc", at="abc")
    world.view(12, "ab", group="g", at="ab")
    world.view(22, "bc", group="h", at="bc")
    world.drop(of(world, "c", "deliver", last))
    return world


def once_for_each_group() -> World:
    world, messages = town()
    world.repeat(of(world, "b", "deliver", messages[3]))
    return world


def to_a_stranger() -> World:
    """c gets a message to g before it is in it."""
    world, messages = town()
    world.deliver("c", messages[0], view="1@a/0")
    world.move_before(world.events[-1], of(world, "c", "deliver", messages[1]))
    return world


def after_leaving() -> World:
    world = floor()
    world.leave("a", group="g")
    world.view(11, "bd", group="g", at="bd")
    post(world, "b", "abd", "g")
    return world


def named_differently() -> World:
    world, messages = town()
    of(world, "b", "deliver", messages[3]).columns["groups"] = ("g", "k")
    return world


def another_group() -> World:
    world, messages = town()
    of(world, "d", "deliver", messages[0]).columns["group"] = "h"
    return world


def member_left_out() -> World:
    """One member's view of g lacks the one that joined."""
    world, _ = town()
    of(world, "b", "view", view="11@a/0").columns["members"] = ("a/0", "b/0", "d/0")
    return world


def views_of_two_groups_swapped() -> World:
    world, _ = town()
    world.swap(of(world, "c", "view", view="12@a/0"), of(world, "c", "view", view="22@b/0"))
    return world


def views_of_a_group_swapped() -> World:
    world = floor()
    for name, order in (("a", (11, 12)), ("b", (12, 11))):
        for counter in order:
            world.view(counter, "ab", at=[name], came=alone("ab"), group="k")
    return world


def over_a_group_view() -> World:
    """b delivers in the next view of g what the others delivered before it."""
    world = floor()
    message = post(world, "a", "abd", "g")
    world.view(11, "abdc", group="g", came={"c": "c"})
    world.move_before(of(world, "b", "view", view="11@a/0"), of(world, "b", "deliver", message))
    return world


def before_it_joined() -> World:
    """c joins g and delivers a message that the others delivered before that."""
    world = floor()
    message = post(world, "a", "abd", "g")
    world.view(11, "abdc", group="g", came={"c": "c"})
    world.deliver("c", message)
    return world


def over_a_view_of_another_group() -> World:
    """A view of g stands behind a message to h at one member, and before it at the others."""
    world = floor()
    message = post(world, "c", "bcd", "h")
    world.view(11, "abdc", group="g", came={"c": "c"})
    world.move_before(of(world, "b", "view", view="11@a/0"), of(world, "b", "deliver", message))
    return world


def no_view_of_a_crash() -> World:
    world, _ = town()
    world.drop(of(world, "b", "view", view="12@a/0"))
    return world


def went_on_without_a_view() -> World:
    world, _ = town()
    world.view(3, "abc", at="abc")
    world.drop(of(world, "b", "view", view="12@a/0"))
    return world


def causal_over_groups() -> World:
    """A question to g, its answer to h: d, which is in both, delivers the answer first."""
    world = floor()
    question = submit(world, "a", "g", service="CAUSAL")
    world.deliver("ab", question)
    answer = submit(world, "b", "h", service="CAUSAL")
    world.deliver("bcd", answer)
    world.deliver("d", question)
    return world


def causal_over_groups_agreed() -> World:
    world = floor()
    question = submit(world, "a", "g")
    world.deliver("ab", question)
    answer = submit(world, "b", "h")
    world.deliver("bcd", answer)
    world.deliver("d", question)
    return world


def fifo_over_groups() -> World:
    world = floor()
    one, two = submit(world, "b", "g", service="FIFO"), submit(world, "b", "h", service="FIFO")
    world.deliver("abd", one)
    world.deliver("bcd", two)
    world.swap(of(world, "d", "deliver", one), of(world, "d", "deliver", two))
    return world


def hole_over_groups() -> World:
    """One that is not in g sends to it, and then to h: b has the second without the first."""
    world = floor()
    post(world, "c", "bcd", "h", service="FIFO")
    one = post(world, "c", "abd", "g", service="FIFO")
    post(world, "c", "bcd", "h", service="FIFO")
    world.drop(of(world, "b", "deliver", one))
    return world


def position_of_two_groups() -> World:
    world = floor()
    world.view(30, "c", came=alone("c"), group="k")
    one, two = submit(world, "a", "g"), submit(world, "c", "k")
    world.deliver("abd", one)
    world.deliver("c", two, position=one.position)
    return world


def group_came_with() -> World:
    world, _ = town()
    of(world, "a", "view", view="11@a/0").columns["came_with"] = ("a/0", "d/0")
    return world


def safe_without_a_host() -> World:
    world = floor()
    message = world.submit("a", 1, "SAFE", group="g")
    world.hold("abc", message)
    world.placed(NODES, message)
    world.deliver("a", message)
    world.hold("d", message)
    world.deliver("bd", message)
    return world


def resilient_at_nobody_else() -> World:
    world = floor()
    message = world.submit("a", 1, "RESILIENT(1)", group="g")
    world.hold("a", message)
    world.placed(NODES, message)
    world.deliver("a", message)
    world.hold("bcd", message)
    world.deliver("bd", message)
    return world


def sessions(held: str) -> World:
    """Clients of the daemons a and b: they know views of their groups, and none of the underlay."""
    world = World(*"abc")
    clients = ["x@a", "y@b"]
    for name in clients:
        world.event(name, "start", underlay="")
    world.view(10, clients, came={name: [name] for name in clients}, group="g")
    for service in ("AGREED", "SAFE"):
        message = world.submit("x@a", 1, service, group="g")
        world.hold(held, message)
        world.placed(held, message)
        world.deliver(clients, message, view="1@a/0")
    return world


def safe_without_a_daemon() -> World:
    return sessions("ac")


def join_in_a_recovery(signals: tuple[str, ...]) -> World:
    """c crashes. What its recovery brings is a join of w, and then a SAFE message of x that c did not get. These have
    the signal in the group's view on the way, which still names the client of c."""
    world = World(*"abc")
    clients = ["x@a", "y@b", "z@c"]
    for name in (*clients, "w@b"):
        world.event(name, "start", underlay="")
    world.view(10, clients, came={name: [name] for name in clients}, group="g")
    message = world.submit("x@a", 1, "SAFE", group="g")
    world.hold("ab", message)
    world.placed("ab", message)
    for name in ("c", "z@c"):
        world.event(name, "crash")
    for name in "ab":
        world.event(name, "transitional", view="1@a/0")
    for name in ("x@a", "y@b"):
        world.event(name, "transitional", group="g")
    live = ["x@a", "y@b", "w@b"]
    world.view(11, [*clients, "w@b"], came={"w@b": ["w@b"]}, at=live, group="g")
    for name in signals:
        world.event(name, "transitional", group="g")
    world.deliver(live, message, view="1@a/0")
    world.view(2, "ab", at="ab")
    world.view(12, live, group="g")
    return world


def safe_to_a_newcomer_without_the_signal() -> World:
    return join_in_a_recovery(("x@a", "y@b"))


def safe_in_a_view_on_the_way_without_the_signal() -> World:
    return join_in_a_recovery(("x@a", "w@b"))


def safe_with_the_signal_of_an_earlier_recovery() -> World:
    """c crashes, and a group of clients of a and b keeps its view. In it x then delivers what b does not hold."""
    world = World(*"abc")
    clients = ["x@a", "y@b"]
    for name in clients:
        world.event(name, "start", underlay="")
    world.view(10, clients, came={name: [name] for name in clients}, group="g")
    world.event("c", "crash")
    for name in "ab":
        world.event(name, "transitional", view="1@a/0")
    for name in clients:
        world.event(name, "transitional", group="g")
    world.view(2, "ab", at="ab")
    message = world.submit("x@a", 1, "SAFE", group="g")
    for daemon, client in zip("ab", clients, strict=True):
        world.hold(daemon, message)
        world.placed(daemon, message)
        world.deliver([client], message, view="2@a/0")
    return world


def from_outside_and_lost() -> World:
    world = floor()
    message = post(world, "c", "abd", "g", service="RELIABLE")
    world.drop(of(world, "b", "deliver", message))
    return world


def confirmed_to_several_and_lost() -> World:
    """a crashes after its message to g and h was confirmed; c, which is in h alone, never gets it, and nobody else."""
    world = floor()
    world.view(2, NODES)
    message = submit(world, "a", "g", "h", service="RESILIENT(1)")
    world.deliver("a", message)
    world.confirm("a", message)
    world.event("a", "crash")
    for name in "bcd":
        world.event(name, "transitional", view="2@a/0")
    world.view(3, "bcd", at="bcd")
    world.view(12, "bd", group="g", at="bd")
    return world


def lock_of_a_group() -> World:
    world = floor()
    for name in "ab":
        world.event(name, "lock", view="1@a/0", detail="printer", group="g")
    return world


GROUP_FAULTS: Final = (
    (groups_swapped, "total_order", "b/0"),
    (to_one_of_its_groups, "virtual_synchrony", "c/0"),
    (once_for_each_group, "integrity", "b/0"),
    (to_a_stranger, "integrity", "c/0"),
    (after_leaving, "integrity", "a/0"),
    (named_differently, "integrity", "b/0"),
    (another_group, "integrity", "d/0"),
    (member_left_out, "virtual_synchrony", "b/0"),
    (views_of_two_groups_swapped, "virtual_synchrony", "c/0"),
    (views_of_a_group_swapped, "virtual_synchrony", "b/0"),
    (over_a_group_view, "virtual_synchrony", "b/0"),
    (before_it_joined, "virtual_synchrony", "c/0"),
    (over_a_view_of_another_group, "virtual_synchrony", "b/0"),
    (no_view_of_a_crash, "liveness", "b/0"),
    (went_on_without_a_view, "virtual_synchrony", "b/0"),
    (causal_over_groups, "causal", "d/0"),
    (causal_over_groups_agreed, "causal", "d/0"),
    (fifo_over_groups, "fifo", "d/0"),
    (hole_over_groups, "fifo", "b/0"),
    (position_of_two_groups, "total_order", "c/0"),
    (group_came_with, "virtual_synchrony", "a/0"),
    (safe_without_a_host, "resilience", "a/0"),
    (resilient_at_nobody_else, "resilience", "a/0"),
    (safe_without_a_daemon, "resilience", "x@a/0"),
    (safe_to_a_newcomer_without_the_signal, "resilience", "w@b/0"),
    (safe_in_a_view_on_the_way_without_the_signal, "resilience", "y@b/0"),
    (safe_with_the_signal_of_an_earlier_recovery, "resilience", "x@a/0"),
    (from_outside_and_lost, "liveness", "b/0"),
    (confirmed_to_several_and_lost, "promises", "b/0"),
    (lock_of_a_group, "promises", "b/0"),
)


# What is legal -------------------------------------------------------------------------------------------------------


def legal_town() -> World:
    return town()[0]


def legal_holders() -> World:
    """SAFE waits for the nodes of the group's members alone; of RESILIENT any node of the underlay is a holder."""
    world = floor()
    safe = world.submit("a", 1, "SAFE", group="g")
    world.hold("abd", safe)
    world.placed("abd", safe)
    world.deliver("abd", safe)
    world.hold("c", safe)
    resilient = world.submit("a", 1, "RESILIENT(1)", group="g")
    world.hold("ac", resilient)
    world.placed(NODES, resilient)
    world.deliver("a", resilient)
    world.hold("bd", resilient)
    world.deliver("bd", resilient)
    return world


def legal_locks() -> World:
    """The same key in two groups; and one that is given up with its group."""
    world = floor()
    for name, group in (("a", "g"), ("c", "h")):
        world.event(name, "lock", view="1@a/0", detail="printer", group=group)
    world.leave("a", group="g")
    world.view(11, "bd", group="g", at="bd")
    world.event("b", "lock", view="1@a/0", detail="printer", group="g")
    return world


def legal_confirmation() -> World:
    """Nobody is in the group any more."""
    world = floor()
    message = submit(world, "a", "k")
    world.confirm("a", message)
    return world


def legal_sessions() -> World:
    return sessions("ab")


def legal_join_within_a_recovery() -> World:
    """c crashes. What its recovery brings is a SAFE message and a join, before the group's view without its client: for
    clients, too, those count that their daemons recovered with."""
    world = World(*"abc")
    clients = ["x@a", "y@b", "z@c"]
    for name in (*clients, "w@b"):
        world.event(name, "start", underlay="")
    world.view(10, clients, came={name: [name] for name in clients}, group="g")
    message = world.submit("x@a", 1, "SAFE", group="g")
    world.hold("ab", message)
    world.placed("ab", message)
    for name in ("c", "z@c"):
        world.event(name, "crash")
    for name in "ab":
        world.event(name, "transitional", view="1@a/0")
    for name in ("x@a", "y@b"):
        world.event(name, "transitional", group="g")
    world.deliver(["x@a", "y@b"], message, view="1@a/0")
    world.view(11, [*clients, "w@b"], came={"w@b": ["w@b"]}, at=["x@a", "y@b", "w@b"], group="g")
    world.view(2, "ab", at="ab")
    world.view(12, ["x@a", "y@b", "w@b"], group="g")
    return world


def legal_signals_on_the_way() -> World:
    return join_in_a_recovery(("x@a", "y@b", "w@b"))


GROUP_LEGAL: Final = (
    legal_town,
    legal_holders,
    legal_locks,
    legal_confirmation,
    legal_sessions,
    legal_join_within_a_recovery,
    legal_signals_on_the_way,
)
