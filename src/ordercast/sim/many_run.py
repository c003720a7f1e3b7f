"""Run a scenario with many groups on one underlay to its end, and judge it.

The phases are those of `run.py`: everything happens, all faults end, the underlay comes to rest, a probe reaches
everybody, the checkers judge the trace. A run that does not come to rest fails, unless the underlay may stand still.
Besides, at rest:

- all members of the underlay have the same roster, and no node is without it;
- a group has the sessions that are in it, at each of them the same view, and no more is wanted than that;
- a number was never given to two groups, and a name that came back has another one (`RosterWatch`);
- no lock is held, nothing is half left or half received, and calls are answered;
- a session that was closed is out of everything, and no message is delivered to it after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

from ordercast.config import SECOND
from ordercast.groups.channel import Channel
from ordercast.service import AGREED
from ordercast.sim.checkers import check_all
from ordercast.sim.checkers.attendance import short_members
from ordercast.sim.checkers.chain import branches, installed_views
from ordercast.sim.checkers.stuck import Excuse, excuse_of
from ordercast.sim.faults import Faults
from ordercast.sim.lives import life_spans, troubles_of
from ordercast.sim.many_groups import GroupAct, ManyGroups
from ordercast.sim.many_program import GroupProgram
from ordercast.sim.many_session import Call, GroupSession, MessageName
from ordercast.sim.run import (
    LEAVE_NS,
    LOSSY_REST_NS,
    PROBE_BYTES,
    PROBE_NS,
    PROBE_ROUNDS,
    PROBED,
    REST_NS,
    Outcome,
    Patch,
    broken_off,
    digest_of,
    is_calm,
    is_steady,
    needless_recoveries,
    told_violations,
)
from ordercast.sim.statistics import count_rows
from ordercast.sim.world import World
from ordercast.trace.schema import CONTINUE, QUORUM
from ordercast.wire.roster import SessionKey

PROBED_GROUPS: Final = 3
"""A probe goes to so many groups at once, and to so many of the sender's own one by one."""


def run_groups(plan: ManyGroups, patch: Patch | None = None) -> Outcome:
    """Run and judge. `patch` makes a context that is held around the run: how tests plant a bug."""
    with patch() if patch is not None else nullcontext():
        return _GroupsRun(plan).outcome()


class RosterWatch:
    """Looks at rosters while they change: numbers rise and are never used twice."""

    __slots__ = ("_seen", "faults")

    def __init__(self) -> None:
        # By the table of numbers: where components merge, a roster begins another one.
        self._seen: dict[object, tuple[int, frozenset[tuple[int, str]]]] = {}
        self.faults: dict[str, None] = {}

    def look(self, program: GroupProgram) -> None:
        channel = program.channel
        shared = channel.shared if channel is not None else None
        if shared is None or not shared.roster.is_seeded:
            return
        roster = shared.roster
        named = frozenset([(record.number, name) for name, record in roster.groups.items()])
        table = roster.current_names
        first, before = self._seen.get(table, (0, frozenset()))
        self._seen[table] = roster.next_number, named
        for number, name in sorted(named - before):
            if not first <= number < roster.next_number:
                self.faults[f"numbers: {program} has {name!r} under {number}, which was used before"] = None


