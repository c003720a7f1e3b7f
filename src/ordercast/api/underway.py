"""Groups that a session joins, or leaves, together: how far that has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ordercast.errors import NotMember
from ordercast.groups.events import Left
from ordercast.view import View


class Opened(Protocol):
    """One of them."""

    @property
    def group(self) -> str: ...

    @property
    def view(self) -> View | None: ...

    @property
    def gone(self) -> Left | None: ...


class PortsUnderway:
    """Groups that are being joined, or left, together."""

    __slots__ = ("_are_leaving", "_done", "_ports")

    def __init__(self, ports: Sequence[Opened], are_leaving: bool) -> None:
        self._ports = ports
        self._are_leaving = are_leaving
        self._done = 0  # the first of them are: they come to their end in their order, so that each is looked at once

    @property
    def is_over(self) -> bool:
        ports, are_leaving = self._ports, self._are_leaving
        while self._done < len(ports):
            port = ports[self._done]
            if port.gone is None and (are_leaving or port.view is None):
                return False
            self._done += 1
        return True

    def check(self) -> None:
        """Raise where a group has been left before it was joined."""
        for port in self._ports:
            if port.gone is not None and not self._are_leaving:
                raise NotMember(f"{port.group!r} was left before it was joined: {port.gone.text}")
