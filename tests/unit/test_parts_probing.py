"""Probes, and the reports that come back (docs/design/detector.md)."""

from __future__ import annotations

import random

from tests.unit.quorums import A, B, D, member_of, view_of

from ordercast.config import LAN_DATAGRAM, MS, SECOND, Timing
from ordercast.engine import NEVER, Outbox, Send
from ordercast.parts.detector import Detector
from ordercast.parts.probing import EXPECTED_PROBES, NONCE, Probing
from ordercast.view import View
from ordercast.wire.header import HEADER_BYTES, Kind
from ordercast.wire.writer import DatagramWriter

TIMING = Timing()
PROBE_NS = TIMING.probe_ns


class Prober:
    """Member a of a busy ring, with its clock at 0."""

    def __init__(self, names: str = "abcd", is_busy: bool = True) -> None:
        self.view: View = view_of(names)
        self.writer = DatagramWriter(7, A, LAN_DATAGRAM)
        self.writer.ring = self.view.ring
        self.counters: dict[str, int] = {}
        self.probing = Probing(self.writer, TIMING, random.Random(1), self.counters)
        self.detector = Detector(TIMING)
        self.detector.watch([member.id for member in self.view.members if member.id != A], 0)
        self.detector.work(is_busy, 0)

    def look(self, now_ns: int) -> list[Send]:
        out = Outbox()
        self.probing.look(now_ns, self.detector, self.view, out)
        return out.sends

    def report(self, now_ns: int, name: str, quoted: bytes) -> tuple[int, list[Send]]:
        out = Outbox()
        address = member_of(name).address
        gone = self.probing.on_report(now_ns, address, quoted, self.detector, out)
        return gone, out.sends

    @property
    def strange(self) -> int:
        return self.counters.get("strange_reports", 0)


def bytes_of(send: Send) -> bytes:
    return b"".join(send.buffers)


def names_of(sends: list[Send]) -> set[str]:
    return {name for name in "abcdefg" for send in sends if send.to == member_of(name).address}


def test_a_silent_neighbour_is_probed_after_a_while_and_not_before() -> None:
    a = Prober()
    assert a.look(PROBE_NS - 1) == []
    (probe,) = a.look(PROBE_NS)
    assert (probe.to, probe.buffers[0][1]) == (member_of("b").address, Kind.PROBE)
    assert len(bytes_of(probe)) == HEADER_BYTES + NONCE.size
    assert a.look(PROBE_NS + 1) == [], "not again so soon"
    assert names_of(a.look(2 * PROBE_NS)) == {"b"}


def test_a_member_that_speaks_is_not_probed_and_the_longest_silent_one_is() -> None:
    a = Prober()
    for member in (B, D):
        a.detector.heard(member, PROBE_NS)
    assert names_of(a.look(PROBE_NS + 1)) == {"c"}
    assert a.probing.due_ns == 2 * PROBE_NS + 1


def test_silence_counts_from_the_moment_that_work_began() -> None:
    a = Prober(is_busy=False)
    assert a.look(SECOND) == []
    assert a.probing.due_ns == NEVER
    a.detector.work(True, SECOND)
    assert a.look(SECOND + 1) == []
    assert a.probing.due_ns == SECOND + PROBE_NS


def test_at_rest_only_missing_heartbeats_lead_to_a_probe() -> None:
    a = Prober(is_busy=False)
    overdue_ns = 2 * TIMING.heartbeat_rest_ns + PROBE_NS
    assert a.look(overdue_ns - 1) == []
    assert names_of(a.look(overdue_ns)) == {"b"}
    assert a.probing.due_ns == NEVER


