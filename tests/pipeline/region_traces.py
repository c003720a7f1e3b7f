"""Traces of regions for the tests of both judges: executions that are legal, and one fault in each of the others.

At first a, b, c and d are in region 1, e and f in region 2; s is in no region and sends to all. Group g covers both
regions, h is region 1's, k region 2's. With epoch 2 node c moves to region 2, and from h to k. Then d crashes, with
messages under way of which one is lost; epoch 3 is without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.unit.trace_builder import Event, World, member

LEADER: Final = "gms@z/0"
RESTING: Final = "regions"


@dataclass(frozen=True)
class Lane:
    """Messages in one region."""

    region: int
    view: str
    first: int
    block: int | None


@dataclass(frozen=True)
class Post:
    """Messages of one send, with what they are in each region."""

    sender: str
    count: int
    service: str
    groups: tuple[str, ...]
    serial: int
    lanes: dict[int, Lane] = field(default_factory=dict)


class Tiling:
    """Nodes in regions, under construction."""

    def __init__(self, *names: str) -> None:
        self.world = World(*names, view=False)
        self.groups: dict[str, list[str]] = {}
        self.views: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.serials: dict[str, int] = {}
        self.numbers: dict[tuple[str, int], int] = {}
        self.blocks: dict[tuple[str, int, str], int] = {}
        for name in names:
            self.event(name, "join")

    def event(self, name: str, kind: str, region: int = 0, **columns: Any) -> Event:
        return self.world.event(name, kind, underlay=f"region/{region}" if region else RESTING, **columns)

    # Membership

    def join(self, name: str, *groups: str) -> None:
        for group in groups:
            self.groups.setdefault(group, []).append(name)
            self.event(name, "join", group=group)

    def leave(self, name: str, *groups: str) -> None:
        for group in groups:
            self.groups[group].remove(name)
            self.event(name, "leave", group=group)

    def depart(self, name: str) -> None:
        """Excluded, or of its own will."""
        for names in self.groups.values():
            if name in names:
                names.remove(name)
        self.event(name, "leave", detail="excluded")

    def crash(self, name: str) -> None:
        for names in self.groups.values():
            if name in names:
                names.remove(name)
        self.world.event(name, "crash", underlay="")

    def view(self, epoch: int, region: int, names: Iterable[str], at: Iterable[str] | None = None) -> str:
        members = tuple(map(member, names))
        view = f"{epoch}@{LEADER}"
        self.views[region] = view, members
        for name in at if at is not None else names:
            self.event(name, "view", region, view=view, members=members)
        return view

    def show(self, epoch: int, group: str, names: Iterable[str], at: Iterable[str]) -> None:
        """A view of a group."""
        members = tuple(map(member, names))
        for name in at:
            self.event(name, "view", group=group, view=f"{epoch}@{LEADER}", members=members, came_with=(member(name),))

    # Messages

    def regions(self, groups: Iterable[str]) -> list[int]:
        """Where members of these groups are."""
        names = {member(name) for group in groups for name in self.groups.get(group, ())}
        return [region for region, (_, members) in sorted(self.views.items()) if names & set(members)]

    def submit(
        self,
        sender: str,
        *groups: str,
        count: int = 1,
        service: str = "FIFO",
        regions: Iterable[int] | None = None,
        fragments: int = 0,
    ) -> Post:
        """Submitted and carried, in a block of its own in each region."""
        post = Post(member(sender), count, service, groups, self.serials.get(sender, 0))
        self.serials[sender] = post.serial + count
        for region in regions if regions is not None else self.regions(groups):
            view = self.views[region][0]
            first = self.numbers.get((sender, region), 0)
            self.numbers[sender, region] = first + count
            common: dict[str, Any] = {"view": view, "sender": post.sender, "service": service}
            self.event(sender, "submit", region, **common, first=first, count=count, position=post.serial, bytes=count)
            block: int | None = None
            begin = None
            if service != "UNRELIABLE":
                begin = self.blocks.get((sender, region, view), 0) + 1
                block = begin + fragments
                self.blocks[sender, region, view] = block
                for part in range(begin, block):
                    self.event(
                        *(sender, "carry", region),
                        **common, first=first, count=0, position=part, prev_position=begin, groups=groups,
                    )  # fmt: skip
            self.event(
                *(sender, "carry", region),
                **common, first=first, count=count, position=block, prev_position=begin, groups=groups,
            )  # fmt: skip
            post.lanes[region] = Lane(region, view, first, block)
        return post

    def takers(self, post: Post, region: int) -> list[str]:
        """Who is to deliver it in a region."""
        inside = self.views[region][1]
        names = {name for group in post.groups for name in self.groups.get(group, ())}
        return sorted(name for name in names if member(name) in inside)

    def deliver(self, names: Iterable[str], post: Post, region: int, part: tuple[int, int] | None = None) -> None:
        lane = post.lanes[region]
        low, count = part if part is not None else (0, post.count)
        for name in names:
            self.event(
                *(name, "deliver", region),
                view=lane.view, sender=post.sender, first=lane.first + low, count=count, service=post.service,
                bytes=count,
            )  # fmt: skip

    def post(self, sender: str, *groups: str, **columns: Any) -> Post:
        """A whole multicast."""
        post = self.submit(sender, *groups, **columns)
        for region in post.lanes:
            self.deliver(self.takers(post, region), post, region)
        return post

    def lost(self, names: Iterable[str], post: Post, region: int, count: int = 1) -> None:
        lane = post.lanes[region]
        for name in names:
            self.event(name, "lost", region, view=lane.view, sender=post.sender, first=lane.block, count=count)

    def confirm(self, post: Post) -> None:
        for region, lane in post.lanes.items():
            self.event(
                *(post.sender, "confirm", region),
                view=lane.view, sender=post.sender, first=lane.first, count=post.count, service=post.service,
            )  # fmt: skip

    # Faults

    def of(self, name: str, kind: str, post: Post | None = None, region: int = 1) -> Event:
        """The first such event of a node, of one message if given."""
        return next(
            one
            for one in self.world.events
            if (one.member, one.kind) == (member(name), kind)
            and (
                post is None
                or (one.columns["underlay"], one.columns.get("sender"), one.columns.get("first"))
                == (f"region/{region}", post.sender, post.lanes[region].first)
            )
        )

    def drop(self, name: str, post: Post, region: int = 1, kind: str = "deliver") -> None:
        self.world.drop(self.of(name, kind, post, region))


@dataclass
class Story:
    """The execution of the module's docstring, with messages by name."""

    tiling: Tiling
    posts: dict[str, Post]

    @property
    def world(self) -> World:
        return self.tiling.world


