"""What a client asks its daemon about itself: so many questions at a time as that takes, the others behind them."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ordercast.errors import OrdercastError
from ordercast.wire.client_frames import Question, encode_query
from ordercast.wire.daemon_frames import QueryReply

MAX_QUESTIONS: Final = 16
"""Questions on their way: more than that a daemon does not take at a time. Further ones wait here."""


class DaemonQuery:
    """A question to the daemon."""

    __slots__ = ("answer", "argument", "error", "id", "waiter", "what")

    def __init__(self, id_: int, what: str, argument: str) -> None:
        self.id = id_
        self.what = what
        self.argument = argument
        self.answer = ""
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


class ClientQueries:
    """The questions of one client, over all its connections."""

    __slots__ = ("_asked", "_next_id", "_unasked", "settled")

    def __init__(self) -> None:
        self._asked: dict[int, DaemonQuery] = {}
        self._unasked: deque[DaemonQuery] = deque()
        self._next_id = 1
        self.settled: list[DaemonQuery] = []

    def ask(self, what: str, argument: str) -> DaemonQuery:
        query = DaemonQuery(self._next_id, what, argument)
        self._next_id += 1
        self._unasked.append(query)
        return query

    def fail(self, error: OrdercastError) -> None:
        """All of them end."""
        for query in (*self._asked.values(), *self._unasked):
            query.error = error
            self.settled.append(query)
        self._asked.clear()
        self._unasked.clear()

    def pump(self, out: list[bytes]) -> None:
        """Ask what may be asked now."""
        while self._unasked and len(self._asked) < MAX_QUESTIONS:
            query = self._unasked.popleft()
            self._asked[query.id] = query
            out.append(encode_query(Question(query.id, query.what, query.argument)))

    def on_answer(self, reply: QueryReply) -> None:
        query = self._asked.pop(reply.id, None)
        if query is not None:
            query.answer = reply.text
            self.settled.append(query)