def test_two_reports_of_two_probes_make_a_member_gone() -> None:
    a = Prober()
    (first,) = a.look(PROBE_NS)
    gone, sends = a.report(PROBE_NS + MS, "b", bytes_of(first))
    assert not gone
    (second,) = sends
    assert bytes_of(second) != bytes_of(first)
    assert a.report(PROBE_NS + 2 * MS, "b", bytes_of(second)) == (B, [])
    assert a.probing.is_gone(B)
    assert a.report(PROBE_NS + 3 * MS, "b", bytes_of(second)) == (0, []), "that is known by now"


def test_the_same_report_twice_confirms_nothing() -> None:
    a = Prober()
    (first,) = a.look(PROBE_NS)
    a.report(PROBE_NS + MS, "b", bytes_of(first))
    assert a.report(PROBE_NS + 2 * MS, "b", bytes_of(first)) == (0, [])
    assert not a.probing.is_gone(B)


def test_a_word_between_two_reports_makes_the_second_one_the_first() -> None:
    a = Prober()
    (first,) = a.look(PROBE_NS)
    _, (second,) = a.report(PROBE_NS + MS, "b", bytes_of(first))
    a.detector.heard(B, PROBE_NS + 2 * MS)
    gone, sends = a.report(PROBE_NS + 3 * MS, "b", bytes_of(second))
    assert not gone
    assert names_of(sends) == {"b"}


def test_a_word_in_a_recovery_makes_a_member_alive_again() -> None:
    a = Prober()
    (first,) = a.look(PROBE_NS)
    _, (second,) = a.report(PROBE_NS + MS, "b", bytes_of(first))
    a.report(PROBE_NS + 2 * MS, "b", bytes_of(second))
    a.probing.heard(B)
    assert not a.probing.is_gone(B)


def test_a_report_without_the_nonce_of_a_probe_is_counted_and_dropped() -> None:
    a = Prober()
    (probe,) = a.look(PROBE_NS)
    real = bytes_of(probe)
    forged = real[:HEADER_BYTES] + bytes(NONCE.size)
    for quoted in (forged, real[: HEADER_BYTES + 4], real[:20], b""):
        assert a.report(PROBE_NS + MS, "b", quoted) == (0, [])
        assert a.report(PROBE_NS + MS, "b", quoted) == (0, [])
    assert a.strange == 8
    assert a.report(PROBE_NS + MS, "c", real) == (0, []), "c was not probed"
    assert a.strange == 9
    assert not a.probing.is_gone(B)


def test_a_report_of_another_ring_or_group_is_dropped() -> None:
    a = Prober()
    (probe,) = a.look(PROBE_NS)
    a.writer.ring += 1
    assert a.report(PROBE_NS + MS, "b", bytes_of(probe)) == (0, [])
    assert a.strange == 1


def test_a_report_about_another_datagram_than_a_probe_is_dropped() -> None:
    a = Prober()
    a.look(PROBE_NS)
    data = bytes_of(a.writer.control(member_of("b").address, Kind.ACK, bytes(NONCE.size)))
    assert a.report(PROBE_NS + MS, "b", data) == (0, [])
    assert a.strange == 1


def test_members_that_a_recovery_waits_for_are_probed_a_few_times() -> None:
    a = Prober()
    a.probing.expect(0, [member_of("c"), member_of("d")])
    probed = []
    while a.probing.due_ns < NEVER:
        out, now_ns = Outbox(), a.probing.due_ns
        a.probing.look_for_expected(now_ns, out)
        probed.append(names_of(out.sends))
    assert probed == [{"c", "d"}] * EXPECTED_PROBES


def test_a_new_ring_knows_nothing_of_the_old_one() -> None:
    a = Prober()
    (first,) = a.look(PROBE_NS)
    _, (second,) = a.report(PROBE_NS + MS, "b", bytes_of(first))
    a.report(PROBE_NS + 2 * MS, "b", bytes_of(second))
    a.probing.begin()
    assert not a.probing.is_gone(B)
    assert a.probing.due_ns == NEVER
    assert a.report(PROBE_NS + 3 * MS, "b", bytes_of(second)) == (0, [])
