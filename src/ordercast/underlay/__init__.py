"""Membership and one orderer behind one Engine (docs/design/overview.md sections 1 and 5)."""

from ordercast.underlay.underlay import Underlay

__all__ = ["Underlay"]
