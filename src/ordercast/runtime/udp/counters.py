"""What the sockets of a node count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What the sockets of a node did. One object may serve several sockets: they only add to it."""

    # In.
    datagrams_in: int = 0
    bytes_in: int = 0
    receive_calls: int = 0  # the last of a pass, which finds nothing, included
    malformed: int = 0  # empty, or longer than any datagram can be: dropped here
    own_ignored: int = 0  # own multicasts that came up for want of a filter
    kernel_drops: int = 0  # datagrams the socket had no room for, as of the last `read_drops`
    # Out.
    datagrams_out: int = 0
    bytes_out: int = 0
    send_calls: int = 0
    would_block: int = 0  # sends that the caller was told to keep
    gso_fallbacks: int = 0  # sockets that went over to one datagram a call
    undeliverable: int = 0  # datagrams given up because no route or rule lets them out: lost, as on the network
    too_large: int = 0  # datagrams given up because they are larger than the path takes
    # Both.
    refused: int = 0  # ICMP errors that earlier datagrams came back with
