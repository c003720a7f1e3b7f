"""The handles of groups on regions that somebody has asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ordercast.groups.regions.port import RegionPort


class RegionHandles:
    """By name and by number, and what their applications wait for."""

    __slots__ = ("_news", "by_number", "feeding", "is_fed", "is_refused", "is_still", "ports", "waiting")

    def __init__(self) -> None:
        self.ports: dict[str, RegionPort] = {}  # by name
        self.by_number: dict[int, RegionPort] = {}
        self.is_fed = False  # the base port receives all groups
        self.waiting: dict[RegionPort, None] = {}  # ports whose tasks wait for room
        self.is_refused = False  # something did not fit since a pass has last moved anything
        self.is_still = False  # the node has stopped: what was received can be taken, and no view is told
        self.feeding: dict[RegionPort, None] = {}  # ports whose applications have a feed
        self._news: dict[RegionPort, None] = {}

    def note(self, port: RegionPort) -> None:
        """Something happened to a port."""
        self._news[port] = None

    def take_news(self) -> list[RegionPort]:
        news, self._news = self._news, {}
        return list(news)

    def has_moved(self) -> None:
        """There may be room again."""
        self.is_refused = False
        for port in self.waiting:
            self._news[port] = None

    def number(self, name: str, number: int) -> None:
        """This node has come into a group."""
        port = self.ports.get(name)
        if port is not None:
            self.by_number[number] = port
            port.changed()

    def pop(self, name: str) -> RegionPort | None:
        """The handle of a group that has been left."""
        port = self.ports.pop(name, None)
        if port is not None:
            self.by_number = {number: each for number, each in self.by_number.items() if each is not port}
            self.feeding.pop(port, None)
        return port
