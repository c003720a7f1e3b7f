"""Crashes that wait for a phase: a daemon dies in the middle of a gathering, an acceptance or an exchange of rosters.

These phases last milliseconds, and a crash at a time that was drawn before the run rarely hits one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ordercast.groups.channel import Channel
from ordercast.underlay.sites.engine import SitesEngine


class AmbushPhase(StrEnum):
    """What a daemon of sites is doing. All but the last are the words of its engine (`SitesEngine.describe`)."""

    GATHERING = "gathering"
    ACCEPTING = "accepting"
    ACCEPTED = "accepted"
    EXCHANGING = "exchanging"  # it is in a view, and has not all rosters


@dataclass(frozen=True, slots=True)
class Ambush:
    """From `at_ns` to `until_ns` the node crashes `delay_ns` after a pass in which it is in the phase, once. With
    `down_ns` it comes back after so long."""

    at_ns: int
    until_ns: int
    node: str
    phase: str
    delay_ns: int = 0
    down_ns: int = 0

    @property
    def last_ns(self) -> int:
        """When it has happened, with what follows from it."""
        return self.until_ns + self.delay_ns + self.down_ns


def phase_of(channel: Channel) -> str:
    """What the daemon of a channel is doing; of other orderers nothing is known."""
    engine = channel.engine
    phase = engine.describe().rpartition(", ")[2] if isinstance(engine, SitesEngine) else ""
    if phase == "working" and channel.shared is not None and not channel.shared.roster.is_seeded:
        return AmbushPhase.EXCHANGING
    return phase
