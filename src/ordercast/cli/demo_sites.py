"""`ordercast demo --orderer sites`: two sites of two processes, a cut between them, both go on, merge, verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.cli.children import Child, ChildFailed, Saying
from ordercast.cli.local_sites import settings_of_sites, sites_of_settings
from ordercast.cli.progress import Progress, table
from ordercast.cli.proof import Proof, prove
from ordercast.errors import UsageError
from ordercast.trace.run import RunInfo, parameters_of_sites, software_version

MEMBER: Final = "ordercast.cli.sites_member"
CREWS: Final = {"east": ["ann", "bob"], "west": ["cleo", "dan"]}
GROUP: Final = "demo"
START_TIMEOUT_S: Final = 30.0
VIEW_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05


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
    stage = _Stage(seconds, service, trace, progress)
    try:
        await stage.play()
    finally:
        await asyncio.gather(*(child.kill() for child in stage.children.values()))
    return stage.story


class _Stage:
    """The scenario."""

    __slots__ = ("_progress", "_seconds", "_service", "_settings", "_trace", "children", "offset_ns", "story")

    def __init__(self, seconds: float, service: str, trace: Path, progress: Progress) -> None:
        self.children: dict[str, Child] = {}
        self.story = SitesStory()
        self.offset_ns = time_ns() - monotonic_ns()
        self._seconds = seconds
        self._service = service
        self._trace = trace
        self._progress = progress
        self._settings = settings_of_sites(f"demo-{os.getpid()}", CREWS)

    async def play(self) -> None:
        self._write_info()
        for name in [name for crew in CREWS.values() for name in crew]:
            settings = {
                "name": name,
                "sites": self._settings,
                "trace": str(self._trace),
                "clock_offset_ns": self.offset_ns,
                "group": GROUP,
                "service": self._service,
            }
            self.children[name] = await Child.start(name, MEMBER, settings)
        for child in self.children.values():
            await child.expect("joined", START_TIMEOUT_S)
        await self._until({name: set(self.children) for name in self.children})
        crews = " and ".join([f"{', '.join(crew)} in {site}" for site, crew in CREWS.items()])
        self._note(f"two sites, one group, all daemons send: {crews}")
        self._tell("send")
        await self._watch(0.3)

        began_s = monotonic()
        self._cut()
        self._note("the network between the sites is cut")
        await self._until({name: set(crew) for crew in CREWS.values() for name in crew})
        self.story.parted_s = monotonic() - began_s
        self._note(f"after {self.story.parted_s:.1f} s each site is a component of its own, and goes on")
        before = await self._ask()
        await self._watch(0.3)
        after = await self._ask()
        self.story.apart = {name: after[name]["ordered"] - before[name]["ordered"] for name in after}

        began_s = monotonic()
        self._tell("cut", addresses=[])
        self._note("the network is whole again")
        await self._until({name: set(self.children) for name in self.children})
        self.story.merged_s = monotonic() - began_s
        self._note(f"after {self.story.merged_s:.1f} s the components have merged")
        await self._watch(0.4)
        await self._drain()
        self._note("everything is delivered; the daemons stop")
        await asyncio.gather(*(child.ask("stop", "stopped", START_TIMEOUT_S) for child in self.children.values()))
        self._compare()
        await asyncio.gather(*(child.end() for child in self.children.values()))

    def _cut(self) -> None:
        """No daemon hears those of the other site."""
        config = sites_of_settings(self._settings)
        for name, child in self.children.items():
            here = config.site_of(name).name
            child.tell("cut", addresses=[each.address for each in config.daemons if each.site != here])

    async def _drain(self) -> None:
        """Wait until all have delivered the same in the last view."""
        await asyncio.gather(*(child.ask("quiet", "flushed", VIEW_TIMEOUT_S) for child in self.children.values()))
        deadline_s = monotonic() + VIEW_TIMEOUT_S
        while True:
            answers = await self._ask()
            if len({(said["view"], said["ordered"], said["checksum"]) for said in answers.values()}) == 1:
                break
            if monotonic() > deadline_s:
                raise ChildFailed(f"{', '.join(answers)} have not delivered the same after {VIEW_TIMEOUT_S:g} s")
            await asyncio.sleep(POLL_S)
        self.story.delivered = {name: said["delivered"] for name, said in answers.items()}

    def _compare(self) -> None:
        """Daemons of one site have gone through the same views with the same messages."""
        for crew in CREWS.values():
            ends: dict[str, set[tuple[int, int]]] = {}
            for name in crew:
                for said in self.children[name].heard("ended"):
                    ends.setdefault(said["view"], set()).add((said["ordered"], said["checksum"]))
            for view, found in ends.items():
                if len(found) > 1:
                    self.story.disagreements.append(f"{' and '.join(crew)} ended {view} with different messages")

    async def _until(self, wanted: dict[str, set[str]]) -> None:
        """Wait until each daemon has a view of these members."""
        deadline_s = monotonic() + VIEW_TIMEOUT_S
        while True:
            answers = await self._ask()
            if all(set(answers[name]["members"]) == members for name, members in wanted.items()):
                return
            if monotonic() > deadline_s:
                seen = {name: " ".join(said["members"]) for name, said in answers.items()}
                raise ChildFailed(f"the daemons are not where they should be after {VIEW_TIMEOUT_S:g} s: {seen}")
            await asyncio.sleep(POLL_S)

    async def _ask(self) -> dict[str, Saying]:
        children = list(self.children.values())
        answers = await asyncio.gather(*(child.ask("ask", "answer", START_TIMEOUT_S) for child in children))
        return {child.name: answer for child, answer in zip(children, answers, strict=True)}

    def _tell(self, word: str, **fields: Any) -> None:
        for child in self.children.values():
            child.tell(word, **fields)

    async def _watch(self, share: float) -> None:
        """Show the daemons for a part of the time."""
        stop_s = monotonic() + share * self._seconds
        while monotonic() < stop_s:
            rows = [("daemon", "view of", "sent", "delivered")]
            for name, child in self.children.items():
                child.check()
                said = child.status
                if said:
                    rows.append((name, " ".join(said["members"]), f"{said['sent']:,}", f"{said['delivered']:,}"))
            counts = ", ".join([f"{row[0]} {row[3]}" for row in rows[1:]])
            self._progress.live(table(rows, right=(2, 3)), f"delivered: {counts}")
            await asyncio.sleep(min(0.2, max(0.01, stop_s - monotonic())))

    def _note(self, text: str) -> None:
        self._progress.note(text)

    def _write_info(self) -> None:
        places = {name: site for site, crew in CREWS.items() for name in crew}
        RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer="sites",
            services=tuple(dict.fromkeys((self._service, "AGREED", "SAFE"))),
            parameters=parameters_of_sites(places, {"command": "demo", "seconds": self._seconds}),
            software_version=software_version(),
            clock_offset_ns=self.offset_ns,
        ).write(self._trace)


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
