"""Client processes of daemons, and what is done to them: shared by `benches/chaos.py --orderer daemons` and tests.

A process is one client, native or of Spread (`client_member`). All of them send to one group and receive from it.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from ordercast.cli.children import Child, Saying
from ordercast.cli.chronicle import Transition, disagreements
from ordercast.cli.process_crew import ProcessCrew

MEMBER: Final = "ordercast.cli.client_member"
DAEMON: Final = "ordercast.cli.daemon_member"
"""The program of their daemons, for `SitesVenue.module`."""

START_TIMEOUT_S: Final = 120.0
VIEW_TIMEOUT_S: Final = 90.0
NATIVE: Final = "native"
SPREAD: Final = "spread"

Doors = dict[str, dict[str, Any]]
"""Where each daemon takes clients: a unix socket, and a folder with the one of Spread, which has a port as its name."""


class ClientProcess(NamedTuple):
    """One client: its name, its kind, and the daemons that it tries, in turn."""

    name: str
    kind: str
    daemons: tuple[str, ...]


def doors_of(folder: Path, daemons: Sequence[str]) -> Doors:
    """Sockets in a folder, whose path is to be short. The ports of Spread are free ones of this machine."""
    found = {}
    with ExitStack() as opened:
        for name in daemons:
            each = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            each.bind(("127.0.0.1", 0))
            own = folder / name
            own.mkdir(parents=True, exist_ok=True)
            found[name] = {
                "native": str(own / "native"),
                "spread_port": each.getsockname()[1],
                "spread_folder": str(own),
            }
    return found


def crew(count: int, daemons: Sequence[str]) -> list[ClientProcess]:
    """So many clients of so many daemons in turn, of both kinds at each of them. A client that loses its daemon goes to
    the next one."""
    plans = []
    for at in range(count):
        first = at % len(daemons)
        kind = (NATIVE, SPREAD)[at // len(daemons) % 2]
        plans.append(ClientProcess(f"{kind[0]}{at}", kind, (*daemons[first:], *daemons[:first])))
    return plans


class ClientProcesses:
    """Clients, each in a process of its own."""

    __slots__ = ("_crew", "_doors", "_group", "_pace_s", "plans")

    def __init__(self, doors: Doors, group: str, pace_s: float) -> None:
        self._crew = ProcessCrew("clients", VIEW_TIMEOUT_S)
        self._doors = doors
        self._group = group
        self._pace_s = pace_s
        self.plans: dict[str, ClientProcess] = {}

    @property
    def children(self) -> dict[str, Child]:
        """Those that live."""
        return self._crew.children

    # Coming and going

    async def start(self, plans: Sequence[ClientProcess]) -> None:
        """Start clients; returns when all are in one view."""
        await self.launch(plans)
        await self.until([[*self.children]], timeout_s=START_TIMEOUT_S)

    async def launch(self, plans: Sequence[ClientProcess]) -> None:
        """Start clients, and wait for nothing."""
        for plan in plans:
            settings = {
                "name": plan.name,
                "kind": plan.kind,
                "group": self._group,
                "pace_s": self._pace_s,
                "doors": [self._doors[name] for name in plan.daemons],
            }
            self.plans[plan.name] = plan
            await self._crew.start(plan.name, MEMBER, settings)

    async def crash(self, names: Collection[str]) -> None:
        """SIGKILL."""
        await self._crew.crash(names)

    async def kill(self) -> None:
        """End every process without a warning, whatever happened before."""
        await self._crew.kill()

    # What is said to them

    def tell(self, word: str, **fields: Any) -> None:
        self._crew.tell(word, **fields)

    async def ask(self) -> dict[str, Saying]:
        """Where each client is."""
        return await self._crew.ask()

    async def until(
        self,
        parts: Sequence[Collection[str]],
        *,
        delivering: int = 0,
        without: Collection[str] = (),
        timeout_s: float = VIEW_TIMEOUT_S,
    ) -> dict[str, Saying]:
        """Wait until the clients of each part are in one view of exactly these, none of them at a daemon of `without`,
        and each has received so many messages in it; what they said then."""
        return await self._crew.until(
            lambda answers: all(_are_together(answers, part, delivering, without) for part in parts),
            lambda said: f"{said['view'][:8]} {len(said['members'])}",
            timeout_s,
        )

    async def drain(self) -> dict[str, Saying]:
        """Wait until nobody sends, and all have received the same in the last view; what they said then."""
        return await self._crew.drain(lambda said: (said["view"], said["count"], said["checksum"]), VIEW_TIMEOUT_S)

    # What they have seen

    def transitions(self) -> dict[str, list[Transition]]:
        """By the name of the client, of those that were killed, too."""
        return {child.name: [Transition.read(said) for said in child.heard("view")] for child in self._crew.everybody}

    def disagreements(self) -> list[str]:
        """What they cannot have seen all together."""
        return disagreements(list(self.transitions().values()))


def _are_together(
    answers: Mapping[str, Saying], part: Collection[str], delivering: int, without: Collection[str]
) -> bool:
    said = [answers[name] for name in part]
    if len({each["view"] for each in said}) != 1 or any(each["count"] < delivering for each in said):
        return False
    members = [member.split("#")[1:] for member in said[0]["members"]]
    return sorted([label for label, _ in members]) == sorted(part) and not any(where in without for _, where in members)
