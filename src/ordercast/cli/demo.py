"""`ordercast demo`: real processes, a crash at full load, a recovery, and the verdict over their traces."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ordercast.cli import demo_regions, demo_sites
from ordercast.cli.arguments import decimal, probability
from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.cli.choices import add_choices, service_of
from ordercast.cli.extras import need
from ordercast.cli.member import HANDLER, PACE_S
from ordercast.cli.processes import (
    CHANGES,
    NAMES,
    START_TIMEOUT_S,
    Drained,
    Pause,
    ProcessGroup,
    Venue,
)
from ordercast.cli.progress import Progress, table
from ordercast.cli.proof import Proof, prove
from ordercast.config import REGIONS_ORDERER, SITES_ORDERER
from ordercast.errors import UsageError
from ordercast.orderers import ORDERERS
from ordercast.runtime.addresses import is_loopback, parse_bind, parse_peer
from ordercast.sim.scenario import check_anticipate

HELP: Final = "show ordered delivery, a crash, the recovery, and the proof, on this machine"
DESCRIPTION: Final = (
    "Starts four member processes in one group. All of them send. The member that orders the messages is killed at "
    "full load: the token site, or the sequencer, or, with timestamps, the first member. The survivors recover the "
    "group and continue. A fifth member joins and leaves. With the token it also calls the group from outside before "
    "it joins: the holder of a handler lock answers, and after the crash the next holder. Then everything comes to "
    "rest, and Spark checks every guarantee over the traces that the processes wrote. The demo ends with a report, "
    "one HTML file. Without Spark the checkers of the simulator judge, and there is no report."
)
LENGTH: Final = "about a minute"
"""How long it takes with its defaults, as measured on two idle cores (`docs/benchmarks.md`). It is told here, in
`ordercast --help`, in the Makefile and in the README; a test compares them."""

EXAMPLES: Final = f"""examples:
  ordercast demo
      {LENGTH} on loopback, most of it Spark's; trace and report go to a new folder under the system's temporary one
  ordercast demo --no-spark
      about 20 seconds: the verdict comes from the checkers of the simulator, and there is no report
  ordercast demo --orderer sequencer
      the same with a sequencer, which is killed
  ordercast demo --orderer timestamp --no-anticipate
      the same with timestamps that all members agree on, as plain ABCAST
  ordercast demo --orderer sites --no-spark
      two sites of two daemons; the network between them is cut, both go on, and they merge
  ordercast demo --orderer regions --no-spark
      seven nodes in two overlapping sets of groups; a member and the leader of a region are killed
  ordercast demo --service FIFO --trace ./trace --seconds 30
      most messages ordered by sender only; keep the trace here, and send for longer
  ordercast demo --json | jq .verdict.properties
      the verdict for a program; progress goes to standard error
  ordercast demo --peers 127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403 127.0.0.1:7404 127.0.0.1:7405
      without multicast: the members find one another by a list of addresses
  ordercast demo --insecure --exec-prefix 'ip netns exec oc{{n}}' --hosts 10.7.0.1,10.7.0.2,10.7.0.3,10.7.0.4,10.7.0.5
      each member in a network namespace of its own (benches/chaos.py makes them, with losses)"""

FOUNDERS: Final = 4
SECONDS: Final = 10.0
MIN_SECONDS: Final = 1.0
MAX_SECONDS: Final = 600.0
SURGE_S: Final = 0.4
"""How long all members send as fast as they can before the member that orders is killed."""

ROLES: Final = {"token": "the token site", "sequencer": "the sequencer", "timestamp": "the first member"}
"""The member that is killed. With timestamps all members order alike; the first also orders joins and leaves."""


@dataclass(slots=True)
class DemoPlan:
    """What was asked for, checked."""

    venue: Venue
    seconds: float
    pause_s: float


@dataclass(slots=True)
class Story:
    """What happened, for the report."""

    killed: str = ""
    stood_ms: dict[str, float] = field(default_factory=dict)
    calls: list[Saying] = field(default_factory=list)
    views: list[list[str]] = field(default_factory=list)
    paused: str = ""
    pause: Pause | None = None
    drained: Drained = field(default_factory=Drained)
    took_s: float = 0.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast demo`."""
    parser.description = DESCRIPTION
    add_choices(parser, "what most messages ask for, besides some SAFE and RESILIENT(1)")
    parser.add_argument("--trace", type=Path, default=None, metavar="DIR", help="folder for the trace; new or empty")
    parser.add_argument(
        "--seconds",
        type=decimal(MIN_SECONDS, MAX_SECONDS),
        default=SECONDS,
        help=f"how long messages are sent, recovery not counted ({SECONDS:g})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address of the interface that all use (127.0.0.1)")
    parser.add_argument("--hosts", default=None, metavar="A,B,…", help="instead: one address for each of the 5 members")
    parser.add_argument(
        "--peers", nargs="+", default=None, metavar="HOST:PORT", help="instead: 5 addresses, and no multicast"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow another interface than loopback: nothing is encrypted yet"
    )
    parser.add_argument(
        "--exec-prefix",
        default="",
        metavar="COMMAND",
        help="put before each member's command; {n} is its number, 1 to 5",
    )
    parser.add_argument(
        "--pause",
        type=decimal(0, MAX_SECONDS),
        default=0.0,
        metavar="SECONDS",
        help="also stop one member for so long (SIGSTOP)",
    )
    parser.add_argument(
        "--loss",
        type=probability,
        default=0.0,
        metavar="PROBABILITY",
        help="each member loses the datagrams that it receives with this probability (0)",
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="judge without Spark, in this process; there is no report then"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Play the scenario and judge it."""
    if args.orderer == SITES_ORDERER:
        need("trace", "ordercast demo")
        check_anticipate(args.orderer, args.anticipate)
        demo_sites.check(args)
        return demo_sites.run(args, service_of(args), trace_folder(args.trace))
    if args.orderer == REGIONS_ORDERER:
        need("trace", "ordercast demo")
        check_anticipate(args.orderer, args.anticipate)
        demo_regions.check(args)
        return demo_regions.run(args, service_of(args), trace_folder(args.trace))
    plan = plan_of(args)
    progress = Progress()
    began_s = monotonic()
    trace = plan.venue.trace
    try:
        story, crashed = asyncio.run(play(plan, progress))
        proof = prove(trace, crashed, with_spark=not args.no_spark, say=progress.note)
    except ChildFailed as error:
        if args.json:
            print(json.dumps({"held": False, "error": str(error), "trace": str(trace)}, indent=2))
        print(f"ordercast demo: {error}; what was traced lies in {trace}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    story.took_s = monotonic() - began_s
    print(json.dumps(as_json(plan, story, proof), indent=2) if args.json else "\n".join(report(plan, story, proof)))
    return 0 if holds(story, proof) else 1


def plan_of(args: argparse.Namespace) -> DemoPlan:
    """The plan that the flags ask for; `UsageError` says what is wrong with them."""
    need("trace", "ordercast demo")
    service = service_of(args)
    anticipate = check_anticipate(args.orderer, args.anticipate)
    peers: list[str] = []
    if args.peers is not None:
        if args.hosts is not None:
            raise UsageError("--peers says where the members are: leave out --hosts")
        addresses = [parse_peer(peer) for peer in args.peers]
        if len(set(addresses)) < len(addresses):
            raise UsageError("--peers names an address twice: each member needs its own")
        peers = [f"{host}:{port}" for host, port in addresses]
    elif args.hosts is not None:
        addresses = [parse_bind(host) for host in args.hosts.split(",")]
    else:
        addresses = [parse_bind(args.host)] * len(NAMES)
    if len(addresses) != len(NAMES):
        raise UsageError(f"{len(NAMES)} addresses are needed, one for each member, not {len(addresses)}")
    for host, _ in addresses:
        if not is_loopback(host) and not args.insecure:
            raise UsageError(
                f"{host} is not loopback and nothing is encrypted yet: add --insecure if that is all right"
            )
    try:
        args.exec_prefix.format(n=1)
        shlex.split(args.exec_prefix)
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"--exec-prefix {args.exec_prefix!r} cannot be read ({error}); only {{n}} is replaced"
        ) from error
    trace = trace_folder(args.trace)
    venue = Venue(
        trace, args.orderer, service, addresses, peers, args.exec_prefix, args.insecure, anticipate, loss=args.loss
    )
    return DemoPlan(venue, args.seconds, args.pause)


def trace_folder(wanted: Path | None) -> Path:
    """The folder for a trace: new or empty, since two runs in one folder would be judged as one."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="ordercast-demo-"))
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if any(wanted.iterdir()):
            raise UsageError(f"{wanted} is not empty: a trace needs a folder of its own")
    except OSError as error:
        raise UsageError(f"{wanted} cannot hold a trace: {error.strerror}") from error
    return wanted.resolve()


async def play(plan: DemoPlan, progress: Progress) -> tuple[Story, dict[tuple[str, int], int]]:
    """Start, send, kill, recover, join, leave, drain, stop; what happened, and the crashes with their times."""
    stage = _Stage(plan, progress)
    try:
        await stage.play()
    finally:
        await stage.processes.kill()
    return stage.story, stage.processes.crashed


class _Stage:
    """The scenario, and what the audience sees of it."""

    __slots__ = ("_began_s", "_has_calls", "_plan", "_progress", "_rates", "processes", "story")

    def __init__(self, plan: DemoPlan, progress: Progress) -> None:
        self.processes = ProcessGroup(plan.venue)
        self.story = Story()
        self._plan = plan
        self._progress = progress
        self._has_calls = ORDERERS[plan.venue.orderer].gives_locks
        self._rates: dict[str, tuple[int, int]] = {}  # name -> delivered, at_ns of the status before
        self._began_s = monotonic()

    async def play(self) -> None:
        plan, processes = self._plan, self.processes
        parameters = {"command": "demo", "members": FOUNDERS, "seconds": plan.seconds, "pause": plan.pause_s}
        processes.write_info(parameters)
        for number in range(FOUNDERS):
            async with self._shown():
                await processes.start(number)
        members = list(processes.children.values())
        self._note(f"{len(members)} members in one group, all of them send: {', '.join(processes.children)}")
        processes.tell("send")
        await self._watch(0.2 * plan.seconds)
        guest = await processes.start(FOUNDERS, joins=False)
        if self._has_calls:
            await self._offer_handler(guest)
        await self._watch(0.1 * plan.seconds)
        if plan.pause_s:
            await self._pause(members[-1])
        await self._kill_ordering(members[0], guest)
        await self._watch(0.2 * plan.seconds)

        async with self._shown():
            await processes.join(guest)
        self._note(f"{guest.name} has joined while the others went on sending")
        guest.tell("send")
        await self._watch(0.2 * plan.seconds)
        async with self._shown():
            await processes.leave(guest)
        self._note(f"{guest.name} has left, in order, behind its last message")
        await self._watch(0.3 * plan.seconds)

        async with self._shown():
            self.story.drained = await processes.drain()
        self._note("everything is delivered; the members stop")
        await processes.stop()
        self.story.views = changed_views(next(iter(processes.children.values())))

    async def _offer_handler(self, guest: Child) -> None:
        """The first member takes the handler's lock, the others wait for it; the guest calls from outside."""
        first, *others = self.processes.children.values()
        async with self._shown():
            await first.ask("handle", "handles", START_TIMEOUT_S)
            for child in others:
                child.tell("handle")
            await self._call(guest)

    async def _call(self, guest: Child) -> None:
        called = await guest.ask("call", "called", START_TIMEOUT_S, text="who is there?")
        by = called["answer"].partition(" ")[0]
        self.story.calls.append({"answered_by": by, "took_ms": round(called["took_ms"], 1)})
        self._note(f"{guest.name}, which is no member, called handler {HANDLER}: {called['answer']!r}")

    async def _kill_ordering(self, victim: Child, guest: Child) -> None:
        processes, story = self.processes, self.story
        processes.tell("pace", seconds=0.0)
        await self._watch(SURGE_S)
        await processes.kill_ordering(victim)
        story.killed = victim.name
        self._note(f"killed {victim.name}, {ROLES[self._plan.venue.orderer]}, with SIGKILL at full load")
        async with self._shown():
            story.stood_ms = await processes.stand_still([victim.name])
        processes.tell("pace", seconds=PACE_S)
        self._note(
            f"{', '.join(story.stood_ms)} have recovered the group and continue; deliveries stood still for "
            f"{max(story.stood_ms.values()) / 1e3:.2f} s"
        )
        if self._has_calls:
            async with self._shown():
                # The lock of the dead went with the view without it, and to the next that waited.
                holder = await processes.first_to("handles", START_TIMEOUT_S)
                self._note(f"handler {HANDLER} has passed from {victim.name} to {holder}")
                await self._call(guest)

    async def _pause(self, child: Child) -> None:
        plan, story = self._plan, self.story
        self._note(f"{child.name} is stopped for {plan.pause_s:g} s with SIGSTOP")
        async with self._shown():
            story.pause = await self.processes.pause(child, plan.pause_s)
        story.paused = child.name
        self._note(f"{child.name} goes on; views that changed because of the pause: {story.pause.views}")

    async def _watch(self, seconds: float) -> None:
        async with self._shown():
            await asyncio.sleep(seconds)

    @contextlib.asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        """Show the members while something else is waited for; one that dies meanwhile ends the play."""
        shower = asyncio.create_task(self._show())
        try:
            yield
        finally:
            shower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await shower
        for child in self.processes.children.values():
            child.check()

    async def _show(self) -> None:
        while True:
            self._progress.live([self._line(child) for child in self.processes.children.values()], self._summary())
            await asyncio.sleep(0.1)

    def _line(self, child: Child) -> str:
        status = child.status
        if "delivered" not in status:
            return f"  {child.name:<5} starting"
        delivered, at_ns = status["delivered"], status["at_ns"]
        known = self._rates.setdefault(child.name, (delivered, at_ns))
        rate = (delivered - known[0]) * 1e9 / (at_ns - known[1]) if at_ns > known[1] else 0.0
        if at_ns - known[1] > 5e8:
            self._rates[child.name] = (delivered, at_ns)
        return f"  {child.name:<5} view of {' '.join(status['members']):<19} {delivered:>9,} delivered {rate:>8,.0f}/s"

    def _summary(self) -> str:
        """All members in one line, for logs."""
        states = [child.status for child in self.processes.children.values() if "delivered" in child.status]
        delivered = " ".join(
            f"{child.name}:{child.status.get('delivered', 0)}" for child in self.processes.children.values()
        )
        views = sorted({" ".join(state["members"]) for state in states})
        return f"{monotonic() - self._began_s:5.1f} s    delivered {delivered}  in view of {' / '.join(views)}"

    def _note(self, text: str) -> None:
        self._progress.note(f"{monotonic() - self._began_s:5.1f} s  {text}")


def changed_views(child: Child) -> list[list[str]]:
    """The members of each view that a member saw, where they are others than before."""
    return [view["members"] for view in child.heard("view") if view["reason"] in CHANGES]


def holds(story: Story, proof: Proof) -> bool:
    return proof.held and story.drained.is_same


def report(plan: DemoPlan, story: Story, proof: Proof) -> list[str]:
    """The verdict for people."""
    drained = story.drained
    rows = [("property", "examined", "", "violations", "")]
    rows += [
        (name, f"{one.checked:,}", one.unit, f"{one.violations:,}", one.word) for name, one in proof.properties.items()
    ]
    lines = ["", *table(rows, right=(1, 3)), ""]
    lines.extend(f"  {violation}" for violation in proof.evidence)
    survivors = ", ".join(drained.delivered)
    if drained.is_same:
        count = max(drained.delivered.values())
        lines.append(f"{survivors} delivered {count:,} messages, the ordered ones byte for byte in the same order")
    else:
        lines.append(
            f"VIOLATED: {survivors} did not compute the same checksum over their messages: {drained.delivered}"
        )
    lines.append(
        f"{story.killed} was killed as {ROLES[plan.venue.orderer]}; deliveries stood still for "
        f"{max(story.stood_ms.values()) / 1e3:.2f} s"
    )
    lines.append(f"{proof.confirmed:,} sends were confirmed to their senders; promises broken: {proof.lost}")
    if story.calls:
        answerers = " and then ".join(call["answered_by"] for call in story.calls)
        lines.append(f"calls from outside to handler {HANDLER} were answered by {answerers}")
    if story.pause is not None:
        lines.append(f"{story.paused} was stopped for {plan.pause_s:g} s; views because of it: {story.pause.views}")
    lines.append(
        f"{'every guarantee held' if holds(story, proof) else 'NOT every guarantee held'}: {proof.events:,} events "
        f"examined by {proof.by}; {story.took_s:.1f} s in all"
    )
    lines.append(f"trace: {plan.venue.trace}")
    if proof.report is not None:
        lines.append(f"report: {proof.report}")
    return lines


def as_json(plan: DemoPlan, story: Story, proof: Proof) -> dict[str, Any]:
    """The verdict for programs."""
    venue = plan.venue
    result: Saying = {
        "held": holds(story, proof),
        "trace": str(venue.trace),
        "report": str(proof.report) if proof.report is not None else None,
        "orderer": venue.orderer,
        "anticipate": venue.anticipate,
        "service": venue.service,
        "seconds": plan.seconds,
        "took_s": round(story.took_s, 1),
        "killed": story.killed,
        "stood_still_ms": story.stood_ms,
        "confirmed": proof.confirmed,
        "promises_broken": proof.lost,
        "calls": story.calls,
        "views": story.views,
        "delivered": story.drained.delivered,
        "same_messages": story.drained.is_same,
        "verdict": proof.as_json(),
    }
    if story.pause is not None:
        result["pause"] = {
            "member": story.paused,
            "seconds": plan.pause_s,
            "views_changed": story.pause.views,
            "longest_lag_ms": story.pause.lags_ms,
        }
    return result
