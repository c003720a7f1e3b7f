"""The trace rows of one channel: docs/trace.md's kinds out of blocks, views and notes, and the meters of datagrams.

Names are looked up in the recorder once and remembered as numbers. A block is one row; a fragment that completes no
message has a count of 0 and gives none. A row names the underlay, and the group where it is about messages of one.
Views, joins and leaves of the underlay name no group; those of a lightweight group name it.

A labelled session has rows of its own (docs/trace.md): what it submits, delivers and has confirmed, and its views of
groups. `of_session` makes what writes them. Everything else is the node's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from ordercast.engine import Buffer, Note
from ordercast.errors import WireError
from ordercast.service import AGREED_RANK, RESILIENT_RANK, Service
from ordercast.trace import recorder as trace
from ordercast.trace.naming import session_name
from ordercast.trace.recorder import NULL, Recorder, Traffic, hop_detail
from ordercast.trace.schema import KINDS
from ordercast.view import GROUP_ORIGIN, Address, View
from ordercast.wire.block import CHANGE, ENTRY, GROUPED, HEAD_BYTES, MULTI, Head, head_of, label_of, payload_bytes
from ordercast.wire.header import detail_of

MAX_GROUPS: Final = 4_096
"""Groups of a shared underlay whose names are remembered; at the bound all are looked up again."""

_CODES: Final = {kind: code for code, kind in enumerate(KINDS)}
_KIND_BITS: Final = 8  # of a datagram's kind
_KIND: Final = (1 << _KIND_BITS) - 1
NOWHERE: Final[Address] = ("", 0)  # of datagrams that no site is counted for
_LEVELS: Final = {"membership": "info", "warning": "warning"}  # of notes that are for the log


class Meter:
    """Datagrams and bytes by kind of datagram, since the channel was opened. Only kinds that were seen take memory.

    Where an underlay has sites, the trace tells apart which other site a datagram goes to or comes from; totals do not.
    """

    __slots__ = ("_kinds", "_places", "_sites")

    def __init__(self, sites: Mapping[Address, str] | None = None) -> None:
        """`sites`: of an underlay with sites, where the daemons of the other ones are."""
        # kind, and above it the number of the other site -> datagrams and bytes, and how many of both `news` has told
        self._kinds: dict[int, list[int]] = {}
        self._sites = list(dict.fromkeys(sites.values())) if sites else []  # their numbers begin at 1
        # What is added to the kind, by address. None where there are no others, so that `add` is as fast as it can be.
        self._places = {at: self._sites.index(site) + 1 << _KIND_BITS for at, site in sites.items()} if sites else None

    def add(self, kind: int, datagrams: int, nbytes: int, at: Address = NOWHERE) -> None:
        """`at`: where they go to or come from. Hot: once per block sent, and once per block received."""
        if self._places is not None:
            kind += self._places.get(at, 0)
        entry = self._kinds.get(kind)
        if entry is None:
            entry = self._kinds[kind] = [0, 0, 0, 0]
        entry[0] += datagrams
        entry[1] += nbytes

    @property
    def total(self) -> int:
        """Datagrams of all kinds."""
        return sum([entry[0] for entry in self._kinds.values()])

    def count(self, kind: int) -> int:
        """Datagrams of one kind."""
        return sum([entry[0] for key, entry in self._kinds.items() if key & _KIND == kind])

    def news(self) -> list[tuple[str, int, int]]:
        """(detail, datagrams, bytes) since the last call: by rising kind, and first those of no other site."""
        found: list[tuple[str, int, int]] = []
        for key, entry in sorted(self._kinds.items()):
            count, nbytes, told_count, told_bytes = entry
            if count != told_count:
                detail, site = detail_of(key & _KIND), key >> _KIND_BITS
                if site:
                    detail = hop_detail(detail, self._sites[site - 1])
                found.append((detail, count - told_count, nbytes - told_bytes))
                entry[2], entry[3] = count, nbytes
        return found

    def by_detail(self) -> dict[str, int]:
        """Datagrams by the word that traces use for their kind, whatever site they go to or come from."""
        totals: dict[str, int] = {}
        for key, (count, *_) in sorted(self._kinds.items(), key=lambda each: each[0] & _KIND):
            detail = detail_of(key & _KIND)
            totals[detail] = totals.get(detail, 0) + count
        return totals


NO_HEAD: Final = Head(0, 0, 0, 0, 0, 0)


@lru_cache(maxsize=4_096)
def traced_name(member: str) -> str:
    """The member `label@name/life` as the trace writes it, where a label is a part of a folder's name."""
    name, slash, life = member.rpartition("/")
    label, at, node = name.partition("@")
    if not at or not slash:
        return member
    try:
        return f"{session_name(label, node)}/{life}"
    except ValueError:
        return member  # it is longer than a node of a trace may be: another node, without a trace, may have such


