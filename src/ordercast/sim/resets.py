"""Resets that applications called, and what they were told: Amoeba's ResetGroup keeps its word (sections 3 and 4.2).

Several members may call it at once, each with a number of members that it asks for. The group is re-formed once. A call
that asked for more members than came must fail, and a call that asked for no more must not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ordercast.config import MS, MinMembers
from ordercast.sim.checkers.records import FOREVER
from ordercast.trace.schema import Row

TOGETHER_NS: Final = 50 * MS
"""A view that a member installs so shortly after it was told that its reset failed is what the reset was for."""


@dataclass(slots=True)
class ResetCall:
    """One call of `reset`."""

    member: str
    asked_ns: int
    rule: MinMembers
    ended_ns: int = FOREVER
    size: int = 0  # what it was told; 0: it failed

    @property
    def least(self) -> int:
        """The number of members that it asked for; 0: a share of the view."""
        return self.rule if isinstance(self.rule, int) else 0


def broken_resets(calls: Sequence[ResetCall], rows: Iterable[Row], *, is_untroubled: bool) -> list[str]:
    """What is wrong with what callers were told. `is_untroubled`: nothing but crashes, so nobody comes back between a
    reset that fails and the next one."""
    texts = [
        f"resets: {call.member} asked for {call.least} members and was told that {call.size} are enough"
        for call in calls
        if call.size and call.least > call.size
    ]
    if not is_untroubled:
        return texts
    failed = [call for call in calls if call.ended_ns != FOREVER and not call.size and call.least]
    for row in rows if failed else ():
        if row.kind != "view" or row.detail != "reset" or row.members is None:
            continue
        for call in failed:
            is_its = f"{row.node}/{row.life}" == call.member and 0 <= row.at_ns - call.ended_ns <= TOGETHER_NS
            if is_its and len(row.members) >= call.least:
                texts.append(
                    f"resets: {call.member} asked for {call.least} members and was told that there are too few, and "
                    f"then came {row.view} with {len(row.members)}"
                )
    return texts
