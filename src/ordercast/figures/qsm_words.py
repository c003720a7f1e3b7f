"""What the report of the QSM paper says in words: how it was measured, and why numbers differ."""

from __future__ import annotations

from typing import Final

ABOUT: Final = (
    "Section 3 in the bulk simulation, with the network `pentium`: the paper's machines on switched 100 Mb/s. "
    "To send a datagram takes 96 us of processor time and to receive one 75, chosen so that one sender reaches "
    "the paper's maximum. Engines of regions with the rate policy `qsm`, views that do not change, no "
    "application behind. Messages of 8 bytes, a datagram each, RELIABLE. Hiccups stand for the paper's "
    "disturbances: in 2 % of its seconds a node loses a share of what comes that is uniform between 0 and 1. "
    "One datagram stands for {long}, except in figures 10 and 11 and in the baseline of figure 1: rates, credits "
    "and buffers of engines are divided by {long}, and a hiccup loses {long} in a row. A sender has at most "
    "{blocks} unacknowledged messages. It has the largest address, so that it leads no partition. lambda is "
    "{growth}, chosen for figure 9, since the paper does not give it. Control traffic of a node is paced at "
    "{courier} KB/s, where the "
    'paper has "a fixed small value". A run begins at {first:,.0f} messages a second (the paper\'s began at the '
    "lowest rate, here {least:.0f}) and is measured after a minute at most. At its end the sender stops, and "
    "every member must have got every message. The paper's runs take 10 to 40 minutes, ours seconds to five minutes."
)

WHY: Final[dict[str, str]] = {
    # tables
    "groups": (
        "One sender in all groups in turn, 25 nodes. The paper's baseline is JGroups. Ours is an engine of regions "
        "for each group, with its own token, acknowledgements and rate, at full packet rate for seconds; engines of "
        "one node share its processor and port. Datagrams are counted at full size, and not what tables cost in memory"
        " and time: [benchmarks](benchmarks.md) has that."
    ),
    "sizes": (
        "One group, one sender; its rate, second by second. Recovery latency is counted at up to five receivers, "
        "from the arrival of a later message; the recovery rate is the share of messages that came late. A round is"
        " a second. Rows of 200 nodes and more have 8,192 groups and last for seconds: no rate is promised there. With "
        "1,000 nodes hiccups end when the sender stops."
    ),
    "overhead": (
        "Full packet rate, the longer the smaller the region. Datagrams that the sender sends and receives, by kind: "
        "those that carry messages for others (push and pulled), tokens, ACKs and NAKs of the region, and "
        "acknowledgements of the courier, which carries all control."
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
        "our underlays have no acknowledgement for each message: one costs the sender seven datagrams in a round, of "
        "tokens, ACKs and the courier, which is 0.6 ms of its processor. With 256 of them a round takes three seconds "
        "and not one, so that control stays at 5.5 %. Only datagrams take processor time here, not threads or tables. "
        "The rate rises since no underlay goes below 100 messages a second: 256 together are held by the sender's "
        "machine alone, and fewer by what hiccups do to the rate of each"
    ),
    "scale": (
        "with 1 node ours sends nothing to the network: the row of 2 stands for it. Up to 40 nodes the sender's "
        "machine sets the rate. In a larger region some member nearly always has a hiccup, and the slowest one sets "
        "it; with lambda at 0.1 or more it hardly falls, and with 0.065 it goes on falling. With 71 it falls all the "
        "time, from 9,000 at the beginning of the five minutes to the paper's 6,500 at their end: the mean is that of "
        "a fall, and not of a level that is held"
    ),
    "sharing": (
        "the sender takes part in repairs as a member, for its neighbours on the ring. Few hiccups fall into so "
        "short a run, so that single numbers are uncertain: with 5 nodes it repaired more than with 2, with 25 nearly "
        "nothing. Without repairs its control falls with every size, from 0.4 % to 0.1 %"
    ),
    "push": (
        "the courier acknowledges what it carries: with 2 nodes one datagram for three repairs, with 5 one for "
        "fourteen. With 25 the sender repaired 8 datagrams in 17 s: the rest is tokens and acknowledgements"
    ),
    "five": (
        "one partition repairs 64 runs of blocks in a round, the most that a set of NAKs holds, so that a long hiccup "
        "takes about six; and the sender keeps all blocks for its neighbours, which takes its processor. The gain is"
        " less than the paper's: with five partitions a member pulls four fifths of what it lacks only once ACK covers"
        " it, and the sender's machine sends no more than 10,417 datagrams a second"
    ),
    "beyond": (
        "the smaller partitions are, the more of what a member lacks belongs to others, and is pulled only once ACK "
        "covers it; the larger, the more has to go through one set of 64 runs"
    ),
    "k": (
        "one region takes nearly all that the sender's machine sends already, 10,417 datagrams a second, so that "
        "nothing is left to rise"
    ),
    "ticks": (
        "with one token a second or fewer, recovery takes about three rounds. With more of them receivers are the "
        "bound: at full rate a fifth of their processor is left for repairs. With 0.2 repairs come later than the ten "
        "seconds that rates are means of, so that all that is lost lowers the rate; without hiccups it would be full. "
        "At the other end little suffers: ten tokens a second cost a node 0.3 % of its processor"
    ),
    "more": (
        "to receive a datagram (75 us) is cheaper here than to send one (96 us), and a sender does not receive its own:"
        " of m senders, a message takes (96 + 75 (m - 1)) / m us of each. The paper does not say what costs ten "
        "senders a fifth"
    ),
    "swings": (
        "the mean of ten seconds of the slowest member sets the rate, and of more members one is slower at any "
        "time. With 71 the rate falls in the five minutes that are measured; a cycle of several minutes does not fit "
        "into them, and the paper's runs take up to forty. Up to 40 nodes the deviation falls: it comes from seconds "
        "in which the sender repairs, which takes its machine, and a larger region has others that do"
    ),
    "late": (
        "what belongs to a member's own partition is repaired first, and up to nine nodes are one partition. The rest "
        "is pulled once ACK covers it, and ACK waits for all that lack blocks of their own partition. From 25 nodes "
        "to 71 it grows by an eighth"
    ),
    "acks": (
        "half a round is how long a message waits for the next token on average. A hiccup holds the ACK up for all "
        "later messages, since it is one number"
    ),
}
