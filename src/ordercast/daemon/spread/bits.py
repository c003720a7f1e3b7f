"""The type word and the hint of Spread's messages: which bit means what. Sections 4.2 and 4.3 of the reference."""

from __future__ import annotations

from typing import Final

from ordercast.service import AGREED, CAUSAL, FIFO, RELIABLE, SAFE, UNRELIABLE, Service

ENDIAN: Final = 0x8000_0080
"""Set by little-endian senders, in the type word and in the hint; a palindrome of bytes."""

# Services: exactly one of them in a message.
UNRELIABLE_MESS: Final = 0x01
RELIABLE_MESS: Final = 0x02
FIFO_MESS: Final = 0x04
CAUSAL_MESS: Final = 0x08
AGREED_MESS: Final = 0x10
SAFE_MESS: Final = 0x20
REGULAR_MESS: Final = 0x3F  # a mask
SELF_DISCARD: Final = 0x40

# To clients.
CAUSED_BY_JOIN: Final = 0x0100
CAUSED_BY_LEAVE: Final = 0x0200  # alone: the receiver itself has left
CAUSED_BY_DISCONNECT: Final = 0x0400
CAUSED_BY_NETWORK: Final = 0x0800
REG_MEMB_MESS: Final = 0x1000
TRANSITION_MESS: Final = 0x2000

# From clients.
JOIN_MESS: Final = 0x01_0000
LEAVE_MESS: Final = 0x02_0000
KILL_MESS: Final = 0x04_0000
COMMANDS: Final = JOIN_MESS | LEAVE_MESS | KILL_MESS
GROUPS_MESS: Final = 0x08_0000  # between daemons; a client that sends it is disconnected

DAEMONS_OWN: Final = 0x0070_FF00
"""Membership, REJECT and what daemons tell each other. A client that sets them in a message is forwarded without them:
others would take the message for one of the daemon's. (Spread forwards them as they are.)"""

SERVICES: Final[dict[int, Service]] = {
    UNRELIABLE_MESS: UNRELIABLE,
    RELIABLE_MESS: RELIABLE,
    FIFO_MESS: FIFO,
    CAUSAL_MESS: CAUSAL,
    AGREED_MESS: AGREED,
    SAFE_MESS: SAFE,
}
SERVICE_BITS: Final = (
    UNRELIABLE_MESS,
    RELIABLE_MESS,
    FIFO_MESS,
    CAUSAL_MESS,
    AGREED_MESS,
    AGREED_MESS,
    AGREED_MESS,
    SAFE_MESS,
)
"""By the rank of the service. RESILIENT and MAJORITY, which Spread does not have, are shown as AGREED."""

HINT_MASK: Final = 0x80FF_FF80
PLAIN_HINT: Final = b"\x80\0\0\x80"
"""Little-endian, of type 0: that of the daemon's own messages."""


def is_legal_hint(hint: bytes) -> bool:
    """Whether only the marker and the 16 bits of the message type are set, in either byte order."""
    return not (hint[0] & 0x7F or hint[3] & 0x7F)


def read_hint(hint: bytes) -> tuple[int, int]:
    """The message type as a signed number, and the marker bits (1: of the first byte, 2: of the last one).

    Both together make the hint again, bit for bit (`make_hint`). Without the marker the type is read as big-endian.
    """
    marks = hint[0] >> 7 | hint[3] >> 7 << 1
    low, high = (hint[1], hint[2]) if marks == 3 else (hint[2], hint[1])
    number = high << 8 | low
    return (number - 0x1_0000 if number > 0x7FFF else number), marks


def make_hint(type_: int, marks: int) -> bytes:
    """The hint of a message type."""
    low, high = type_ & 0xFF, type_ >> 8 & 0xFF
    first, second = (low, high) if marks == 3 else (high, low)
    return bytes(((marks & 1) << 7, first, second, (marks >> 1) << 7))
