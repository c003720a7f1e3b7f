"""The judge of safety: one chain of views, and in each view one order. It knows events only, and no engine.

Fed with every event of every program as it comes, so that a run fails at the step that broke a promise.

- `fork`: two members went from one view to two different ones. Under a rule that lets only one part go on there is
  never more than one view after another.
- `split`: a fork of which both sides go on: on each of them all members of a view have installed it, or a recovery was
  finished.
- `minority`: a recovery made a view of too few members of the view before.
- `order`: a position of a view has two messages, or a member delivers a sender's messages not in their order, or twice.
- `synchrony`: members that went from one view to the next together did not deliver the same in it.
- `uniform`: a MAJORITY or SAFE message was delivered in a view, and members that went on from it did not deliver it.
- `views`: one view has two lists of members.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ordercast.config import MinMembers
from ordercast.engine import Transitional
from ordercast.groups.events import Batch, Left, PortEvent
from ordercast.service import MAJORITY_RANK
from ordercast.view import Reason, View

SAFETY_FINDINGS: Final = ("fork", "split", "minority", "order", "synchrony", "uniform", "views")

Content = tuple[tuple[str, int, int], ...]
"""Sender, number and position of each message of a view, in the order of delivery."""


class Finding(NamedTuple):
    """Something that must not happen. `kind` is one of the names above, or one of `rest`'s."""

    kind: str
    text: str


def is_quorum(rule: MinMembers, members: tuple[str, ...], present: set[str]) -> bool:
    """Whether `present` may decide for a view: its own reading of the rule, shared with no engine."""
    size = len(members)
    count = sum(1 for member in members if member in present)
    if rule == "all":
        return count == size
    if rule == "majority":
        return count + count > size or (count + count == size and size > 0 and members[0] in present)
    return count >= min(rule, size)


def is_strict(rule: MinMembers, size: int) -> bool:
    """Whether the rule never lets two parts of a view of so many members decide."""
    return rule in ("majority", "all") or 2 * min(int(rule), size) > size


class ViewFacts(NamedTuple):
    """A view as the first member that installed it saw it."""

    id: str
    members: tuple[str, ...]
    reason: Reason
    at: int


class MemberFacts:
    """What one life of one node saw."""

    __slots__ = ("content", "last_of", "view")

    def __init__(self) -> None:
        self.view: str | None = None
        self.content: list[tuple[str, int, int]] = []  # of the present view
        self.last_of: dict[str, int] = {}  # sender -> number of its last message


