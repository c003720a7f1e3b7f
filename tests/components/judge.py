"""Independent judges of the components policy: what every daemon saw, compared.

They know what was installed and delivered, and the states of the daemons from outside. None of the rules that the
membership computes with is used here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ordercast.membership.components.installing import ComponentInstall
from ordercast.membership.components.taking_part import ComponentState
from ordercast.service import FIFO_RANK, SAFE_RANK
from ordercast.view import View

if TYPE_CHECKING:
    from tests.components.streams import StubStreams
    from tests.components.world import Node


class Violation(Exception):
    """A property does not hold."""


class Left(NamedTuple):
    """How a daemon left a view."""

    view: View
    install: ComponentInstall
    streams: StubStreams
    was_synced: bool


Entry = tuple[int, int, int, int]  # site, sequence number, rank, mask


class Judge:
    def __init__(self) -> None:
        self.views: dict[str, tuple[object, ...]] = {}  # view id -> what all must see alike
        self.history: dict[int, list[View]] = defaultdict(list)  # by daemon id
        self.endings: dict[tuple[str, object], list[tuple[Node, list[Entry], list[Entry], tuple[int, ...]]]] = {}
        self.accepted: dict[object, set[int]] = defaultdict(set)  # ballot -> daemons that were seen ACCEPTED in it
        self.bound: dict[int, object] = {}
        self.copies: dict[int, object] = {}  # of the rosters, by daemon
        self.grouped: dict[str, dict[tuple[int, ...], set[object]]] = defaultdict(lambda: defaultdict(set))
        self.was_synced: dict[tuple[str, int], bool] = {}
        self.safe: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)  # view -> SAFE before the signal -> mask
        self.delivered: dict[tuple[str, int], set[tuple[int, int]]] = {}  # (view, daemon)
        self.counts: dict[str, int] = defaultdict(int)

    def saw(self, node: Node) -> None:
        """After every step of a daemon."""
        part = node.membership
        if part.state is ComponentState.ACCEPTED:
            self.accepted[part.promised].add(node.member.id)
        held = self.bound.get(node.member.id)
        now = part.bound.id if part.bound is not None else None
        if held is not None and now is not None and held != now:
            raise Violation(f"{node} was bound to {held} and is bound to {now}")
        if held is None and part.bound is not None:
            self.counts["bound"] += 1
            self.bound[node.member.id] = now
            lacking = node.streams.lacking([*part.bound.remainder.before, *part.bound.remainder.after])
            if lacking:
                raise Violation(f"{node} is bound and lacks {lacking[0]}")

    def note_synced(self, node: Node) -> None:
        if node.view is not None and node.streams.is_synced:
            self.was_synced[node.view.id, node.member.id] = True
            self.copies[node.member.id] = node.view.id

    def left(self, node: Node, left: Left) -> None:
        old, install, streams = left.view, left.install, left.streams
        result = install.result
        me = node.member.id
        if result is None or install.came_from[0].view.id != old.id or me not in install.came_from[0].members:
            raise Violation(f"{node} leaves {old.id} for {install.view.id}, and came from elsewhere")
        held = self.bound.pop(me, None)
        promised = node.membership.promised
        if promised.coordinator == me:  # it may accept last, and install in the same step
            self.accepted[promised].add(me)
        if held != result.id and (held is not None or promised.coordinator != me):
            raise Violation(f"{node} is bound to {held} and installs with {result.id}")
        missing = {member.id for member in install.view.members} - self.accepted[promised]
        if missing:
            raise Violation(f"{node} installs {install.view.id}, which {missing} never accepted")
        # Agreement: those that leave a view with one result, and those that go on together, delivered the same.
        for name in (("result", result.id), ("next", install.view.id, install.came_from[0].members)):
            others = self.endings.setdefault((old.id, name), [])
            for other, before, after, _ in others:
                for mine, theirs, where in ((streams.before, before, "before"), (streams.after, after, "after")):
                    ours = [each for each in mine if each[2] > FIFO_RANK and each[3] >> other.site & 1]
                    yours = [each for each in theirs if each[2] > FIFO_RANK and each[3] >> node.site & 1]
                    if ours != yours:
                        raise Violation(f"{node} and {other} leave {old.id} by {name}, {where}: {ours} / {yours}")
            others.append((node, streams.before, streams.after, install.came_from[0].members))
            self.counts["together"] += len(others) > 1
        every = [*streams.before, *streams.after]
        if len(set(every)) < len(every):
            raise Violation(f"{node} delivers twice in {old.id}")
        own = {(site, seq) for site, seq, _, _ in every}
        for block in streams.stamped:
            if block not in own:
                raise Violation(f"{node} never delivers its own block {block} of {old.id}")
        self.delivered[old.id, me] = own
        for site, seq, rank, mask in streams.before:
            if rank == SAFE_RANK:
                self.safe[old.id][site, seq] = mask
        if left.was_synced:
            self.copies[me] = (old.id, result.id)

    def installed(self, node: Node, install: ComponentInstall) -> None:
        view, me = install.view, node.member.id
        if me not in [member.id for member in view.members]:
            raise Violation(f"{node} installs {view.id} and is not in it")
        classes = frozenset((origin.view.id, origin.members, origin.upto) for origin in install.came_from)
        alike = (view.members, view.ring, install.first_lts, classes, install.roster_groups)
        if self.views.setdefault(view.id, alike) != alike:
            raise Violation(f"view {view.id} is {self.views[view.id]} and, at {node}, {alike}")
        before = self.history[me]
        if any(view.id == each.id for each in before) or (before and view.counter <= before[-1].counter):
            raise Violation(f"{node} goes from {before[-1].id} to {view.id}")
        if before and view.position <= before[-1].position:
            raise Violation(f"{node}: positions fall from {before[-1].id} to {view.id}")
        before.append(view)
        self.counts["views"] += 1
        if len(install.came_from) > 1:
            self.counts["several classes"] += 1
        if any(len(origin.members) > 1 for origin in install.came_from):
            self.counts["classes of several"] += 1
        if install.result is not None and install.result.remainder.after:
            self.counts["after the signal"] += 1
        if install.result is not None and sorted(install.result.members) != sorted(install.came_from[0].members):
            self.counts["bound before"] += 1
        group = next((each for each in install.roster_groups if me in each), None)
        if group is None:
            raise Violation(f"{node} is in no roster group of {view.id}")
        copies = self.grouped[view.id][group]
        copies.add(self.copies.setdefault(me, ("start", me)))
        if len(copies) > 1:
            raise Violation(f"a roster group of {view.id} has several rosters: {copies}")
        if len(install.roster_groups) == 1:
            self.copies[me] = view.id
        self.counts["several rosters"] += len(install.roster_groups) > 1

    def end(self, nodes: list[Node]) -> None:
        """SAFE: what was delivered before the signal by anybody is delivered by everybody in that view that lives."""
        for view_id, blocks in self.safe.items():
            for node in nodes:
                if not node.is_alive or (view_id, node.member.id) not in self.delivered:
                    continue
                for block, mask in blocks.items():
                    if mask >> node.site & 1 and block not in self.delivered[view_id, node.member.id]:
                        raise Violation(f"SAFE {block} of {view_id} was delivered, and {node} never gets it")
                self.counts["safe"] += len(blocks)
