"""The situations that are explored, as a table: who is in the group, what programs do, what is tried by default.

A scenario says what happens in the default schedule; the search finds out what else can happen around it. Times are
ticks (milliseconds) after the group has formed and rests. Nodes are a, b, c, ... in the order of the first view;
newcomers follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ordercast.errors import UsageError
from ordercast.explore.deviations import DEFAULT_FAMILIES

NAMES: Final = "abcdefgh"
MIN_MEMBERS: Final = 2
MAX_MEMBERS: Final = 5
DEFAULT_STEPS: Final = 30  # decision points at which something may be done
DEFAULT_CRASHES: Final = 1  # in one run, besides what the scenario crashes
HOP_TICKS: Final = 15  # between two messages that come before what the scenario is about
LEAD_TICKS: Final = 40  # between the last of them and that


VERBS: Final[dict[str, str]] = {
    "send": "sends",
    "boot": "starts and joins",
    "leave": "leaves",
    "rejoin": "joins again",
    "lock": "wants the lock",
    "unlock": "gives the lock back",
    "crash": "crashes",
    "isolate": "is cut off",
    "found": "starts, and creates the group if it finds none",
    "part": "and the other newcomers are cut off from the members",
    "meet": "and the others hear each other",
    "mute": "leaves, and the next other node that speaks is not heard",
}


class Action(NamedTuple):
    """What a program does at a time, or what is done to it; `verb` is one of VERBS."""

    tick: int
    verb: str
    who: str

    def __str__(self) -> str:
        return f"{self.who} {VERBS[self.verb]}"


class Cast(NamedTuple):
    """The nodes of one run: members, newcomers, and which of several variants of the scenario is played."""

    members: str
    newcomers: str
    variant: int

    @property
    def names(self) -> str:
        return self.members + self.newcomers

    def opening(self) -> list[Action]:
        """The messages that come before, one by one: they differ from variant to variant, and so does the place where
        the token has come to rest."""
        first = self.variant % len(self.members)
        order = self.members[first:] + self.members[:first]
        senders = (order * 2)[: self.variant + 1] if self.variant else order[:1]
        return [Action(HOP_TICKS * index, "send", name) for index, name in enumerate(senders)]

    @property
    def begin(self) -> int:
        """The tick at which the scenario proper begins."""
        return HOP_TICKS * self.variant + LEAD_TICKS


class SmallScenario(NamedTuple):
    """One row of the table."""

    summary: str
    members: int  # by default
    newcomers: int
    script: Callable[[Cast], list[Action]]
    acts: Callable[[Cast], tuple[str, ...]] = lambda _: ()  # what may happen besides, each once: `verb-who`
    families: tuple[str, ...] = DEFAULT_FAMILIES
    orderers: tuple[str, ...] = ("token", "sequencer", "timestamp")
    service: str = "AGREED"


def _leave(of: int) -> Callable[[Cast], list[Action]]:
    def script(cast: Cast) -> list[Action]:
        return [*cast.opening(), Action(cast.begin, "leave", cast.members[of])]

    return script


def _leave_unheard(cast: Cast) -> list[Action]:
    """Only the member that orders the leave knows of it."""
    return [*cast.opening(), Action(cast.begin, "mute", cast.members[-1])]


def _join(cast: Cast) -> list[Action]:
    return [*cast.opening(), Action(cast.begin, "boot", cast.newcomers[0])]


def _join_behind(cast: Cast) -> list[Action]:
    """Messages are on their way when the join is asked for."""
    sender = cast.members[cast.variant % len(cast.members)]
    sends = [Action(cast.begin + 2 * index, "send", sender) for index in range(3)]
    return [*cast.opening(), *sends, Action(cast.begin + 2, "boot", cast.newcomers[0])]


def _rejoin(cast: Cast) -> list[Action]:
    last = cast.members[-1]
    return [*cast.opening(), Action(cast.begin, "leave", last), Action(cast.begin + 1, "rejoin", last)]


def _leave_two(cast: Cast) -> list[Action]:
    leavers = (cast.members[cast.variant % len(cast.members)], cast.members[-1 - cast.variant % 2])
    return [*cast.opening(), *(Action(cast.begin, "leave", name) for name in dict.fromkeys(leavers))]


def _return(cast: Cast) -> list[Action]:
    other = cast.members[cast.variant % len(cast.members)]
    return [Action(0, "send", cast.members[1]), Action(2, "crash", other), Action(200, "boot", other)]


def _swap(cast: Cast) -> list[Action]:
    leaver = cast.members[cast.variant - 1]
    return [Action(LEAD_TICKS, "boot", cast.newcomers[0]), Action(LEAD_TICKS, "leave", leaver)]


def _silent(cast: Cast) -> list[Action]:
    """One member is cut off; the variant says which, and the first member never is."""
    other = cast.members[1 + cast.variant % (len(cast.members) - 1)]
    return [Action(0, "send", cast.members[0]), Action(LEAD_TICKS, "isolate", other)]


def _crash(cast: Cast) -> list[Action]:
    other = cast.members[cast.variant % len(cast.members)]
    return [Action(0, "send", cast.members[0]), Action(1, "send", cast.members[1]), Action(2, "crash", other)]


def _traffic(cast: Cast) -> list[Action]:
    return [*cast.opening(), *(Action(cast.begin + 3 * at, "send", name) for at, name in enumerate(cast.members))]


def _lock(cast: Cast) -> list[Action]:
    first, second = cast.members[0], cast.members[1]
    return [
        *cast.opening(),
        Action(cast.begin, "lock", first),
        Action(cast.begin + 20, "lock", second),
        Action(cast.begin + 60, "unlock", first),
    ]


def _rings(cast: Cast) -> list[Action]:
    """Newcomers that do not hear the members make a ring of their own; then the two rings meet."""
    first, second = cast.newcomers[0], cast.newcomers[1]
    return [
        *cast.opening(),
        Action(cast.begin, "part", first),
        Action(cast.begin, "found", first),
        Action(cast.begin + 250, "found", second),
        Action(cast.begin + 600, "meet", first),
    ]


SCENARIOS: Final[dict[str, SmallScenario]] = {
    "leave": SmallScenario("the last member leaves", 4, 0, _leave(-1)),
    "leave-first": SmallScenario("the first member leaves", 4, 0, _leave(0)),
    "leave-two": SmallScenario("two members leave at the same time", 4, 0, _leave_two),
    "leave-unheard": SmallScenario(
        "the last member leaves, and the member that orders it is not heard", 4, 0, _leave_unheard, families=("split",)
    ),
    "join": SmallScenario("a newcomer joins", 3, 1, _join, families=("link", "crash")),
    "join-behind": SmallScenario(
        "a newcomer joins while messages are on their way", 2, 1, _join_behind, families=("link", "crash")
    ),
    "cancel": SmallScenario(
        "a newcomer gives up its join",
        3,
        1,
        _join,
        lambda cast: (f"leave-{cast.newcomers[0]}",),
        families=("link", "crash"),
    ),
    "rejoin": SmallScenario("a member leaves and comes back at once", 3, 0, _rejoin, families=("link", "crash")),
    "swap": SmallScenario("one member leaves while a newcomer joins", 3, 1, _swap),
    "silent": SmallScenario("a member is cut off", 5, 0, _silent, families=("isolate", "crash")),
    "crash": SmallScenario(
        "a member crashes while messages are on their way", 4, 0, _crash, families=("isolate", "crash")
    ),
    "return": SmallScenario("a member crashes and starts again", 3, 0, _return, families=("link", "crash")),
    "rings": SmallScenario(
        "two rings of one name meet, and the smaller one dissolves", 3, 2, _rings, families=("link",)
    ),
    "traffic": SmallScenario("all members send", 3, 0, _traffic, service="SAFE"),
    "lock": SmallScenario("two members want one lock", 3, 0, _lock, orderers=("token",)),
}


def opens_at(script: list[Action], cast: Cast) -> int:
    """The tick from which on something may go wrong: the opening is over, and rings that are to meet do."""
    meetings = [action.tick for action in script if action.verb == "meet"]
    if meetings:
        return meetings[-1]
    opening = cast.opening()
    return min([action.tick for action in script if action not in opening], default=0)


def find_scenario(name: str, orderer: str) -> SmallScenario:
    found = SCENARIOS.get(name)
    if found is None:
        raise UsageError(f"there is no scenario {name!r}; choose one of {', '.join(SCENARIOS)}")
    if orderer not in found.orderers:
        raise UsageError(f"the scenario {name!r} is for the orderer {' or '.join(found.orderers)}, not {orderer!r}")
    return found
