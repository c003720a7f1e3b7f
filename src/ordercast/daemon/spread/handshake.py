"""How a client of Spread connects: hello, authentication, accept or reject. Section 3 of the reference.

Sans-I/O: bytes go in, split anyhow, and bytes to send come out, one reply for one write (section 1, rule 7). Whether a
private name is free is the caller's knowledge: the handshake stops at `NAMING` and goes on with `assign` or `reject`.
After a reject the caller closes the connection (rule 6).

Deviations: split input is put together, where Spread's daemons need single segments; an incomplete name is refused
as illegal when the time is over or the client has closed, as Spread does with a length that does not fit.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

from ordercast.daemon.spread.access import CHOICE_BYTES, AuthRules
from ordercast.daemon.spread.names import MAX_PRIVATE_NAME, is_legal

ANNOUNCED: Final = (5, 0, 1)
"""The version that the daemon claims. Clients demand at least 3.8."""

LEAST_VERSION: Final = 30_100  # 3.1
LAST_SHORT: Final = 31_400  # up to 3.14 a hello has no patch byte
PATCHED: Final = 31_500  # from 3.15 on an accept has it, too
AUTHENTICATED: Final = 31_600  # from 3.16 on clients authenticate
VIEW_SETS: Final = 40_000  # from 4.0 on membership bodies have several vs_sets

ACCEPTED_BYTE: Final = 1


class Reject(IntEnum):
    """What a client is told that does not get in: one signed byte (section 3.5)."""

    QUOTA = -3
    NO_NAME = -4
    ILLEGAL_NAME = -5
    NOT_UNIQUE = -6
    VERSION = -7
    AUTH = -9

    @property
    def byte(self) -> bytes:
        return self.to_bytes(1, "big", signed=True)


class ShakePhase(Enum):
    """How far the handshake has come."""

    HELLO = auto()
    NAMING = auto()  # the caller decides on the name
    CHOICE = auto()  # of authentication methods
    ACCEPTED = auto()
    REJECTED = auto()  # the connection is to be closed


class SpreadHello(NamedTuple):
    """What a client says first."""

    version: int  # major * 10000 + minor * 100 + patch
    wants_membership: bool
    has_priority: bool
    name: bytes  # empty: the daemon invents one

    @property
    def has_view_sets(self) -> bool:
        """Whether its library reads the membership bodies of 4.x; before 4.0 they were simpler (section 6.7)."""
        return self.version >= VIEW_SETS


class Handshake:
    """One connection up to its accept."""

    __slots__ = ("_announced", "_auth", "_buffer", "_is_address_admitted", "hello", "phase", "private_group", "reason")

    def __init__(self, auth: AuthRules, is_address_admitted: bool, announced: tuple[int, int, int] = ANNOUNCED) -> None:
        """`is_address_admitted`: what the method IP says of the client's address."""
        self._auth = auth
        self._is_address_admitted = is_address_admitted
        self._announced = announced
        self._buffer = b""
        self.phase = ShakePhase.HELLO
        self.hello: SpreadHello | None = None
        self.private_group = b""
        self.reason = ""  # why it was rejected, for the log

    def receive(self, data: bytes) -> bytes:
        """Bytes of the client; what to send. In `NAMING` and afterwards they are only kept: ask the caller."""
        if self.phase is ShakePhase.REJECTED:
            return b""
        self._buffer += data
        if self.phase is ShakePhase.HELLO:
            return self._read_hello()
        return self._read_choice() if self.phase is ShakePhase.CHOICE else b""

    def take_rest(self) -> bytes:
        """What the client sent behind its handshake: the beginning of its messages."""
        rest, self._buffer = self._buffer, b""
        return rest

    def assign(self, private_group: bytes) -> bytes:
        """The name is free, and this is the client's private group; what to send."""
        self.private_group = private_group
        if self.hello is not None and self.hello.version < AUTHENTICATED:
            if not self._auth.admits_old(self._is_address_admitted):
                return self.reject(Reject.AUTH, "its address or its old library is not admitted")
            return self._accept()
        methods = "".join([f"{method} " for method in self._auth.offered]).encode()
        if not methods:
            return b"\0" + self.reject(Reject.AUTH, "no authentication method is allowed")
        self.phase = ShakePhase.CHOICE
        return bytes((len(methods),)) + methods + self._read_choice()

    def reject(self, code: Reject, reason: str) -> bytes:
        """Refuse the client; what to send before the connection is closed."""
        self.phase = ShakePhase.REJECTED
        self.reason = reason
        self._buffer = b""
        return code.byte

    def end(self) -> bytes:
        """The client has closed its side, or its time is over; what to send before the connection is closed."""
        phase, buffer = self.phase, self._buffer
        if phase in (ShakePhase.ACCEPTED, ShakePhase.REJECTED):
            return b""
        if phase is ShakePhase.CHOICE:
            return self.reject(Reject.AUTH, f"its choice of methods has {len(buffer)} bytes instead of {CHOICE_BYTES}")
        if phase is ShakePhase.HELLO and _hello_head(buffer) > 0:
            return self.reject(Reject.ILLEGAL_NAME, "its private name is shorter than it said")
        self.phase = ShakePhase.REJECTED
        self.reason = "it did not say hello"
        self._buffer = b""
        return b""

    # In detail.

    def _read_hello(self) -> bytes:
        buffer = self._buffer
        if len(buffer) < 2:
            return b""
        version = _signed(buffer[0]) * 10_000 + _signed(buffer[1]) * 100
        if version < LEAST_VERSION:
            return self.reject(Reject.VERSION, f"its library is older than 3.1: {buffer[0]}.{buffer[1]}")
        head = _hello_head(buffer)
        if not head:
            return b""
        if head > 4:
            version += buffer[2]
        flags, length = _signed(buffer[head - 2]), buffer[head - 1]
        if length > MAX_PRIVATE_NAME:
            return self.reject(Reject.ILLEGAL_NAME, f"its private name has {length} bytes")
        name = buffer[head : head + length]
        if len(name) < length:
            return b""
        if name and not is_legal(name, MAX_PRIVATE_NAME):
            return self.reject(Reject.ILLEGAL_NAME, f"its private name has an illegal byte: {name!r}")
        self._buffer = buffer[head + length :]
        # A signed byte modulo 2, as C has it: with the highest bit set it is never 1.
        self.hello = SpreadHello(version, flags > 0 and flags % 2 == 1, flags // 16 > 0, name)
        self.phase = ShakePhase.NAMING
        return b""

    def _read_choice(self) -> bytes:
        if len(self._buffer) < CHOICE_BYTES:
            return b""
        choice, self._buffer = self._buffer[:CHOICE_BYTES], self._buffer[CHOICE_BYTES:]
        if not self._auth.admits(choice, self._is_address_admitted):
            return self.reject(Reject.AUTH, "its authentication was refused")
        return self._accept()

    def _accept(self) -> bytes:
        self.phase = ShakePhase.ACCEPTED
        has_patch = self.hello is not None and self.hello.version >= PATCHED
        version = self._announced if has_patch else self._announced[:2]
        return bytes((ACCEPTED_BYTE, *version, len(self.private_group))) + self.private_group


def _hello_head(buffer: bytes) -> int:
    """The bytes of a hello before its name; 0: they are not all there."""
    if len(buffer) < 2:
        return 0
    has_patch = buffer[0] * 10_000 + buffer[1] * 100 > LAST_SHORT
    head = 5 if has_patch else 4
    return head if len(buffer) >= head else 0


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
