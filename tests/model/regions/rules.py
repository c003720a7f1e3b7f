"""The rules of the region protocol, one switch for each sentence of docs/design/regions.md that was needed.

`MARKED` are those that the note marks (m): without any of them some run breaks what programs are promised. The rest is
QSM's own recovery, and two rules that only save work.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Rules:
    # Rounds
    seen_from_start: bool = True  # an entry that was made after the starter's visit yields no ack, purge or verdict
    complete_rounds: bool = True  # a token that did not come back has no consequences
    skip_excluded_only: bool = True  # a ring skips nodes that an epoch excluded, never suspects
    movers_stay: bool = True  # a node that moved stays in the ring of its old view
    original_partitions: bool = True  # partitions are those of the original list, whoever has been excluded
    excluded_starter: bool = True  # tokens of an excluded starter are dropped
    anybody_starts: bool = True  # without tokens any remaining member starts one
    # Keeping and repairing
    orphans: bool = True  # every member answers for blocks of a partition without living members
    keep_until_ack: bool = True  # every member keeps a block until ACK covers it
    help_cachers: bool = True  # holders outside of the partition push to its leader
    take_again: bool = True  # a cacher takes a block again that it has delivered and does not keep
    push: bool = True
    pull: bool = True
    naks: bool = True  # what a whole partition lacks is asked of the sender
    # Senders
    all_regions_at_once: bool = True  # an epoch is installed for all regions
    close: bool = True  # final counts are told, and a view is not forgotten before all are known
    repeat_tail: bool = True  # the last block is sent again while it is not acknowledged
    final_count: bool = True  # a dead sender's count is agreed on, and then its own datagrams are not taken any more
    # First in, first out
    open_names_all: bool = True  # OPEN names every earlier view of the sender, not those before this one alone
    open_raises_cutoff: bool = True  # and what it names is asked for
    lost_open_waits: bool = True  # OPEN itself lost: all own earlier views of the sender are finished first
    # Lost
    lost_counts_as_had: bool = True  # in all prefixes
    refuse: bool = True  # candidates are refused for a round before the verdict
    refusals_end: bool = True  # with the starter's next token, or a complete round after its exclusion
    kept_not_delivered: bool = True  # having delivered a block is not keeping it
    # What saves work
    delayed_cutoff: bool = True  # what came since the last round is not missing yet
    pull_after_ack: bool = True  # other partitions are asked for what they all have

    def without(self, *names: str) -> Rules:
        """The same rules without these."""
        return replace(self, **dict.fromkeys(names, False))


SWITCHES: Final = tuple(field.name for field in fields(Rules))
SAVINGS: Final = ("delayed_cutoff", "pull_after_ack")
MARKED: Final = (
    "seen_from_start",
    "skip_excluded_only",
    "movers_stay",
    "anybody_starts",
    "orphans",
    "keep_until_ack",
    "help_cachers",
    "all_regions_at_once",
    "close",
    "repeat_tail",
    "final_count",
    "open_names_all",
    "open_raises_cutoff",
    "lost_open_waits",
    "lost_counts_as_had",
    "refuse",
    "refusals_end",
    "kept_not_delivered",
)
