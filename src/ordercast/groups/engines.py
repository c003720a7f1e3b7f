"""What a host needs of an engine, and of what makes one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from ordercast.config import SITES_ORDERER, AlonePolicy, Demands, GroupConfig, MinMembers, RecoveryMode, Timing
from ordercast.engine import Engine
from ordercast.orderers.sites.interests import Interests
from ordercast.service import Service
from ordercast.sites import SitesConfig
from ordercast.view import Address, Member, View


class InterestPort(Protocol):
    """What an engine that sends blocks only where they are wanted has for the groups (docs/design/sites.md)."""

    @property
    def interests(self) -> Interests:
        """Which sites want which groups: the roster tells it of joins and leaves."""

    @property
    def far_daemons(self) -> Mapping[Address, str]:
        """The site of each configured daemon of another site, by the daemon's address: for the trace."""

    def declare(self, names: Sequence[str]) -> None:
        """This daemon is about to join these groups: have INTEREST stamped, in this order, also where it was stamped
        before. A view voids it."""

    def hurry(self, priority: int) -> None:
        """A message with a priority waits to be stamped."""

    def lag(self, is_behind: bool) -> None:
        """Whether applications here are behind with receiving: others stamp less ahead while urgent messages are
        about."""

    def is_stable(self, name: str) -> bool:
        """Whether every daemon of the engine's view knows of the interest that was declared in it; False where it was
        declared in an earlier view. What was declared earlier is stable earlier."""


class GroupEngine(Engine, Protocol):
    """An engine as a host has it: what `ordercast.underlay.Underlay` is, and what a test may fake."""

    @property
    def view(self) -> View | None: ...

    @property
    def config(self) -> GroupConfig: ...

    @property
    def counters(self) -> dict[str, int]: ...

    @property
    def gives_locks(self) -> bool: ...

    @property
    def interest(self) -> InterestPort | None:
        """Of an underlay whose components go on and merge. None: one ring goes on, and everybody gets everything."""

    def supports(self, service: Service) -> bool: ...

    def short_of(self) -> tuple[int, int] | None: ...

    @property
    def is_working(self) -> bool: ...


class EngineFactory(Protocol):
    """What makes an engine: `ordercast.underlay.Underlay`, or a fake."""

    def __call__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: Random,
        /,
        *,
        create: bool | None,
        min_members: MinMembers,
        recovery: RecoveryMode,
        demands: Demands,
        header: bytes,
        next_block: int,
        contact: Address | None,
        alone: AlonePolicy,
    ) -> GroupEngine: ...


def underlay_engines() -> EngineFactory:
    """What makes the real ones."""
    # Not at the top: fakes need no underlay, and so a host can be understood and tested without one.
    from ordercast.underlay import Underlay

    return Underlay


def engines_of_sites(
    sites: SitesConfig, others: EngineFactory | None = None, fingerprint: int | None = None
) -> EngineFactory:
    """What makes the engines of a daemon: of `sites` where a group asks for that orderer, `others` otherwise."""
    from ordercast.underlay.sites import sites_engines

    return _ChosenEngines(sites_engines(sites, fingerprint), others if others is not None else underlay_engines())


class _ChosenEngines:
    """An `EngineFactory` that looks at the orderer."""

    __slots__ = ("_others", "_sites")

    def __init__(self, sites: EngineFactory, others: EngineFactory) -> None:
        self._sites = sites
        self._others = others

    def __call__(
        self,
        name: str,
        me: Member,
        config: GroupConfig,
        timing: Timing,
        rng: Random,
        /,
        *,
        create: bool | None,
        min_members: MinMembers,
        recovery: RecoveryMode,
        demands: Demands,
        header: bytes,
        next_block: int,
        contact: Address | None,
        alone: AlonePolicy,
    ) -> GroupEngine:
        factory = self._sites if config.orderer == SITES_ORDERER else self._others
        return factory(
            name,
            me,
            config,
            timing,
            rng,
            create=create,
            min_members=min_members,
            recovery=recovery,
            demands=demands,
            header=header,
            next_block=next_block,
            contact=contact,
            alone=alone,
        )
