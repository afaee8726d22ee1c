"""Functions of ``frames`` over Arrow batches, for ``mapInArrow``.

Rows are packed where they are read. The rows of UpdateMetadata are encoded in one task. The packed rows of a
broker and the encoded shared bodies become its frames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.pipeline.jobs.diff.steps import MetadataScope, Step
from ctrlchan.pipeline.jobs.frames.columns import (
    LEADER_AND_ISR_COLUMNS,
    STOP_REPLICA_COLUMNS,
    Int32,
    by_receiver,
    by_replica,
)
from ctrlchan.pipeline.jobs.frames.encoder import FrameEncoder, Part, SharedPart
from ctrlchan.pipeline.spark.packed_rows import pack
from ctrlchan.state.storage.arrow_columns import array_over

__all__ = [
    "PACKED",
    "SHARED",
    "BatchFunction",
    "PackedRows",
    "Plan",
    "encoding_shared",
    "making_frames",
    "pack_by_receiver",
    "pack_shared",
    "packing_by_replica",
]

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Stands for all brokers in place of an id. Sorts before every broker.
SHARED: Final = -1
#: The order of one broker's requests (``schemas.DIFF_ROWS``).
_API_OF_STEP: Final = {
    Step.STOP_FORMER: STOP_REPLICA,
    Step.LEADER_AND_ISR: LEADER_AND_ISR,
    Step.UPDATE_METADATA: UPDATE_METADATA,
    Step.STOP_REPLICA: STOP_REPLICA,
}
#: Order for a broker that gets all rows: it rejects a LeaderAndIsr for leaders that are not live to it.
_METADATA_FIRST: Final = (Step.STOP_FORMER, Step.UPDATE_METADATA, Step.LEADER_AND_ISR, Step.STOP_REPLICA)
#: Bytes of frames that leave a task at once; one frame may be more.
_BATCH_BYTES: Final = 32 * 2**20


class Plan(NamedTuple):
    """Which task makes which frames.

    - ``slots``: the brokers of each task, ascending throughout.
    - ``updates``: broker -> (version, whether all rows) of its UpdateMetadata, if it gets one.
    - ``scopes``: of a diff, broker -> ``MetadataScope``.
    """

    slots: list[list[int]]
    updates: dict[int, tuple[int, bool]]
    scopes: dict[int, str]

    @property
    def brokers(self) -> list[int]:
        return [broker for slot in self.slots for broker in slot]

    @property
    def selections(self) -> list[tuple[int, bool]]:
        return sorted(set(self.updates.values()))


class PackedRows(NamedTuple):
    """A row of the shuffle: packed rows of one broker, or an encoded shared body for all (``SHARED``).

    ``source`` and ``batch``: where rows were read, which keeps their order; of a shared body ``source`` is
    the number of the part, and ``version`` and ``whole`` name its UpdateMetadata. ``data``: bytes, or a
    buffer of Arrow's.
    """

    broker: int
    step: int
    source: int
    batch: int = 0
    version: int = 0
    whole: bool = False
    rows: int = 0
    data: Any = None


_SCHEMA: Final = pa.schema(
    zip(PackedRows._fields, (*(pa.int32(),) * 5, pa.bool_(), pa.int64(), pa.binary()), strict=True)
)
#: ``PackedRows`` as Spark's schema.
PACKED: Final = from_arrow_schema(_SCHEMA)


def _batch_of(packed: list[PackedRows]) -> pa.RecordBatch:
    columns = zip(*packed, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)], schema=_SCHEMA
    )


def _task() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def packing_by_replica(brokers: Int32) -> BatchFunction:
    """Return a function that packs LeaderAndIsr rows for each of ``brokers`` that has a replica."""

    def pack_by_replica(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = _task()
        for number, batch in enumerate(batches):
            packed = [
                PackedRows(broker, Step.LEADER_AND_ISR, source, number, rows=len(rows), data=pack(rows))
                for broker, rows in by_replica(batch, LEADER_AND_ISR_COLUMNS, brokers)
            ]
            if packed:
                yield _batch_of(packed)

    return pack_by_replica


def pack_by_receiver(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a diff that have a receiver, by receiver and step."""
    columns = {
        LEADER_AND_ISR: (*LEADER_AND_ISR_COLUMNS, "is_new"),
        STOP_REPLICA: (*STOP_REPLICA_COLUMNS, "delete"),
    }
    every = sorted({name for names in columns.values() for name in names})
    source = _task()
    for number, batch in enumerate(batches):
        packed = []
        for broker, step, rows in by_receiver(batch, every):
            data = pack(rows.select(columns[_API_OF_STEP[step]]))
            packed.append(PackedRows(broker, step, source, number, rows=len(rows), data=data))
        if packed:
            yield _batch_of(packed)


