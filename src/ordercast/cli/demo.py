"""`ordercast demo`: real processes, a crash in full flight, a recovery, and the verdict over what they wrote down."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.cli.progress import Progress, table
from ordercast.errors import UsageError
from ordercast.runtime.addresses import is_loopback, parse_bind, parse_peer
from ordercast.sim.checkers import PROPERTIES, Verdict, check_all
from ordercast.trace.convert import convert, load_pyarrow
from ordercast.trace.run import RunInfo, software_version
from ordercast.trace.store import read_trace

HELP: Final = "show ordered delivery, a crash, the recovery, and the proof, on this machine"
DESCRIPTION: Final = (
    "Starts four member processes in one group. All send; the member that orders the messages is killed in full "
    "flight; the survivors form the group anew and go on; a fifth joins and leaves. Then everything comes to rest, "
    "and the trace that each process wrote is judged: every guarantee, with how much was examined."
)
EXAMPLES: Final = """examples:
  ordercast demo
      about 20 seconds on loopback; the trace goes to a new folder under the system's temporary one
  ordercast demo --trace ./trace --seconds 30
      keep the trace here, and send for longer
  ordercast demo --json | jq .verdict.properties
      the verdict for a program; progress goes to standard error
  ordercast demo --peers 127.0.0.1:7401 127.0.0.1:7402 127.0.0.1:7403 127.0.0.1:7404 127.0.0.1:7405
      without multicast: the members find one another by a list of addresses
  ordercast demo --insecure --exec-prefix 'ip netns exec oc{n}' --hosts 10.7.0.1,10.7.0.2,10.7.0.3,10.7.0.4,10.7.0.5
      each member in a network namespace of its own (benches/chaos.py makes them, with losses)"""

MEMBER: Final = "ordercast.cli.member"
NAMES: Final = ("ann", "bob", "cleo", "dan", "eve")
FOUNDERS: Final = 4
SECONDS: Final = 10.0
MIN_SECONDS: Final = 1.0
MAX_SECONDS: Final = 600.0
SURGE_S: Final = 0.4
"""How long everybody sends as fast as it can before the sequencer is killed."""

START_TIMEOUT_S: Final = 30.0
REFORM_TIMEOUT_S: Final = 30.0
DRAIN_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
PACE_S: Final = 0.02
"""Between two rounds of a member's sending, except in the surge."""

SHOWN_VIOLATIONS: Final = 10
SERVICES: Final = ("AGREED", "RESILIENT(1)", "SAFE")


@dataclass(slots=True)
class Plan:
    """What was asked for, checked."""

    trace: Path
    seconds: float
    addresses: list[tuple[str, int]]  # where each member is
    peers: list[str]
    prefix: str
    insecure: bool
    pause_s: float


@dataclass(slots=True)
class Story:
    """What happened, for the report."""

    killed: str = ""
    killed_life: int = 0
    killed_at_ns: int = 0
    stood_ms: dict[str, float] = field(default_factory=dict)
    views: list[list[str]] = field(default_factory=list)
    paused: str = ""
    paused_views: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    is_same: bool = False
    took_s: float = 0.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `ordercast demo`."""
    parser.description = DESCRIPTION
    parser.add_argument("--trace", type=Path, default=None, metavar="DIR", help="folder for the trace; new or empty")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help=f"how long messages are sent, recovery not counted ({SECONDS:g})"
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
        "--pause", type=float, default=0.0, metavar="SECONDS", help="also stop one member for so long (SIGSTOP)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")


def run(args: argparse.Namespace) -> int:
    """Play the scenario and judge it."""
    plan = plan_of(args)
    progress = Progress()
    began_s = monotonic()
    try:
        story = asyncio.run(play(plan, progress))
        progress.note("converting the traces and checking every guarantee ...")
        verdict = judge(plan, story)
    except ChildFailed as error:
        if args.json:
            print(json.dumps({"held": False, "error": str(error), "trace": str(plan.trace)}, indent=2))
        print(f"ordercast demo: {error}; what was traced lies in {plan.trace}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    story.took_s = monotonic() - began_s
    held = verdict.held and story.is_same
    print(json.dumps(as_json(plan, story, verdict), indent=2) if args.json else "\n".join(report(plan, story, verdict)))
    return 0 if held else 1


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the flags ask for; `UsageError` says what is wrong with them."""
    if not MIN_SECONDS <= args.seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds lies between {MIN_SECONDS:g} and {MAX_SECONDS:g}, not {args.seconds:g}")
    if not 0 <= args.pause <= MAX_SECONDS:
        raise UsageError(f"--pause lies between 0 and {MAX_SECONDS:g} seconds, not {args.pause:g}")
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
        load_pyarrow()
        args.exec_prefix.format(n=1)
        shlex.split(args.exec_prefix)
    except ImportError as error:
        raise UsageError(str(error)) from error
    except (ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"--exec-prefix {args.exec_prefix!r} cannot be read ({error}); only {{n}} is replaced"
        ) from error
    return Plan(
        trace=trace_folder(args.trace),
        seconds=args.seconds,
        addresses=addresses,
        peers=peers,
        prefix=args.exec_prefix,
        insecure=args.insecure,
        pause_s=args.pause,
    )


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


