"""The names of the counters that `group.stats` and `node.stats` give. Every name is always there, also at 0.

The core counts by name where something happens and has no list; the test `test_api_stats.py` compares its source with
this one. Counters only rise, except for `queued_...`, `held_bytes` and `holding_up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ordercast.wire.header import DETAIL, MEMBERSHIP_DETAIL, UNKNOWN_DETAIL

_GROUP: Final[dict[str, str]] = {
    # The application.
    "messages_sent": "messages that left the send queue",
    "messages_delivered": "messages delivered here",
    "queued_messages": "messages in the send queue now",
    "queued_bytes": "bytes in the send queue now",
    "held_bytes": "bytes of a lightweight group that wait here for the application, beyond the underlay's history",
    "holding_up": "1 while the whole underlay waits for the application to receive from this group, else 0",
    "unreadable_blocks": "delivered blocks that a faulty member made unreadable",
    "unwanted_messages": "messages of a region that were for groups that this node is not in",
    "dropped_fragments": "fragments of large messages that did not fit together",
    # The protocol at work.
    "duplicates": "blocks that came more than once",
    "retransmissions": "own blocks sent again because nobody had acknowledged them",
    "repairs": "blocks or segments sent again because a member asked for them",
    "own_repairs": "on regions: those of own blocks; receivers send most repairs there",
    "token_retries": "passes of the token that were repeated",
    "repeated_decisions": "decisions of a timestamp group that were repeated",
    "overrun_drops": "UNRELIABLE messages dropped because the application was too slow",
    "forwarded": "datagrams multicast for members without multicast",
    "routes_computed": "times that the routes between sites were computed: the sites of the view have changed",
    "links_opened": "links to daemons of other sites that were opened; those between daemons that stay are kept",
    "link_drops": "UNRELIABLE datagrams of other sites dropped because a link from here, or this site, was behind",
    "suspicions": "failures that this member suspected",
    "exclusions": "times that this member was excluded although it was alive",
    # Datagrams that were dropped.
    "malformed": "datagrams that could not be decoded",
    "foreign": "datagrams of another group or ring on the same address",
    "old_ring": "datagrams of a ring that has ended",
    "bad_assignments": "sequence numbers that cannot be right",
    "strange_acks": "acknowledgements that cannot be right",
    "strange_calls": "calls that cannot be right, or that the orderer does not take",
    "strange_forwards": "requests to multicast for a node that is no member",
    "strange_kinds": "datagrams that the orderer does not have",
    "strange_leads": "orders from a member that does not order",
    "strange_reports": "ICMP errors that give no probe back that this member has just sent: forged, or late",
    "strange_sites": "datagrams of daemons that have another configuration of sites",
    "strange_stamps": "timestamps that cannot be right",
    "strange_tokens": "tokens that cannot be right",
}

_WORDS: Final = sorted({*DETAIL.values(), MEMBERSHIP_DETAIL, UNKNOWN_DETAIL})

GROUP_STATS: Final[dict[str, str]] = {
    **_GROUP,
    **{f"sent.{word}": f"datagrams of the kind {word} sent" for word in _WORDS},
    **{f"received.{word}": f"datagrams of the kind {word} received" for word in _WORDS},
}
"""The keys of `group.stats`, with their meaning."""

NODE_STATS: Final[dict[str, str]] = {
    # What was received.
    "datagrams_in": "datagrams received",
    "bytes_in": "bytes received",
    "receive_calls": "system calls to receive",
    "malformed": "datagrams that are none of Ordercast's: too short, too long, or with a wrong first byte",
    "unknown_group": "datagrams of groups that this node is not in",
    "mixed_trains": "batches that the kernel joined out of datagrams of several groups",
    "own_ignored": "own multicasts that came back because the kernel has no filter",
    "kernel_drops": "datagrams dropped because a socket was full",
    # What was sent.
    "datagrams_out": "datagrams sent",
    "bytes_out": "bytes sent",
    "send_calls": "system calls to send",
    "would_block": "sends that had to wait because the socket was full",
    "gso_fallbacks": "sockets that send one datagram a call because the device refuses trains",
    "undeliverable": "datagrams dropped because no route or rule lets them out",
    "too_large": "datagrams dropped because they are larger than the path takes: give nodes a smaller datagram=",
    # Both.
    "refused": "ICMP errors that earlier datagrams came back with",
}
"""The keys of `node.stats`, with their meaning."""


def all_group_stats(counts: Mapping[str, int]) -> dict[str, int]:
    """The counters of a group, with every documented key."""
    return {**dict.fromkeys(GROUP_STATS, 0), **counts}


def all_node_stats(counts: Mapping[str, int]) -> dict[str, int]:
    """The counters of a node, with every documented key."""
    return {**dict.fromkeys(NODE_STATS, 0), **counts}
