"""A ring of two members for tests of the orderers' parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ordercast.config import LOOPBACK_DATAGRAM, GroupConfig, Timing
from ordercast.orderers.logged.ring import RingState
from ordercast.service import AGREED, Service
from ordercast.view import Member, View, node_id
from ordercast.wire.block import pack_run
from ordercast.wire.writer import DatagramWriter

A, B, C, D = [Member(node_id(name, 0), name, 0, (f"10.0.0.{at}", 7_000), 1 << 20) for at, name in enumerate("abcd", 1)]
RING: Final = 7
VIEW: Final = View(1, "a/0", RING, 0, 10, 0, (A, B), {A.id: 0, B.id: 0})


def ring_of(me: Member, view: View = VIEW, config: GroupConfig | None = None) -> RingState:
    """The ring as `me` has it when it begins."""
    config = config or GroupConfig(datagram=LOOPBACK_DATAGRAM)
    writer = DatagramWriter(1, me.id, config.datagram)
    writer.ring = view.ring
    return RingState(me, writer, config, Timing(), view, view.numbers.get(me.id, 0), view.counter, {})


def block_of(first: int, payloads: Sequence[bytes] = (b"x",), service: Service = AGREED) -> bytes:
    return pack_run(first, service, payloads)
