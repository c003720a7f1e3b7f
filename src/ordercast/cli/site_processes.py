"""Daemon processes of sites, and what is done to them: shared by `demo --orderer sites` and `benches/chaos.py`.

A process is one node that is its own daemon (`sites_member`). All of them send to one group and receive from it. Or it
is a daemon with clients of its own (`daemon_member`, `client_processes`), which sends nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, monotonic_ns, time_ns
from typing import Any, Final

from ordercast.cli.children import Child, Saying
from ordercast.cli.process_crew import ProcessCrew
from ordercast.sites import SitesConfig
from ordercast.trace.run import RunInfo, parameters_of_sites, software_version

MEMBER: Final = "ordercast.cli.sites_member"
START_TIMEOUT_S: Final = 60.0
VIEW_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class SitesVenue:
    """Where daemons run, and what."""

    trace: Path
    config: SitesConfig
    told: Mapping[str, Any]  # how a process learns the configuration: `file`, or `sites` as in `local_sites`
    group: str = "demo"
    service: str = "AGREED"
    prefixes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # put before the command of a daemon
    insecure: bool = False
    module: str = MEMBER  # the program of a daemon


class SiteProcesses:
    """The daemons of one configuration, each in a process of its own."""

    __slots__ = ("_crew", "_lives", "crashed", "offset_ns", "venue")

    def __init__(self, venue: SitesVenue) -> None:
        self.venue = venue
        self._crew = ProcessCrew("daemons", START_TIMEOUT_S)
        self.crashed: dict[tuple[str, int], int] = {}  # (name, life) -> when, on the run clock
        self.offset_ns = time_ns() - monotonic_ns()
        self._lives: dict[str, int] = {}

    @property
    def children(self) -> dict[str, Child]:
        """Those that live."""
        return self._crew.children

    # Coming and going

    async def start(self, names: Collection[str]) -> float:
        """Start daemons; returns when each of them is in the group, in whatever view. How many seconds it took until
        all processes were up, and had begun to join."""
        venue, began_s = self.venue, monotonic()
        for name in names:
            settings = {
                **venue.told,
                "name": name,
                "site": venue.config.site_of(name).name,
                "insecure": venue.insecure,
                "trace": str(venue.trace),
                "clock_offset_ns": self.offset_ns,
                "group": venue.group,
                "service": venue.service,
            }
            await self._crew.start(name, venue.module, settings, venue.prefixes.get(name, ()))
        for name in names:
            await self.children[name].expect("up", START_TIMEOUT_S)
        up_s = monotonic() - began_s
        for name in names:
            self._lives[name] = (await self.children[name].expect("joined", START_TIMEOUT_S))["life"]
        return up_s

    async def crash(self, name: str) -> None:
        """SIGKILL."""
        self.crashed[name, self._lives[name]] = await self._crew.crash([name]) + self.offset_ns

    async def pause(self, name: str, seconds: float) -> None:
        """SIGSTOP for a while."""
        await self._crew.pause(name, seconds)

    async def stop(self) -> None:
        """Stop all daemons where they are: one that leaves owes nothing any more, and could not be judged."""
        children = list(self.children.values())
        await asyncio.gather(*(child.ask("stop", "stopped", START_TIMEOUT_S) for child in children))
        await asyncio.gather(*(child.end() for child in children))

    async def kill(self) -> None:
        """End every process without a warning, whatever happened before."""
        await self._crew.kill()

    # What is said to them

    def tell(self, word: str, **fields: Any) -> None:
        self._crew.tell(word, **fields)

    def cut(self, parts: Sequence[Collection[str]]) -> None:
        """Daemons of sites in different parts do not hear one another: each drops what it receives from the others.
        Needs no privilege. One part of all sites heals."""
        config = self.venue.config
        for name, child in self.children.items():
            here = config.site_of(name).name
            near = {site for part in parts if here in part for site in part}
            child.tell("cut", addresses=[each.address for each in config.daemons if each.site not in near])

    def mute(self, site: str) -> None:
        """Daemons of other sites do not hear those of this one, which hear them."""
        config = self.venue.config
        addresses = [each.address for each in config.daemons if each.site == site]
        for name, child in self.children.items():
            child.tell("cut", addresses=addresses if config.site_of(name).name != site else [])

    async def ask(self) -> dict[str, Saying]:
        """Where each daemon is; everything that was told before is done."""
        return await self._crew.ask()

    async def until(
        self, parts: Sequence[Collection[str]], *, delivering: bool = False, timeout_s: float = VIEW_TIMEOUT_S
    ) -> dict[str, Saying]:
        """Wait until the daemons of each part are in one view of exactly these, and, if wanted, each has delivered
        something in it; what they said then."""
        return await self._crew.until(
            lambda answers: all(_are_together(answers, part, delivering) for part in parts),
            lambda said: " ".join(said["members"]),
            timeout_s,
        )

    async def drain(self) -> dict[str, Saying]:
        """Wait until nobody sends, and all have delivered the same in the last view; what they said then."""
        return await self._crew.drain(lambda said: (said["view"], said["ordered"], said["checksum"]), VIEW_TIMEOUT_S)

    # The proof

    def disagreements(self) -> list[str]:
        """Daemons that have gone from one view to the next together have delivered the same in the former."""
        ends: dict[tuple[str, str, str], dict[tuple[int, int], str]] = {}
        for child in self._crew.everybody:
            for said in child.heard("ended"):
                key = said["view"], said["next"], " ".join(said["came_with"])
                ends.setdefault(key, {}).setdefault((said["ordered"], said["checksum"]), child.name)
        return [
            f"{' and '.join(found.values())} ended {view} with different messages"
            for (view, _, _), found in ends.items()
            if len(found) > 1
        ]

    def write_info(self, parameters: Mapping[str, Any]) -> None:
        """`run.json` of the trace."""
        venue = self.venue
        RunInfo(
            run_id=uuid.uuid4().hex[:16],
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            source="network",
            clock="one-host",
            seed=None,
            orderer="sites",
            services=tuple(dict.fromkeys((venue.service, "AGREED", "SAFE"))),
            parameters=parameters_of_sites({each.name: each.site for each in venue.config.daemons}, parameters),
            software_version=software_version(),
            clock_offset_ns=self.offset_ns,
        ).write(venue.trace)


def _are_together(answers: Mapping[str, Saying], part: Collection[str], delivering: bool) -> bool:
    said = [answers[name] for name in part if name in answers]
    is_one = len({each["view"] for each in said}) == 1 and set(said[0]["members"]) == set(part)
    return is_one and (not delivering or all(each["ordered"] for each in said))
