"""Bugs of labelled sessions: several applications of one node on a shared underlay (docs/design/roster.md).

They are shown by the random scenarios of `ordercast fuzz --many-groups` that have sessions.
"""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.many_groups import MANY_GROUPS, SESSIONS_FROM


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    bound: int,
    orderer: str = "sequencer",
) -> Bug:
    return Bug(name, function, old, new, breaks, bound, orderer, MANY_GROUPS, SESSIONS_FROM)


SESSION_BUGS: Final[tuple[Bug, ...]] = (
    # Who they are
    _bug(
        "messages of sessions bear the name of their node",
        "Reception.run",
        "if label: sender = session_name(sender, label)",
        "",
        "The numbers of its messages come several times.",
        20,
    ),
    _bug(
        "sessions of one node have one id",
        "Member.session",
        "replace(self, id=node_id(f'{label}@{self.name}', self.life), label=label)",
        "replace(self, label=label)",
        "Members of a group view cannot be told apart.",
        30,
        "token",
    ),
    _bug(
        "a join does not say of which session it is",
        "SharedGroups.offer",
        "joins.setdefault((port.stream.label, port.join_header), []).append(port.group)",
        "joins.setdefault(('', port.join_header), []).append(port.group)",
        "The node itself is in the group, and the session waits.",
        20,
        "timestamp",
    ),
    _bug(
        "a leave takes the node's own session out",
        "SharedGroups.leave",
        "self._leaving.append((port.stream.label, port.number, header))",
        "self._leaving.append(('', port.number, header))",
        "The session stays, and another one that did not ask for it is out.",
        30,
    ),
    # What they receive
    _bug(
        "only one session of a node has the views of a group",
        "SharedGroups._on_change",
        "ports = list(reception.ports_of(number))",
        "ports = list(reception.ports_of(number))[:1]",
        "The others do not learn who is there.",
        20,
        "token",
    ),
    _bug(
        "a session that joins comes with those that are there",
        "SharedGroups._on_change",
        "mine = self._key(port.stream.label)",
        "mine = self._key('')",
        "It comes from the same view as the node's own session.",
        40,
    ),
    _bug(
        "only one session of a node gets a block",
        "Reception.run",
        "handed = [(port, batch) for port in ports]",
        "handed = [(port, batch) for port in ports[:1]]",
        "The others of the same group do not.",
        20,
        "timestamp",
    ),
    _bug(
        "a message to several groups comes to one session of a node",
        "Reception._parts",
        "found.setdefault(id(port.stream), port)",
        "found.setdefault(0, port)",
        "The others do not get it.",
        20,
        "token",
    ),
    _bug(
        "positions of one session count for another",
        "Reception.run",
        "mine, last = port.stream.label, position + count - 1",
        "mine, last = '', position + count - 1",
        "The trace does not say what a session delivered before.",
        30,
    ),
    _bug(
        "the signal of a recovery comes behind what it announces",
        "Reception.run",
        "if shared is not None: shared.signal(now_ns, port)",
        "",
        "A session does not learn that what it gets is only known to those that recovered together.",
        120,
    ),
    # What they send
    _bug(
        "names are those of the node",
        "SharedGroups._on_named",
        "key, port = (label, name), self._port(label, name)",
        "key, port = ('', name), self._port(label, name)",
        "A session that sends from outside waits for its names for good.",
        20,
        "token",
    ),
    _bug(
        "a session that ended keeps its names",
        "SharedGroups.exit",
        "self._unname(key)",
        "pass",
        "Groups that nobody is in, and nobody sends to, never end.",
        40,
    ),
    # They come and go
    _bug(
        "a session that comes back counts from the beginning",
        "Sessions.open",
        "Session(label, before.numbers if before is not None else None)",
        "Session(label)",
        "Its messages have numbers that were used before.",
        20,
    ),
    _bug(
        "a session that is closed stays in its groups",
        "Host.close_session",
        "for port in session.places: self.leave(port, header if port.group else b'')",
        "",
        "The roster has a member whose client is gone.",
        20,
        "timestamp",
    ),
    _bug(
        "sessions do not come back with their node",
        "SharedGroups.on_departed",
        "ports = [port for stream in self.streams.values() for port in stream.ports.values()]",
        "ports = [port for stream in self.streams.values() for port in stream.ports.values() if not stream.label]",
        "A node that was put out comes back, and its sessions are in no group.",
        120,
        "token",
    ),
    _bug(
        "what a session holds is not counted when it is taken",
        "Port._finish",
        "self.stream.held_bytes -= receipt.size",
        "",
        "It holds up the underlay for good, though it receives everything.",
        10,
    ),
)
