"""Which sessions are behind with receiving, and are worth waiting for (`orderers/sites/brake.py`).

Others wait for no session that they would not wait for anyway (`Limits`): one that takes less than its limit within the
patience would be disconnected with more to receive, and is not waited for. Without patience nobody is.
"""

from __future__ import annotations

from typing import Final

from ordercast.config import MS
from ordercast.groups.engines import InterestPort

LAG_BYTES: Final = 512 << 10
"""What waits for a session that is not behind: at its daemon, in its socket, and at the client. Less would let clients
run dry, which tell what they have consumed in steps of 256 KiB."""

LAG_SHARE: Final = 16
"""But no more than this part of what may wait for it."""

MEASURE_NS: Final = 500 * MS
"""Over how long it is measured what a session takes. On a busy machine a client may not run for a tenth of a second."""


class SessionPace:
    """What a session that is behind takes."""

    __slots__ = ("is_fair", "since_ns", "taken_from")

    def __init__(self, now_ns: int, taken_bytes: int) -> None:
        self.since_ns = now_ns
        self.taken_from = taken_bytes
        self.is_fair = True  # until it is known better


class Lags:
    """Of all sessions of a daemon."""

    __slots__ = ("_is_blocking", "_is_told", "_lag_bytes", "_paces", "_patience_ns", "_session_bytes")

    def __init__(self, session_bytes: int, patience_ns: int, is_blocking: bool) -> None:
        """As in `Limits`."""
        self._session_bytes = session_bytes
        self._patience_ns = patience_ns
        self._is_blocking = is_blocking
        self._lag_bytes = min(LAG_BYTES, session_bytes // LAG_SHARE)
        self._paces: dict[object, SessionPace] = {}  # sessions that are behind
        self._is_told = False  # as the engine has been told last

    @property
    def is_behind(self) -> bool:
        """Whether a session is behind that is worth waiting for."""
        for pace in self._paces.values():  # noqa: SIM110 - a generator costs more than the look
            if pace.is_fair:
                return True
        return False

    def note(self, now_ns: int, session: object, lag_bytes: int, taken_bytes: int) -> None:
        """So much waits for a session, and so much has it received in its life. Hot: once for each of its turns."""
        pace = self._paces.get(session)
        if lag_bytes <= self._lag_bytes:
            if pace is not None:
                del self._paces[session]
        elif pace is None:
            if self._is_blocking or self._patience_ns:
                self._paces[session] = SessionPace(now_ns, taken_bytes)
        elif now_ns - pace.since_ns >= MEASURE_NS:
            taken = taken_bytes - pace.taken_from
            is_swift = taken * self._patience_ns >= self._session_bytes * (now_ns - pace.since_ns)
            pace.is_fair = self._is_blocking or is_swift
            pace.since_ns, pace.taken_from = now_ns, taken_bytes

    def forget(self, session: object) -> None:
        self._paces.pop(session, None)

    def tell(self, engine: InterestPort | None) -> None:
        """Tell the engine what has changed. None: it has no priorities."""
        if engine is not None and self.is_behind != self._is_told:
            self._is_told = not self._is_told
            engine.lag(self._is_told)
