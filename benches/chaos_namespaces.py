"""Network namespaces on one bridge, for processes of `chaos.py`: their losses, cuts, and what was dropped (`netns.sh`).

Losses are the kernel's where there is `iptables` to ask for them. Otherwise members have to lose what they receive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

SCRIPT = Path(__file__).with_name("netns.sh")


def obstacle() -> str | None:
    """Why no namespaces can be made here, as a sentence; None if they can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's: run it there, or with --loopback"
    if os.geteuid() != 0:
        return "making network namespaces takes root: run it with sudo, or with --loopback"
    if shutil.which("ip") is None:
        return "ip is not installed: apt-get install iproute2"
    return None


class Namespaces:
    """Namespaces for some names. On loopback there are none, and nothing is done."""

    def __init__(self, prefix: str, names: Sequence[str], *, is_loopback: bool) -> None:
        """`prefix`: what their own names begin with."""
        self.is_loopback = is_loopback
        self.loses = not is_loopback and shutil.which("iptables") is not None
        self._prefix = prefix
        self._names = list(names)

    def obstacle(self) -> str | None:
        """What is missing here, as a sentence; None if nothing is."""
        return None if self.is_loopback else obstacle()

    def up(self) -> None:
        self._run("up")

    def down(self) -> None:
        self._run("down")

    def lose(self, loss: float) -> None:
        """From now on the kernel drops packets with this probability, if it can."""
        if self.loses:
            self._run("loss", f"{loss:g}")

    def cut(self, some: Collection[str], others: Collection[str]) -> None:
        """Cut two sets off from one another."""
        self._run("cut", *(" ".join(str(self._number(name)) for name in names) for names in (some, others)))

    def heal(self) -> None:
        self._run("heal")

    def host(self, name: str) -> str:
        return f"10.77.0.{self._number(name)}"

    def command(self, name: str) -> list[str]:
        """What a program is started with to run there."""
        return [] if self.is_loopback else ["ip", "netns", "exec", f"{self._prefix}{self._number(name)}"]

    def drops(self, name: str) -> int:
        """Packets that the kernel dropped on their way to it since `lose`."""
        listing = [*self.command(name), "iptables", "-L", "LOSS", "-v", "-n", "-x"]
        lines = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.splitlines()
        return sum(int(line.split()[0]) for line in lines if "DROP" in line and "Chain" not in line)

    def _number(self, name: str) -> int:
        return self._names.index(name) + 1

    def _run(self, *arguments: str) -> None:
        """Run the script; its complaint becomes ours."""
        if not self.is_loopback:
            members = " ".join(str(self._number(name)) for name in self._names)
            environment = {**os.environ, "MEMBERS": members, "NAME": self._prefix}
            subprocess.run([str(SCRIPT), *arguments], check=True, env=environment)
