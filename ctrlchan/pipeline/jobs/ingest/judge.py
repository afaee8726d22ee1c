"""Items -> items with every reason against them: what only shows beside other items.

Four looks, each at what the former has left: two items of one role for one thing; items of several roles that
contradict each other; a partition as a whole (the invariants of ``ctrlchan.state.invariants``); a topic as a
whole. All items of a topic are in one task, so one shuffle serves all four.

What is described twice alike is taken once, and the later one refused. What is described twice and
differently is refused altogether: nothing here can know which is true.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.items import INTS, LISTS, About, array_of, put, reasons_of
from ctrlchan.pipeline.jobs.ingest.zookeeper import KIND as ZOOKEEPER
from ctrlchan.state.new_rows import NO_LEADER, NO_LEADERSHIP
from ctrlchan.topic_names import ZERO_ID

__all__ = ["judge_partitions", "judge_single"]

_VALUES: Final = ("topic_id", "partition_count", "deleting", *INTS, *LISTS)
_MERGED: Final = ("topic_id", *INTS, *LISTS)
_PLACE: Final = ("file", "row", "place")


def judge_single(items: DataFrame) -> DataFrame:
    """Brokers and facts of the cluster, each known by its ``key``."""
    role = Window.partitionBy("about", "role", "key")
    thing = Window.partitionBy("about", "key")
    judged = _twice(items, role, sf.struct("broker", "cluster"))
    value = sf.when(_sound(), sf.struct("broker", "cluster"))
    return (
        judged.withColumn("differs", sf.min(value).over(thing) != sf.max(value).over(thing))
        .withColumn("ends", _ends(thing))
        .withColumn(
            "reasons", _more(_sound() & sf.col("differs"), put("described differently in ", _other()))
        )
        .drop("differs", "ends")
    )


def judge_partitions(items: DataFrame, around: DataFrame, *, whole_topics: bool) -> DataFrame:
    """Topics and partitions. ``around``: one row of ``absent`` (ids of brokers that are not live),
    ``offline`` (of those and what is shutting down) and ``cluster_epoch`` (null when not known).

    Adds ``merged``, a struct of the snapshot's columns and whether the topic is being deleted; ``sources``,
    how many items make the partition; and ``first``, set for one of these.
    """
    role = Window.partitionBy("topic", "partition", "role")
    partition = Window.partitionBy("topic", "partition")
    topic = Window.partitionBy("topic")
    judged = items.repartition("topic").crossJoin(sf.broadcast(around))
    judged = _twice(judged, role, sf.struct(*_VALUES))
    judged = _halves(judged, partition)
    judged = _contradictions(judged, partition)
    judged = judged.withColumn("merged", _merged(topic)).withColumn(
        "reasons",
        sf.concat("reasons", sf.when(_sound() & _of_partition(), _broken()).otherwise(array_of("string"))),
    )
    judged = judged.withColumn(
        "sources", sf.count(sf.when(_sound() & _of_partition(), 1)).over(partition)
    ).withColumn(
        "first",
        _sound() & _of_partition() & (_place() == sf.min(sf.when(_sound(), _place())).over(partition)),
    )
    judged = judged.withColumn("made", sf.max("first").over(partition))
    judged = _topics(judged, topic, whole_topics)
    return judged.withColumn("first", sf.col("first") & _sound()).drop(
        "absent", "offline", "cluster_epoch", "low", "high"
    )


def _sound() -> Column:
    return sf.size("reasons") == 0


def _of_partition() -> Column:
    return sf.col("about") == About.PARTITION


def _place() -> Column:
    return sf.struct(*_PLACE)


def _more(wanted: Column, reason: Column) -> Column:
    """The reasons, and this one where it is ``wanted``."""
    return sf.when(wanted, sf.concat("reasons", sf.array(reason))).otherwise(sf.col("reasons"))


def _ends(window: WindowSpec) -> Column:
    """The first and the last place of the sound items."""
    place = sf.when(_sound(), _place())
    return sf.struct(sf.min(place).over(window).alias("first"), sf.max(place).over(window).alias("last"))


def _other() -> Column:
    """One end of ``ends`` that is not this item."""
    first, last = sf.col("ends.first"), sf.col("ends.last")
    return sf.when(first == _place(), last["place"]).otherwise(first["place"])


def _twice(items: DataFrame, role: WindowSpec, values: Column) -> DataFrame:
    """Refuses items of one role for one thing. ``lost``: no item of this role is taken."""
    value = sf.when(_sound(), values)
    seen = (
        items.withColumn("was_sound", _sound())
        .withColumn("ends", _ends(role))
        .withColumn(
            "differs", sf.coalesce(sf.min(value).over(role) != sf.max(value).over(role), sf.lit(False))
        )
    )
    again = _place() != sf.col("ends.first")
    reason = sf.when(sf.col("differs"), put("described differently in ", _other())).when(
        again, put("the same as ", sf.col("ends.first.place"))
    )
    return (
        seen.withColumn("reasons", sf.concat("reasons", reasons_of(sf.when(sf.col("was_sound"), reason))))
        .withColumn("lost", ~sf.col("was_sound") | sf.col("differs"))
        .drop("was_sound", "differs", "ends")
    )


def _halves(items: DataFrame, partition: WindowSpec) -> DataFrame:
    """A partition that ZooKeeper tells in two znodes is not made of one of them when the other is refused."""
    of_zookeeper = (sf.col("kind") == ZOOKEEPER) & _of_partition()
    refused = sf.max(sf.when(of_zookeeper & sf.col("lost"), sf.col("place"))).over(partition)
    return (
        items.withColumn("half", refused)
        .withColumn(
            "reasons",
            _more(_sound() & of_zookeeper & sf.col("half").isNotNull(), put("refused with ", sf.col("half"))),
        )
        .drop("half", "lost")
    )


def _contradictions(items: DataFrame, partition: WindowSpec) -> DataFrame:
    """``low`` and ``high``: the least and the greatest value that a partition's items tell, by column."""

    def extreme(function: object) -> Column:
        assert callable(function)
        return sf.struct(
            *(function(sf.when(_sound(), sf.col(name))).over(partition).alias(name) for name in _MERGED)
        )

    judged = (
        items.withColumn("low", extreme(sf.min))
        .withColumn("high", extreme(sf.max))
        .withColumn("ends", _ends(partition))
    )
    low, high = sf.col("low"), sf.col("high")
    differing = sf.array_compact(
        sf.array(*(sf.when(low[name] != high[name], sf.lit(name)) for name in _MERGED))
    )
    judged = judged.withColumn("differing", differing)
    return judged.withColumn(
        "reasons",
        _more(
            _sound() & _of_partition() & (sf.size("differing") > 0),
            sf.concat(sf.array_join("differing", ", "), sf.lit(" described differently in "), _other()),
        ),
    ).drop("differing", "ends")


