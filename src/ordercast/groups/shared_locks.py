"""Locks of lightweight groups: those of all groups stand in the views of the underlay, named by number of the group.

Ports learn of them with views of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ordercast.groups.group_views import locks_of
from ordercast.groups.queued import NOBODY
from ordercast.view import RECOVERIES, Reason, View

if TYPE_CHECKING:
    from ordercast.groups.channel import Channel
    from ordercast.groups.port import Port


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
            _tell(now_ns, port, shown_view)
            port.tell(port.view)
            shown.add(port)
    if view.reason in RECOVERIES:
        for port in channel.talkers:
            if port.view is not None and port.number >= 0 and port not in shown:
                _tell(now_ns, port, replace(port.view, reason=view.reason, lock=""))
    elif view.reason == Reason.JOIN:
        # What was denied because there were too few members is asked for again.
        for port in channel.talkers:
            if port.view is not None and port.number >= 0 and port not in shown:
                _tell(now_ns, port, port.view)


def group_of_lock(lock: str) -> int:
    """The number of a lock's group. A peer may have made it up."""
    number = lock.partition(":")[0]
    return int(number) if number.isascii() and number.isdecimal() else NOBODY


def _tell(now_ns: int, port: Port, view: View) -> None:
    for key in port.on_view(view):
        port.channel.rows.lock(now_ns, port.number, key)
