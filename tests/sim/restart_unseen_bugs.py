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
)
