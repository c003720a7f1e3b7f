"""Calls of `expel` that are under way (docs/design/slow.md)."""

from __future__ import annotations

import asyncio
from typing import Final

from ordercast.api.seat import Seat
from ordercast.errors import GroupFailed, NotMember, OrdercastError, UsageError
from ordercast.view import Member, View

MAX_WHY: Final = 512
"""Bytes of text that say why a member is expelled."""


class PendingExpulsion:
    """One call. It ends with the view that is without the member, however it got out."""

    __slots__ = ("done", "member", "ring", "why")

    def __init__(self, member: int, why: str, ring: int, done: asyncio.Future[None]) -> None:
        self.member = member
        self.why = why
        self.ring = ring  # in which it was asked for: the next one knows nothing of it
        self.done = done


class Expelling:
    """The calls of one group."""

    __slots__ = ("_loop", "_pending", "_seat")

    def __init__(self, seat: Seat, loop: asyncio.AbstractEventLoop) -> None:
        self._seat = seat
        self._loop = loop
        self._pending: list[PendingExpulsion] = []

    async def expel(self, member: Member | str | int, why: str) -> None:
        seat = self._seat
        if seat.error is not None:
            raise seat.error
        seat.check_open()
        if not isinstance(why, str) or len(why.encode()) > MAX_WHY:
            raise UsageError(f"why is a text of at most {MAX_WHY} bytes, not {why!r:.60}")
        view = seat.view
        if view is None:
            raise NotMember(f"this node is not in {seat.group!r} now, and is on its way back: it can expel nobody")
        expelled = find_member(view, member, seat.group)
        if expelled.id == seat.member.id:
            raise UsageError(f"{expelled} is this node itself: call leave()")
        pending = PendingExpulsion(expelled.id, why, view.ring, self._loop.create_future())
        seat.expel(expelled.id, why)
        self._pending.append(pending)
        try:
            await pending.done
        finally:
            if pending in self._pending:
                self._pending.remove(pending)

    def follow(self) -> None:
        """The view, or what is wrong with the group, may be new."""
        seat, view = self._seat, self._seat.view
        for pending in self._pending:
            if pending.done.done():
                continue
            if seat.failure is not None:
                _fail(pending, GroupFailed(f"{seat.group!r} has failed before the member was out; call reset()"))
            elif view is not None and view.member(pending.member) is None:
                pending.done.set_result(None)
            elif view is not None and view.ring != pending.ring:
                pending.ring = view.ring
                seat.expel(pending.member, pending.why)

    def fail(self, error: OrdercastError) -> None:
        """This node is out, or has failed."""
        for pending in self._pending:
            _fail(pending, error)
        self._pending.clear()


def find_member(view: View, wanted: Member | str | int, group: str) -> Member:
    """The member of a view: by itself, by its name, by name/life, or by its id."""
    if isinstance(wanted, Member):
        found = [member for member in view.members if member.id == wanted.id]
    elif isinstance(wanted, str):
        found = [member for member in view.members if wanted in (member.name, str(member))]
    elif isinstance(wanted, int) and not isinstance(wanted, bool):
        found = [member for member in view.members if member.id == wanted]
    else:
        raise UsageError(f"a member is a Member, a name or an id, not {wanted!r}")
    if not found:
        raise UsageError(f"{wanted!s} is not in {group!r}; its members are {', '.join(map(str, view.members))}")
    if len(found) > 1:
        raise UsageError(f"{wanted!s} stands for {', '.join(map(str, found))}: name one of them")
    return found[0]


def _fail(pending: PendingExpulsion, error: OrdercastError) -> None:
    if not pending.done.done():
        pending.done.set_exception(error)
        pending.done.exception()  # seen, also where no task waits any more
