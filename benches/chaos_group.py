"""A group at work for one row of `chaos.py`, and its judgement when everything has come to rest."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos_network import Network

from ordercast.cli.processes import Drained, ProcessGroup
from ordercast.config import Timing
from ordercast.sim.checkers import PROPERTIES
from ordercast.sim.checkers.records import FOREVER
from ordercast.sim.checkers.restarts import broken_restarts
from ordercast.sim.checkers.stuck import LifeSpan
from ordercast.trace.schema import Row

FOUNDERS = 4
GOAL_S = 2.0
BACK_GOAL_S = 5.0
SHOWN_VIOLATIONS = 5


@dataclass(slots=True)
class Options:
    loss: float
    seconds: float
    traces: Path
    network: Network


@dataclass(slots=True)
class Outcome:
    """One row of the table."""

    orderer: str
    scenario: str
    stood_s: float | None = None  # the longest time without deliveries at those who went on
    goal_s: float = GOAL_S
    back_s: float | None = None  # from the moment at which members may come back until all deliver together
    back_goal_s: float = BACK_GOAL_S
    views: int | None = None  # that changed and should not have
    also_missed: str = ""  # another goal, of some rows
    confirmed: int = 0
    broken: int = 0  # promises
    held: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def missed(self) -> str:
        """The goal that was missed."""
        if self.stood_s is not None and self.stood_s > self.goal_s:
            return f"stood still for more than {self.goal_s:g} s"
        if self.back_s is not None and self.back_s > self.back_goal_s:
            return f"back after more than {self.back_goal_s:g} s"
        return "views changed" if self.views else self.also_missed

    def demand(self, holds: bool, otherwise: str) -> None:
        """The row has failed if this does not hold."""
        if not holds:
            self.held = False
            self.notes.append(otherwise)


@contextlib.asynccontextmanager
async def at_work(
    outcome: Outcome, options: Options, pace_s: float = 0.0, *, members: int = FOUNDERS, **venue: Any
) -> AsyncIterator[ProcessGroup]:
    """Members that send; behind it everything comes to rest and is judged."""
    trace = Path(tempfile.mkdtemp(prefix=f"{outcome.orderer}-{outcome.scenario}-", dir=options.traces))
    processes = ProcessGroup(options.network.venue(trace, outcome.orderer, **venue))
    processes.write_info({"bench": "chaos", "scenario": outcome.scenario})
    try:
        for number in range(members):
            await processes.start(number)
        processes.tell("pace", seconds=pace_s)
        processes.tell("send")
        await asyncio.sleep(options.seconds / 2)
        yield processes
        await asyncio.sleep(options.seconds / 2)
        drained = await processes.drain()
        await processes.stop()
    finally:
        await processes.kill()
    judge(outcome, processes, drained)


def judge(outcome: Outcome, processes: ProcessGroup, drained: Drained) -> None:
    """Add what the traces say to a row."""
    judged = processes.judge(PROPERTIES)
    outcome.confirmed += judged.confirmed
    outcome.broken += judged.lost
    outcome.held &= judged.verdict.held
    outcome.notes += [str(violation) for violation in judged.verdict.violations[:SHOWN_VIOLATIONS]]
    outcome.demand(drained.is_same, "members did not compute the same checksum")
    spans = lives_of(judged.rows, processes.crashed, processes.forgetful)
    for text in broken_restarts(judged.rows, spans, (), "majority", Timing().restart_wait_ns):
        outcome.demand(False, text)
    confirmed = confirmed_messages(judged.rows, spans)
    for text in confirmed.lost[:SHOWN_VIOLATIONS]:
        outcome.demand(False, text)
    if confirmed.of_killed and confirmed.stayed:
        outcome.notes.append(
            f"members that stayed have {confirmed.kept:,} of {confirmed.of_killed:,} messages that were confirmed to "
            "members which were killed"
        )


# What kills and restarts leave.


def lives_of(rows: Sequence[Row], crashed: dict[tuple[str, int], int], forgetful: Collection[str]) -> list[LifeSpan]:
    """All lives of the nodes of a trace. A `forgetful` node began each of them without the folder of the one before."""
    began: dict[tuple[str, int], int] = {}
    for row in rows:
        key = row.node, row.life
        began[key] = min(row.at_ns, began.get(key, FOREVER))
    former = {
        later: f"{earlier[0]}/{earlier[1]}"
        for earlier, later in pairwise(sorted(began))
        if earlier[0] == later[0] and later[0] not in forgetful
    }
    return [
        LifeSpan(f"{name}/{life}", at_ns, crashed.get((name, life), FOREVER), former=former.get((name, life), ""))
        for (name, life), at_ns in began.items()
    ]


@dataclass(slots=True)
class Confirmed:
    """What became of confirmed messages."""

    lost: list[str]  # a member held it and stayed, and has never delivered it
    stayed: int  # members that were there before the first crash and at the end
    of_killed: int  # messages that were confirmed to members which crashed later
    kept: int  # of these, those that a member which stayed has delivered


def confirmed_messages(rows: Sequence[Row], lives: Sequence[LifeSpan]) -> Confirmed:
    """Nothing confirmed is lost as long as one holder lives.

    The checkers excuse a change of view that more members did not survive than a service promises for. Here the trace
    is asked who held a message: a member that did, and stayed, delivers it, whatever became of all others.
    """
    gone = {f"{row.node}/{row.life}" for row in rows if row.kind == "leave"}
    stayed = {life.member for life in lives if life.is_up} - gone
    killed = {life.member for life in lives if not life.is_up}
    first_crash_ns = min(life.ended_ns for life in lives)
    before = {life.member for life in lives if life.began_ns < first_crash_ns}
    numbers: dict[str, list[int]] = {}
    for row in rows:
        if row.kind == "confirm" and row.first is not None and row.count is not None:
            sender = row.sender or f"{row.node}/{row.life}"
            numbers.setdefault(sender, []).extend(range(row.first, row.first + row.count))
    for each in numbers.values():
        each.sort()
    held: set[tuple[str, str, int]] = set()  # member, sender, number
    delivered: set[tuple[str, str, int]] = set()
    for row in rows:
        if row.kind not in ("hold", "deliver") or (member := f"{row.node}/{row.life}") not in stayed:
            continue
        sender, first, count = row.sender or member, row.first or 0, row.count or 0
        known = numbers.get(sender, [])
        found = known[bisect_left(known, first) : bisect_left(known, first + count)]
        (held if row.kind == "hold" else delivered).update((member, sender, number) for number in found)
    lost = [
        f"message {number} of {sender} was confirmed and {member} held it, stayed, and has not delivered it"
        for member, sender, number in sorted(held - delivered)
    ]
    kept = {(sender, number) for _, sender, number in delivered if sender in killed}
    of_killed = sum(len(each) for sender, each in numbers.items() if sender in killed)
    return Confirmed(lost, len(stayed & before), of_killed, len(kept))
