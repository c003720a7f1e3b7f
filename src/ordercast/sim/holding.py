"""What a simulated application does with locks and handlers: it wants one, waits, keeps it for a while, gives it back.

The holder of a handler answers the calls that name it, at once, late or never (`LockUse.answer_ns`): those that come
with the group's events, and those that are handed over again. An answer names the call that it answers, so that the
caller can tell whether it got its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ordercast.config import MS
from ordercast.errors import GroupFailed, NotMember
from ordercast.groups.events import Request
from ordercast.groups.locks import LockRequest
from ordercast.groups.requests import PendingReply
from ordercast.sim.scenario import LockUse

if TYPE_CHECKING:
    from ordercast.sim.member import SimMember

HANDLER_LOCKS: Final = tuple(str(number) for number in range(6))
ANSWER_AGAIN_NS: Final = 20 * MS  # a full queue is tried again after this


def answer_to(sender: str, number: int) -> bytes:
    """The answer to call `number` of `sender`, the same from every member."""
    return f"answer to {sender} #{number}".encode()


class Holding:
    """The locks of one application, through one life of its node."""

    __slots__ = ("_answer_ns", "_member", "_owed", "_uses", "answered", "granted")

    def __init__(self, member: SimMember) -> None:
        self._member = member
        self._uses: dict[LockRequest, LockUse] = {}  # wanted or held
        self._owed: dict[int, PendingReply] = {}  # id() -> an answer that is planned
        self._answer_ns: dict[int, int] = {}  # handler -> how long its answers take here
        # what it saw, over all lives
        self.granted = 0
        self.answered = 0

    def begin(self) -> None:
        """A new life knows nothing of the locks of the last."""
        self._uses = {}
        self._owed = {}

    def want(self, use: LockUse) -> None:
        """Ask for a lock, where the node is in the group or on its way in."""
        member, port = self._member, self._member.port
        if not member.node.is_up or not member.is_wanted or port is None:
            return
        try:
            port.check_locks()
        except (NotMember, GroupFailed):
            return
        if use.lock in HANDLER_LOCKS:
            self._answer_ns[int(use.lock)] = use.answer_ns
            claim = port.serve(int(use.lock))
        else:
            claim = port.lock(use.lock)
        self._uses[claim] = use
        member.touch()

    def turn(self) -> None:
        """After every pass: what was granted, lost or asked."""
        member, port = self._member, self._member.port
        if port is None:
            return
        settled = port.locks.take_settled(port)
        for claim in settled:
            use = self._uses.get(claim)
            if use is None:
                continue
            if claim.is_held:
                self.granted += 1
                member.after(use.hold_ns, self._release, claim)
            else:
                del self._uses[claim]  # lost with a view, or the group is no longer there to give it
        for claim in self._uses:
            if claim.is_held and claim.inbox is not None:
                while (found := claim.inbox.take()) is not None:
                    self._plan(*found)

    def on_request(self, request: Request) -> None:
        """A call came with the group's events. If it is ours to answer, it is in an inbox or only here."""
        if isinstance(request.owed, PendingReply):
            self._plan(request.owed, request)

    def unrest(self) -> list[str]:
        texts = [
            f"it {'holds' if claim.is_held else 'waits for'} lock {use.lock!r}" for claim, use in self._uses.items()
        ]
        return [*texts, f"{len(self._owed)} answers are planned"] if self._owed else texts

    def _release(self, claim: LockRequest) -> None:
        port = self._member.port
        if self._uses.pop(claim, None) is None or port is None:
            return
        port.locks.give_up(claim)
        self._member.touch()

    def _plan(self, owed: PendingReply, request: Request) -> None:
        if id(owed) in self._owed or owed.answer is not None:
            return
        answer_ns = self._answer_ns.get(-1 if request.handler is None else request.handler, 0)
        if answer_ns >= 0:
            self._owed[id(owed)] = owed
            self._member.after(answer_ns, self._answer, owed)

    def _answer(self, owed: PendingReply) -> None:
        port = self._member.port
        if id(owed) not in self._owed or port is None:
            return
        try:
            is_taken = owed.answer is not None or port.answer(owed, answer_to(owed.sender, owed.first))
        except NotMember:
            del self._owed[id(owed)]
            return
        if not is_taken:
            self._member.after(ANSWER_AGAIN_NS, self._answer, owed)
            return
        self.answered += 1
        del self._owed[id(owed)]
        self._member.touch()
