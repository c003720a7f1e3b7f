"""Rows of `chaos.py --orderer daemons`: three daemons in three sites, and thirty clients of them, all processes.

Half of the clients are native, the others speak Spread's protocol; all are in one group and send to it. Two in a
hundred packets between daemons are lost in every row. Clients reach their daemon through unix sockets, whatever the
network.

Each row is judged three times: what the clients have seen must fit together, message by message and view by view, and
so must their vs_sets (`ordercast.cli.chronicle`); the traces of daemons and sessions must keep every guarantee.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import monotonic, time_ns

from chaos_group import SHOWN_VIOLATIONS, Outcome
from chaos_sites import SitesOptions
from chaos_sites import judge as judge_traces
from chaos_wan import LOSS

from ordercast.cli.chronicle import parting_faults
from ordercast.cli.client_processes import DAEMON, ClientProcesses, crew, doors_of
from ordercast.cli.site_processes import SiteProcesses

DAEMONS = {"e1": "east", "w1": "west", "n1": "north"}
CLIENTS = 30
GROUP = "chaos"
PACE_S = 0.2
"""Between two batches of one client, of five messages of 100 bytes. Thirty-three processes share a small machine."""

DELIVERED = 100
"""Messages that each client is to receive in a view before the next thing happens."""

STORM_STEPS = 20
STORM_PAUSE_S = 3.0
STORM_PACE_S = 0.8
"""It is long, and its trace is to be judged in the same time as the others."""

CUT_S = 5.0
MERGE_GOAL_S = 5.0
KILL_GOAL_S = 5.0


@dataclass(slots=True)
class House:
    """The processes of one row."""

    daemons: SiteProcesses
    clients: ClientProcesses
    options: SitesOptions

    @property
    def names(self) -> list[str]:
        """Of the clients that live."""
        return list(self.clients.children)

    async def until(self, parts: Sequence[Collection[str]], without: Collection[str] = ()) -> None:
        """All clients of each part, by the names of the clients, are in one view, and receive."""
        await self.clients.until(parts, delivering=DELIVERED, without=without)

    async def at(self, daemons: Sequence[Collection[str]]) -> list[list[str]]:
        """The clients that are at these daemons now."""
        where = {name: said["client"].split("#")[2] for name, said in (await self.clients.ask()).items()}
        return [[name for name in where if where[name] in part] for part in daemons]


@contextlib.asynccontextmanager
async def clients_at_work(outcome: Outcome, options: SitesOptions, pace_s: float = PACE_S) -> AsyncIterator[House]:
    """Clients that send; behind it everything comes to rest and is judged."""
    trace = Path(tempfile.mkdtemp(prefix=f"daemons-{outcome.scenario}-", dir=options.traces))
    wan = options.wan
    wan.calm()
    outcome.goal_s, outcome.back_goal_s = KILL_GOAL_S, MERGE_GOAL_S
    outcome.notes.append(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(prefix="oc") as folder:  # short: a unix socket has 107 bytes
        doors = doors_of(Path(folder), list(DAEMONS))
        venue = wan.venue(trace)
        venue = replace(venue, told={**venue.told, "doors": doors}, group=GROUP, module=DAEMON)
        house = House(SiteProcesses(venue), ClientProcesses(doors, GROUP, pace_s), options)
        house.daemons.write_info({"bench": "chaos", "scenario": outcome.scenario, "loss": LOSS, "clients": CLIENTS})
        try:
            await house.daemons.start(list(DAEMONS))
            wan.lose(LOSS, house.daemons, list(DAEMONS))
            await house.daemons.until([list(DAEMONS)])
            await house.clients.start(crew(CLIENTS, list(DAEMONS)))
            house.clients.tell("send")
            await house.until([house.names])
            yield house
            await asyncio.sleep(options.seconds / 2)
            wan.count()
            drained = await house.clients.drain()
            await house.daemons.stop()
        finally:
            await house.clients.kill()
            await house.daemons.kill()
    delivered = [said["delivered"] for said in drained.values()]
    outcome.notes.append(
        f"load of the machine behind: {os.getloadavg()[0]:.1f}; {len(delivered)} clients received "
        f"{min(delivered):,} to {max(delivered):,} messages; {wan.carried() or 'daemons lose on loopback'}"
    )
    judge(outcome, house)


def judge(outcome: Outcome, house: House) -> None:
    """Add what clients and traces say to a row."""
    lives = house.clients.transitions()
    faults = house.clients.disagreements()
    for text in faults[:SHOWN_VIOLATIONS]:
        outcome.demand(False, text)
    views = {each.id for life in lives.values() for each in life}
    outcome.notes.append(
        f"{len(lives)} clients have told of {sum(map(len, lives.values())):,} transitions into {len(views)} views, and "
        f"disagree over {len(faults)}"
    )
    judge_traces(outcome, house.daemons)


# The scenarios


async def clients(outcome: Outcome, options: SitesOptions) -> None:
    """A native client and one of Spread of each daemon are killed at once."""
    async with clients_at_work(outcome, options) as house:
        await _kill_clients(outcome, house, house.names[:6])


async def kill(outcome: Outcome, options: SitesOptions) -> None:
    """A daemon is killed, and started again when its clients are elsewhere."""
    async with clients_at_work(outcome, options) as house:
        await _kill_daemon(outcome, house, "w1")
        await _restart(outcome, house, "w1")


async def cut(outcome: Outcome, options: SitesOptions) -> None:
    """One daemon is cut off from the other two."""
    async with clients_at_work(outcome, options) as house:
        await _cut(outcome, house, [["e1"], ["w1", "n1"]])


async def apart(outcome: Outcome, options: SitesOptions) -> None:
    """All daemons are cut off from one another."""
    async with clients_at_work(outcome, options) as house:
        await _cut(outcome, house, [[name] for name in DAEMONS])


async def whole(outcome: Outcome, options: SitesOptions) -> None:
    """All of it, one after the other; the daemon is killed while it is cut off together with another one."""
    async with clients_at_work(outcome, options) as house:
        await _kill_clients(outcome, house, house.names[:6])
        await _cut(outcome, house, [["e1"], ["w1", "n1"]])
        options.wan.cut([["east"], ["west", "north"]], house.daemons)
        parts = await house.at([["e1"], ["w1", "n1"]])
        await house.until(parts)
        await house.daemons.crash("n1")
        # Clients of Spread, and native ones, go to the next daemon of their lists, on whichever side that is.
        began_s = monotonic()
        await _until_gone(house, "n1")
        options.wan.heal(house.daemons)
        await house.until([house.names], without=["n1"])
        outcome.notes.append(f"killed on one side of a cut: all were together {monotonic() - began_s:.2f} s later")
        await _restart(outcome, house, "n1")


async def _kill_clients(outcome: Outcome, house: House, names: Sequence[str]) -> None:
    began_s = monotonic()
    await house.clients.crash(names)
    await house.until([house.names])
    outcome.notes.append(f"{' '.join(names)} were killed: gone for all {monotonic() - began_s:.2f} s later")
    causes = _causes(house, names)
    outcome.demand(causes == {"disconnect"}, f"views without a killed client were caused by {sorted(causes)}")


def _causes(house: House, names: Collection[str]) -> set[str]:
    """Why views changed that lost exactly one of these clients, at those that still live."""
    found = set()
    for client in house.names:
        members: set[str] = set()
        for each in house.clients.transitions()[client]:
            gone = {member.split("#")[1] for member in members - set(each.members)}
            if each.before and len(gone) == 1 and gone <= set(names):
                found.add(each.cause)
            members = set(each.members)
    return found


async def _kill_daemon(outcome: Outcome, house: House, victim: str) -> None:
    lost = (await house.at([[victim]]))[0]
    began_s = monotonic()
    await house.daemons.crash(victim)
    await house.until([house.names], without=[victim])
    outcome.back_s = monotonic() - began_s
    outcome.notes.append(
        f"{victim} was killed with {len(lost)} clients: {outcome.back_s:.2f} s later all {len(house.names)} were in "
        "one view at the others, and received"
    )


async def _restart(outcome: Outcome, house: House, name: str) -> None:
    began_s = monotonic()
    await house.daemons.start([name])
    house.options.wan.lose(LOSS, house.daemons, [name])
    await house.daemons.until([list(DAEMONS)])
    outcome.notes.append(f"{name} was restarted, and in one view with the others {monotonic() - began_s:.2f} s later")


async def _until_gone(house: House, name: str) -> None:
    """No client is at this daemon any more."""
    async with asyncio.timeout(60):
        while (await house.at([[name]]))[0]:
            await asyncio.sleep(0.05)


async def _cut(outcome: Outcome, house: House, daemons: Sequence[Sequence[str]]) -> None:
    parts = await house.at(daemons)
    members = {name: said["client"] for name, said in (await house.clients.ask()).items()}
    wan = house.options.wan
    began_s = monotonic()
    wan.cut([[DAEMONS[name] for name in part] for part in daemons], house.daemons)
    await house.until(parts)
    parted_s = monotonic() - began_s
    await asyncio.sleep(max(0.0, CUT_S - parted_s))
    began_s = monotonic()
    wan.heal(house.daemons)
    await house.until([house.names])
    outcome.back_s = monotonic() - began_s
    lives = house.clients.transitions()
    checked, faults = parting_faults(lives.values(), [[members[name] for name in part] for part in parts])
    for text in faults[:SHOWN_VIOLATIONS]:
        outcome.demand(False, text)
    outcome.demand(checked > 0, "nobody went from the view of all to that of its part, or back: no vs_set was examined")
    outcome.notes.append(
        f"parts of {' and '.join(str(len(part)) for part in parts)} clients: each in its view after {parted_s:.2f} s; "
        f"{checked} vs_sets of {2 * len(members)} went with a whole part, {len(faults)} of them wrong"
    )


class Storm:
    """Faults by chance, one after the other, whatever came of those before."""

    def __init__(self, house: House, rng: Random) -> None:
        self._house = house
        self._rng = rng
        self._parts: list[list[str]] = [list(DAEMONS)]
        self._plans = iter(crew(CLIENTS + STORM_STEPS, list(DAEMONS))[CLIENTS:])
        self.counts: Counter[str] = Counter()

    async def step(self) -> None:
        does = self._rng.choice(
            (self._cut, self._cut, self._heal, self._kill, self._restart, self._pause, self._client)
        )
        self.counts[does.__name__.strip("_")] += 1
        await does()
        await asyncio.sleep(self._rng.uniform(0.0, STORM_PAUSE_S))

    async def end(self) -> None:
        """All daemons run and hear one another."""
        await self._heal()
        for name in DAEMONS:
            await self._start(name)

    async def _cut(self) -> None:
        names = list(DAEMONS)
        self._rng.shuffle(names)
        at = self._rng.choice((1, 2))
        self._parts = [names[:at], names[at:]] if self._rng.random() < 0.7 else [[name] for name in names]
        self._apply()

    async def _heal(self) -> None:
        self._parts = [list(DAEMONS)]
        self._apply()

    def _apply(self) -> None:
        house = self._house
        house.options.wan.cut([[DAEMONS[name] for name in part] for part in self._parts], house.daemons)

    async def _kill(self) -> None:
        """A daemon; one stays."""
        if len(self._house.daemons.children) > 1:
            await self._house.daemons.crash(self._rng.choice(list(self._house.daemons.children)))

    async def _restart(self) -> None:
        down = [name for name in DAEMONS if name not in self._house.daemons.children]
        if down:
            await self._start(self._rng.choice(down))

    async def _start(self, name: str) -> None:
        house = self._house
        if name not in house.daemons.children:
            await house.daemons.start([name])
            house.options.wan.lose(LOSS, house.daemons, [name])
            self._apply()

    async def _pause(self) -> None:
        name = self._rng.choice(list(self._house.daemons.children))
        await self._house.daemons.pause(name, self._rng.uniform(0.1, STORM_PAUSE_S))

    async def _client(self) -> None:
        """One is killed, and another one comes."""
        clients = self._house.clients
        await clients.crash([self._rng.choice(self._house.names)])
        plan = next(self._plans)
        await clients.launch([plan])
        clients.children[plan.name].tell("send")


async def storm(outcome: Outcome, options: SitesOptions) -> None:
    """All of it by chance: nothing waits until what was done before has come to an end."""
    seed = time_ns() % 1_000_000
    async with clients_at_work(outcome, options, STORM_PACE_S) as house:
        storm = Storm(house, Random(seed))
        for _ in range(STORM_STEPS):
            await storm.step()
        began_s = monotonic()
        await storm.end()
        await house.until([house.names])
        did = ", ".join([f"{count} x {word}" for word, count in storm.counts.items()])
        outcome.notes.append(f"seed {seed}: {did}; all were together {monotonic() - began_s:.2f} s after the end")


DAEMON_SCENARIOS = {"clients": clients, "kill": kill, "cut": cut, "apart": apart, "whole": whole, "storm": storm}
