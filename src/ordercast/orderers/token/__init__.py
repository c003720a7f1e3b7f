"""RMP's rotating token (docs/design/token.md)."""

from ordercast.orderers.token.token import Token

__all__ = ["Token"]