class _GroupsRun:
    """One run, phase by phase."""

    __slots__ = ("_faults", "_outcome", "_plan", "_programs", "_watch", "_world")

    def __init__(self, plan: ManyGroups) -> None:
        scenario = plan.scenario
        self._plan = plan
        self._outcome = Outcome(scenario)
        self._world = world = World(
            f"{scenario.orderer}/{scenario.seed}",
            scenario.network_model(),
            event_limit=scenario.event_limit,
            topology=scenario.topology,
        )
        self._programs = {name: GroupProgram(world, plan, index) for index, name in enumerate(scenario.nodes)}
        self._watch = RosterWatch()
        for name, start_ns in zip(scenario.nodes, scenario.starts_ns or (0,) * len(scenario.nodes), strict=True):
            if start_ns >= 0:
                world.at(start_ns, world.start, name)
        for act in plan.acts:
            world.at(act.at_ns, self._act, act)
        self._faults = Faults(world, self, scenario.faults)

    def outcome(self) -> Outcome:
        self._outcome.failures += broken_off(self._phases, self._world)
        self._judge()
        return self._outcome

    def _act(self, act: GroupAct) -> None:
        program = self._programs[act.node]
        self._watch.look(program)
        program.act(act)

    # What faults may ask of applications, by name. --------------------------------------------------------------------

    def stall(self, name: str) -> None:
        self._programs[name].stall()

    def unstall(self, name: str) -> None:
        self._programs[name].unstall()

    def leave(self, name: str) -> None:
        self._programs[name].leave()

    def rejoin(self, name: str) -> None:
        self._programs[name].rejoin()

    def expel(self, name: str, member: str) -> None:
        """Not drawn: lightweight groups expel nobody."""

    def reset(self, name: str, min_members: int | None = None) -> None:
        """Underlays recover by themselves here."""

    # Phases. ---------------------------------------------------------------------------------------------------------

    def _phases(self) -> None:
        world, outcome = self._world, self._outcome
        world.run_until(self._plan.last_ns)
        self._faults.heal_all()
        unrest = world.run_to_rest(world.now_ns + LOSSY_REST_NS, self._unrest)
        if unrest:
            world.network.end_losses()
            if self._excuse() is None:
                unrest = world.run_to_rest(world.now_ns + REST_NS, self._unrest)
        self._check_leavers(world.now_ns - LEAVE_NS if unrest else world.now_ns)
        if self._is_over(unrest):
            return
        if unrest:
            outcome.failures.append(f"not at rest at {world.now_ns / SECOND:.3f} s: {'; '.join(unrest[:6])}")
            return
        self._probe()

    def _live(self) -> list[GroupProgram]:
        return [program for program in self._programs.values() if program.node.is_up and program.is_wanted]

    def _channels(self) -> list[tuple[GroupProgram, Channel]]:
        found = [(program, program.channel) for program in self._live()]
        return [(program, channel) for program, channel in found if channel is not None]

    def _unrest(self) -> list[str]:
        """What the programs still have to do, and whether the underlay is one."""
        texts = [
            f"{program} is not {'in' if program.is_wanted else 'out of'} the underlay"
            for program in self._programs.values()
            if program.node.is_up and program.is_wanted == (program.channel is None)
        ]
        views = {channel.view.id for _, channel in self._channels() if channel.view is not None}
        if len(views) > 1:
            texts.append(f"there are several views at once: {', '.join(sorted(views))}")
        return texts

    def _is_over(self, unrest: list[str]) -> bool:
        """Whether no member is left, or too few to go on: nothing more can be asked of such an underlay."""
        outcome = self._outcome
        outcome.is_deserted = not self._live()
        outcome.excuse = self._excuse() if unrest else None
        outcome.is_short = bool(unrest) and not outcome.is_deserted and not outcome.excuse and self._is_short()
        return outcome.is_deserted or outcome.is_stuck_legally or outcome.is_short

    def _is_short(self) -> bool:
        """Whether the underlay has come together, has nothing to do, and is too small for all of its members to take
        part in it."""
        scenario, live = self._plan.scenario, {str(program) for program in self._live()}
        views = {
            channel.view.id: {str(member) for member in channel.view.members}
            for _, channel in self._channels()
            if channel.view is not None
        }
        short = short_members(self._world.rows(), scenario.rule_of, scenario.bootstrap)
        is_at_rest = all(channel.engine.is_at_rest() for _, channel in self._channels())
        return is_at_rest and list(views.values()) == [live] and live <= short

    def _excuse(self) -> Excuse | None:
        if self._plan.has_components:
            return None  # every component goes on
        rows, scenario = self._world.rows(), self._plan.scenario
        troubles = troubles_of(scenario.faults, scenario.nodes, scenario.topology)
        return excuse_of(rows, life_spans(self._programs, rows), troubles, scenario.rule_of)

    def _check_leavers(self, since_ns: int) -> None:
        """No standstill excuses a leave that was asked for before `since_ns` and has not ended."""
        for program in self._programs.values():
            wishes = program.wishes.get(program.node.life, [])
            is_leaving = program.channel is not None and wishes and not wishes[-1].is_join
            if is_leaving and wishes[-1].at_ns < since_ns:
                text = f"{program} asked to leave at {wishes[-1].at_ns / SECOND:.3f} s and is not out"
                self._outcome.failures.append(f"leave: {text}")

    def _probe(self) -> None:
        """Everybody sends to groups that exist, and their members get everything. As in `run.py` there are rounds,
        because a failure may still have to be noticed."""
        world, outcome = self._world, self._outcome
        rounds = PROBE_ROUNDS
        if is_steady(self._plan.scenario):
            # At rest a few heartbeats in a row are a silence. Of so many runs, chance would lose them in one.
            rounds = 1
            world.network.set_model(replace(world.network.model, loss=0.0))
        hold_ns = self._plan.scenario.node_timing().suspect_rest_ns + SECOND
        missing: list[str] = []
        for _ in range(rounds):
            views = {channel.view.id for _, channel in self._channels() if channel.view is not None}
            probe = _GroupsProbe([program for program, _ in self._channels()])
            world.run_until(lambda probe=probe: not probe.missing(), world.now_ns + PROBE_NS)  # type: ignore[misc]
            unrest = world.run_to_rest(world.now_ns + REST_NS, self._unrest, hold_ns)
            if self._is_over(unrest):
                return
            if unrest:
                outcome.failures.append(f"not at rest after the probe: {'; '.join(unrest[:6])}")
                return
            missing = probe.missing()
            if not views & {channel.view.id for _, channel in self._channels() if channel.view is not None}:
                missing = missing or ["all members are in another view than before"]
            if not missing:
                outcome.is_quiet = True
                self._check_rest()
                return
        outcome.failures.append(f"probe: in {rounds} rounds {'; '.join(missing[:6])}")

    # Judgement. ------------------------------------------------------------------------------------------------------

    def _check_rest(self) -> None:
        """What must be so at rest."""
        failures = self._outcome.failures
        channels = self._channels()
        tables = {str(program): _table(channel) for program, channel in channels}
        first, table = next(iter(tables.items()), ("", {}))
        failures += [f"roster: {name} has another one than {first}" for name, other in tables.items() if other != table]
        views: dict[str, tuple[str, Sequence[int]]] = {}
        inside: dict[str, set[SessionKey]] = {}
        for program, channel in channels:
            self._watch.look(program)
            failures += _check_channel(program, channel)
            for session in program.sessions.values():
                failures += _check_closed(session)
                for group, port in session.ports.items():
                    inside.setdefault(group, set()).add((channel.me.id, session.label))
                    if port.view is None:
                        failures.append(f"groups: {session} is not in {group!r}")
                        continue
                    shown = port.view.id, [member.id for member in port.view.members]
                    if views.setdefault(group, shown) != shown:
                        text = f"has the view {shown[0]} of {group!r}, not {views[group][0]}"
                        failures.append(f"groups: {session} {text}")
        nodes = {channel.me.id: channel.me for _, channel in channels}
        sessions = {
            (channel.me.id, label)
            for _, channel in channels
            if channel.shared is not None
            for label in channel.shared.streams
        }
        for group, (_, members, namers) in table.items():
            if not nodes.keys() >= {node for node, _ in (*members, *namers)}:
                failures.append(f"roster: {first} has a node in {group!r} that is gone")
                continue
            if not sessions.issuperset(namers):
                failures.append(f"roster: {first} has a session that names {group!r} and is gone")
            if set(members) != inside.get(group, set()):
                failures.append(f"roster: {first} has other members of {group!r} than there are")
            if group in views and views[group][1] != [nodes[node].session(label).id for node, label in members]:
                failures.append(f"groups: the last view of {group!r} has other members than the roster")
        failures += [f"roster: {group!r} is not in it" for group in inside.keys() - table.keys()]
        self._check_calls()

    def _check_calls(self) -> None:
        for program in self._live():
            for group, asked in program.own.asked:
                call = (str(program.node), asked.number)
                if asked.answer is None and asked.error is None and not self._is_lost(call):
                    self._outcome.failures.append(f"calls: {program} has no answer to call {asked.number} in {group!r}")

    def _is_lost(self, call: Call) -> bool:
        """The holder of its handler was leaving, crashed or put out of the underlay when the call came to it: as in any
        group, no answer comes, and the caller's timeout ends its wait."""
        programs = self._programs.values()
        if any(call in program.own.seen.taken for program in programs):
            return any(call in program.own.seen.lost for program in programs)
        # The holder has not seen it.
        return any(program.node.life or not program.node.is_up or program.own.seen.was_out for program in programs)

    def _judge(self) -> None:
        world, outcome, scenario = self._world, self._outcome, self._plan.scenario
        outcome.rows = rows = world.rows()
        outcome.digest = digest_of(world)
        outcome.stats = stats = count_rows(world, rows)
        for session in [each for program in self._programs.values() for each in program.sessions.values()]:
            seen = session.seen
            stats.confirmed += seen.confirmed
            stats.uncertain += seen.uncertain
            stats.locks += seen.locks
            stats.calls += seen.calls
            stats.answers += seen.answers
            outcome.failures += seen.faults
        outcome.failures += self._watch.faults
        if stats.socket_drops and is_calm(scenario):
            outcome.failures.append(
                f"flow control: sockets dropped {stats.socket_drops} datagrams, and nothing was wrong"
            )
        outcome.verdict = check_all(
            rows,
            clock="virtual",
            quiet=outcome.is_quiet,
            expect=PROBED if outcome.is_quiet and any(program.own.ports for program in self._live()) else (),
            min_members=scenario.rule_of,
            bootstrap=scenario.bootstrap,
            partitions=CONTINUE if self._plan.has_components else QUORUM,
        )
        outcome.failures += told_violations(outcome.verdict)
        if not self._plan.has_components:
            outcome.failures += branches(installed_views(rows), scenario.rule_of)
        if is_steady(scenario):
            outcome.failures += needless_recoveries([row for row in rows if row.group is None], [])


