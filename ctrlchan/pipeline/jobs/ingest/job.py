"""Descriptions of a cluster -> a snapshot of what is sound, and everything else with its reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.ingest.config import IngestConfig
from ctrlchan.pipeline.jobs.ingest.describe import describe_items
from ctrlchan.pipeline.jobs.ingest.items import About, checked
from ctrlchan.pipeline.jobs.ingest.json_rows import json_items, reassignment_items
from ctrlchan.pipeline.jobs.ingest.judge import judge_partitions, judge_single
from ctrlchan.pipeline.jobs.ingest.snapshots import snapshot_items
from ctrlchan.pipeline.jobs.ingest.zookeeper import zookeeper_items
from ctrlchan.pipeline.spark.tables import Snapshot, read_snapshot
from ctrlchan.pipeline.spark.text_lines import frozen
from ctrlchan.state.brokers import brokers_from
from ctrlchan.state.new_rows import NO_LEADER
from ctrlchan.state.storage.schemas import BROKERS, PARTITIONS

__all__ = ["Ingested", "ingest"]

_REJECTS: Final = ("kind", "file", "row", "topic", "partition", "reason", "text")


@dataclass(frozen=True)
class Ingested:
    """``partitions``, ``brokers``: a snapshot's columns. ``rejects``: kind (of input), file, row (a line from
    1; of Parquet and in a document from 0), topic, partition, reason, text. ``accounts``: kind, about, items,
    taken, refused (several items may make one partition).

    What was read stays on the executors' disks until ``close``.
    """

    partitions: DataFrame
    brokers: DataFrame
    rejects: DataFrame
    accounts: DataFrame
    config: IngestConfig
    items: DataFrame = field(repr=False)
    judged: DataFrame = field(repr=False)
    flags: dict[str, Any] = field(repr=False)

    def cluster(self) -> dict[str, Any]:
        """``cluster.json``. Raises PipelineError for inputs of several clusters.

        Of several controllers the one with the highest epoch counts. Collected are the facts of each input,
        and the names of topics being deleted: ``cluster.json`` lists them.
        """
        facts = [
            row.asDict()
            for row in self.judged.filter((sf.col("about") == About.CLUSTER) & (sf.size("reasons") == 0))
            .groupBy("kind", sf.when(sf.col("kind") == "snapshot", sf.col("file")).alias("of"))
            .agg(
                *(
                    sf.max(f"cluster.{name}").alias(name)
                    for name in ("cluster_id", "controller_id", "controller_epoch")
                )
            )
            .collect()
        ]
        ids = sorted({fact["cluster_id"] for fact in facts if fact["cluster_id"]})
        if self.config.cluster_id is None and len(ids) > 1:
            raise PipelineError(f"inputs of several clusters: {', '.join(ids)} (cluster_id says which it is)")
        newest = max(facts, key=lambda fact: fact["controller_epoch"] or 0, default={})
        epoch = _first(self.config.controller_epoch, newest.get("controller_epoch"))
        if epoch is None:
            highest = self.partitions.agg(sf.max("controller_epoch")).first()
            epoch = max(0, (highest[0] if highest is not None else None) or 0)
        kept = self.partitions.select("topic").distinct()
        deleting = (
            self.judged.filter(sf.col("first") & sf.col("merged.deleting"))
            .select("topic")
            .distinct()
            .collect()
        )
        cluster = {
            "cluster_id": _first(self.config.cluster_id, *ids, ""),
            "controller_id": _first(self.config.controller_id, newest.get("controller_id"), -1),
            "controller_epoch": epoch,
            # A state of its own: row versions of the inputs say nothing of it.
            "state_id": uuid4().hex,
            "state_version": 0,
            "brokers_version": 0,
        }
        begun = self.flags["deletion_in_progress"]
        if begun:
            begun = [row[0] for row in kept.filter(sf.col("topic").isin(begun)).collect()]
        live = {row[0] for row in self.brokers.select("id").collect()}
        lists = {
            "shutting_down": sorted(live.intersection(self.flags["shutting_down"])),
            "deleting": sorted(row[0] for row in deleting),
            "deletion_in_progress": sorted(begun),
        }
        return {**cluster, **{name: values for name, values in lists.items() if values}}

    def snapshot(self) -> Snapshot:
        """As ``tables.write_snapshot`` takes it."""
        return Snapshot(self.partitions, self.brokers, self.cluster())

    def counts(self) -> dict[str, int]:
        """in, taken, refused (items), partitions. Raises PipelineError when an item has got lost."""
        read = {row["kind"]: row["count"] for row in self.items.groupBy("kind").count().collect()}
        told: dict[str, dict[str, int]] = {kind: {} for kind in read}
        for row in self.accounts.collect():
            for name in ("taken", "refused"):
                account = told.setdefault(row["kind"], {})
                account[name] = account.get(name, 0) + row[name]
        for kind, items in sorted(read.items()):
            taken, refused = told[kind].get("taken", 0), told[kind].get("refused", 0)
            if taken + refused != items:
                raise PipelineError(f"{kind}: {items} items were read, {taken} taken and {refused} refused")
        made = (
            self.judged.filter("first")
            .agg(sf.count("*").alias("rows"), sf.sum("sources").alias("items"))
            .first()
        )
        taken = self.judged.filter((sf.col("about") == About.PARTITION) & (sf.size("reasons") == 0)).count()
        assert made is not None
        if (made["items"] or 0) != taken:
            raise PipelineError(
                f"{taken} items about partitions were taken, {made['items'] or 0} are in partitions"
            )
        return {
            "in": sum(read.values()),
            "taken": sum(account.get("taken", 0) for account in told.values()),
            "refused": sum(account.get("refused", 0) for account in told.values()),
            "partitions": made["rows"],
        }

    def close(self) -> None:
        """Forget what was read."""
        self.judged.unpersist()
        self.items.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ingest(spark: SparkSession, config: IngestConfig) -> Ingested:
    """Raises PipelineError or SnapshotError for inputs that are not there or that are no such thing."""
    # Frozen: a plan that is used many times over had better be small.
    items = frozen(spark, checked(_items(spark, config))).persist(StorageLevel.DISK_ONLY)
    single = sf.col("about").isin(About.BROKER, About.CLUSTER)
    # What names no topic has nothing to be compared with.
    loose = ~single & sf.col("topic").isNull()
    flags = _flags(spark, config)
    small = judge_single(items.filter(single))
    brokers = _brokers(spark, config, small, items)
    around = _around(config, small, brokers, items, flags["shutting_down"])
    of_topics = items.filter(~single & ~loose).join(_shared_ids(items), "topic", "left")
    of_topics = judge_partitions(of_topics, around, whole_topics=config.whole_topics)
    judged = of_topics
    for others in (small, items.filter(loose)):
        judged = judged.unionByName(others, allowMissingColumns=True)
    judged = frozen(spark, judged).persist(StorageLevel.DISK_ONLY)
    refused = sf.size("reasons") > 0
    return Ingested(
        partitions=_partitions(judged),
        brokers=brokers,
        rejects=judged.filter(refused)
        .withColumn("reason", sf.array_join("reasons", "; "))
        .select(*_REJECTS)
        .orderBy("file", "row", "partition"),
        accounts=judged.groupBy("kind", "about")
        .agg(
            sf.count("*").alias("items"),
            sf.count(sf.when(~refused, 1)).alias("taken"),
            sf.count(sf.when(refused, 1)).alias("refused"),
        )
        .orderBy("kind", "about"),
        config=config,
        items=items,
        judged=judged,
        flags=flags,
    )


def _items(spark: SparkSession, config: IngestConfig) -> DataFrame:
    readers = (
        (snapshot_items, config.snapshots),
        (describe_items, config.describe),
        (json_items, config.rows),
        (reassignment_items, config.reassignments),
        (zookeeper_items, config.zookeeper),
    )
    found = [read(spark, paths) for read, paths in readers if paths]
    if not found:
        raise PipelineError("nothing to read: no input was named")
    whole = found[0]
    for more in found[1:]:
        whole = whole.unionByName(more)
    return whole


def _flags(spark: SparkSession, config: IngestConfig) -> dict[str, list[Any]]:
    """What snapshots alone tell: brokers that shut down, topics whose deletion has begun."""
    flags: dict[str, list[Any]] = {"shutting_down": [], "deletion_in_progress": []}
    for path in config.snapshots:
        cluster = read_snapshot(spark, path).cluster
        for name, values in flags.items():
            values += cluster.get(name) or []
    return flags


def _sound_partitions(items: DataFrame) -> DataFrame:
    return items.filter((sf.col("about") == About.PARTITION) & (sf.size("reasons") == 0))


def _brokers(spark: SparkSession, config: IngestConfig, small: DataFrame, items: DataFrame) -> DataFrame:
    schema = from_arrow_schema(BROKERS)
    if config.brokers is not None:
        brokers_from(config.brokers)
        rows = [
            (
                broker.id,
                broker.epoch,
                broker.rack,
                [(one.listener, one.security_protocol.name, one.host, one.port) for one in broker.endpoints],
            )
            for broker in config.brokers
        ]
        return spark.createDataFrame(rows, schema)
    told = (
        small.filter((sf.col("about") == About.BROKER) & (sf.size("reasons") == 0))
        .groupBy("key")
        .agg(sf.first("broker").alias("broker"))
        .select("broker.*")
    )
    leader = sf.when(sf.col("leader") != NO_LEADER, sf.array("leader")).otherwise(
        sf.array().cast("array<bigint>")
    )
    seen = (
        _sound_partitions(items)
        .select(
            sf.explode(sf.concat(leader, sf.coalesce("isr", sf.array().cast("array<bigint>")))).alias("id")
        )
        .distinct()
        .select(
            "id",
            sf.lit(-1).alias("epoch"),
            sf.lit(None).cast("string").alias("rack"),
            sf.array().cast(told.schema["endpoints"].dataType).alias("endpoints"),
        )
        # Only where nobody tells of brokers.
        .crossJoin(sf.broadcast(told.agg(sf.count("*").alias("told"))))
        .filter(sf.col("told") == 0)
        .drop("told")
    )
    return told.unionByName(seen).select(
        *(sf.col(one.name).cast(one.dataType.simpleString()).alias(one.name) for one in schema)
    )


def _around(
    config: IngestConfig, small: DataFrame, brokers: DataFrame, items: DataFrame, shutting_down: Sequence[int]
) -> DataFrame:
    """What partitions are judged by; see ``judge_partitions``."""
    none = sf.array().cast("array<bigint>")
    named = (
        _sound_partitions(items)
        .select(
            sf.explode(
                sf.concat(sf.coalesce("replicas", none), sf.array(sf.coalesce("leader", sf.lit(NO_LEADER))))
            ).alias("id")
        )
        .filter(sf.col("id") >= 0)
        .distinct()
    )
    absent = named.join(
        sf.broadcast(brokers.select(sf.col("id").cast("bigint").alias("id"))), "id", "left_anti"
    )
    epoch = small.filter(sf.size("reasons") == 0).agg(sf.max("cluster.controller_epoch").alias("found"))
    given = sf.lit(config.controller_epoch).cast("bigint")
    leaving = sf.array(*map(sf.lit, shutting_down)).cast("array<bigint>")
    return (
        absent.agg(sf.collect_set("id").alias("absent"))
        .crossJoin(epoch)
        .select(
            "absent",
            sf.array_union("absent", leaving).alias("offline"),
            sf.coalesce(given, "found").alias("cluster_epoch"),
        )
    )


def _shared_ids(items: DataFrame) -> DataFrame:
    """(topic, another topic of the same id)."""
    topics = (
        items.filter((sf.size("reasons") == 0) & sf.col("topic_id").isNotNull() & sf.col("topic").isNotNull())
        .groupBy("topic_id")
        .agg(
            sf.min("topic").alias("first"),
            sf.max("topic").alias("last"),
            sf.collect_set("topic").alias("topics"),
        )
        .filter(sf.col("first") != sf.col("last"))
    )
    return (
        topics.select("first", "last", sf.explode("topics").alias("topic"))
        .groupBy("topic")
        .agg(
            sf.min(
                sf.when(sf.col("first") == sf.col("topic"), sf.col("last")).otherwise(sf.col("first"))
            ).alias("sharer")
        )
    )


def _partitions(judged: DataFrame) -> DataFrame:
    merged = [name for name in PARTITIONS.names if name not in ("topic", "partition")]
    columns: dict[str, Column] = {name: sf.col(f"merged.{name}") for name in merged}
    columns |= {name: sf.col(name) for name in ("topic", "partition")}
    kinds = {one.name: one.dataType.simpleString() for one in from_arrow_schema(PARTITIONS)}
    return judged.filter("first").select(
        *(columns[name].cast(kinds[name]).alias(name) for name in PARTITIONS.names)
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