def _merged(topic: WindowSpec) -> Column:
    """The partition's row. Epochs that no item tells are 0, or unknown without leadership; so are lists."""
    value = sf.col("high")
    led = value["leader"].isNotNull()

    def epoch(name: str, known: Column) -> Column:
        return sf.coalesce(value[name], sf.when(led, known).otherwise(sf.lit(NO_LEADERSHIP)))

    dead = sf.filter(value["replicas"], lambda broker: sf.array_contains("offline", broker))
    columns = {
        "controller_epoch": epoch("controller_epoch", sf.coalesce("cluster_epoch", sf.lit(0))),
        "leader": sf.coalesce(value["leader"], sf.lit(NO_LEADER)),
        "leader_epoch": epoch("leader_epoch", sf.lit(0)),
        "partition_epoch": epoch("partition_epoch", sf.lit(0)),
        "recovery_state": sf.coalesce(value["recovery_state"], sf.lit(0)),
        "isr": sf.coalesce(value["isr"], array_of()),
        "replicas": value["replicas"],
        "adding_replicas": sf.coalesce(value["adding_replicas"], array_of()),
        "removing_replicas": sf.coalesce(value["removing_replicas"], array_of()),
        "offline_replicas": sf.coalesce(value["offline_replicas"], dead),
        # A topic's id may be told by its own line.
        "topic_id": sf.coalesce(sf.max(sf.when(_sound(), sf.col("topic_id"))).over(topic), sf.lit(ZERO_ID)),
        "deleting": sf.coalesce(sf.max(sf.when(_sound(), sf.col("deleting"))).over(topic), sf.lit(False)),
    }
    return sf.struct(*(column.alias(name) for name, column in columns.items()))


