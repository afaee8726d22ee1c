"""``frames``: a snapshot, or a difference of two, -> ready wire frames of each broker, encoded on executors.

An executor sorts what it reads by receiver and packs it into parcels (``columns``), Arrow rows in one cell; a
shuffle brings a broker's parcels together, and there they become frames (``encoding``). What an
UpdateMetadata says is the same for all brokers: its rows go to one task, which encodes each part once for
each version, and the encoded parts go to every task that makes frames. Spark does what is relational; Python
sees batches and parcels, never a row.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import numpy as np
from pyspark.sql.functions import broadcast, col, lit

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.jobs.diff.job import Told
from ctrlchan.pipeline.jobs.frames.columns import LEADER_AND_ISR_COLUMNS, UPDATE_METADATA_COLUMNS
from ctrlchan.pipeline.jobs.frames.config import FramesConfig
from ctrlchan.pipeline.jobs.frames.encoder import FrameEncoder
from ctrlchan.pipeline.jobs.frames.tasks import (
    SHARED,
    Plan,
    encoding_shared,
    making_frames,
    pack_by_receiver,
    pack_shared,
    packing_by_replica,
)
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.pipeline.spark.tables import Frames, Snapshot
from ctrlchan.protocol import API_NAMES, request_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["frames"]

#: A parcel on its way to the task that makes its broker's frames: rows of one broker (``source`` and
#: ``batch``: where they were read, so that they come in their old order), or an encoded part for all
#: (``source``: its number).
_PARCEL: Final = (
    "broker int, step int, source int, batch int, version int, whole boolean, rows long, data binary"
)
_FRAME: Final = (
    "broker int, sequence long, api short, version short, controller_epoch int, state_version long, "
    "rows long, bytes long, from_version long, frame binary"
)
#: LeaderAndIsr carries the leader recovery state from here on (KIP-704).
_RECOVERY_STATE_SINCE: Final = 6
#: Tasks that make frames, for each core: small enough that one that is lost is soon made again.
_TASKS_PER_CORE: Final = 4


def frames(spark: SparkSession, source: Snapshot | Difference, config: FramesConfig | None = None) -> Frames:
    """Frames for every broker of the source, as one channel with these settings would send them.

    In the order in which a broker has to get them: LeaderAndIsr before UpdateMetadata; of a difference, as
    ``schemas.DIFF_ROWS`` says. One partition for each task, ascending by (broker, sequence). Partitions
    without leadership are left out, as Kafka leaves them out. Lazy, but for the table of brokers, which is
    read here.

    Raises PipelineError where there is no broker. What is wrong with rows (SnapshotError) or with values that
    a version cannot carry (EncodeError, UnsupportedVersionError) is told when the frames are made.
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
    told: dict[int, str] = {}
    if isinstance(source, Snapshot):
        rows = _of_snapshot(source, config)
        updated = ids if API_NAMES[UPDATE_METADATA] in config.apis else []
    else:
        told = {one["id"]: one["told"] for one in brokers.select(["id", "told"]).to_pylist()}
        rows = _of_diff(source)
        updated = ids
    count = config.tasks or _TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    plan = Plan(
        [part.tolist() for part in np.array_split(np.array(ids), min(count, len(ids)))],
        {
            one: (encoder.version(one, UPDATE_METADATA), told.get(one, Told.ALL) == Told.ALL)
            for one in updated
        },
        told,
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
    """What ``ctrlchan pipeline diff`` makes.

    ``rows``: one for each thing to be told, with its ``step``, ``api`` and ``broker`` (UpdateMetadata: null,
    once for all). ``brokers``: the receivers, and in ``told`` which UpdateMetadata each gets. ``cluster``:
    diff.json.
    """

    @property
    def rows(self) -> DataFrame: ...
    @property
    def brokers(self) -> DataFrame: ...
    @property
    def cluster(self) -> dict[str, Any]: ...


class _Rows(NamedTuple):
    """``by_replicas``: rows whose replicas get a LeaderAndIsr. ``by_brokers``: rows that name ``broker`` and
    ``step``. ``shared``: rows for UpdateMetadata. None: there are none of the kind."""

    by_replicas: DataFrame | None
    by_brokers: DataFrame | None
    shared: DataFrame | None


def _of_snapshot(snapshot: Snapshot, config: FramesConfig) -> _Rows:
    known = snapshot.partitions.where(col("leader_epoch") >= 0)
    leaders = None
    if API_NAMES[LEADER_AND_ISR] in config.apis:
        leaders = known
        if request_versions(config.inter_broker_protocol).leader_and_isr < _RECOVERY_STATE_SINCE:
            # As the batch: a controller of an older IBP does not set the recovery state at all.
            leaders = known.withColumn("recovery_state", lit(0))
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
    """One partition for each slot of the plan, each ascending by (broker, sequence)."""
    slot_of = {broker: slot for slot, brokers in enumerate(plan.slots) for broker in brokers}
    parcels: list[DataFrame] = []
    if rows.by_replicas is not None:
        pack_replicas = packing_by_replica(np.array(plan.brokers, np.int32))
        parcels.append(rows.by_replicas.select(*LEADER_AND_ISR_COLUMNS).mapInArrow(pack_replicas, _PARCEL))
    if rows.by_brokers is not None:
        parcels.append(rows.by_brokers.mapInArrow(pack_by_receiver, _PARCEL))
    slotted = [_with_slot(spark, one, slot_of) for one in parcels]
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


def _with_slot(spark: SparkSession, parcels: DataFrame, slot_of: Mapping[int, int]) -> DataFrame:
    slots = spark.createDataFrame(list(slot_of.items()), "broker int, slot int")
    return parcels.join(broadcast(slots), "broker")


def _shared_parts(
    spark: SparkSession,
    encoder: FrameEncoder,
    plan: Plan,
    shared: DataFrame | None,
    slot_of: Mapping[int, int],
) -> DataFrame:
    """Each encoded part, once for each slot that has a broker for it."""
    # One row that is always there: without rows there is still to be told who lives.
    seed = spark.createDataFrame([(SHARED, 0, -1, -1, 0, False, 0, None)], _PARCEL)
    if shared is not None:
        columns = [name for name in (*UPDATE_METADATA_COLUMNS, "gone", "changed") if name in shared.columns]
        seed = seed.unionByName(shared.select(*columns).mapInArrow(pack_shared, _PARCEL))
    receivers = {(slot_of[broker], *update) for broker, update in plan.updates.items()}
    wanted = spark.createDataFrame(sorted(receivers), "slot int, version int, whole boolean")
    return (
        seed.repartition(1)
        .sortWithinPartitions("source", "batch")
        .mapInArrow(encoding_shared(encoder, plan.selections), _PARCEL)
        .join(broadcast(wanted), ["version", "whole"])
    )
