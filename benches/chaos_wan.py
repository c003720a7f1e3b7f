"""Where the daemons of `chaos.py --orderer sites` run: three sites of three hosts, in namespaces or on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from chaos_namespaces import obstacle

from ordercast.cli.local_sites import free_ports
from ordercast.cli.site_processes import SiteProcesses, SitesVenue
from ordercast.runtime.addresses import group_address
from ordercast.sites import load_sites

SCRIPT = Path(__file__).with_name("netns_sites.sh")
ROUTER = Path(__file__).with_name("wan.py")
CREWS = {"east": ["e1", "e2", "e3"], "west": ["w1", "w2", "w3"], "north": ["n1", "n2", "n3"]}
EVERYBODY = [name for crew in CREWS.values() for name in crew]
PORT = 4803
RATE = "50Mbit"
LATENCY_S = {("east", "west"): 0.010, ("west", "north"): 0.015, ("east", "north"): 0.025}
"""One way, between namespaces. The way from east to north through west is as long as the direct one."""
LOSS = 0.02
"""Of each packet between sites."""

END_TIMEOUT_S = 5.0


class Wan:
    """The network of one run. Loopback has no latency; daemons drop what they receive over a cut, and lose some."""

    def __init__(self, *, is_loopback: bool) -> None:
        self.is_loopback = is_loopback
        self._router: subprocess.Popen[str] | None = None
        self._counts: dict[str, dict[str, int]] = {}  # of each pipe, and
        self._before: dict[str, dict[str, int]] = {}  # as they were when the row began
        self._ports = dict.fromkeys(EVERYBODY, PORT)

    def obstacle(self) -> str | None:
        """What is missing here, as a sentence; None if nothing is."""
        if self.is_loopback:
            return None
        if (reason := obstacle()) is not None:
            return reason
        if not Path("/dev/net/tun").exists():
            return "there is no /dev/net/tun: load the module tun, or run it with --loopback"
        return None

    def up(self) -> None:
        if self.is_loopback:
            self._ports = dict(zip(EVERYBODY, free_ports(len(EVERYBODY)), strict=True))
            return
        self._netns("up")
        command = ["ip", "netns", "exec", "ocwan", sys.executable, str(ROUTER)]
        self._router = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._hear()
        self._netns("join")
        pipes = [[_number(a), _number(b), latency_s] for (a, b), latency_s in LATENCY_S.items()]
        self._order("latency", pipes=pipes)

    def down(self) -> None:
        if self._router is not None:
            if self._router.stdin is not None:
                self._router.stdin.close()
            try:
                self._router.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._router.kill()
                self._router.wait()
            self._router = None
        if not self.is_loopback:
            self._netns("down")

    def venue(self, trace: Path) -> SitesVenue:
        """A venue of daemons in this network, with its `wan.toml`."""
        file = trace / "wan.toml"
        file.write_text(self._toml(), encoding="utf-8")
        prefixes = {}
        if not self.is_loopback:
            prefixes = {
                name: ["ip", "netns", "exec", f"ocs{_number(site)}d{at}"]
                for site, crew in CREWS.items()
                for at, name in enumerate(crew, 1)
            }
        told = {"file": str(file)}
        return SitesVenue(trace, load_sites(file), told, "chaos", prefixes=prefixes, insecure=not self.is_loopback)

    def cut(self, parts: Sequence[Collection[str]], processes: SiteProcesses) -> None:
        """Sites of different parts do not hear one another; one part of all sites heals."""
        if self.is_loopback:
            processes.cut(parts)
            return
        together = {(a, b) for part in parts for a in part for b in part}
        self._order(
            "cut", pipes=[[_number(a), _number(b)] for a, b in permutations(CREWS, 2) if (a, b) not in together]
        )

    def mute(self, site: str, processes: SiteProcesses) -> None:
        """No other site hears this one, which hears them."""
        if self.is_loopback:
            processes.mute(site)
        else:
            self._order("cut", pipes=[[_number(site), _number(other)] for other in CREWS if other != site])

    def heal(self, processes: SiteProcesses) -> None:
        self.cut([list(CREWS)], processes)

    def lose(self, loss: float, processes: SiteProcesses, names: Collection[str] = EVERYBODY) -> None:
        """Each packet between sites is lost with this probability. On loopback `names` are told, which have just been
        started."""
        if not self.is_loopback:
            self._order("lose", loss=loss)
            return
        config = processes.venue.config
        for name in names:
            far = [each.address for each in config.daemons if each.site != config.site_of(name).name]
            processes.children[name].tell("lose", addresses=far, loss=loss)

    def carried(self) -> str:
        """What the pipes did, as a sentence."""
        if not self._counts:
            return ""
        total = {
            key: sum(each[key] - self._before[pipe][key] for pipe, each in self._counts.items())
            for key in ("carried", "lost", "cut", "full")
        }
        return (
            f"between sites {total['carried']:,} packets were carried, {total['lost']:,} lost and {total['cut']:,} "
            f"dropped by cuts, {total['full']:,} by full queues"
        )

    def calm(self) -> None:
        """A new row begins: no cut, and the counts of pipes begin anew."""
        if not self.is_loopback:
            self._order("cut", pipes=[])
            self._order("lose", loss=0.0)
            self._before = self._counts

    def count(self) -> None:
        """Ask for the counts of the pipes."""
        if not self.is_loopback:
            self._order("count")

    def _toml(self) -> str:
        lines = ["[defaults]", f'rate = "{RATE}"', ""]
        for site in CREWS:
            lines += ["[[site]]", f'name = "{site}"', f'multicast = "{self._multicast(site)}"', ""]
        for site, crew in CREWS.items():
            for at, name in enumerate(crew, 1):
                host = "127.0.0.1" if self.is_loopback else f"10.78.{_number(site)}.{at}"
                lines += ["[[daemon]]", f'name = "{name}"', f'site = "{site}"', f'host = "{host}"']
                lines += [f"port = {self._ports[name]}", ""]
        return "\n".join(lines)

    def _multicast(self, site: str) -> str:
        host, port = group_address(f"chaos-{os.getpid()}-{site}")
        return f"{host}:{port}"

    def _order(self, word: str, **fields: Any) -> None:
        if self._router is None or self._router.stdin is None:
            raise RuntimeError("the wide area is not up")
        self._router.stdin.write(json.dumps({"is": word, **fields}) + "\n")
        self._router.stdin.flush()
        self._counts = self._hear()["counts"]

    def _hear(self) -> dict[str, Any]:
        """The answer of the router, which comes at once."""
        if self._router is None or self._router.stdout is None:
            raise RuntimeError("the wide area is not up")
        line = self._router.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self._router.wait(), [str(ROUTER)])
        said: dict[str, Any] = json.loads(line)
        return said

    def _netns(self, *arguments: str) -> None:
        subprocess.run([str(SCRIPT), *arguments], check=True)


def _number(site: str) -> int:
    return list(CREWS).index(site) + 1
