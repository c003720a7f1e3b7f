"""Engines for tests of the search itself: the simulator's toy, and one with a planted bug."""

from __future__ import annotations

from ordercast.config import GroupConfig
from ordercast.engine import Delivery, Outbox, Run
from ordercast.explore.path import Exploration
from ordercast.explore.scenarios import Action, Cast, SmallScenario
from ordercast.sim.toy import ToyEngine, ToyEngines
from ordercast.view import Member
from ordercast.wire.block import head_of

SCENARIO = "toy"


class HastyEngine(ToyEngine):
    """The bug: what arrives is delivered at once, whatever its sequence number is."""

    __slots__ = ()

    def _deliver(self, seq: int, origin: int, number: int, block: bytes, out: Outbox) -> None:
        out.upcalls.append(Run([Delivery(seq, self._position, origin, number, block)]))
        self._position += head_of(block).count


class HastyEngines(ToyEngines):
    """Makes `HastyEngine`s."""

    __slots__ = ()

    def __call__(self, group: str, me: Member, config: GroupConfig, *_: object, **__: object) -> HastyEngine:
        return HastyEngine(group, me, self._members, config)


def three_messages(cast: Cast) -> list[Action]:
    """The first member, which orders, sends one message after the other."""
    return [Action(tick, "send", cast.members[0]) for tick in (5, 6, 7)]


def toy_scenario() -> SmallScenario:
    return SmallScenario("three messages", 3, 0, three_messages)


def toy_exploration(members: int, *families: str) -> Exploration:
    names = "abcde"[:members]
    return Exploration(SCENARIO, "sequencer", names, "", families, 30, 1, variant=0)
