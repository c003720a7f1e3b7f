"""What the report of the QSM paper says in words: how it was measured, and why numbers differ."""

from __future__ import annotations

from typing import Final

ABOUT: Final = (
    "Section 3 in the bulk simulation, with the network `pentium`: the paper's machines on switched 100 Mb/s. "
    "To send a datagram takes 96 us of processor time and to receive one 75, chosen so that one sender reaches "
    "the paper's maximum. Engines of regions with the rate policy `qsm`, views that do not change, no "
    "application behind. Messages of 8 bytes, a datagram each, RELIABLE. Hiccups stand for the paper's "
    "disturbances: in 2 % of its seconds a node loses a share of what comes that is uniform between 0 and 1. "
    "One datagram stands for {long}, except in figures 10 and 11: rates, credits and buffers of engines are "
    "divided by {long}, and a hiccup loses {long} in a row. A sender has at most {blocks} unacknowledged "
    "messages. It has the largest address, so that it leads no partition. lambda is {growth}, chosen for figure"
    " 9, since the paper does not give it. Control traffic of a node is paced at {courier} KB/s, where the "
    'paper has "a fixed small value". A run begins at {first:,.0f} messages a second (the paper\'s began at the '
    "lowest rate, here {least:.0f}) and is measured after a minute at most. At its end the sender stops, and "
    "every member must have got every message. The paper's runs take 10 to 40 minutes, ours one to six."
)

WHY: Final[dict[str, str]] = {
    # tables
    "groups": (
        "One sender in all groups in turn, 25 nodes. The paper's baseline is JGroups. Ours is an engine of regions "
        "for each group, with its own token, acknowledgements and rate; engines of one node share its processor and"
        " port. Datagrams are counted, and not what tables cost in memory and time: [benchmarks](benchmarks.md) has"
        " that."
    ),
    "sizes": (
        "One group, one sender; its rate, second by second. Recovery latency is counted at up to five receivers, "
        "from the arrival of a later message; the recovery rate is the share of messages that came late. A round is"
        " a second. Rows of 200 nodes and more have 8,192 groups and last for seconds: no rate is promised there."
    ),
    "overhead": (
        "Full packet rate, some seconds. Datagrams that the sender sends and receives, by kind: those that carry "
        "messages for others (push and pulled), tokens, ACKs and NAKs of the region, and acknowledgements of the "
        "courier, which carries all control."
    ),
    "partitions": (
        "One sender. R is the least number of members of a partition: with R = 1, 25 nodes are 25 partitions."
    ),
    "regions": ("The nodes in k regions. The sender packs each message for every region, and sends k datagrams."),
    "tokens": ("One region in partitions of five. Tokens leave by time alone."),
    "senders": ("Each node receives what all send. The rate is that of all senders together."),
    # claims
    "flat": ("groups are numbers in blocks here, and cost no datagram; the run is the same, datagram for datagram"),
    "own": (
        "our underlays have no acknowledgement for each message: an idle one costs each member a token and its "
        "acknowledgement in a round"
    ),
    "scale": (
        "with 1 node ours sends nothing to the network: the row of 2 stands for it. In a larger region some member "
        "nearly always has a hiccup, and the slowest one sets the rate; with lambda at 0.1 or more the rate hardly "
        "falls, and with 0.065 it goes on falling"
    ),
    "sharing": (
        "the sender takes part in repairs as a member, for its neighbours on the ring. Few hiccups fall into so "
        "short a run, so that single numbers are uncertain"
    ),
    "push": ("few hiccups fall into so short a run: where there was none, control is tokens and acknowledgements"),
    "five": (
        "a NAK set has at most 64 runs. One partition repairs so much in a round, and five repair five times as much"
    ),
    "beyond": ("a smaller partition has fewer cachers, and NAK sets of more partitions are under way"),
    "k": ("already with one region the sender is near the most that its machine sends, so that little is left to rise"),
    "ticks": (
        "recovery takes a number of rounds; with few tokens the bound on unacknowledged messages may stop the sender"
    ),
    "more": (
        "receiving is cheaper than sending in the model of the machine, and a sender need not receive its own "
        "messages: all machines together carry more with more senders. The paper's burstiness is not in it"
    ),
    "swings": (
        "the mean of ten seconds of the slowest member sets the rate, and of more members one is slower at any "
        "time. Our runs last for five minutes, the paper's for up to forty"
    ),
    "late": (
        "the cutoff delays a NAK by up to a round, and members outside of the partition wait for ACK: up to there "
        "no member of a partition may lack anything. So what one hiccup loses is late by one to five rounds, and in"
        " the smallest region, where everybody is a neighbour, by less"
    ),
    "acks": (
        "half a round is how long a message waits for the next token on average. A hiccup holds the ACK up for all "
        "later messages, since it is one number"
    ),
}
