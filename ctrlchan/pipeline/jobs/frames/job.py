"""``frames``: a snapshot, or a difference of two, -> wire frames of each broker, encoded on executors.

Executors pack rows by receiver (``columns``, ``packed_rows``). A shuffle brings the packed rows of a broker
together, and a task makes frames of them (``encoder``). All brokers share the rows of UpdateMetadata: one
task encodes each part once for each version, and every task that makes frames gets the encoded parts. Spark
does the relational work; Python handles batches, never single rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import numpy as np
from pyspark.sql.functions import broadcast, col, lit

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.diff.steps import MetadataScope
from ctrlchan.pipeline.jobs.frames.columns import LEADER_AND_ISR_COLUMNS, UPDATE_METADATA_COLUMNS
from ctrlchan.pipeline.jobs.frames.config import FramesConfig
from ctrlchan.pipeline.jobs.frames.encoder import FrameEncoder
from ctrlchan.pipeline.jobs.frames.tasks import (
    PACKED,
    SHARED,
    PackedRows,
    Plan,
    encoding_shared,
    making_frames,
    pack_by_receiver,
    pack_shared,
    packing_by_replica,
)
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.pipeline.spark.remote import parallelism
from ctrlchan.pipeline.spark.tables import Frames, Snapshot
from ctrlchan.protocol import API_NAMES, RECOVERY_STATE_SINCE, request_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["frames"]

_FRAME: Final = (
    "broker int, sequence long, api short, version short, controller_epoch int, state_version long, "
    "rows long, bytes long, from_version long, frame binary"
)
#: LeaderAndIsr carries the leader recovery state from here on (KIP-704).
#: Tasks that make frames, for each core: a small task that is lost is soon run again.
_TASKS_PER_CORE: Final = 4


def frames(spark: SparkSession, source: Snapshot | Difference, config: FramesConfig | None = None) -> Frames:
    """Return the frames for every broker of the source that a channel with these settings would send.

    Frames have the order in which a broker must get them. Of a snapshot that is Kafka's order at failover:
    UpdateMetadata of the live brokers, LeaderAndIsr, UpdateMetadata of the partitions (a broker without
    LeaderAndIsr gets the last alone); of a difference the order of ``schemas.DIFF_ROWS``. One partition for
    each task, ascending by (broker, sequence). Partitions without leadership are left out, as in Kafka;
    LeaderAndIsr has no topic whose deletion has begun. Lazy, except the table of brokers, which is read here.

    Raises PipelineError if there is no broker. Wrong rows (SnapshotError) and values that a version cannot
    carry (EncodeError, UnsupportedVersionError) raise when the frames are made.
    """
    config = config or FramesConfig()
    about = source.cluster
    brokers = source.brokers.toArrow().combine_chunks()
    epoch = about["controller_epoch"] if config.controller_epoch is None else config.controller_epoch
    encoder = FrameEncoder(
        channel=config.channel(about["controller_id"]),
        controller_epoch=epoch,
        brokers=pack(brokers),
        protocols=config.broker_protocols,
        deleting=frozenset(about.get("deleting", ()) if isinstance(source, Snapshot) else ()),
        from_version=about.get("from_version"),
        source=about.get("cluster_id") or "snapshot",
    )
    ids = sorted(cast("list[int]", brokers.column("id").to_pylist()))
    if not ids:
        raise PipelineError("there are no brokers to make frames for")
    scopes: dict[int, str] = {}
    if isinstance(source, Snapshot):
        rows = _of_snapshot(source, config)
        updated = ids if API_NAMES[UPDATE_METADATA] in config.apis else []
    else:
        columns = (brokers.column(name).to_pylist() for name in ("id", "update_metadata"))
        scopes = dict(zip(*columns, strict=True))
        rows = _of_diff(source)
        updated = ids
    count = config.tasks or _TASKS_PER_CORE * parallelism(spark)
    plan = Plan(
        [part.tolist() for part in np.array_split(np.array(ids), min(count, len(ids)))],
        {
            one: (
                encoder.version(one, UPDATE_METADATA),
                scopes.get(one, MetadataScope.ALL) == MetadataScope.ALL,
            )
            for one in updated
        },
        scopes,
    )
    return Frames(
        _frames_of(spark, encoder, plan, rows, about.get("state_version")),
        source.brokers,
        {
            "dataset": str(uuid.uuid4()),
            "cluster_id": about.get("cluster_id", ""),
            "controller_id": encoder.channel.controller_id,
            "controller_epoch": epoch,
            "client_id": encoder.channel.client_id_bytes.decode(),
            "inter_broker_protocol": config.inter_broker_protocol,
            "source": "snapshot" if isinstance(source, Snapshot) else "diff",
            **{name: about[name] for name in ("state_id", "state_version") if name in about},
        },
    )


class Difference(Protocol):
    """A difference of two snapshots, as ``diff`` makes it.

    - ``rows``: rows of requests, with ``step``, ``api`` and ``broker`` (UpdateMetadata: null, once for all).
    - ``brokers``: the receivers, with the ``MetadataScope`` of each in ``update_metadata``.
    - ``cluster``: diff.json.
    """

    @property
    def rows(self) -> DataFrame: ...
    @property
    def brokers(self) -> DataFrame: ...
    @property
    def cluster(self) -> dict[str, Any]: ...


class _Rows(NamedTuple):
    """Rows of each kind, or None where there are none.

    ``by_replicas``: rows whose replicas get a LeaderAndIsr. ``by_brokers``: rows with ``broker`` and
    ``step``. ``shared``: rows for UpdateMetadata.
    """

    by_replicas: DataFrame | None
    by_brokers: DataFrame | None
    shared: DataFrame | None


def _of_snapshot(snapshot: Snapshot, config: FramesConfig) -> _Rows:
    known = snapshot.partitions.where(col("leader_epoch") >= 0)
    leaders = None
    if API_NAMES[LEADER_AND_ISR] in config.apis:
        leaders = known
        if stopped := snapshot.cluster.get("deletion_in_progress"):
            # Brokers have deleted these replicas, and would make them again.
            leaders = leaders.where(~col("topic").isin(list(stopped)))
        if request_versions(config.inter_broker_protocol).leader_and_isr < RECOVERY_STATE_SINCE:
            # As in the batch: a controller of an older IBP does not set the recovery state.
            leaders = leaders.withColumn("recovery_state", lit(0))
    return _Rows(leaders, None, known if API_NAMES[UPDATE_METADATA] in config.apis else None)


def _of_diff(diff: Difference) -> _Rows:
    return _Rows(
        None,
        diff.rows.where(col("api") != UPDATE_METADATA),
        diff.rows.where(col("api") == UPDATE_METADATA),
    )


def _frames_of(
    spark: SparkSession, encoder: FrameEncoder, plan: Plan, rows: _Rows, state_version: int | None
) -> DataFrame:
    """Return the frames: one partition for each slot of the plan, ascending by (broker, sequence)."""
    slot_of = {broker: slot for slot, brokers in enumerate(plan.slots) for broker in brokers}
    packed: list[DataFrame] = []
    if rows.by_replicas is not None:
        pack_replicas = packing_by_replica(np.array(plan.brokers, np.int32))
        packed.append(rows.by_replicas.select(*LEADER_AND_ISR_COLUMNS).mapInArrow(pack_replicas, PACKED))
    if rows.by_brokers is not None:
        packed.append(rows.by_brokers.mapInArrow(pack_by_receiver, PACKED))
    slotted = [_with_slot(spark, one, slot_of) for one in packed]
    if plan.updates:
        slotted.append(_shared_parts(spark, encoder, plan, rows.shared, slot_of))
    if not slotted:
        return spark.createDataFrame([], _FRAME)
    everything = slotted[0]
    for one in slotted[1:]:
        everything = everything.unionByName(one)
    return (
        everything.repartitionById(len(plan.slots), "slot")
        .sortWithinPartitions("broker", "step", "version", "whole", "source", "batch")
        .mapInArrow(making_frames(encoder, plan, state_version), _FRAME)
    )


def _with_slot(spark: SparkSession, packed: DataFrame, slot_of: Mapping[int, int]) -> DataFrame:
    slots = spark.createDataFrame(list(slot_of.items()), "broker int, slot int")
    return packed.join(broadcast(slots), "broker")


def _shared_parts(
    spark: SparkSession,
    encoder: FrameEncoder,
    plan: Plan,
    shared: DataFrame | None,
    slot_of: Mapping[int, int],
) -> DataFrame:
    """Return each encoded part, once for each slot with a broker that gets it."""
    # One row always exists: without partitions the live brokers are still sent.
    seed = spark.createDataFrame([PackedRows(SHARED, 0, source=-1, batch=-1)], PACKED)
    if shared is not None:
        columns = [name for name in (*UPDATE_METADATA_COLUMNS, "gone", "changed") if name in shared.columns]
        seed = seed.unionByName(shared.select(*columns).mapInArrow(pack_shared, PACKED))
    receivers = {(slot_of[broker], *update) for broker, update in plan.updates.items()}
    wanted = spark.createDataFrame(sorted(receivers), "slot int, version int, whole boolean")
    return (
        seed.repartition(1)
        .sortWithinPartitions("source", "batch")
        .mapInArrow(encoding_shared(encoder, plan.selections), PACKED)
        .join(broadcast(wanted), ["version", "whole"])
    )
