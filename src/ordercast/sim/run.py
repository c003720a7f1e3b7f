"""Run a scenario to its end and judge it.

1. Everything of the scenario happens; afterwards all faults end, but nodes that are down stay down.
2. The group must come to rest with empty buffers: first with the links as lossy as they are, then without loss.
3. The liveness probe: every live member sends one message more, and all of them must get all of these.
4. The checkers judge the trace.

A group that may stand still (`checkers/stuck.py` has the four reasons) is not asked for 2 and 3: such runs are counted
by their reason (`excuse`), as are those in which no member is left (`is_deserted`), or all wait for more members
(`is_short`). A run in which messages were handed
over and none was ever delivered is a failure: it would hold every property for want of evidence.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from ordercast.config import LAN_DATAGRAM, MAX_BLOCK, MS, SECOND
from ordercast.errors import OrdercastError
from ordercast.groups.caller import WINDOW_BYTES
from ordercast.groups.engines import EngineFactory
from ordercast.orderers.token.calls import MAX_WAITING
from ordercast.service import AGREED
from ordercast.sim.calling import SimCaller
from ordercast.sim.checkers import Verdict, check_all
from ordercast.sim.checkers.attendance import short_members
from ordercast.sim.checkers.chain import branches
from ordercast.sim.checkers.restarts import KeptView, ResetSpan, broken_restarts, linked_views
from ordercast.sim.checkers.stalled import stall_failures
from ordercast.sim.checkers.stuck import Excuse, LifeSpan, excuse_of
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.faults import FaultKind, Faults
from ordercast.sim.fencing import broken_tokens
from ordercast.sim.lives import late_applications, life_spans, possible_expulsions, troubles_of
from ordercast.sim.member import SimMember
from ordercast.sim.network import SOCKET_OVERHEAD_BYTES
from ordercast.sim.resets import broken_resets
from ordercast.sim.scenario import CallPlan, Scenario
from ordercast.sim.statistics import Statistics, count
from ordercast.sim.traffic import CallDriver, LoadDriver
from ordercast.sim.world import Livelock, World
from ordercast.trace.schema import Row
from ordercast.view import Reason
from ordercast.wire.header import HEADER_BYTES
from ordercast.wire.returns import decode_kept

# How long the group may take to come to rest while links are still lossy. Chance has no bound, so after that the loss
# ends as well: what is demanded is rest on links that work.
LOSSY_REST_NS: Final = 20 * SECOND
REST_NS: Final = 90 * SECOND  # and then without loss
LEAVE_NS: Final = (
    15 * SECOND
)  # a leave is bounded: after so long on links that work a leaver is out, also of a stuck group
PROBE_NS: Final = 30 * SECOND
PROBE_ROUNDS: Final = 3
PROBE_BYTES: Final = 60
PROBED: Final = ("well_formed", "integrity", "total_order", "virtual_synchrony", "liveness")
"""Properties that have something to examine once the probe has been delivered."""
MAX_VIOLATIONS: Final = 10  # of the checkers, in `failures`
PEAK_FACTOR: Final = 2
PEAK_BLOCKS: Final = 16
"""What an engine may hold that is not stable: twice the history (what is ordered, and as much that waits for that), and
for each member a largest block, or so many small ones, that was on its way when the bound was reached."""

COMING_AND_GOING: Final = frozenset(
    (FaultKind.JOIN, FaultKind.LEAVE, FaultKind.REJOIN, FaultKind.STALL, FaultKind.EXPEL, FaultKind.FORGE)
)
NOT_RECEIVED: Final = "its application has not received"  # what an evicted member is told
EVICTION_SLACK_NS: Final = 200 * MS  # an application may leave events in the queue for so long (`chance.py`)
INTERRUPTIONS: Final = frozenset((FaultKind.PAUSE, FaultKind.CUT, FaultKind.PARTITION, FaultKind.LOSSY))
SHORT_NS: Final = 500 * MS  # of all interruptions together; silence is suspected after 1.3 s
STEADY_LOSS: Final = 0.1

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(slots=True)
class Outcome:
    """What became of a run. `failures` is empty if everything held."""

    scenario: Scenario
    failures: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    # how it ended
    is_quiet: bool = False
    excuse: Excuse | None = None  # why the group may stand still, where it does
    is_deserted: bool = False
    is_short: bool = False  # all members are in one view, and wait for more (`checkers/attendance.py`)
    stats: Statistics = field(default_factory=Statistics)
    # evidence
    rows: list[Row] = field(default_factory=list)
    digest: str = ""

    @property
    def held(self) -> bool:
        return not self.failures

    @property
    def is_stuck_legally(self) -> bool:
        return self.excuse is not None

    @property
    def command(self) -> str:
        return self.scenario.command

    def as_json(self) -> dict[str, Any]:
        """Everything but the rows."""
        return {
            "held": self.held,
            "failures": self.failures,
            "command": self.command,
            "quiet": self.is_quiet,
            "stuck_legally": self.is_stuck_legally,
            "stuck": self.excuse,
            "deserted": self.is_deserted,
            "short": self.is_short,
            **self.stats.as_json(),
            "rows": len(self.rows),
            "digest": self.digest,
            "verdict": self.verdict.as_json() if self.verdict is not None else None,
        }


def run_scenario(
    scenario: Scenario,
    patch: Patch | None = None,
    *,
    engines: EngineFactory | None = None,
    watch: Callable[[Cluster], None] | None = None,
) -> Outcome:
    """Run and judge. `patch` makes a context that is held around the run: how tests plant a bug in an engine.

    `engines` makes other engines than the real ones, and `watch` sees the cluster before it begins.
    """
    with patch() if patch is not None else nullcontext():
        return _Run(scenario, engines, watch).outcome()


class _Run:
    """One run, phase by phase."""

    __slots__ = ("_cluster", "_faults", "_outcome", "_scenario")

    def __init__(
        self, scenario: Scenario, engines: EngineFactory | None, watch: Callable[[Cluster], None] | None
    ) -> None:
        self._scenario = scenario
        self._outcome = Outcome(scenario)
        terms = Terms(
            config=scenario.group_config(),
            min_members=scenario.min_members,
            recovery="manual" if scenario.recovery == "manual" else "automatic",
            timing=scenario.node_timing(),
        )
        self._cluster = cluster = Cluster(
            f"{scenario.orderer}/{scenario.seed}",
            scenario.network_model(),
            terms,
            event_limit=scenario.event_limit,
            engines=engines,
            topology=scenario.topology,
        )
        for index, name in enumerate(scenario.nodes):
            delay_ns = scenario.take_delays_ns[index] if scenario.take_delays_ns else 0
            cluster.add(
                name,
                buffer_bytes=scenario.buffer_bytes,
                take_delay_ns=delay_ns,
                has_multicast=name not in scenario.without_multicast,
                rule=scenario.rule_of[name],
                has_folder=name in scenario.folders,
            )
            start_ns = scenario.starts_ns[index] if scenario.starts_ns else 0
            if start_ns >= 0:
                cluster.world.at(start_ns, cluster.world.start, name)
        for name in scenario.callers:
            cluster.add_caller(
                name, buffer_bytes=scenario.buffer_bytes, has_multicast=name not in scenario.without_multicast
            )
            cluster.world.at(0, cluster.world.start, name)
        for load in scenario.loads:
            LoadDriver(cluster, load)
        for plan in scenario.calls:
            CallDriver(cluster, plan)
        for use in scenario.locks:
            cluster.world.at(use.at_ns, cluster.members[use.node].holding.want, use)
        self._faults = Faults(cluster.world, cluster, scenario.faults)
        if watch is not None:
            watch(cluster)

    def outcome(self) -> Outcome:
        self._outcome.failures += broken_off(self._phases, self._cluster.world)
        self._judge()
        return self._outcome

    def _phases(self) -> None:
        cluster, world, outcome = self._cluster, self._cluster.world, self._outcome
        world.run_until(self._scenario.last_ns)
        self._faults.heal_all()
        unrest = cluster.run_to_rest(world.now_ns + LOSSY_REST_NS)
        if unrest:
            world.network.end_losses()
            if self._excuse() is None:
                unrest = cluster.run_to_rest(world.now_ns + REST_NS)
        self._check_leavers(world.now_ns - LEAVE_NS if unrest else world.now_ns)
        if self._is_over(unrest):
            return
        if unrest:
            outcome.failures.append(f"not at rest at {world.now_ns / SECOND:.3f} s: {'; '.join(unrest)}")
            return
        self._probe()

    def _is_over(self, unrest: list[str]) -> bool:
        """Whether no member is left, or too few to go on: nothing more can be asked of such a group."""
        outcome = self._outcome
        outcome.is_deserted = not self._live()
        outcome.excuse = self._excuse() if unrest else None
        outcome.is_short = bool(unrest) and not outcome.is_deserted and not outcome.excuse and self._is_short()
        return outcome.is_deserted or outcome.is_stuck_legally or outcome.is_short

    def _kept(self) -> list[KeptView]:
        """What nodes have put on their disks, in the order of time."""
        found: list[KeptView] = []
        for name, node in self._cluster.world.nodes.items():
            for at_ns, entry in node.folder.history if node.folder is not None else ():
                view = decode_kept(entry).view
                found.append(KeptView(name, at_ns, view.id, tuple(map(str, view.members)), view.reason.name.lower()))
        return sorted(found, key=lambda kept: kept.at_ns)

    def _is_short(self) -> bool:
        """Whether the group has come together, has nothing to do, and is too small for all of its members to take part
        in it."""
        rows, scenario = self._cluster.world.rows(), self._scenario
        lives = {life.member: life for life in self._lives(rows)}
        linked = linked_views(rows, lives, scenario.rule_of, self._kept())
        short = short_members(rows, scenario.rule_of, scenario.bootstrap, linked)
        live = {str(member) for member in self._live()}
        views = [{str(member) for member in view.members} for view in self._cluster.views()]
        ports = [member.port for member in self._live()]
        is_at_rest = all(port is not None and port.engine.is_at_rest() for port in ports)
        return is_at_rest and views == [live] and live <= short

    def _live(self) -> list[SimMember]:
        return [member for member in self._cluster.members.values() if member.node.is_up and member.is_wanted]

    def _check_leavers(self, since_ns: int) -> None:
        """No standstill excuses a leave that was asked for before `since_ns` and has not ended."""
        for member in self._cluster.members.values():
            wishes = member.wishes.get(member.node.life, [])
            is_leaving = member.node.is_up and member.port is not None and member.port.gone is None and wishes
            if is_leaving and not wishes[-1].is_join and wishes[-1].at_ns < since_ns:
                text = f"{member} asked to leave at {wishes[-1].at_ns / SECOND:.3f} s and is not out"
                self._outcome.failures.append(f"leave: {text}")

    def _excuse(self) -> Excuse | None:
        rows, scenario = self._cluster.world.rows(), self._scenario
        lives = self._lives(rows)
        troubles = troubles_of(scenario.faults, scenario.nodes, scenario.topology)
        return excuse_of(rows, lives, troubles, scenario.rule_of, is_manual=scenario.recovery == "manual")

    def _lives(self, rows: list[Row]) -> list[LifeSpan]:
        heirs = {name: member.heirs for name, member in self._cluster.members.items()}
        return life_spans(self._cluster.members, rows, heirs)

    def _probe(self) -> None:
        """All live members send, and all get everything; at the end exactly these are in one view.

        A crash, or a pause that has only just ended, may still have to be noticed: members that join again after a
        probe was sent do not get it. So there are several rounds, with rest between them that is longer than
        suspicion takes; one of them must succeed. Where nothing failed there is one.
        """
        cluster, world, outcome = self._cluster, self._cluster.world, self._outcome
        rounds = 1 if is_steady(self._scenario) else PROBE_ROUNDS
        hold_ns = cluster.terms.timing.suspect_rest_ns + SECOND
        missing: list[str] = []
        for _ in range(rounds):
            members = self._live()
            views = {member.view.id for member in members if member.view is not None}
            probe = _Probe(members, [caller for caller in cluster.callers.values() if caller.node.is_up])
            world.run_until(lambda probe=probe: not probe.missing(), world.now_ns + PROBE_NS)  # type: ignore[misc]
            unrest = cluster.run_to_rest(world.now_ns + REST_NS, hold_ns)
            if self._is_over(unrest):
                return
            if unrest:
                outcome.failures.append(f"not at rest after the probe: {'; '.join(unrest)}")
                return
            missing = probe.missing()
            if not views & {view.id for view in cluster.views()}:
                missing = missing or ["all members are in another view than before"]
            if not missing:
                self._check_members(members)
                outcome.is_quiet = True
                return
        outcome.failures.append(f"probe: in {rounds} rounds {'; '.join(missing)}")

    def _check_members(self, members: list[SimMember]) -> None:
        for view in self._cluster.views():
            names, live = sorted(map(str, view.members)), sorted(map(str, members))
            if names != live:
                text = f"at rest view {view.id} has {', '.join(names)}; alive are {', '.join(live)}"
                self._outcome.failures.append(f"members: {text}")
        for member in members:
            # Every member that wanted a lock has had it and given it back by now.
            if member.view is not None and member.view.locks:
                locks = ", ".join(f"{key!r} of {holder:016x}" for key, holder in sorted(member.view.locks.items()))
                self._outcome.failures.append(f"locks: at rest {member} still sees {locks} held")

    def _judge(self) -> None:
        cluster, world, outcome = self._cluster, self._cluster.world, self._outcome
        outcome.rows = world.rows()
        outcome.digest = digest_of(world)
        outcome.stats = stats = count(cluster, outcome.rows)
        outcome.failures += [f"corrupt: {text}" for text in cluster.corruptions()]
        is_over = outcome.is_stuck_legally or outcome.is_deserted or outcome.is_short
        if stats.submitted and not stats.delivered and not is_over:
            outcome.failures.append(f"vacuous: {stats.submitted} messages were handed over, none was delivered")
        if stats.socket_drops and is_calm(self._scenario):
            outcome.failures.append(
                f"flow control: sockets dropped {stats.socket_drops} datagrams, and nothing was wrong"
            )
        self._check_peaks()
        verdict = check_all(
            outcome.rows,
            clock="virtual",
            quiet=outcome.is_quiet,
            expect=PROBED if outcome.is_quiet else (),
            min_members=self._scenario.rule_of,
            bootstrap=self._scenario.bootstrap,
        )
        outcome.verdict = verdict
        outcome.failures += told_violations(verdict)
        outcome.failures += broken_tokens([member.seen.tokens for member in cluster.members.values()])
        lives = self._lives(outcome.rows)
        kept = self._kept()
        views = linked_views(outcome.rows, {life.member: life for life in lives}, self._scenario.rule_of, kept)
        outcome.failures += branches(views, self._scenario.rule_of)
        resets = [call for member in cluster.members.values() for call in member.seen.resets]
        scenario = self._scenario
        troubles = troubles_of(scenario.faults, scenario.nodes, scenario.topology)
        is_untroubled = not troubles
        wait_ns = cluster.terms.timing.restart_wait_ns
        patience_ns = scenario.patience_ns - EVICTION_SLACK_NS if scenario.slow == "evict" else None
        put_out = possible_expulsions(scenario.faults, patience_ns, scenario.last_ns)
        done = [ResetSpan(call.rule, call.size, call.asked_ns, call.ended_ns) for call in resets if call.size]
        rules = scenario.rule_of
        outcome.failures += broken_restarts(outcome.rows, lives, troubles, rules, wait_ns, put_out, done, kept)
        outcome.failures += broken_resets(resets, outcome.rows, is_untroubled=is_untroubled)
        outcome.failures += self._stall_failures(outcome.rows)
        outcome.failures += needless_evictions(outcome.rows, self._scenario)
        if is_steady(self._scenario):
            failed = [str(member) for member in cluster.members.values() if member.seen.failures]
            outcome.failures += needless_recoveries(outcome.rows, failed)

    def _stall_failures(self, rows: Sequence[Row]) -> list[str]:
        """Members that stand still have to say so, and why; a run that ends stuck is not excused from that."""
        scenario, cluster = self._scenario, self._cluster
        return stall_failures(
            rows,
            life_spans(cluster.members, rows),
            troubles_of(scenario.faults, scenario.nodes, scenario.topology),
            late_applications(scenario.faults, scenario.nodes, scenario.take_delays_ns, scenario.last_ns),
            cluster.world.now_ns,
            is_stuck=self._outcome.is_stuck_legally,
        )

    def _check_peaks(self) -> None:
        """Buffers are bounded by the history that the group was created with, and by what recovery brings in.

        Callers come on top: their windows know the members' buffers, and not how far the history is filled.
        """
        outcome, scenario, stats = self._outcome, self._scenario, self._outcome.stats
        # Blocks are no larger than the history; a call is never cut, and may be.
        call = max((calls.size for calls in scenario.calls), default=0)
        block = _buffered(scenario, max(min(MAX_BLOCK, scenario.history_bytes), call))
        called = sum(_called(scenario, calls) for calls in scenario.calls if calls.node in scenario.callers)
        most_bytes = PEAK_FACTOR * scenario.history_bytes + len(scenario.nodes) * block + called
        most_blocks = PEAK_FACTOR * scenario.history_blocks + PEAK_BLOCKS * len(scenario.nodes)
        if stats.peak_bytes > most_bytes or stats.peak_blocks > most_blocks:
            outcome.failures.append(
                f"buffers: an engine held {stats.peak_bytes} bytes in {stats.peak_blocks} blocks, where a history "
                f"of {scenario.history_bytes} bytes and {scenario.history_blocks} blocks leaves room for {most_bytes} "
                f"and {most_blocks}"
            )


def broken_off(phases: Callable[[], None], world: World) -> list[str]:
    """Go through the phases of a run; what ended them early, in words."""
    try:
        phases()
    except Livelock as error:
        return [f"livelock: {error}"]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        text = f"{kind} at {world.now_ns / MS:.3f} ms in {where.name}, line {where.lineno}: {error}"
        more = [] if isinstance(error, OrdercastError) else [traceback.format_exc(limit=-6)]
        return [f"exception: {text}", *more]
    return []


def digest_of(world: World) -> str:
    """Two runs with the same digest have the same trace."""
    digest = hashlib.sha256()
    for recorder in world.recorders():
        digest.update(recorder.dump())
    return digest.hexdigest()


def told_violations(verdict: Verdict) -> list[str]:
    """What the checkers found, in words: the first of it."""
    texts = [f"vacuous: {name} examined nothing, though the probe was sent" for name in verdict.vacuous]
    found = [str(violation) for violation in verdict.violations]
    texts += found[:MAX_VIOLATIONS]
    if len(found) > MAX_VIOLATIONS:
        texts.append(f"and {len(found) - MAX_VIOLATIONS} violations more")
    return texts


def _buffered(scenario: Scenario, nbytes: int) -> int:
    """What so many bytes take of a buffer, as engines count: datagrams with their headers and the kernel's overhead."""
    return _in_datagrams(scenario.datagram, nbytes)


