"""`ordercast demo --orderer sites`: two sites of two processes, a cut between them, both go on, merge, verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ordercast.cli.children import ChildFailed
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.progress import Progress, table
from ordercast.cli.proof import Proof, prove
from ordercast.cli.site_processes import SiteProcesses, SitesVenue
from ordercast.errors import UsageError

CREWS: Final = {"east": ["ann", "bob"], "west": ["cleo", "dan"]}
GROUP: Final = "demo"


@dataclass(slots=True)
class SitesStory:
    """What happened, for the report."""

    parted_s: float = 0.0  # from the cut until both parts had their views
    merged_s: float = 0.0  # from the heal until all had one
    apart: dict[str, int] = field(default_factory=dict)  # ordered messages that each daemon delivered while apart
    delivered: dict[str, int] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)
    took_s: float = 0.0


def run(args: argparse.Namespace, service: str, trace: Path) -> int:
    """Play and judge."""
    progress = Progress()
    began_s = monotonic()
    try:
        story = asyncio.run(play(args.seconds, service, trace, progress))
        proof = prove(trace, {}, with_spark=not args.no_spark, say=progress.note)
    except ChildFailed as error:
        if args.json:
            print(json.dumps({"held": False, "error": str(error), "trace": str(trace)}, indent=2))
        print(f"ordercast demo: {error}; what was traced lies in {trace}", file=sys.stderr)
        return 1
    finally:
        progress.close()
    story.took_s = monotonic() - began_s
    print(json.dumps(as_json(story, proof, trace), indent=2) if args.json else "\n".join(report(story, proof, trace)))
    return 0 if holds(story, proof) else 1


def check(args: argparse.Namespace) -> None:
    """What the demonstration of sites does not take."""
    others = {"--hosts": args.hosts, "--peers": args.peers, "--exec-prefix": args.exec_prefix, "--pause": args.pause}
    others |= {
        "--loss": args.loss,
        "--insecure": args.insecure,
        "--host": args.host if args.host != "127.0.0.1" else "",
    }
    given = [flag for flag, value in others.items() if value]
    if given:
        raise UsageError(f"the demo of sites has four daemons on loopback: leave out {', '.join(given)}")


async def play(seconds: float, service: str, trace: Path, progress: Progress) -> SitesStory:
    """Start, send, cut, go on, heal, merge, drain, stop."""
    settings = settings_of_sites(f"demo-{os.getpid()}", CREWS)
    venue = SitesVenue(trace, sites_of_settings(settings), {"sites": settings}, GROUP, service)
    stage = _Stage(seconds, venue, progress)
    try:
        await stage.play()
    finally:
        await stage.processes.kill()
    return stage.story


class _Stage:
    """The scenario."""

    __slots__ = ("_progress", "_seconds", "processes", "story")

    def __init__(self, seconds: float, venue: SitesVenue, progress: Progress) -> None:
        self.processes = SiteProcesses(venue)
        self.story = SitesStory()
        self._seconds = seconds
        self._progress = progress

    async def play(self) -> None:
        processes, story = self.processes, self.story
        everybody = [name for crew in CREWS.values() for name in crew]
        processes.write_info({"command": "demo", "seconds": self._seconds})
        await processes.start(everybody)
        await processes.until([everybody])
        crews = " and ".join([f"{', '.join(crew)} in {site}" for site, crew in CREWS.items()])
        self._note(f"two sites, one group, all daemons send: {crews}")
        processes.tell("send")
        await self._watch(0.3)

        began_s = monotonic()
        processes.cut([[site] for site in CREWS])
        self._note("the network between the sites is cut")
        await processes.until(list(CREWS.values()))
        story.parted_s = monotonic() - began_s
        self._note(f"after {story.parted_s:.1f} s each site is a component of its own, and goes on")
        before = await processes.ask()
        await self._watch(0.3)
        after = await processes.ask()
        story.apart = {name: after[name]["ordered"] - before[name]["ordered"] for name in after}

        began_s = monotonic()
        processes.cut([list(CREWS)])
        self._note("the network is whole again")
        await processes.until([everybody])
        story.merged_s = monotonic() - began_s
        self._note(f"after {story.merged_s:.1f} s the components have merged")
        await self._watch(0.4)
        story.delivered = {name: said["delivered"] for name, said in (await processes.drain()).items()}
        self._note("everything is delivered; the daemons stop")
        await processes.stop()
        story.disagreements = processes.disagreements()

    async def _watch(self, share: float) -> None:
        """Show the daemons for a part of the time."""
        stop_s = monotonic() + share * self._seconds
        while monotonic() < stop_s:
            rows = [("daemon", "view of", "sent", "delivered")]
            for name, child in self.processes.children.items():
                child.check()
                said = child.status
                if said:
                    rows.append((name, " ".join(said["members"]), f"{said['sent']:,}", f"{said['delivered']:,}"))
            counts = ", ".join([f"{row[0]} {row[3]}" for row in rows[1:]])
            self._progress.live(table(rows, right=(2, 3)), f"delivered: {counts}")
            await asyncio.sleep(min(0.2, max(0.01, stop_s - monotonic())))

    def _note(self, text: str) -> None:
        self._progress.note(text)


def holds(story: SitesStory, proof: Proof) -> bool:
    return proof.held and not story.disagreements


def report(story: SitesStory, proof: Proof, trace: Path) -> list[str]:
    """Lines for people."""
    rows = [("guarantee", "result", "examined")]
    rows += [(name, one.word, f"{one.checked:,} {one.unit}".rstrip()) for name, one in proof.properties.items()]
    apart = ", ".join([f"{name} {count:,}" for name, count in story.apart.items()])
    lines = [
        *table(rows),
        *proof.evidence,
        *story.disagreements,
        f"the sites were apart {story.parted_s:.1f} s after the cut, and merged {story.merged_s:.1f} s after its end",
        f"ordered messages while they were apart: {apart}",
        f"{'every guarantee held' if holds(story, proof) else 'NOT every guarantee held'}: {proof.events:,} events "
        f"examined by {proof.by}; {story.took_s:.1f} s in all",
        f"trace: {trace}",
    ]
    if proof.report is not None:
        lines.append(f"report: {proof.report}")
    return lines


def as_json(story: SitesStory, proof: Proof, trace: Path) -> dict[str, Any]:
    """The verdict for programs."""
    return {
        "held": holds(story, proof),
        "trace": str(trace),
        "report": str(proof.report) if proof.report is not None else None,
        "orderer": "sites",
        "took_s": round(story.took_s, 1),
        "parted_s": round(story.parted_s, 2),
        "merged_s": round(story.merged_s, 2),
        "ordered_apart": story.apart,
        "delivered": story.delivered,
        "disagreements": story.disagreements,
        "confirmed": proof.confirmed,
        "promises_broken": proof.lost,
        "verdict": proof.as_json(),
    }
