"""Two snapshots -> the least set of control requests that makes every broker know the second one.

In: what brokers were told (the old snapshot) and what is (the new one). Out: rows of LeaderAndIsr,
UpdateMetadata and StopReplica; no row says what its receiver knows already, and equal snapshots give none.
``ctrlchan.state.storage.schemas`` says what the columns mean.

Kafka's rules (``ControllerBrokerRequestBatch``, ``ReplicaStateMachine``, ``TopicDeletionManager`` and
``KafkaController`` of 3.9):

- A **LeaderAndIsr** row goes to the live replicas of a partition whose leader epoch has risen, to those that
  are new for it (``is_new``), to those that learn the topic's id, and, of every partition they hold, to
  brokers that are new or have restarted. A broker refuses a leader epoch that it has, and a leader learns a
  change of its ISR by AlterPartition, so other changes are not sent; ``untold`` counts those that brokers
  cannot learn.
- An **UpdateMetadata** row goes to all live brokers when anything in it has changed; those that are new, or
  have restarted, are told everything. Partitions that are no more, and topics newly queued for deletion, are
  told as leader -2. A change of the live brokers alone is a request without rows.
- A **StopReplica** row goes to live brokers that hold a replica no longer (``delete``), or of a topic whose
  deletion has begun; to those that begin to shut down for what they follow (no ``delete``). A topic that was
  deleted and made again is stopped before anything else is said of it.
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
from ctrlchan.pipeline.spark.tables import Snapshot, read_snapshot
from ctrlchan.state.storage.schemas import BROKERS, DIFF_ROWS, PARTITIONS
from ctrlchan.topic_names import ZERO_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Diff", "Step", "Told", "diff", "diff_snapshots"]

_NO_LEADERSHIP: Final = -1
_LEADER_DURING_DELETE: Final = -2
#: ``LeaderAndIsr.EPOCH_DURING_DELETE`` and ``NO_EPOCH``: what StopReplica says where there is no epoch.
_EPOCH_DURING_DELETE: Final = -2
_NO_EPOCH: Final = -1
_NO_BROKER_EPOCH: Final = -1


class Step:
    """The order of a broker's requests."""

    STOP_FORMER: Final = 0
    LEADER_AND_ISR: Final = 1
    UPDATE_METADATA: Final = 2
    STOP_REPLICA: Final = 3


class Told:
    """What a receiver is told by UpdateMetadata."""

    #: Every row: it is new, or a new generation.
    ALL: Final = "all"
    #: The rows that have changed, perhaps none: the live brokers are news.
    BROKERS: Final = "brokers"
    #: The rows that have changed; nothing when there are none.
    ROWS: Final = "rows"


_CLUSTER: Final = ("cluster_id", "controller_id", "controller_epoch", "state_id", "state_version")
#: What an UpdateMetadata row says of a partition.
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
#: What a broker can learn of its own replica by LeaderAndIsr only; ISR and epochs a leader knows otherwise.
_ASSIGNED: Final = ("leader", "replicas", "adding_replicas", "removing_replicas")
_LISTS: Final = ("isr", "replicas", "adding_replicas", "removing_replicas", "offline_replicas")
_KEY: Final = ("topic", "partition")
_VALUES: Final = tuple(name for name in PARTITIONS.names if name not in _KEY)


