"""The request that a node has out to the membership service, page by page, and the numbers of requests."""

from __future__ import annotations

from ordercast.wire.gms import Ask, NodeRequest, encode_request
from ordercast.wire.pages import cut_pages


class RequestNumbers:
    """Numbers of a node's requests: they rise over all registrations of a life. A service that this node has left for
    another one, and comes back to, may know it still, and takes a lower number for what is long answered."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


class OpenRequest:
    """The request that is out."""

    __slots__ = ("acked", "heard", "names", "number", "pages", "question", "sent", "tries", "what")

    def __init__(self, number: int, what: Ask, names: tuple[str, ...]) -> None:
        self.number = number
        self.what = what
        self.names = names  # in rising order
        self.question: list[bytes] = []  # the request as it is asked first: without names, where they are many
        self.pages: list[bytes] = []  # what is sent now
        self.acked = 0  # pages that have come
        self.heard = 0  # the same, as the last answer told: fewer where the leader has lost some
        self.sent = 0  # pages that are out or have come
        self.tries = 0

    @property
    def is_heard(self) -> bool:
        """Whether all of its names have come."""
        return self.pages is not self.question and self.acked >= len(self.pages)

    def begin(self, request: NodeRequest) -> None:
        self.question = cut_pages(self.number, encode_request(request))
        self.restart()

    def restart(self) -> None:
        self.pages = self.question
        self.acked = self.heard = self.sent = self.tries = 0

    def write(self, request: NodeRequest) -> None:
        """The names are asked for."""
        self.pages = cut_pages(self.number, encode_request(request))
        self.acked = self.heard = self.sent = 0
