"""What has changed in each partition, and the events that follow: Spark expressions of ``old`` and ``new``.

``old`` and ``new`` are structs of a partition's columns in both snapshots; null where it does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.pipeline.jobs.diff.steps import Step
from ctrlchan.protocol import EPOCH_DURING_DELETE
from ctrlchan.state.new_rows import NO_LEADERSHIP
from ctrlchan.topic_names import ZERO_ID

__all__ = ["comparisons", "events_of", "undeliverable_changes"]

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


def comparisons() -> list[Column]:
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
        return side.isNotNull() & (side["leader_epoch"] != NO_LEADERSHIP)

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


def undeliverable_changes() -> Column:
    """Return whether leader or replicas differ in a way that no broker accepts."""
    known = sf.col("hosted") & sf.col("holds") & ~sf.col("recreated") & ~sf.col("epoch_risen")
    return known & sf.col("assignment_differs")


def events_of(leaving: set[int]) -> Column:
    """Return each partition's events: an array of structs, empty for most.

    ``leaving``: ids of brokers that begin to shut down.
    """
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
    goes = sf.col("new").isNull() | (new["leader_epoch"] == NO_LEADERSHIP)
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
    wanted = sf.col("recreated") & (old["leader_epoch"] != NO_LEADERSHIP)
    return _each(
        wanted,
        old["replicas"],
        lambda broker: _event(
            Step.STOP_FORMER,
            STOP_REPLICA,
            broker,
            former=sf.lit(True),
            delete=sf.lit(True),
            stop_epoch=sf.lit(EPOCH_DURING_DELETE),
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
    known = sf.coalesce(old["leader_epoch"] != NO_LEADERSHIP, sf.lit(False)) | sf.coalesce(
        stopping & (new["leader_epoch"] != NO_LEADERSHIP), sf.lit(False)
    )
    epoch = sf.when(
        new.isNull() | sf.coalesce(new["deleting"] | new["stopping"], sf.lit(False)),
        sf.lit(EPOCH_DURING_DELETE),
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
