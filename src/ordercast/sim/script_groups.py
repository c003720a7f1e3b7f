"""What scripts say about other groups than the one of all nodes, and the sessions that are in them.

`sim/script.py` has the language. These words need a shared underlay: `orderer sites`.

    x@a join news                      # x is a client of the daemon a; a alone is the program of the node
    x@a,c send 2 AGREED to news,chat   # one message each to both groups, from inside or outside
    until view x@a of 2 in news
    expect c delivered 2 in news
    x@a leave news; x@a close          # it leaves one group, or all of them

Words that cannot be read raise `ValueError`, with what to write; the parser adds the line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ordercast.groups.directory import Placement
from ordercast.groups.events import Batch
from ordercast.groups.host import Host
from ordercast.groups.port import Port
from ordercast.groups.session import Session
from ordercast.service import Service, parse_service
from ordercast.sim.application import payload
from ordercast.sim.cluster import Cluster
from ordercast.sim.member import SimMember

SITES: Final = "sites"  # the orderer, and the name of its underlay
MAX_SESSIONS: Final = 64  # that a script may name
GROUPS_HELP: Final = (
    "write: x@a join news, x@a leave news, x@a close, a send 2 AGREED to news,chat; "
    "until view x@a of 2 in news, expect x@a delivered 2 in news"
)


class SessionAct(NamedTuple):
    """One thing that sessions do, or one that is expected of them."""

    verb: str  # join, leave, close or send; view or delivered
    sessions: tuple[tuple[str, str], ...]  # label and node; the program of a node has no label
    groups: tuple[str, ...] = ()
    number: int = 0
    service: str = ""
    size: int = 100


class OneUnderlay:
    """A directory that puts all groups of a script on one underlay."""

    __slots__ = ()

    def place(self, group: str) -> Placement:
        return Placement(SITES, group != SITES)


# Words. --------------------------------------------------------------------------------------------------------------


def session_act(words: Sequence[str], nodes: Sequence[str], *, is_shared: bool) -> SessionAct | None:
    """What a statement asks of sessions; None: it is about something else. `is_shared`: there may be other groups."""
    match words:
        case [who, ("join" | "leave") as verb, groups]:
            act = SessionAct(verb, _sessions(who, nodes), _groups(groups))
        case [who, "close"]:
            act = SessionAct("close", _sessions(who, nodes))
        case [who, "send", count, service, "to", groups, *rest]:
            act = SessionAct(
                "send", _sessions(who, nodes), _groups(groups), _number(count), str(parse_service(service))
            )
            match rest:
                case ["size", size]:
                    act = act._replace(size=_number(size))
                case [_, *_]:
                    raise ValueError(f"cannot read {' '.join(rest)!r}; {GROUPS_HELP}")
        case [("until" | "expect"), "view", who, "of", count, "in", group]:
            act = SessionAct("view", _sessions(who, nodes), _groups(group), _number(count))
        case [("until" | "expect"), who, "delivered", count, "in", group]:
            act = SessionAct("delivered", _sessions(who, nodes), _groups(group), _number(count))
        case [who, *_] if "@" in who:
            raise ValueError(f"cannot read {' '.join(words)!r}; {GROUPS_HELP}")
        case _:
            return None
    if not is_shared:
        raise ValueError("other groups than the one of all nodes need a shared underlay: write orderer sites before")
    return act


def _sessions(word: str, nodes: Sequence[str]) -> tuple[tuple[str, str], ...]:
    found = []
    for name in nodes if word == "all" else word.split(","):
        label, at, node = name.rpartition("@")
        if node not in nodes or bool(label) != bool(at):
            raise ValueError(f"there is no session {name!r}; write x@a, where a is one of {', '.join(nodes)}")
        found.append((label, node))
    return tuple(found)


def _groups(word: str) -> tuple[str, ...]:
    names = tuple(word.split(","))
    if not all(names):
        raise ValueError(f"{word!r} has a group without a name; {GROUPS_HELP}")
    return names


def _number(word: str) -> int:
    if not word.isdigit():
        raise ValueError(f"{word!r} is no number; {GROUPS_HELP}")
    return int(word)


# What becomes of them. -----------------------------------------------------------------------------------------------

Report = Callable[[str, Any], None]
"""Told of each event, with the name of the session and its group: `x@a in news`."""


@dataclass(slots=True)
class _Sending:
    groups: tuple[str, ...]
    count: int
    service: Service
    size: int


@dataclass(slots=True)
class _ScriptSession:
    """One application of one life of a node, in groups that a script names."""

    name: str
    member: SimMember
    host: Host
    session: Session
    ports: dict[str, Port] = field(default_factory=dict)
    delivered: dict[str, int] = field(default_factory=dict)
    sending: deque[_Sending] = field(default_factory=deque)
    created: int = 0

    def pump(self) -> bool:
        """Hand over what the queue takes; True if it took anything. A program that is in no group yet sends through the
        place of its node."""
        took = False
        while self.sending:
            order = self.sending[0]
            port = next((port for port in self.ports.values() if port.view is not None), None)
            if port is None and not self.session.label and self.member.is_in:
                port = self.member.port
            if port is None or port.view is None:
                break
            data = payload(f"{self.name}/{self.member.node.life}", self.created, order.size)
            own = self.ports.get(order.groups[0]) if len(order.groups) == 1 else None
            if own is not None and own.view is not None:
                is_taken = own.offer_many([data], order.service) > 0
            else:
                is_taken = port.stream.offer_to(order.groups, data, order.service) >= 0
            if not is_taken:
                break
            took = True
            self.created += 1
            order.count -= 1
            if not order.count:
                self.sending.popleft()
        return took


class ScriptSessions:
    """The sessions of a script that have other groups than the one of all nodes, over all lives of their nodes."""

    __slots__ = ("_cluster", "_report", "_sessions")

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._sessions: dict[tuple[str, str], _ScriptSession] = {}

    def attend(self, name: str) -> None:
        """A life of a node has begun: look after its sessions in each of its passes."""
        member = self._cluster.members[name]

        def turn(now_ns: int) -> None:
            member.turn(now_ns)
            self._turn(member)

        member.node.after_pass = turn

    def act(self, act: SessionAct) -> None:
        """Nothing where the node is down."""
        for label, node in act.sessions:
            found = self._find(label, node)
            if found is None:
                continue
            world, host, session = self._cluster.world, found.host, found.session
            match act.verb:
                case "join":
                    config = self._cluster.terms.config
                    for group in act.groups:
                        found.ports[group] = host.open(
                            world.clock(found.member.node), group, config=config, min_members=1, session=session
                        )
                case "leave":
                    for group in act.groups:
                        if group in found.ports:
                            host.leave(found.ports[group])
                case "close" if session.label:
                    host.close_session(session)
                case "send":
                    found.sending.append(_Sending(act.groups, act.number, parse_service(act.service), act.size))
                    found.pump()
            for port in [*found.ports.values(), found.member.port]:
                if port is not None and port.gone is None:
                    host.touch(port)
            world.wake(found.member.node)

    def holds(self, act: SessionAct, *, is_exact: bool) -> bool:
        """Whether what is expected of sessions is so. `until` waits for at least so many messages."""
        for key in act.sessions:
            found, group = self._sessions.get(key), act.groups[0]
            if act.verb == "view":
                port = found.ports.get(group) if found is not None and found.member.node.is_up else None
                count = len(port.view.members) if port is not None and port.view is not None else 0
                is_met = count == act.number
            else:
                count = found.delivered.get(group, 0) if found is not None else 0
                is_met = count == act.number if is_exact else count >= act.number
            if not is_met:
                return False
        return True

    def state(self, act: SessionAct) -> str:
        """What there is instead of what was expected."""
        texts = []
        for label, node in act.sessions:
            found, group = self._sessions.get((label, node)), act.groups[0]
            port = found.ports.get(group) if found is not None else None
            names = [str(each) for each in port.view.members] if port is not None and port.view is not None else []
            count = found.delivered.get(group, 0) if found is not None else 0
            place = f"in the view of {' '.join(names)}" if names else "not in"
            texts.append(f"{label}{'@' * bool(label)}{node} delivered {count}, {place}")
        return "; ".join(texts)

    def _find(self, label: str, node: str) -> _ScriptSession | None:
        """The session of the present life of the node, opened if need be."""
        member = self._cluster.members[node]
        host = member.host
        if host is None or not member.node.is_up:
            return None
        found = self._sessions.get((label, node))
        if found is None or found.host is not host or found.session.is_closed:
            if found is None and len(self._sessions) >= MAX_SESSIONS:
                raise ValueError(f"a script names at most {MAX_SESSIONS} sessions")
            session = host.open_session(label) if label else host.session
            name = f"{label}@{node}" if label else node
            found = self._sessions[label, node] = _ScriptSession(name, member, host, session)
        return found

    def _turn(self, member: SimMember) -> None:
        for found in self._sessions.values():
            if found.member is not member or found.host is not member.host or not member.node.is_up:
                continue
            has_work = found.pump()
            for group, port in list(found.ports.items()):
                while (event := port.take()) is not None:
                    if isinstance(event, Batch):
                        found.delivered[group] = found.delivered.get(group, 0) + event.count
                    self._report(f"{found.name} in {group}", event)
                if port.gone is not None:
                    del found.ports[group]
                elif port.has_consumed or has_work:
                    found.host.touch(port)
                    self._cluster.world.wake(member.node)
