"""``ingest``: descriptions of a cluster -> a snapshot of the valid rows, and rejects with their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan.closing import Closing
from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.ingest.config import IngestConfig
from ctrlchan.pipeline.jobs.ingest.describe import describe_entries
from ctrlchan.pipeline.jobs.ingest.entries import About, array_of, check_values
from ctrlchan.pipeline.jobs.ingest.json_rows import json_entries, reassignment_entries
from ctrlchan.pipeline.jobs.ingest.single import SINGLE_COLUMNS, SingleEntries, broker_row
from ctrlchan.pipeline.jobs.ingest.snapshots import snapshot_entries
from ctrlchan.pipeline.jobs.ingest.validation import ClusterFacts, validate_partitions, validate_single
from ctrlchan.pipeline.jobs.ingest.zookeeper import zookeeper_entries
from ctrlchan.pipeline.spark.kept import collected, kept_on_disk
from ctrlchan.pipeline.spark.tables import Snapshot, require_snapshot
from ctrlchan.state import Broker
from ctrlchan.state.brokers import brokers_from
from ctrlchan.state.storage.schemas import BROKERS, PARTITIONS
from ctrlchan.storage import path_of

__all__ = ["Ingested", "ingest"]

_REJECTS: Final = ("kind", "file", "row", "topic", "partition", "reason", "text")


@dataclass(frozen=True)
class Ingested(Closing):
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
    #: kind -> entries that were read.
    read: Mapping[str, int] = field(repr=False)
    single: SingleEntries = field(repr=False)
    flags: dict[str, Any] = field(repr=False)

    def cluster(self) -> dict[str, Any]:
        """Return the content of ``cluster.json``. Raises PipelineError for inputs of several clusters.

        Of several controllers the one with the highest epoch is taken.
        """
        facts = self.single.cluster_facts()
        ids = sorted({fact["cluster_id"] for fact in facts if fact["cluster_id"]})
        if self.config.cluster_id is None and len(ids) > 1:
            raise PipelineError(
                f"inputs of several clusters: {', '.join(ids)} (option cluster_id chooses one)"
            )
        newest = max(facts, key=lambda fact: fact["controller_epoch"] or 0, default={})
        totals = self._totals
        highest = max((row["epoch"] for row in totals if row["epoch"] is not None), default=0)
        cluster = {
            "cluster_id": _first(self.config.cluster_id, *ids, ""),
            "controller_id": _first(self.config.controller_id, newest.get("controller_id"), -1),
            "controller_epoch": _first(
                self.config.controller_epoch, newest.get("controller_epoch"), max(0, highest)
            ),
            # A new state: the row versions of the inputs do not apply to it.
            "state_id": uuid4().hex,
            "state_version": 0,
            "brokers_version": 0,
        }
        begun = self.flags["deletion_in_progress"]
        if begun:
            kept = self.partitions.select("topic").filter(sf.col("topic").isin(begun)).distinct()
            begun = [row[0] for row in kept.collect()]
        leaving = self.flags["shutting_down"]
        live = {row[0] for row in self.brokers.select("id").collect()} if leaving else set()
        lists = {
            "shutting_down": sorted(live.intersection(leaving)),
            "deleting": sorted({topic for row in totals for topic in row["deleting"]}),
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
        taken: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for row in self._totals:
            taken[row["kind"]] += row["taken"]
            refused[row["kind"]] += row["refused"]
        for kind, entries in sorted(self.read.items()):
            if taken[kind] + refused[kind] != entries:
                raise PipelineError(
                    f"{kind}: {entries} entries were read, {taken[kind]} taken and {refused[kind]} refused"
                )
        about_partitions = sum(row["taken"] for row in self._totals if row["about"] == About.PARTITION)
        made = sum(row["sources"] or 0 for row in self._totals)
        if made != about_partitions:
            raise PipelineError(
                f"{about_partitions} entries about partitions were taken, {made} are in partitions"
            )
        return {
            "in": sum(self.read.values()),
            "taken": taken.total(),
            "refused": refused.total(),
            "partitions": sum(row["partitions"] for row in self._totals),
            "topics": sum(row["topics"] for row in self._totals),
        }

    @cached_property
    def _totals(self) -> list[Row]:
        """One row for each kind and subject: what was taken and refused, and what it made."""
        made = sf.col("first")
        return (
            self.validated.groupBy("kind", "about")
            .agg(
                sf.count_if(_taken()).alias("taken"),
                sf.count_if(~_taken()).alias("refused"),
                sf.count_if(made).alias("partitions"),
                sf.sum(sf.when(made, sf.col("sources"))).alias("sources"),
                sf.count_if(made & sf.col("lowest")).alias("topics"),
                sf.max(sf.when(made, sf.col("merged.controller_epoch"))).alias("epoch"),
                sf.collect_set(sf.when(made & sf.col("merged.deleting"), sf.col("topic"))).alias("deleting"),
            )
            .collect()
        )

    def close(self) -> None:
        """Delete the entries from the executors' disks."""
        self.validated.unpersist()
        self.entries.unpersist()


