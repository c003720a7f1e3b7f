"""The other machine is gone, and says nothing: when the kernel ends a TCP connection. Both ends ask for the same."""

from __future__ import annotations

import socket
from typing import Final

PROBES: Final = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""In seconds, and how many: an idle connection ends after 40 s without a sign."""

UNTAKEN_MS: Final = 40_000
"""Bytes that the other machine has not taken for so long end a connection as well: probes run on idle ones only, and
without this Linux repeats the bytes for about 15 minutes. Elsewhere there is no such option."""


def end_when_alone(found: socket.socket, *, may_stand: bool = False) -> None:
    """Set the options of a TCP socket. `may_stand`: bytes may wait for as long as they like, because the other program
    may stand still: the kernel does not tell a full buffer from a machine that is gone."""
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for word, value in PROBES:
        if hasattr(socket, word):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, word), value)
    if not may_stand and hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS)
