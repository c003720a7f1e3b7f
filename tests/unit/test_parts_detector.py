"""The failure detector: silence, what is usual, and own stalls (docs/design/detector.md)."""

from __future__ import annotations

from ordercast.config import MS, SECOND, Timing
from ordercast.engine import NEVER
from ordercast.parts.detector import STALL_NS, Detector

TIMING = Timing()
PASS_NS = 50 * MS


def watching(*peers: int, is_busy: bool = True) -> Detector:
    """A detector that has had its first pass at 0."""
    detector = Detector(TIMING)
    detector.watch(list(peers), 0)
    detector.work(is_busy, 0)
    return detector


def pass_time(detector: Detector, first_ns: int, stop_ns: int) -> None:
    """Passes without a word from anybody, as often as a node has them."""
    for now_ns in range(first_ns, stop_ns, PASS_NS):
        detector.work(detector.is_busy, now_ns)


def test_silence_is_suspicious_sooner_while_work_is_outstanding() -> None:
    detector = Detector(TIMING)
    detector.watch([1, 2], 0)
    assert detector.heartbeat_ns == TIMING.heartbeat_rest_ns
    assert detector.deadline_ns() == TIMING.suspect_rest_ns
    detector.work(True, 0)
    assert detector.heartbeat_ns == TIMING.heartbeat_busy_ns
    for now_ns in range(0, SECOND + 1, PASS_NS):
        detector.work(True, now_ns)
        detector.heard(1, now_ns)
    pass_time(detector, SECOND, TIMING.suspect_busy_ns)
    assert detector.suspects(TIMING.suspect_busy_ns - 1) == []
    assert detector.suspects(TIMING.suspect_busy_ns) == [2]
    pass_time(detector, TIMING.suspect_busy_ns, SECOND + TIMING.suspect_busy_ns)
    assert detector.suspects(SECOND + TIMING.suspect_busy_ns) == [1, 2]


def test_nobody_is_blamed_for_having_been_idle() -> None:
    detector = Detector(TIMING)
    detector.watch([1], 0)
    detector.work(True, 4 * SECOND)
    assert detector.suspects(4 * SECOND) == []
    assert detector.deadline_ns() == 5 * SECOND, "at rest it would have been then"
    detector.heard(1, 4 * SECOND)
    assert detector.deadline_ns() == 4 * SECOND + TIMING.suspect_busy_ns


def test_only_who_is_watched_is_suspected_and_who_is_new_has_just_been_heard() -> None:
    detector = Detector(TIMING)
    detector.watch([1], 0)
    detector.heard(9, 0)
    detector.watch([1, 2], 3 * SECOND)
    assert detector.suspects(5 * SECOND) == [1]
    pass_time(detector, 5 * SECOND, 8 * SECOND)
    assert detector.suspects(8 * SECOND) == [1, 2]
    detector.watch([], 8 * SECOND)
    assert detector.suspects(NEVER) == []
    assert detector.deadline_ns() == NEVER


def test_a_peer_is_missing_at_half_of_the_silence_that_is_suspicious_at_rest() -> None:
    detector = Detector(TIMING)
    assert not detector.is_missing(10 * SECOND)
    detector.watch([1, 2], 0)
    detector.heard(1, SECOND)
    half_ns = TIMING.suspect_rest_ns // 2
    assert not detector.is_missing(half_ns - 1)
    assert detector.is_missing(half_ns)
    detector.heard(2, half_ns)
    assert not detector.is_missing(half_ns)


def test_the_time_by_which_our_own_pass_is_late_is_nobodys_silence() -> None:
    detector = watching(1)
    pass_time(detector, 0, 500 * MS + 1)
    # We stand still until 3 s. What others said meanwhile may still lie in our sockets.
    assert detector.suspects(3 * SECOND) == []
    assert detector.stalls == 1
    pass_time(detector, 3 * SECOND, 3_700 * MS)
    assert detector.suspects(3_690 * MS) == []
    assert detector.suspects(3_700 * MS) == [1], "0.5 s before the stall, a heartbeat in it, and 0.7 s after it"


def test_a_pass_that_the_scheduler_delays_a_little_is_no_stall() -> None:
    detector = watching(1)
    detector.work(True, TIMING.heartbeat_busy_ns + STALL_NS)
    assert detector.stalls == 0


def test_a_member_with_regular_heartbeats_is_suspected_at_the_lower_bound() -> None:
    detector = watching(1)
    for beat in range(1, 50):
        detector.work(True, beat * 100 * MS)
        detector.heard(1, beat * 100 * MS)
    assert detector.patience_ns(1) == TIMING.suspect_busy_ns


def test_a_member_with_irregular_heartbeats_gets_more_time_up_to_the_upper_bound() -> None:
    detector = watching(1)
    now_ns = 0
    for pause_ns in (100 * MS, 900 * MS) * 10:
        pass_time(detector, now_ns, now_ns + pause_ns)
        now_ns += pause_ns
        detector.heard(1, now_ns)
    assert TIMING.suspect_busy_ns < detector.patience_ns(1) <= TIMING.suspect_max_ns
    for pause_ns in (100 * MS, 1_200 * MS) * 20:
        pass_time(detector, now_ns, now_ns + pause_ns)
        now_ns += pause_ns
        detector.heard(1, now_ns)
    assert detector.patience_ns(1) == TIMING.suspect_max_ns


def test_pauses_at_rest_and_own_stalls_teach_nothing() -> None:
    detector = watching(1, is_busy=False)
    for second in range(1, 20):
        detector.work(False, second * SECOND)
        detector.heard(1, second * SECOND)
    detector.work(True, 20 * SECOND)
    detector.heard(1, 24 * SECOND)
    assert detector.patience_ns(1) == TIMING.suspect_busy_ns


def test_two_missing_heartbeats_at_rest_are_overdue() -> None:
    detector = watching(1, is_busy=False)
    assert not detector.is_overdue(2 * TIMING.heartbeat_rest_ns - 1)
    assert detector.is_overdue(2 * TIMING.heartbeat_rest_ns)
    detector.work(True, SECOND)
    assert not detector.is_overdue(10 * SECOND), "work is watched by its own clock"


def test_a_pause_that_was_an_accident_is_not_usual() -> None:
    """Where datagrams are lost a peer that speaks often seems silent at times; it is probed as soon as others."""
    detector = watching(1)
    detector.heard(1, 80 * MS)
    assert detector.usual_ns(1) >= 80 * MS, "it may always be so slow"
    for now_ns in range(80 * MS, 180 * MS, MS):
        detector.heard(1, now_ns)
    assert detector.usual_ns(1) >= 80 * MS, "it has not spoken for long"
    for now_ns in range(180 * MS, 600 * MS, MS):
        detector.heard(1, now_ns)
    assert detector.usual_ns(1) == 0
    detector.heard(1, 700 * MS)
    assert detector.usual_ns(1) >= 80 * MS


def test_a_peer_that_speaks_seldom_is_not_overdue_before_its_usual_pause_is_over() -> None:
    detector = watching(1)
    for now_ns in range(0, 2 * SECOND, 90 * MS):
        detector.work(True, now_ns)
        detector.heard(1, now_ns)
    assert detector.usual_ns(1) >= 90 * MS
