"""Adds the reasons against entries that only show beside other entries.

Four checks, each of the entries that are still valid: two entries of one role for one subject; entries of
several roles that contradict each other; each partition as a whole (the invariants of
``ctrlchan.state.invariants``); each topic as a whole. All entries of a topic are in one task, so one shuffle
is enough for all checks.

Of two equal descriptions the first is taken and the later one refused. Two different descriptions are both
refused: nothing shows which of them is true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as sf

from ctrlchan.pipeline.jobs.ingest.entries import COLUMNS, INTS, LISTS, About, array_of, put, reasons_of
from ctrlchan.pipeline.jobs.ingest.zookeeper import KIND as ZOOKEEPER
from ctrlchan.pipeline.spark.tables import gathered, is_small
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.new_rows import NO_LEADERSHIP
from ctrlchan.topic_names import ZERO_ID

__all__ = ["ClusterFacts", "validate_partitions", "validate_single"]

_VALUES: Final = ("topic_id", "partition_count", "deleting", *INTS, *LISTS)
_MERGED: Final = ("topic_id", *INTS, *LISTS)
_PLACE: Final = ("file", "row", "place")


def validate_single(entries: DataFrame) -> DataFrame:
    """Validate the entries about brokers and the cluster, each named by its ``key``."""
    role = Window.partitionBy("about", "role", "key")
    thing = Window.partitionBy("about", "key")
    validated = _twice(entries, role, sf.struct("broker", "cluster"))
    value = sf.when(_valid(), sf.struct("broker", "cluster"))
    compared = {"differs": sf.min(value).over(thing) != sf.max(value).over(thing), "ends": _ends(thing)}
    reason = _more(_valid() & sf.col("differs"), put("described differently in ", _other()))
    return validated.withColumns(compared).withColumn("reasons", reason).drop(*compared)


@dataclass(frozen=True)
class ClusterFacts:
    """What the checks of partitions need of the cluster.

    ``absent``: ids of brokers that partitions name and that are not live; ``offline``: those and the brokers
    that shut down; ``epoch``: of the controller, or None.
    """

    absent: Sequence[int]
    offline: Sequence[int]
    epoch: int | None


def validate_partitions(entries: DataFrame, facts: ClusterFacts, *, whole_topics: bool) -> DataFrame:
    """Validate the entries about topics and partitions, and merge those of one partition.

    ``entries`` have ``sharer``, another topic with the same id, or null.

    Adds ``merged``, a struct of the snapshot's columns and whether the topic is being deleted; ``sources``,
    how many entries make the partition; ``first``, set for one of them; and ``lowest``, set for the lowest
    partition of the topic.
    """
    role = Window.partitionBy("topic", "partition", "role")
    partition = Window.partitionBy("topic", "partition")
    topic = Window.partitionBy("topic")
    by_topic = gathered(entries) if is_small(entries.sparkSession) else entries.repartition("topic")
    validated = _twice(by_topic, role, sf.struct(*_VALUES))
    validated = _halves(validated, partition)
    validated = _contradictions(validated, partition)
    validated = validated.withColumn("merged", _merged(topic, facts)).withColumn(
        "reasons",
        sf.concat(
            "reasons", sf.when(_valid() & _of_partition(), _broken(facts)).otherwise(array_of("string"))
        ),
    )
    first = sf.min(sf.when(_valid(), _place())).over(partition)
    validated = validated.withColumns(
        {
            "sources": sf.count(sf.when(_valid() & _of_partition(), 1)).over(partition),
            "first": _valid() & _of_partition() & (_place() == first),
        }
    )
    # A topic's own lines have no partition: one of each role is taken.
    roles = sf.collect_set(sf.when(_valid() & _of_topic(), sf.col("role"))).over(partition)
    validated = validated.withColumn(
        "made",
        sf.when(_of_topic(), sf.array_contains(roles, sf.col("role"))).otherwise(
            sf.coalesce(sf.max("first").over(partition), sf.lit(False))
        ),
    )
    validated = _topics(validated, topic, whole_topics)
    return validated.withColumn("first", sf.col("first") & _valid()).drop("low", "high")


def _valid() -> Column:
    return sf.size("reasons") == 0


def _of_partition() -> Column:
    return sf.col("about") == About.PARTITION


def _of_topic() -> Column:
    return sf.col("about") == About.TOPIC


def _place() -> Column:
    return sf.struct(*_PLACE)


def _more(wanted: Column, reason: Column) -> Column:
    """Return the reasons, with this one added where ``wanted`` is true."""
    return sf.when(wanted, sf.concat("reasons", sf.array(reason))).otherwise(sf.col("reasons"))


def _ends(window: WindowSpec) -> Column:
    """Return the first and the last place of the valid entries."""
    place = sf.when(_valid(), _place())
    return sf.struct(sf.min(place).over(window).alias("first"), sf.max(place).over(window).alias("last"))


def _other() -> Column:
    """Return the place of another entry: the first or the last of ``ends``."""
    first, last = sf.col("ends.first"), sf.col("ends.last")
    return sf.when(first == _place(), last["place"]).otherwise(first["place"])


def _twice(entries: DataFrame, role: WindowSpec, values: Column) -> DataFrame:
    """Refuse repeated entries of one role for one subject. ``lost``: no entry of the role is taken."""
    value = sf.when(_valid(), values)
    seen = {
        "was_valid": _valid(),
        "ends": _ends(role),
        "differs": sf.coalesce(sf.min(value).over(role) != sf.max(value).over(role), sf.lit(False)),
    }
    again = _place() != sf.col("ends.first")
    reason = sf.when(sf.col("differs"), put("described differently in ", _other())).when(
        again, put("the same as ", sf.col("ends.first.place"))
    )
    found = {
        "reasons": sf.concat("reasons", reasons_of(sf.when(sf.col("was_valid"), reason))),
        "lost": ~sf.col("was_valid") | sf.col("differs"),
    }
    return entries.withColumns(seen).withColumns(found).drop(*seen)


def _halves(entries: DataFrame, partition: WindowSpec) -> DataFrame:
    """Refuse an entry of ZooKeeper if the partition's other znode is refused: both make the partition."""
    of_zookeeper = (sf.col("kind") == ZOOKEEPER) & _of_partition()
    refused = sf.max(sf.when(of_zookeeper & sf.col("lost"), sf.col("place"))).over(partition)
    return (
        entries.withColumn("half", refused)
        .withColumn(
            "reasons",
            _more(_valid() & of_zookeeper & sf.col("half").isNotNull(), put("refused with ", sf.col("half"))),
        )
        .drop("half", "lost")
    )


