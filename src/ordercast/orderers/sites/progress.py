"""How far the exchange of rosters has come: all of a component count it alike (docs/design/sites.md, "Rosters").

The engine asks, because a cut says whether its daemon is in sync; the roster asks, because groups get their views when
the exchange is complete. Both read the fronts of the same blocks, so they cannot disagree: a part whose rest nobody
can read counts as well, and its groups are joined again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ordercast.wire.roster import PartFront, part_front


class ExchangeProgress:
    """The exchange of the present view. The first daemon of each roster group speaks for the group."""

    __slots__ = ("_next", "groups")

    def __init__(self) -> None:
        self.groups: dict[int, frozenset[int]] = {}  # speaker -> the daemons that it speaks for
        self._next: dict[int, int] = {}  # speaker -> the part that comes next; without those that have finished

    @property
    def is_complete(self) -> bool:
        """Whether this daemon is in sync."""
        return not self._next

    @property
    def awaited(self) -> list[int]:
        """The speakers that have not finished."""
        return list(self._next)

    def begin(self, rosters: Sequence[Sequence[int]]) -> None:
        """A view (`View.rosters`). Where it has one roster, all are in sync with it."""
        self.groups = {group[0]: frozenset(group) for group in rosters if group}
        self._next = dict.fromkeys(self.groups, 0) if len(self.groups) > 1 else {}

    def on_body(self, origin: int, body: bytes | memoryview) -> bool:
        """A roster block in its order. Whether it is a part that is awaited."""
        front = part_front(body)
        return front is not None and self.on_part(origin, front)

    def on_part(self, origin: int, front: PartFront) -> bool:
        if self._next.get(origin) != front.part:
            return False
        if front.is_last:
            del self._next[origin]
        else:
            self._next[origin] += 1
        return True
