"""The header of every datagram, and the kinds of datagrams.

32 bytes, little-endian (native on the machines that matter, so arrays need no byte swap). 16 would do with indexes; the
other 16 buy that origin, ring and number are whole 64-bit values: no per-view index table has to agree before a
datagram can be understood, and no counter wraps. That is 2.3 % of a 1,400-byte datagram, 0.05 % of a block.

A *segment* is `segment` of `last + 1` pieces of one body; control bodies travel the same way when they are long.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

MAGIC: Final = 0xC7  # version 3 of the format; another version takes another byte

# magic, kind, segment, last segment, tag of the underlay, ring, origin, number
HEADER: Final = Struct("<BBBBIQQQ")
HEADER_BYTES: Final = HEADER.size
if HEADER_BYTES != 32:
    raise AssertionError("the datagram header is 32 bytes on the wire")

TAG: Final = Struct("<I")
TAG_OFFSET: Final = 4
MAX_SEGMENTS: Final = 256  # segment and last are one byte each


class Kind(IntEnum):
    """What a datagram is. The value is on the wire: append, never renumber."""

    # Ordering: blocks, and what orders, acknowledges and repairs them.
    DATA = 1  # a segment of a block, multicast by its sender (Amoeba's method 2, BB)
    REQUEST = 2  # a whole block to the member that orders: the sequencer (method 1, PB), or the token site
    ORDERED = 3  # a whole block with its sequence number, multicast by the member that orders
    ACCEPT = 4  # sequence numbers of blocks that were multicast (BB)
    REPAIR = 5  # a segment of a block sent again
    NAK = 6  # sequence numbers or blocks that are missing
    STATUS = 7  # the sequencer, or the sender of UNRELIABLE blocks, asks all members for an ACK
    ACK = 8  # received up to, consumed up to
    SYNC = 9  # heartbeat of the sequencer, or of any member of a token ring
    HELD = 10  # blocks of an origin are held up to a number (resilience, or "do not send again")
    PROPOSE = 11  # a member asks for a change to be ordered
    TOKEN = 12  # RMP's ACK: sequence numbers for blocks, and the token to the next site
    CONFIRM = 13  # the token is accepted, and nothing to order yet
    UNRELIABLE = 14  # a block that gets no sequence number (UNRELIABLE)
    LIST = 15  # RMP's New List: a TOKEN (or SYNC) and the change that it orders, in one
    STAMPS = 16  # ABCAST: acknowledgements with proposed timestamps
    DECISION = 17  # ABCAST: final timestamps
    CARRIER = 18  # a whole block of its sender, to all or to the sequencer, and HELD before it in one
    PROBE = 19  # to a silent member: its kernel answers if its process is gone, and nobody otherwise

    # Membership without failure.
    FIND = 20  # a newcomer asks for members
    HERE = 21  # a member answers
    JOIN = 22
    WELCOME = 23
    REFUSE = 24
    RETURN = 25  # a restarted member shows what it has kept; before version 3 an answer to former members
    BEACON = 26  # a ring shows itself, so that rings of one name meet
    VOTE = 27  # a member holds a change and everything before it
    DECIDED = 28  # a quorum of the view before does; also the answer to VOTE and DEPART
    DEPART = 29  # a leaver asks whether its leave is known to be decided, so that it may go

    # Recovery.
    SUSPECT = 30  # manual recovery: the group has failed
    INVITE = 31
    CUT = 32
    DENY = 33
    RESULT = 34
    RESULT_ACK = 35
    COMMIT = 36
    CHECK = 37  # an invited member asks whether the coordinator is alive; also the answer
    WITHDRAW = 38  # a newcomer takes its request back; also the answer: it will not be ordered
    ENDED = 39  # to a former member: the ring has ended in order

    # Callers that are no members (RMP section 4.5).
    CALL = 40
    REPLY = 41
    NAMES = 42  # to a single node: which groups is it in? Also the answer (section 3.3)

    # Sites (Spread section 3): what links carry, and the token of a site.
    PACKET = 43  # a segment of a stamped block, in the sequence of one link
    SKIP = 44  # in link sequence: blocks that were pruned, since no site behind the link wants them
    UPDATE = 45  # in link sequence: how far a site is, its clock and its ARU
    HOP_ACK = 46  # the ends of a link to each other: received up to, sent up to
    HOP_NAK = 47  # and what is missing
    SITE_TOKEN = 48  # the token of a site, or where it is
    WAKE = 49  # to the daemon where it rests: another one has something to send

    # Components: membership of sites (extended virtual synchrony).
    HELLO = 50  # a component shows itself; the end of a link lives
    GATHER = 51
    SITE_CUT = 52
    PROPOSAL = 53
    ACCEPTED = 54
    INSTALL = 55
    FETCH = 56  # asks a member of the class for blocks of the remainder
    SHOW = 57  # a component shows itself to configured daemons outside of it

    # Regions (QSM section 2.3): parcels of a courier, and what acknowledges them.
    COURIER_ACK = 64
    CLOSE = 65  # a sender's final count in a view that it leaves
    REGION_TOKEN = 66
    REGION_ACK = 67  # of a region to a sender, with the rate that it takes
    REGION_NAK = 68  # what a whole partition lacks, to the sender
    GONE = 69  # the answer where the sender does not keep it any more
    PUSH = 70  # a segment that another member is known to lack
    PULL = 71  # a member asks another one for segments
    PULLED = 72  # a segment in answer
    LOST = 73  # blocks that nobody has any more
    DRAINED = 74  # the view is forgotten where it was asked about
    ACCUSE = 75  # to the membership service: a node does not answer

    # The membership service (QSM section 2.2): datagrams that find it, and parcels between it and its nodes.
    WHO = 76  # a node looks for the service; a datagram of its own, without a courier
    SERVICE = 77  # a replica names itself and the leader; a datagram as well
    ASK = 78  # a page of a request
    TOLD = 79  # a page of its answer
    EPOCH = 80  # a page of what an epoch changes for one node, or of all that it has to know
    PING = 81
    PONG = 82  # also a heartbeat
    OUT = 83  # to a node: the service does not know it, or no longer
    LEADER = 84  # in answer to what only the leader takes: who it is


FORWARD: Final = 0x80  # added to the kind: the receiver is to multicast it (RMP section 3.4)


# What `tx` and `rx` rows of the trace call them.
DETAIL: Final[dict[int, str]] = {
    Kind.DATA: "data",
    Kind.REQUEST: "request",
    Kind.ORDERED: "ordered",
    Kind.ACCEPT: "accept",
    Kind.REPAIR: "repair",
    Kind.NAK: "nak",
    Kind.STATUS: "status",
    Kind.ACK: "ack",
    Kind.SYNC: "sync",
    Kind.HELD: "held",
    Kind.PROPOSE: "propose",
    Kind.TOKEN: "token",
    Kind.CONFIRM: "confirm",
    Kind.UNRELIABLE: "data",
    Kind.LIST: "list",
    Kind.STAMPS: "ack",
    Kind.DECISION: "decision",
    Kind.CARRIER: "data",
    Kind.PROBE: "probe",
    Kind.CALL: "call",
    Kind.REPLY: "reply",
    Kind.NAMES: "names",
    Kind.PACKET: "data",
    Kind.SKIP: "skip",
    Kind.UPDATE: "update",
    Kind.HOP_ACK: "ack",
    Kind.HOP_NAK: "nak",
    Kind.SITE_TOKEN: "token",
    Kind.WAKE: "wake",
    Kind.COURIER_ACK: "courier-ack",
    Kind.CLOSE: "close",
    Kind.REGION_TOKEN: "token",
    Kind.REGION_ACK: "ack",
    Kind.REGION_NAK: "nak",
    Kind.GONE: "gone",
    Kind.PUSH: "push",
    Kind.PULL: "pull",
    Kind.PULLED: "pulled",
    Kind.LOST: "lost",
    Kind.DRAINED: "drained",
    **dict.fromkeys(range(Kind.ACCUSE, Kind.LEADER + 1), "membership"),
}
MEMBERSHIP_DETAIL: Final = "membership"
UNKNOWN_DETAIL: Final = "unknown"


def detail_of(kind: int) -> str:
    """The word for a kind in traces and counters; everything about views is `membership`."""
    kind &= ~FORWARD
    if Kind.FIND <= kind <= Kind.ENDED or Kind.HELLO <= kind <= Kind.SHOW:
        return MEMBERSHIP_DETAIL
    return DETAIL.get(kind, UNKNOWN_DETAIL)
