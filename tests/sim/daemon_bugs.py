"""Bugs of daemons and their clients, native and Spread's: shown by `ordercast fuzz --profile sessions`."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

from ordercast.sim.scenario import SESSIONS

FIRST_SESSIONS: Final = 1_000


def _bug(
    name: str,
    function: str,
    old: str | tuple[str, ...],
    new: str | tuple[str, ...],
    breaks: str,
    bound: int = 30,
    orderer: str = "token",
    first_seed: int = FIRST_SESSIONS,
) -> Bug:
    """`first_seed`: of what random runs meet once in thousands, the one that met it."""
    return Bug(name, function, old, new, breaks, bound, orderer, SESSIONS, first_seed)


DAEMON_BUGS: Final[tuple[Bug, ...]] = (
    # What a daemon takes from its clients
    _bug(
        "a daemon does not count what it has received",
        "NativeConnection._on_send",
        "self._received += len(block) + PREFIX_BYTES",
        "",
        "A client that has used up its first credit never gets more.",
    ),
    _bug(
        "of a JOIN of several groups only the first is joined",
        "NativeConnection._on_join",
        "for _, name in joins.groups:\n    if not seat.has(name):\n        seat.join(name, joins.header)",
        "for _, name in joins.groups[:1]:\n    if not seat.has(name):\n        seat.join(name, joins.header)",
        "A client that comes back is in one of its groups only.",
    ),
    _bug(
        "a LEAVE is passed over",
        "NativeConnection._on_leave",
        "seat.leave(name, leaves.header)",
        "pass",
        "The client waits for the end of its leave.",
    ),
    _bug(
        "a message to several groups goes to the first",
        "NativeConnection._offer",
        "names = [self._group(handle) for handle in handles]",
        "names = [self._group(handle) for handle in handles][:1]",
        "Members of the other groups do not get it.",
    ),
    _bug(
        "confirmations are not told",
        "NativeConnection.settle",
        "self._confirm(watch)",
        "pass",
        "A client waits for a send that was delivered long ago.",
    ),
    _bug(
        "a session whose connection is lost stays",
        "NativeConnection.lost",
        "self.seat.close(SessionEnd.LOST, text)",
        "pass",
        "The name of its client is taken for good.",
    ),
    # What a daemon gives to its clients
    _bug(
        "what a client has consumed is not counted",
        "NativeConnection._on_consumed",
        "self._consumed = consumed",
        "",
        "The window of a client closes and stays closed.",
    ),
    _bug(
        "a large message lacks its last part",
        "EventEncoder._parts",
        "range(0, len(payload), step)",
        "range(0, len(payload) - step, step)",
        "The client never has the message whole.",
        60,
    ),
    _bug(
        "names of deliveries are kept without their group",
        "EventEncoder._names_of",
        "key = (batch.view, batch.sender, batch.group)",
        "key = (batch.view, batch.sender, '')",
        "A message comes in another group than it was sent to.",
    ),
    _bug(
        "frames of the last event are dropped when the socket is full",
        "NativeConnection._pump",
        "self._flush()\nreturn self._sent - self._consumed < window and sink.pending_bytes() < WRITE_BYTES",
        "self._flush()\nself._coming = iter(())\n"
        "return self._sent - self._consumed < window and sink.pending_bytes() < WRITE_BYTES",
        "A part of a large message is missing.",
        120,
    ),
    # How sessions end
    _bug(
        "sessions leave without a reason",
        "Seats.end",
        "self.host.close_session(seat.session, encode_ending(*ending))",
        "self.host.close_session(seat.session)",
        "Nobody who sees the leave knows why.",
    ),
    _bug(
        "slow clients are never put out",
        "Seats.check_slow",
        "now_ns - seat.behind_ns >= limits.patience_ns and not limits.is_blocking",
        "False",
        "What waits for a client grows beyond its bound.",
        60,
    ),
    _bug(
        "a label is free before its session is out",
        "Seats._settle_closing",
        "not seat.session.streams",
        "base.gone is not None",
        "A client that comes back is refused for a mistake that it has not made.",
        60,
        "sites",
    ),
    _bug(
        "a session that ends while its join is under way leaves without a reason",
        "SharedGroups.leave",
        "self._reasons[port.stream.label, port.group] = header",
        "pass",
        "Nobody who sees the leave knows why.",
        60,
        "sites",
    ),
    _bug(
        "a name is given back although a later session of its label is in its group",
        "SharedGroups._on_named",
        "port is None or port in self._joining or (regrouping is not None and regrouping.holds(port))",
        "True",
        "A session is out of a group that nobody has left.",
        1,
        "sites",
        1_630_001_115,
    ),
    # Clients
    _bug(
        "a client does not join its groups again",
        "ClientSession.on_welcome",
        "self._join([seat for seat in self.seats.values() if not seat.is_leaving])",
        "",
        "It is connected, and in none of its groups.",
    ),
    _bug(
        "a client goes on with the numbers of its last session",
        "ClientSending.on_welcome",
        "self.queue.next_number += step",
        "",
        "The daemon takes its messages for those of nobody, and disconnects it.",
    ),
    _bug(
        "a client believes that the next daemon knows its handles",
        "ClientSending.on_welcome",
        "self._known.clear()",
        "",
        "The daemon does not know the groups of its messages, and disconnects it.",
        60,
    ),
    _bug(
        "sends on their way are forgotten with the connection",
        "ClientSending.on_lost",
        "for first, count, each in ranges:\n    if count:\n        each.lose(first, count)",
        "",
        "Messages are gone, and their sender is not told.",
        60,
    ),
    _bug(
        "sends that wait for a group are forgotten when it is left without a connection",
        "ClientSession._end_leaving",
        "self.sending.lose_waiting(seats)",
        "",
        "Messages are gone, and their sender is not told.",
        1,
        "sites",
        1_630_000_444,
    ),
    _bug(
        "consumption counts on over connections",
        "ClientReceiving.on_welcome",
        "self._received = self._held = self._parts = self._consumed = self._told = 0",
        "self._received = self._held = self._parts = self._told = 0",
        "The client says that it has consumed what was never sent to it.",
    ),
    _bug(
        "a client never says what it has consumed",
        "ClientReceiving.finish",
        "self._consumed = max(self._consumed, self._received - self._held)",
        "",
        "The daemon sends nothing any more when the window is full.",
    ),
    _bug(
        "only a client whose connection breaks comes back",
        "LinkKeeper._keep",
        "why in _FINAL",
        "why != SessionEnd.LOST",
        "A client that was too slow, or whose daemon was stopped, stays away.",
        60,
    ),
    # Spread's clients
    _bug(
        "a sender gets what it discards",
        "SpreadSession.settle",
        "relayed.messages and not (relayed.is_discarding and relayed.sender == me)",
        "relayed.messages",
        "SELF_DISCARD does nothing.",
    ),
)
