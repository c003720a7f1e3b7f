"""Epochs on their way to the engine: in order, each after the answers to the requests that it contains."""

from __future__ import annotations

from typing import Final

from ordercast.membership.epochs import EpochNews
from ordercast.orderers.regions.given import GivenEpoch

MAX_NEWS: Final = 256  # epochs that wait for others; of more the last ones go, and are asked for again


class EpochQueue:
    __slots__ = ("_given", "_mine", "_news", "_ready", "_sizes", "epoch")

    def __init__(self) -> None:
        self.epoch = 0  # the last that was handed on
        self._news: dict[int, EpochNews] = {}  # that have come and cannot be handed on yet
        self._ready: list[EpochNews] = []
        self._given: list[EpochNews] = []  # taken, and not installed yet
        self._mine = 0
        self._sizes: dict[int, tuple[int, int]] = {}  # region -> its view, members

    @property
    def is_alone(self) -> bool:
        """Whether no other node watches this one, as far as it has been told."""
        region = self._sizes.get(self._mine)
        return region is None or region[1] < 2

    @property
    def has_waiting(self) -> bool:
        return bool(self._news)

    def add(self, news: EpochNews) -> None:
        if news.epoch.number > self.epoch:
            self._news[news.epoch.number] = news
            if len(self._news) > MAX_NEWS:
                del self._news[max(self._news)]

    def advance(self, service: int, answered: int) -> bool:
        """Hand on what follows; whether something has come that an epoch before it is missing for."""
        is_behind = False
        for number in sorted(self._news):
            news = self._news[number]
            is_next = news.epoch.is_whole or 0 < self.epoch >= news.since
            if number > self.epoch and not (is_next and news.request <= answered):
                is_behind |= not is_next
                continue
            del self._news[number]
            if number > self.epoch and news.epoch.service == service:
                self._hand_on(news)
        return is_behind

    def take(self) -> list[GivenEpoch]:
        ready, self._ready = self._ready, []
        self._given += ready
        return [news.epoch for news in ready]

    def installed(self, number: int) -> list[EpochNews]:
        """Those that the engine had taken and has installed now."""
        done = [news for news in self._given if news.epoch.number <= number]
        del self._given[: len(done)]
        return done

    def clear(self) -> None:
        self.epoch = self._mine = 0
        self._news.clear()
        self._ready.clear()
        self._given.clear()
        self._sizes.clear()

    def _hand_on(self, news: EpochNews) -> None:
        epoch = news.epoch
        self.epoch = epoch.number
        self._ready.append(news)
        self._mine = epoch.mine
        ended = set(epoch.ended)
        if epoch.is_whole:
            self._sizes.clear()
        for region in [region for region, (view, _) in self._sizes.items() if view in ended]:
            del self._sizes[region]
        for view in epoch.views:
            if view.view not in ended:
                self._sizes[view.region] = (view.view, len(view.members))