async def play(plan: Plan, progress: Progress) -> Story:
    """Start, send, kill, recover, join, leave, drain, stop."""
    stage = _Stage(plan, progress)
    try:
        await stage.play()
    finally:
        # Not one after the other: an interrupted demo should be gone at once.
        await asyncio.gather(*(child.kill() for child in stage.children.values()))
    return stage.story


class _Stage:
    """The member processes and what the audience sees of them."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.children: dict[str, Child] = {}
        self.story = Story()
        self._plan = plan
        self._progress = progress
        self._group = f"demo-{os.getpid()}"
        self._offset_ns = time_ns() - monotonic_ns()
        self._rates: dict[str, tuple[int, int]] = {}  # name -> delivered, at_ns of the status before
        self._lives: dict[str, int] = {}
        self._began_s = monotonic()

    async def play(self) -> None:
        plan, story = self._plan, self.story
        self._info().write(plan.trace)
        for number in range(FOUNDERS):
            await self._start(number)
        members = list(self.children.values())
        self._note(f"{len(members)} members in one group, all of them send: {', '.join(self.children)}")
        for child in members:
            child.tell("send")
        await self._watch(0.3 * plan.seconds)
        if plan.pause_s:
            await self._pause(members[-1])
        await self._kill_sequencer()
        members = list(self.children.values())
        await self._watch(0.2 * plan.seconds)

        guest = await self._start(FOUNDERS)
        self._note(f"{guest.name} has joined while the others went on sending")
        guest.tell("send")
        await self._watch(0.2 * plan.seconds)
        async with self._shown():
            await guest.ask("leave", "left", DRAIN_TIMEOUT_S)
        self._note(f"{guest.name} has left, in order, behind its last message")
        await guest.end()
        del self.children[guest.name]
        await self._watch(0.3 * plan.seconds)

        async with self._shown():
            await self._drain(members)
        for child in members:
            await child.ask("stop", "stopped", DRAIN_TIMEOUT_S)
        await asyncio.gather(*(child.end() for child in members))
        story.views = self._views(members)

    async def _start(self, number: int) -> Child:
        plan, name = self._plan, NAMES[number]
        host, port = plan.addresses[number]
        settings = {
            "name": name,
            "host": host,
            "port": port,
            "peers": plan.peers,
            "trace": str(plan.trace),
            "clock_offset_ns": self._offset_ns,
            "insecure": plan.insecure,
            "group": self._group,
            "create": number == 0,
        }
        prefix = shlex.split(plan.prefix.format(n=number + 1))
        child = await Child.start(name, MEMBER, settings, prefix)
        self.children[name] = child
        async with self._shown():
            joined = await child.expect("joined", START_TIMEOUT_S)
        self._lives[name] = int(joined["member"].rpartition("/")[2])
        return child

    async def _kill_sequencer(self) -> None:
        story = self.story
        answer = await next(iter(self.children.values())).ask("ask", "answer", DRAIN_TIMEOUT_S)
        victim = self.children[answer["members"][0]]
        for child in self.children.values():
            child.tell("pace", seconds=0.0)
        await self._watch(SURGE_S)
        for child in self.children.values():
            child.tell("watch")
        await asyncio.gather(*(child.ask("ask", "answer", DRAIN_TIMEOUT_S) for child in self.children.values()))
        for child in self.children.values():
            child.forget("resumed")
        victim.signal(signal.SIGKILL)
        story.killed, story.killed_life = victim.name, self._lives[victim.name]
        story.killed_at_ns = monotonic_ns() + self._offset_ns
        self._note(f"killed {victim.name}, the sequencer, with SIGKILL in full flight")
        await victim.kill()
        del self.children[victim.name]
        survivors = list(self.children.values())
        async with self._shown():
            for child in survivors:
                resumed = await child.expect("resumed", REFORM_TIMEOUT_S)
                story.stood_ms[child.name] = round(resumed["stood_ms"], 1)
                child.tell("pace", seconds=PACE_S)
        self._note(
            f"{', '.join(story.stood_ms)} have formed the group anew and go on; it stood still for "
            f"{max(story.stood_ms.values()) / 1e3:.2f} s"
        )

    async def _pause(self, child: Child) -> None:
        """A short pause is no failure: the others wait for it, and the view stays."""
        plan, story = self._plan, self.story
        before = sum(len(each.heard("view")) for each in self.children.values())
        self._note(f"stopped {child.name} for {plan.pause_s:g} s with SIGSTOP")
        child.signal(signal.SIGSTOP)
        try:
            await self._watch(plan.pause_s)
        finally:
            child.signal(signal.SIGCONT)
        async with self._shown():
            await asyncio.gather(*(each.ask("ask", "answer", DRAIN_TIMEOUT_S) for each in self.children.values()))
        await self._watch(1.0)
        story.paused = child.name
        story.paused_views = sum(len(each.heard("view")) for each in self.children.values()) - before
        self._note(f"{child.name} goes on; views that changed because of the pause: {story.paused_views}")

    async def _drain(self, members: list[Child]) -> None:
        """Until nobody has anything to send, and everybody has delivered the same."""
        story = self.story
        await asyncio.gather(*(child.ask("quiet", "flushed", DRAIN_TIMEOUT_S) for child in members))
        deadline_s = monotonic() + DRAIN_TIMEOUT_S
        while True:
            answers = [await child.ask("ask", "answer", DRAIN_TIMEOUT_S) for child in members]
            if len({answer["position"] for answer in answers}) == 1:
                break
            if monotonic() > deadline_s:
                raise ChildFailed(f"{', '.join(self.children)} have not delivered the same after {DRAIN_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)
        story.delivered = {child.name: answer["delivered"] for child, answer in zip(members, answers, strict=True)}
        story.is_same = len({(answer["delivered"], answer["checksum"]) for answer in answers}) == 1
        self._note("everything is delivered; the members stop")

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
        for child in self.children.values():
            child.check()

    async def _show(self) -> None:
        while True:
            self._progress.live([self._line(child) for child in self.children.values()], self._summary())
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
        states = [child.status for child in self.children.values() if "delivered" in child.status]
        delivered = " ".join(f"{child.name}:{child.status.get('delivered', 0)}" for child in self.children.values())
        views = sorted({" ".join(state["members"]) for state in states})
        return f"{monotonic() - self._began_s:5.1f} s    delivered {delivered}  in view of {' / '.join(views)}"

    def _note(self, text: str) -> None:
        self._progress.note(f"{monotonic() - self._began_s:5.1f} s  {text}")

    def _views(self, members: Iterable[Child]) -> list[list[str]]:
        first = next(iter(members))
        return [view["members"] for view in first.heard("view")]

    def _info(self) -> RunInfo:
        plan = self._plan
        return RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer="sequencer",
            services=SERVICES,
            parameters={
                "command": "demo",
                "members": FOUNDERS,
                "seconds": plan.seconds,
                "pause": plan.pause_s,
                "multicast": not plan.peers,
            },
            software_version=software_version(),
            clock_offset_ns=self._offset_ns,
        )


def judge(plan: Plan, story: Story) -> Verdict:
    """Turn the traces into Parquet, and check every property over what was read back from it."""
    convert(plan.trace, crashed={(story.killed, story.killed_life): story.killed_at_ns})
    info, rows = read_trace(plan.trace)
    return check_all(rows, clock=info.clock, quiet=True, expect=PROPERTIES)


def report(plan: Plan, story: Story, verdict: Verdict) -> list[str]:
    """The verdict for people."""
    rows = [("property", "examined", "", "violations", "")]
    for name, result in verdict.properties.items():
        if not result.judged:
            word = f"not judged: {result.note}"
        elif name in verdict.vacuous:
            word = "nothing to examine"
        else:
            word = "held" if result.held else "VIOLATED"
        rows.append((name, f"{result.checked:,}", result.unit, f"{result.total:,}", word))
    lines = ["", *table(rows, right=(1, 3)), ""]
    lines.extend(f"  {violation}" for violation in verdict.violations[:SHOWN_VIOLATIONS])
    survivors = ", ".join(story.delivered)
    if story.is_same:
        count = next(iter(story.delivered.values()))
        lines.append(f"{survivors} delivered the same {count:,} messages, byte for byte, in the same order")
    else:
        lines.append(f"VIOLATED: {survivors} did not compute the same checksum over their messages: {story.delivered}")
    lines.append(
        f"the group stood still for {max(story.stood_ms.values()) / 1e3:.2f} s after {story.killed} was killed"
    )
    if story.paused:
        lines.append(f"{story.paused} was stopped for {plan.pause_s:g} s; views because of it: {story.paused_views}")
    held = verdict.held and story.is_same
    lines.append(
        f"{'every guarantee held' if held else 'NOT every guarantee held'}: {verdict.rows:,} events examined, "
        f"{story.took_s:.1f} s in all"
    )
    lines.append(f"trace: {plan.trace}")
    return lines


def as_json(plan: Plan, story: Story, verdict: Verdict) -> dict[str, Any]:
    """The verdict for programs."""
    result: Saying = {
        "held": verdict.held and story.is_same,
        "trace": str(plan.trace),
        "seconds": plan.seconds,
        "took_s": round(story.took_s, 1),
        "killed": story.killed,
        "stood_still_ms": story.stood_ms,
        "views": story.views,
        "delivered": story.delivered,
        "same_messages": story.is_same,
        "verdict": verdict.as_json(),
    }
    if story.paused:
        result["pause"] = {"member": story.paused, "seconds": plan.pause_s, "views_changed": story.paused_views}
    return result
