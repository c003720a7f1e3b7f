"""Locks of a group, as one member wants and holds them (RMP sections 3.3 and 4.3).

Views name the holder of each lock. A member asks once; the answer is a view in which it holds the lock, or `Denied`.
After a denial it asks again when a view shows the lock free, or when a recovery may have lost its request. A claim that
tries once asks also where a view shows a holder, and the denial is its outcome. Several claims at one member are served
in turn. Deviation: between two of them the lock goes back to the group, so that one
member cannot keep it from the others by handing it round among its own tasks.

On a shared underlay the locks of a group are those of a node, and the sessions of the node that are in the group take
turns, as tasks do: each claim has an `owner`, which is the port of its session, and a port gets only its own back.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from ordercast.errors import LockDenied, OrdercastError
from ordercast.groups.requests import Inbox
from ordercast.view import RECOVERIES, View

EAGER_TRIES: Final = 3
"""How often a request that was denied although the lock looks free is repeated at once; then the next view decides.
A group in which all locks that there may be are held denies every one."""


class Stage(Enum):
    FREE = auto()  # nothing asked: wanted by nobody here, or held by somebody else
    ASKED = auto()
    HELD = auto()
    RELEASED = auto()  # given back; the view that shows it is still to come


class LockRequest:
    """Somebody here wants a lock, or holds it. `inbox`: what a handler's holder takes requests from.

    `tries_once`: the group's first answer is the outcome, also where it is a denial. `owner`: whose claim it is.
    """

    __slots__ = ("error", "inbox", "is_held", "key", "owner", "token", "tries_once", "waiter")

    def __init__(
        self, key: str, inbox: Inbox | None = None, tries_once: bool = False, owner: object | None = None
    ) -> None:
        self.key = key
        self.owner = owner
        self.inbox = inbox
        self.tries_once = tries_once
        self.is_held = False
        self.token = 0  # of the grant, once there was one
        self.error: OrdercastError | None = None
        self.waiter: Any = None  # the API's: a future


class Step(NamedTuple):
    """What the engine is to be told. `is_again`: the trace knows of it already."""

    key: str
    is_release: bool
    is_again: bool = False
    owner: object | None = None  # who releases it


class _Lock:
    __slots__ = ("claims", "owner", "stage", "vain")

    def __init__(self) -> None:
        self.owner: object | None = None  # to whom it was granted last
        # In the order in which they were made; the first holds it, or is next.
        self.claims: deque[LockRequest] = deque()
        self.stage = Stage.FREE
        self.vain = 0


class Locks:
    """What one port, or all ports of a node in one group, want and hold. `todo` is told to the engine with the next
    pass, what is settled to the API after it."""

    __slots__ = ("_inside", "_locks", "_me", "_tokens", "held_by", "settled", "todo")

    def __init__(self, me: int) -> None:
        self._me = me
        self._locks: dict[str, _Lock] = {}
        self.held_by: dict[str, int] = {}  # as of the last view
        self._tokens: dict[str, int] = {}  # the same
        self._inside: dict[object | None, None] = {}  # the owners that are in the group: others wait
        self.todo: list[Step] = []
        self.settled: list[LockRequest] = []

    # The application.

    def claim(
        self, key: str, inbox: Inbox | None = None, tries_once: bool = False, owner: object | None = None
    ) -> LockRequest:
        """Want a lock; `take_settled` gives the claim back when it is held, or cannot be."""
        claim = LockRequest(key, inbox, tries_once, owner)
        lock = self._locks.setdefault(key, _Lock())
        lock.claims.append(claim)
        if tries_once and lock.stage is Stage.HELD:
            self._deny(key, lock)  # by another task of this member, or another session
        else:
            self._ask(key, lock)
        return claim

    def give_up(self, claim: LockRequest) -> None:
        """Release what is held; want it no longer where it is not. A lock that was lost before is left alone."""
        lock = self._locks.get(claim.key)
        if lock is None or claim not in lock.claims:
            return
        lock.claims.remove(claim)
        if claim.is_held:
            claim.is_held = False
            lock.stage = Stage.RELEASED
            self.todo.append(Step(claim.key, True, owner=claim.owner))
        elif not lock.claims:
            asked = Step(claim.key, False)
            if lock.stage is Stage.ASKED and asked in self.todo:
                self.todo.remove(asked)
                lock.stage = Stage.FREE
            self._tidy(claim.key, lock)

    def holder(self, key: str) -> LockRequest | None:
        """The claim that holds the lock here."""
        lock = self._locks.get(key)
        return lock.claims[0] if lock is not None and lock.stage is Stage.HELD else None

    def owner(self, key: str) -> object | None:
        """Who holds the lock here, or has given it back and the group has not seen that yet."""
        lock = self._locks.get(key)
        return lock.owner if lock is not None else None

    def take_settled(self, owner: object | None = None) -> list[LockRequest]:
        """The claims of an owner that were granted, lost or denied since the last call."""
        if not self.settled:
            return []
        taken = [claim for claim in self.settled if claim.owner is owner]
        if taken:
            self.settled = [claim for claim in self.settled if claim.owner is not owner]
        return taken

    @property
    def is_waiting(self) -> bool:
        """Whether another member is to give something back, or the group to answer."""
        return any(lock.stage is not Stage.HELD for lock in self._locks.values())

    @property
    def is_asking(self) -> bool:
        """Whether the group has to answer."""
        return any(lock.stage in (Stage.ASKED, Stage.RELEASED) for lock in self._locks.values())

    def wanted(self) -> list[str]:
        """The locks that another member holds, and a task here waits for."""
        return [key for key, lock in self._locks.items() if lock.stage is Stage.FREE and lock.claims]

    def marks(self) -> tuple[object, ...]:
        """What is waited for: it changes when one of these requests has made progress."""
        held_by = self.held_by
        return tuple(
            [(key, lock.stage, held_by.get(key)) for key, lock in self._locks.items() if lock.stage is not Stage.HELD]
        )

    @property
    def is_at_rest(self) -> bool:
        """Nothing is asked, and nothing that could be asked is wanted."""
        return not self.todo and all(lock.stage in (Stage.FREE, Stage.HELD) for lock in self._locks.values())

    # The group.

    def on_view(self, view: View, owner: object | None = None) -> list[str]:
        """The locks that the view gives to this member, wanted or not. `owner` is in the group with it, if it was not
        before. Each owner is told of each view."""
        self._inside[owner] = None
        self.held_by = view.locks
        self._tokens = view.tokens
        is_reset = view.reason in RECOVERIES and next(iter(self._inside)) is owner  # once for all owners
        granted: list[str] = []
        for key, lock in list(self._locks.items()):
            is_mine = view.locks.get(key) == self._me
            if is_mine and lock.stage in (Stage.FREE, Stage.ASKED):
                granted.append(key)
                self._grant(key, lock)
            elif is_mine and lock.stage is Stage.RELEASED and is_reset:
                self.todo.append(Step(key, True, is_again=True))  # recovery may have lost it
            elif not is_mine:
                if lock.stage is Stage.HELD:
                    self._lose(lock)
                elif lock.stage is Stage.RELEASED or (lock.stage is Stage.ASKED and is_reset):
                    lock.stage = Stage.FREE
                    lock.vain = 0
                self._ask(key, lock)
                self._tidy(key, lock)
        for key, member in view.locks.items():
            if member == self._me and key not in self._locks:  # the task that asked for it has given up meanwhile
                granted.append(key)
                self._locks[key] = lock = _Lock()
                self._grant(key, lock)
        return granted

    def on_denied(self, key: str) -> None:
        lock = self._locks.get(key)
        if lock is None or lock.stage is not Stage.ASKED:
            return
        lock.stage = Stage.FREE
        lock.vain += 1
        self._deny(key, lock)
        if lock.vain < EAGER_TRIES:
            self._ask(key, lock)
        self._tidy(key, lock)

    def leave(self, owner: object | None) -> list[str]:
        """One session of several is out of the group: what it held is given back, and which locks that were. What it
        still wants it asks for when it is back."""
        self._inside.pop(owner, None)
        held: list[str] = []
        for key, lock in self._locks.items():
            if lock.stage is Stage.HELD and lock.claims[0].owner is owner:
                self._lose(lock)
                lock.stage = Stage.RELEASED
                held.append(key)
        return held

    def on_gone(self) -> None:
        """This node is out: what it held is lost. What it still wants it asks for when it is back."""
        self._inside.clear()
        self.held_by = {}
        self.todo.clear()
        for key, lock in list(self._locks.items()):
            if lock.stage is Stage.HELD:
                self._lose(lock)
            lock.stage = Stage.FREE
            self._tidy(key, lock)

    def fail(self, error: OrdercastError, owner: object | None = None) -> None:
        """The waits of an owner end with `error`; a lock that is held stays held."""
        for key, lock in list(self._locks.items()):
            for claim in [claim for claim in lock.claims if not claim.is_held and claim.owner is owner]:
                lock.claims.remove(claim)
                claim.error = error
                self.settled.append(claim)
            self._tidy(key, lock)

    # In detail.

    def _ask(self, key: str, lock: _Lock) -> None:
        if lock.stage is not Stage.FREE:
            return
        claims = [claim for claim in lock.claims if claim.owner in self._inside]
        if any(claim.tries_once for claim in claims) or (claims and key not in self.held_by):
            lock.stage = Stage.ASKED
            self.todo.append(Step(key, False))

    def _grant(self, key: str, lock: _Lock) -> None:
        lock.vain = 0
        claim = next((claim for claim in lock.claims if claim.owner in self._inside), None)
        if claim is not None:
            if claim is not lock.claims[0]:
                lock.claims.remove(claim)
                lock.claims.appendleft(claim)
            lock.stage = Stage.HELD
            lock.owner = claim.owner
            claim.is_held = True
            claim.token = self._tokens.get(key, 0)
            self.settled.append(claim)
            self._deny(key, lock)
        else:
            lock.stage = Stage.RELEASED
            self.todo.append(Step(key, True))

    def _deny(self, key: str, lock: _Lock) -> None:
        """The group has answered: claims that try once and are not held have their outcome."""
        for claim in [claim for claim in lock.claims if claim.tries_once and not claim.is_held]:
            lock.claims.remove(claim)
            claim.error = LockDenied(f"lock {key!r} is not free")  # the API says more: it knows names
            self.settled.append(claim)

    def _lose(self, lock: _Lock) -> None:
        lock.stage = Stage.FREE
        claim = lock.claims.popleft()
        claim.is_held = False
        self.settled.append(claim)

    def _tidy(self, key: str, lock: _Lock) -> None:
        if lock.stage is Stage.FREE and not lock.claims:
            del self._locks[key]
