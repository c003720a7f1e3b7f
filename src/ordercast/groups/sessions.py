"""The sessions of one node, by their labels: one for each client of a daemon, besides the node's own."""

from __future__ import annotations

from typing import Final

from ordercast.errors import UsageError
from ordercast.groups.session import Session
from ordercast.trace.recorder import STOP, Recorder
from ordercast.wire.labels import wrong_with

MAX_LABELS: Final = 1 << 20
"""Labels that one life of a node has used, and whose numbers are remembered. At the bound a new one is refused:
forgetting a number would let a message be taken for an old one."""


class Sessions:
    """Those that are open, and the numbers of those that were closed."""

    __slots__ = ("_by_label", "own")

    def __init__(self) -> None:
        self.own = Session()  # of the program that the node is a part of
        self._by_label: dict[str, Session] = {}

    @property
    def open_ones(self) -> list[Session]:
        """The node's own, and those that have a label, in the order in which their labels were first used."""
        return [self.own, *[session for session in self._by_label.values() if not session.is_closed]]

    def open(self, label: str, recorder: Recorder | None = None) -> Session:
        """A session with this label. It goes on counting where an earlier one of that label has ended. `recorder`: of
        the node, where the session has rows of its own."""
        wrong = wrong_with(label)
        if wrong or not label:
            raise UsageError(f"the label of a session {wrong or 'is empty: that is the one which the node has'}")
        before = self._by_label.get(label)
        if before is not None and not before.is_closed:
            raise UsageError(f"this node has a session {label!r} already; a label is unique at its node")
        if before is not None and before.streams:
            raise UsageError(f"the session {label!r} was closed and is still leaving its groups; try again")
        if before is None and len(self._by_label) >= MAX_LABELS:
            raise UsageError(f"this node has used {MAX_LABELS} labels in its life; use one of them again")
        if recorder is not None:
            try:
                recorder.session(label)
            except ValueError as error:
                raise UsageError(f"the session {label!r} cannot be traced: {error}") from error
        session = self._by_label[label] = Session(label, before.numbers if before is not None else None)
        return session

    def write_stop(self, now_ns: int, recorder: Recorder) -> None:
        """The node stops, and with it the sessions that are on an underlay."""
        for session in self._by_label.values():
            if session.streams:
                recorder.row(STOP, now_ns, session=recorder.session(session.label))

    def close(self, session: Session) -> None:
        """It opens nothing any more, and its label is free when it is out of everything."""
        if self._by_label.get(session.label) is not session:
            raise UsageError(f"{session} is no session that open_session of this node has made")
        session.is_closed = True
        if not session.streams and not session.numbers:
            del self._by_label[session.label]  # nothing is to be remembered
