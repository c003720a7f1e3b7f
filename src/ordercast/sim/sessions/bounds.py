"""Looks at the memory of sessions while a run lasts (docs/design/daemon.md, "Bounds")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ordercast.daemon.native import WRITE_BYTES
from ordercast.groups.consumption import HELD_BYTES, SESSION_BYTES
from ordercast.sim.sessions.house import SimDaemon
from ordercast.sim.sessions.plan import SessionPlan

SLACK_BYTES: Final = 200_000
"""What one pass brings before a session can be looked at, and one event."""


class MemoryWatch:
    """What was beyond its bound, in words."""

    __slots__ = ("_house", "_plan", "faults")

    def __init__(self, plan: SessionPlan, house: Mapping[str, SimDaemon]) -> None:
        self._plan = plan
        self._house = house
        self.faults: dict[str, None] = {}

    def look(self) -> None:
        limits, spread = self._plan.limits, self._plan.spread
        is_strict = not limits.patience_ns and not limits.is_blocking
        most = (limits.session_bytes if is_strict else SESSION_BYTES) + SLACK_BYTES
        for name, each in self._house.items():
            daemon = each.daemon
            if not each.is_ready or daemon is None or daemon.hub is None:
                continue
            for seat in daemon.hub.seats.all:
                if seat.held_bytes > most:
                    self._note(f"{seat.label} at {name} holds more than {most} bytes of events")
                if daemon.hub.seats.window_bytes - seat.room > limits.window_bytes + SLACK_BYTES:
                    self._note(f"{seat.label} at {name} has more in its send queue than its window and one message")
            if daemon.hub.seats.held_bytes > min(HELD_BYTES, limits.total_bytes) + SLACK_BYTES and is_strict:
                self._note(f"all sessions at {name} hold more than they may")
            if each.process is not None:
                most_out = max(WRITE_BYTES, spread.max_bytes) + SLACK_BYTES
                for transport in each.process.transports:
                    if transport.get_write_buffer_size() > most_out:
                        self._note(f"more than {most_out} bytes wait in a socket of {name}")

    def _note(self, text: str) -> None:
        self.faults[f"bounds: {text}"] = None
