"""Tells whoever has started this process how far it is, as systemd wants it: a datagram to `$NOTIFY_SOCKET`."""

from __future__ import annotations

import os
import socket
from contextlib import closing


def notify(state: str) -> bool:
    """Send a state, such as READY=1; whether somebody wanted it."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path[:1] not in ("/", "@"):
        return False
    where = "\0" + path[1:] if path[0] == "@" else path
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
            sender.sendto(state.encode(), where)
    except OSError:
        return False  # nobody is there to hear it, and that is no reason to stop
    return True