class CurrentView:
    """The recorder's number of the underlay's view, which a node and its sessions share; 0: none."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = 0


class Rows:
    """Writes what happens on one channel. Without a recorder every call returns at once."""

    __slots__ = (
        "_at",
        "_groups",
        "_me",
        "_name_of",
        "_own",
        "_recorder",
        "_session",
        "_traffic",
        "_traffic_ns",
        "_underlay",
        "_underlay_name",
    )

    def __init__(
        self, recorder: Recorder | None, underlay: str, me: str, name_of: Callable[[int], str] | None = None
    ) -> None:
        """`name_of`: of a shared underlay, what names its groups. Without it the underlay's name is the group's."""
        self._recorder = recorder
        self._underlay_name = underlay
        self._underlay = recorder.string(underlay) if recorder else 0
        self._me = recorder.string(traced_name(me)) if recorder else 0
        self._session = 0  # of a session that has a label: the recorder's number of it
        self._at = CurrentView()
        # groups
        self._name_of = name_of
        self._own = self._underlay if name_of is None else 0  # the group of rows that are about none in particular
        self._groups: dict[int, int] = {}  # number -> the recorder's
        # traffic
        self._traffic = Traffic(self._underlay) if recorder else None
        self._traffic_ns = 0

    def of_session(self, label: str, me: str) -> Rows:
        """What writes the rows of a session. Without a label it is the node."""
        if not label or self._recorder is None:
            return self
        rows = Rows(self._recorder, self._underlay_name, me, self._name_of)
        rows._session = self._recorder.session(label)
        rows._at = self._at
        rows._groups = self._groups
        rows._traffic = None
        return rows

    @property
    def _view(self) -> int:
        return self._at.view

    @property
    def is_on(self) -> bool:
        """Whether anything is written."""
        return self._recorder is not None

    def _group(self, number: int) -> int:
        """The recorder's number of a group's name."""
        if self._name_of is None or self._recorder is None:
            return self._own
        group = self._groups.get(number)
        if group is None:
            name = self._name_of(number)
            if not name:
                return 0
            if len(self._groups) >= MAX_GROUPS:
                self._groups.clear()
            group = self._groups[number] = self._recorder.string(name)
        return group

    def submit(self, now_ns: int, group: int, first: int, count: int, service: Service, nbytes: int) -> None:
        if self._recorder and count:
            self._recorder.row(
                trace.SUBMIT, now_ns, self._underlay, self._group(group), self._view, self._me, first, count,
                service.rank, service.k, nbytes=nbytes, session=self._session,
            )  # fmt: skip

    def deliver(
        self,
        now_ns: int,
        group: int,
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
                trace.DELIVER, now_ns, self._underlay, self._group(group), self._view,
                recorder.string(traced_name(sender)), first, count, service.rank, service.k,
                position if ordered else NULL, previous if ordered else NULL, nbytes,
                session=self._session,
            )  # fmt: skip

    def submit_many(
        self, now_ns: int, groups: Sequence[int], first: int, count: int, service: Service, nbytes: int
    ) -> None:
        """Messages that go to several groups."""
        if self._recorder and count:
            self._recorder.row(
                trace.SUBMIT, now_ns, self._underlay, 0, self._view, self._me, first, count, service.rank, service.k,
                nbytes=nbytes, groups=self._names(groups), session=self._session,
            )  # fmt: skip

    def deliver_many(
        self,
        now_ns: int,
        groups: Sequence[int],
        sender: str,
        first: int,
        count: int,
        service: Service,
        position: int,
        previous: int,
        nbytes: int,
    ) -> None:
        """Messages that go to several groups."""
        recorder = self._recorder
        if recorder:
            ordered = service.rank >= AGREED_RANK
            recorder.row(
                trace.DELIVER, now_ns, self._underlay, 0, self._view, recorder.string(traced_name(sender)), first,
                count, service.rank, service.k, position if ordered else NULL, previous if ordered else NULL, nbytes,
                groups=self._names(groups), session=self._session,
            )  # fmt: skip

    def _names(self, groups: Sequence[int]) -> int:
        """The recorder's number of a list of groups."""
        if self._recorder is None or self._name_of is None:
            return 0
        return self._recorder.strings([self._name_of(number) or str(number) for number in groups])

    def confirm(self, now_ns: int, group: int, first: int, count: int, service: Service, position: int) -> None:
        if self._recorder:
            self._recorder.row(
                trace.CONFIRM, now_ns, self._underlay, self._group(group), self._view, self._me, first, count,
                service.rank, service.k, position if service.is_ordered and position >= 0 else NULL,
                session=self._session,
            )  # fmt: skip

    def redeliver(self, now_ns: int, group: int, sender: str, first: int, service: Service, nbytes: int) -> None:
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.REDELIVER, now_ns, self._underlay, self._group(group), self._view, recorder.string(sender), first,
                1, service.rank, service.k, nbytes=nbytes,
            )  # fmt: skip

    def reply(self, now_ns: int, group: int, sender: str, first: int) -> None:
        """An answer to the call `first` of `sender` leaves."""
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.REPLY, now_ns, self._underlay, self._group(group), self._view, recorder.string(sender), first, 1
            )  # fmt: skip

    def lock(self, now_ns: int, group: int, key: str) -> None:
        if self._recorder:
            self._recorder.row(
                trace.LOCK, now_ns, self._underlay, self._group(group), self._view, detail=self._recorder.detail(key)
            )  # fmt: skip

    def unlock(self, now_ns: int, group: int, key: str) -> None:
        if self._recorder:
            self._recorder.row(
                trace.UNLOCK, now_ns, self._underlay, self._group(group), self._view, detail=self._recorder.detail(key)
            )  # fmt: skip

    def view(self, now_ns: int, view: View) -> None:
        recorder = self._recorder
        if recorder:
            self._at.view = recorder.string(view.id)
            recorder.row(
                # No group: docs/trace.md keeps that for lightweight groups. This view is the underlay's.
                trace.VIEW, now_ns, self._underlay, 0, self._view,
                detail=recorder.detail(view.reason.name.lower()),
                members=recorder.strings(map(str, view.members)), came_with=recorder.strings(view.came_with),
            )  # fmt: skip

    def group_view(self, now_ns: int, view: View) -> None:
        """The view of a lightweight group."""
        recorder = self._recorder
        if recorder:
            recorder.row(
                trace.VIEW, now_ns, self._underlay, recorder.string(view.group), recorder.string(view.id),
                detail=recorder.detail(view.reason.name.lower()),
                members=recorder.strings([traced_name(str(member)) for member in view.members]),
                came_with=recorder.strings(map(traced_name, view.came_with)), session=self._session,
            )  # fmt: skip

    def transitional(self, now_ns: int) -> None:
        if self._recorder:
            self._recorder.row(trace.TRANSITIONAL, now_ns, self._underlay, 0, self._view)

    def group_transitional(self, now_ns: int, view: View) -> None:
        """The signal in a lightweight group: of a session that has a label. The node's is the underlay's."""
        recorder = self._recorder
        if recorder and self._session:
            group, at = recorder.string(view.group), recorder.string(view.id)
            recorder.row(trace.TRANSITIONAL, now_ns, self._underlay, group, at, session=self._session)

    def join(self, now_ns: int, group: str = "") -> None:
        """Of the underlay, or of a lightweight group."""
        if self._recorder:
            number = self._recorder.string(group) if group else 0
            self._recorder.row(trace.JOIN, now_ns, self._underlay, number, session=self._session)

    def group_unlock(self, now_ns: int, group: str, key: str) -> None:
        """Of a lightweight group that is being left, and may have no number any more."""
        recorder = self._recorder
        if recorder:
            detail = recorder.detail(key)
            recorder.row(trace.UNLOCK, now_ns, self._underlay, recorder.string(group), self._view, detail=detail)

    def group_leave(self, now_ns: int, group: str, text: str = "left") -> None:
        """Of a lightweight group."""
        recorder = self._recorder
        if recorder:
            detail = recorder.detail(text)
            recorder.row(
                trace.LEAVE, now_ns, self._underlay, recorder.string(group), self._view, detail=detail,
                session=self._session,
            )  # fmt: skip

    def leave(self, now_ns: int, text: str) -> None:
        if self._recorder:
            detail = self._recorder.detail(text) if text else 0
            view = self._view
            self._recorder.row(trace.LEAVE, now_ns, self._underlay, 0, view, detail=detail, session=self._session)
            if not self._session:
                self._at.view = 0
                self._groups.clear()  # a later stay has another roster

    def forget_groups(self) -> None:
        """Groups have other numbers from here on."""
        self._groups.clear()

    def stalled(self, now_ns: int, text: str) -> None:
        if self._recorder:
            detail = self._recorder.detail(text)
            self._recorder.row(trace.STALLED, now_ns, self._underlay, 0, self._view, detail=detail)

    def resumed(self, now_ns: int, text: str) -> None:
        if self._recorder:
            detail = self._recorder.detail(text)
            self._recorder.row(trace.RESUMED, now_ns, self._underlay, 0, self._view, detail=detail)

    def notes(self, now_ns: int, notes: Sequence[Note], names: dict[int, str]) -> list[tuple[str, str]]:
        """What the protocol noticed: hold, placed, gap, repaired. Returns level and text of those that are for the
        log."""
        recorder = self._recorder
        if not recorder:
            return [(_LEVELS[note.kind], note.detail) for note in notes if note.kind in _LEVELS]
        log: list[tuple[str, str]] = []
        parsed: Buffer | None = None  # a block is often held and placed in one pass
        head = NO_HEAD
        nbytes = 0
        group = self._own
        label = ""  # of the session that sent it
        for note in notes:
            code = _CODES.get(note.kind)
            if code is None:
                if note.kind == "name":  # of a sender whose view is still to be delivered
                    names[note.origin] = note.detail
                elif note.kind in _LEVELS:
                    log.append((_LEVELS[note.kind], note.detail))
                continue
            sender = 0
            if note.origin != GROUP_ORIGIN:
                sender = recorder.string(names.get(note.origin) or f"{note.origin:016x}")
            detail = recorder.detail(note.detail) if note.detail else 0
            if note.block is None:
                recorder.row(
                    code, now_ns, self._underlay, self._own, self._view, sender,
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
                if self._name_of is not None and head.count:
                    try:
                        label = label_of(parsed)
                    except WireError:
                        head = NO_HEAD
                nbytes = payload_bytes(parsed, head) if head.count else 0
                group = self._own
                if self._name_of is not None and head.count and not head.flags & (GROUPED | MULTI):
                    group = self._group(ENTRY.unpack_from(parsed, HEAD_BYTES)[0])
            if not head.count or head.flags & CHANGE:
                continue
            if label and sender:
                name = names.get(note.origin) or f"{note.origin:016x}"
                sender = recorder.string(traced_name(f"{label}@{name}"))
            position = note.position if note.position >= 0 and head.rank >= AGREED_RANK else NULL
            k = head.k if head.rank == RESILIENT_RANK else 0  # otherwise it is a priority, which no row has
            recorder.row(
                code, now_ns, self._underlay, group, self._view, sender, head.first, head.count, head.rank, k,
                position, NULL, nbytes, detail,
            )  # fmt: skip
        return log

    def traffic(self, now_ns: int, sent: Meter, received: Meter, *, last: bool = False) -> None:
        """At most one row per 100 ms, direction and kind of datagram; the rest of them when the node stops."""
        if self._recorder is None or self._traffic is None or (now_ns < self._traffic_ns and not last):
            return
        for detail, datagrams, nbytes in sent.news():
            self._traffic.sent(detail, nbytes, datagrams)
        for detail, datagrams, nbytes in received.news():
            self._traffic.received(detail, nbytes, datagrams)
        self._traffic_ns = now_ns + trace.TRAFFIC_INTERVAL_NS
        if last or self._traffic.due(now_ns):
            self._traffic.emit(self._recorder, now_ns)
