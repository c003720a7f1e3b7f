"""Judges what clients saw and did, from outside: their records (`seen.py`) and the rows of the trace, nothing else.

- *stream*: what a client's application got is what its session was given at the daemon, in that order, without a hole
  and without a repetition, up to the place where the connection ended. At rest a client that is connected has all.
- *sends*: one message has one number and one number has one message; nobody gets a message twice in one membership;
  what was accepted is submitted, or its sender was told that its fate is unknown; what was confirmed was delivered.
- *endings*: everybody who sees a view sees the same header, and a session that is put out, or whose client is gone,
  leaves with a reason.
- *pace*: where nothing fails, clients that receive get every message soon, whatever other clients do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ordercast.config import SECOND
from ordercast.sim.sessions.plan import SessionPlan
from ordercast.sim.sessions.seen import ClientLife, Fate, SeenEvent, SeenLeft, SeenMessage, SeenSignal, SeenView
from ordercast.trace.schema import Row
from ordercast.wire.endings import read_ending

PACE_NS: Final = 2 * SECOND
MAX_FAULTS: Final = 10
HIDDEN: Final = "#!"
PRIVATE: Final = "#"
SELF_DISCARD: Final = 0x40


class GivenEvent(NamedTuple):
    """One message, or one view, signal or leave, of one session as the trace has it."""

    kind: str
    group: str
    groups: tuple[str, ...]
    sender: str
    number: int
    view: str
    members: tuple[str, ...]
    reason: str


def judge_clients(plan: SessionPlan, lives: Sequence[ClientLife], rows: Sequence[Row], is_quiet: bool) -> list[str]:
    """What is wrong, in words; empty: nothing."""
    tags, faults = _names(lives)
    sent = {tag: each.groups for life in lives for tag, each in life.sent.items()}
    sessions = _sessions(rows, {key: sent.get(tag, ()) for key, tag in tags.items()})
    for life in lives:
        faults += [f"client: {life.client}: {text}" for text in life.problems]
        judge = _Streams(life, sessions, tags, _is_last(life, lives) and is_quiet)
        faults += [f"stream: {life.client}.{life.number}: {text}" for text in judge.faults()]
        is_alone = [each.label for each in lives].count(life.label) == 1
        told = _sends(life, rows, is_quiet and is_alone, plan.is_calm)
        faults += [f"sends: {life.client}.{life.number}: {text}" for text in told]
    faults += [f"endings: {text}" for text in _endings(lives)]
    if plan.is_calm and plan.is_swift:
        faults += [f"pace: {text}" for text in _pace(lives)]
    return faults[:MAX_FAULTS]


def _is_last(life: ClientLife, lives: Sequence[ClientLife]) -> bool:
    """Whether its process is there at the end."""
    return life is [each for each in lives if each.client == life.client][-1]


# What sessions were given. --------------------------------------------------------------------------------------------


def _sessions(rows: Sequence[Row], known: Mapping[tuple[str, int], tuple[str, ...]]) -> dict[str, list[GivenEvent]]:
    """By the session, as views name it: label@daemon/life. `known`: the groups of messages. A row of messages to
    various groups does not have them."""
    found: dict[str, list[GivenEvent]] = {}
    for row in rows:
        if "@" not in row.node or row.kind not in ("deliver", "view", "transitional", "leave"):
            continue
        each = found.setdefault(f"{row.node}/{row.life}", [])
        group, groups = row.group or "", row.groups or ((row.group,) if row.group else ())
        if row.kind == "deliver":
            first, count = row.first or 0, row.count or 0
            sender = row.sender or ""
            for number in range(first, first + count):
                to = groups or known.get((sender, number), ())
                each.append(GivenEvent("message", group, to, sender, number, "", (), ""))
        elif group:
            members = row.members or ()
            each.append(GivenEvent(row.kind, group, (), "", -1, row.view or "", members, row.detail or ""))
    return found


def _names(lives: Sequence[ClientLife]) -> tuple[dict[tuple[str, int], str], list[str]]:
    """Which message has which number, as all native clients saw it. All clients see the groups that it was sent to."""
    tags: dict[tuple[str, int], str] = {}
    sent = {tag: set(each.groups) for life in lives for tag, each in life.sent.items()}
    numbers: dict[str, tuple[str, int]] = {}
    faults: list[str] = []
    for life in lives:
        for queue in life.queues.values():
            for event in queue:
                if not isinstance(event, SeenMessage):
                    continue
                if event.tag and set(event.groups) != sent.get(event.tag, set()):
                    faults.append(f"sends: {event.tag} was sent to {sent.get(event.tag)}, came as to {event.groups}")
                if event.number < 0:
                    continue
                key = (event.sender, event.number)
                if tags.setdefault(key, event.tag) != event.tag:
                    faults.append(f"sends: number {event.number} of {event.sender} is {tags[key]} and {event.tag}")
                if numbers.setdefault(event.tag, key) != key:
                    faults.append(f"sends: {event.tag} was sent twice, as {numbers[event.tag]} and {key}")
    return tags, faults


class _Streams:
    """One life of a client against its sessions."""

    __slots__ = ("_is_whole", "_life", "_sessions", "_tags")

    def __init__(
        self, life: ClientLife, sessions: dict[str, list[GivenEvent]], tags: dict[tuple[str, int], str], is_whole: bool
    ) -> None:
        """`is_whole`: it is connected, and everything has come to rest."""
        self._life = life
        self._sessions = sessions
        self._tags = tags
        self._is_whole = is_whole

    def faults(self) -> Iterator[str]:
        is_spread = self._life.client.startswith("s")
        for queue, events in self._life.queues.items():
            memberships = list(_memberships(events, bool(queue)))
            for number, part in enumerate(memberships):
                is_last = number == len(memberships) - 1
                yield from self._compare(queue, part, is_spread, is_last and self._is_whole)

    def _compare(self, queue: str, part: list[SeenEvent], is_spread: bool, is_whole: bool) -> Iterator[str]:
        """One stay in a group, or in all groups, against what the session was given from its first view on."""
        first = next((event for event in part if isinstance(event, SeenView) and event.group), None)
        if first is None:
            if any(isinstance(event, SeenMessage) for event in part) and not is_spread:
                yield f"messages without a view in {queue or 'all groups'}"
            return
        best, text = -1, f"the view {first.id} of {first.group} was given to no session of it"
        for given in self._given(first, is_spread):
            # Two sessions of one client may be in one view, and views of Spread's clients have no names.
            far, told = self._follow(queue, part, given, is_spread, is_whole)
            if not told:
                return
            best, text = max((best, text), (far, told), key=lambda found: found[0])
        yield f"in {queue or 'all groups'} {text}"

    def _follow(
        self, queue: str, part: list[SeenEvent], given: list[GivenEvent], is_spread: bool, is_whole: bool
    ) -> tuple[int, str]:
        """How far what was seen is what was given, and what is wrong there; empty: nothing."""
        wanted = [each for each in given if _is_for(each, queue, is_spread)]
        at = 0
        shown = [event for event in part if not _is_passed_over(event)]
        for far, event in enumerate(shown):
            while at < len(wanted) and not self._is_same(event, wanted[at], is_spread):
                if not self._may_skip(wanted[at], queue, is_spread):
                    return far, f"it got {_told(event)}, and {wanted[at]} was next"
                at += 1
            if at == len(wanted):
                return far, f"it got {_told(event)}, which it was not given"
            at += 1
        rest = [each for each in wanted[at:] if not self._may_skip(each, queue, is_spread)]
        if is_whole and rest and not isinstance(part[-1], SeenLeft):
            return len(shown), f"it has not got {rest[0]} and {len(rest) - 1} others"
        return len(shown), ""

    def _given(self, first: SeenView, is_spread: bool) -> Iterator[list[GivenEvent]]:
        """What a session of it was given from its first view on: all that it may be."""
        for name, session in self._sessions.items():
            if name.partition("@")[0] != self._life.label:
                continue
            for at, each in enumerate(session):
                if is_spread and each.group == f"#{self._life.label}#{name.partition('@')[2].partition('/')[0]}":
                    yield session[at:]  # it is told nothing of its private group, and gets messages there
                elif not is_spread and self._is_same(first, each, is_spread):
                    yield session[at:]

    def _is_same(self, event: SeenEvent, given: GivenEvent, is_spread: bool) -> bool:
        if isinstance(event, SeenMessage):
            if given.kind != "message":
                return False
            if is_spread:
                known = self._tags.get((given.sender, given.number), event.tag)
                is_same = known == event.tag and _private((given.sender,)) == {event.sender}
                is_there = not given.groups or set(event.groups) == _shown(given)
                return is_same and is_there and not self._is_discarded(given)
            return (event.sender, event.number) == (given.sender, given.number)
        if isinstance(event, SeenView):
            if given.kind != "view" or given.group != event.group:
                return False
            if is_spread:
                return _private(given.members) == set(event.members) and _is_cause(event.reason, given.reason)
            return given.view == event.id and given.members == event.members
        if isinstance(event, SeenLeft):
            return given.kind == "leave" and given.group == event.group
        return given.kind == "transitional" and given.group == event.group

    def _may_skip(self, given: GivenEvent, queue: str, is_spread: bool) -> bool:
        """Whether another queue of the application may have it, or nobody."""
        if given.kind in ("transitional", "leave"):
            return True
        if given.kind == "message":
            if is_spread:
                return self._is_discarded(given) or not given.groups
            return not given.groups or (bool(queue) and len(given.groups) > 1)
        return False

    def _is_discarded(self, given: GivenEvent) -> bool:
        """A message of its own that it does not get: a flag of Spread's, which travels in the name of a group."""
        if given.sender.partition("@")[0] != self._life.label:
            return False
        flags = [name.removeprefix(HIDDEN).partition(".")[0] for name in given.groups if name.startswith(HIDDEN)]
        return any(int(each, 16) & SELF_DISCARD for each in flags)


