"""Locks of lightweight groups: those of all groups stand in the views of the underlay, named by number of the group.

Ports learn of them with views of their own. The underlay knows which node holds a lock; which of the node's sessions
does, the node knows itself: all its ports of a group have one account of its locks (`groups/locks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ordercast.groups.group_views import locks_of
from ordercast.groups.locks import Locks
from ordercast.groups.queued import NOBODY
from ordercast.view import RECOVERIES, Reason, View

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port


class SharedLocks:
    """The locks of one node, in all groups of a shared underlay."""

    __slots__ = ("_accounts", "_channel", "_of_view", "unlocking")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._accounts: dict[str, Locks] = {}  # of groups whose locks a session here has used
        self._of_view: dict[str, int] = {}  # of all groups, as of the last view
        self.unlocking: dict[str, None] = {}  # locks that are to be given back: their ports have ended

    def of_group(self, group: str) -> Locks:
        """What the sessions of this node want and hold in a group."""
        return self._accounts.setdefault(group, Locks(self._channel.me.id))

    def on_view(self, now_ns: int, view: View, shown: set[Port]) -> None:
        """The groups have been told of the underlay's view: now they are of its locks."""
        before, self._of_view = self._of_view, view.locks
        show_locks(now_ns, self._channel, before, view, shown)
        for lock in self._own:
            if not self._channel.reception.ports_of(group_of_lock(lock)):
                self.unlocking[lock] = None  # it was asked for by a port that has ended

    def on_departed(self) -> None:
        self._of_view = {}
        self.unlocking = {}

    def give_back(self, now_ns: int) -> None:
        unlocking, self.unlocking = self.unlocking, {}
        for lock in unlocking:
            self._channel.engine.unlock(now_ns, lock, self._channel.out)

    def detach(self, port: Port) -> None:
        """The port has ended: what it held is given back. With the last port of the group everything is."""
        prefix = f"{port.number}:"
        account = self._accounts.get(port.group)
        held = account.leave(port) if account is not None else []
        if self._channel.reception.ports_of(port.number):
            self.unlocking.update({prefix + key: None for key in held})
            return
        self.unlocking.update({lock: None for lock in self._own if lock.startswith(prefix)})
        if not any(port.group in stream.ports for stream in self._channel.streams):
            self._accounts.pop(port.group, None)

    def write_leave(self, now_ns: int, port: Port) -> None:
        """The port leaves its group, and what it holds there is given back with that."""
        account, prefix = self._accounts.get(port.group), f"{port.number}:"
        for lock in self._own:
            key = lock.removeprefix(prefix)
            owner = account.owner(key) if account is not None else None
            if lock.startswith(prefix) and (owner is port or (owner is None and not port.stream.label)):
                port.stream.rows.group_unlock(now_ns, port.group, key)

    @property
    def _own(self) -> list[str]:
        return [lock for lock, holder in self._of_view.items() if holder == self._channel.me.id]


def show_locks(now_ns: int, channel: Channel, before: Mapping[str, int], view: View, shown: set[Port]) -> None:
    """A view of the underlay may give or take locks, and a recovery may have lost requests for them. `before`: the
    locks of the last view; `shown`: ports that have a view of their own by this one already."""
    for number in dict.fromkeys([group_of_lock(lock) for lock, _ in sorted(before.items() ^ view.locks.items())]):
        for port in channel.reception.ports_of(number):
            if port.view is None or port in shown:
                continue
            lock = view.lock.removeprefix(f"{number}:") if view.lock.startswith(f"{number}:") else ""
            locks, tokens = locks_of(number, view.locks), locks_of(number, view.tokens)
            shown_view = replace(port.view, locks=locks, tokens=tokens, reason=view.reason, lock=lock)
            port.on_view(shown_view, now_ns)
            port.tell(port.view)
            shown.add(port)
    if view.reason in RECOVERIES:
        for port in channel.talkers:
            if port.view is not None and port.number >= 0 and port not in shown:
                port.on_view(replace(port.view, reason=view.reason, lock=""), now_ns)
    elif view.reason == Reason.JOIN:
        # What was denied because there were too few members is asked for again.
        for port in channel.talkers:
            if port.view is not None and port.number >= 0 and port not in shown:
                port.on_view(port.view, now_ns)


def group_of_lock(lock: str) -> int:
    """The number of a lock's group. A peer may have made it up."""
    number = lock.partition(":")[0]
    return int(number) if number.isascii() and number.isdecimal() else NOBODY
