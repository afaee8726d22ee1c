"""``diff``: two snapshots -> the smallest set of control requests that leads from the old one to the new one.

In: the old snapshot, which the brokers have received, and the new one. Out: rows of LeaderAndIsr,
UpdateMetadata and StopReplica. No row repeats what its receiver has; equal snapshots give no rows.
``ctrlchan.state.storage.schemas`` describes the columns.

Kafka's rules (``ControllerBrokerRequestBatch``, ``ReplicaStateMachine``, ``TopicDeletionManager`` and
``KafkaController`` of 3.9):

- A **LeaderAndIsr** row goes to the live replicas of a partition if its leader epoch has risen, if the
  replica is new (``is_new``) or if the topic's id becomes known. A broker that is new or has restarted gets
  a row for every partition that it holds. Other changes are not sent: a broker rejects a leader epoch that
  it has, and a leader receives a change of its ISR by AlterPartition. ``undeliverable`` counts the changes
  that brokers would reject.
- An **UpdateMetadata** row goes to all live brokers if a column of it has changed. Brokers that are new or
  have restarted get all rows. Partitions that were removed, and topics newly queued for deletion, get leader
  -2. If only the live brokers have changed, the request has no rows.
- A **StopReplica** row goes to live brokers that no longer hold a replica (``delete``), or whose topic is
  being deleted; and, without ``delete``, to brokers that begin to shut down, for partitions that they follow.
  A topic that was deleted and created again is stopped before any other request for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.diff.config import DiffConfig
from ctrlchan.pipeline.jobs.diff.events import comparisons, events_of, undeliverable_changes
from ctrlchan.pipeline.jobs.diff.steps import MetadataScope, Step
from ctrlchan.pipeline.spark.tables import Snapshot, gathered, read_snapshot
from ctrlchan.protocol import LEADER_DURING_DELETE, NO_BROKER_EPOCH
from ctrlchan.state.storage.schemas import BROKERS, DIFF_ROWS, PARTITIONS
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Diff", "diff", "diff_snapshots"]


_CLUSTER: Final = ("cluster_id", "controller_id", "controller_epoch", "state_id", "state_version")
_LISTS: Final = ("isr", "replicas", "adding_replicas", "removing_replicas", "offline_replicas")
_KEY: Final = ("topic", "partition")
_VALUES: Final = tuple(name for name in PARTITIONS.names if name not in _KEY)


@dataclass(frozen=True)
class Diff:
    """Result of ``diff``.

    - ``rows``: ``DIFF_ROWS``, in no particular order. ``brokers``: the receivers, ``DIFF_BROKERS``.
    - ``cluster``: cluster_id, controller_id, controller_epoch and, if the new snapshot has them, state_id and
      state_version; from_version is the old snapshot's, if both are of one state.
    - ``undeliverable``: topic and partition of changes that no broker accepts: another leader or other
      replicas without a higher leader epoch. None for a diff that was read from disk.
    """

    rows: DataFrame
    brokers: DataFrame
    cluster: dict[str, Any]
    undeliverable: DataFrame | None = None

    def per_broker(self) -> DataFrame:
        """Return ``rows`` with UpdateMetadata repeated for each receiver: partitions x brokers rows."""
        shared = sf.col("broker").isNull()
        receivers = self.brokers.select(sf.col("id").alias("receiver"), "update_metadata")
        metadata = (
            self.rows.filter(shared)
            .crossJoin(sf.broadcast(receivers))
            .filter(sf.col("changed") | (sf.col("update_metadata") == MetadataScope.ALL))
            .withColumn("broker", sf.col("receiver"))
            .select(*DIFF_ROWS.names)
        )
        return self.rows.filter(~shared).unionByName(metadata)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each API, of brokers, and of brokers that get all rows."""
        rows = {
            row["api"]: row["rows"]
            for row in self.rows.groupBy("api").agg(sf.count("*").alias("rows")).collect()
        }
        scopes = {
            row["update_metadata"]: row["count"]
            for row in self.brokers.groupBy("update_metadata").count().collect()
        }
        return {
            "leader_and_isr_rows": rows.get(LEADER_AND_ISR, 0),
            "update_metadata_rows": rows.get(UPDATE_METADATA, 0),
            "stop_replica_rows": rows.get(STOP_REPLICA, 0),
            "brokers": sum(scopes.values()),
            "brokers_with_all_rows": scopes.get(MetadataScope.ALL, 0),
        }


def diff(spark: SparkSession, config: DiffConfig) -> Diff:
    """Raises SnapshotError for a folder that cannot be read, PipelineError for snapshots of two clusters."""
    return diff_snapshots(read_snapshot(spark, config.old), read_snapshot(spark, config.new))


def diff_snapshots(old: Snapshot, new: Snapshot) -> Diff:
    """As ``diff``, of what has been read already."""
    ids = [snapshot.cluster["cluster_id"] for snapshot in (old, new)]
    if ids[0] != ids[1]:
        raise PipelineError(f"snapshots of two clusters: {ids[0]!r} and {ids[1]!r}")
    receivers = _receivers(old, new)
    pairs = (
        _marked(old, "old")
        .join(_marked(new, "new"), list(_KEY), "full_outer")
        .crossJoin(
            sf.broadcast(
                receivers.agg(
                    sf.coalesce(sf.max("new_generation"), sf.lit(False)).alias("any_new_generation")
                )
            )
        )
        .select(*_KEY, "old", "new", "any_new_generation", *comparisons())
    )
    return Diff(
        rows=_rows(pairs, old, new, receivers),
        brokers=_with_scopes(receivers, old, new),
        cluster=_cluster(old, new),
        undeliverable=pairs.filter(undeliverable_changes()).select(*_KEY),
    )