def _shown(given: GivenEvent) -> set[str]:
    """The groups of a message, without those that only say how it was sent."""
    return {name for name in given.groups if not name.startswith(HIDDEN)}


def _is_for(given: GivenEvent, queue: str, is_spread: bool) -> bool:
    if is_spread and given.kind != "message" and given.group.startswith(PRIVATE):
        return False  # its private group, of which it is told nothing
    return not queue or queue == given.group or queue in given.groups or (given.kind == "message" and not given.groups)


def _is_passed_over(event: SeenEvent) -> bool:
    """Views of the daemons are not in the rows of a session; signals and ends have no place of their own there."""
    if isinstance(event, SeenSignal | SeenLeft):
        return True
    return isinstance(event, SeenView) and not event.group


def _memberships(events: Sequence[SeenEvent], is_one: bool) -> Iterator[list[SeenEvent]]:
    """What lies between two ends of the connection, or, where it is the queue of one group, of the membership."""
    part: list[SeenEvent] = []
    for event in events:
        part.append(event)
        if isinstance(event, SeenLeft) and (event.returning or is_one):
            yield part
            part = []
    if part:
        yield part


def _private(members: Sequence[str]) -> set[str]:
    """Names of sessions as Spread has them."""
    found = set()
    for name in members:
        label, _, daemon = name.partition("@")
        found.add(f"#{label}#{daemon.partition('/')[0]}")
    return found


