"""What a member is in a recovery, and what a recovery was asked for."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ordercast.config import MinMembers

NO_LOG: Final = 0  # the seniority in ballots of a coordinator that was restarted; every member has a higher one


class Role(Enum):
    INVITED = auto()  # promised a coordinator, waiting for its result
    ACCEPTING = auto()  # has the result, collecting what it lacks
    ACCEPTED = auto()  # waiting for the commit
    INVITING = auto()  # coordinator: collecting cuts
    FETCHING = auto()  # coordinator: collecting blocks that it lacks
    PROPOSING = auto()  # coordinator: waiting until the result is accepted
    FAILED = auto()  # manual recovery: waiting for reset()


class RecoveryTerms(NamedTuple):
    """What the new view has to satisfy, and the header that it carries."""

    rule: MinMembers
    is_override: bool = False  # a reset() asked for it: its rule alone counts, and too few members end it
    header: bytes = b""
