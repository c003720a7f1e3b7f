"""What a member of a timestamp ring has to say after a batch, and to which members."""

from __future__ import annotations

from ordercast.orderers.timestamp.queue import Key
from ordercast.wire.stamps import Decided


class OwedStamps:
    """Filled by whatever happens in a batch, emptied by `StampSender`."""

    __slots__ = (
        "acks",
        "asks",
        "decisions",
        "expels",
        "held",
        "hurries",
        "is_slow",
        "news",
        "repeats",
        "tell_all",
        "wants",
    )

    def __init__(self) -> None:
        self.acks: dict[int, dict[Key, None]] = {}  # member that answers for a block -> what is to be acknowledged
        self.asks = False  # some of it again: the decision does not come
        self.wants = False  # all are to say what they have received, since a change waits for it
        self.hurries = False  # a change waits for what is under way
        self.expels = False  # it is an expulsion
        self.decisions: list[Decided] = []
        self.repeats: dict[int, list[Key]] = {}  # member -> decisions that it lacks
        self.held: dict[int, None] = {}  # senders to tell that we hold what they send again
        self.news: set[int] = set()  # members that wait to hear what we have received
        self.tell_all = False
        self.is_slow = False  # our application has held up the ring for too long: said until that ends

    def clear(self) -> None:
        """All of it has been said, but for what has a datagram of its own (`held`, `repeats`)."""
        self.acks = {}
        self.asks = self.wants = self.hurries = self.expels = False
        self.decisions = []
        self.news.clear()
        self.tell_all = False
