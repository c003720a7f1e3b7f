"""Where the members of `chaos.py` run: in network namespaces, or all on loopback. Losses and cuts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chaos_namespaces import Namespaces

from ordercast.cli.processes import NAMES, Venue

NAME = "oc"
PREFIX = f"ip netns exec {NAME}{{n}}"


class Network:
    """The network of one run.

    Losses are the kernel's where there is `iptables` to ask for them. Otherwise members lose what they receive
    (`ordercast.cli.mortal`). Loopback has no cuts: they take namespaces, and these take root.
    """

    def __init__(self, *, is_loopback: bool) -> None:
        self.is_loopback = is_loopback
        self.loss = 0.0
        self._namespaces = Namespaces(NAME, NAMES, is_loopback=is_loopback)
        self._hosts = [self._namespaces.host(name) for name in NAMES]

    def obstacle(self) -> str | None:
        """What is missing here, as a sentence; None if nothing is."""
        return self._namespaces.obstacle()

    def up(self) -> None:
        self._namespaces.up()

    def down(self) -> None:
        self._namespaces.down()

    def calm(self) -> None:
        """No cut, no losses."""
        self.heal()
        self.lose(0.0)

    def lose(self, loss: float) -> None:
        """From now on datagrams are lost with this probability; in members, in those that are started from now on."""
        self.loss = loss
        self._namespaces.lose(loss)

    def cut(self, some: Sequence[str], others: Sequence[str]) -> None:
        """Cut two sets of members off from one another."""
        self._namespaces.cut(some, others)

    def heal(self) -> None:
        self._namespaces.heal()

    def venue(self, trace: Path, orderer: str, **options: Any) -> Venue:
        """A venue of members in this network."""
        loss = 0.0 if self._namespaces.loses else self.loss
        if self.is_loopback:
            return Venue(trace, orderer, loss=loss, **options)
        addresses = [(host, 0) for host in self._hosts]
        return Venue(trace, orderer, addresses=addresses, prefix=PREFIX, insecure=True, loss=loss, **options)

    def demo_flags(self) -> list[str]:
        """What `ordercast demo` needs to run here."""
        flags = [] if self._namespaces.loses else ["--loss", f"{self.loss:g}"]
        if not self.is_loopback:
            flags += ["--insecure", "--exec-prefix", PREFIX, "--hosts", ",".join(self._hosts)]
        return flags

    def drops(self, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
        """Datagrams that losses took on their way into each member; `answers` is what members say of themselves."""
        if not self._namespaces.loses:
            return {name: answer["lost"] for name, answer in answers.items()}
        return {name: self._namespaces.drops(name) for name in answers}