def ingest(spark: SparkSession, config: IngestConfig) -> Ingested:
    """Read all inputs and return the valid rows and the rejects.

    Raises PipelineError or SnapshotError for inputs that do not exist or are of another kind.
    """
    # The plan is used many times, so it must be small.
    entries = kept_on_disk(check_values(_entries(spark, config)))
    about_one = sf.col("about").isin(About.BROKER, About.CLUSTER)
    # Entries without a topic are compared with nothing.
    loose = ~about_one & sf.col("topic").isNull()
    numbers = entries.groupBy("kind", about_one.alias("single"), loose.alias("loose")).count().collect()
    read: Counter[str] = Counter()
    for row in numbers:
        read[row["kind"]] += row["count"]
    flags = _flags(config)
    others: list[DataFrame] = []
    single = SingleEntries([])
    if any(row["single"] for row in numbers):
        others.append(collected(validate_single(entries.filter(about_one))))
        single = SingleEntries(others[0].select(*SINGLE_COLUMNS).toArrow().to_pylist())
    if any(row["loose"] for row in numbers):
        others.append(entries.filter(loose))
    ids = _broker_ids(entries)
    brokers = _brokers(config, single, ids)
    live = {broker["id"] for broker in brokers}
    absent = ids.keys() - live
    facts = ClusterFacts(
        absent=sorted(absent),
        offline=sorted(absent.union(flags["shutting_down"])),
        epoch=_first(config.controller_epoch, single.controller_epoch()),
    )
    of_topics = _with_sharers(entries.filter(~about_one & ~loose))
    validated = validate_partitions(of_topics, facts, whole_topics=config.whole_topics)
    for more in others:
        validated = validated.unionByName(more, allowMissingColumns=True)
    validated = kept_on_disk(validated)
    return Ingested(
        partitions=_partitions(validated),
        brokers=spark.createDataFrame(pa.Table.from_pylist(brokers, BROKERS), from_arrow_schema(BROKERS)),
        rejects=validated.filter(~_taken())
        .withColumn("reason", sf.array_join("reasons", "; "))
        .select(*_REJECTS)
        # A row may have several: their order is the same in every run.
        .orderBy("file", "row", "partition", "topic", "reason", "kind", "text"),
        accounts=validated.groupBy("kind", "about")
        .agg(
            sf.count("*").alias("entries"),
            sf.count_if(_taken()).alias("taken"),
            sf.count_if(~_taken()).alias("refused"),
        )
        .orderBy("kind", "about"),
        config=config,
        entries=entries,
        validated=validated,
        read=read,
        single=single,
        flags=flags,
    )


def _taken() -> Column:
    return sf.size("reasons") == 0


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


def _flags(config: IngestConfig) -> dict[str, list[Any]]:
    """Return the facts that only snapshots have: brokers that shut down, topics whose deletion has begun."""
    flags: dict[str, list[Any]] = {"shutting_down": [], "deletion_in_progress": []}
    for path in config.snapshots:
        cluster = require_snapshot(path_of(path))[1]
        for name, values in flags.items():
            values += cluster.get(name) or []
    return flags


def _valid_partitions(entries: DataFrame) -> DataFrame:
    return entries.filter((sf.col("about") == About.PARTITION) & _taken())


def _broker_ids(entries: DataFrame) -> dict[int, bool]:
    """Return the ids of all brokers that valid partitions name -> whether it leads one or is in sync."""
    none = array_of()
    replicas = sf.struct(sf.lit(False).alias("in_sync"), sf.coalesce("replicas", none).alias("ids"))
    in_sync = sf.concat(sf.coalesce("isr", none), sf.array("leader"))
    both = sf.explode(sf.array(replicas, sf.struct(sf.lit(True).alias("in_sync"), in_sync.alias("ids"))))
    found = (
        _valid_partitions(entries)
        .select(both.alias("list"))
        .select("list.in_sync", sf.explode("list.ids").alias("id"))
        # A leader may be missing or not known.
        .filter(sf.col("id") >= 0)
        .groupBy("id")
        .agg(sf.bool_or("in_sync").alias("in_sync"))
    )
    return {row["id"]: row["in_sync"] for row in found.collect()}


def _brokers(config: IngestConfig, single: SingleEntries, ids: Mapping[int, bool]) -> list[dict[str, Any]]:
    """Return the rows of the live brokers: given, described, or those that lead or are in sync."""
    if config.brokers is not None:
        brokers_from(config.brokers)
        return [broker_row(broker) for broker in config.brokers]
    return single.brokers() or [broker_row(Broker(one)) for one, in_sync in sorted(ids.items()) if in_sync]


def _with_sharers(entries: DataFrame) -> DataFrame:
    """Add ``sharer``: another topic with the same id."""
    spark = entries.sparkSession
    named = _taken() & sf.col("topic_id").isNotNull() & sf.col("topic").isNotNull()
    shared = (
        entries.filter(named)
        .groupBy("topic_id")
        .agg(
            sf.min("topic").alias("first"),
            sf.max("topic").alias("last"),
            sf.collect_set("topic").alias("topics"),
        )
        .filter(sf.col("first") != sf.col("last"))
        .select("first", "last", "topics")
        .collect()
    )
    sharers: dict[str, str] = {}
    for first, last, topics in shared:
        for topic in topics:
            other = last if topic == first else first
            sharers[topic] = min(other, sharers.get(topic, other))
    if not sharers:
        return entries.withColumn("sharer", sf.lit(None).cast("string"))
    rows = pa.table({"topic": list(sharers), "sharer": list(sharers.values())})
    return entries.join(sf.broadcast(spark.createDataFrame(rows)), "topic", "left")


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