def _broken() -> Column:
    """The invariants that the merged row breaks, as an array of reasons."""
    row, told = sf.col("merged"), sf.col("high")
    leader, replicas, isr = row["leader"], row["replicas"], row["isr"]
    led = (leader >= 0) & (row["leader_epoch"] >= 0)

    def stranger(name: str) -> Column:
        first = sf.get(sf.array_except(row[name], replicas), sf.lit(0))
        return sf.when(
            first.isNotNull(), put("broker ", first.cast("string"), f" among {name} is not a replica")
        )

    missing_dead = sf.get(
        sf.filter(
            replicas,
            lambda broker: (
                sf.array_contains("offline", broker) & ~sf.array_contains(row["offline_replicas"], broker)
            ),
        ),
        sf.lit(0),
    )
    without_leader = told["leader"].isNull() & (
        told["leader_epoch"].isNotNull() | told["isr"].isNotNull() | told["partition_epoch"].isNotNull()
    )
    text = leader.cast("string")
    return sf.when(replicas.isNull(), sf.array(sf.lit("no replicas are assigned to it"))).otherwise(
        reasons_of(
            sf.when(without_leader, sf.lit("a leader epoch, a partition epoch or an ISR, but no leader")),
            sf.when(
                led & ~sf.array_contains(replicas, leader), put("the leader ", text, " is not a replica")
            ),
            sf.when(led & ~sf.array_contains(isr, leader), put("the leader ", text, " is not in the ISR")),
            sf.when(
                led & sf.array_contains("absent", leader), put("the leader ", text, " is no live broker")
            ),
            *(stranger(name) for name in ("isr", "adding_replicas", "removing_replicas", "offline_replicas")),
            sf.when(
                missing_dead.isNotNull(),
                put(
                    "replica ", missing_dead.cast("string"), " is not online, and not among offline_replicas"
                ),
            ),
            sf.when(
                row["controller_epoch"] > sf.col("cluster_epoch"),
                put(
                    "controller_epoch ",
                    row["controller_epoch"].cast("string"),
                    " is later than the cluster's, ",
                    sf.col("cluster_epoch").cast("string"),
                ),
            ),
        )
    )


def _topics(items: DataFrame, topic: WindowSpec, whole_topics: bool) -> DataFrame:
    """Refuses all of a topic that has two ids, shares its id, or is not whole."""
    ordered = Window.partitionBy("topic").orderBy("partition", *_PLACE)
    upto = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    number = sf.sum(sf.col("first").cast("bigint")).over(upto) - 1
    known_id = sf.when(_sound(), sf.col("topic_id"))
    count = sf.when(_sound(), sf.col("partition_count"))
    # What is refused, and nothing else has made its partition.
    lost = ~_sound() & _of_partition() & ~sf.coalesce("made", sf.lit(False))
    judged = (
        items.withColumn("number", number)
        .withColumn(
            "gap", sf.when(sf.col("first") & (sf.col("number") != sf.col("partition")), sf.col("number"))
        )
        .withColumn("missing", sf.min("gap").over(topic))
        .withColumn("lost", sf.min(sf.when(lost, sf.col("place"))).over(topic))
        .withColumn("found", sf.count(sf.when(sf.col("first"), 1)).over(topic))
        .withColumn(
            "ids",
            sf.struct(sf.min(known_id).over(topic).alias("low"), sf.max(known_id).over(topic).alias("high")),
        )
        .withColumn("count", sf.max(count).over(topic))
    )
    counted = sf.when(
        sf.col("count") != sf.col("found"),
        put(
            "the topic has PartitionCount ",
            sf.col("count").cast("string"),
            ", but ",
            sf.col("found").cast("string"),
            " of its partitions are sound",
        ),
    )
    gap = put("partition ", sf.col("missing").cast("string"), " of the topic is missing")
    reasons = [
        sf.when(
            sf.col("ids.low") != sf.col("ids.high"),
            put("the topic has two ids, ", _id("ids.low"), " and ", _id("ids.high")),
        ),
        sf.when(sf.col("sharer").isNotNull(), put("topic ", sf.col("sharer"), " has the same id")),
    ]
    if whole_topics:
        reasons.append(sf.coalesce(put("the topic is not whole without ", sf.col("lost")), gap, counted))
    return judged.withColumn(
        "reasons", sf.when(_sound(), reasons_of(*reasons)).otherwise(sf.col("reasons"))
    ).drop("number", "gap", "missing", "lost", "made", "found", "ids", "count", "sharer")


def _id(name: str) -> Column:
    return sf.rtrim(sf.translate(sf.base64(sf.col(name)), "+/", "-_"), sf.lit("="))
