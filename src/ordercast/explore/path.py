"""One run along one path: the group forms, the scenario is played, deviations are made, and then all is quiet.

Everything is replayed from the start with fresh engines: a path is all there is to remember of a run. A *decision
point* is an instant in the scenario at which something interesting arrives, or would arrive if its link were not cut.
Interesting is every datagram but the periodic ones (`deviations.PERIODIC`) and those that are sent again and again: one
of the same kind and size as two before it on the same link, while no program has seen anything new.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Container
from typing import Final, NamedTuple

from ordercast.config import MS, SECOND, GroupConfig, MinMembers, Timing
from ordercast.explore.actor import NO_TICK, Actor, JoinTerms, Packet
from ordercast.explore.arena import Arena
from ordercast.explore.deviations import (
    LATE_TICKS,
    PAUSE_TICKS,
    PERIODIC,
    STALE_TICKS,
    Deviation,
    Links,
    Path,
    PathError,
    Situation,
    alone,
    links_of,
    menu,
    two_way,
)
from ordercast.explore.rest import LEGAL_TICKS, REST_TICKS, Disturbances, RestJudge, is_formed, is_one_view, why_stuck
from ordercast.explore.safety import SAFETY_FINDINGS, ChainJudge, Finding
from ordercast.explore.scenarios import Action, Cast, find_scenario, opens_at
from ordercast.groups.engines import EngineFactory
from ordercast.groups.events import Batch, Left
from ordercast.service import parse_service
from ordercast.view import Reason, View
from ordercast.wire.header import Kind

FORM_TICKS: Final = 20_000  # the group has to form within this time
QUIET_TICKS: Final = 300  # and rests for so long before the scenario begins
CUT_CALM_TICKS: Final = 2_500  # links stay cut until nothing new was said for so long: a suspicion takes less
CALM_TICKS: Final = 150  # the same where no link is cut and all are in one view
PLAY_TICKS: Final = 12_000  # and at most until then
PASS_LIMIT: Final = 20_000  # a run that needs more is a livelock
FINDINGS: Final = (*SAFETY_FINDINGS, "stuck", "needless", "livelock", "exception")
KNOWN_KINDS: Final = frozenset(map(int, Kind))
ORDERED_LEAVE: Final = "left"  # what a program is told when its leave was ordered, and not given up
PROPOSES: Final = int(Kind.RESULT)  # by this datagram a coordinator makes its proposal known
SAID_TIMES: Final = 3  # how often a transcript has the same text
REPEATS: Final = (
    2  # how often datagrams of one kind and size on one link are interesting while no program sees anything
)

# Heartbeats are rare beside suspicion: they are most of what a run costs. The order of the timers is that of the
# defaults, and every order that a deviation makes is possible with them, too.
TIMING: Final = Timing(
    heartbeat_busy_ns=250 * MS,
    suspect_busy_ns=800 * MS,
    suspect_max_ns=800 * MS,
    heartbeat_rest_ns=600 * MS,
    suspect_rest_ns=1_900 * MS,
    probe_ns=86_400 * SECOND,  # machines are silent here: a probe would only be one more event
    find_ns=40 * MS,
    find_tries=3,
    recovery_wait_ns=600 * MS,
    beacon_ns=2_000 * MS,
)


class Exploration(NamedTuple):
    """Everything that a run depends on, besides its path."""

    scenario: str
    orderer: str
    members: str
    newcomers: str
    families: tuple[str, ...]
    steps: int  # decision points at which something may be done
    crashes: int  # nodes that may crash in one run, besides what the scenario crashes
    min_members: MinMembers = "majority"
    only: tuple[str, ...] = ()  # findings that count; empty: all
    variant: int | None = None  # the one that is played; None: all

    @property
    def names(self) -> str:
        return self.members + self.newcomers

    @property
    def all_variants(self) -> range:
        """With a token each of them leaves it with another member."""
        return range(len(self.members) if self.orderer == "token" else 2)

    @property
    def variants(self) -> tuple[int, ...]:
        return tuple(self.all_variants) if self.variant is None else (self.variant,)


class DecisionPoint(NamedTuple):
    """One that was come to: the state's key, and what can be done there."""

    step: int
    key: bytes
    choices: tuple[tuple[str, str], ...]