def _cluster(old: Snapshot, new: Snapshot) -> dict[str, Any]:
    cluster: dict[str, Any] = {name: new.cluster[name] for name in _CLUSTER if name in new.cluster}
    state_id = new.cluster.get("state_id")
    if state_id is not None and state_id == old.cluster.get("state_id") and "state_version" in old.cluster:
        cluster["from_version"] = old.cluster["state_version"]
    return cluster


# -- brokers


def _receivers(old: Snapshot, new: Snapshot) -> DataFrame:
    """Return the new snapshot's brokers; ``new_generation``: the old snapshot has no such generation."""
    before = old.brokers.select(
        sf.col("id").alias("old_id"),
        sf.col("epoch").alias("old_epoch"),
        _endpoints().alias("old_endpoints"),
        sf.col("rack").alias("old_rack"),
    )
    same = (sf.col("epoch") == sf.col("old_epoch")) & (
        # Registrations without an epoch are distinguished by their addresses, as in the channel.
        (sf.col("epoch") != NO_BROKER_EPOCH) | (_endpoints() == sf.col("old_endpoints"))
    )
    return new.brokers.join(sf.broadcast(before), sf.col("id") == sf.col("old_id"), "left").withColumn(
        "new_generation", ~sf.coalesce(same, sf.lit(False))
    )


def _endpoints() -> Column:
    return sf.array_sort(
        sf.transform(
            "endpoints",
            lambda one: sf.struct(
                *(one[name].alias(name) for name in ("listener", "security_protocol", "host", "port"))
            ),
        )
    )


def _with_scopes(receivers: DataFrame, old: Snapshot, new: Snapshot) -> DataFrame:
    """Return ``DIFF_BROKERS``. If a live broker came, went, moved or changed its rack, all get the list."""
    was, now = (
        snapshot.brokers.agg(
            sf.array_sort(sf.collect_list(sf.struct("id", _endpoints().alias("endpoints"), "rack"))).alias(
                name
            )
        )
        for snapshot, name in ((old, "was"), (new, "now"))
    )
    changed = was.crossJoin(now).select((sf.col("was") != sf.col("now")).alias("brokers_changed"))
    scope = (
        sf.when(sf.col("new_generation"), sf.lit(MetadataScope.ALL))
        .when(sf.col("brokers_changed"), sf.lit(MetadataScope.BROKERS))
        .otherwise(sf.lit(MetadataScope.ROWS))
    )
    return receivers.crossJoin(sf.broadcast(changed)).select(*BROKERS.names, scope.alias("update_metadata"))


# -- partitions


def _marked(snapshot: Snapshot, side: str) -> DataFrame:
    """Return (topic, partition, a struct named ``side`` of the row's columns and flags of its topic)."""
    return gathered(snapshot.partitions).select(
        *_KEY,
        sf.struct(
            *_VALUES,
            _listed(snapshot.cluster.get("deleting", [])).alias("deleting"),
            _listed(snapshot.cluster.get("deletion_in_progress", [])).alias("stopping"),
        ).alias(side),
    )


def _listed(topics: Sequence[str]) -> Column:
    return sf.col("topic").isin(list(topics)) if topics else sf.lit(False)


def _rows(pairs: DataFrame, old: Snapshot, new: Snapshot, receivers: DataFrame) -> DataFrame:
    """Return a row for each event of a partition and live receiver that does not have it."""
    leaving = set(new.cluster.get("shutting_down", [])) - set(old.cluster.get("shutting_down", []))
    live = receivers.select(sf.col("id").alias("broker"), "new_generation", sf.lit(True).alias("live"))
    events = (
        pairs.select(*_KEY, "old", "new", sf.explode(events_of(leaving)).alias("event"))
        .select(*_KEY, "old", "new", "event.*")
        .join(sf.broadcast(live), "broker", "left")
        .filter(
            sf.col("broker").isNull()
            | sf.col("new_generation")
            | (sf.col("live") & ~sf.col("only_new_generations"))
        )
    )
    # A removed partition has the id of its topic, if the topic exists.
    current_ids = gathered(new.partitions).groupBy("topic").agg(sf.max("topic_id").alias("current_id"))
    events = events.join(current_ids, "topic", "left")
    metadata = sf.col("step") == Step.UPDATE_METADATA
    gone, deleting = metadata & sf.col("gone"), metadata & sf.col("during_delete")
    side = sf.when(sf.col("former"), sf.col("old")).otherwise(sf.col("new"))
    empty = sf.array().cast("array<int>")
    values: dict[str, Column] = {name: side[name] for name in _VALUES}
    values["topic_id"] = sf.when(gone, sf.coalesce("current_id", sf.lit(ZERO_ID))).otherwise(
        values["topic_id"]
    )
    values["controller_epoch"] = sf.when(gone, sf.lit(max(new.cluster["controller_epoch"], 0))).otherwise(
        values["controller_epoch"]
    )
    values["leader"] = sf.when(gone | deleting, sf.lit(LEADER_DURING_DELETE)).otherwise(values["leader"])
    values["leader_epoch"] = sf.when(gone | deleting, sf.lit(0)).otherwise(
        sf.coalesce("stop_epoch", values["leader_epoch"])
    )
    values["partition_epoch"] = sf.when(gone | deleting, sf.lit(0)).otherwise(values["partition_epoch"])
    for name in _LISTS:
        values[name] = sf.when(gone, empty).otherwise(values[name])
    chosen = {
        **{
            name: sf.col(name)
            for name in (*_KEY, "step", "api", "broker", "changed", "gone", "is_new", "delete")
        },
        **values,
    }
    kinds = from_arrow_schema(DIFF_ROWS)
    return events.select(
        *(chosen[one.name].cast(one.dataType.simpleString()).alias(one.name) for one in kinds)
    )
