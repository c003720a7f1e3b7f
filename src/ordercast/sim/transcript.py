"""Runs scripts (`ordercast.sim.script`) on a cluster and writes down what each node saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from ordercast.config import SECOND, GroupConfig
from ordercast.engine import Failed, Transitional
from ordercast.groups.engines import EngineFactory
from ordercast.groups.events import Batch, Left, MixedBatch, Uncertain
from ordercast.sim.checkers import Verdict, check_all
from ordercast.sim.checkers.chain import branches, installed_views
from ordercast.sim.checkers.stuck import Trouble, excuse_of
from ordercast.sim.cluster import Cluster, Terms
from ordercast.sim.inspection import inspect
from ordercast.sim.lives import life_spans
from ordercast.sim.member import SimMember
from ordercast.sim.network import NETWORKS
from ordercast.sim.scenario import PATIENCE_NS, CallPlan, LockUse
from ordercast.sim.script import ExpectationFailed, Script, Settings, Statement
from ordercast.sim.script_groups import SITES, OneUnderlay, ScriptSessions
from ordercast.sim.script_sites import act_on, cut_nodes, pipe_texts
from ordercast.sim.watching import WatchedNetwork
from ordercast.trace.schema import CONTINUE, QUORUM
from ordercast.underlay.sites import sites_engines
from ordercast.view import View

SETTLE_NS: Final = 30 * SECOND  # how long a group may take to form before the first statement
BEGINNINGS: Final = ("cut", "pause", "stall", "slow", "partition", "cut-site", "partition-site", "split")
"""Verbs that may keep nodes from answering."""
COUNTERS: Final = ("routes_computed", "links_opened")  # that `show counters` tells, of daemons that are up


class Transcript:
    """One run of one script. `lines` is what happened, statement by statement."""

    __slots__ = (
        "_failed",
        "_has_components",
        "_limit_ns",
        "_open",
        "_seen",
        "_sessions",
        "_settings",
        "_troubles",
        "_wire",
        "cluster",
        "lines",
    )

    def __init__(self, script: Script, engines: EngineFactory | None = None) -> None:
        settings = script.settings
        self.lines: list[str] = []
        self.cluster = _cluster(settings, engines)
        names = (*settings.nodes, *settings.callers)
        network, rng = self.cluster.world.network, self.cluster.world.stream("network")
        self._has_components = settings.orderer == SITES
        sites = network.pipes.sites if self._has_components and network.pipes is not None else ()
        self._wire = self.cluster.world.network = WatchedNetwork(network.model, rng, names, network.pipes, sites)
        self._sessions = ScriptSessions(self.cluster, self._see)
        self._settings = settings
        self._limit_ns = settings.limit_ns
        self._seen: dict[str, list[str | Counter[str]]] = {name: [] for name in settings.nodes}
        self._failed: set[str] = set()
        self._troubles: list[Trouble] = []  # that have ended
        self._open: dict[tuple[str, ...], int] = {}  # nodes in trouble -> since when

    def verdict(self, *, is_quiet: bool) -> Verdict:
        """What the checkers say about the trace."""
        rows, terms = self.cluster.world.rows(), self.cluster.terms
        return check_all(
            rows,
            clock="virtual",
            quiet=is_quiet,
            min_members=terms.min_members,
            bootstrap=terms.config.bootstrap,
            partitions=CONTINUE if self._has_components else QUORUM,
        )

    def branches(self) -> list[str]:
        """Where a view was followed by two; components may do that."""
        if self._has_components:
            return []
        return branches(installed_views(self.cluster.world.rows()), self.cluster.terms.min_members)

    def begin(self, later: frozenset[str]) -> None:
        """Start the nodes one after the other, so that the first named is the first member; then let the group form."""
        cluster, world = self.cluster, self.cluster.world
        names = [name for name in self._settings.nodes if name not in later]
        for count, name in enumerate(names, start=1):
            self._start(name)
            formed = _everybody_sees(cluster, names[:count])
            if not world.run_until(formed, world.now_ns + SETTLE_NS):
                raise ExpectationFailed(f"the group of {', '.join(names[:count])} did not form")
        for name in self._settings.callers:
            world.start(name)
        for seen in self._seen.values():
            del seen[:-1]  # how the group came to be is another script's matter
        self._note("begin")

    def do(self, statement: Statement) -> None:
        """One statement, now; what nodes saw while it ran is written below it."""
        text = statement.text
        match statement.verb:
            case "run":
                self.cluster.world.run_until(self.cluster.world.now_ns + statement.time_ns)
            case "until":
                self._until(statement)
            case "expect":
                self._expect(statement)
            case "show":
                self.lines += [f"> {text}", *(f"  {shown}" for shown in self._shown(statement.word))]
                return
            case "watch":
                self._wire.watched = frozenset(statement.others)
            case _:
                if statement.at_ns is None:
                    self._act(statement)
                else:
                    self.cluster.world.at(statement.at_ns, self._act, statement)
        self._note(text)

    def _shown(self, word: str) -> list[str]:
        """Counts so far."""
        if word == "pipes":
            return pipe_texts(self.cluster.world.pipes)
        if word == "counters":
            ports = {name: each.port for name, each in self.cluster.members.items() if each.node.is_up}
            counted = {name: inspect(port.engine).counters for name, port in ports.items() if port is not None}
            return [
                f"{name}: " + ", ".join(f"{key} {counts.get(key, 0)}" for key in COUNTERS)
                for name, counts in counted.items()
            ]
        sent = self.cluster.world.network.counters.sent_by_kind
        return [f"{kind} {sent[kind]}" for kind in sorted(sent)]

    # What nodes see. -------------------------------------------------------------------------------------------------

    def see(self, member: SimMember, event: Any) -> None:
        """Called for every event that an application takes."""
        self._see(member.node.name, event)

    def _see(self, name: str, event: Any) -> None:
        """Consecutive deliveries are summed up."""
        seen = self._seen.setdefault(name, [])
        if isinstance(event, Batch):
            if not seen or not isinstance(seen[-1], Counter):
                seen.append(Counter())
            last = seen[-1]
            if isinstance(last, Counter):
                last[event.sender.split("/")[0] + _to(event)] += event.count
        elif isinstance(event, View):
            self._failed.discard(name)
            names = " ".join(map(_short, event.members))
            reason = f"{event.reason.name.lower()} {event.subject}".rstrip()
            holders = {member.id: _short(member) for member in event.members}
            locks = "".join(f", {holders[holder]} holds {lock}" for lock, holder in sorted(event.locks.items()))
            with_whom = f", came with {_listed(event.came_with)}" if self._has_components else ""
            seen.append(f"view of {len(event.members)}: {names} ({reason}){locks}{with_whom}")
        elif isinstance(event, Transitional) and self._has_components:
            seen.append("signal")
        elif isinstance(event, Failed):
            self._failed.add(name)
            seen.append(f"failed, suspects {' '.join(event.suspects) or 'nobody'}")
        elif isinstance(event, Left):
            seen.append("left" if event.wanted else "out, and coming back" if event.returning else "out")
            if event.text.startswith("expelled"):
                seen.append(event.text)
        elif isinstance(event, Uncertain):
            seen.append(f"{event.count} messages uncertain")

    def _note(self, text: str) -> None:
        self.lines.append(f"> {text}")
        self.lines += [f"  wire: {told}" for told in self._wire.told]
        self._wire.told.clear()
        for name, seen in self._seen.items():
            for item in seen:
                if isinstance(item, Counter):
                    parts = ", ".join(f"{count} of {sender}" for sender, count in sorted(item.items()))
                    self.lines.append(f"  {name}: delivers {parts}")
                else:
                    self.lines.append(f"  {name}: {item}")
            seen.clear()

    # What statements do. ---------------------------------------------------------------------------------------------

    def _note_trouble(self, statement: Statement) -> None:
        """Which nodes may not answer some others from now on, and which do so again."""
        now_ns, names = self.cluster.world.now_ns, statement.nodes
        keys: list[tuple[str, ...]]
        match statement.verb:
            case "cut-site" | "mend-site" | "partition-site" | "split" if statement.site_act is not None:
                keys = [("cut", *pair) for pair in cut_nodes(self.cluster.world.pipes, statement.site_act)]
            case "cut" | "mend":
                keys = [("cut", name, other) for name in names for other in statement.others]
            case "pause" | "resume" | "stall" | "unstall" | "slow":
                keys = [(statement.verb.removeprefix("un").replace("resume", "pause"), name) for name in names]
            case "partition":
                keys = [("partition", *self._settings.nodes)]
            case "heal":
                keys = [key for key in self._open if key[0] in ("cut", "partition")]
            case _:
                return
        for key in keys:
            if statement.verb in BEGINNINGS:
                self._open.setdefault(key, now_ns)
            elif key in self._open:
                self._troubles.append(Trouble(self._open.pop(key), now_ns, frozenset(key[1:])))

    def _stuck(self) -> str:
        """Why the group may stand still; empty where it may not."""
        rows, now_ns = self.cluster.world.rows(), self.cluster.world.now_ns
        still = [Trouble(begin_ns, now_ns, frozenset(key[1:])) for key, begin_ns in self._open.items()]
        lives, terms = life_spans(self.cluster.members, rows), self.cluster.terms
        is_manual = terms.recovery == "manual"
        return excuse_of(rows, lives, self._troubles + still, terms.min_members, is_manual=is_manual) or ""

    def _start(self, name: str) -> None:
        self.cluster.world.start(name)
        self._sessions.attend(name)

    def _act(self, statement: Statement) -> None:
        cluster, world = self.cluster, self.cluster.world
        self._note_trouble(statement)
        network = self._wire
        if statement.session_act is not None:
            self._sessions.act(statement.session_act)
            return
        if statement.site_act is not None:
            act_on(network, world.pipes, statement.site_act)
            return
        match statement.verb:
            case "partition":
                network.partition([statement.nodes, statement.others])
            case "heal":
                network.heal()
            case "lose":
                for name in statement.others:
                    network.lose(statement.word, name, statement.number)
            case "link":
                change: dict[str, Any] = {statement.word: statement.ratio}
                network.set_model(replace(network.model, **change))
        for name in statement.nodes:
            if name in cluster.callers:
                cluster.callers[name].call(_calls(statement, name), statement.number)
                continue
            member = cluster.members[name]
            match statement.verb:
                case "call":
                    member.call(statement.number, statement.word, statement.size, statement.handler, PATIENCE_NS)
                case "lock":
                    member.holding.want(LockUse(name, statement.word, world.now_ns, statement.time_ns))
                case "send":
                    member.send(statement.number, statement.word, statement.size, statement.is_confirmed)
                case "reset":
                    member.reset(statement.number or None)
                case "start":
                    self._start(name)
                case "crash":
                    world.crash(name)
                case "kill":
                    world.crash(name, is_process=True)
                case "forge":
                    world.forge(name, statement.others)
                case "pause":
                    world.pause(name)
                case "resume":
                    world.resume(name)
                case "slow":
                    world.slow(name, statement.number)
                case "stall":
                    member.stall()
                case "unstall":
                    member.unstall()
                case "leave":
                    member.leave()
                case "expel":
                    for other in statement.others:
                        member.expel(other)
                case "rejoin":
                    member.rejoin()
                case "cut":
                    for other in statement.others:
                        network.cut(name, other)
                case "mend":
                    for other in statement.others:
                        network.mend(name, other)

    def _until(self, statement: Statement) -> None:
        world = self.cluster.world
        if statement.word in ("rest", "over"):
            unrest = self.cluster.run_to_rest(world.now_ns + self._limit_ns)
            if unrest and not (statement.word == "over" and self._stuck()):
                raise ExpectationFailed(f"line {statement.line}: not at rest: {'; '.join(unrest)}")
            return
        if not world.run_until(self._condition(statement), world.now_ns + self._limit_ns):
            waited = f"after {self._limit_ns / SECOND:g} s of virtual time"
            raise ExpectationFailed(f"line {statement.line}: {statement.text!r} {waited}: {self._state(statement)}")

    def _expect(self, statement: Statement) -> None:
        if statement.word == "rest":
            unrest = self.cluster.world.unrest() + self.cluster.unrest()
            if unrest:
                raise ExpectationFailed(f"line {statement.line}: not at rest: {'; '.join(unrest)}")
        elif not self._condition(statement)():
            raise ExpectationFailed(
                f"line {statement.line}: {statement.text!r} does not hold: {self._state(statement)}"
            )

    def _condition(self, statement: Statement) -> Callable[[], bool]:
        cluster = self.cluster
        members = [cluster.members[name] for name in statement.nodes if name in cluster.members]
        number, others = statement.number, list(statement.others)
        # `until` waits for at least so many; `expect` wants exactly so many.
        is_exact = statement.verb == "expect"

        def enough(count: int) -> bool:
            return count == number if is_exact else count >= number

        match statement.word:
            case "groups" if statement.session_act is not None:
                asked = statement.session_act
                return lambda: self._sessions.holds(asked, is_exact=is_exact)
            case "lost":
                return lambda: self._wire.has_lost_all
            case "size":
                return lambda: all(len(_names(member)) == number for member in members)
            case "members":
                return lambda: all(sorted(_names(member)) == sorted(others) for member in members)
            case "delivered":
                return lambda: all(enough(member.delivered) for member in members)
            case "confirmed":
                return lambda: all(enough(member.seen.confirmed) for member in members)
            case "granted":
                return lambda: all(enough(member.holding.granted) for member in members)
            case "answered":
                callers = [cluster.callers[name] for name in statement.nodes if name in cluster.callers]
                return lambda: all(
                    enough(count)
                    for count in [each.seen.answers for each in members] + [each.answers for each in callers]
                )
            case "failed":
                return lambda: all(member.port is not None and member.port.failure is not None for member in members)
            case "out":
                return lambda: not any(member.is_in for member in members)
            case "same":
                return lambda: len({tuple(_numbered(member)) for member in members}) == 1
        raise ValueError(f"no condition is called {statement.word!r}")

    def _state(self, statement: Statement) -> str:
        """What there is instead of what was expected."""
        if statement.session_act is not None:
            return self._sessions.state(statement.session_act)
        return "; ".join(
            f"{member} delivered {member.delivered}, confirmed {member.seen.confirmed}, "
            f"{'in the view of ' + ' '.join(_names(member)) if member.is_in else 'not in'}"
            for member in (self.cluster.members[name] for name in statement.nodes if name in self.cluster.members)
        )


def run_script(script: Script, engines: EngineFactory | None = None) -> Transcript:
    """Run a script to its end; `ExpectationFailed` where it does not do what the script says.

    Nodes that a `start` statement names begin only there.
    """
    transcript = Transcript(script, engines)
    for member in transcript.cluster.members.values():
        member.on_event = transcript.see
    crashed: set[str] = set()
    later: set[str] = set()
    for statement in script.statements:
        if statement.verb in ("crash", "kill"):
            crashed.update(statement.nodes)
        elif statement.verb == "start":
            later.update(name for name in statement.nodes if name not in crashed)
    transcript.begin(frozenset(later))
    for statement in script.statements:
        transcript.do(statement)
    return transcript


def _cluster(settings: Settings, engines: EngineFactory | None) -> Cluster:
    model = replace(
        NETWORKS[settings.network],
        loss=settings.loss,
        duplicate=settings.duplicate,
        reorder=settings.reorder,
        has_multicast=settings.multicast,
    )
    config = GroupConfig(
        orderer=settings.orderer,
        datagram=settings.datagram,
        history_bytes=settings.history,
        history_blocks=settings.history_blocks,
        bootstrap=settings.bootstrap,
        slow="wait" if settings.slow == "wait" else "evict",
        patience_ns=settings.patience_ns,
    )
    min_members: Any = settings.min_members
    recovery: Any = settings.recovery
    terms = Terms(config=config, min_members=min_members, recovery=recovery)
    if settings.orderer == SITES and settings.topology is not None:
        # All groups are on one underlay, and every component of it goes on.
        terms = replace(terms, min_members=1, directory=OneUnderlay())
        engines = engines if engines is not None else sites_engines(settings.topology.config)
    cluster = Cluster(settings.seed, model, terms, engines=engines, topology=settings.topology)
    for name in settings.nodes:
        # Scripts say which members call reset.
        cluster.add(name, buffer_bytes=settings.buffer).resets_by_itself = False
    for name in settings.callers:
        cluster.add_caller(name, buffer_bytes=settings.buffer)
    return cluster


def _calls(statement: Statement, name: str) -> CallPlan:
    return CallPlan(name, statement.number, statement.word, statement.size, handler=statement.handler)


def _everybody_sees(cluster: Cluster, names: list[str]) -> Callable[[], bool]:
    members = [cluster.members[name] for name in names]
    return lambda: all(len(_names(member)) >= len(members) for member in members)


def _names(member: SimMember) -> list[str]:
    view = member.view if member.node.is_up else None
    return [each.name for each in view.members] if view is not None else []


def _numbered(member: SimMember) -> list[tuple[str, int]]:
    """Every message that the present life of a member delivered, in its order."""
    return [(sender, number) for sender, first, count in member.seen.log for number in range(first, first + count)]


def _listed(names: Sequence[str]) -> str:
    return " ".join(sorted(map(_short, names))) or "nobody"


def _to(batch: Batch) -> str:
    """Where the messages of a batch go to several groups at once: to which."""
    groups = sorted(batch.groups) if isinstance(batch, MixedBatch) and batch.part_of is None else []
    return f" to {','.join(groups)}" if groups else ""


def _short(member: Any) -> str:
    """`a` for the first life of a node, `a/1` for a later one; `x@a` for a session of it."""
    return str(member).removesuffix("/0")