Table = dict[str, tuple[int, tuple[SessionKey, ...], tuple[SessionKey, ...]]]


def _table(channel: Channel) -> Table:
    """The roster of a node, to compare it with that of another."""
    shared = channel.shared
    groups = shared.roster.groups if shared is not None else {}
    return {name: (record.number, record.members, record.namers) for name, record in groups.items()}


def _check_channel(program: GroupProgram, channel: Channel) -> list[str]:
    """What is wrong at one node that is at rest."""
    texts: list[str] = []
    if channel.consumption.receipts or channel.consumption.held_bytes:
        texts.append(f"rest: {program} is not finished with something")
    if channel.leaving:
        texts.append(f"rest: {program} is still leaving a group")
    if channel.view is not None and channel.view.locks:
        texts.append(f"locks: at rest {program} still sees {', '.join(sorted(channel.view.locks))} held")
    shared = channel.shared
    if shared is None:
        return [*texts, f"roster: {program} has none"]
    if shared.roster.unseeded:
        texts.append(f"roster: {program} knows of nodes without it")
    if any(stream.held_bytes for stream in channel.streams):
        texts.append(f"rest: {program} counts bytes that no session of it holds")
    wanted = {stream: {port.number for port in stream.ports.values()} for stream in channel.streams if stream.ports}
    return texts + [
        f"wanted: {stream.session} of {program} {'lacks' if record.number in numbers else 'has'} {name!r}"
        for name, record in shared.roster.groups.items()
        for stream, numbers in wanted.items()
        if (stream.wanted.pick([record.number]) is None) != (record.number in numbers)
    ]


