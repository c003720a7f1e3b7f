"""Who of a site stamps while its links are behind (SITES section 5: strict, with a floor of a fifth for the rest)."""

from __future__ import annotations

from ordercast.orderers.sites.urgency import DEBT, MIN_CREDIT, SiteCredit, Urgency, credit_of
from ordercast.wire.sites import MAX_CREDIT

BLOCK = 1_000


def behind(index: int = 0, daemons: int = 3) -> Urgency:
    """A daemon whose token says that only urgent blocks are stamped."""
    urgency = Urgency(index, daemons)
    urgency.take(SiteCredit(0, 100 * BLOCK))
    return urgency


def test_where_no_link_is_behind_everything_is_stamped() -> None:
    urgency = Urgency(0, 3)
    assert urgency.may_stamp(0)
    assert urgency.may_stamp(15)
    assert urgency.passed() == SiteCredit()


def test_a_link_takes_a_part_of_its_rate_and_more_of_what_is_urgent() -> None:
    assert credit_of(0, 1_000_000) == (50_000, 150_000)
    assert credit_of(60_000, 1_000_000) == (-10_000, 90_000)
    assert credit_of(0, 1_000) == (MIN_CREDIT, 2 * MIN_CREDIT)
    assert credit_of(0, 1 << 50) == (MAX_CREDIT, MAX_CREDIT)


def test_only_urgent_blocks_are_stamped_while_the_links_are_behind() -> None:
    urgency = behind()
    assert not urgency.may_stamp(0)
    assert urgency.may_stamp(1)
    urgency.stamped(1, 100 * BLOCK)
    assert not urgency.may_stamp(15), "they have a bound, too"


def test_what_is_stamped_goes_on_with_the_token() -> None:
    urgency = Urgency(0, 3)
    urgency.take(SiteCredit(10 * BLOCK, 20 * BLOCK))
    urgency.stamped(0, 4 * BLOCK)
    assert urgency.passed() == SiteCredit(6 * BLOCK, 16 * BLOCK)


def test_that_blocks_wait_is_known_for_one_rotation() -> None:
    first, others = behind(0), [behind(1), behind(2)]
    first.hold()
    credit = first.passed()
    assert credit.rest == 3
    for other in others:
        other.take(credit)
        credit = other.passed()
    assert credit.rest == 1
    last = behind(1)
    last.take(credit)
    last.stamped(1, DEBT)
    assert not last.may_stamp(1), "others wait, and have not had their turn"
    credit = last.passed()
    assert (credit.rest, credit.owed) == (0, DEBT)
    last.take(credit)
    assert last.may_stamp(1), "nobody waits any more, and nobody saves up"


def test_the_rest_gets_a_fifth_of_the_bytes_while_urgent_blocks_never_end() -> None:
    sent = {0: 0, 5: 0}
    usual, urgent = behind(0, 2), behind(1, 2)
    credit = SiteCredit(0, 100 * BLOCK)
    for _ in range(2_000):
        for urgency, priority in ((usual, 0), (urgent, 5)):
            urgency.take(credit)
            urgency.measure(0, 10 * BLOCK)
            while urgency.may_stamp(priority):
                urgency.stamped(priority, BLOCK)
                sent[priority] += BLOCK
            if not priority:
                urgency.hold()
            credit = urgency.passed()
    assert 0.19 < sent[0] / (sent[0] + sent[5]) < 0.22


def test_blocks_that_had_room_anyway_give_urgent_ones_no_credit() -> None:
    urgency = Urgency(0, 2)
    urgency.stamped(0, 1_000_000)
    assert urgency.passed().owed == 0


def test_daemons_with_usual_blocks_take_turns_however_much_the_first_one_has() -> None:
    sent = [0, 0, 0]
    daemons = [behind(index) for index in range(3)]
    credit = SiteCredit()
    for turn in range(90):
        for index, urgency in enumerate(daemons):
            urgency.take(credit)
            if not index:
                urgency.measure(BLOCK if turn % 3 else 0, 10 * BLOCK)  # the representative: one block now and then
            while urgency.may_stamp(0):
                urgency.stamped(0, BLOCK)
                sent[index] += 1
            urgency.hold()
            credit = urgency.passed()
    assert min(sent) >= 18, sent


def test_a_daemon_that_waits_no_longer_gives_its_turn_back() -> None:
    urgency = behind(1)
    urgency.hold()
    credit = urgency.passed()
    assert credit.turn == 2
    other = behind(2)
    other.take(credit._replace(usual=BLOCK))
    assert not other.may_stamp(0)
    urgency.take(credit)
    other.take(urgency.passed()._replace(usual=BLOCK))
    assert other.may_stamp(0)
    other.take(SiteCredit(BLOCK, BLOCK, 0, 0, 9))
    assert other.may_stamp(0), "there is no such daemon"