def story() -> Story:
    one = Tiling(*"abcdefs")
    sent: dict[str, Post] = {}
    for name in "abcdef":
        one.join(name, "g", "h" if name in "abcd" else "k")
    one.view(1, 1, "abcd")
    one.view(1, 2, "ef")
    one.show(1, "g", "abcdef", "ab")
    sent["first"] = one.post("a", "g", count=3)
    sent["outside"] = one.post("s", "g", count=2)
    sent["to h"] = one.post("b", "h")
    sent["b to g"] = one.post("b", "g")
    sent["from 2"] = one.post("e", "g")
    sent["to both"] = one.post("a", "g", "h", count=2)
    sent["s to h"] = one.post("s", "h")
    sent["large"] = one.post("s", "g", fragments=2)
    sent["reliable"] = one.post("f", "g", service="RELIABLE")
    sent["unreliable"] = one.submit("b", "g", service="UNRELIABLE")
    one.deliver("acd", sent["unreliable"], 1)
    sent["confirmed"] = one.post("c", "g")
    one.confirm(sent["confirmed"])
    # c moves to region 2. b has the epoch late: what it sends still goes to the views of epoch 1, which all finish.
    sent["before"] = one.post("c", "g")
    sent["late"] = one.submit("b", "g", count=2)
    sent["late h"] = one.submit("b", "h")
    one.leave("c", "h")
    one.join("c", "k")
    one.view(2, 2, "cef")
    one.view(2, 1, "abd")
    one.deliver("abcd", sent["late"], 1)
    one.deliver("ef", sent["late"], 2)
    one.deliver("abd", sent["late h"], 1)
    sent["after"] = one.post("b", "g", count=2)
    sent["s after"] = one.post("s", "g")
    sent["to k"] = one.post("c", "k")
    sent["k from a"] = one.post("a", "k")
    sent["from c"] = one.post("c", "g")
    one.show(2, "g", "abcdef", "ce")
    # d dies. Of its last three messages the first got to all, the second to a and to nobody else, the third to nobody.
    sent["d to all"] = one.post("d", "g")
    sent["d lost"] = one.submit("d", "g", count=2)
    one.deliver("d", sent["d lost"], 1)
    sent["d gone"] = one.submit("d", "g")
    one.deliver("d", sent["d gone"], 1)
    one.deliver("a", sent["d lost"], 1)
    one.crash("d")
    one.view(3, 1, "ab")
    one.lost("b", sent["d lost"], 1)
    one.lost("cef", sent["d lost"], 2, count=2)
    sent["last"] = one.post("a", "g", "h", count=2)
    sent["s last"] = one.post("s", "g", count=2)
    sent["k last"] = one.post("f", "k")
    return Story(one, sent)


