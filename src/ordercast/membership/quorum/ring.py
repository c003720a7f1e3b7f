"""One ring as its member has it: from its installation to its end."""

from __future__ import annotations

from ordercast.config import GroupConfig, MinMembers
from ordercast.membership.quorum.local import LocalMember
from ordercast.membership.quorum.recovery import Recovery
from ordercast.orderers import LoggedOrderer
from ordercast.view import View
from ordercast.wire.views import Ring


class QuorumRing:
    """`recovery` is there once the ring is frozen."""

    __slots__ = ("_name", "frozen_ns", "orderer", "recovery")

    def __init__(self, name: str, orderer: LoggedOrderer) -> None:
        self._name = name
        self.orderer = orderer
        self.recovery: Recovery | None = None
        self.frozen_ns = 0

    def freeze(self, now_ns: int, local: LocalMember, rule: MinMembers, counter: int) -> Recovery:
        """Stop ordering. A ring never works again after that: a new one follows it."""
        self.orderer.freeze()
        self.frozen_ns = now_ns
        self.recovery = Recovery(local, self.orderer, rule, counter)
        return self.recovery

    def shown(self, config: GroupConfig) -> Ring:
        """The ring as newcomers and other rings see it."""
        view, standing = self.orderer.view, self.orderer.standing()
        return Ring(
            self._name,
            view.ring,
            view.counter,
            view.creator,
            len(view.members),
            self.recovery is None and not standing.is_retired,
            standing.contact,
            config,
        )

    def promised(self, view: View) -> list[tuple[int, int, bytes]]:
        """Blocks of senders that are gone, which the members of a view that we proposed wait for."""
        found: list[tuple[int, int, bytes]] = []
        for origin, upto in view.awaited.items():
            if view.member(origin) is None:
                for number in range(view.numbers.get(origin, upto), upto):
                    block = self.orderer.log.find_block(origin, number)
                    if block is not None:
                        found.append((origin, number, block))
        return found
