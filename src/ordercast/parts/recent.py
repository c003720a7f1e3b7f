"""Which of a sender's numbers were seen lately: at most once, in bounded memory."""

from __future__ import annotations

from typing import Final

RECENT: Final = 1_024  # numbers among which duplicates are noticed; what is older counts as seen


class Recent:
    """Numbers seen lately, as a mask below the highest: at most once, in bounded memory."""

    __slots__ = ("_highest", "_mask")

    def __init__(self) -> None:
        self._highest = -1
        self._mask = 0

    def is_new(self, number: int) -> bool:
        ahead = number - self._highest
        if ahead > 0:
            self._mask = (self._mask << ahead | 1) & ((1 << RECENT) - 1) if ahead < RECENT else 1
            self._highest = number
            return True
        if -ahead >= RECENT or self._mask >> -ahead & 1:
            return False
        self._mask |= 1 << -ahead
        return True
