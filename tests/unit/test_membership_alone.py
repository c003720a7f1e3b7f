"""What a member does that was put out of its group, and finds nobody when it comes back: `join(alone=...)`."""

from __future__ import annotations

import pytest
from tests.unit.quorums import local_member, member_of

from ordercast.config import AlonePolicy, GroupConfig, Timing
from ordercast.engine import NEVER, Outbox
from ordercast.membership.policy import Newcomer
from ordercast.membership.quorum.joining import Joining
from ordercast.membership.quorum.local import Wishes
from ordercast.membership.quorum.waiting import join_waits
from ordercast.view import group_tag
from ordercast.wire.views import Ring
from ordercast.wire.writer import DatagramWriter

TIMING = Timing()
LONG = 200  # questions: many times those of a newcomer


def looking(alone: AlonePolicy, *, is_return: bool = True, create: bool | None = None) -> Joining:
    me = member_of("x")
    local = local_member(me, DatagramWriter(group_tag("g"), me.id, 1_400), TIMING)
    joining = Joining(local, Wishes(create=create, alone=alone), Newcomer(0, {}), is_return)
    joining.start(0, Outbox())
    return joining


def ask_in_vain(joining: Joining) -> int:
    """How many questions it asks until it has an end of its own, at most LONG."""
    for questions in range(LONG):
        if joining.deadline_ns() == NEVER:
            return questions
        joining.expire(joining.deadline_ns(), Outbox())
    return LONG


@pytest.mark.parametrize("create", [None, False, True])
def test_it_makes_the_group_anew_after_a_newcomers_search(create: bool | None) -> None:
    joining = looking("create", create=create)
    assert ask_in_vain(joining) <= TIMING.find_tries + 1
    assert joining.must_create
    assert not joining.refusal


def test_it_waits_without_end_if_it_is_told_to() -> None:
    joining = looking("wait")
    assert ask_in_vain(joining) == LONG
    assert not joining.must_create


def test_it_leaves_if_it_is_told_to() -> None:
    joining = looking("leave")
    assert ask_in_vain(joining) <= TIMING.find_tries + 1
    assert joining.refusal == "no member of 'g' answers any more"


@pytest.mark.parametrize("alone", ["create", "leave"])
def test_a_group_that_stands_still_is_waited_for(alone: AlonePolicy) -> None:
    joining = looking(alone)
    frozen = Ring("g", 3, 1, "a/0", 3, False, member_of("a"), GroupConfig("token"))
    for _ in range(LONG):
        joining.expire(joining.deadline_ns(), Outbox())
        joining.on_ring(joining.deadline_ns(), member_of("a").address, frozen, Outbox())
    assert not joining.must_create
    assert not joining.refusal


def test_a_newcomer_does_as_it_was_told_to_join() -> None:
    joining = looking("leave", is_return=False)
    ask_in_vain(joining)
    assert joining.must_create


def test_a_member_of_a_group_that_stood_still_is_not_named_any_more_once_it_is_silent() -> None:
    joining, frozen = looking("wait"), Ring("g", 3, 1, "a/0", 3, False, member_of("a"), GroupConfig("token"))
    joining.on_ring(0, member_of("a").address, frozen, Outbox())
    joining.expire(joining.deadline_ns(), Outbox())
    assert join_waits("g", joining).waiting_for == ("a/0",)
    assert ask_in_vain(joining) == LONG
    waiting = join_waits("g", joining)
    assert (waiting.waiting_for, waiting.text) == ((), "no member answers as a member of 'g'")
