"""How long applications hold up a group (docs/design/slow.md).

Amoeba section 3, RMP section 4.6: a member that does not receive blocks the group. Both papers wait. Deviation: it is
evicted instead, unless the creator of the group has chosen to wait.

A member holds up the group while the flow is closed because of it. The time counts from when that began, or from the
last time that its application received anything: a slow receiver that goes on receiving is back-pressure, no fault.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.config import GroupConfig
from ordercast.engine import NEVER


class SlowReceivers:
    """Bound: one entry for each member that holds up the group now."""

    __slots__ = ("_patience_ns", "_since")

    def __init__(self, config: GroupConfig) -> None:
        self._patience_ns = config.patience_ns if config.slow == "evict" else NEVER
        self._since: dict[int, tuple[int, int]] = {}  # member -> how far it had received, and since when

    def look(self, now_ns: int, blocking: Mapping[int, int]) -> list[int]:
        """`blocking`: the members that hold up the group now, and how far each application has received. Those that
        have done so for longer than the group allows."""
        if not blocking:
            self._since = {}
            return []
        since = self._since
        self._since = {
            member: since[member] if member in since and since[member][0] == upto else (upto, now_ns)
            for member, upto in blocking.items()
        }
        return [member for member, (_, at_ns) in self._since.items() if now_ns - at_ns >= self._patience_ns]