class ChainJudge:
    """Judges the views and deliveries of one group."""

    __slots__ = (
        "_contents",
        "_forked",
        "_installers",
        "_known_forks",
        "_members",
        "_orders",
        "_rule",
        "_uniform",
        "after",
        "delivered",
        "findings",
        "views",
    )

    def __init__(self, rule: MinMembers) -> None:
        self._rule = rule
        self._members: dict[str, MemberFacts] = {}
        self.views: dict[str, ViewFacts] = {}
        self.after: dict[str, tuple[str, str]] = {}  # view -> the next one, and a member that went there
        self._installers: dict[str, set[str]] = {}  # view -> members that have it or had it
        self._known_forks: set[tuple[str, str, str]] = set()  # a view and two that followed it
        self._forked: list[tuple[str, str, str]] = []  # those of them whose sides do not both go on yet
        self._contents: dict[tuple[str, str], tuple[Content, str]] = {}  # of two views in a row -> the first's
        self._orders: dict[tuple[str, int], tuple[str, int]] = {}  # view and position -> sender and number
        self._uniform: dict[str, dict[tuple[str, int, int], str]] = {}  # view -> message -> a member that has it
        self.delivered: dict[str, dict[str, int]] = {}  # member -> sender -> how many
        self.findings: list[Finding] = []

    def last_views(self, live: set[str]) -> list[list[ViewFacts]]:
        """For each ring that a live member is in: the last view that one of them has, and those that follow it, which
        only the dead know. Where no live member is in a ring, the last view that one of them had."""
        present = {self._members[member].view for member in live if member in self._members}
        known = [view for view in self.views.values() if view.id in present]
        if not known:
            known = [view for view in self.views.values() if not live.isdisjoint(self._installers[view.id])][-1:]
        chains = [self._chain(view) for view in known]
        starts = {view.id for view in known}
        return [chain for chain in chains if starts.isdisjoint(view.id for view in chain[1:])]

    def _chain(self, view: ViewFacts) -> list[ViewFacts]:
        found = [view]
        while found[-1].id in self.after:
            found.append(self.views[self.after[found[-1].id][0]])
        return found

    def is_in(self, member: str) -> bool:
        """Whether it has a view."""
        facts = self._members.get(member)
        return facts is not None and facts.view is not None

    def on_event(self, tick: int, member: str, event: PortEvent) -> None:
        facts = self._members.get(member)
        if facts is None:
            facts = self._members[member] = MemberFacts()
        if isinstance(event, View):
            self._on_view(tick, member, facts, event)
        elif isinstance(event, Batch):
            self._on_batch(member, facts, event)
        elif isinstance(event, Left):
            facts.view = None
            facts.content = []
        elif isinstance(event, Transitional):
            pass

    def _on_view(self, tick: int, member: str, facts: MemberFacts, view: View) -> None:
        members = tuple(map(str, view.members))
        known = self.views.get(view.id)
        if known is None:
            self.views[view.id] = ViewFacts(view.id, members, view.reason, tick)
        elif known.members != members:
            self._find("views", f"{view.id} is {' '.join(known.members)}, and {' '.join(members)} at {member}")
        self._installers.setdefault(view.id, set()).add(member)
        before = facts.view
        if before is not None:
            self._on_step(member, facts, before, view, members)
        facts.view = view.id
        facts.content = []
        for fork in self._forked:
            old, left, right = (self.views[each] for each in fork)
            if self._goes_on(left) and self._goes_on(right):
                self._forked.remove(fork)
                self._find("split", f"after {_text(old)} both {_text(left)} and {_text(right)} go on")
                break

    def _goes_on(self, view: ViewFacts) -> bool:
        """Whether the members that followed a fork to this view work on: here, or in a view that followed."""
        installers = self._installers[view.id]
        if installers.issuperset(view.members):
            return True
        if view.reason == Reason.RESET and is_quorum(self._rule, view.members, installers):
            return True
        following = self.after.get(view.id)
        return following is not None and self._goes_on(self.views[following[0]])

    def _on_step(self, member: str, facts: MemberFacts, before: str, view: View, members: tuple[str, ...]) -> None:
        """A member goes from one view to the next."""
        old = self.views[before]
        strict = is_strict(self._rule, len(old.members))
        went = self.after.setdefault(before, (view.id, member))
        if went[0] != view.id and strict:
            other = self.views[went[0]]
            text = f"after {_text(old)} {went[1]} has {_text(other)}, and {member} has {_text(self.views[view.id])}"
            if (before, other.id, view.id) not in self._known_forks:
                self._known_forks.add((before, other.id, view.id))
                self._forked.append((before, other.id, view.id))
                self._find("fork", text)
        if view.reason == Reason.RESET and strict and not is_quorum(self._rule, old.members, set(members)):
            self._find(
                "minority", f"{_text(self.views[view.id])} follows {_text(old)}, of which it is too small a part"
            )
        content = tuple(facts.content)
        first, who = self._contents.setdefault((before, view.id), (content, member))
        if first != content:
            self._find(
                "synchrony", f"in {before}, before {view.id}, {who} delivered {_list(first)}, {member} {_list(content)}"
            )
        elif who == member and strict:
            for message, holder in self._uniform.get(before, {}).items():
                if message not in content:
                    self._find(
                        "uniform", f"{holder} delivered {_list([message])} in {before}, {member} went on without it"
                    )

    def _on_batch(self, member: str, facts: MemberFacts, batch: Batch) -> None:
        sender = batch.sender
        counts = self.delivered.setdefault(member, {})
        counts[sender] = counts.get(sender, 0) + batch.count
        last = facts.last_of.get(sender, -1)
        if batch.first <= last:
            self._find("order", f"{member} delivers {sender} #{batch.first} after #{last}")
        facts.last_of[sender] = batch.first + batch.count - 1
        if facts.view != batch.view:
            self._find("order", f"{member} is in {facts.view} and delivers {sender} #{batch.first} in {batch.view}")
        for index in range(batch.count):
            number = batch.first + index
            position = batch.position + index if batch.position >= 0 else -1
            if position >= 0:
                known = self._orders.setdefault((batch.view, position), (sender, number))
                if known != (sender, number):
                    text = f"{known[0]} #{known[1]} and, at {member}, {sender} #{number}"
                    self._find("order", f"position {position} of {batch.view} has {text}")
                facts.content.append((sender, number, position))
                if batch.service.rank >= MAJORITY_RANK:
                    self._on_uniform(member, batch.view, (sender, number, position))

    def _on_uniform(self, member: str, view: str, message: tuple[str, int, int]) -> None:
        self._uniform.setdefault(view, {}).setdefault(message, member)
        if view in self.after and is_strict(self._rule, len(self.views[view].members)):
            content, who = self._contents[view, self.after[view][0]]
            if message not in content:
                self._find("uniform", f"{member} delivered {_list([message])} in {view}, {who} went on without it")

    def _find(self, kind: str, text: str) -> None:
        self.findings.append(Finding(kind, text))


def _text(view: ViewFacts) -> str:
    return f"{view.id} ({' '.join(view.members)}; {view.reason.name.lower()})"


def _list(messages: Iterable[tuple[str, int, int]]) -> str:
    shown = [f"{sender} #{number}" for sender, number, _ in messages]
    return ", ".join(shown) if shown else "nothing"
