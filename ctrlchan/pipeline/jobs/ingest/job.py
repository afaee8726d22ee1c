"""``ingest``: descriptions of a cluster -> a snapshot of the valid rows, and rejects with their reasons."""

from __future__ import annotations

from collections import Counter
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
from ctrlchan.pipeline.jobs.ingest.describe import describe_entries
from ctrlchan.pipeline.jobs.ingest.entries import About, check_values
from ctrlchan.pipeline.jobs.ingest.json_rows import json_entries, reassignment_entries
from ctrlchan.pipeline.jobs.ingest.snapshots import snapshot_entries
from ctrlchan.pipeline.jobs.ingest.validation import validate_partitions, validate_single
from ctrlchan.pipeline.jobs.ingest.zookeeper import zookeeper_entries
from ctrlchan.pipeline.spark.tables import Snapshot, gathered, read_snapshot
from ctrlchan.pipeline.spark.text_lines import frozen
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.brokers import brokers_from
from ctrlchan.state.storage.schemas import BROKERS, PARTITIONS

__all__ = ["Ingested", "ingest"]

_REJECTS: Final = ("kind", "file", "row", "topic", "partition", "reason", "text")


@dataclass(frozen=True)
class Ingested:
    """Result of ``ingest``. The entries stay on the executors' disks until ``close``.

    - ``partitions``, ``brokers``: a snapshot's columns.
    - ``rejects``: kind (of input), file, row (a line from 1; of Parquet and in a document from 0), topic,
      partition, reason, text.
    - ``accounts``: kind, about, entries, taken, refused. Several entries may make one partition.
    """

    partitions: DataFrame
    brokers: DataFrame
    rejects: DataFrame
    accounts: DataFrame
    config: IngestConfig
    entries: DataFrame = field(repr=False)
    validated: DataFrame = field(repr=False)
    flags: dict[str, Any] = field(repr=False)

    def cluster(self) -> dict[str, Any]:
        """Return the content of ``cluster.json``. Raises PipelineError for inputs of several clusters.

        Of several controllers the one with the highest epoch is taken.
        """
        facts = [
            row.asDict()
            for row in self.validated.filter((sf.col("about") == About.CLUSTER) & (sf.size("reasons") == 0))
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
            raise PipelineError(
                f"inputs of several clusters: {', '.join(ids)} (option cluster_id chooses one)"
            )
        newest = max(facts, key=lambda fact: fact["controller_epoch"] or 0, default={})
        of_partitions = (
            self.validated.filter("first")
            .agg(
                sf.max("merged.controller_epoch").alias("epoch"),
                sf.collect_set(sf.when(sf.col("merged.deleting"), sf.col("topic"))).alias("deleting"),
            )
            .first()
        )
        assert of_partitions is not None
        highest = max(0, of_partitions["epoch"] or 0)
        cluster = {
            "cluster_id": _first(self.config.cluster_id, *ids, ""),
            "controller_id": _first(self.config.controller_id, newest.get("controller_id"), -1),
            "controller_epoch": _first(self.config.controller_epoch, newest.get("controller_epoch"), highest),
            # A new state: the row versions of the inputs do not apply to it.
            "state_id": uuid4().hex,
            "state_version": 0,
            "brokers_version": 0,
        }
        begun = self.flags["deletion_in_progress"]
        if begun:
            kept = self.partitions.select("topic").filter(sf.col("topic").isin(begun)).distinct()
            begun = [row[0] for row in kept.collect()]
        live = {row[0] for row in self.brokers.select("id").collect()}
        lists = {
            "shutting_down": sorted(live.intersection(self.flags["shutting_down"])),
            "deleting": sorted(of_partitions["deleting"]),
            "deletion_in_progress": sorted(begun),
        }
        return {**cluster, **{name: values for name, values in lists.items() if values}}

    def snapshot(self) -> Snapshot:
        """Return the snapshot for ``write_snapshot``."""
        return Snapshot(self.partitions, self.brokers, self.cluster())

    def counts(self) -> dict[str, int]:
        """Return in, taken, refused (entries), partitions and topics.

        Raises PipelineError if an entry is lost.
        """
        read = {row["kind"]: row["count"] for row in self.entries.groupBy("kind").count().collect()}
        taken: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        about_partitions = 0
        for row in self.accounts.collect():
            taken[row["kind"]] += row["taken"]
            refused[row["kind"]] += row["refused"]
            about_partitions += row["taken"] if row["about"] == About.PARTITION else 0
        for kind, entries in sorted(read.items()):
            if taken[kind] + refused[kind] != entries:
                raise PipelineError(
                    f"{kind}: {entries} entries were read, {taken[kind]} taken and {refused[kind]} refused"
                )
        made = (
            self.validated.filter("first")
            .agg(
                sf.count("*").alias("rows"),
                sf.sum("sources").alias("entries"),
                sf.count_distinct("topic").alias("topics"),
            )
            .first()
        )
        assert made is not None
        if (made["entries"] or 0) != about_partitions:
            raise PipelineError(
                f"{about_partitions} entries about partitions were taken, "
                f"{made['entries'] or 0} are in partitions"
            )
        return {
            "in": sum(read.values()),
            "taken": taken.total(),
            "refused": refused.total(),
            "partitions": made["rows"],
            "topics": made["topics"],
        }

    def close(self) -> None:
        """Delete the entries from the executors' disks."""
        self.validated.unpersist()
        self.entries.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def ingest(spark: SparkSession, config: IngestConfig) -> Ingested:
    """Read all inputs and return the valid rows and the rejects.

    Raises PipelineError or SnapshotError for inputs that do not exist or are of another kind.
    """
    # Frozen: the plan is used many times, so it must be small.
    entries = gathered(frozen(spark, check_values(_entries(spark, config)))).persist(StorageLevel.DISK_ONLY)
    single = sf.col("about").isin(About.BROKER, About.CLUSTER)
    # Entries without a topic are compared with nothing.
    loose = ~single & sf.col("topic").isNull()
    flags = _flags(spark, config)
    small = validate_single(entries.filter(single))
    # Read now: each use of these small tables would run their plans again.
    brokers = _collected(_brokers(spark, config, small, entries))
    facts = _collected(_cluster_facts(config, small, brokers, entries, flags["shutting_down"]))
    of_topics = entries.filter(~single & ~loose).join(_shared_ids(entries), "topic", "left")
    of_topics = validate_partitions(of_topics, facts, whole_topics=config.whole_topics)
    validated = of_topics
    for others in (small, entries.filter(loose)):
        validated = validated.unionByName(others, allowMissingColumns=True)
    validated = gathered(frozen(spark, validated)).persist(StorageLevel.DISK_ONLY)
    refused = sf.size("reasons") > 0
    return Ingested(
        partitions=_partitions(validated),
        brokers=brokers,
        rejects=validated.filter(refused)
        .withColumn("reason", sf.array_join("reasons", "; "))
        .select(*_REJECTS)
        .orderBy("file", "row", "partition"),
        accounts=validated.groupBy("kind", "about")
        .agg(
            sf.count("*").alias("entries"),
            sf.count(sf.when(~refused, 1)).alias("taken"),
            sf.count(sf.when(refused, 1)).alias("refused"),
        )
        .orderBy("kind", "about"),
        config=config,
        entries=entries,
        validated=validated,
        flags=flags,
    )


def _entries(spark: SparkSession, config: IngestConfig) -> DataFrame:
    readers = (
        (snapshot_entries, config.snapshots),
        (describe_entries, config.describe),
        (json_entries, config.rows),
        (reassignment_entries, config.reassignments),
        (zookeeper_entries, config.zookeeper),
    )
    found = [read(spark, paths) for read, paths in readers if paths]
    if not found:
        raise PipelineError("no input is given")
    whole = found[0]
    for more in found[1:]:
        whole = whole.unionByName(more)
    return whole


def _flags(spark: SparkSession, config: IngestConfig) -> dict[str, list[Any]]:
    """Return the facts that only snapshots have: brokers that shut down, topics whose deletion has begun."""
    flags: dict[str, list[Any]] = {"shutting_down": [], "deletion_in_progress": []}
    for path in config.snapshots:
        cluster = read_snapshot(spark, path).cluster
        for name, values in flags.items():
            values += cluster.get(name) or []
    return flags


def _collected(table: DataFrame) -> DataFrame:
    """Return a small table whose rows are in the driver."""
    return table.sparkSession.createDataFrame(table.toArrow(), table.schema)


def _valid_partitions(entries: DataFrame) -> DataFrame:
    return entries.filter((sf.col("about") == About.PARTITION) & (sf.size("reasons") == 0))


def _brokers(spark: SparkSession, config: IngestConfig, small: DataFrame, entries: DataFrame) -> DataFrame:
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
    described = (
        small.filter((sf.col("about") == About.BROKER) & (sf.size("reasons") == 0))
        .groupBy("key")
        .agg(sf.first("broker").alias("broker"))
        .select("broker.*")
    )
    leader = sf.when(sf.col("leader") != NO_LEADER, sf.array("leader")).otherwise(
        sf.array().cast("array<bigint>")
    )
    seen = (
        _valid_partitions(entries)
        .select(
            sf.explode(sf.concat(leader, sf.coalesce("isr", sf.array().cast("array<bigint>")))).alias("id")
        )
        .distinct()
        .select(
            "id",
            sf.lit(-1).alias("epoch"),
            sf.lit(None).cast("string").alias("rack"),
            sf.array().cast(described.schema["endpoints"].dataType).alias("endpoints"),
        )
        # Only if no input describes a broker.
        .crossJoin(sf.broadcast(described.agg(sf.count("*").alias("described"))))
        .filter(sf.col("described") == 0)
        .drop("described")
    )
    return described.unionByName(seen).select(
        *(sf.col(one.name).cast(one.dataType.simpleString()).alias(one.name) for one in schema)
    )


def _cluster_facts(
    config: IngestConfig,
    small: DataFrame,
    brokers: DataFrame,
    entries: DataFrame,
    shutting_down: Sequence[int],
) -> DataFrame:
    """Return one row with the facts of the cluster that ``validate_partitions`` takes."""
    none = sf.array().cast("array<bigint>")
    named = (
        _valid_partitions(entries)
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


def _shared_ids(entries: DataFrame) -> DataFrame:
    """Return rows (topic, another topic with the same id)."""
    topics = (
        entries.filter(
            (sf.size("reasons") == 0) & sf.col("topic_id").isNotNull() & sf.col("topic").isNotNull()
        )
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


def _partitions(validated: DataFrame) -> DataFrame:
    merged = [name for name in PARTITIONS.names if name not in ("topic", "partition")]
    columns: dict[str, Column] = {name: sf.col(f"merged.{name}") for name in merged}
    columns |= {name: sf.col(name) for name in ("topic", "partition")}
    kinds = {one.name: one.dataType.simpleString() for one in from_arrow_schema(PARTITIONS)}
    return validated.filter("first").select(
        *(columns[name].cast(kinds[name]).alias(name) for name in PARTITIONS.names)
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
