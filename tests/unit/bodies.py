"""What holds for every body of a datagram that has no open end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ordercast.errors import WireError


def check_body(decode: Callable[[bytes], Any], made: bytes, value: object) -> None:
    """It is read as it was written, and neither a shorter one nor a longer one is."""
    assert decode(made) == value
    for size in range(len(made)):
        with pytest.raises(WireError):
            decode(made[:size])
    with pytest.raises(WireError):
        decode(made + b"\0")
