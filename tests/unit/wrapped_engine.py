"""A real engine inside a test's own object, which may answer some calls otherwise."""

from __future__ import annotations

from typing import Any

from ordercast.underlay import Underlay


class WrappedEngine:
    """Has an engine and passes everything on to it. Subclasses change what they are about.

    A subclass of the engine itself, or one whose methods are exchanged, would not survive a compiled core.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.engine = Underlay(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)