def _contradictions(entries: DataFrame, partition: WindowSpec) -> DataFrame:
    """Refuse contradicting entries. Adds ``low`` and ``high``: lowest and highest value of each column."""

    def extreme(function: object) -> Column:
        assert callable(function)
        return sf.struct(
            *(function(sf.when(_valid(), sf.col(name))).over(partition).alias(name) for name in _MERGED)
        )

    compared = {"low": extreme(sf.min), "high": extreme(sf.max), "ends": _ends(partition)}
    low, high = sf.col("low"), sf.col("high")
    differing = sf.array_compact(
        sf.array(*(sf.when(low[name] != high[name], sf.lit(name)) for name in _MERGED))
    )
    return (
        entries.withColumns(compared)
        .withColumn("differing", differing)
        .withColumn(
            "reasons",
            _more(
                _valid() & _of_partition() & (sf.size("differing") > 0),
                sf.concat(sf.array_join("differing", ", "), sf.lit(" described differently in "), _other()),
            ),
        )
        .drop("differing", "ends")
    )


def _merged(topic: WindowSpec, facts: ClusterFacts) -> Column:
    """Return the partition's row.

    A missing epoch is 0, or ``NO_LEADERSHIP`` if no leader is known. A missing list is empty.
    """
    value = sf.col("high")
    led = value["leader"].isNotNull()

    def epoch(name: str, known: Column) -> Column:
        return sf.coalesce(value[name], sf.when(led, known).otherwise(sf.lit(NO_LEADERSHIP)))

    offline = _ids(facts.offline)
    dead = sf.filter(value["replicas"], lambda broker: sf.array_contains(offline, broker))
    columns = {
        "controller_epoch": epoch("controller_epoch", sf.lit(facts.epoch or 0)),
        "leader": sf.coalesce(value["leader"], sf.lit(NO_LEADER)),
        "leader_epoch": epoch("leader_epoch", sf.lit(0)),
        "partition_epoch": epoch("partition_epoch", sf.lit(0)),
        "recovery_state": sf.coalesce(value["recovery_state"], sf.lit(0)),
        "isr": sf.coalesce(value["isr"], array_of()),
        "replicas": value["replicas"],
        "adding_replicas": sf.coalesce(value["adding_replicas"], array_of()),
        "removing_replicas": sf.coalesce(value["removing_replicas"], array_of()),
        "offline_replicas": sf.coalesce(value["offline_replicas"], dead),
        # A topic's id may stand in the topic's own line.
        "topic_id": sf.coalesce(sf.max(sf.when(_valid(), sf.col("topic_id"))).over(topic), sf.lit(ZERO_ID)),
        "deleting": sf.coalesce(sf.max(sf.when(_valid(), sf.col("deleting"))).over(topic), sf.lit(False)),
    }
    # Fields that may be null: Arrow takes no null struct whose fields may not.
    kinds = ", ".join(f"{name}: {COLUMNS[name]}" for name in columns)
    return sf.struct(*(column.alias(name) for name, column in columns.items())).cast(f"struct<{kinds}>")


