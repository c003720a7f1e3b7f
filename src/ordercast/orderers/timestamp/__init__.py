"""ISIS ABCAST, and TOMPA's anticipation (docs/design/timestamp.md)."""

from ordercast.orderers.timestamp.timestamp import Timestamp

__all__ = ["Timestamp"]