# Executions without a fault ------------------------------------------------------------------------------------------


def legal_story() -> World:
    return story().world


def legal_exclusion() -> World:
    """f is excluded although it lives, and comes back as new: it has nothing of what was sent in between, and what it
    sent last got to nobody."""
    one = Tiling(*"efs")
    for name in "ef":
        one.join(name, "g")
    one.view(1, 2, "ef")
    one.post("s", "g")
    one.post("f", "g")
    alone = one.submit("f", "g")
    one.deliver("f", alone, 2)
    one.view(2, 2, "e")
    one.groups["g"].remove("f")
    one.post("s", "g", count=2)
    one.depart("f")
    one.event("f", "join")
    one.join("f", "g")
    one.view(3, 2, "ef")
    one.post("s", "g")
    one.post("f", "g")
    return one.world


def legal_waste() -> World:
    """A planned region: b does not want h, and k came late for a; messages of all groups share its lanes."""
    one = Tiling(*"abs")
    one.join("a", "g", "h")
    one.join("b", "g", "k")
    one.view(1, 1, "ab")
    for _ in range(3):
        one.post("s", "h", count=2)
        one.post("s", "g")
        one.post("b", "k")
    one.join("a", "k")
    one.post("s", "k")
    one.post("b", "k", "h")
    one.leave("b", "g")
    one.post("s", "g")
    return one.world


def legal_join_of_another_group() -> World:
    """a, in g, joins h. s has the epoch late: its message to both comes to a by g, and the next one to h does not."""
    one = Tiling(*"abs")
    one.join("a", "g")
    one.join("b", "h")
    one.view(1, 1, "a")
    one.view(1, 2, "b")
    one.post("s", "g")
    both = one.submit("s", "g", "h")
    missed = one.submit("s", "h", regions=[2])
    one.join("a", "h")
    one.view(2, 3, "a")
    one.deliver("a", both, 1)
    one.deliver("b", both, 2)
    one.deliver("b", missed, 2)
    del one.views[1]
    one.post("s", "h", count=2)
    one.post("s", "g", "h")
    return one.world


def legal_loss_of_cachers() -> World:
    """The sender lives, and all who kept a block that it has purged are gone."""
    one = Tiling(*"abcs")
    for name in "abc":
        one.join(name, "g")
    one.view(1, 1, "abc")
    sent = one.submit("s", "g")
    one.deliver("b", sent, 1)
    one.confirm(sent)
    one.crash("b")
    one.view(2, 1, "ac")
    one.lost("ac", sent, 1)
    one.post("s", "g")
    return one.world


def legal_lost_fragment() -> World:
    """A message whose first fragment is lost; the block of its last one is not."""
    one = Tiling(*"abd")
    for name in "abd":
        one.join(name, "g")
    one.view(1, 1, "abd")
    large = one.submit("d", "g", fragments=2)
    one.deliver("d", large, 1)
    small = one.submit("d", "g")
    one.deliver("d", small, 1)
    one.crash("d")
    for name in "ab":
        lane = large.lanes[1]
        one.event(name, "lost", 1, view=lane.view, sender=large.sender, first=1, count=1)
    one.deliver("ab", small, 1)
    one.view(2, 1, "ab")
    return one.world


def legal_stop_at_the_end() -> World:
    one = story()
    for name in "abcefs":
        one.world.event(name, "stop", underlay="")
    return one.world


REGION_LEGAL: tuple[Callable[[], World], ...] = (
    legal_story,
    legal_exclusion,
    legal_waste,
    legal_join_of_another_group,
    legal_loss_of_cachers,
    legal_lost_fragment,
    legal_stop_at_the_end,
)


