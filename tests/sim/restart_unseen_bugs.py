"""Mutations of restarts that no random run objects to any more, each with the reason."""

from __future__ import annotations

from typing import Final

from tests.sim.bug import Bug

RESTART_UNSEEN: Final[tuple[Bug, ...]] = (
    Bug(
        "a restarted member does not believe that its last view is decided",
        "Returning._on_later",
        "is_news = (view.seq, is_decided) > (kept.view.seq, kept.is_decided)",
        "is_news = view.seq > kept.view.seq",
        "Latency only where the one that says so stays: it has a vote as well, and is asked for it. Otherwise rare: it "
        "must be gone within milliseconds. tests/unit/test_membership_returning.py catches it.",
        0,
        "sequencer",
        "endurance",
    ),
    Bug(
        "a member that was let go before it crashed does not tell others the view that let it go",
        "FormerVote.on_control",
        "self._say(source, Kind.WELCOME, welcome, ring, out)",
        "pass",
        "Latency only: it gives its vote as well. Without both they wait forever, which a seed shows. "
        "tests/unit/test_membership_returning.py catches it.",
        0,
        "sequencer",
        "endurance",
    ),
    Bug(
        "a member that left before it crashed is silent where others wait for its vote",
        "FormerVote.on_control",
        "self._say_returned(source, out)",
        "pass",
        "Latency only where it is asked for its view, and tells that. Rare otherwise: members with a log must wait for "
        "it. tests/unit/test_membership_returning.py catches it.",
        0,
        "sequencer",
        "endurance",
    ),
)
