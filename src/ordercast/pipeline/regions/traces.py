"""What a trace says for a plan: which groups nodes were in, how busy they were, and what it would have cost in packets.

**Subscriptions** are all groups that a node was in at any time of the trace: a run that ends in good order ends with
leaves. A session `client@daemon` counts for its daemon, because nodes are in regions, not sessions.

**Packets** are counted by a simple model of section 2.2 and 2.3 of the QSM paper, the same for every layout of *lanes*:

- Messages that one sender sends into one lane within `WINDOW_NS` share packets of `PACKET_BYTES`. A message to several
  groups of a lane is in it once. A message to groups in k lanes is sent k times.
- A packet is sent once and received by every member of the lane but the sender. A lane without other members costs
  nothing.
- In each second in which a lane carries data its token visits every member (one packet sent, one received), and each
  sender gets an acknowledgement (the same), if the lane has two members or more. Idle lanes are not counted, which
  favours many small ones.

Losses, repairs and the time that messages wait for a window are not counted.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

WINDOW_NS: Final = 10_000_000  # messages within 10 ms share packets
PACKET_BYTES: Final = 1_368  # of an Ethernet frame, without our 32 bytes of header
MESSAGE_BYTES: Final = 8  # a message's number of group and length in a block
SECOND_NS: Final = 1_000_000_000
SERVICE: Final = "ordercast.gms"  # what replicas of the membership service say to each other is no load

MESSAGE: Final = ("run", "underlay", "sender", "first")


class PacketCounts(NamedTuple):
    """What a layout costs: packets that machines handle, each when it is sent and whenever it is received."""

    messages: int
    sent: int
    received: int
    control: int
    unwanted: int  # of those received: they hold nothing that the receiver subscribed to

    @property
    def per_message(self) -> float:
        return (self.sent + self.received + self.control) / max(1, self.messages)


def memberships(events: DataFrame) -> DataFrame:
    """node, group: what each node was in at any time. An underlay is a group only if messages name it as one."""
    came = events.where(F.col("kind").isin("join", "view")).select(
        _host(F.col("node")).alias("node"), F.col("group").alias("named"), "underlay"
    )
    named = came.where(F.col("named").isNotNull()).select("node", F.col("named").alias("group"))
    sent_to = _targets(events).select("group").distinct()
    own = came.where(F.col("named").isNull()).select("node", F.col("underlay").alias("group"))
    return named.unionByName(own.join(F.broadcast(sent_to), "group", "left_semi").select("node", "group"))


def rates_of(events: DataFrame) -> DataFrame:
    """group, rate: messages a second over the time from the first submit of its run to the last. Not below a second."""
    sent = _targets(events)
    spans = sent.groupBy("run").agg((F.max("at_ns") - F.min("at_ns")).alias("ns"))
    seconds = spans.agg(F.sum(F.greatest(F.col("ns"), F.lit(SECOND_NS)) / SECOND_NS).alias("seconds"))
    counted = sent.groupBy("group").agg(F.sum("count").alias("messages"))
    return counted.crossJoin(F.broadcast(seconds)).select("group", (F.col("messages") / F.col("seconds")).alias("rate"))


def packets_of(events: DataFrame, rows: DataFrame, members: DataFrame, lanes: DataFrame) -> DataFrame:
    """One row, the fields of `PacketCounts`. `rows`: node, group; `members`: node, lane; `lanes`: group, lane."""
    sent = _targets(events)
    messages = sent.select(*MESSAGE, "count").distinct().agg(F.coalesce(F.sum("count"), F.lit(0)).alias("messages"))
    placed = sent.join(lanes, "group").select(
        *MESSAGE, _host(F.col("node")).alias("node"), "lane", "group", "at_ns", "count", "bytes"
    )
    own = members.select("node", "lane", F.lit(1).alias("is_member"))
    sizes = members.groupBy("lane").agg(F.count(F.lit(1)).alias("size"))
    once = placed.dropDuplicates([*MESSAGE, "lane"]).withColumn("window", F.floor(F.col("at_ns") / WINDOW_NS))
    trains = (
        once.groupBy("run", "node", "lane", "window")
        .agg(F.sum(F.col("bytes") + MESSAGE_BYTES * F.col("count")).alias("bytes"))
        .join(F.broadcast(sizes), "lane")
        .join(F.broadcast(own), ["node", "lane"], "left")
        .withColumn("others", F.col("size") - F.coalesce("is_member", F.lit(0)))
        .where("others > 0")
        .withColumn("packets", F.ceil(F.col("bytes") / PACKET_BYTES))
    )
    # Who of the others wants anything of a train: members that subscribed to one of its groups.
    wants = (
        placed.withColumn("window", F.floor(F.col("at_ns") / WINDOW_NS))
        .select("run", F.col("node").alias("sender_node"), "lane", "window", "group")
        .distinct()
        .join(rows, "group")
        .join(F.broadcast(members), ["node", "lane"], "left_semi")
        .where(F.col("node") != F.col("sender_node"))
        .groupBy("run", "sender_node", "lane", "window")
        .agg(F.count_distinct("node").alias("wanting"))
        .withColumnRenamed("sender_node", "node")
    )
    data = trains.join(wants, ["run", "node", "lane", "window"], "left").agg(
        _total(F.col("packets")).alias("sent"),
        _total(F.col("packets") * F.col("others")).alias("received"),
        _total(F.col("packets") * (F.col("others") - F.coalesce("wanting", F.lit(0)))).alias("unwanted"),
    )
    second = F.floor(F.col("window") * WINDOW_NS / SECOND_NS)
    control = (
        trains.where("size > 1")
        .groupBy("run", "lane", second.alias("second"))
        .agg(F.max("size").alias("size"), F.count_distinct("node").alias("senders"))
        .agg(_total(2 * (F.col("size") + F.col("senders"))).alias("control"))
    )
    return messages.crossJoin(data).crossJoin(control).select(*PacketCounts._fields)


def lanes_of_one_region(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Everybody in one region: members(node, lane), lanes(group, lane)."""
    one = F.lit(0).alias("lane")
    return rows.select("node", one).distinct(), rows.select("group", one).distinct()


