"""A daemon whose clients are behind keeps the token while urgent messages are about (SITES section 5)."""

from __future__ import annotations

import pytest

from ordercast.config import MAX_BLOCK, MS, SECOND, Timing
from ordercast.daemon.lagging import LAG_BYTES, MEASURE_NS, Lags
from ordercast.engine import NEVER
from ordercast.groups.queue import SMALL_SHARE
from ordercast.orderers.sites.brake import (
    ABOUT_NS,
    BURST_BYTES,
    KEEP_NS,
    LOOK_NS,
    SWIFT_BYTES,
    SWIFT_NS,
    Brake,
)
from ordercast.orderers.sites.ring import RingTerms, SiteRing
from ordercast.orderers.sites.urgency import HOLD_NS
from ordercast.wire.header import Kind

NOW = 7 * SECOND
LIMIT = 8 << 20


def braking() -> Brake:
    """A daemon with a client that is behind, while urgent messages are about."""
    brake = Brake()
    brake.hear(NOW)
    brake.is_behind = True
    return brake


def test_without_urgent_messages_nothing_is_kept_and_bursts_are_as_usual() -> None:
    brake = Brake()
    brake.is_behind = True
    brake.stamped(NOW, 10 * BURST_BYTES)
    assert not brake.is_on(NOW)
    assert not brake.keeps_token(NOW, is_alone=False)
    assert brake.burst(NOW, 10 * BURST_BYTES) == 10 * BURST_BYTES
    assert brake.deadline_ns() == NEVER


def test_without_clients_that_are_behind_bursts_are_short_and_nothing_is_kept() -> None:
    brake = Brake()
    brake.hear(NOW)
    assert not brake.is_on(NOW)
    assert not brake.keeps_token(NOW, is_alone=False)
    assert brake.burst(NOW, 10 * BURST_BYTES) == BURST_BYTES
    assert brake.burst(NOW, 1_000) == 1_000


def test_the_token_is_kept_from_look_to_look_and_not_for_longer_than_a_visit_may_be() -> None:
    brake = braking()
    assert brake.is_on(NOW)
    assert brake.keeps_token(NOW, is_alone=False)
    assert brake.deadline_ns() == NOW + LOOK_NS
    assert brake.keeps_token(NOW + KEEP_NS - 1, is_alone=False)
    assert brake.deadline_ns() == NOW + KEEP_NS
    for later_ns in (NOW + KEEP_NS, NOW + KEEP_NS + 1):
        assert not brake.is_on(later_ns)
        assert not brake.keeps_token(later_ns, is_alone=False), "until the visit has ended"
        assert brake.deadline_ns() == NEVER
    brake.passed()
    assert brake.keeps_token(NOW + 2 * KEEP_NS, is_alone=False)


def test_it_goes_on_as_soon_as_clients_have_caught_up_or_urgent_messages_are_long_ago() -> None:
    brake = braking()
    assert brake.is_on(NOW)
    brake.is_behind = False
    assert not brake.is_on(NOW + 1)
    brake.is_behind = True
    assert brake.is_on(NOW + ABOUT_NS - 1)
    assert not brake.is_on(NOW + ABOUT_NS)


def test_one_pass_stamps_one_burst() -> None:
    brake = Brake()
    brake.hear(NOW)
    brake.stamped(NOW, BURST_BYTES - 1)
    assert not brake.is_on(NOW)
    brake.stamped(NOW, 1)
    assert brake.is_on(NOW)
    assert not brake.is_on(NOW + 1)
    brake.stamped(NOW + 1, 1)
    assert not brake.is_on(NOW + 1)


def test_a_visit_soon_after_the_last_one_stamps_less() -> None:
    brake = Brake()
    brake.hear(NOW)
    brake.stamped(NOW, 1)
    assert brake.burst(NOW, BURST_BYTES) == BURST_BYTES, "it is the first one, until it ends"
    soon_ns = NOW + SWIFT_NS - 1
    assert brake.burst(soon_ns, BURST_BYTES) == SWIFT_BYTES
    brake.stamped(soon_ns, SWIFT_BYTES - 1)
    assert brake.burst(soon_ns, BURST_BYTES) == SWIFT_BYTES
    assert not brake.is_on(soon_ns)
    brake.stamped(soon_ns, 1)
    assert brake.is_on(soon_ns)
    assert brake.burst(soon_ns + SWIFT_NS - 1, BURST_BYTES) == SWIFT_BYTES


def test_where_turns_of_the_token_take_long_a_visit_stamps_as_much_as_before() -> None:
    brake = Brake()
    brake.hear(NOW)
    for at in range(3):
        now_ns = NOW + at * SWIFT_NS
        assert brake.burst(now_ns, BURST_BYTES) == BURST_BYTES
        brake.stamped(now_ns, SWIFT_BYTES)
        assert not brake.is_on(now_ns)


