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
from ctrlchan.pipeline.jobs.diff.steps import MetadataScope, Step
from ctrlchan.pipeline.spark.tables import Snapshot, read_snapshot
from ctrlchan.state.storage.schemas import BROKERS, DIFF_ROWS, PARTITIONS
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Diff", "diff", "diff_snapshots"]

_NO_LEADERSHIP: Final = -1
_LEADER_DURING_DELETE: Final = -2
#: ``LeaderAndIsr.EPOCH_DURING_DELETE`` and ``NO_EPOCH``: in a StopReplica without a leader epoch.
_EPOCH_DURING_DELETE: Final = -2
_NO_EPOCH: Final = -1
_NO_BROKER_EPOCH: Final = -1


_CLUSTER: Final = ("cluster_id", "controller_id", "controller_epoch", "state_id", "state_version")
#: Columns of an UpdateMetadata row.
_METADATA: Final = (
    "topic_id",
    "controller_epoch",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "isr",
    "replicas",
    "offline_replicas",
)
#: A broker receives these columns for its own replicas by LeaderAndIsr only; ISR and epochs also otherwise.
_ASSIGNED: Final = ("leader", "replicas", "adding_replicas", "removing_replicas")
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
        .select(*_KEY, "old", "new", "any_new_generation", *_comparisons())
    )
    return Diff(
        rows=_rows(pairs, old, new, receivers),
        brokers=_with_scopes(receivers, old, new),
        cluster=_cluster(old, new),
        undeliverable=pairs.filter(_undeliverable()).select(*_KEY),
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
        (sf.col("epoch") != _NO_BROKER_EPOCH) | (_endpoints() == sf.col("old_endpoints"))
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
    return snapshot.partitions.select(
        *_KEY,
        sf.struct(
            *_VALUES,
            _listed(snapshot.cluster.get("deleting", [])).alias("deleting"),
            _listed(snapshot.cluster.get("deletion_in_progress", [])).alias("stopping"),
        ).alias(side),
    )


def _listed(topics: Sequence[str]) -> Column:
    return sf.col("topic").isin(list(topics)) if topics else sf.lit(False)


def _comparisons() -> list[Column]:
    """Return flags of what has changed in each partition.

    - ``hosted``: brokers have received LeaderAndIsr for it, and no StopReplica. ``holds``: they are to hold
      it.
    - ``recreated``: another topic of the same name. ``epoch_risen``: its replicas will take a LeaderAndIsr.
    - ``had_metadata``, ``has_metadata``: clients saw it, and are to see it. ``same_metadata``: unchanged.
    """
    old, new = sf.col("old"), sf.col("new")
    zero = sf.lit(ZERO_ID)

    def differs(names: Sequence[str]) -> Column:
        return sf.struct(*(old[name] for name in names)) != sf.struct(*(new[name] for name in names))

    def present(side: Column) -> Column:
        return side.isNotNull() & (side["leader_epoch"] != _NO_LEADERSHIP)

    hosted = present(old) & ~old["stopping"]
    recreated = (old["topic_id"] != new["topic_id"]) & (old["topic_id"] != zero) & (new["topic_id"] != zero)
    learns_id = (old["topic_id"] == zero) & (new["topic_id"] != zero)
    flags = {
        "hosted": hosted,
        "holds": present(new) & ~new["stopping"],
        "recreated": recreated,
        "epoch_risen": (new["leader_epoch"] > old["leader_epoch"]) | learns_id,
        "had_metadata": present(old) & ~old["deleting"],
        "has_metadata": present(new) & ~new["deleting"],
        "same_metadata": ~differs(_METADATA),
        "assignment_differs": differs(_ASSIGNED),
    }
    return [sf.coalesce(flag, sf.lit(False)).alias(name) for name, flag in flags.items()]


def _undeliverable() -> Column:
    known = sf.col("hosted") & sf.col("holds") & ~sf.col("recreated") & ~sf.col("epoch_risen")
    return known & sf.col("assignment_differs")


def _rows(pairs: DataFrame, old: Snapshot, new: Snapshot, receivers: DataFrame) -> DataFrame:
    """Return a row for each event of a partition and live receiver that does not have it."""
    live = receivers.select(sf.col("id").alias("broker"), "new_generation", sf.lit(True).alias("live"))
    events = (
        pairs.select(*_KEY, "old", "new", sf.explode(_events(old, new)).alias("event"))
        .select(*_KEY, "old", "new", "event.*")
        .join(sf.broadcast(live), "broker", "left")
        .filter(
            sf.col("broker").isNull()
            | sf.col("new_generation")
            | (sf.col("live") & ~sf.col("only_new_generations"))
        )
    )
    # A removed partition has the id of its topic, if the topic exists.
    current_ids = new.partitions.groupBy("topic").agg(sf.max("topic_id").alias("current_id"))
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
    values["leader"] = sf.when(gone | deleting, sf.lit(_LEADER_DURING_DELETE)).otherwise(values["leader"])
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


def _events(old: Snapshot, new: Snapshot) -> Column:
    """Return each partition's events: an array of structs, empty for most."""
    leaving = set(new.cluster.get("shutting_down", [])) - set(old.cluster.get("shutting_down", []))
    return sf.concat(
        _stop_former(), _leader_and_isr(), _update_metadata(), _stop_replica(), _stop_followers(leaving)
    )


def _event(step: int, api: int, broker: Column, **fields: Column) -> Column:
    """Return one event. ``only_new_generations``: for new brokers only. ``former``: of the old snapshot."""
    no = sf.lit(False)
    return sf.struct(
        sf.lit(step).alias("step"),
        sf.lit(api).cast("smallint").alias("api"),
        broker.cast("int").alias("broker"),
        fields.get("stop_epoch", sf.lit(None)).cast("int").alias("stop_epoch"),
        fields.get("changed", sf.lit(True)).alias("changed"),
        *(
            fields.get(name, no).alias(name)
            for name in ("only_new_generations", "former", "gone", "during_delete", "is_new", "delete")
        ),
    )


def _none() -> Column:
    """Return an empty array of events."""
    return sf.filter(sf.array(_event(0, 0, sf.lit(None))), lambda _: sf.lit(False))


def _each(wanted: Column, brokers: Column, event: Callable[[Column], Column]) -> Column:
    return sf.when(wanted, sf.transform(brokers, event)).otherwise(_none())


def _leader_and_isr() -> Column:
    old, new = sf.col("old"), sf.col("new")
    begins = ~sf.col("hosted") | sf.col("recreated")

    def event(broker: Column) -> Column:
        joins = begins | ~sf.array_contains(old["replicas"], broker)
        return _event(
            Step.LEADER_AND_ISR,
            LEADER_AND_ISR,
            broker,
            is_new=joins,
            only_new_generations=~(joins | sf.col("epoch_risen")),
        )

    grown = (
        sf.size(sf.array_except(new["replicas"], sf.coalesce(old["replicas"], sf.array().cast("array<int>"))))
        > 0
    )
    wanted = sf.col("holds") & (begins | sf.col("epoch_risen") | grown | sf.col("any_new_generation"))
    return _each(wanted, new["replicas"], event)


def _update_metadata() -> Column:
    new = sf.col("new")
    had_metadata, has_metadata = sf.col("had_metadata"), sf.col("has_metadata")
    changed = ~(had_metadata & sf.col("same_metadata"))
    update = _event(Step.UPDATE_METADATA, UPDATE_METADATA, sf.lit(None), changed=changed)
    goes = sf.col("new").isNull() | (new["leader_epoch"] == _NO_LEADERSHIP)
    removal = _event(
        Step.UPDATE_METADATA,
        UPDATE_METADATA,
        sf.lit(None),
        gone=goes,
        during_delete=~goes,
        former=new.isNull(),
    )
    return (
        sf.when(has_metadata & (changed | sf.col("any_new_generation")), sf.array(update))
        .when(had_metadata & ~has_metadata, sf.array(removal))
        .otherwise(_none())
    )


def _stop_former() -> Column:
    """Return StopReplica events of a topic that was deleted and created again."""
    old = sf.col("old")
    wanted = sf.col("recreated") & (old["leader_epoch"] != _NO_LEADERSHIP)
    return _each(
        wanted,
        old["replicas"],
        lambda broker: _event(
            Step.STOP_FORMER,
            STOP_REPLICA,
            broker,
            former=sf.lit(True),
            delete=sf.lit(True),
            stop_epoch=sf.lit(_EPOCH_DURING_DELETE),
            only_new_generations=old["stopping"],
        ),
    )


def _stop_replica() -> Column:
    """Return StopReplica events of removed replicas, and of topics whose deletion has begun."""
    old, new = sf.col("old"), sf.col("new")
    none = sf.array().cast("array<int>")
    stopping = sf.coalesce(new["stopping"], sf.lit(False))
    kept = sf.when(stopping, none).otherwise(sf.coalesce(new["replicas"], none))
    held = sf.array_union(
        sf.coalesce(old["replicas"], none), sf.when(stopping, new["replicas"]).otherwise(none)
    )
    known = sf.coalesce(old["leader_epoch"] != _NO_LEADERSHIP, sf.lit(False)) | sf.coalesce(
        stopping & (new["leader_epoch"] != _NO_LEADERSHIP), sf.lit(False)
    )
    epoch = sf.when(
        new.isNull() | sf.coalesce(new["deleting"] | new["stopping"], sf.lit(False)),
        sf.lit(_EPOCH_DURING_DELETE),
    ).otherwise(new["leader_epoch"])
    return _each(
        known & ~sf.col("recreated"),
        sf.array_except(held, kept),
        lambda broker: _event(
            Step.STOP_REPLICA,
            STOP_REPLICA,
            broker,
            former=new.isNull(),
            delete=sf.lit(True),
            stop_epoch=epoch,
            only_new_generations=sf.coalesce(old["stopping"], sf.lit(False)),
        ),
    )


def _stop_followers(leaving: set[int]) -> Column:
    """Return StopReplica events of followers that begin to shut down (``doControlledShutdown``)."""
    new = sf.col("new")
    wanted = sf.col("holds") & sf.col("has_metadata") & (sf.size(new["replicas"]) > 1)
    followers = sf.filter(
        new["replicas"], lambda broker: broker.isin(sorted(leaving)) & (broker != new["leader"])
    )
    return _each(
        wanted if leaving else sf.lit(False),
        followers,
        lambda broker: _event(Step.STOP_REPLICA, STOP_REPLICA, broker, stop_epoch=new["leader_epoch"]),
    )
