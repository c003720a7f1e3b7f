"""Where the members of `chaos.py` run: in network namespaces, or all on loopback. Losses and cuts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordercast.cli.processes import NAMES, Venue

SCRIPT = Path(__file__).with_name("netns.sh")
HOSTS = [f"10.77.0.{number}" for number in range(1, len(NAMES) + 1)]
PREFIX = "ip netns exec oc{n}"


class Network:
    """The network of one run.

    Losses are the kernel's where there is `iptables` to ask for them. Otherwise members lose what they receive
    (`ordercast.cli.mortal`). Loopback has no cuts: they take namespaces, and these take root.
    """

    def __init__(self, *, is_loopback: bool) -> None:
        self.is_loopback = is_loopback
        self.loss = 0.0
        self._kernel_loses = not is_loopback and shutil.which("iptables") is not None

    def obstacle(self) -> str | None:
        """What is missing here, as a sentence; None if nothing is."""
        if self.is_loopback:
            return None
        if sys.platform != "linux":
            return "network namespaces are Linux's: run it there, or with --loopback"
        if os.geteuid() != 0:
            return "making network namespaces takes root: run it with sudo, or with --loopback"
        if shutil.which("ip") is None:
            return "ip is not installed: apt-get install iproute2"
        return None

    def up(self) -> None:
        self._netns("up")

    def down(self) -> None:
        self._netns("down")

    def calm(self) -> None:
        """No cut, no losses."""
        self.heal()
        self.lose(0.0)

    def lose(self, loss: float) -> None:
        """From now on datagrams are lost with this probability; in members, in those that are started from now on."""
        self.loss = loss
        if self._kernel_loses:
            self._netns("loss", f"{loss:g}")

    def cut(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Cut two sets of members off from one another."""
        self._netns("cut", *(" ".join(str(NAMES.index(name) + 1) for name in names) for names in (some, others)))

    def heal(self) -> None:
        self._netns("heal")

    def venue(self, trace: Path, orderer: str, **options: Any) -> Venue:
        """A venue of members in this network."""
        loss = 0.0 if self._kernel_loses else self.loss
        if self.is_loopback:
            return Venue(trace, orderer, loss=loss, **options)
        addresses = [(host, 0) for host in HOSTS]
        return Venue(trace, orderer, addresses=addresses, prefix=PREFIX, insecure=True, loss=loss, **options)

    def demo_flags(self) -> list[str]:
        """What `ordercast demo` needs to run here."""
        flags = [] if self._kernel_loses else ["--loss", f"{self.loss:g}"]
        if not self.is_loopback:
            flags += ["--insecure", "--exec-prefix", PREFIX, "--hosts", ",".join(HOSTS)]
        return flags

    def drops(self, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Datagrams that losses took on their way into each member; `answers` is what members say of themselves."""
        if not self._kernel_loses:
            return {name: answer["lost"] for name, answer in answers.items()}
        return {name: self._kernel_drops(NAMES.index(name) + 1) for name in answers}

    def _kernel_drops(self, number: int) -> int:
        listing = ["ip", "netns", "exec", f"oc{number}", "iptables", "-L", "LOSS", "-v", "-n", "-x"]
        lines = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.splitlines()
        return sum(int(line.split()[0]) for line in lines if "DROP" in line and "Chain" not in line)

    def _netns(self, *arguments: str) -> None:
        """Run the script; its complaint becomes ours."""
        if not self.is_loopback:
            subprocess.run([str(SCRIPT), *arguments], check=True)
