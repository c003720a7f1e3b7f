"""Failures of real processes, between network namespaces or on loopback; a table of outcomes.

    sudo .venv/bin/python benches/chaos.py [--orderer token] [--only kill,halves] [--loss 0.05] [--seconds 5] [--json]
    .venv/bin/python benches/chaos.py --loopback [...]

Five hosts on a bridge need root, Linux and `ip` (iproute2). The namespaces are made by `netns.sh` and always removed.
Where there is `iptables`, the kernel drops packets; otherwise, and on loopback, members lose what they receive.
Loopback needs no root, and has no cuts. Rows:

demo          the whole of `ordercast demo`, every link dropping 5 %: a pause, a kill, calls from outside, a guest
kill          SIGKILL of the token site while it has the token (or of the sequencer, or of the first of members that all
              order alike) in full flight, three times
losses        the same, every link dropping 5 %
pause         SIGSTOP of one member for a second: no failure yet, so no view may change
busy          four processes that only compute, beside the members: none of these is suspected, so no view may change
cut           one member cut off for half a second: no failure yet, either
outage        one member cut off for five seconds: it is excluded, and comes back as a new member
halves        two and two members cut off from one another for five seconds: at most one half goes on (`majority`)
restart-two   two of three members with folders are killed and, two seconds later, restarted: they go on with the third
restart-all   all three are killed and restarted: they form the group again
restart-lost  the same, and one of them comes back without its folder: the other two form the group, and it joins
deaf          the application of one member stops to receive: the others go on without it after `patience`, two seconds,
              and it comes back when it receives

`sites` has rows of its own: three sites of three daemons, every link between sites slow and losing 2 % (`chaos_wan.py`,
which needs `/dev/net/tun`; on loopback the links are fast, and cuts need no root).

cut           one site is cut off from the other two for five seconds: both parts go on, and merge
one-way       the same, but the one site hears the other two
apart         the same as cut, all three sites from one another
blink         the same for half a second: no failure yet, so no view may change
kill          SIGKILL of a daemon that is not its site's representative: routes and links stay; then it is restarted
kill-first    the same of a representative: routes stay
pause         SIGSTOP of a daemon inside of a site, then of a representative, for a second each: no view may change

`regions` has rows of its own as well: fifteen nodes in two regions, and three replicas of their membership service; in
each row every datagram is lost with a probability of 5 % (`chaos_regions.py`).

losses        nothing else: most repairs are the receivers'
leader        SIGKILL of the leader of a region, which starts its tokens
holder        SIGKILL of a member in the pass in which it has the token
cachers       SIGKILL of all members of a partition but one, at once
replica       SIGKILL of a replica that does not lead the service
service       SIGKILL of the one that leads, and of a member, which the next one has to exclude
outage        five nodes and a replica are cut off for ten seconds: they are put out, and come back
storm         kills, restarts and pauses of nodes, and kills of replicas, by chance and without waiting

Who was killed is started again.

`daemons` is no orderer, but three daemons of `sites` with thirty clients, native ones and those of Spread
(`chaos_daemons.py`). It is not among `all`.

clients       SIGKILL of six clients at once
kill          SIGKILL of a daemon: its clients go to the others; then it is restarted
cut           one daemon is cut off from the other two for five seconds: both parts go on, and merge
apart         the same, all three from one another
whole         all of these one after the other
storm         cuts, kills, restarts, pauses and clients that come and go, by chance and without waiting

Each row is judged from its traces by the checkers of the simulator. Besides, a member that held a confirmed message and
stayed must have delivered it, whatever became of the others; no two parts of a group may go on after a restart; members
that are left alone must say that they are stalled, and be told that messages may be lost.

`--spark` has the traces of all rows judged by `ordercast verify` in the end, as well.

Exit codes: 0 every guarantee held, 1 one was violated or something failed, 2 it cannot run here. A goal that is missed
is marked, and is no failure: the machine may be busy. The goals: 0.3 s without deliveries after a kill, 3 s after a
member has become deaf, 2 s after another failure; 5 s from the start of restarted processes until all three deliver a
new message (8 s where a folder is lost: the others wait for its member for 3 s); no view because of a pause. Of sites:
3 s without deliveries after a cut, 1.3 s after a kill; merged 3 s after a cut has ended. A process that is killed is
noticed because its kernel says so, a machine that is cut off only by its silence.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict
from pathlib import Path
from time import monotonic

from chaos_daemons import DAEMON_SCENARIOS
from chaos_group import FOUNDERS, Options, Outcome, at_work
from chaos_network import Network
from chaos_regions import CUTS as REGION_CUTS
from chaos_regions import REGION_SCENARIOS, RegionsNetwork, RegionsOptions
from chaos_sites import SITE_SCENARIOS, SitesOptions
from chaos_wan import Wan

from ordercast.cli.children import ChildFailed
from ordercast.cli.main import main as ordercast
from ordercast.cli.processes import NAMES
from ordercast.cli.progress import table
from ordercast.config import Timing

ORDERERS = ("token", "sequencer", "timestamp", "sites", "regions")
DAEMONS = "daemons"
WIDE = {"sites": SITE_SCENARIOS, DAEMONS: DAEMON_SCENARIOS}
"""What runs between sites."""
REGIONS = "regions"
BAD_INPUT = 2
KILLS = 3
PAUSE_S = 1.0
CUT_S = 0.5
OUTAGE_S = 5.0
KILL_GOAL_S = 0.3
BUSY_PROCESSES = 4
BUSY_S = 5.0
TRIO = 3
DOWN_S = 2.0
PATIENCE_S = 2.0
PATIENCE_SLACK_S = 1.0
RETURN_TIMEOUT_S = 30.0


Scenario = Callable[[Outcome, Options], Awaitable[None]]


# The scenarios.


async def kill(outcome: Outcome, options: Options) -> None:
    outcome.goal_s = KILL_GOAL_S
    stood_ms = []
    for _ in range(KILLS):
        async with at_work(outcome, options) as processes:
            victim = processes.children[NAMES[0]]
            await processes.kill_ordering(victim)
            stood_ms.append(await processes.stand_still([victim.name]))
            processes.tell("pace", seconds=0.02)
            drops = options.network.drops(await processes.ask())
    outcome.stood_s = max(max(each.values()) for each in stood_ms) / 1e3
    each = (", ".join(f"{name} {took_ms:.0f} ms" for name, took_ms in times.items()) for times in stood_ms)
    outcome.notes.append(f"without deliveries: {'; '.join(each)}")
    if options.network.loss:
        outcome.notes.append(f"dropped on the way in: {', '.join(f'{name} {n:,}' for name, n in drops.items())}")
        outcome.demand(all(drops.values()), "a link has dropped nothing, so this proves nothing")


async def losses(outcome: Outcome, options: Options) -> None:
    options.network.lose(options.loss)
    await kill(outcome, options)


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
        options.network.cut([NAMES[FOUNDERS - 1]], list(NAMES[: FOUNDERS - 1]))
        await asyncio.sleep(CUT_S)
        options.network.heal()
        await asyncio.sleep(2.0)
        outcome.views = processes.changes() - before


async def outage(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options) as processes:
        lost, others = NAMES[FOUNDERS - 1], list(NAMES[: FOUNDERS - 1])
        await processes.watch()
        options.network.cut([lost], others)
        stood_ms, _ = await asyncio.gather(processes.stand_still([lost]), asyncio.sleep(OUTAGE_S))
        processes.tell("pace", seconds=0.02)
        options.network.heal()
        began_s = monotonic()
        await processes.until_together(NAMES[:FOUNDERS], RETURN_TIMEOUT_S)
        outcome.notes.append(f"{lost} was back as a new member {monotonic() - began_s:.1f} s after the cut had ended")
    outcome.stood_s = max(stood_ms.values()) / 1e3


async def halves(outcome: Outcome, options: Options) -> None:
    async with at_work(outcome, options) as processes:
        members = (await processes.ask())[NAMES[0]]["members"]
        first, second = members[: FOUNDERS // 2], members[FOUNDERS // 2 :]
        await processes.watch()
        options.network.cut(first, second)
        stood_ms, _ = await asyncio.gather(processes.stand_still(second), asyncio.sleep(OUTAGE_S / 2))
        before = await processes.ask()
        await asyncio.sleep(OUTAGE_S / 2)
        after = await processes.ask()
        processes.tell("pace", seconds=0.02)
        options.network.heal()
        began_s = monotonic()
        await processes.until_together(NAMES[:FOUNDERS], RETURN_TIMEOUT_S)
        went_on = [name for name in members if after[name]["ordered"] > before[name]["ordered"]]
        outcome.notes.append(f"{' '.join(went_on)} went on without {' '.join(second)}")
        outcome.notes.append(f"all were together again {monotonic() - began_s:.1f} s after the cut had ended")
        outcome.held &= went_on == first
    outcome.stood_s = max(stood_ms.values()) / 1e3


async def restart_two(outcome: Outcome, options: Options) -> None:
    await restart(outcome, options, killed=2)


async def restart_all(outcome: Outcome, options: Options) -> None:
    await restart(outcome, options, killed=TRIO)


async def restart_lost(outcome: Outcome, options: Options) -> None:
    """The other two are a majority. They wait for the third, which may hold what they have lost, as long as they have
    to; then it joins like a newcomer."""
    outcome.back_goal_s += Timing().restart_wait_ns / 1e9
    await restart(outcome, options, killed=TRIO, forgetful=[TRIO - 1])


async def restart(outcome: Outcome, options: Options, *, killed: int, forgetful: Collection[int] = ()) -> None:
    """The first of three members are killed, and some seconds later started again with their folders."""
    data = Path(tempfile.mkdtemp(prefix=f"{outcome.orderer}-{outcome.scenario}-data-", dir=options.traces))
    async with at_work(outcome, options, 0.01, members=TRIO, data=data) as processes:
        await processes.crash(NAMES[:killed])
        await asyncio.sleep(DOWN_S)
        stayed = dict(processes.children)
        for child in stayed.values():
            stalls = [stalled["text"] for stalled in child.heard("stalled")]
            outcome.demand(bool(stalls), f"{child.name} was alone for {DOWN_S:g} s and did not say that it is stalled")
            outcome.notes += [f"{child.name} said: {text}" for text in stalls[-1:]]
        began_s = monotonic()
        up_s = await processes.restart(range(killed), without_folder=forgetful)
        joined_s = monotonic() - began_s
        outcome.notes.append(f"the processes were up after {up_s:.2f} s, and had joined after {joined_s:.2f} s")
        for name in NAMES[:killed]:
            processes.children[name].tell("send")
        await processes.until_together(NAMES[:TRIO], RETURN_TIMEOUT_S, delivering=True)
        outcome.back_s = monotonic() - began_s
        for child in stayed.values():
            told = [uncertain["text"] for uncertain in child.heard("uncertain")]
            outcome.demand(bool(told), f"{child.name} was not told that messages may be lost")
            outcome.notes += [f"{child.name} was told: {text}" for text in told]


async def deaf(outcome: Outcome, options: Options) -> None:
    """The application of one member stops to receive, its process goes on."""
    outcome.goal_s = PATIENCE_S + PATIENCE_SLACK_S
    async with at_work(outcome, options, patience_s=PATIENCE_S) as processes:
        victim = processes.children[NAMES[FOUNDERS - 1]]
        await processes.watch()
        victim.tell("deaf")
        stood_ms = await processes.stand_still([victim.name])
        outcome.stood_s = max(stood_ms.values()) / 1e3
        processes.tell("pace", seconds=0.02)
        before = await processes.ask()
        await asyncio.sleep(1.0)
        after = await processes.ask()
        went_on = [name for name in stood_ms if after[name]["ordered"] > before[name]["ordered"]]
        outcome.demand(went_on == list(stood_ms), f"only {' '.join(went_on)} went on without {victim.name}")
        began_s = monotonic()
        victim.tell("listen")
        await processes.until_together(NAMES[:FOUNDERS], RETURN_TIMEOUT_S, delivering=True)
        outcome.back_s = monotonic() - began_s
        told = [excluded["text"] for excluded in victim.heard("excluded")]
        outcome.demand(bool(told), f"{victim.name} was not told that it was put out")
        outcome.notes += [f"{victim.name} was told: {text}" for text in told]


async def whole_demo(outcome: Outcome, options: Options) -> None:
    """In a thread of its own, since the command brings its own event loop."""
    options.network.lose(options.loss)
    trace = Path(tempfile.mkdtemp(prefix=f"{outcome.orderer}-{outcome.scenario}-", dir=options.traces))
    command = ["demo", *options.network.demo_flags(), "--orderer", outcome.orderer]
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
    "restart-two": restart_two,
    "restart-all": restart_all,
    "restart-lost": restart_lost,
    "deaf": deaf,
}
CUTS = ("cut", "outage", "halves")
"""Scenarios that loopback does not have."""


# The table.


def rows_of(orderer: str, *, is_loopback: bool) -> list[str]:
    """The scenarios that an orderer has."""
    if orderer in WIDE:
        return list(WIDE[orderer])
    if orderer == REGIONS:
        return [name for name in REGION_SCENARIOS if not (is_loopback and name in REGION_CUTS)]
    return [name for name in SCENARIOS if not (is_loopback and name in CUTS)]


async def play(orderer: str, name: str, options: Options, sites: SitesOptions, regions: RegionsOptions) -> Outcome:
    outcome = Outcome(orderer, name, held=True)
    try:
        if orderer in WIDE:
            await WIDE[orderer][name](outcome, sites)
        elif orderer == REGIONS:
            await REGION_SCENARIOS[name](outcome, regions)
        else:
            options.network.calm()
            await SCENARIOS[name](outcome, options)
    except ChildFailed as error:
        outcome.held = False
        outcome.notes.append(str(error))
    return outcome


def report(outcomes: list[Outcome]) -> list[str]:
    rows = [("orderer", "scenario", "stood still", "back after", "views", "confirmed", "broken", "guarantees", "goal")]
    for outcome in outcomes:
        has_goal = (outcome.stood_s, outcome.back_s, outcome.views) != (None, None, None)
        rows.append(
            (
                outcome.orderer,
                outcome.scenario,
                "" if outcome.stood_s is None else f"{outcome.stood_s:.2f} s",
                "" if outcome.back_s is None else f"{outcome.back_s:.2f} s",
                "" if outcome.views is None else str(outcome.views),
                f"{outcome.confirmed:,}",
                str(outcome.broken),
                "held" if outcome.held else "VIOLATED or failed",
                f"missed: {outcome.missed}" if outcome.missed else "reached" if has_goal else "",
            )
        )
    lines = ["", *table(rows, right=(2, 3, 4, 5, 6)), ""]
    lines.extend(f"{outcome.orderer} {outcome.scenario}: {note}" for outcome in outcomes for note in outcome.notes)
    return lines


def verify(traces: Path) -> bool:
    """Whether Spark finds the same. Its table goes to the terminal: standard output may be for a program."""
    found = [str(path.parent) for path in sorted(traces.glob("*/run.json"))]
    print(f"--- ordercast verify: {len(found)} traces", file=sys.stderr, flush=True)
    with contextlib.redirect_stdout(sys.stderr):
        return ordercast(["verify", *found]) == 0


def stop(number: int, frame: object) -> None:
    """A polite kill must not leave namespaces behind, either: it is as Ctrl-C, which ends the event loop in order."""
    del number, frame
    signal.raise_signal(signal.SIGINT)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Failures between network namespaces, and a table of what came of them."
    )
    choices = ["all", *ORDERERS, DAEMONS]
    parser.add_argument("--orderer", default="all", choices=choices, help="one, or all of them (all)")
    parser.add_argument(
        "--only",
        default=None,
        metavar="A,B,…",
        help=f"of {', '.join(SCENARIOS)} (all); of sites: {', '.join(SITE_SCENARIOS)}; of regions: "
        f"{', '.join(REGION_SCENARIOS)}; of daemons: {', '.join(DAEMON_SCENARIOS)}",
    )
    parser.add_argument(
        "--loopback", action="store_true", help="all members on loopback, without root and without cuts"
    )
    parser.add_argument("--loss", type=float, default=0.05, help="probability that a datagram is dropped (0.05)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of sending, in each scenario (5)")
    parser.add_argument("--trace", type=Path, default=None, metavar="DIR", help="keep the traces in this folder")
    parser.add_argument("--spark", action="store_true", help="judge all traces by ordercast verify, too")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    args = parser.parse_args()
    if not 0 <= args.loss < 1:
        parser.error(f"--loss lies between 0 and 1, not {args.loss:g}")
    orderers = ORDERERS if args.orderer == "all" else (args.orderer,)
    rows = {orderer: rows_of(orderer, is_loopback=args.loopback) for orderer in orderers}
    names = None if args.only is None else args.only.split(",")
    possible = list(dict.fromkeys(name for each in rows.values() for name in each))
    if unknown := [name for name in names or () if name not in possible]:
        where = " on loopback" if args.loopback else ""
        parser.error(f"there is no scenario {unknown[0]!r}{where}; choose from {', '.join(possible)}")
    wanted = [(one, name) for one, each in rows.items() for name in each if names is None or name in names]
    network, wan = Network(is_loopback=args.loopback), Wan(is_loopback=args.loopback)
    crowd = RegionsNetwork(is_loopback=args.loopback)
    used: list[Network | Wan | RegionsNetwork] = []
    for one, _ in wanted:
        needed = wan if one in WIDE else crowd if one == REGIONS else network
        if needed not in used:
            used.append(needed)
    for reason in [each.obstacle() for each in used]:
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
            for each in used:
                each.up()
            options = Options(args.loss, args.seconds, traces, network)
            sites = SitesOptions(args.seconds, traces, wan)
            regions = RegionsOptions(args.loss, args.seconds, traces, crowd)
            for orderer, name in wanted:
                print(f"--- {orderer}: {name}", file=sys.stderr, flush=True)
                outcomes.append(asyncio.run(play(orderer, name, options, sites, regions)))
            is_verified = not args.spark or verify(traces)
    except subprocess.CalledProcessError as error:
        print(f"chaos: {' '.join(error.cmd)} failed; does this kernel allow namespaces and iptables?", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    finally:
        # Ctrl-C in the middle of cleaning up would leave the rest behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for each in used:
            with contextlib.suppress(subprocess.CalledProcessError):  # the other one must go all the same
                each.down()
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) if args.json else "\n".join(report(outcomes)))
    return 0 if is_verified and all(outcome.held for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
