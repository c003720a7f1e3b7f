"""How a message of a Spread client travels between daemons, so that it comes out bit for bit.

Most messages are plain: a little-endian hint, no bit but the service, each group once. They travel as any message of
the underlay does: the payload is the body, the type is Spread's message type. So they are packed into blocks, and
programs that use Ordercast's own API see the same payload and type.

What a plain message cannot say goes with it as one more group that has no members, a *flavour*: its name holds the type
word, the marker bits of the hint, and which groups were named twice or cannot be. The name has to be known before
the first message of its kind is sent, as that of any group; after that it costs four bytes for a block. (A header in
the payload was rejected: other programs would see it. Flavours they do not see.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ordercast.config import MAX_GROUP_NAME
from ordercast.daemon.spread import bits
from ordercast.daemon.spread.names import MAX_GROUP, group_text
from ordercast.groups.events import HIDDEN_PREFIX
from ordercast.service import AGREED, Service

PREFIX: Final = HIDDEN_PREFIX
"""Groups of this prefix are flavours; no client can join or name one."""

LITTLE: Final = 3  # both marker bits of the hint
_FIRST: Final = 0x100  # the character of the first group in a pattern: a letter of two bytes
_NOTHING: Final = "-"  # a group that cannot be named


class Addressed(NamedTuple):
    """A message of a client as the underlay takes it."""

    groups: tuple[str, ...]
    service: Service
    type: int


class Shown(NamedTuple):
    """A message of the underlay as clients see it."""

    type: int
    hint: bytes
    groups: tuple[bytes, ...]

    @property
    def is_discarding(self) -> bool:
        """Its sender does not get it."""
        return bool(self.type & bits.SELF_DISCARD)


@lru_cache(maxsize=1_024)
def address(type_: int, hint: bytes, groups: tuple[bytes, ...], has_service: bool = True) -> Addressed | None:
    """Where a message goes, and as what; None: to nobody. Hot: once for each run of messages that are alike.

    `has_service`: otherwise the underlay does not give the service. Then the message is AGREED, and shown as it was.
    """
    number, marks = bits.read_hint(hint)
    bit = type_ & bits.REGULAR_MESS
    service = bits.SERVICES[bit]
    texts = [_target(group) for group in groups]
    targets = tuple(dict.fromkeys([text for text in texts if text]))
    if not targets:
        return None
    is_listed = len(targets) == len(texts)
    is_plain = is_listed and marks == LITTLE and type_ == bit and has_service
    if is_plain and (len(targets) == 1 or service.is_ordered):
        return Addressed(targets, service, number)
    pattern = ""
    if not is_listed:
        at = {target: chr(_FIRST + index) for index, target in enumerate(targets)}
        pattern = "".join([at.get(text, _NOTHING) for text in texts])
    flavour = f"{PREFIX}{type_:x}.{marks}.{pattern}"
    # Weaker messages to several groups could come before the groups have their names.
    return Addressed((*targets, flavour), service if service.is_ordered and has_service else AGREED, number)


@lru_cache(maxsize=1_024)
def show(names: tuple[str, ...], rank: int, type_: int) -> Shown:
    """What clients see of a message to these groups. Hot: once for each block."""
    word, marks, pattern = bits.SERVICE_BITS[rank], LITTLE, ""
    targets = [name for name in names if not name.startswith(PREFIX)]
    if len(targets) < len(names):
        flavour = next(name for name in names if name.startswith(PREFIX))
        word, marks, pattern = _read(flavour, word)
    if pattern:
        shown = [targets[at] if 0 <= (at := ord(char) - _FIRST) < len(targets) else "" for char in pattern]
    else:
        shown = [name for name in targets if len(name.encode()) <= MAX_GROUP]
    return Shown(word, bits.make_hint(type_, marks), tuple([name.encode()[:MAX_GROUP] for name in shown]))


def _target(group: bytes) -> str:
    """The group that a client names; empty where it can be none."""
    text = group_text(group)
    return "" if text.startswith(PREFIX) or len(group) > MAX_GROUP_NAME else text


def _read(flavour: str, usual: int) -> tuple[int, int, str]:
    """Type word, marker bits and pattern; as of a plain message where somebody else has made the name up."""
    word, _, rest = flavour.removeprefix(PREFIX).partition(".")
    marks, _, pattern = rest.partition(".")
    try:
        type_ = int(word, 16)
    except ValueError:
        return usual, LITTLE, ""
    if marks not in ("0", "1", "2", "3") or not 0 < type_ < 1 << 31 or type_ & (bits.DAEMONS_OWN | bits.COMMANDS):
        return usual, LITTLE, ""
    return type_ & ~bits.ENDIAN, int(marks), pattern
