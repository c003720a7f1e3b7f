"""The ladder of delivery services, chosen per message (docs/design/overview.md section 3).

A service travels as one byte of rank and one byte of k; only `RESILIENT` uses k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNRELIABLE_RANK: Final = 0
RELIABLE_RANK: Final = 1
FIFO_RANK: Final = 2
CAUSAL_RANK: Final = 3
AGREED_RANK: Final = 4
RESILIENT_RANK: Final = 5
MAJORITY_RANK: Final = 6
SAFE_RANK: Final = 7

RANK_NAMES: Final[tuple[str, ...]] = (
    "UNRELIABLE",
    "RELIABLE",
    "FIFO",
    "CAUSAL",
    "AGREED",
    "RESILIENT",
    "MAJORITY",
    "SAFE",
)

MAX_RESILIENCE: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class Service:
    """A guarantee asked of one message. Compare with `<`: a stronger service satisfies a weaker one."""

    rank: int
    """Its step on the ladder, from 0 (UNRELIABLE) to 7 (SAFE)."""
    k: int = 0
    """Of RESILIENT(k): how many other members hold the message before it is delivered."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(RANK_NAMES):
            raise ValueError(f"no service has rank {self.rank}; ranks go from 0 to {len(RANK_NAMES) - 1}")
        if self.rank != RESILIENT_RANK and self.k:
            raise ValueError(f"{RANK_NAMES[self.rank]} takes no k; only RESILIENT(k) does")
        if not 0 <= self.k <= MAX_RESILIENCE:
            raise ValueError(f"k must lie between 0 and {MAX_RESILIENCE}, got {self.k}")

    @property
    def is_ordered(self) -> bool:
        """True for AGREED and everything stronger: the message has a position in the total order."""
        return self.rank >= AGREED_RANK

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        name = RANK_NAMES[self.rank]
        return f"{name}({self.k})" if self.rank == RESILIENT_RANK else name


UNRELIABLE: Final = Service(UNRELIABLE_RANK)
RELIABLE: Final = Service(RELIABLE_RANK)
FIFO: Final = Service(FIFO_RANK)
CAUSAL: Final = Service(CAUSAL_RANK)
AGREED: Final = Service(AGREED_RANK)
MAJORITY: Final = Service(MAJORITY_RANK)
SAFE: Final = Service(SAFE_RANK)


def RESILIENT(k: int) -> Service:  # noqa: N802 - it reads as the paper's name beside AGREED and SAFE
    """AGREED, and delivered nowhere before `k` members other than the deliverer hold the message."""
    return Service(RESILIENT_RANK, k)


def parse_service(text: str) -> Service:
    """Read what `str(service)` wrote: `AGREED`, `SAFE`, `RESILIENT(2)`; case does not matter."""
    word = text.strip().upper()
    k = 0
    if word.startswith("RESILIENT"):
        digits = word[len("RESILIENT") :].strip("() ")
        if not digits.isdigit():
            raise ValueError(f"RESILIENT needs a number of holders, as in RESILIENT(2); got {text!r}")
        word, k = "RESILIENT", int(digits)
    if word not in RANK_NAMES:
        raise ValueError(
            f"unknown service {text!r}; choose one of {', '.join(RANK_NAMES[:5])}, RESILIENT(k), MAJORITY, SAFE"
        )
    return Service(RANK_NAMES.index(word), k)