def planned() -> Tiling:
    """A region of a, b and d; a wants g and h, b wants g, d wants h. s sends to both, and d dies."""
    one = Tiling(*"abds")
    one.join("a", "g", "h")
    one.join("b", "g")
    one.join("d", "h")
    one.view(1, 1, "abd")
    one.post("s", "g", count=6)
    one.post("s", "h", count=4)
    one.post("a", "h", count=2)  # its own are not received
    one.submit("s", "g", service="UNRELIABLE", count=9)
    one.crash("d")  # it delivered 4 to h, behind 6 that it did not want; and 2 of a
    one.post("s", "g", count=10)
    lost = one.submit("a", "g", count=3)
    one.deliver("a", lost, 1)
    one.lost("b", lost, 1)
    for kind, count, size in (
        *(("data", 10, 9_000), ("token", 4, 160), ("push", 3, 600), ("pull", 2, 100), ("pulled", 2, 120)),
        ("courier-ack", 5, 20),
    ):
        one.event("s", "tx", detail=kind, count=count, bytes=size)
        one.event("a", "rx", detail=kind, count=count, bytes=size)
    return one


# Faults of integrity -------------------------------------------------------------------------------------------------


def twice_in_a_region() -> World:
    one = story()
    one.world.repeat(one.tiling.of("b", "deliver", one.posts["outside"]))
    return one.world


def not_submitted() -> World:
    one = story()
    lane = one.posts["first"].lanes[1]
    one.tiling.event("b", "deliver", 1, view=lane.view, sender="a/0", first=90, count=1, service="FIFO")
    return one.world


def not_carried() -> World:
    """A sender that is gone, so that it owes nothing: but what was delivered was in some block."""
    one = story()
    one.world.drop(one.tiling.of("d", "carry", one.posts["d lost"]), one.tiling.of("d", "carry", one.posts["d gone"]))
    one.world.drop(one.tiling.of("b", "lost"))
    one.world.drop(*[event for event in one.world.find("d", "deliver") if event.columns["sender"] == "d/0"][-2:])
    return one.world


def before_it_was_carried() -> World:
    one = story()
    one.tiling.of("b", "deliver", one.posts["outside"]).at_ns = 5
    return one.world


def weaker_than_asked_for() -> World:
    one = story()
    one.tiling.of("c", "deliver", one.posts["to both"]).columns["service"] = "RELIABLE"
    return one.world


def to_a_group_that_it_left() -> World:
    one = story()
    one.tiling.deliver("c", one.posts["late h"], 1)
    return one.world


# Faults of region_views ----------------------------------------------------------------------------------------------


def another_list() -> World:
    one = story()
    event = [event for event in one.world.find("e", "view") if event.columns.get("group") is None][1]
    event.columns["members"] = ("e/0", "f/0")
    return one.world


def another_order() -> World:
    one = story()
    one.world.find("f", "view")[0].columns["members"] = ("f/0", "e/0")
    return one.world


def in_two_regions() -> World:
    """Epoch 4 has b in both regions."""
    one = story()
    one.tiling.view(4, 1, "ab")
    one.tiling.view(4, 2, "bcef", at="cef")
    return one.world


def epochs_out_of_order() -> World:
    one = story()
    views = [event for event in one.world.find("b", "view") if event.columns.get("group") is None]
    one.world.swap(views[1], views[2])
    late = [event for event in one.world.find("b", "deliver") if event.at_ns > views[2].at_ns]
    for event in late:
        if event.columns["view"] == views[1].columns["view"] and event.at_ns < views[1].at_ns:
            event.columns["view"] = views[1].columns["view"]
    return one.world


def view_without_itself() -> World:
    """s is in no region."""
    one = story()
    one.tiling.view(3, 1, "ab", at="s")
    return one.world


def in_a_view_that_it_never_installed() -> World:
    one = story()
    one.tiling.of("f", "deliver", one.posts["to k"], 2).columns["view"] = "9@gms@z/0"
    return one.world


def after_its_exclusion() -> World:
    """It is out, comes back, and delivers in a view of before."""
    one = Tiling(*"efs")
    for name in "ef":
        one.join(name, "g")
    one.view(1, 2, "ef")
    sent = one.submit("s", "g")
    one.deliver("e", sent, 2)
    one.depart("f")
    one.join("f", "g")
    one.deliver("f", sent, 2)
    one.view(3, 2, "ef")
    one.post("s", "g")
    return one.world


def another_view_of_a_group() -> World:
    one = story()
    event = next(event for event in one.world.find("b", "view") if event.columns.get("group") == "g")
    event.columns["members"] = ("a/0", "b/0")
    return one.world