def _is_cause(cause: str, detail: str) -> bool:
    """Whether Spread's cause fits the reason of a view. The first view of a stay is always shown as a join, and a
    change that does not follow from the last view shown as one of the network."""
    fits = {"join": ("join",), "leave": ("leave", "disconnect")}
    return cause in ("join", "network") or cause in fits.get(detail, ("network",))


def _told(event: SeenEvent) -> str:
    if isinstance(event, SeenMessage):
        return f"message {event.number} of {event.sender} ({event.tag})"
    return str(event)


# Sends. ---------------------------------------------------------------------------------------------------------------


def _sends(life: ClientLife, rows: Sequence[Row], is_accountable: bool, is_calm: bool) -> Iterator[str]:
    """`is_accountable`: everything has come to rest, and no other life of it has its name in the trace."""
    seen: dict[str, int] = {}
    for name, queue in life.queues.items():
        for part in _memberships(queue, bool(name)):
            got: set[str] = set()
            for event in part:
                if isinstance(event, SeenMessage):
                    if event.tag in got:
                        yield f"it got {event.tag} twice"
                    got.add(event.tag)
                    seen[event.tag] = seen.get(event.tag, 0) + 1
    for tag, times in seen.items():
        if tag in life.sent and times > 1:
            yield f"it got its own {tag} {times} times"
    for sent in life.sent.values():
        if sent.fate is Fate.REFUSED and sent.tag in seen and not sent.is_open:
            yield f"{sent.tag} was refused, and came"
    if not life.client.startswith("s") and not life.is_killed and is_accountable:
        yield from _accounts(life, rows, is_calm)


