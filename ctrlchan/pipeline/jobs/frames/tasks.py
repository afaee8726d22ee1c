"""The tasks of ``ctrlchan.pipeline.jobs.frames.job``: functions over Arrow batches, for ``mapInArrow``.

Rows are packed into parcels where they are read; the rows of UpdateMetadata are encoded in one task; a
broker's parcels and the encoded parts become its frames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.pipeline.jobs.diff.job import Step, Told
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
    "SHARED",
    "BatchFunction",
    "Plan",
    "encoding_shared",
    "making_frames",
    "pack_by_receiver",
    "pack_shared",
    "packing_by_replica",
]

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: In place of a broker id: for all of them. Sorts before every broker.
SHARED: Final = -1
#: The order of one broker's requests (``schemas.DIFF_ROWS``).
_API_OF_STEP: Final = {
    Step.STOP_FORMER: STOP_REPLICA,
    Step.LEADER_AND_ISR: LEADER_AND_ISR,
    Step.UPDATE_METADATA: UPDATE_METADATA,
    Step.STOP_REPLICA: STOP_REPLICA,
}
#: Of a broker that is told everything: it takes no LeaderAndIsr for leaders that it does not know as live.
_METADATA_FIRST: Final = (Step.STOP_FORMER, Step.UPDATE_METADATA, Step.LEADER_AND_ISR, Step.STOP_REPLICA)
#: Bytes of frames that leave a task at once; one frame may be more.
_BATCH_BYTES: Final = 32 * 2**20


class Plan(NamedTuple):
    """Who is told what by whom: ``slots``, brokers of each task, ascending throughout; ``updates``, broker ->
    (version, whether all rows) of its UpdateMetadata, where it gets one; ``told``, of a difference:
    ``schemas.DIFF_BROKERS``."""

    slots: list[list[int]]
    updates: dict[int, tuple[int, bool]]
    told: dict[int, str]

    @property
    def brokers(self) -> list[int]:
        return [broker for slot in self.slots for broker in slot]

    @property
    def selections(self) -> list[tuple[int, bool]]:
        return sorted(set(self.updates.values()))


def _parcels(rows: Iterable[tuple[int, int, int, int, int, bool, int, bytes | None]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    kinds = (pa.int32(),) * 5 + (pa.bool_(), pa.int64(), pa.binary())
    names = ["broker", "step", "source", "batch", "version", "whole", "rows", "data"]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _task() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def packing_by_replica(brokers: Int32) -> BatchFunction:
    def pack_by_replica(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = _task()
        for number, batch in enumerate(batches):
            parcels = [
                (broker, Step.LEADER_AND_ISR, source, number, 0, False, len(rows), pack(rows))
                for broker, rows in by_replica(batch, LEADER_AND_ISR_COLUMNS, brokers)
            ]
            if parcels:
                yield _parcels(parcels)

    return pack_by_replica


def pack_by_receiver(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    columns = {
        LEADER_AND_ISR: (*LEADER_AND_ISR_COLUMNS, "is_new"),
        STOP_REPLICA: (*STOP_REPLICA_COLUMNS, "delete"),
    }
    every = sorted({name for names in columns.values() for name in names})
    source = _task()
    for number, batch in enumerate(batches):
        parcels = [
            (
                broker,
                step,
                source,
                number,
                0,
                False,
                len(rows),
                pack(rows.select(columns[_API_OF_STEP[step]])),
            )
            for broker, step, rows in by_receiver(batch, every)
        ]
        if parcels:
            yield _parcels(parcels)


def pack_shared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    source = _task()
    for number, batch in enumerate(batches):
        yield _parcels([(SHARED, Step.UPDATE_METADATA, source, number, 0, False, len(batch), pack(batch))])


def encoding_shared(encoder: FrameEncoder, selections: Sequence[tuple[int, bool]]) -> BatchFunction:
    def encode_shared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels = [
            parcel.as_buffer() for batch in batches for parcel in batch.column("data") if parcel.is_valid
        ]
        for shared_body in encoder.shared_bodies(parcels, selections):
            yield _parcels(
                [
                    (
                        SHARED,
                        0,
                        shared_body.part,
                        0,
                        shared_body.version,
                        shared_body.whole,
                        shared_body.rows,
                        _as_bytes(shared_body.data),
                    )
                ]
            )

    return encode_shared


def _as_bytes(data: pa.Buffer | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.to_pybytes()


class _Parcel(NamedTuple):
    slot: int
    broker: int
    step: int
    #: Of an encoded part: which; ``source`` is its number.
    version: int
    whole: bool
    source: int
    rows: int
    data: pa.Buffer


def making_frames(encoder: FrameEncoder, plan: Plan, state_version: int | None) -> BatchFunction:
    def make_frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _FrameBatches(encoder.controller_epoch, state_version)
        for broker, parts in _parts_of_brokers(encoder, plan, _read_parcels(batches)):
            for sequence, part in enumerate(parts):
                if writer.bytes and writer.bytes + part.size > _BATCH_BYTES:
                    yield writer.take()
                writer.add(broker, sequence, part)
        if writer.bytes:
            yield writer.take()

    return make_frames


def _read_parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[_Parcel]:
    for batch in batches:
        rows = batch.drop_columns(["data", "batch"]).to_pylist()
        for row, data in zip(rows, batch.column("data"), strict=True):
            yield _Parcel(data=data.as_buffer(), **row)


def _parts_of_brokers(
    encoder: FrameEncoder, plan: Plan, parcels: Iterator[_Parcel]
) -> Iterator[tuple[int, Iterator[Part]]]:
    """Each broker of this task, ascending, and what it gets, in order."""
    shared_bodies: dict[tuple[int, bool], list[SharedPart]] = {}
    remaining: list[int] = []
    for broker, group in groupby(parcels, lambda parcel: parcel.broker):
        own = list(group)
        remaining = remaining or list(plan.slots[own[0].slot])
        if broker == SHARED:
            for one in own:
                shared_body = SharedPart(one.version, one.whole, one.source, one.rows, one.data)
                shared_bodies.setdefault((one.version, one.whole), []).append(shared_body)
            continue
        while remaining[0] != broker:
            yield _told(encoder, plan, shared_bodies, remaining.pop(0), ())
        yield _told(encoder, plan, shared_bodies, remaining.pop(0), own)
        if not remaining:
            return
    for broker in remaining:
        yield _told(encoder, plan, shared_bodies, broker, ())


def _told(
    encoder: FrameEncoder,
    plan: Plan,
    shared_bodies: Mapping[tuple[int, bool], Sequence[SharedPart]],
    broker: int,
    parcels: Collection[_Parcel],
) -> tuple[int, Iterator[Part]]:
    def parts() -> Iterator[Part]:
        steps: dict[int, list[pa.Buffer]] = {}
        for parcel in parcels:
            steps.setdefault(parcel.step, []).append(parcel.data)
        told = plan.told.get(broker)
        # It has to know who lives before LeaderAndIsr, and then it does.
        live_first = told == Told.BROKERS and Step.LEADER_AND_ISR in steps
        for step in _METADATA_FIRST if told == Told.ALL else _API_OF_STEP:
            if step == Step.UPDATE_METADATA:
                if broker in plan.updates:
                    own = shared_bodies[plan.updates[broker]]
                    if any(shared_body.rows for shared_body in own) or not (live_first or told == Told.ROWS):
                        yield from encoder.shared_parts(broker, own)
                continue
            if step == Step.LEADER_AND_ISR and live_first:
                yield encoder.live_part(broker)
            if step in steps:
                yield from encoder.parts(broker, _API_OF_STEP[step], steps[step])

    return broker, parts()


class _FrameBatches:
    """Collects frames until there are enough of them for one Arrow batch, then writes each once."""

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