def _check_closed(session: GroupSession) -> list[str]:
    """A session that was closed is out, and its label is free."""
    ended = session.session
    if ended is None or not ended.is_closed:
        return []
    return [f"sessions: {session} was closed and is still in {', '.join(ended.streams)}"] if ended.streams else []


class _GroupsProbe:
    """Messages of each program, and which of them are missing where."""

    __slots__ = ("_owed",)

    def __init__(self, programs: list[GroupProgram]) -> None:
        tables = {program: _table(program.channel) for program in programs if program.channel is not None}
        groups = sorted(next(iter(tables.values()), {}))
        self._owed: list[tuple[GroupSession, MessageName]] = []
        sessions = [session for program in programs for session in program.open_sessions]
        for index, session in enumerate(sessions):
            own = list(session.ports)[:PROBED_GROUPS]
            several = [groups[(index + step) % len(groups)] for step in range(min(PROBED_GROUPS, len(groups)))]
            sent = session.send(own, len(own), AGREED, PROBE_BYTES)
            if several:
                sent += session.send_to(several, 1, AGREED, PROBE_BYTES)
            for name in sent:
                owing = set(name[2].split(","))
                self._owed += [(other, name) for other in sessions if owing & other.ports.keys()]

    def missing(self) -> list[str]:
        return [
            f"{session} has not got message {number} of {sender} to {groups}"
            for session, (sender, number, groups) in self._owed
            if (sender, number, groups) not in session.seen.got
        ]
