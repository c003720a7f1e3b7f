"""Run a scenario of daemons and their clients to its end, and judge it.

1. Everything of the plan happens. Then all faults end: daemons that are down are started, clients receive again.
2. All must come to rest: every client is connected and in its groups, its sends have ended, and all members of a group
   that are clients have the same view of it. A stream that is cut is a fault until both of its ends have noticed, also
   where the process at one of them is over: a daemon keeps the session of such a client, and what it is sent.
3. A probe: every client sends to each of its groups, and all members must get that.
4. The judges: the checkers of traces, and `judge.py` for what clients saw. While the run lasts `MemoryWatch` looks at
   the memory of sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.errors import OrdercastError
from ordercast.sim.checkers import check_all
from ordercast.sim.faults import Faults
from ordercast.sim.loop import SimulationStuck, run_in_world
from ordercast.sim.run import PROBED, Outcome, Patch, digest_of, told_violations
from ordercast.sim.sessions.bounds import MemoryWatch
from ordercast.sim.sessions.house import HouseTerms, SimDaemon, make_house
from ordercast.sim.sessions.judge import judge_clients
from ordercast.sim.sessions.native import NativeProgram
from ordercast.sim.sessions.plan import DISTURBING, OF_DAEMONS, ClientAct, ClientPlan, Did, SessionPlan
from ordercast.sim.sessions.processes import Process, ProcessLoop
from ordercast.sim.sessions.seen import ClientLife
from ordercast.sim.sessions.spread import SpreadProgram
from ordercast.sim.sessions.streams import Streams
from ordercast.sim.statistics import count_rows
from ordercast.sim.world import Livelock, World
from ordercast.trace.schema import CONTINUE, QUORUM

REST_NS: Final = 150 * SECOND
"""From the end of all faults on. The longest wait is that for a half-open stream: a keepalive of 45 s."""
HOLD_NS: Final = 1 * SECOND
STEP_S: Final = 0.1
PROBE_NS: Final = 30 * SECOND
LOOK_NS: Final = 20 * MS
LIMIT_NS: Final = 600 * SECOND

Program = NativeProgram | SpreadProgram


def run_sessions(plan: SessionPlan, patch: Patch | None = None) -> Outcome:
    """Run and judge. `patch` makes a context that is held around the run: how tests plant a bug."""
    with patch() if patch is not None else nullcontext(), _silence():
        return SessionsRun(plan).outcome()


@contextmanager
def _silence() -> Iterator[None]:
    """What daemons and clients log is no news here."""
    loggers = [logging.getLogger(f"ordercast.{name}") for name in ("daemon", "client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class SimClient:
    """One client, through all its processes."""

    __slots__ = ("_run", "lives", "plan", "process", "program")

    def __init__(self, run: SessionsRun, plan: ClientPlan) -> None:
        self._run = run
        self.plan = plan
        self.lives: list[ClientLife] = []
        self.process: Process | None = None
        self.program: Program | None = None

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        run, plan = self._run, self.plan
        if self.is_up:
            return
        number = len(self.lives)
        # Every other life has the name of the one before: its daemon may still know that.
        life = ClientLife(plan.name, f"{plan.name}{'' if number < 2 else number}", number)
        self.lives.append(life)
        host = f"10.200.0.{1 + run.plan.clients.index(plan)}"
        self.process = process = Process(run.loop, f"{plan.name}/{number}", host)
        daemons = [run.house[name] for name in plan.daemons]
        if plan.is_spread:
            self.program = SpreadProgram(run.world, process, plan, life, daemons[0].spread_address)
        else:
            self.program = NativeProgram(run.world, process, plan, life, [each.address for each in daemons])

    def end(self, *, is_killed: bool) -> None:
        if self.process is not None and not self.process.is_dead:
            self.lives[-1].is_killed |= is_killed
            self.process.kill()


def _waiting(daemon: SimDaemon) -> list[str]:
    """What a daemon still has for clients, which may be put out for it."""
    hub = daemon.daemon.hub if daemon.daemon is not None else None
    if hub is None or daemon.process is None:
        return []
    found = [f"{seat.held_bytes} bytes wait for {seat.label}" for seat in hub.seats.all if seat.held_bytes]
    unsent = sum(transport.get_write_buffer_size() for transport in daemon.process.transports)
    return [*found, f"{unsent} bytes wait in the sockets of {daemon.name}"] if unsent else found


class SessionsRun:
    """One run, phase by phase."""

    def __init__(self, plan: SessionPlan) -> None:
        scenario = plan.scenario
        self.plan = plan
        self._outcome = Outcome(scenario)
        self.world = world = World(
            f"{scenario.orderer}/{scenario.seed}/sessions",
            scenario.network_model(),
            event_limit=scenario.event_limit,
            topology=scenario.topology,
        )
        self.loop = loop = ProcessLoop(world, LIMIT_NS)
        loop.set_exception_handler(self._on_exception)
        models = plan.streams
        streams = self.streams = Streams(world, loop, lambda rng: rng.choice(models))
        sites = scenario.topology.config if scenario.topology is not None else None
        terms = HouseTerms(scenario.orderer, plan.config, plan.limits, plan.spread, sites)
        self.house: dict[str, SimDaemon] = make_house(world, loop, streams, terms, scenario.nodes, scenario.topology)
        self.clients = {client.name: SimClient(self, client) for client in plan.clients}
        self.bounds = MemoryWatch(plan, self.house)
        self._is_probed = False
        self._is_healed = False
        self._is_over = False
        self._exceptions: list[str] = []

    def outcome(self) -> Outcome:
        outcome, world = self._outcome, self.world
        try:
            run_in_world(world, self._program(), LIMIT_NS, self.loop)
        except (Livelock, SimulationStuck) as error:
            outcome.failures.append(f"livelock: {error}")
        except TimeoutError:
            raise
        except OrdercastError as error:
            outcome.failures.append(f"exception: {type(error).__name__}: {error}")
        outcome.failures += self._exceptions
        outcome.digest = digest_of(world)
        return outcome

    async def _program(self) -> None:
        try:
            self._plan_acts()
            await self._phases()
            self._judge()
        finally:
            self._is_over = True
            self.loop.end_all()

    # What happens. ----------------------------------------------------------------------------------------------------

    def _plan_acts(self) -> None:
        world, plan = self.world, self.plan
        for daemon in self.house.values():
            self._call(daemon.start)
        for client in self.clients.values():
            world.at(client.plan.start_ns, self._do, client.start)
        for act in plan.acts:
            world.at(act.at_ns, self._do, lambda act=act: self._act(act))
        Faults(world, _Nobody(), plan.scenario.faults)
        world.at(LOOK_NS, self._look)

    def _do(self, action: Any) -> None:
        """Events of the world happen outside of the loop: what makes tasks is called by the loop."""
        self.loop.call_soon(self._call, action)

    def _call(self, action: Any) -> None:
        action()

    def _look(self, _: object = None) -> None:
        self.bounds.look()
        self.world.after(LOOK_NS, self._look)

    def _act(self, act: ClientAct) -> None:
        if self._is_healed:
            return
        if act.kind in OF_DAEMONS:
            self._act_daemon(act, self.house[act.who])
            return
        client = self.clients[act.who]
        if not client.is_up or client.program is None or client.process is None or client.program.is_over:
            return
        process = client.process
        if act.kind in DISTURBING:
            client.lives[-1].is_disturbed = True
        match act.kind:
            case Did.STALL:
                client.program.stall(True)
                self._later(act, lambda: client.program is not None and client.program.stall(False))
            case Did.PAUSE:
                process.pause()
                self._later(act, process.resume)
            case Did.KILL:
                client.end(is_killed=True)
                self._later(act, client.start)
            case Did.CUT | Did.RESET:
                for transport in self.streams.of(process):
                    (self.streams.cut if act.kind is Did.CUT else self.streams.reset)(transport)
            case Did.CLOSE:
                client.program.act(act)
                self._later(act, lambda: self._reopen(client))
            case Did.PRIVATE:
                names = [each.program.me for each in self.clients.values() if isinstance(each.program, SpreadProgram)]
                groups = tuple(sorted({name for name in names if name}))
                if groups:
                    client.program.act(ClientAct(act.at_ns, act.who, Did.SEND_TO, groups, 1, act.size, "AGREED"))
            case _:
                client.program.act(act)

    def _reopen(self, client: SimClient) -> None:
        """A program that has closed its connection ends, and is started again."""
        if client.program is not None and client.program.is_over:
            client.end(is_killed=False)
            client.start()

    def _act_daemon(self, act: ClientAct, daemon: SimDaemon) -> None:
        match act.kind:
            case Did.KILL_DAEMON | Did.KILL_MACHINE:
                daemon.kill(machine=act.kind is Did.KILL_MACHINE)
                self._later(act, daemon.start)
            case Did.STOP_DAEMON:
                daemon.stop()
                self._later(act, daemon.start)
            case Did.PAUSE_DAEMON:
                daemon.pause()
                self._later(act, daemon.resume)

    def _later(self, act: ClientAct, action: Any) -> None:
        self.world.at(act.at_ns + act.for_ns, self._do, action)

    # Phases. ----------------------------------------------------------------------------------------------------------

    async def _phases(self) -> None:
        await self._until(self.plan.last_ns)
        self._is_healed = True
        world = self.world
        world.network.heal()
        world.network.reset_links()
        for client in self.clients.values():
            if client.program is not None:
                client.program.stall(False)
        unrest = await self._rest(self._unrest, REST_NS)
        if unrest:
            self._outcome.failures.append(f"not at rest at {world.now_ns / SECOND:.3f} s: {'; '.join(unrest[:6])}")
            return
        await self._probe()

    async def _until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0, at_ns - self.world.now_ns) / SECOND)

    async def _rest(self, unrest: Any, for_ns: int) -> list[str]:
        """Until nothing is to be done for a while; or what is."""
        world = self.world
        end_ns, since_ns = world.now_ns + for_ns, -1
        while True:
            found: list[str] = unrest()
            if not found:
                since_ns = world.now_ns if since_ns < 0 else since_ns
                if world.now_ns - since_ns >= HOLD_NS:
                    return []
            else:
                since_ns = -1
                if world.now_ns >= end_ns:
                    return found
            await asyncio.sleep(STEP_S)

    def _unrest(self) -> list[str]:
        for daemon in self.house.values():
            if not daemon.is_up:
                daemon.start()
            daemon.resume()
        found: list[str] = [f"daemon {name} is not ready" for name, each in self.house.items() if not each.is_ready]
        underlay = {each.view for each in self.house.values()}
        if len(underlay) > 1 or "" in underlay:
            found.append(f"the daemons are in different views: {', '.join(sorted(underlay))}")
        found += [text for each in self.house.values() for text in _waiting(each)]
        found += [
            f"{process.name} has not noticed that a stream of it is cut"
            for process in self.loop.processes
            if any(transport.is_cut for transport in process.transports)
        ]
        views: dict[str, dict[tuple[str, ...], str]] = {}
        for name, client in self.clients.items():
            program = client.program
            if not client.is_up or program is None:
                client.start()
                found.append(f"{name} is not there")
            elif program.is_over:
                self._reopen(client)
                found.append(f"{name} is not there any more")
            else:
                found += program.unrest
                for group, (id_, members) in program.views().items():
                    if id_:
                        views.setdefault(group, {})[id_, *members] = name
        for group, shown in views.items():
            if len(shown) > 1:
                found.append(f"{' and '.join(shown.values())} have different views of {group}")
        return found

    async def _probe(self) -> None:
        world, outcome = self.world, self._outcome
        tags: dict[str, list[str]] = {}
        for client in self.clients.values():
            life, program = client.lives[-1], client.program
            if program is None:
                continue
            for group in sorted(life.wanted):
                before = set(life.sent)
                program.act(ClientAct(world.now_ns, client.plan.name, Did.SEND, (group,), 1, 60))
                await asyncio.sleep(0.001)
                tags.setdefault(group, []).extend(set(life.sent) - before)

        def missing() -> list[str]:
            lacks = []
            for client in self.clients.values():
                life = client.lives[-1]
                got = {getattr(event, "tag", "") for queue in life.queues.values() for event in queue}
                for group in sorted(life.wanted):
                    lacks += [
                        f"{client.plan.name} has not got {tag} of {group}" for tag in tags[group] if tag not in got
                    ]
            return lacks

        unrest = await self._rest(lambda: [*missing(), *self._unrest()], PROBE_NS)
        if unrest:
            outcome.failures.append(f"probe: {'; '.join(unrest[:6])}")
            return
        outcome.is_quiet = True
        self._is_probed = bool(tags)  # somebody is in a group at the end

    # Judgement. -------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        world, outcome, scenario = self.world, self._outcome, self.plan.scenario
        outcome.rows = rows = world.rows()
        outcome.stats = stats = count_rows(world, rows)
        lives = [life for client in self.clients.values() for life in client.lives]
        stats.confirmed = sum(sent.fate == "confirmed" for life in lives for sent in life.sent.values())
        stats.uncertain = sum(life.uncertain for life in lives)
        outcome.failures += self.bounds.faults
        outcome.failures += judge_clients(self.plan, lives, rows, outcome.is_quiet)
        has_components = scenario.topology is not None
        outcome.verdict = check_all(
            rows,
            clock="virtual",
            quiet=outcome.is_quiet,
            expect=PROBED if self._is_probed else (),
            min_members=scenario.rule_of,
            partitions=CONTINUE if has_components else QUORUM,
        )
        outcome.failures += told_violations(outcome.verdict)

    def _on_exception(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = context.get("message", "")
        if self._is_over or "was destroyed" in text:
            return
        self._exceptions.append(f"exception: {text}: {type(error).__name__}: {error}")


class _Nobody:
    """Faults of the applications are acts here."""

    def stall(self, name: str) -> None: ...

    def unstall(self, name: str) -> None: ...

    def leave(self, name: str) -> None: ...

    def rejoin(self, name: str) -> None: ...

    def reset(self, name: str, min_members: int | None) -> None: ...

    def expel(self, name: str, member: str) -> None: ...
