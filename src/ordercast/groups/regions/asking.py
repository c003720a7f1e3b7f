"""What a node asks of the membership service, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import SECOND
from ordercast.engine import NEVER
from ordercast.errors import UsageError
from ordercast.groups.regions.engines import RegionalEngine
from ordercast.groups.regions.joined import JoinedGroups
from ordercast.groups.regions.sending import RegionSending
from ordercast.groups.regions.targets import NamedGroups
from ordercast.membership.given import NumberedGroups

LEAVE_PATIENCE_NS: Final = 3 * SECOND
"""How long a leave waits until what was sent to the group before it has left."""

MAX_FOLLOWED: Final = 1 << 20
"""Groups that a node sends to without being in them; a further one is an error."""


class RegionRequests:
    """Joins and follows leave with the next pass; leaves, when everything that was sent before has left."""

    __slots__ = ("_addressed", "_asked", "_engine", "_followed", "departs", "leaves", "unnumbered")

    def __init__(self, engine: RegionalEngine) -> None:
        self._engine = engine
        self._asked: list[tuple[bool, list[str]]] = []  # joins, or follows, in order
        self._followed: dict[str, None] = {}  # groups that this node sends to and is not in
        self._addressed: NamedGroups | None = None  # the last ones: messages to the same groups share blocks
        self.unnumbered: dict[str, None] = {}  # those of them that the service has not numbered
        self.leaves: dict[str, int] = {}  # groups that are to be left, and until when that waits
        self.departs = False  # everything is to be left

    @property
    def due_ns(self) -> int:
        for due_ns in self.leaves.values():
            return due_ns  # the first has waited longest
        return NEVER

    @property
    def is_answered(self) -> bool:
        return not self._asked and not self._engine.pending()

    def join(self, names: Sequence[str]) -> None:
        self._asked.append((True, list(names)))

    def follow(self, names: Sequence[str], joined: JoinedGroups) -> None:
        new = [name for name in names if not self._stays_in(name, joined) and name not in self._followed]
        if not new:
            return
        if len(self._followed) + len(new) > MAX_FOLLOWED:
            raise UsageError(f"this node sends to {MAX_FOLLOWED} groups without being in them: join them, or use fewer")
        self._followed.update(dict.fromkeys(new))
        self.unnumbered.update(dict.fromkeys(new))
        self._asked.append((False, new))

    def _stays_in(self, name: str, joined: JoinedGroups) -> bool:
        """Whether this node knows a group for being in it, and is not about to leave it."""
        return name in joined.numbers and name not in joined.leaving and name not in self.leaves

    def addressed(self, names: Sequence[str], table: NumberedGroups) -> NamedGroups:
        """What a message to these groups is for."""
        if self._addressed is None or self._addressed.names != tuple(names):
            self._addressed = NamedGroups(names, table)
        return self._addressed

    def ask(self, now_ns: int) -> None:
        """A pass begins."""
        asked, self._asked = self._asked, []
        for is_join, names in asked:
            if is_join:
                self._engine.join(now_ns, names)
            else:
                self._engine.follow(now_ns, names)

    def installed(self) -> None:
        """The service may have numbered groups."""
        number_of = self._engine.table.number
        for name in [name for name in self.unnumbered if number_of(name)]:
            del self.unnumbered[name]

    def depart(self) -> None:
        """This node is out of the service."""
        self.unnumbered = dict.fromkeys(self._followed)
        self._asked.clear()

    def begin_again(self, engine: RegionalEngine, names: Sequence[str]) -> None:
        """Ask another engine for everything."""
        self._engine = engine
        if names:
            self._asked.append((True, list(names)))
        if self._followed:
            self._asked.append((False, list(self._followed)))

    def take_leaves(self, now_ns: int, sending: RegionSending, joined: JoinedGroups, *, is_in: bool) -> list[str]:
        """The groups that the service is to be told of now. What still waits to be sent to one of them leaves later, as
        from outside: its number would be forgotten otherwise."""
        ready: list[str] = []
        for name, due_ns in self.leaves.items():
            if due_ns == NEVER:
                self.leaves[name] = due_ns = now_ns + LEAVE_PATIENCE_NS
            number = self._engine.table.number(name) if name else 0
            if due_ns <= now_ns or not is_in or not (sending.route_of(number).count if name else sending.count):
                ready.append(name)
                if name and len(self._followed) < MAX_FOLLOWED and sending.is_waited_for(name, number):
                    sending.list_targets()  # its number will not say its name any more
                    self.follow([name], joined)
        for name in ready:
            del self.leaves[name]
        return ready
