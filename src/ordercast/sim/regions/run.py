"""Run a scenario of nodes on regions to its end, and judge it.

1. Everything of the plan happens. Then all faults end: replicas that are down are started, applications receive again.
   Nodes that are down stay down.
2. All must come to rest: the replicas agree and one of them leads, the service knows the nodes that live and no others,
   all epochs are settled, every node is in its groups, its sends have ended, all members of a group see the same ones.
3. A probe: every node sends to each of its groups, and to all groups at once. All members must get that.
4. The checkers judge the trace.

A service that has lost the majority of its replicas stands still for good, as any token group does. So replicas are
made to crash only while all of them are there, and the run never has to be excused.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from ordercast.config import MS, SECOND
from ordercast.errors import OrdercastError
from ordercast.gms.dump import dump
from ordercast.gms.replica import GmsReplica
from ordercast.sim.checkers import check_all
from ordercast.sim.faults import Faults
from ordercast.sim.loop import SimulationStuck, run_in_world
from ordercast.sim.regions.house import RegionMachine
from ordercast.sim.regions.plan import (
    OF_REPLICAS,
    REGION_LEADER,
    SERVICE_LEADER,
    Deed,
    RegionAct,
    RegionsPlan,
)
from ordercast.sim.regions.program import RegionProgram
from ordercast.sim.run import Outcome, Patch, digest_of, told_violations
from ordercast.sim.statistics import count_rows
from ordercast.sim.world import Livelock, World

REST_NS: Final = 150 * SECOND
"""From the end of all faults on. A node that owes a confirmation is excluded after 30 s, and comes back."""
STEP_S: Final = 0.0973
"""Between two looks. Tokens leave at whole seconds: at each of them something is under way."""
CALM_LOOKS: Final = 4
"""So many looks in a row have to find nothing."""
PROBE_NS: Final = 30 * SECOND
LIMIT_NS: Final = 600 * SECOND
RETRY_NS: Final = 300 * MS  # a replica is not started while the network is in parts: it would begin another service
MIN_REPLICAS: Final = 3
PROBED: Final = ("well_formed", "integrity", "region_views", "group_fifo", "regional", "liveness")


def run_regions(plan: RegionsPlan, patch: Patch | None = None) -> Outcome:
    """Run and judge. `patch` makes a context that is held around the run: how tests plant a bug."""
    with patch() if patch is not None else nullcontext():
        return RegionsRun(plan).outcome()


class RegionsRun:
    """One run, phase by phase."""

    def __init__(self, plan: RegionsPlan) -> None:
        scenario = plan.scenario
        self.plan = plan
        self._outcome = Outcome(scenario)
        self.world = World(
            f"{scenario.orderer}/{scenario.seed}", scenario.network_model(), event_limit=scenario.event_limit
        )
        self._faults: Faults | None = None
        self._is_healed = False
        self._is_over = False
        self._exceptions: list[str] = []
        keepers = [RegionMachine(self.world, plan, name, None) for name in plan.replicas]
        nodes = [RegionMachine(self.world, plan, node.name, node) for node in plan.nodes]
        self.machines = {machine.name: machine for machine in (*keepers, *nodes)}

    def outcome(self) -> Outcome:
        outcome, world = self._outcome, self.world
        try:
            run_in_world(world, self._program(), LIMIT_NS)
        except (Livelock, SimulationStuck) as error:
            outcome.failures.append(f"livelock: {error}")
        except Exception as error:  # of an engine: also a loop in it, which the fuzzer ends
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__} at {world.now_ns / MS:.3f} ms in {where.name}, line {where.lineno}: {error}"
            outcome.failures += [f"exception: {text}", traceback.format_exc(limit=-8)]
        outcome.failures += self._exceptions
        outcome.digest = digest_of(world)
        return outcome

    async def _program(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_exception)
        try:
            await self._phases()
        finally:
            self._is_over = True
            self._judge()

    # What happens. ----------------------------------------------------------------------------------------------------

    async def _act_all(self) -> None:
        """Everything in its order: starts of machines and acts."""
        world = self.world
        todo: list[tuple[int, Callable[[], None]]] = [(0, self.machines[name].start) for name in self.plan.replicas]
        todo += [(node.start_ns, self.machines[node.name].start) for node in self.plan.nodes]
        todo += [(act.at_ns, partial(self._act, act)) for act in self.plan.acts]
        for at_ns, action in sorted(todo, key=lambda each: each[0]):
            if at_ns > world.now_ns:
                await self._until(at_ns)
            action()

    async def _until(self, at_ns: int) -> None:
        await asyncio.sleep(max(0, at_ns - self.world.now_ns) / SECOND)

    def _act(self, act: RegionAct) -> None:
        if act.kind in OF_REPLICAS:
            self._act_on_service(act)
            return
        machine = self._target(act)
        if machine is None or machine.program is None or not machine.is_up:
            return
        match act.kind:
            case Deed.CRASH | Deed.KILL | Deed.CLOSE:
                if machine.replica is not None and not self._is_service_whole():
                    return
                if act.kind is Deed.CLOSE:
                    machine.close()
                else:
                    machine.crash(is_process=act.kind is Deed.KILL)
                if act.for_ns:
                    self._later(act.for_ns, machine)
            case Deed.STALL:
                program = machine.program
                program.stall(True)
                asyncio.get_running_loop().call_later(act.for_ns / SECOND, program.stall, False)
            case _:
                if not machine.program.is_closing:
                    machine.program.act(act)

    def _target(self, act: RegionAct) -> RegionMachine | None:
        if act.who != REGION_LEADER:
            return self.machines[act.who]
        for machine in self._nodes():
            program = machine.program
            if machine.is_up and program is not None and program.leads_region:
                return machine
        return None

    def _act_on_service(self, act: RegionAct) -> None:
        if not self._is_service_whole():
            return
        replicas = self._replicas()
        if act.kind is Deed.CRASH_SERVICE:
            names = list(replicas)
        elif act.who == SERVICE_LEADER:
            names = [name for name, replica in replicas.items() if replica.desk.is_leading]
        else:
            names = [act.who]
        for machine in [self.machines[name] for name in names]:
            if act.kind is Deed.STOP_REPLICA:
                machine.close()
            else:
                machine.crash()
            self._later(act.for_ns, machine)

    def _later(self, for_ns: int, machine: RegionMachine) -> None:
        asyncio.get_running_loop().call_later(for_ns / SECOND, self._start, machine)

    def _start(self, machine: RegionMachine) -> None:
        if self._is_over or (machine.is_up and not machine.is_closing):
            return
        if machine.is_up or (machine.keeps_service and self.world.network.is_parted):
            self._later(RETRY_NS, machine)
        else:
            machine.start()

    def _nodes(self) -> Iterator[RegionMachine]:
        for node in self.plan.nodes:
            yield self.machines[node.name]

    def _replicas(self) -> dict[str, GmsReplica]:
        found = {name: machine.replica for name, machine in self.machines.items()}
        return {name: replica for name, replica in found.items() if replica is not None}

    def _is_service_whole(self) -> bool:
        """Whether all replicas are in one group, and enough of them that one may fail."""
        replicas = self._replicas()
        if len(replicas) < MIN_REPLICAS or self.world.network.is_parted:
            return False
        return all(len(replica.members) == len(replicas) for replica in replicas.values())

    # Phases. ----------------------------------------------------------------------------------------------------------

    async def _phases(self) -> None:
        self._faults = Faults(self.world, _Nobody(), self.plan.scenario.faults)
        acting = asyncio.get_running_loop().create_task(self._act_all())
        await self._until(self.plan.last_ns)
        await acting
        self._is_healed = True
        self._faults.heal_all()
        for machine in self.machines.values():
            if machine.program is not None:
                machine.program.stall(False)
        unrest = await self._rest(self._unrest, REST_NS)
        if unrest:
            at = f"{self.world.now_ns / SECOND:.3f} s"
            self._outcome.failures.append(f"not at rest at {at}: {'; '.join(unrest[:6])}")
            return
        await self._probe()

    async def _rest(self, unrest: Callable[[], list[str]], for_ns: int) -> list[str]:
        """Until nothing is to be done for some looks; or what is."""
        world = self.world
        end_ns, calm = world.now_ns + for_ns, 0
        while True:
            found = unrest()
            calm = calm + 1 if not found else 0
            if calm >= CALM_LOOKS:
                return []
            if found and world.now_ns >= end_ns:
                return found
            await asyncio.sleep(STEP_S)

    def _unrest(self) -> list[str]:
        found = self.world.unrest()
        live: list[RegionProgram] = []
        for machine in self.machines.values():
            if machine.keeps_service and not machine.is_up:
                self._start(machine)
                found.append(f"{machine.name} is down")
            elif machine.program is not None and machine.is_up:
                live.append(machine.program)
                found += machine.program.unrest
        found += self._service_unrest(live)
        for name in sorted({name for program in live for name in program.wanted}):
            members = sorted(str(program) for program in live if name in program.wanted)
            for program in live:
                shown = sorted(program.view_of(name)) if name in program.wanted else members
                if shown != members:
                    found.append(f"{program} sees {', '.join(shown) or 'nobody'} in {name}, not {', '.join(members)}")
        return found

    def _service_unrest(self, live: list[RegionProgram]) -> list[str]:
        """What the replicas still have to agree on."""
        replicas = self._replicas()
        found = [f"the replica at {name} is not ready" for name, each in replicas.items() if not each.is_ready]
        leaders = [name for name, each in replicas.items() if each.desk.is_leading]
        if len(leaders) != 1:
            found.append(f"the service is led by {', '.join(leaders) or 'nobody'}")
        if len({dump(each.desk.directory) for each in replicas.values()}) > 1:
            found.append("the replicas disagree")
        for name, replica in replicas.items():
            if len(replica.members) != len(replicas):
                found.append(f"the replica at {name} is with {', '.join(replica.members)}")
        if not found:
            directory = replicas[leaders[0]].desk.directory
            known = {node.member.id for node in directory.nodes.values()}
            wanted = {program.node.member.id for program in live if program.is_wanted}
            if known != wanted:
                found.append(f"the service knows {len(known)} nodes, of which {len(known & wanted)} of {len(wanted)}")
            if directory.settled != directory.epoch:
                found.append(f"epochs are settled up to {directory.settled} of {directory.epoch}")
        return found

    async def _probe(self) -> None:
        live = [each.program for each in self._nodes() if each.is_up and each.program is not None]
        groups = sorted({name for program in live for name in program.wanted})
        owed: list[tuple[RegionProgram, str]] = []
        for program in live:
            for tag, targets in program.probe(groups):
                owed += [(other, tag) for other in live if not other.wanted.keys().isdisjoint(targets)]

        def missing() -> list[str]:
            return [f"{program} has not got {tag}" for program, tag in owed if tag not in program.got]

        unrest = await self._rest(lambda: [*missing(), *self._unrest()], PROBE_NS)
        if unrest:
            self._outcome.failures.append(f"probe: {'; '.join(unrest[:6])}")
            return
        self._outcome.is_quiet = True
        self._outcome.is_deserted = not live

    # Judgement. -------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        world, outcome, scenario = self.world, self._outcome, self.plan.scenario
        outcome.rows = rows = world.rows()
        outcome.stats = stats = count_rows(world, rows)
        for machine in self._nodes():
            for program in machine.programs:
                stats.confirmed += program.confirmed
                outcome.failures += program.problems
        outcome.verdict = check_all(
            rows,
            clock="virtual",
            quiet=outcome.is_quiet,
            expect=PROBED if outcome.is_quiet and any(each.is_up for each in self._nodes()) else (),
            min_members=scenario.rule_of,
        )
        outcome.failures += told_violations(outcome.verdict)

    def _on_exception(self, _loop: object, context: dict[str, Any]) -> None:
        error, text = context.get("exception"), context.get("message", "")
        if self._is_over or "was destroyed" in text or isinstance(error, OrdercastError):
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