def lanes_of_groups(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """A region for each group."""
    number = F.row_number().over(Window.orderBy("group")).alias("lane")
    lanes = rows.select("group").distinct().select("group", number)
    return rows.join(F.broadcast(lanes), "group").select("node", "lane"), lanes


def _targets(events: DataFrame) -> DataFrame:
    """One row for each submit and group that it goes to. Submits that name no group cannot be placed."""
    sender = F.coalesce(F.col("sender"), F.concat_ws("/", F.col("node"), F.col("life").cast("string")))
    is_sent = F.col("kind").isin("submit", "carry") & (F.col("count") > 0) & (F.col("underlay") != SERVICE)
    sent = events.where(is_sent).withColumn("sender", sender)
    of_regions = F.col("underlay").like("region/%")
    return _named_targets(sent.where(~of_regions)).unionByName(_carried_targets(sent.where(of_regions)))


def _named_targets(sent: DataFrame) -> DataFrame:
    """Of all orderers but regions: submits say where they go."""
    groups = F.coalesce(F.col("groups"), F.when(F.col("group").isNotNull(), F.array("group")))
    return sent.where("kind = 'submit'").select(
        "run",
        "underlay",
        "sender",
        "first",
        "node",
        "at_ns",
        "count",
        F.coalesce("bytes", F.lit(0)).alias("bytes"),
        F.explode(F.array_distinct(groups)).alias("group"),
    )


def _carried_targets(sent: DataFrame) -> DataFrame:
    """Of regions: a `carry` says where messages go, and the `submit` of the same numbers which messages they are.

    A message that goes to two regions has a number in each, and one serial, which stands for it here. Neither kind of
    row begins where the other does, so a lane is cut wherever one of them begins, and then into single messages.
    """
    lane = Window.partitionBy("run", "underlay", "sender").orderBy("first")
    is_submit = F.col("kind") == "submit"
    stop = F.col("first") + F.col("count")

    def latest(values: Column, where: Column) -> Column:
        return F.last(F.when(where, values), ignorenulls=True).over(lane)

    cut = sent.select(
        "run",
        "underlay",
        "sender",
        "node",
        "first",
        F.lead("first").over(lane).alias("next"),
        latest(F.col("position") - F.col("first"), is_submit).alias("shift"),
        latest(stop, is_submit).alias("submitted"),
        latest(F.coalesce("bytes", F.lit(0)) / F.col("count"), is_submit).alias("each"),
        latest(F.col("groups"), ~is_submit).alias("groups"),
        latest(stop, ~is_submit).alias("carried"),
        latest(F.col("at_ns"), ~is_submit).alias("at_ns"),
    )
    until = F.least("submitted", "carried", F.coalesce("next", "carried"))
    single = cut.where(F.col("first") < until).withColumn("number", F.explode(F.sequence("first", until - 1)))
    targets = single.select(
        "run",
        F.lit("regions").alias("underlay"),
        "sender",
        (F.col("number") + F.col("shift")).alias("first"),
        "node",
        "at_ns",
        F.lit(1).cast("long").alias("count"),
        F.col("each").cast("long").alias("bytes"),
        F.explode(F.array_distinct("groups")).alias("group"),
    )
    # A group in two regions has the message in both lanes.
    once = targets.groupBy("run", "underlay", "sender", "first", "node", "count", "bytes", "group")
    return once.agg(F.min("at_ns").alias("at_ns")).select(targets.columns)


def _host(node: Column) -> Column:
    """The daemon of a session, and any other node itself."""
    return F.element_at(F.split(node, "@"), -1)


def _total(values: Column) -> Column:
    return F.coalesce(F.sum(values), F.lit(0)).cast("long")
