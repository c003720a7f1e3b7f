"""`ordercast demo --orderer regions`: two overlapping sets of groups, kills of a member and of a region's leader, a
return, and the verdict."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.cli.children import ChildFailed, Saying
from ordercast.cli.process_crew import ProcessCrew
from ordercast.cli.progress import Progress, table
from ordercast.cli.proof import Proof, prove
from ordercast.config import REGIONS_ORDERER
from ordercast.errors import UsageError
from ordercast.sim.checkers import REGIONAL_PROPERTIES
from ordercast.trace.run import RunInfo, software_version

MEMBER: Final = "ordercast.cli.regions_member"
CREWS: Final = {"metals": ["ann", "bob", "cleo"], "energy": ["dan", "eve", "fay", "gus"]}
"""The first three bring the membership service along: none of them is killed, or too few replicas would be left."""

OWN_GROUPS: Final = 40  # of each crew
SHARED_GROUPS: Final = 10  # that both are in
COMMON: Final = "news 0"  # one of these
TIMEOUT_S: Final = 60.0
EXAMINED: Final = ("well_formed", "integrity", "fifo", "liveness", "promises", *REGIONAL_PROPERTIES)
"""What regions promise: no total order, and no virtual synchrony."""


@dataclass(slots=True)
class RegionsStory:
    """What happened, for the report."""

    member: str = ""  # that was killed first
    leader: str = ""  # of a region, that was killed then
    excluded_s: dict[str, float] = field(default_factory=dict)  # until nobody had them in a view
    stood_ms: dict[str, float] = field(default_factory=dict)  # for how long nothing was delivered, by who was killed
    back_s: float = 0.0  # until the member was back with everybody
    delivered: dict[str, int] = field(default_factory=dict)
    lost: int = 0  # blocks that members were told to be lost
    is_same: bool = False
    took_s: float = 0.0


def run(args: argparse.Namespace, service: str, trace: Path) -> int:
    """Play and judge."""
    progress = Progress()
    began_s = monotonic()
    try:
        story, crashed = asyncio.run(play(args.seconds, service, trace, progress))
        proof = prove(trace, crashed, with_spark=not args.no_spark, say=progress.note, wanted=EXAMINED)
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
    """What the demonstration of regions does not take."""
    others = {"--hosts": args.hosts, "--peers": args.peers, "--exec-prefix": args.exec_prefix, "--pause": args.pause}
    others |= {
        "--loss": args.loss,
        "--insecure": args.insecure,
        "--host": args.host if args.host != "127.0.0.1" else "",
    }
    given = [flag for flag, value in others.items() if value]
    if given:
        raise UsageError(f"the demo of regions has seven nodes on loopback: leave out {', '.join(given)}")


async def play(
    seconds: float, service: str, trace: Path, progress: Progress
) -> tuple[RegionsStory, dict[tuple[str, int], int]]:
    """Start, send, kill, go on, kill, come back, drain, stop; what happened, and the crashes with their times."""
    stage = _Stage(seconds, service, trace, progress)
    try:
        await stage.play()
    finally:
        await stage.crew.kill()
    return stage.story, stage.crashed


def groups_of(crew: str) -> list[str]:
    """The groups of a crew, and those that both share."""
    return [
        *(f"{crew} {number}" for number in range(OWN_GROUPS)),
        *(f"news {number}" for number in range(SHARED_GROUPS)),
    ]


class _Stage:
    """The scenario."""

    __slots__ = ("_addresses", "_lives", "_offset_ns", "_progress", "_seconds", "_settings", "crashed", "crew", "story")

    def __init__(self, seconds: float, service: str, trace: Path, progress: Progress) -> None:
        self.crew = ProcessCrew("nodes", TIMEOUT_S)
        self.story = RegionsStory()
        self.crashed: dict[tuple[str, int], int] = {}  # (name, life) -> when, on the run clock
        self._seconds = seconds
        self._progress = progress
        self._offset_ns = time_ns() - monotonic_ns()
        self._lives: dict[str, int] = {}
        self._addresses: dict[str, tuple[str, int]] = {}
        self._settings = {
            "trace": str(trace),
            "service": service,
            "common": COMMON,
            "run": f"demo-{os.getpid()}",
            "clock_offset_ns": self._offset_ns,
        }
        RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer=REGIONS_ORDERER,
            services=tuple(dict.fromkeys((service, "RELIABLE", "FIFO"))),
            parameters={"command": "demo", "seconds": seconds},
            software_version=software_version(),
            clock_offset_ns=self._offset_ns,
        ).write(trace)

    async def play(self) -> None:
        story = self.story
        for crew, names in CREWS.items():
            for name in names:
                await self._start(name, crew)
        everybody = [name for names in CREWS.values() for name in names]
        await self._until(everybody)
        sets = " and ".join([f"{', '.join(names)} in {OWN_GROUPS} groups" for names in CREWS.values()])
        self._note(f"{sets}, all of them in {SHARED_GROUPS} more: two regions; all send to all their groups")
        self.crew.tell("send")
        await self._watch(0.25)

        in_order = sorted(CREWS["energy"], key=self._addresses.__getitem__)
        story.leader, story.member = in_order[0], in_order[-1]
        await self._kill(story.member, "a member", everybody)
        await self._watch(0.25)
        await self._kill(story.leader, "the leader of its region, which starts the tokens,", everybody)
        await self._watch(0.25)

        began_s = monotonic()
        everybody.append(story.member)
        await self._start(story.member, "energy")
        await self._until(everybody)
        story.back_s = monotonic() - began_s
        self._note(f"{story.member} is back after {story.back_s:.1f} s, as a new life")
        self.crew.children[story.member].tell("send")
        await self._watch(0.25)
        await self._drain()
        self._note("everything is delivered; the nodes stop")
        await self.crew.ask("stop", "stopped")
        await asyncio.gather(*(child.end() for child in self.crew.children.values()))

    async def _start(self, name: str, crew: str) -> None:
        await self.crew.start(name, MEMBER, {**self._settings, "name": name, "groups": groups_of(crew)})
        said = await self.crew.children[name].expect("joined", TIMEOUT_S)
        self._lives[name] = said["life"]
        self._addresses[name] = (said["address"][0], said["address"][1])

    async def _kill(self, name: str, what: str, everybody: list[str]) -> None:
        self.crew.tell("watch")
        await asyncio.sleep(0)
        self.crashed[name, self._lives[name]] = await self.crew.crash([name]) + self._offset_ns
        began_s = monotonic()
        self._note(f"killed {name}, {what} with SIGKILL under load")
        everybody.remove(name)
        answers = await self._until(everybody)
        self.story.excluded_s[name] = monotonic() - began_s
        self.story.stood_ms[name] = max(said["stood_ms"] for said in answers.values())
        self._note(f"the service has excluded {name} after {self.story.excluded_s[name]:.1f} s; the others go on")

    async def _until(self, names: Collection[str]) -> dict[str, Saying]:
        """Wait until everybody knows exactly these, in the common group and in its own region."""

        def knows(name: str, said: Saying) -> bool:
            crew = next(each for each in CREWS.values() if name in each)
            return set(said["members"]) == set(names) and set(said["neighbours"]) == set(names) & set(crew)

        return await self.crew.until(
            lambda answers: all(knows(name, said) for name, said in answers.items()),
            lambda said: " ".join(said["members"]),
            TIMEOUT_S,
        )

    async def _drain(self) -> None:
        """Wait until nobody sends, and who was in a region all the time has the same of each sender."""
        story = self.story
        await self.crew.ask("quiet", "flushed")
        stayed = [[name for name in crew if (name, self._lives[name]) not in self.crashed] for crew in CREWS.values()]
        stayed[1] = [name for name in stayed[1] if name != story.member]  # came later

        def is_same(answers: Mapping[str, Saying]) -> bool:
            return all(
                len({json.dumps(answers[name]["sums"]) for name in names if name in answers}) == 1 for names in stayed
            )

        answers = await self.crew.until(is_same, lambda said: f"{said['delivered']}", TIMEOUT_S)
        story.is_same = True
        story.delivered = {name: said["delivered"] for name, said in answers.items()}
        story.lost = max(said["lost"] for said in answers.values())

    async def _watch(self, share: float) -> None:
        """Show the nodes for a part of the time."""
        stop_s = monotonic() + share * self._seconds
        while monotonic() < stop_s:
            rows = [("node", "region", "sent", "delivered")]
            for name, child in self.crew.children.items():
                child.check()
                said = child.status
                if said:
                    rows.append((name, " ".join(said["neighbours"]), f"{said['sent']:,}", f"{said['delivered']:,}"))
            counts = ", ".join([f"{row[0]} {row[3]}" for row in rows[1:]])
            self._progress.live(table(rows, right=(2, 3)), f"delivered: {counts}")
            await asyncio.sleep(min(0.2, max(0.01, stop_s - monotonic())))

    def _note(self, text: str) -> None:
        self._progress.note(text)


def holds(story: RegionsStory, proof: Proof) -> bool:
    return proof.held and story.is_same


def report(story: RegionsStory, proof: Proof, trace: Path) -> list[str]:
    """Lines for people."""
    rows = [("guarantee", "result", "examined")]
    rows += [(name, one.word, f"{one.checked:,} {one.unit}".rstrip()) for name, one in proof.properties.items()]
    survivors = ", ".join([f"{name} {count:,}" for name, count in story.delivered.items()])
    lines = [
        *table(rows),
        *proof.evidence,
        f"delivered: {survivors}; nodes of a region have the same of each sender; blocks lost: {story.lost}",
    ]
    for what, name in (("a member", story.member), ("a region's leader", story.leader)):
        lines.append(
            f"{name}, {what}, was killed and excluded after {story.excluded_s[name]:.1f} s; deliveries stood still for "
            f"{story.stood_ms[name] / 1e3:.2f} s at most"
        )
    lines += [
        f"{story.member} came back as a new life and was with everybody after {story.back_s:.1f} s",
        f"{proof.confirmed:,} sends were confirmed to their senders; promises broken: {proof.lost}",
        f"{'every guarantee held' if holds(story, proof) else 'NOT every guarantee held'}: {proof.events:,} events "
        f"examined by {proof.by}; {story.took_s:.1f} s in all",
        f"trace: {trace}",
    ]
    if proof.report is not None:
        lines.append(f"report: {proof.report}")
    return lines


def as_json(story: RegionsStory, proof: Proof, trace: Path) -> dict[str, Any]:
    """The verdict for programs."""
    return {
        "held": holds(story, proof),
        "trace": str(trace),
        "report": str(proof.report) if proof.report is not None else None,
        "orderer": REGIONS_ORDERER,
        "took_s": round(story.took_s, 1),
        "killed": {"member": story.member, "leader": story.leader},
        "excluded_s": {name: round(took_s, 2) for name, took_s in story.excluded_s.items()},
        "stood_still_ms": {name: round(stood_ms, 1) for name, stood_ms in story.stood_ms.items()},
        "back_s": round(story.back_s, 2),
        "delivered": story.delivered,
        "same_messages": story.is_same,
        "blocks_lost": story.lost,
        "confirmed": proof.confirmed,
        "promises_broken": proof.lost,
        "verdict": proof.as_json(),
    }