@dataclass(frozen=True)
class Diff:
    """``rows``: of ``DIFF_ROWS``, in no particular order. ``brokers``: the receivers, of ``DIFF_BROKERS``.

    ``cluster``: cluster_id, controller_id, controller_epoch and, where the new snapshot has them, state_id
    and state_version; from_version is the old one's where both are of one state. ``untold``: topic and
    partition of what differs in a way that no broker accepts, leader or replicas without a higher leader
    epoch; None for a diff that was read.
    """

    rows: DataFrame
    brokers: DataFrame
    cluster: dict[str, Any]
    untold: DataFrame | None = None

    def per_broker(self) -> DataFrame:
        """``rows`` with UpdateMetadata repeated for each broker that is told it: partitions x brokers."""
        shared = sf.col("broker").isNull()
        told = self.brokers.select(sf.col("id").alias("receiver"), "told")
        metadata = (
            self.rows.filter(shared)
            .crossJoin(sf.broadcast(told))
            .filter(sf.col("changed") | (sf.col("told") == Told.ALL))
            .withColumn("broker", sf.col("receiver"))
            .select(*DIFF_ROWS.names)
        )
        return self.rows.filter(~shared).unionByName(metadata)

    def counts(self) -> dict[str, int]:
        """Rows of each API, brokers, and how many of these are told everything."""
        rows = {
            row["api"]: row["rows"]
            for row in self.rows.groupBy("api").agg(sf.count("*").alias("rows")).collect()
        }
        told = {
            row["told"]: row["brokers"]
            for row in self.brokers.groupBy("told").agg(sf.count("*").alias("brokers")).collect()
        }
        return {
            "leader_and_isr_rows": rows.get(LEADER_AND_ISR, 0),
            "update_metadata_rows": rows.get(UPDATE_METADATA, 0),
            "stop_replica_rows": rows.get(STOP_REPLICA, 0),
            "brokers": sum(told.values()),
            "brokers_told_everything": told.get(Told.ALL, 0),
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
            sf.broadcast(receivers.agg(sf.coalesce(sf.max("fresh"), sf.lit(False)).alias("any_fresh")))
        )
        .select(*_KEY, "old", "new", "any_fresh", *_comparisons())
    )
    return Diff(
        rows=_rows(pairs, old, new, receivers),
        brokers=_told(receivers, old, new),
        cluster=_cluster(old, new),
        untold=pairs.filter(_untold()).select(*_KEY),
    )


def _cluster(old: Snapshot, new: Snapshot) -> dict[str, Any]:
    cluster: dict[str, Any] = {name: new.cluster[name] for name in _CLUSTER if name in new.cluster}
    state_id = new.cluster.get("state_id")
    if state_id is not None and state_id == old.cluster.get("state_id") and "state_version" in old.cluster:
        cluster["from_version"] = old.cluster["state_version"]
    return cluster


# -- brokers