class PathResult(NamedTuple):
    """What came of one path. `points`: behind its last deviation."""

    points: tuple[DecisionPoint, ...]
    findings: tuple[Finding, ...]
    is_cut: bool  # it came to a state that was seen before
    stuck: str  # why the group could not go on, for good reason


def run_path(
    what: Exploration,
    variant: int,
    path: Path,
    *,
    engines: EngineFactory | None = None,
    seen: Container[bytes] = (),
    notes: list[str] | None = None,
) -> PathResult:
    """Replay a path. It ends where it comes to a state in `seen`. `notes`: gets a transcript."""
    return _PathRun(what, variant, path, engines, seen, notes).result()


class _StopRun(Exception):
    """The run has nothing more to tell."""


class _PathRun:
    __slots__ = (
        "_acts",
        "_arena",
        "_cast",
        "_crashes_left",
        "_done",
        "_judge",
        "_mute_after",
        "_notes",
        "_path",
        "_pending",
        "_points",
        "_repeats",
        "_said",
        "_script",
        "_seen",
        "_service",
        "_start",
        "_step",
        "_what",
        "is_cut",
        "stuck",
    )

    def __init__(
        self,
        what: Exploration,
        variant: int,
        path: Path,
        engines: EngineFactory | None,
        seen: Container[bytes],
        notes: list[str] | None,
    ) -> None:
        self._what = what
        scenario = find_scenario(what.scenario, what.orderer)
        self._path = list(path)
        self._seen = seen
        self._notes = notes
        self._said: Counter[str] = Counter()
        self._cast = Cast(what.members, what.newcomers, variant)
        config = GroupConfig(orderer=what.orderer)
        self._arena = Arena(what.names, JoinTerms(config, what.min_members, TIMING, engines))
        self._judge = ChainJudge(what.min_members)
        self._service = parse_service(scenario.service)
        # the scenario
        self._script = sorted(scenario.script(self._cast), key=lambda action: action.tick)
        self._acts = scenario.acts(self._cast)
        self._start = 0
        self._mute_after = -1  # the node that leaves unheard, until another one speaks
        self._pending: list[tuple[str, str]] = []  # joins and leaves that programs have asked for
        # the search
        self._step = 0
        self._points: list[DecisionPoint] = []
        self._crashes_left = what.crashes
        self._repeats: dict[tuple[int, int, int, int], int] = {}
        self._done = Disturbances()
        self.is_cut = False
        self.stuck = ""

    def result(self) -> PathResult:
        try:
            self._form()
            self._play()
            self._rest()
        except _StopRun:
            pass
        except PathError:
            raise
        except Exception as error:  # whatever an engine raises is what we look for
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__} in {where.name}, line {where.lineno}: {error}"
            self._judge.findings.append(Finding("exception", text))
        self._say_findings()
        return PathResult(tuple(self._points), tuple(self._counted()), self.is_cut, self.stuck)

    def _counted(self) -> list[Finding]:
        only = self._what.only
        return [finding for finding in self._judge.findings if not only or finding.kind in only]

    # The group forms. ------------------------------------------------------------------------------------------------

    def _form(self) -> None:
        arena = self._arena
        for index in range(len(self._what.members)):
            actor = arena.actors[index]
            actor.boot(arena.tick, create=index == 0)
            while not is_formed(arena.actors[: index + 1]):
                if arena.tick > FORM_TICKS or not self._advance(NO_TICK):
                    raise PathError(f"the group of {self._what.members[: index + 1]} did not form")
        self._run_until(arena.tick + QUIET_TICKS)
        self._start = arena.tick

    # The scenario, with deviations. ----------------------------------------------------------------------------------

    def _play(self) -> None:
        """Until nothing new is said. How long that takes depends on the state alone: equal states stay equal."""
        arena = self._arena
        last_interest = arena.tick
        opening = self._start + opens_at(self._script, self._cast)
        while True:
            is_calm = not arena.cuts and not self._script and is_one_view(arena.actors)
            limit = min(last_interest + (CALM_TICKS if is_calm else CUT_CALM_TICKS), self._start + PLAY_TICKS)
            tick = self._next(limit)
            if tick is None:
                return
            packets = arena.arrivals(tick)
            while self._script and self._start + self._script[0].tick <= tick:
                self._act(self._script.pop(0))
                last_interest = tick
            if self._is_interesting(packets):
                last_interest = tick
                if tick >= opening:
                    packets = self._decide(packets)
            self._run(packets)

    def _next(self, limit: int) -> int | None:
        tick = self._arena.next_tick()
        if self._script:
            tick = min(tick, max(self._start + self._script[0].tick, self._arena.tick + 1))
        return tick if tick <= limit else None

    def _is_interesting(self, packets: list[Packet]) -> bool:
        found = False
        repeats = self._repeats
        for packet in packets:
            if packet.kind not in PERIODIC:
                key = (packet.source, packet.target, packet.kind, len(packet.data))
                count = repeats.get(key, 0)
                if count < REPEATS:
                    repeats[key] = count + 1
                    found = True
        return found

    def _decide(self, packets: list[Packet]) -> list[Packet]:
        """A decision point: do what the path says; behind its last deviation, note what can be done."""
        arena, step = self._arena, self._step
        self._step += 1
        self._say_packets(step, packets)
        if self._mute_after >= 0:
            self._mute(packets)
        while self._path and self._path[0].step == step:
            packets = self._deviate(self._path.pop(0), packets)
        if self._path or step >= self._what.steps:
            return packets
        key = arena.key(packets)
        if key in self._seen:
            self.is_cut = True
            raise _StopRun
        up = frozenset(actor.index for actor in arena.actors if actor.is_up)
        # A node that has started again may still be spoken to in its own name: that goes over no link.
        busy: Links = frozenset(
            (packet.source, packet.target)
            for packet in packets
            if packet.kind not in PERIODIC and packet.target in up and packet.source != packet.target
        )
        here = Situation(self._what.names, up, arena.cuts, busy, self._crashes_left, self._acts)
        self._points.append(DecisionPoint(step, key, tuple(menu(self._what.families, here))))
        return packets

    def _deviate(self, deviation: Deviation, packets: list[Packet]) -> list[Packet]:
        arena, kind, whom, names = self._arena, deviation.kind, deviation.whom, self._what.names
        self._say(f"-- {deviation.kind} {deviation.whom}".rstrip())
        if kind == "act":
            verb, _, who = whom.partition("-")
            if whom not in self._acts:
                raise PathError(f"the scenario has no act {whom!r}; it has {', '.join(self._acts) or 'none'}")
            self._acts = tuple(act for act in self._acts if act != whom)
            self._act(Action(0, verb, who))
        elif kind == "heal":
            arena.cuts = frozenset()
        elif kind in ("cut", "split", "isolate"):
            arena.cuts = links_of(names, kind, whom)
        elif kind == "link":
            arena.cuts |= links_of(names, kind, whom)
        elif kind in ("crash", "kill", "pause"):
            actor = self._actor(whom)
            if kind == "pause":
                actor.paused_until = arena.tick + PAUSE_TICKS
                self._disturb_all(actor)
                return packets
            self._crashes_left -= 1
            self._crash(actor)
            if kind == "kill":
                return [packet for packet in packets if packet.source != actor.index]
        else:
            ((source, target),) = links_of(names, kind, whom)
            hit = [packet for packet in packets if packet.source == source and packet.target == target]
            delay = {"lose": 0, "late": LATE_TICKS, "stale": STALE_TICKS}[kind]
            self._done.links[str(arena.actors[source]), str(arena.actors[target])] = arena.tick + delay
            if delay:
                for packet in hit:
                    arena.put_off(packet, arena.tick + delay)
            return [packet for packet in packets if packet not in hit]
        return packets

    # What happens to nodes. ------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        arena = self._arena
        actor = self._actor(action.who)
        self._say(f"{action}")
        match action.verb:
            case "boot" | "found":
                if not actor.is_up:
                    actor.boot(arena.tick, create=False if action.verb == "boot" else None)
                    self._pending.append(("join", str(actor)))
            case "send":
                actor.send(b"%s at %d" % (actor.name.encode(), arena.tick), self._service)
            case "leave" | "mute":
                actor.leave()
                self._pending.append(("leave", str(actor)))
                self._mute_after = actor.index if action.verb == "mute" else -1
            case "rejoin":
                actor.rejoin(arena.tick)
                self._pending.append(("join", str(actor)))
            case "lock":
                actor.lock("key")
            case "unlock":
                actor.unlock()
            case "crash":
                self._crash(actor)
            case "isolate":
                arena.cuts = alone(self._what.names)[action.who]
            case "part":
                arena.cuts = two_way(self._what.names)[f"{self._what.members}|{self._what.newcomers}"]
            case "meet":
                arena.cuts = frozenset()
            case _:
                raise PathError(f"a scenario cannot {action.verb}")

    def _mute(self, packets: list[Packet]) -> None:
        """The first node besides the one that leaves which says something is no longer heard."""
        speakers = [packet.source for packet in packets if packet.source != self._mute_after]
        if speakers:
            self._mute_after = -1
            names = self._what.names
            name = names[speakers[0]]
            self._arena.cuts = links_of(names, "cut", f"{name}>{names.replace(name, '')}")
            self._say(f"{name} is no longer heard")

    def _actor(self, name: str) -> Actor:
        index = self._what.names.find(name)
        if index < 0 or len(name) != 1:
            raise PathError(f"there is no node {name!r}; the nodes are {' '.join(self._what.names)}")
        return self._arena.actors[index]

    def _crash(self, actor: Actor) -> None:
        if actor.is_up:
            self._done.crashed[str(actor)] = self._arena.tick
            actor.crash()

    def _disturb_all(self, actor: Actor) -> None:
        for other in self._arena.actors:
            if other is not actor:
                self._done.links[str(other), str(actor)] = actor.paused_until
                self._done.links[str(actor), str(other)] = actor.paused_until

    # Time. -----------------------------------------------------------------------------------------------------------

    def _advance(self, limit: int) -> bool:
        tick = self._arena.next_tick()
        if tick >= limit:
            return False
        self._run(self._arena.arrivals(tick))
        return True

    def _run_until(self, tick: int) -> None:
        while self._advance(tick):
            pass
        self._arena.tick = max(self._arena.tick, tick)

    def _run(self, packets: list[Packet]) -> None:
        arena, done = self._arena, self._done
        actors, tick, cuts = arena.actors, arena.tick, arena.cuts
        for packet in packets:
            if packet.kind == PROPOSES:
                done.note_proposal(tick, str(actors[packet.source]), str(actors[packet.target]))
            if cuts and (packet.source, packet.target) in cuts:
                done.links[str(actors[packet.source]), str(actors[packet.target])] = tick
        arena.run(packets)
        judge = self._judge
        for actor in arena.actors:
            if self._notes is not None and actor.host is not None:
                for _, text in actor.host.take_log():
                    if " installed: " not in text:  # the event follows
                        self._say(f"{actor.name}: {text}")
            if actor.events:
                who = str(actor)
                for event in actor.events:
                    if self._notes is not None:
                        self._show(actor, event)
                    if isinstance(event, Left) and not event.returning:
                        # A member that gave up waiting for the order is of no use to anybody any more.
                        has_given_up = judge.is_in(who) and event.text != ORDERED_LEAVE
                        served = 0 if has_given_up else TIMING.linger_ns // MS
                        done.departed.setdefault(who, arena.tick + served)
                    elif isinstance(event, View):
                        done.departed.pop(who, None)
                    judge.on_event(arena.tick, who, event)
                actor.events.clear()
                self._repeats.clear()
        if judge.findings and self._counted():
            raise _StopRun
        if arena.passes > PASS_LIMIT:
            judge.findings.append(
                Finding("livelock", f"more than {PASS_LIMIT} passes by {arena.tick - self._start} ms")
            )
            raise _StopRun

    # Quiet. ----------------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """No more failures: the group must come to rest."""
        arena = self._arena
        if self._path:
            raise PathError(f"the run is over before {self._path[0]}: it has {self._step} decision points")
        if arena.cuts:
            self._say("-- all links are mended")
            arena.cuts = frozenset()
        rest = RestJudge(arena, self._judge)
        legal = self._why_stuck()
        limit = arena.tick + (LEGAL_TICKS if legal else REST_TICKS)
        while not rest.is_at_rest():
            if not self._advance(limit):
                legal = legal or self._why_stuck()  # a leaver may have gone in the meantime
                if legal:
                    self.stuck = legal
                    self._say(f"-- stuck for good reason: {legal}")
                else:
                    self._judge.findings.append(Finding("stuck", rest.unrest()))
                return
        if self._done.is_none:
            self._check_needless()

    def _why_stuck(self) -> str:
        gone = self._done.gone()
        live = {str(actor) for actor in self._arena.actors if actor.is_up and str(actor) not in gone}
        return why_stuck(self._what.min_members, self._judge, live, self._pending, self._done)

    def _check_needless(self) -> None:
        """Nobody is taken for dead where nothing has failed."""
        for view in self._judge.views.values():
            if view.reason == Reason.RESET:
                text = f"{view.id} ({' '.join(view.members)}) is a recovery, and nothing had failed"
                self._judge.findings.append(Finding("needless", text))

    # The transcript. -------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if self._notes is not None and self._start:
            self._said[text] += 1
            if self._said[text] <= SAID_TIMES:
                self._notes.append(f"{self._arena.tick - self._start:>6} ms        {text}")

    def _say_packets(self, step: int, packets: list[Packet]) -> None:
        """A decision point, with what is under way there."""
        if self._notes is None:
            return
        names, cuts = self._what.names, self._arena.cuts
        ways: dict[tuple[str, str, bool], str] = {}
        for packet in [packet for packet in packets if packet.kind not in PERIODIC]:
            kind = Kind(packet.kind).name if packet.kind in KNOWN_KINDS else str(packet.kind)
            key = (names[packet.source], kind, (packet.source, packet.target) in cuts)
            if names[packet.target] not in ways.get(key, ""):
                ways[key] = ways.get(key, "") + names[packet.target]
        texts = [
            f"{source}>{targets} {kind}" + (" (cut)" if is_cut else "")
            for (source, kind, is_cut), targets in ways.items()
        ]
        self._notes.append(f"{self._arena.tick - self._start:>6} ms  [{step:>3}]  {', '.join(texts)}")

    def _show(self, actor: Actor, event: object) -> None:
        if isinstance(event, View):
            self._say(
                f"{actor.name} has view {event.id}: {' '.join(map(str, event.members))} ({event.reason.name.lower()})"
            )
        elif isinstance(event, Batch):
            self._say(f"{actor.name} delivers {event.sender} #{event.first} in {event.view}")
        elif isinstance(event, Left):
            self._say(f"{actor.name} is out: {event.text}" + (", and comes back" if event.returning else ""))

    def _say_findings(self) -> None:
        for finding in self._judge.findings:
            self._say(f"!! {finding.kind}: {finding.text}")
