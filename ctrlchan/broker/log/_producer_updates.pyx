"""The producers of a log after its batches. Source: ``UnifiedLog.analyzeAndValidateProducerState``, ``rebuildProducerState``."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from ctrlchan._c.error_codes cimport INVALID_TXN_STATE, NONE, UNKNOWN_SERVER_ERROR
from ctrlchan.broker.log._batches cimport CONTROL, REPLICATION, Appended, Batch, Marker, read_batch, read_marker
from ctrlchan.broker.log._files cimport read_at
from ctrlchan.broker.log._parts cimport CORRUPT, DONE, NOT_FOUND, NO_MEMORY, require_mutex
from ctrlchan.broker.log._producer_snapshots cimport add_snapshot, take_snapshot
from ctrlchan.broker.log._producers cimport NOT_VERIFIED, ProducerStates, ProducerUpdate
from ctrlchan.broker.log._segment cimport Scan, Segment, find_offset, scan_next, start_scan
from ctrlchan.broker.log._segments cimport Segments
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, add_aborted


# -- batches that are appended


cdef int check_producers(
    ProducerStates producers, const uint8_t* data, Appended* appended, int origin, int64_t guard, ProducerUpdate* update
) noexcept nogil:
    """Check all batches against the state of their producers; return Kafka's error code.

    ``guard``: as for ``ProducerStates.check``. ``update``: of the last batch. Batches that were appended before:
    ``appended`` has the offsets of then, their timestamp in ``header_timestamp``, and ``size`` 0.
    """
    cdef Batch batch
    cdef int64_t position = 0
    cdef int error
    while position < appended.size:
        read_batch(data + position, &batch)
        error = producers.check(data + position, &batch, origin, guard, update)
        # A marker before it in the same append may have ended the transaction; the leader has taken both.
        if error != NONE and not (error == INVALID_TXN_STATE and origin == REPLICATION and appended.batches > 1):
            return error
        if update.is_duplicate:
            appended.first_offset, appended.last_offset = update.duplicate_first_offset, update.duplicate_last_offset
            appended.header_timestamp = update.duplicate_timestamp
            appended.size = 0
            return NONE
        position += batch.size
    return NONE


cdef bint has_abort(const uint8_t* data, const Appended* appended) noexcept nogil:
    """Return whether one of the batches ends a transaction by an abort."""
    cdef Batch batch
    cdef Marker marker
    cdef int64_t position = 0
    while position < appended.size:
        read_batch(data + position, &batch)
        if batch.attributes & CONTROL and read_marker(data + position, &batch, &marker) and marker.is_aborted:
            return True
        position += batch.size
    return False


cdef int update_producers(
    ProducerStates producers, Segment* segment, const uint8_t* data, const Appended* appended, int origin,
    const ProducerUpdate* update
) noexcept nogil:
    """Update the state of the producers of written batches; ``update``: for the only batch. Returns a result."""
    cdef ProducerUpdate another
    cdef Batch batch
    cdef int64_t position = 0
    cdef int error
    cdef int result = DONE
    if appended.batches == 1:
        result = take_update(producers, segment, update)
    else:
        while position < appended.size and result == DONE:
            read_batch(data + position, &batch)
            error = producers.check(data + position, &batch, origin, NOT_VERIFIED, &another)
            if error == NONE:
                result = take_update(producers, segment, &another)
            elif error == UNKNOWN_SERVER_ERROR:
                # The batches are in the file already: a recovery has to find their producers.
                result = NO_MEMORY
            position += batch.size
    producers.end_offset = appended.last_offset + 1
    return result


cdef int take_update(ProducerStates producers, Segment* segment, const ProducerUpdate* update) noexcept nogil:
    """Update a producer; the transaction index of the segment, if not NULL, gets what the batch aborts."""
    cdef AbortedEntry aborted
    cdef int64_t first_undecided
    producers.update(update)
    if segment == NULL or not update.ends_txn or not update.is_aborted:
        return DONE
    aborted.producer_id = update.producer.producer_id
    aborted.first_offset, aborted.last_offset = update.txn_first_offset, update.last_offset
    first_undecided = producers.first_undecided()
    aborted.last_stable_offset = update.last_offset + 1 if first_undecided < 0 else first_undecided
    return add_aborted(&segment.transactions, &aborted)


# -- batches that are in the log


cdef int replay_batch(
    ProducerStates producers, Segment* segment, const uint8_t* data, const Batch* batch
) noexcept nogil:
    """Apply a batch that is in the log to its producer; CORRUPT for a control batch without a marker.

    ``segment``: its transaction index gets what the batch aborts; NULL: it has it.
    """
    cdef ProducerUpdate update
    if producers.check(data, batch, REPLICATION, NOT_VERIFIED, &update) != NONE:
        return CORRUPT
    producers.end_offset = batch.base_offset + batch.last_offset_delta + 1
    return take_update(producers, segment, &update)


cdef int replay(ProducerStates producers, Segment* segment, int64_t from_offset, int64_t end_offset) noexcept nogil:
    """Apply the batches of a segment between the offsets."""
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position
    cdef uint8_t* data
    cdef int result = find_offset(segment, from_offset, &batch, &position)
    if result == DONE:
        start_scan(&scan, segment.fd, position, segment.size)
        result = scan_next(&scan, &batch, &position)
    while result == DONE and batch.base_offset < end_offset:
        data = NULL
        if batch.producer_id >= 0 and batch.attributes & CONTROL:
            data = <uint8_t*>malloc(batch.size)
            if data == NULL:
                return NO_MEMORY
            result = read_at(segment.fd, data, batch.size, position)
        if result == DONE:
            # A control batch without a marker changes no producer; it was acknowledged.
            replay_batch(producers, NULL, data, &batch)
            result = scan_next(&scan, &batch, &position)
        free(data)
    return DONE if result == NOT_FOUND or result == CORRUPT else result


cdef int rebuild_producers(
    ProducerStates producers, Segments segments, const uint8_t* snapshot, int64_t snapshot_offset, int64_t start_offset,
    int64_t end_offset, int64_t now_ms
) noexcept nogil:
    """Rebuild the producers at ``end_offset`` from a valid snapshot and the batches behind it.

    ``snapshot_offset`` -1: there is no snapshot. ``snapshot`` NULL: it was not read; all batches serve as well. Returns a
    result.
    """
    cdef int64_t base
    cdef int32_t i
    cdef int result = DONE
    require_mutex(segments.mutex)
    if producers.has_nobody_to_forget(end_offset):
        producers.begin_at(end_offset)
        producers.snapshot_offset = snapshot_offset if snapshot_offset >= 0 else start_offset
    else:
        producers.begin_at(start_offset)
        if snapshot != NULL:
            result = add_snapshot(producers, snapshot, now_ms)
            producers.end_offset = producers.snapshot_offset = snapshot_offset
        for i in range(max(0, segments.floor(producers.end_offset)), segments.count):
            base = max(segments.at[i].base_offset, producers.end_offset)
            if result != DONE or base >= end_offset:
                break
            producers.end_offset = base
            if i >= segments.count - 2 and base == segments.at[i].base_offset:
                result = take_snapshot(producers, segments.folder, True)
            if result == DONE:
                result = replay(producers, segments.at[i], base, min(segments.end_of(i, end_offset), end_offset))
    producers.end_offset = end_offset
    return result if result != DONE else take_snapshot(producers, segments.folder, True)