def test_visits_are_short_only_while_urgent_messages_are_about() -> None:
    brake = Brake()
    brake.stamped(NOW, BURST_BYTES)
    assert brake.burst(NOW + 1, BURST_BYTES) == BURST_BYTES
    brake.hear(NOW + 1)
    assert brake.burst(NOW + 1, BURST_BYTES) == SWIFT_BYTES


def test_the_rest_of_a_short_visit_takes_a_block_of_whoever_is_next() -> None:
    """Otherwise only those who send little would have it, and after them the same session again."""
    assert SWIFT_BYTES % MAX_BLOCK * SMALL_SHARE >= MAX_BLOCK
    assert BURST_BYTES % MAX_BLOCK * SMALL_SHARE >= MAX_BLOCK


def test_a_daemon_that_is_alone_has_a_visit_in_each_pass_and_asks_for_the_next_one() -> None:
    brake = braking()
    assert brake.keeps_token(NOW, is_alone=True)
    later_ns = NOW + KEEP_NS
    assert not brake.is_on(later_ns)
    brake.stamped(later_ns, BURST_BYTES)
    assert brake.keeps_token(later_ns, is_alone=True), "its next visit has begun"
    brake.is_behind = False
    assert not brake.keeps_token(later_ns, is_alone=True)
    assert brake.deadline_ns() == later_ns + 1


def test_a_look_that_is_due_is_not_due_for_ever() -> None:
    """Where the view has ended meanwhile, nothing looks."""
    brake = braking()
    brake.keeps_token(NOW, is_alone=False)
    brake.hold.wait(NOW, 0)
    brake.expire(NOW + LOOK_NS)
    assert brake.deadline_ns() == NOW + HOLD_NS
    brake.expire(NOW + HOLD_NS)
    assert brake.deadline_ns() == NEVER


def test_a_ring_keeps_the_token_and_answers_meanwhile() -> None:
    ring = SiteRing(1, (1, 2), RingTerms(), Timing())
    ring.want()
    assert ring.step(NOW, keeps_token=True) == ([], [])
    ring.on_wake(2, 0)
    assert ring.step(NOW + 1, keeps_token=True) == ([], [])
    assert ring.is_holding
    assert [control.kind for control in ring.step(NOW + 2).controls] == [Kind.SITE_TOKEN]
    assert not ring.is_holding


# Which sessions are behind.


class Engine:
    """What it was told."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def lag(self, is_behind: bool) -> None:
        self.told.append(is_behind)


def behind(patience_ns: int = SECOND, *, is_blocking: bool = False) -> Lags:
    lags = Lags(LIMIT, patience_ns, is_blocking)
    lags.note(NOW, "one", LAG_BYTES + 1, 0)
    return lags


def test_a_session_is_behind_while_more_waits_for_it_than_may() -> None:
    lags = Lags(LIMIT, SECOND, False)
    lags.note(NOW, "one", LAG_BYTES, 0)
    assert not lags.is_behind
    lags.note(NOW, "one", LAG_BYTES + 1, 0)
    lags.note(NOW, "two", LAG_BYTES + 1, 0)
    lags.note(NOW + 1, "one", LAG_BYTES, 0)
    assert lags.is_behind
    lags.forget("two")
    assert not lags.is_behind


def test_a_small_limit_makes_the_lag_small() -> None:
    lags = Lags(16_000, SECOND, False)
    lags.note(NOW, "one", 1_001, 0)
    assert lags.is_behind


@pytest.mark.parametrize(("taken", "is_behind"), [(0, False), (LIMIT // 2 - 1, False), (LIMIT // 2, True)])
def test_a_session_that_would_be_disconnected_for_its_pace_is_not_waited_for(taken: int, is_behind: bool) -> None:
    lags = behind()
    lags.note(NOW + MEASURE_NS - 1, "one", 2 * LAG_BYTES, 0)
    assert lags.is_behind, "it is not known yet"
    lags.note(NOW + SECOND // 2, "one", 2 * LAG_BYTES, taken)
    assert lags.is_behind == is_behind
    lags.note(NOW + SECOND, "one", 2 * LAG_BYTES, taken + LIMIT // 2)
    assert lags.is_behind, "its last half second counts"


def test_without_patience_nobody_is_waited_for_and_with_blocking_everybody() -> None:
    assert not behind(0).is_behind
    lags = behind(0, is_blocking=True)
    lags.note(NOW + 10 * SECOND, "one", 2 * LAG_BYTES, 0)
    assert lags.is_behind


def test_the_engine_is_told_of_changes_only() -> None:
    engine, lags = Engine(), behind()
    for at in range(3):
        lags.note(NOW + at * MS, "one", 2 * LAG_BYTES, 0)
        lags.tell(engine)  # type: ignore[arg-type]
    lags.tell(None)
    lags.forget("one")
    lags.tell(engine)  # type: ignore[arg-type]
    assert engine.told == [True, False]
