"""A plain twin of ``ProducerStates``, in Python's own types."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import crc32c

from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.log._producers import Appended, CachedBatch, ProducerState
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainBatch

LAST_SEQUENCE = 2**31 - 1


def sequence_after(sequence: int, more: int) -> int:
    """Return the sequence number that comes ``more`` records later."""
    return (sequence + more) % 2**31


@dataclass
class PlainProducer:
    """One producer."""

    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    txn_first_offset: int = -1
    batches: list[CachedBatch] = field(default_factory=list)

    def set_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.batches = []


@dataclass
class PlainStates:
    """All producers, in the order in which they came."""

    expiration_ms: int = 1000
    producers: dict[int, PlainProducer] = field(default_factory=dict)
    java_capacity: int = 16

    def append(self, batch: PlainBatch, origin: int, marker: tuple[bool, int, int] | None = None) -> Appended:
        """Return what the append of a batch gives. ``marker``: is_aborted, coordinator epoch, timestamp."""
        if batch.producer_id < 0:
            return Appended(0, None, None)
        known = self.producers.get(batch.producer_id, PlainProducer())
        last_delta = batch.count - 1
        last = -1 if batch.base_sequence == -1 else sequence_after(batch.base_sequence, last_delta)
        if origin == Origin.CLIENT and batch.producer_epoch == known.epoch:
            for old in known.batches:
                if (old.first_sequence, old.last_sequence) == (batch.base_sequence, last):
                    return Appended(0, old, None)
        if batch.attributes & CONTROL:
            return self._end(batch, origin, marker, known)
        if batch.producer_epoch < known.epoch and origin != Origin.REPLICATION:
            return Appended(ErrorCode.INVALID_PRODUCER_EPOCH, None, None)
        if origin == Origin.CLIENT and known.epoch != -1:
            same = batch.producer_epoch == known.epoch
            wanted = 0
            if same and known.batches:
                wanted = sequence_after(known.batches[-1].last_sequence, 1)
            if batch.base_sequence != wanted:
                return Appended(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, None)
        if known.txn_first_offset != -1 and not batch.attributes & TRANSACTIONAL:
            return Appended(ErrorCode.INVALID_TXN_STATE, None, None)
        self._store(batch.producer_id, known)
        known.set_epoch(batch.producer_epoch)
        first = last if last == -1 else batch.base_sequence
        if first == -1:
            first = (-1 - last_delta) % 2**31
        last_offset = batch.base_offset + last_delta
        new = CachedBatch(first, last, batch.base_offset, last_offset, batch.max_timestamp)
        known.batches = [*known.batches, new][-5:]
        known.last_timestamp = batch.max_timestamp
        if known.txn_first_offset == -1 and batch.attributes & TRANSACTIONAL:
            known.txn_first_offset = batch.base_offset
        return Appended(0, None, None)

    def _end(
        self, batch: PlainBatch, origin: int, marker: tuple[bool, int, int] | None, known: PlainProducer
    ) -> Appended:
        if batch.count == 0:
            self._store(batch.producer_id, known)
            return Appended(0, None, None)
        if marker is None:
            return Appended(ErrorCode.INVALID_RECORD, None, None)
        is_aborted, coordinator_epoch, timestamp = marker
        if origin != Origin.REPLICATION:
            if batch.producer_epoch < known.epoch:
                return Appended(ErrorCode.INVALID_PRODUCER_EPOCH, None, None)
            if coordinator_epoch < known.coordinator_epoch:
                return Appended(ErrorCode.TRANSACTION_COORDINATOR_FENCED, None, None)
        self._store(batch.producer_id, known)
        completed = None if known.txn_first_offset == -1 else (known.txn_first_offset, is_aborted)
        known.set_epoch(batch.producer_epoch)
        known.coordinator_epoch, known.last_timestamp = coordinator_epoch, timestamp
        known.txn_first_offset = -1
        return Appended(0, None, completed)

    def _store(self, producer_id: int, producer: PlainProducer) -> None:
        if producer_id not in self.producers:
            # A map of less than 64 buckets grows for the ninth key of one, too.
            bucket = self._bucket(producer_id)
            if self.java_capacity < 64 and sum(self._bucket(one) == bucket for one in self.producers) >= 8:
                self.java_capacity *= 2
            if len(self.producers) + 1 > self.java_capacity * 3 // 4:
                self.java_capacity *= 2
        self.producers[producer_id] = producer

    def _bucket(self, producer_id: int) -> int:
        low = (producer_id ^ producer_id >> 32) & 0xFFFFFFFF
        return (low ^ low >> 16) & (self.java_capacity - 1)

    def expire(self, now_ms: int) -> None:
        """Forget idle producers."""
        self.producers = {
            producer_id: state
            for producer_id, state in self.producers.items()
            if state.txn_first_offset != -1 or now_ms - state.last_timestamp < self.expiration_ms
        }

    def states(self) -> list[ProducerState]:
        """Return the states as ``ProducerStates.producers`` does."""
        return [
            ProducerState(
                producer_id, state.epoch, state.coordinator_epoch, state.last_timestamp,
                state.txn_first_offset, state.batches,
            )
            for producer_id, state in self.producers.items()
        ]  # fmt: skip

    def snapshot(self) -> bytes:
        """Return the bytes of a snapshot, in the order of Java's hash map."""
        body = struct.pack(">i", len(self.producers))
        for producer_id in sorted(self.producers, key=self._bucket):
            state = self.producers[producer_id]
            last = state.batches[-1] if state.batches else CachedBatch(0, -1, -1, -1, 0)
            body += struct.pack(
                ">qhiqiqiq", producer_id, state.epoch, last.last_sequence, last.last_offset,
                last.last_offset - last.first_offset, state.last_timestamp, state.coordinator_epoch,
                state.txn_first_offset,
            )  # fmt: skip
        return struct.pack(">hI", 1, crc32c.crc32c(body)) + body
