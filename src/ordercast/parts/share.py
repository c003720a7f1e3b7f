"""How much all senders of a group may have outstanding together: what the sockets of its receivers can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import MAX_BLOCK, GroupConfig
from ordercast.parts.log import DATAGRAM_OVERHEAD
from ordercast.view import Member, View
from ordercast.wire.header import HEADER_BYTES

MIN_BLOCK: Final = 512


def ceiling_of(view: View, config: GroupConfig) -> int:
    """Half the smallest receive buffer in the view, and no more than the history."""
    return ceiling_among(view.members, config)


def ceiling_among(members: Sequence[Member], config: GroupConfig) -> int:
    """The same of any list of members."""
    smallest = min((member.buffer_bytes for member in members if member.buffer_bytes), default=0)
    return min(config.history_bytes, smallest // 2) if smallest else config.history_bytes


def largest_block(ceiling: int, members: int, config: GroupConfig) -> int:
    """All members together may begin with one block each before anybody knows which of them are sending."""
    body = config.datagram - HEADER_BYTES
    share = ceiling // max(4, members)
    segments = share // (body + DATAGRAM_OVERHEAD)
    largest = segments * body if segments else share - DATAGRAM_OVERHEAD
    return max(MIN_BLOCK, min(MAX_BLOCK, largest))
