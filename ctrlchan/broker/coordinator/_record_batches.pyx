"""Reads the batches of a coordinator's topic natively, as most of them are: uncompressed, and with records of clients.

A coordinator writes a batch for each change, so a partition of many groups or transactional ids has as many batches.
"""

from libc.stdint cimport int64_t, uint8_t

from ctrlchan._c.error_codes cimport NONE
from ctrlchan.broker.log._batches cimport COMPRESSION, CONTROL, HEADER_BYTES, TRANSACTIONAL, Batch, key_values, next_batch

from ctrlchan.broker.coordinator.common.topic import StoredBatch

cdef enum:
    MAGIC = 2


def read_plain_batches(const uint8_t[::1] data not None, Py_ssize_t position, int most):
    """Return at most so many batches, each after the offset that follows it, and the position behind the last one.

    It ends before a batch that is compressed, a control batch, damaged or cut.
    """
    cdef Batch batch
    cdef const uint8_t* at
    cdef list pairs, found = []
    new = tuple.__new__
    while len(found) < most and 0 <= position < data.shape[0]:
        at = &data[position]
        if (
            next_batch(at, data.shape[0] - position, &batch) != NONE
            or batch.size == 0
            or batch.magic != MAGIC
            or batch.attributes & (COMPRESSION | CONTROL)
        ):
            break
        pairs = key_values(at + HEADER_BYTES, at + batch.size, batch.count)
        if pairs is None:
            break
        # As StoredBatch(…), which takes three times as long.
        stored = new(
            StoredBatch,
            (batch.base_offset, pairs, batch.producer_id, bool(batch.attributes & TRANSACTIONAL), None),
        )
        found.append((batch.base_offset + batch.last_offset_delta + 1, stored))
        position += batch.size
    return found, position
