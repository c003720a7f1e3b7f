"""The trace rows of one group at one node: TRACE.md's kinds out of blocks, views and notes.

Names are looked up in the recorder once and remembered as numbers. A block is one row; a fragment that completes no
message has a count of 0 and gives none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.engine import Buffer, Note
from ordercast.errors import WireError
from ordercast.service import AGREED_RANK, Service
from ordercast.trace import recorder as trace
from ordercast.trace.recorder import NULL, Recorder, Traffic
from ordercast.trace.schema import KINDS
from ordercast.view import GROUP_ORIGIN, View
from ordercast.wire.block import CHANGE, Head, head_of, payload_bytes
from ordercast.wire.header import detail_of

_CODES: Final = {kind: code for code, kind in enumerate(KINDS)}


class Meter:
    """Datagrams and bytes by kind of datagram, since the port was opened."""

    __slots__ = ("counts", "nbytes", "seen_bytes", "seen_counts")

    def __init__(self) -> None:
        self.counts = [0] * 256
        self.nbytes = [0] * 256
        self.seen_counts = [0] * 256  # what `news` has told
        self.seen_bytes = [0] * 256

    def add(self, kind: int, datagrams: int, nbytes: int) -> None:
        self.counts[kind] += datagrams
        self.nbytes[kind] += nbytes

    def news(self) -> list[tuple[str, int, int]]:
        """(detail, datagrams, bytes) since the last call."""
        if self.counts == self.seen_counts:
            return []
        found = [
            (detail_of(kind), count - self.seen_counts[kind], self.nbytes[kind] - self.seen_bytes[kind])
            for kind, count in enumerate(self.counts)
            if count != self.seen_counts[kind]
        ]
        self.seen_counts[:] = self.counts
        self.seen_bytes[:] = self.nbytes
        return found

    def by_detail(self) -> dict[str, int]:
        """Datagrams by the word that traces use for them."""
        totals: dict[str, int] = {}
        for kind, count in enumerate(self.counts):
            if count:
                detail = detail_of(kind)
                totals[detail] = totals.get(detail, 0) + count
        return totals


NO_HEAD: Final = Head(0, 0, 0, 0, 0, 0)


class Rows:
    """Writes what happens at one port. Without a recorder every call returns at once."""

    __slots__ = ("_group", "_me", "_recorder", "_traffic", "_traffic_ns", "_view")

    def __init__(self, recorder: Recorder | None, group: str, me: str) -> None:
        self._recorder = recorder
        self._group = recorder.string(group) if recorder else 0
        self._me = recorder.string(me) if recorder else 0
        self._view = 0
        self._traffic = Traffic(self._group)
        self._traffic_ns = 0

    def submit(self, now_ns: int, first: int, count: int, service: Service, nbytes: int) -> None:
        if self._recorder and count:
            self._recorder.row(
                trace.SUBMIT, now_ns, self._group, self._group, self._view, self._me, first, count, service.rank,
                service.k, nbytes=nbytes,
            )  # fmt: skip

    def deliver(
        self,
        now_ns: int,
        sender: str,
        first: int,
        count: int,
        service: Service,
        position: int,
        previous: int,
        nbytes: int,
    ) -> None:
        recorder = self._recorder
        if recorder:
            ordered = service.rank >= AGREED_RANK
            recorder.row(
                trace.DELIVER, now_ns, self._group, self._group, self._view, recorder.string(sender), first, count,
                service.rank, service.k, position if ordered else NULL, previous if ordered else NULL, nbytes,
            )  # fmt: skip

    def confirm(self, now_ns: int, first: int, count: int, service: Service, position: int) -> None:
        if self._recorder:
            self._recorder.row(
                trace.CONFIRM, now_ns, self._group, self._group, self._view, self._me, first, count, service.rank,
                service.k, position if service.is_ordered and position >= 0 else NULL,
            )  # fmt: skip

    def redeliver(self, now_ns: int, sender: str, first: int, service: Service, nbytes: int) -> None:
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.REDELIVER, now_ns, self._group, self._group, self._view, recorder.string(sender), first, 1,
                service.rank, service.k, nbytes=nbytes,
            )  # fmt: skip

    def reply(self, now_ns: int, sender: str, first: int) -> None:
        """An answer to the call `first` of `sender` leaves."""
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.REPLY, now_ns, self._group, self._group, self._view, recorder.string(sender), first, 1
            )  # fmt: skip

    def lock(self, now_ns: int, key: str) -> None:
        if self._recorder:
            self._recorder.row(
                trace.LOCK, now_ns, self._group, self._group, self._view, detail=self._recorder.detail(key)
            )  # fmt: skip

    def unlock(self, now_ns: int, key: str) -> None:
        if self._recorder:
            self._recorder.row(
                trace.UNLOCK, now_ns, self._group, self._group, self._view, detail=self._recorder.detail(key)
            )  # fmt: skip

    def view(self, now_ns: int, view: View) -> None:
        recorder = self._recorder
        if recorder:
            self._view = recorder.string(view.id)
            recorder.row(
                # No group: TRACE.md keeps that for lightweight groups. This view is the underlay's.
                trace.VIEW, now_ns, self._group, 0, self._view,
                detail=recorder.detail(view.reason.name.lower()),
                members=recorder.strings(map(str, view.members)), came_with=recorder.strings(view.came_with),
            )  # fmt: skip

    def transitional(self, now_ns: int) -> None:
        if self._recorder:
            self._recorder.row(trace.TRANSITIONAL, now_ns, self._group, 0, self._view)

    def join(self, now_ns: int) -> None:
        if self._recorder:
            self._recorder.row(trace.JOIN, now_ns, self._group)

    def leave(self, now_ns: int, text: str) -> None:
        if self._recorder:
            detail = self._recorder.detail(text) if text else 0
            self._recorder.row(trace.LEAVE, now_ns, self._group, 0, self._view, detail=detail)
            self._view = 0

    def notes(self, now_ns: int, notes: Sequence[Note], names: dict[int, str]) -> None:
        """What the protocol noticed: hold, placed, gap, repaired. Kinds that the trace does not know are left out."""
        recorder = self._recorder
        if not recorder:
            return
        parsed: Buffer | None = None  # a block is often held and placed in one pass
        head = NO_HEAD
        nbytes = 0
        for note in notes:
            code = _CODES.get(note.kind)
            if code is None:
                if note.kind == "name":  # of a sender whose view is still to be delivered
                    names[note.origin] = note.detail
                continue
            sender = 0
            if note.origin != GROUP_ORIGIN:
                sender = recorder.string(names.get(note.origin) or f"{note.origin:016x}")
            detail = recorder.detail(note.detail) if note.detail else 0
            if note.block is None:
                recorder.row(
                    code, now_ns, self._group, self._group, self._view, sender,
                    note.first if note.first >= 0 else NULL, note.count, detail=detail,
                )  # fmt: skip
                continue
            if note.block is not parsed:
                parsed = note.block
                if note.head is not None:
                    head = Head._make(note.head)
                else:
                    try:
                        head = head_of(parsed)
                    except WireError:
                        head = NO_HEAD
                nbytes = payload_bytes(parsed, head) if head.count else 0
            if not head.count or head.flags & CHANGE:
                continue
            position = note.position if note.position >= 0 and head.rank >= AGREED_RANK else NULL
            recorder.row(
                code, now_ns, self._group, self._group, self._view, sender, head.first, head.count, head.rank, head.k,
                position, NULL, nbytes, detail,
            )  # fmt: skip

    def traffic(self, now_ns: int, sent: Meter, received: Meter, *, last: bool = False) -> None:
        """At most one row per 100 ms, direction and kind of datagram; the rest of them when the node stops."""
        if not self._recorder or (now_ns < self._traffic_ns and not last):
            return
        for detail, datagrams, nbytes in sent.news():
            self._traffic.sent(detail, nbytes, datagrams)
        for detail, datagrams, nbytes in received.news():
            self._traffic.received(detail, nbytes, datagrams)
        self._traffic_ns = now_ns + trace.TRAFFIC_INTERVAL_NS
        if last or self._traffic.due(now_ns):
            self._traffic.emit(self._recorder, now_ns)
