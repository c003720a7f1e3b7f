"""Answers to what members ask: blocks and sequence numbers for a NAK, HELD for what is sent again."""

from __future__ import annotations

from ordercast.engine import Outbox
from ordercast.orderers.logged.ring import RingState
from ordercast.parts.log import runs_of
from ordercast.parts.repairs import Repairs
from ordercast.view import Address
from ordercast.wire.header import Kind
from ordercast.wire.ordering import Acks, Lead, Missing, encode_accept, encode_held


def send_repairs(
    ring: RingState, repairs: Repairs, to: Address, missing: list[Missing], out: Outbox
) -> list[tuple[int, int, int]]:
    """Send the blocks that somebody lacks; the assignments (sequence number, origin, number) that go with them."""
    blocks, assignments = repairs.answer(missing)
    for origin, number, block, first, stop in blocks:
        ring.count("repairs")
        out.sends.append(ring.writer.repair(to, origin, number, block, first, stop))
    return assignments


def send_assignments(
    ring: RingState, to: Address, lead: Lead, assignments: list[tuple[int, int, int]], out: Outbox
) -> None:
    out.sends.append(ring.writer.control(to, Kind.ACCEPT, encode_accept(lead, runs_of(assignments))))


def known_lead(ring: RingState, safe: int, active: int = 0) -> Lead:
    """How far the log is as this member knows it."""
    log = ring.log
    return Lead(log.received, log.stable, min(safe, log.received), active)


def send_held(ring: RingState, to: int, acks: Acks, origin: int, upto: int, out: Outbox) -> None:
    """To a sender that sends again what waits here to be ordered: we have its blocks below `upto`."""
    member = ring.view.member(to)
    if member is not None:
        out.sends.append(ring.writer.control(member.address, Kind.HELD, encode_held(acks, [(origin, upto)])))
