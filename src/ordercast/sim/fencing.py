"""Fencing tokens as applications see them: the same at every member, and larger with every grant.

The trace has no column for them, so applications note what their views say. A member sees every view of its stay, so
that one grant after the other shows. A member that comes back begins anew: it may come into another chain of views.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ordercast.view import View


@dataclass(slots=True)
class TokensSeen:
    """What one application saw of locks and their tokens."""

    views: dict[str, dict[str, int]] = field(default_factory=dict)  # view id -> the tokens that it shows
    faults: list[str] = field(default_factory=list)
    _held: dict[str, tuple[int, int]] = field(default_factory=dict)  # lock -> holder and token
    _highest: int = -1  # of this stay
    _is_in: bool = False

    def on_view(self, member: str, view: View) -> None:
        held = {lock: (holder, view.tokens.get(lock, -1)) for lock, holder in view.locks.items()}
        for lock, (holder, token) in held.items():
            before = self._held.get(lock)
            if before is not None and before[0] == holder:
                if before[1] != token:
                    self.faults.append(f"{member} saw the token of lock {lock!r} change from {before[1]} to {token}")
            elif self._is_in and token <= self._highest:
                text = f"{member} saw lock {lock!r} granted in {view.id} with token {token} after {self._highest}"
                self.faults.append(text)
        self.views[view.id] = dict(view.tokens)
        self._held = held
        self._highest = max([self._highest, *(token for _, token in held.values())])
        self._is_in = True

    def on_left(self) -> None:
        """It is out of the group, or its life has ended."""
        self._held = {}
        self._highest = -1
        self._is_in = False


def broken_tokens(applications: Iterable[TokensSeen]) -> list[str]:
    """What is wrong with the tokens that applications saw."""
    texts: list[str] = []
    shown: dict[str, dict[str, int]] = {}
    for seen in applications:
        texts += seen.faults
        for view, tokens in seen.views.items():
            if shown.setdefault(view, tokens) != tokens:
                texts.append(f"view {view} shows tokens {tokens} here and {shown[view]} elsewhere")
    return [f"tokens: {text}" for text in texts]