def _broken(facts: ClusterFacts) -> Column:
    """Return the invariants that the merged row breaks, as an array of reasons."""
    row, given = sf.col("merged"), sf.col("high")
    absent, offline = _ids(facts.absent), _ids(facts.offline)
    cluster_epoch = sf.lit(facts.epoch).cast("bigint")
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
                sf.array_contains(offline, broker) & ~sf.array_contains(row["offline_replicas"], broker)
            ),
        ),
        sf.lit(0),
    )
    without_leader = given["leader"].isNull() & (
        given["leader_epoch"].isNotNull() | given["isr"].isNotNull() | given["partition_epoch"].isNotNull()
    )
    text = leader.cast("string")
    return sf.when(replicas.isNull(), sf.array(sf.lit("no replicas are assigned to it"))).otherwise(
        reasons_of(
            sf.when(without_leader, sf.lit("a leader epoch, a partition epoch or an ISR, but no leader")),
            sf.when(
                led & ~sf.array_contains(replicas, leader), put("the leader ", text, " is not a replica")
            ),
            sf.when(led & ~sf.array_contains(isr, leader), put("the leader ", text, " is not in the ISR")),
            sf.when(led & sf.array_contains(absent, leader), put("the leader ", text, " is no live broker")),
            *(stranger(name) for name in ("isr", "adding_replicas", "removing_replicas", "offline_replicas")),
            sf.when(
                missing_dead.isNotNull(),
                put(
                    "replica ", missing_dead.cast("string"), " is not online, and not among offline_replicas"
                ),
            ),
            sf.when(
                row["controller_epoch"] > cluster_epoch,
                put(
                    "controller_epoch ",
                    row["controller_epoch"].cast("string"),
                    " is later than the cluster's, ",
                    cluster_epoch.cast("string"),
                ),
            ),
        )
    )


def _topics(entries: DataFrame, topic: WindowSpec, whole_topics: bool) -> DataFrame:
    """Refuse all entries of a topic that has two ids, shares its id, or is incomplete.

    Without its own line a topic is incomplete in any case: the line has its id, and the number of partitions.
    """
    ordered = Window.partitionBy("topic").orderBy("partition", *_PLACE)
    upto = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    number = sf.sum(sf.col("first").cast("bigint")).over(upto) - 1
    known_id = sf.when(_valid(), sf.col("topic_id"))
    count = sf.when(_valid(), sf.col("partition_count"))
    # Refused entries whose partition or topic no other entry describes.
    lost = ~_valid() & ~sf.col("made") & ((_of_partition() & sf.lit(whole_topics)) | _of_topic())
    first = sf.col("first")
    gap = sf.when(first & (sf.col("number") != sf.col("partition")), sf.col("number"))
    validated = entries.withColumn("number", number).withColumns(
        {
            "missing": sf.min(gap).over(topic),
            "lost": sf.min(sf.when(lost, sf.col("place"))).over(topic),
            "found": sf.count(sf.when(first, 1)).over(topic),
            "ids": sf.struct(
                sf.min(known_id).over(topic).alias("low"), sf.max(known_id).over(topic).alias("high")
            ),
            "count": sf.max(count).over(topic),
            "lowest": sf.col("partition") == sf.min(sf.when(first, sf.col("partition"))).over(topic),
        }
    )
    counted = sf.when(
        sf.col("count") != sf.col("found"),
        put(
            "the topic has PartitionCount ",
            sf.col("count").cast("string"),
            ", but ",
            sf.col("found").cast("string"),
            " of its partitions are valid",
        ),
    )
    missing = put("partition ", sf.col("missing").cast("string"), " of the topic is missing")
    reasons = [
        sf.when(
            sf.col("ids.low") != sf.col("ids.high"),
            put("the topic has two ids, ", _id("ids.low"), " and ", _id("ids.high")),
        ),
        sf.when(sf.col("sharer").isNotNull(), put("topic ", sf.col("sharer"), " has the same id")),
    ]
    incomplete = put("the topic is incomplete without ", sf.col("lost"))
    reasons.append(sf.coalesce(incomplete, missing, counted) if whole_topics else incomplete)
    return validated.withColumn(
        "reasons", sf.when(_valid(), reasons_of(*reasons)).otherwise(sf.col("reasons"))
    ).drop("number", "missing", "lost", "made", "found", "ids", "count", "sharer")


def _id(name: str) -> Column:
    return sf.rtrim(sf.translate(sf.base64(sf.col(name)), "+/", "-_"), sf.lit("="))


def _ids(ids: Sequence[int]) -> Column:
    """Return a constant array, made of one text: thousands of constants take long to build."""
    return sf.split(sf.lit(",".join(map(str, ids))), ",").cast("array<bigint>") if ids else array_of()
