"""What every part of the quorum membership knows of its own node."""

from __future__ import annotations

import random
from typing import NamedTuple

from ordercast.config import Timing
from ordercast.view import Member
from ordercast.wire.writer import DatagramWriter


class Local(NamedTuple):
    """This node in one underlay. `name` is the underlay's."""

    name: str
    me: Member
    writer: DatagramWriter
    timing: Timing
    rng: random.Random
