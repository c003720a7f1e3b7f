"""Failures between network namespaces: five hosts on a bridge, losses, cuts, kills and pauses; a table of outcomes.

    sudo .venv/bin/python benches/chaos.py [--orderer token] [--only kill,halves] [--loss 0.05] [--seconds 5] [--json]

Needs root, Linux, `ip` (iproute2) and `iptables`. The namespaces are made by `netns.sh` and always removed. Rows:

demo     the whole of `ordercast demo`, every link dropping 5 %: a pause, a kill, calls from outside, a guest
kill     SIGKILL of the token site while it has the token (or of the sequencer, or of the first of members that all
         order alike) in full flight, three times
losses   the same, every link dropping 5 %
pause    SIGSTOP of one member for a second: no failure yet, so no view may change
busy     four processes that only compute, beside the members: none of these is suspected, so no view may change
cut      one member cut off for half a second: no failure yet, either
outage   one member cut off for five seconds: it is excluded, and comes back as a new member
halves   two and two members cut off from one another for five seconds: at most one half goes on (`majority`)

Exit codes: 0 every guarantee held, 1 one was violated or something failed, 2 it cannot run here. A goal that is missed
(0.3 s without deliveries after a kill, 2 s after another failure, no view because of a pause) is marked, and is no
failure: the machine may be busy. A process that is killed is noticed because its kernel says so, a machine that is cut
off only by its silence.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic

from ordercast.cli.children import ChildFailed
from ordercast.cli.main import main as ordercast
from ordercast.cli.processes import NAMES, ProcessGroup, Venue
from ordercast.cli.progress import table
from ordercast.sim.checkers import PROPERTIES

SCRIPT = Path(__file__).with_name("netns.sh")
ORDERERS = ("token", "sequencer", "timestamp")
NUMBERS = range(1, len(NAMES) + 1)
HOSTS = [f"10.77.0.{number}" for number in NUMBERS]
PREFIX = "ip netns exec oc{n}"
BAD_INPUT = 2
FOUNDERS = 4
KILLS = 3
PAUSE_S = 1.0
CUT_S = 0.5
OUTAGE_S = 5.0
GOAL_S = 2.0
KILL_GOAL_S = 0.3
BUSY_PROCESSES = 4
BUSY_S = 5.0
RETURN_TIMEOUT_S = 30.0
SHOWN_VIOLATIONS = 5


@dataclass(slots=True)
class Options:
    loss: float
    seconds: float
    traces: Path


@dataclass(slots=True)
class Outcome:
    """One row of the table."""

    orderer: str
    scenario: str
    stood_s: float | None = None  # the longest time without deliveries at those who went on
    goal_s: float = GOAL_S
    views: int | None = None  # that changed and should not have
    confirmed: int = 0
    broken: int = 0  # promises
    held: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def missed(self) -> str:
        """The goal that was missed."""
        if self.stood_s is not None and self.stood_s > self.goal_s:
            return f"stood still for more than {self.goal_s:g} s"
        return "views changed" if self.views else ""


Scenario = Callable[[Outcome, Options], Awaitable[None]]


# The network.


def obstacle() -> str | None:
    """What is missing here, as a sentence; None if nothing is."""
    if sys.platform != "linux":
        return "network namespaces are Linux's: run it there"
    if os.geteuid() != 0:
        return "making network namespaces takes root: run it with sudo"
    for tool, package in (("ip", "iproute2"), ("iptables", "iptables")):
        if shutil.which(tool) is None:
            return f"{tool} is not installed: apt-get install {package}"
    return None


def netns(*arguments: str) -> None:
    """Run the script; its complaint becomes ours."""
    subprocess.run([str(SCRIPT), *arguments], check=True)


def cut(some: list[str], others: list[str]) -> None:
    """Cut two sets of members off from one another."""
    netns("cut", *(" ".join(str(NAMES.index(name) + 1) for name in names) for names in (some, others)))


def dropped(number: int) -> int:
    """Datagrams that losses took on their way into a namespace."""
    listing = ["ip", "netns", "exec", f"oc{number}", "iptables", "-L", "LOSS", "-v", "-n", "-x"]
    lines = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines if "DROP" in line and "Chain" not in line)


# The scenarios.


@contextlib.asynccontextmanager
async def at_work(outcome: Outcome, options: Options, pace_s: float = 0.0) -> AsyncIterator[ProcessGroup]:
    """Four members that send; behind it everything comes to rest and is judged."""
    trace = Path(tempfile.mkdtemp(prefix=f"{outcome.orderer}-{outcome.scenario}-", dir=options.traces))
    addresses = [(host, 0) for host in HOSTS]
    processes = ProcessGroup(Venue(trace, outcome.orderer, addresses=addresses, prefix=PREFIX, insecure=True))
    processes.write_info({"bench": "chaos", "scenario": outcome.scenario})
    try:
        for number in range(FOUNDERS):
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
    judged = processes.judge(PROPERTIES)
    outcome.confirmed += judged.confirmed
    outcome.broken += judged.lost
    outcome.held &= judged.verdict.held and drained.is_same
    outcome.notes += [str(violation) for violation in judged.verdict.violations[:SHOWN_VIOLATIONS]]
    if not drained.is_same:
        outcome.notes.append("members did not compute the same checksum")


async def kill(outcome: Outcome, options: Options) -> None:
    outcome.goal_s = KILL_GOAL_S
    stood_s = []
    for _ in range(KILLS):
        async with at_work(outcome, options) as processes:
            victim = processes.children[NAMES[0]]
            await processes.kill_ordering(victim)
            stood_s.append(max((await processes.stand_still([victim.name])).values()) / 1e3)
            processes.tell("pace", seconds=0.02)
    outcome.stood_s = max(stood_s)
    outcome.notes.append(f"stood still for {', '.join(f'{each:.2f}' for each in stood_s)} s")


async def losses(outcome: Outcome, options: Options) -> None:
    netns("loss", str(options.loss))
    await kill(outcome, options)
    drops = [dropped(number) for number in NUMBERS[:FOUNDERS]]
    outcome.notes.append(f"dropped on the way in, for each member: {', '.join(map(str, drops))}")
    if options.loss and not all(drops):
        outcome.held = False
        outcome.notes.append("a link has dropped nothing, so this proves nothing")


async def pause(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options, 0.01) as processes:
        paused = await processes.pause(processes.children[NAMES[FOUNDERS - 1]], PAUSE_S)
    outcome.views = paused.views
    outcome.notes.append(f"the stopped member's own loop stood still for {max(paused.lags_ms.values()):,.0f} ms")


async def busy(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options, 0.01) as processes:
        before = processes.changes()
        compute = [sys.executable, "-c", "while True: pass"]
        others = [subprocess.Popen(compute) for _ in range(BUSY_PROCESSES)]
        try:
            await asyncio.sleep(BUSY_S)
        finally:
            for other in others:
                other.kill()
                other.wait()
        await processes.ask()
        outcome.views = processes.changes() - before


async def short_cut(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options, 0.01) as processes:
        before = processes.changes()
        cut([NAMES[FOUNDERS - 1]], list(NAMES[: FOUNDERS - 1]))
        await asyncio.sleep(CUT_S)
        netns("heal")
        await asyncio.sleep(2.0)
        outcome.views = processes.changes() - before


async def outage(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options) as processes:
        lost, others = NAMES[FOUNDERS - 1], list(NAMES[: FOUNDERS - 1])
        await processes.watch()
        cut([lost], others)
        stood_ms, _ = await asyncio.gather(processes.stand_still([lost]), asyncio.sleep(OUTAGE_S))
        processes.tell("pace", seconds=0.02)
        netns("heal")
        began_s = monotonic()
        await processes.until_together(NAMES[:FOUNDERS], RETURN_TIMEOUT_S)
        outcome.notes.append(f"{lost} was back as a new member {monotonic() - began_s:.1f} s after the cut had ended")
    outcome.stood_s = max(stood_ms.values()) / 1e3


async def halves(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options) as processes:
        members = (await processes.ask())[NAMES[0]]["members"]
        first, second = members[: FOUNDERS // 2], members[FOUNDERS // 2 :]
        await processes.watch()
        cut(first, second)
        stood_ms, _ = await asyncio.gather(processes.stand_still(second), asyncio.sleep(OUTAGE_S / 2))
        before = await processes.ask()
        await asyncio.sleep(OUTAGE_S / 2)
        after = await processes.ask()
        processes.tell("pace", seconds=0.02)
        netns("heal")
        began_s = monotonic()
        await processes.until_together(NAMES[:FOUNDERS], RETURN_TIMEOUT_S)
        went_on = [name for name in members if after[name]["ordered"] > before[name]["ordered"]]
        outcome.notes.append(f"{' '.join(went_on)} went on without {' '.join(second)}")
        outcome.notes.append(f"all were together again {monotonic() - began_s:.1f} s after the cut had ended")
        outcome.held &= went_on == first
    outcome.stood_s = max(stood_ms.values()) / 1e3


async def whole_demo(outcome: Outcome, options: Options) -> None:
    """In a thread of its own, since the command brings its own event loop."""
    netns("loss", str(options.loss))
    trace = Path(tempfile.mkdtemp(prefix=f"{outcome.orderer}-{outcome.scenario}-", dir=options.traces))
    command = ["demo", "--insecure", "--exec-prefix", PREFIX, "--hosts", ",".join(HOSTS), "--orderer", outcome.orderer]
    command += ["--seconds", str(2 * options.seconds), "--pause", str(PAUSE_S), "--trace", str(trace), "--json"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        code = await asyncio.to_thread(ordercast, command)
    result = json.loads(shown.getvalue())
    outcome.held = code == 0
    if "error" in result:
        outcome.notes.append(result["error"])
        return
    outcome.stood_s = max(result["stood_still_ms"].values()) / 1e3
    outcome.views = result["pause"]["views_changed"]
    outcome.confirmed, outcome.broken = result["confirmed"], result["promises_broken"]
    outcome.notes += [
        f"a call was answered by {call['answered_by']} in {call['took_ms']} ms" for call in result["calls"]
    ]


SCENARIOS: dict[str, Scenario] = {
    "demo": whole_demo,
    "kill": kill,
    "losses": losses,
    "pause": pause,
    "busy": busy,
    "cut": short_cut,
    "outage": outage,
    "halves": halves,
}


# The table.


async def play(orderer: str, name: str, options: Options) -> Outcome:
    outcome = Outcome(orderer, name, held=True)
    netns("heal")
    netns("loss", "0")
    try:
        await SCENARIOS[name](outcome, options)
    except ChildFailed as error:
        outcome.held = False
        outcome.notes.append(str(error))
    return outcome


def report(outcomes: list[Outcome]) -> list[str]:
    rows = [("orderer", "scenario", "stood still", "views", "confirmed", "broken", "guarantees", "goal")]
    for outcome in outcomes:
        has_goal = outcome.stood_s is not None or outcome.views is not None
        rows.append(
            (
                outcome.orderer,
                outcome.scenario,
                "" if outcome.stood_s is None else f"{outcome.stood_s:.2f} s",
                "" if outcome.views is None else str(outcome.views),
                f"{outcome.confirmed:,}",
                str(outcome.broken),
                "held" if outcome.held else "VIOLATED or failed",
                f"missed: {outcome.missed}" if outcome.missed else "reached" if has_goal else "",
            )
        )
    lines = ["", *table(rows, right=(2, 3, 4, 5)), ""]
    lines.extend(f"{outcome.orderer} {outcome.scenario}: {note}" for outcome in outcomes for note in outcome.notes)
    return lines


def stop(number: int, frame: object) -> None:
    """A polite kill must not leave namespaces behind, either."""
    del number, frame
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Failures between network namespaces, and a table of what came of them."
    )
    parser.add_argument("--orderer", default="all", choices=["all", *ORDERERS], help="one, or all of them (all)")
    parser.add_argument("--only", default=",".join(SCENARIOS), metavar="A,B,…", help=f"of {', '.join(SCENARIOS)} (all)")
    parser.add_argument("--loss", type=float, default=0.05, help="probability that a datagram is dropped (0.05)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of sending, in each scenario (5)")
    parser.add_argument("--trace", type=Path, default=None, metavar="DIR", help="keep the traces in this folder")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    args = parser.parse_args()
    if not 0 <= args.loss < 1:
        parser.error(f"--loss lies between 0 and 1, not {args.loss:g}")
    names = args.only.split(",")
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"there is no scenario {unknown[0]!r}; choose from {', '.join(SCENARIOS)}")
    reason = obstacle()
    if reason is not None:
        print(f"chaos: {reason}", file=sys.stderr)
        return BAD_INPUT
    signal.signal(signal.SIGTERM, stop)
    outcomes: list[Outcome] = []
    try:
        with contextlib.ExitStack() as stack:
            traces = args.trace
            if traces is None:
                traces = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ordercast-chaos-")))
            traces.mkdir(parents=True, exist_ok=True)
            netns("up")
            options = Options(args.loss, args.seconds, traces)
            for orderer in ORDERERS if args.orderer == "all" else (args.orderer,):
                for name in names:
                    print(f"--- {orderer}: {name}", file=sys.stderr, flush=True)
                    outcomes.append(asyncio.run(play(orderer, name, options)))
    except subprocess.CalledProcessError as error:
        print(f"chaos: {' '.join(error.cmd)} failed; does this kernel allow namespaces and iptables?", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    finally:
        # Ctrl-C in the middle of cleaning up would leave the rest behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        netns("down")
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) if args.json else "\n".join(report(outcomes)))
    return 0 if all(outcome.held for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