def pack_shared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the rows of UpdateMetadata, which all brokers share."""
    source = _task()
    for number, batch in enumerate(batches):
        one = PackedRows(SHARED, Step.UPDATE_METADATA, source, number, rows=len(batch), data=pack(batch))
        yield _batch_of([one])


def encoding_shared(encoder: FrameEncoder, selections: Sequence[tuple[int, bool]]) -> BatchFunction:
    """Return a function that encodes packed rows to the shared bodies of these (version, whole)."""

    def encode_shared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packed = [cell.as_buffer() for batch in batches for cell in batch.column("data") if cell.is_valid]
        for one in encoder.shared_bodies(packed, selections):
            data = one.data if isinstance(one.data, bytes) else one.data.to_pybytes()
            yield _batch_of([PackedRows(SHARED, 0, one.part, 0, one.version, one.whole, one.rows, data)])

    return encode_shared


def making_frames(encoder: FrameEncoder, plan: Plan, state_version: int | None) -> BatchFunction:
    """Return a function that makes the frames of a task's brokers from ``PackedRows`` and their slot."""

    def make_frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _FrameBatches(encoder.controller_epoch, state_version)
        for broker, parts in _parts_of_brokers(encoder, plan, _read_packed(batches)):
            for sequence, part in enumerate(parts):
                if writer.bytes and writer.bytes + part.size > _BATCH_BYTES:
                    yield writer.take()
                writer.add(broker, sequence, part)
        if writer.bytes:
            yield writer.take()

    return make_frames


def _read_packed(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, PackedRows]]:
    """Yield (slot, packed rows)."""
    for batch in batches:
        slots: list[Any] = batch.column("slot").to_pylist()
        rows = batch.drop_columns(["data", "slot"]).to_pylist()
        for slot, row, data in zip(slots, rows, batch.column("data"), strict=True):
            yield slot, PackedRows(data=data.as_buffer(), **row)


def _parts_of_brokers(
    encoder: FrameEncoder, plan: Plan, packed: Iterator[tuple[int, PackedRows]]
) -> Iterator[tuple[int, Iterator[Part]]]:
    """Yield each broker of this task, ascending, with its frames in order."""
    shared_bodies: dict[tuple[int, bool], list[SharedPart]] = {}
    remaining: list[int] = []
    for broker, group in groupby(packed, lambda one: one[1].broker):
        slots, own = zip(*group, strict=True)
        remaining = remaining or list(plan.slots[slots[0]])
        if broker == SHARED:
            for one in own:
                shared_body = SharedPart(one.version, one.whole, one.source, one.rows, one.data)
                shared_bodies.setdefault((one.version, one.whole), []).append(shared_body)
            continue
        while remaining[0] != broker:
            yield remaining[0], _parts_of(encoder, plan, shared_bodies, remaining.pop(0), ())
        yield broker, _parts_of(encoder, plan, shared_bodies, remaining.pop(0), own)
        if not remaining:
            return
    for broker in remaining:
        yield broker, _parts_of(encoder, plan, shared_bodies, broker, ())


def _parts_of(
    encoder: FrameEncoder,
    plan: Plan,
    shared_bodies: Mapping[tuple[int, bool], Sequence[SharedPart]],
    broker: int,
    packed: Collection[PackedRows],
) -> Iterator[Part]:
    """Yield the frames of one broker in order."""
    steps: dict[int, list[pa.Buffer]] = {}
    for one in packed:
        steps.setdefault(one.step, []).append(one.data)
    scope = plan.scopes.get(broker)
    # A broker rejects followers of a leader that is not live to it. So the live brokers come before
    # LeaderAndIsr, as in Kafka's failover; then it needs no UpdateMetadata for them alone.
    live_first = (
        scope in (None, MetadataScope.BROKERS) and broker in plan.updates and Step.LEADER_AND_ISR in steps
    )
    for step in _METADATA_FIRST if scope == MetadataScope.ALL else _API_OF_STEP:
        if step == Step.UPDATE_METADATA:
            if broker in plan.updates:
                own = shared_bodies[plan.updates[broker]]
                needed = not (live_first or scope == MetadataScope.ROWS)
                if needed or any(shared_body.rows for shared_body in own):
                    yield from encoder.shared_parts(broker, own)
            continue
        if step == Step.LEADER_AND_ISR and live_first:
            yield encoder.live_part(broker)
        if step in steps:
            yield from encoder.parts(broker, _API_OF_STEP[step], steps[step])


class _FrameBatches:
    """Collects frames for one Arrow batch, and writes each frame once."""

    def __init__(self, controller_epoch: int, state_version: int | None) -> None:
        self._controller_epoch = controller_epoch
        self._state_version = state_version
        self._frames: list[tuple[int, int, Part]] = []
        self.bytes = 0

    def add(self, broker: int, sequence: int, part: Part) -> None:
        self._frames.append((broker, sequence, part))
        self.bytes += part.size

    def take(self) -> pa.RecordBatch:
        frames, count = self._frames, len(self._frames)
        offsets = np.zeros(count + 1, np.int32)
        data = np.empty(self.bytes, np.uint8)
        view = data.data
        for at, (_, _, part) in enumerate(frames):
            offsets[at + 1] = part.write_into(view, int(offsets[at]))
        binary = array_over(pa.binary(), count, offsets, data)
        parts = [part for _, _, part in frames]
        columns: dict[str, pa.Array[Any]] = {
            "broker": pa.array([broker for broker, _, _ in frames], pa.int32()),
            "sequence": pa.array([sequence for _, sequence, _ in frames], pa.int64()),
            "api": pa.array([part.api for part in parts], pa.int16()),
            "version": pa.array([part.version for part in parts], pa.int16()),
            "controller_epoch": pa.array([self._controller_epoch] * count, pa.int32()),
            "state_version": pa.array([self._state_version] * count, pa.int64()),
            "rows": pa.array([part.rows for part in parts], pa.int64()),
            "bytes": pa.array(np.diff(offsets).astype(np.int64)),
            "from_version": pa.array([part.from_version for part in parts], pa.int64()),
            "frame": binary,
        }
        self._frames, self.bytes = [], 0
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
