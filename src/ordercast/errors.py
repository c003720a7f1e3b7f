"""The three families of errors: a caller's, ours, and a peer's.

A caller's mistake raises at the call and says what to do. A broken invariant of our own stops the node loudly.
A peer's fault never leaves the engine: `WireError` is caught where datagrams are decoded, counted and dropped.
"""

from __future__ import annotations


class OrdercastError(Exception):
    """Base of everything that this package raises on purpose."""


class UsageError(OrdercastError, ValueError):
    """The caller asked for something that cannot be: the text says what to do instead."""


class UnsupportedService(UsageError):
    """The group's orderer cannot give the service asked for; it is never weakened silently."""


class MessageTooLarge(UsageError):
    """The message exceeds the group's `max_message`, which was set when the group was created."""


class OutOfDescriptors(OrdercastError, OSError):
    """The process, or the system, has no file descriptor left for a socket: the text says what to do."""


class JoinRefused(OrdercastError):
    """The group exists (or does not) in a way that the join's parameters exclude; the text says which."""


class GroupFailed(OrdercastError):
    """A member failed and the group waits for `reset()` (recovery="manual"), or recovery found too few members."""


class NotEnoughMembers(GroupFailed):
    """`reset(min_members=…)` could not gather that many members of the old view; the group stays failed."""


class OutcomeUnknown(OrdercastError):
    """This member was excluded before it saw its message delivered: others may or may not deliver it."""


class CallTimeout(OrdercastError, TimeoutError):
    """Nobody answered a call in time. It may or may not have been carried out: the text says how far it got."""


class LockDenied(OrdercastError):
    """The group has denied a lock that was asked for with timeout=0. `holder` is the member that holds it."""

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(text)
        self.holder = holder
        """Its holder as name/life; empty where the group holds as many locks as there may be."""


class Unhandled(OrdercastError):
    """A member's call was delivered where nobody holds its handler: nobody will answer."""


class NotMember(OrdercastError):
    """The call needs membership, and this handle has left, was excluded for good, or has been closed."""


class InvariantViolation(OrdercastError, AssertionError):
    """Our own bug. It stops the node, because going on could break the order that others rely on."""


class WireError(OrdercastError):
    """Bytes of a peer that do not parse. Internal: counted and dropped by the underlay, never raised to callers."""
