"""The step that the paper TOMPA omits: on a decision the clock becomes at least the number of the final timestamp.

Clocks 14, 15 and 16. Host 2 sends m', host 1 sends m. Host 3 receives m', proposing 17.3, then m, 18.3. Host 1 has m
alone; its decision is 18.3, and host 1 delivers it at once. Only then m' reaches host 1. Without the rule host 1
proposes 16.1, m' is decided 17.3, and hosts 2 and 3, where m' still waits before m, deliver m' first.
"""

from __future__ import annotations

import pytest
from tests.paper.tompa import WITHOUT_THE_RULE, Host, Site, ack_of, decision_of, hosts_with_clocks
from tests.sim.planting import planted

from ordercast.orderers.timestamp.queue import Key, Stamp

HOSTS = (1, 2, 3)
CLOCKS = (14, 15, 16)


def run_sites(anticipate: bool) -> tuple[Stamp, list[list[Key]]]:
    """The case on queues and votes: what m' is decided, and what hosts 1, 2 and 3 deliver."""
    one, two, three = [Site(me, HOSTS, clock, anticipate=anticipate) for me, clock in zip(HOSTS, CLOCKS, strict=True)]
    m, late = (1, 0), (2, 0)
    two.collect(late, 2, two.receive(late))
    late_of_three = three.receive(late)
    assert (late_of_three.number, 3) == (17, 3)
    for host, site in ((1, one), (2, two), (3, three)):
        one.collect(m, host, site.receive(m))
    ((decided, vectors),) = one.decisions()
    assert decided.stamp == (18, 3)
    for site in (one, two, three):
        site.hear(decided, vectors)
    assert one.delivered == [m], "nothing else waits at host 1"
    assert two.delivered == three.delivered == [], "m' waits before it"
    two.collect(late, 3, late_of_three)
    two.collect(late, 1, one.receive(late))
    ((decided, vectors),) = two.decisions()
    for site in (one, two, three):
        site.hear(decided, vectors)
    return decided.stamp, [site.delivered for site in (one, two, three)]


def run_orderers(hosts: dict[int, Host]) -> tuple[Stamp, list[list[Key]]]:
    """The same on whole orderers."""
    one, two, three = hosts.values()
    (late,) = two.send(b"m'")
    late_of_three = ack_of(three.hear(late), (2, 0))
    assert late_of_three.stamps.acks[0].numbers == (17,)
    (m,) = one.send(b"m")
    acks = [ack_of(host.hear(m), (1, m.number)) for host in (two, three)]
    word, decided = decision_of([word for ack in acks for word in one.hear(ack)])
    assert decided.stamp == (18, 3)
    for host in (two, three):
        host.hear(word)
    assert one.delivered == [(1, m.number)]
    assert two.delivered == three.delivered == []
    two.hear(late_of_three)
    word, decided = decision_of(two.hear(ack_of(one.hear(late), (2, 0))))
    for host in (one, three):
        host.hear(word)
    found = [[(origin, 0) for origin, _ in host.delivered] for host in hosts.values()]
    return decided.stamp, found


@pytest.mark.parametrize("anticipate", [False, True])
def test_a_late_message_is_decided_behind_what_was_delivered_without_it(anticipate: bool) -> None:
    """Section 3.2.3.2 with local_ts <- max(local_ts, number of tsmi_ts)."""
    stamp, delivered = run_sites(anticipate)
    assert stamp == (19, 1), "host 1 has delivered 18.3, and proposes more"
    assert delivered == [[(1, 0), (2, 0)]] * 3
    assert run_orderers(hosts_with_clocks(*CLOCKS, anticipate=anticipate)) == (stamp, delivered)


@pytest.mark.parametrize("anticipate", [False, True])
def test_without_the_rule_hosts_deliver_in_two_orders(anticipate: bool) -> None:
    """Section 3.2.3.2 as it is printed."""
    hosts = hosts_with_clocks(*CLOCKS, anticipate=anticipate)  # decisions set these clocks: the rule goes afterwards
    with planted(WITHOUT_THE_RULE):
        stamp, delivered = run_sites(anticipate)
        assert run_orderers(hosts) == (stamp, delivered)
    assert stamp == (17, 3), "below what host 1 has delivered"
    assert delivered == [[(1, 0), (2, 0)], [(2, 0), (1, 0)], [(2, 0), (1, 0)]]
