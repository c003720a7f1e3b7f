"""What an operator may set for Spread's clients. `spread.conf` has some of it, the daemon's own configuration all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ordercast.daemon.spread.access import AccessList, AuthRules
from ordercast.daemon.spread.frames import MAX_TOTAL, MAX_TOTAL_EVER
from ordercast.daemon.spread.handshake import ANNOUNCED
from ordercast.errors import UsageError

SPREAD_PORT: Final = 4_803
SOCKET_FOLDER: Final = "/tmp"
"""Where clients look for the unix socket, which has the port as its name."""


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """Of all connections by Spread's client protocol."""

    auth: AuthRules = field(default_factory=AuthRules)
    access: AccessList = field(default_factory=AccessList)
    """Who is admitted by the method IP; nobody where nothing is said."""
    max_sessions: int = 997
    """At the bound a client is refused (REJECT_QUOTA); Spread has 997."""
    max_message: int = MAX_TOTAL
    """Bytes of a message, its groups included (32 each)."""
    max_messages: int = 1_000
    """Messages that wait for one client. Beyond it the client is disconnected (`MaxSessionMessages`)."""
    grace_s: float = 2.0
    """How long more may wait: a block of the daemon holds thousands, and clients need time to be scheduled. 0: none."""
    max_bytes: int = 16 << 20
    """Bytes that wait for one client. Beyond it the client is disconnected at once."""
    total_bytes: int = 64 << 20
    """The same for all clients together: the one goes for which most waits."""
    hello_s: float = 5.0
    """Time for a hello. Spread gives one second, and serves one client at a time."""
    choice_s: float = 60.0
    """Time for the choice of authentication methods."""
    version: tuple[int, int, int] = ANNOUNCED
    """That the daemon announces."""

    def __post_init__(self) -> None:
        if not 1_000 <= self.max_message <= MAX_TOTAL_EVER:
            raise UsageError(f"max_message lies between 1000 and {MAX_TOTAL_EVER} bytes, not at {self.max_message}")
        if self.max_sessions < 1 or self.max_messages < 1 or self.max_bytes < self.max_message:
            raise UsageError("a daemon for Spread's clients needs room for a session, and for one message of each")
        if not all(0 <= number <= 127 for number in self.version) or self.version < (3, 8, 0):
            raise UsageError(f"clients demand a version from 3.8.0 to 127.127.127, not {self.version}")