def _accounts(life: ClientLife, rows: Sequence[Row], is_calm: bool) -> Iterator[str]:
    """Messages that were accepted are submitted once, or their sender knows that it does not know."""
    counted = [sent for sent in life.sent.values() if sent.fate in (Fate.ACCEPTED, Fate.CONFIRMED)]
    unknown = sum(sent.fate in (Fate.UNKNOWN, Fate.WAITING, Fate.REFUSED) for sent in life.sent.values())
    submitted = sum(row.count or 0 for row in rows if row.kind == "submit" and row.node.partition("@")[0] == life.label)
    if submitted > len(counted) + unknown:
        yield f"{submitted} messages were submitted, and it has sent {len(counted) + unknown}"
    excused = life.uncertain
    if life.losses or life.is_disturbed or not is_calm:
        # Where a client is in none of the groups of a message, nobody is there to be told.
        excused += sum(sent.is_open and sent.fate is Fate.ACCEPTED for sent in counted)
    if submitted + excused < len(counted) and not life.is_closed:
        yield f"{len(counted)} messages were accepted, {submitted} submitted, and {excused} told to be uncertain"


# Ends of sessions. ----------------------------------------------------------------------------------------------------


def _endings(lives: Sequence[ClientLife]) -> Iterator[str]:
    headers: dict[tuple[str, str], tuple[bytes, str]] = {}
    willing = {(life.label, group) for life in lives for group in life.left}
    for life in lives:
        for queue in life.queues.values():
            for event in queue:
                if not isinstance(event, SeenView) or not event.group or event.reason != "leave" or not event.id:
                    continue
                if life.client.startswith("s"):
                    continue  # Spread tells no reasons
                key = (event.group, event.id)
                told, who = headers.setdefault(key, (event.header, life.client))
                if told != event.header:
                    yield f"{who} and {life.client} see different headers of {event.id} of {event.group}"
                label = event.subject.partition("@")[0]
                if read_ending(event.header) is None and (label, event.group) not in willing:
                    yield f"{event.subject} left {event.group}, and nobody says why: {event.header!r}"


# Pace. ----------------------------------------------------------------------------------------------------------------


def _pace(lives: Sequence[ClientLife]) -> Iterator[str]:
    calm = [life for life in lives if not life.is_disturbed and not life.client.startswith("s")]
    accepted = {
        sent.tag: sent.accepted_ns
        for life in calm
        if not life.losses
        for sent in life.sent.values()
        if sent.accepted_ns >= 0
    }
    for life in calm:
        if life.losses:
            continue
        for queue in life.queues.values():
            for event in queue:
                if isinstance(event, SeenMessage) and event.tag in accepted:
                    late_ns = event.at_ns - accepted[event.tag]
                    if late_ns > PACE_NS:
                        yield f"{life.client} got {event.tag} {late_ns / SECOND:.3f} s after it was accepted"
                        return
