"""What the daemon sends to clients of Spread: messages, membership, signals. Section 6 of the reference.

All headers are little-endian with the marker, whatever the client uses (section 1, rule 1). Messages of one block are
encoded at once, and the bytes are shared by all receivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final

from ordercast.daemon.spread import bits
from ordercast.daemon.spread.frames import HEADER
from ordercast.daemon.spread.names import field

GROUP_ID_BYTES: Final = 12
SETS: Final = Struct("<II")  # number of vs_sets, offset of the receiver's own
COUNT: Final = Struct("<I")  # members of one
SETS_OFFSET: Final = GROUP_ID_BYTES + SETS.size  # from which the offset counts
if SETS_OFFSET != 20:
    raise AssertionError("vs_sets begin at offset 20 of a membership body")

VsSets = Sequence[Sequence[bytes]]


def encode_casts(type_: int, sender: bytes, hint: bytes, groups: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Messages of one sender, type, hint and list of groups, one after the other. Hot: no loop of Python where all are
    equally long."""
    if not bodies:
        return b""
    word, name, count = type_ | bits.ENDIAN, field(sender), len(groups)
    fields = b"".join(map(field, groups))
    length = len(bodies[0])
    lengths = list(map(len, bodies))
    if lengths.count(length) == len(lengths):
        head = HEADER.pack(word, name, count, hint, length) + fields
        return head.join((b"", *bodies))
    heads = {each: HEADER.pack(word, name, count, hint, each) + fields for each in set(lengths)}
    return b"".join([part for body in bodies for part in (heads[len(body)], body)])


def encode_membership(
    cause: int, group: bytes, group_id: bytes, members: Sequence[bytes], sets: VsSets, own: int, *, has_sets: bool
) -> bytes:
    """A regular membership message. `own`: which of the vs_sets is the receiver's.

    `has_sets`: as 4.x and later have it; before, a body has one set and no offset (section 6.7).
    """
    if has_sets:
        encoded = [_encode_set(each) for each in sets]
        offset = sum(map(len, encoded[:own]))
        body = b"".join((group_id, SETS.pack(len(encoded), offset), *encoded))
    else:
        body = group_id + _encode_set(sets[own])
    head = _head(bits.REG_MEMB_MESS | cause, group, len(members), len(body))
    return b"".join((head, *map(field, members), body))


def encode_self_leave(group: bytes) -> bytes:
    """The client itself has left: 48 bytes (section 6.3)."""
    return _head(bits.CAUSED_BY_LEAVE, group, 0, 0)


def encode_transitional(group: bytes, group_id: bytes) -> bytes:
    """The signal, with the id of the view that ends (section 6.4)."""
    return _head(bits.TRANSITION_MESS, group, 0, len(group_id)) + group_id


def group_id_of(view: str) -> bytes:
    """Three 32-bit words that name a view: equal at all of its members, and different for any other view.

    Clients only compare them. Deviation: Spread has the daemon, a time and a counter here; these are a digest.
    """
    return blake2b(view.encode(), digest_size=GROUP_ID_BYTES, person=b"oc-spread").digest()


def _head(type_: int, group: bytes, count: int, length: int) -> bytes:
    return HEADER.pack(type_ | bits.ENDIAN, field(group), count, bits.PLAIN_HINT, length)


def _encode_set(names: Sequence[bytes]) -> bytes:
    return COUNT.pack(len(names)) + b"".join(map(field, names))