def told_of_a_loss_in_a_strange_view() -> World:
    one = story()
    one.tiling.of("b", "lost").columns["view"] = "9@gms@z/0"
    last = one.posts["d lost"]
    one.tiling.lost("b", last, 1)
    return one.world


# Faults of fifo ------------------------------------------------------------------------------------------------------


def swapped() -> World:
    one = story()
    early, late = (one.tiling.of("b", "deliver", one.posts[name]) for name in ("outside", "large"))
    one.world.move_before(early, late)
    return one.world


def hole_of_a_member() -> World:
    one = story()
    one.tiling.drop("d", one.posts["first"])
    return one.world


def hole_of_a_sender_outside() -> World:
    one = story()
    one.tiling.drop("f", one.posts["outside"], 2)
    return one.world


def hole_at_the_beginning_of_a_view() -> World:
    """The first that b sends after the epoch: c has what it sends next."""
    one = story()
    one.tiling.post("b", "g")
    one.tiling.drop("c", one.posts["after"], 2)
    return one.world


def hole_over_two_views() -> World:
    """b did not finish the view before it went on with the next one of the same region."""
    one = story()
    one.tiling.drop("a", one.posts["late"])
    return one.world


def half_a_block() -> World:
    one = story()
    one.tiling.of("b", "deliver", one.posts["first"]).columns["first"] = 1
    one.tiling.of("b", "submit")  # the fault is at b, and not of what it sent
    for event in one.world.find("b", "deliver"):
        if (event.columns["sender"], event.columns["first"], event.columns["count"]) == ("a/0", 1, 3):
            event.columns["count"] = 2
    return one.world


# Faults of group_fifo ------------------------------------------------------------------------------------------------


def lost_in_a_move() -> World:
    """c leaves region 1 without what b sent there last."""
    one = story()
    one.tiling.drop("c", one.posts["late"])
    return one.world


def twice_after_a_move() -> World:
    """What b had sent to region 1 waited in its lane to region 2, and went into a view in which c is."""
    one = Tiling(*"bcef")
    one.join("b", "g")
    one.join("c", "g")
    one.join("e", "g")
    one.view(1, 1, "bc")
    one.view(1, 2, "e")
    one.post("b", "g")
    sent = one.submit("b", "g", regions=(1,))
    one.deliver("bc", sent, 1)
    one.view(2, 1, "b")
    one.view(2, 2, "ce")
    one.serials["b"] = sent.serial
    again = one.submit("b", "g", regions=(2,))
    one.deliver("ce", again, 2)
    one.post("b", "g")
    return one.world


def new_region_before_the_old_one() -> World:
    """c delivers what came to its new region before it finished the old one."""
    one = story()
    one.world.move_before(
        one.tiling.of("c", "deliver", one.posts["after"], 2), one.tiling.of("c", "deliver", one.posts["late"])
    )
    one.tiling.of("b", "submit", one.posts["after"], 2).at_ns = one.tiling.of("c", "view", None).at_ns
    for event in one.world.find("b", "carry"):
        if event.columns["underlay"] == "region/2" and event.columns["first"] == one.posts["after"].lanes[2].first:
            event.at_ns = one.tiling.of("c", "view", None).at_ns
    return one.world


def group_forgot_a_region() -> World:
    """s sends to g, and only to region 1: nobody in region 2 can get it."""
    one = Tiling(*"aes")
    one.join("a", "g")
    one.join("e", "g")
    one.view(1, 1, "a")
    one.view(1, 2, "e")
    one.post("s", "g")
    one.post("s", "g", regions=(1,))
    one.post("s", "g")
    return one.world


def lane_sends_out_of_order() -> World:
    """What was handed over second has the first number."""
    one = Tiling(*"as")
    one.join("a", "g")
    one.view(1, 1, "a")
    one.serials["s"] = 1
    one.post("s", "g")
    one.serials["s"] = 0
    one.post("s", "g")
    return one.world


# Faults of regional --------------------------------------------------------------------------------------------------


def missing_of_a_living_member() -> World:
    one = story()
    one.tiling.drop("b", one.posts["last"])
    return one.world


def own_message_missing() -> World:
    one = story()
    one.tiling.drop("a", one.posts["last"])
    return one.world


def survivors_differ() -> World:
    """The sender is dead; a has it, b lacks it and nobody told it."""
    one = story()
    one.world.drop(one.tiling.of("b", "lost"))
    return one.world


