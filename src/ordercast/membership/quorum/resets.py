"""The calls of `reset` on this node that are under way. Amoeba's ResetGroup, sections 3 and 4.2.

Several members may call it at once, and several tasks of one. The group is built once, as soon as it is large enough
for one of the callers. Each of them has its own minimum: its call fails where the group that results is too small for
it, whichever member coordinates.
"""

from __future__ import annotations

from ordercast.config import MinMembers
from ordercast.engine import Reset
from ordercast.membership.quorum.rule import is_enough
from ordercast.view import View
from ordercast.wire.views import ResetDemand


class PendingResets:
    """What they asked for. Calls with one minimum are one, with the header of the first."""

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers: dict[MinMembers, bytes] = {}  # bounded: there are so many numbers that a minimum can be

    def __bool__(self) -> bool:
        return bool(self._headers)

    @property
    def rules(self) -> tuple[MinMembers, ...]:
        return tuple(self._headers)

    def add(self, rule: MinMembers, header: bytes) -> None:
        self._headers.setdefault(rule, header)

    def demands(self) -> tuple[ResetDemand, ...]:
        """The weakest number and the weakest word: where neither is met, none of them is."""
        numbers = [rule for rule in self._headers if isinstance(rule, int)]
        words: list[MinMembers] = [rule for rule in ("majority", "all") if rule in self._headers]
        rules = ([min(numbers)] if numbers else []) + words[:1]
        return tuple(ResetDemand(rule, self._headers[rule]) for rule in rules)

    def fail(self, text: str) -> list[Reset]:
        """All of them end without a new view."""
        ended = [Reset(0, f"{text}, and this reset asked for {rule}", rule) for rule in self._headers]
        self._headers.clear()
        return ended

    def end(self, base: View, view: View) -> list[Reset]:
        """There is a new view after `base`: what each of them comes to. A restarted member is in it with a later life,
        and counts for its former one as in the recovery."""
        names, size = {member.name for member in view.members}, len(view.members)
        present = {member.id for member in base.members if member.name in names}
        ended = []
        for rule in self._headers:
            if is_enough(rule, base, present):
                ended.append(Reset(size, "", rule))
            else:
                text = f"the group was re-formed with {size} members, and this reset asked for {rule}"
                ended.append(Reset(0, text, rule))
        self._headers.clear()
        return ended