def _in_datagrams(datagram: int, nbytes: int) -> int:
    return nbytes + (nbytes // (datagram - HEADER_BYTES) + 1) * (HEADER_BYTES + SOCKET_OVERHEAD_BYTES)


def _called(scenario: Scenario, calls: CallPlan) -> int:
    """What a caller's calls take of a buffer. Its window counts bytes in datagrams of its own size, not of the group's.
    Calls without an acknowledgement have no window: a member keeps so many of them that wait."""
    most = max(1, WINDOW_BYTES // _in_datagrams(LAN_DATAGRAM, calls.size)) if calls.wants_ack else MAX_WAITING
    return min(calls.count, most) * _buffered(scenario, calls.size)


def is_calm(scenario: Scenario) -> bool:
    """Nothing is lost, doubled or broken from outside: a drop by a socket is then a bug (overview.md section 6)."""
    models = scenario.topology.models.values() if scenario.topology is not None else ()
    is_broken = any(fault.kind != FaultKind.JOIN for fault in scenario.faults)
    return not (scenario.loss or scenario.duplicate or is_broken or any(each.loss or each.duplicate for each in models))


def is_steady(scenario: Scenario) -> bool:
    """Nothing fails: members come and go, applications stop receiving, some stand still or are cut off for less time
    than anybody is suspected after, and no more is lost than a few retries make up for.

    What is not steady, and why: a crash is a failure. A processor that is slowed down a hundred times may need seconds
    for one datagram. A call of `reset` asks for a recovery. With a loss of more than a tenth, ten tries in a row fail
    often enough to be seen (with 0.3 both ways, half of all exchanges fail). A pipe between sites drops whatever its
    queue has no room for, and how much that is depends on what is sent.
    """
    if scenario.topology is not None:
        return False
    short_ns = sum(fault.for_ns for fault in scenario.faults if fault.kind in INTERRUPTIONS)
    kinds = {fault.kind for fault in scenario.faults}
    return scenario.loss <= STEADY_LOSS and short_ns <= SHORT_NS and kinds <= COMING_AND_GOING | INTERRUPTIONS


def needless_evictions(rows: Sequence[Row], scenario: Scenario) -> list[str]:
    """Members that were evicted although their applications did not stand still for the group's patience. Where
    processors are slow, or nodes are paused, their applications are, too: those runs are not judged."""
    texts: list[str] = []
    kinds = {fault.kind for fault in scenario.faults}
    if kinds & {FaultKind.PAUSE, FaultKind.SLOW}:
        return texts
    for row in rows:
        if row.kind == "leave" and NOT_RECEIVED in (row.detail or ""):
            stalls = [fault for fault in scenario.faults if fault.kind == FaultKind.STALL and row.node in fault.nodes]
            if scenario.slow == "wait" or not any(
                fault.at_ns <= row.at_ns - scenario.patience_ns + EVICTION_SLACK_NS for fault in stalls
            ):
                texts.append(f"eviction: {row.node} at {row.at_ns / SECOND:.3f} s, and its application received")
    return texts


def needless_recoveries(rows: Sequence[Row], failed: Sequence[str]) -> list[str]:
    """What is wrong with a run in which nothing failed: somebody was suspected, and a recovery followed.

    `failed`: the members that were told so, where recovery is manual.
    """
    reset = Reason.RESET.name.lower()
    texts: list[str] = []
    broken = {row.view or "" for row in rows if row.kind == "transitional"}
    broken |= {row.view or "" for row in rows if row.kind == "view" and row.detail == reset}
    if broken:
        texts.append(f"steadiness: a recovery from or to {', '.join(sorted(broken))}, and nothing had failed")
    if failed:
        texts.append(f"steadiness: {', '.join(failed)} saw the group fail, and nothing had failed")
    return texts


class _Probe:
    """One message from each member and one call from each caller, and which of them are missing where."""

    __slots__ = ("_before", "_calls", "_members", "_senders")

    def __init__(self, members: list[SimMember], callers: list[SimCaller]) -> None:
        self._members = members
        self._before = {str(member): dict(member.seen.delivered_by) for member in members}
        self._senders = [str(each) for each in (*members, *callers)]
        for member in members:
            member.send(1, AGREED, PROBE_BYTES)
        self._calls = [(caller, caller.probe(PROBE_BYTES, PROBE_NS)) for caller in callers]

    def missing(self) -> list[str]:
        texts = [
            f"{member} has not got {sender}'s"
            for member in self._members
            for sender in self._senders
            if member.seen.delivered_by[sender] <= self._before[str(member)].get(sender, 0)
        ]
        for caller, call in self._calls:
            if call is not None and call.answer is None:
                texts.append(f"{caller} has no acknowledgement")
        return texts