def survivors_differ_in_what_comes_from_outside() -> World:
    one = story()
    one.tiling.drop("b", one.posts["s last"])
    return one.world


def reliable_missing() -> World:
    one = story()
    extra = one.tiling.post("f", "g", service="RELIABLE")
    one.tiling.drop("e", extra, 2)
    return one.world


def lost_and_delivered() -> World:
    one = story()
    one.tiling.lost("a", one.posts["d lost"], 1)
    return one.world


def lost_while_all_live() -> World:
    one = Tiling(*"abs")
    for name in "ab":
        one.join(name, "g")
    one.view(1, 1, "ab")
    sent = one.submit("s", "g")
    one.deliver("a", sent, 1)
    one.lost("b", sent, 1)
    return one.world


def confirmed_and_lost() -> World:
    """The sender is gone, but it had been told that the cachers have it, and no member went."""
    one = Tiling(*"abs")
    for name in "ab":
        one.join(name, "g")
    one.view(1, 1, "ab")
    sent = one.submit("s", "g")
    one.deliver("a", sent, 1)
    one.confirm(sent)
    one.world.event("s", "crash", underlay="")
    one.lost("b", sent, 1)
    return one.world


def lost_beyond_the_lane() -> World:
    one = story()
    one.tiling.of("b", "lost").columns["count"] = 7
    return one.world


def in_another_view_than_carried() -> World:
    one = story()
    one.tiling.of("a", "deliver", one.posts["late"]).columns["view"] = "2@gms@z/0"
    return one.world


# Faults of liveness --------------------------------------------------------------------------------------------------


def nobody_has_it_from_outside() -> World:
    one = story()
    for name in "ab":
        one.tiling.drop(name, one.posts["s last"])
    return one.world


def never_carried() -> World:
    """The lane took it, and never sent it."""
    one = story()
    for name in "cef":
        one.tiling.drop(name, one.posts["k last"], 2)
    one.world.drop(*one.world.find("f", "carry")[-1:])
    return one.world


Fault = tuple[Callable[[], World], str, str]

REGION_FAULTS: tuple[Fault, ...] = (
    (twice_in_a_region, "integrity", "b/0"),
    (not_submitted, "integrity", "b/0"),
    (not_carried, "integrity", "a/0"),
    (before_it_was_carried, "integrity", "b/0"),
    (weaker_than_asked_for, "integrity", "c/0"),
    (to_a_group_that_it_left, "integrity", "c/0"),
    (another_list, "region_views", "e/0"),
    (another_order, "region_views", "f/0"),
    (in_two_regions, "region_views", "b/0"),
    (epochs_out_of_order, "region_views", "b/0"),
    (view_without_itself, "region_views", "s/0"),
    (in_a_view_that_it_never_installed, "region_views", "f/0"),
    (after_its_exclusion, "region_views", "f/0"),
    (another_view_of_a_group, "region_views", "b/0"),
    (told_of_a_loss_in_a_strange_view, "region_views", "b/0"),
    (swapped, "fifo", "b/0"),
    (hole_of_a_member, "fifo", "d/0"),
    (hole_of_a_sender_outside, "fifo", "f/0"),
    (hole_at_the_beginning_of_a_view, "fifo", "c/0"),
    (hole_over_two_views, "fifo", "a/0"),
    (half_a_block, "fifo", "b/0"),
    (lost_in_a_move, "group_fifo", "c/0"),
    (twice_after_a_move, "group_fifo", "c/0"),
    (new_region_before_the_old_one, "group_fifo", "c/0"),
    (group_forgot_a_region, "group_fifo", "e/0"),
    (lane_sends_out_of_order, "group_fifo", "a/0"),
    (missing_of_a_living_member, "regional", "b/0"),
    (own_message_missing, "regional", "a/0"),
    (survivors_differ, "regional", "b/0"),
    (survivors_differ_in_what_comes_from_outside, "regional", "b/0"),
    (reliable_missing, "regional", "e/0"),
    (lost_and_delivered, "regional", "a/0"),
    (lost_while_all_live, "regional", "b/0"),
    (confirmed_and_lost, "regional", "b/0"),
    (lost_beyond_the_lane, "regional", "b/0"),
    (in_another_view_than_carried, "regional", "a/0"),
    (nobody_has_it_from_outside, "liveness", "a/0"),
    (never_carried, "liveness", "f/0"),
)