def _receivers(old: Snapshot, new: Snapshot) -> DataFrame:
    """The new snapshot's brokers; ``fresh``: a generation that the old one does not know."""
    before = old.brokers.select(
        sf.col("id").alias("old_id"),
        sf.col("epoch").alias("old_epoch"),
        _endpoints().alias("old_endpoints"),
        sf.col("rack").alias("old_rack"),
    )
    same = (sf.col("epoch") == sf.col("old_epoch")) & (
        # Registrations without an epoch are told apart by their addresses, as the channel does.
        (sf.col("epoch") != _NO_BROKER_EPOCH) | (_endpoints() == sf.col("old_endpoints"))
    )
    return new.brokers.join(sf.broadcast(before), sf.col("id") == sf.col("old_id"), "left").withColumn(
        "fresh", ~sf.coalesce(same, sf.lit(False))
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


def _told(receivers: DataFrame, old: Snapshot, new: Snapshot) -> DataFrame:
    """``DIFF_BROKERS``: one live broker that came, went, moved or changed its rack is news to all others."""
    was, now = (
        snapshot.brokers.agg(
            sf.array_sort(sf.collect_list(sf.struct("id", _endpoints().alias("endpoints"), "rack"))).alias(
                name
            )
        )
        for snapshot, name in ((old, "was"), (new, "now"))
    )
    news = was.crossJoin(now).select((sf.col("was") != sf.col("now")).alias("news"))
    told = (
        sf.when(sf.col("fresh"), sf.lit(Told.ALL))
        .when(sf.col("news"), sf.lit(Told.BROKERS))
        .otherwise(sf.lit(Told.ROWS))
    )
    return receivers.crossJoin(sf.broadcast(news)).select(*BROKERS.names, told.alias("told"))


# -- partitions


def _marked(snapshot: Snapshot, side: str) -> DataFrame:
    """(topic, partition, a struct named ``side``): the row's columns, and what holds of its topic."""
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
    """What became of each partition, as flags.

    ``hosted``: brokers were told to hold its replicas, and not to stop. ``holds``: they are to hold them.
    ``reborn``: another topic of the same name. ``risen``: its replicas will take a LeaderAndIsr. ``knew``
    and ``knows``: clients were, and are, to see it. ``same_metadata``: and see no difference.
    """
    old, new = sf.col("old"), sf.col("new")
    zero = sf.lit(ZERO_ID)

    def differs(names: Sequence[str]) -> Column:
        return sf.struct(*(old[name] for name in names)) != sf.struct(*(new[name] for name in names))

    def present(side: Column) -> Column:
        return side.isNotNull() & (side["leader_epoch"] != _NO_LEADERSHIP)

    hosted = present(old) & ~old["stopping"]
    reborn = (old["topic_id"] != new["topic_id"]) & (old["topic_id"] != zero) & (new["topic_id"] != zero)
    learns_id = (old["topic_id"] == zero) & (new["topic_id"] != zero)
    flags = {
        "hosted": hosted,
        "holds": present(new) & ~new["stopping"],
        "reborn": reborn,
        "risen": (new["leader_epoch"] > old["leader_epoch"]) | learns_id,
        "knew": present(old) & ~old["deleting"],
        "knows": present(new) & ~new["deleting"],
        "same_metadata": ~differs(_METADATA),
        "assigned_otherwise": differs(_ASSIGNED),
    }
    return [sf.coalesce(flag, sf.lit(False)).alias(name) for name, flag in flags.items()]


def _untold() -> Column:
    known = sf.col("hosted") & sf.col("holds") & ~sf.col("reborn") & ~sf.col("risen")
    return known & sf.col("assigned_otherwise")


def _rows(pairs: DataFrame, old: Snapshot, new: Snapshot, receivers: DataFrame) -> DataFrame:
    """One event for each (partition, receiver); then the receivers that are not live are left out, and those
    that know it already."""
    live = receivers.select(sf.col("id").alias("broker"), "fresh", sf.lit(True).alias("live"))
    events = (
        pairs.select(*_KEY, "old", "new", sf.explode(_events(old, new)).alias("event"))
        .select(*_KEY, "old", "new", "event.*")
        .join(sf.broadcast(live), "broker", "left")
        .filter(sf.col("broker").isNull() | sf.col("fresh") | (sf.col("live") & ~sf.col("if_fresh")))
    )
    # A gone partition stands under the id of its topic, when the topic lives on.
    living = new.partitions.groupBy("topic").agg(sf.max("topic_id").alias("living_id"))
    events = events.join(living, "topic", "left")
    metadata = sf.col("step") == Step.UPDATE_METADATA
    gone, dying = metadata & sf.col("gone"), metadata & sf.col("during_delete")
    side = sf.when(sf.col("former"), sf.col("old")).otherwise(sf.col("new"))
    empty = sf.array().cast("array<int>")
    values: dict[str, Column] = {name: side[name] for name in _VALUES}
    values["topic_id"] = sf.when(gone, sf.coalesce("living_id", sf.lit(ZERO_ID))).otherwise(
        values["topic_id"]
    )
    values["controller_epoch"] = sf.when(gone, sf.lit(max(new.cluster["controller_epoch"], 0))).otherwise(
        values["controller_epoch"]
    )
    values["leader"] = sf.when(gone | dying, sf.lit(_LEADER_DURING_DELETE)).otherwise(values["leader"])
    values["leader_epoch"] = sf.when(gone | dying, sf.lit(0)).otherwise(
        sf.coalesce("stop_epoch", values["leader_epoch"])
    )
    values["partition_epoch"] = sf.when(gone | dying, sf.lit(0)).otherwise(values["partition_epoch"])
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
    """Each partition's events: an array of structs, empty for most."""
    leaving = set(new.cluster.get("shutting_down", [])) - set(old.cluster.get("shutting_down", []))
    return sf.concat(
        _stop_former(), _leader_and_isr(), _update_metadata(), _stop_replica(), _stop_followers(leaving)
    )


def _event(step: int, api: int, broker: Column, **fields: Column) -> Column:
    """``if_fresh``: only to a broker that is new. ``former``: the row is the old snapshot's."""
    no = sf.lit(False)
    return sf.struct(
        sf.lit(step).alias("step"),
        sf.lit(api).cast("smallint").alias("api"),
        broker.cast("int").alias("broker"),
        fields.get("stop_epoch", sf.lit(None)).cast("int").alias("stop_epoch"),
        fields.get("changed", sf.lit(True)).alias("changed"),
        *(
            fields.get(name, no).alias(name)
            for name in ("if_fresh", "former", "gone", "during_delete", "is_new", "delete")
        ),
    )


def _none() -> Column:
    """No events, of the type that events have."""
    return sf.filter(sf.array(_event(0, 0, sf.lit(None))), lambda _: sf.lit(False))


def _each(wanted: Column, brokers: Column, event: Callable[[Column], Column]) -> Column:
    return sf.when(wanted, sf.transform(brokers, event)).otherwise(_none())


def _leader_and_isr() -> Column:
    old, new = sf.col("old"), sf.col("new")
    begins = ~sf.col("hosted") | sf.col("reborn")

    def event(broker: Column) -> Column:
        joins = begins | ~sf.array_contains(old["replicas"], broker)
        return _event(
            Step.LEADER_AND_ISR,
            LEADER_AND_ISR,
            broker,
            is_new=joins,
            if_fresh=~(joins | sf.col("risen")),
        )

    grown = (
        sf.size(sf.array_except(new["replicas"], sf.coalesce(old["replicas"], sf.array().cast("array<int>"))))
        > 0
    )
    wanted = sf.col("holds") & (begins | sf.col("risen") | grown | sf.col("any_fresh"))
    return _each(wanted, new["replicas"], event)


def _update_metadata() -> Column:
    new = sf.col("new")
    knew, knows = sf.col("knew"), sf.col("knows")
    changed = ~(knew & sf.col("same_metadata"))
    told = _event(Step.UPDATE_METADATA, UPDATE_METADATA, sf.lit(None), changed=changed)
    goes = sf.col("new").isNull() | (new["leader_epoch"] == _NO_LEADERSHIP)
    forgotten = _event(
        Step.UPDATE_METADATA,
        UPDATE_METADATA,
        sf.lit(None),
        gone=goes,
        during_delete=~goes,
        former=new.isNull(),
    )
    return (
        sf.when(knows & (changed | sf.col("any_fresh")), sf.array(told))
        .when(knew & ~knows, sf.array(forgotten))
        .otherwise(_none())
    )


def _stop_former() -> Column:
    """The replicas of a topic that was deleted and made again."""
    old = sf.col("old")
    wanted = sf.col("reborn") & (old["leader_epoch"] != _NO_LEADERSHIP)
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
            if_fresh=old["stopping"],
        ),
    )


def _stop_replica() -> Column:
    """Replicas that were taken away, and those of topics whose deletion has begun."""
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
        known & ~sf.col("reborn"),
        sf.array_except(held, kept),
        lambda broker: _event(
            Step.STOP_REPLICA,
            STOP_REPLICA,
            broker,
            former=new.isNull(),
            delete=sf.lit(True),
            stop_epoch=epoch,
            if_fresh=sf.coalesce(old["stopping"], sf.lit(False)),
        ),
    )


def _stop_followers(leaving: set[int]) -> Column:
    """What brokers that begin to shut down follow (``KafkaController.doControlledShutdown``)."""
    new = sf.col("new")
    wanted = sf.col("holds") & sf.col("knows") & (sf.size(new["replicas"]) > 1)
    followers = sf.filter(
        new["replicas"], lambda broker: broker.isin(sorted(leaving)) & (broker != new["leader"])
    )
    return _each(
        wanted if leaving else sf.lit(False),
        followers,
        lambda broker: _event(Step.STOP_REPLICA, STOP_REPLICA, broker, stop_epoch=new["leader_epoch"]),
    )
