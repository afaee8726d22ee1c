"""An entry of format 0 or 1 as an uncompressed batch of format 2, for all that reads records.

A compressed entry carries others. In format 1 their offsets count from the first one, and the last one has the offset of
the entry that carries them; in format 0 they have their own offsets. The value of the entry is decompressed into memory of a
fixed size (``compression.py``); what it carries may not be compressed again.

Source: AbstractLegacyRecordBatch.DeepRecordsIterator.
"""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from ctrlchan._c.bytes cimport put_i32, put_i64
from ctrlchan.broker.log._batches cimport (
    FORMAT_1,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    KeyValue,
    write_crc,
    write_header,
)
from ctrlchan.broker.log._varints cimport zigzag
from ctrlchan.broker.log.old_formats._entries cimport (
    APPEND_TIME_FLAG,
    CODEC_MASK,
    ENTRY,
    WRONG_SIZE,
    Entry,
    Found,
    end_of,
    entry_timestamp,
    read_entry,
    read_pair,
)
from ctrlchan.broker.log.old_formats._records cimport record_size, write_record

from typing import NamedTuple

from ctrlchan.broker.log.old_formats import wrappers
from ctrlchan.errors import ErrorCode, KafkaError

cdef enum:
    # The last codec of the old formats: LZ4
    LAST_CODEC = 3
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1
    NO_SEQUENCE = -1

cdef int64_t MAX_INT32 = 0x7fffffff
# A delta of int32 can be added to it.
cdef int64_t MOST_OFFSET = 0x7fffffff7fffffff


class OldRecords(NamedTuple):
    """``batch``: of format 2. ``has_other_format``: some record had another format than the entry that carried it.

    Such entries were written by the cleaner of some releases of Kafka (KAFKA-4298), which mends them as well.
    """

    batch: bytes
    has_other_format: bool


# What an entry carries, or the entry itself.
cdef struct Carried:
    const uint8_t* begin
    const uint8_t* end
    # Added to the offsets
    int64_t base
    # The timestamp of all records of format 1
    bint has_append_time
    int64_t append_time
    # Found by ``measure``
    int32_t count
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t size
    bint has_other_format


cdef inline int64_t timestamp_of(const Carried* carried, const Entry* entry) noexcept nogil:
    return carried.append_time if carried.has_append_time and entry.magic == FORMAT_1 else entry_timestamp(entry)


@cython.overflowcheck(False)
cdef const char* measure(Carried* carried, const Entry* wrapper, bint is_carried) noexcept nogil:
    """Check all entries and find their first, last and largest numbers; return what is wrong, or NULL.

    What is cut at the end is ignored.
    """
    cdef Entry entry
    cdef KeyValue pair
    cdef const uint8_t* p = carried.begin
    cdef int64_t last = 0
    cdef Found found = read_entry(p, carried.end, &entry)
    carried.first_offset, carried.last_offset, carried.max_timestamp = INT64_MAX, INT64_MIN, INT64_MIN
    while found == ENTRY:
        if not 0 <= entry.magic <= FORMAT_1:
            return "an entry that carries another one of an unknown format"
        if is_carried and entry.attributes & CODEC_MASK:
            return "a compressed entry that carries another one"
        if not read_pair(&entry, &pair):
            return "key and value that do not fit into their entry"
        carried.has_other_format = carried.has_other_format or entry.magic != wrapper.magic
        carried.count += 1
        last = entry.offset
        carried.first_offset, carried.last_offset = min(carried.first_offset, last), max(carried.last_offset, last)
        carried.max_timestamp = max(carried.max_timestamp, timestamp_of(carried, &entry))
        p = end_of(&entry)
        found = read_entry(p, carried.end, &entry)
    if found == WRONG_SIZE:
        return "an entry that carries one of a size that no entry has"
    if carried.count == 0:
        return "a compressed entry that carries nothing"
    carried.end = p
    # An offset 0 stands for any in the format of some early producers.
    if is_carried and wrapper.magic == FORMAT_1 and wrapper.offset != 0:
        carried.base = wrapper.offset - last
        if wrapper.offset < last or last < 0:
            return "an entry whose offset is below the one of the last entry that it carries"
    if carried.first_offset < 0 or carried.last_offset > MOST_OFFSET - carried.base:
        return "an entry that carries one with an impossible offset"
    if carried.last_offset - carried.first_offset > MAX_INT32:
        return "an entry that carries two whose offsets are too far from each other"
    return NULL


@cython.overflowcheck(False)
cdef void write_records(Carried* carried, uint8_t* out) noexcept nogil:
    """Write the records of entries that are checked. With ``out`` NULL their bytes are only counted.

    Timestamps count from 0: so no difference of two is too large.
    """
    cdef Entry entry
    cdef KeyValue pair
    cdef const uint8_t* p = carried.begin
    cdef uint64_t timestamp, offset
    carried.size = 0
    while read_entry(p, carried.end, &entry) == ENTRY:
        p = end_of(&entry)
        read_pair(&entry, &pair)
        pair.key_size, pair.value_size = max(pair.key_size, -1), max(pair.value_size, -1)
        timestamp = zigzag(timestamp_of(carried, &entry))
        offset = zigzag(entry.offset - carried.first_offset)
        carried.size += record_size(timestamp, offset, &pair)
        if out != NULL:
            out = write_record(out, timestamp, offset, &pair)


cdef object corrupt(const Entry* entry, why):
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the entry at offset {entry.offset}: {why}")


def as_batch(const uint8_t[::1] data not None):
    """Return the records of a whole entry of format 0 or 1 as OldRecords. Raises KafkaError CORRUPT_MESSAGE.

    The batch has their offsets and timestamps and the timestamp type of the entry, no leader epoch and no producer.
    """
    cdef Entry entry
    cdef KeyValue pair
    cdef Carried carried
    cdef const uint8_t[::1] inner
    cdef const uint8_t* begin = &data[0] if data.shape[0] else NULL
    cdef const char* error = NULL
    cdef int codec
    cdef uint8_t[::1] view
    cdef uint8_t* out
    memset(&carried, 0, sizeof(Carried))
    if read_entry(begin, begin + data.shape[0], &entry) != ENTRY:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{data.shape[0]} bytes are no whole entry")
    carried.begin, carried.end = begin, end_of(&entry)
    codec = entry.attributes & CODEC_MASK
    if codec > LAST_CODEC:
        raise corrupt(&entry, f"codec {codec}")
    if codec:
        if not read_pair(&entry, &pair) or pair.value_size < 0:
            raise corrupt(&entry, "a compressed entry without a value")
        try:
            inner = wrappers.decompress(codec, entry.magic, (<const char*>pair.value)[:pair.value_size])
        except (wrappers.CorruptError, wrappers.TooLargeError) as raised:
            raise corrupt(&entry, f"what it carries cannot be decompressed: {raised}") from raised
        carried.begin = &inner[0] if inner.shape[0] else NULL
        carried.end = carried.begin + inner.shape[0]
        carried.has_append_time = entry.magic == FORMAT_1 and entry.attributes & APPEND_TIME_FLAG != 0
        carried.append_time = entry_timestamp(&entry)
    with nogil:
        error = measure(&carried, &entry, codec != 0)
        if error == NULL:
            write_records(&carried, NULL)
    if error != NULL:
        raise corrupt(&entry, error.decode())
    result = bytearray(HEADER_BYTES + carried.size)
    view = result
    out = &view[0]
    with nogil:
        write_records(&carried, out + HEADER_BYTES)
        write_header(
            out, HEADER_BYTES + carried.size, carried.count,
            LOG_APPEND_TIME if entry.magic == FORMAT_1 and entry.attributes & APPEND_TIME_FLAG else 0,
            0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
        )
        put_i64(out, carried.base + carried.first_offset)
        put_i32(out + LAST_OFFSET_DELTA_AT, <int32_t>(carried.last_offset - carried.first_offset))
        put_i64(out + MAX_TIMESTAMP_AT, carried.append_time if carried.has_append_time else carried.max_timestamp)
        write_crc(out, HEADER_BYTES + carried.size)
    return OldRecords(bytes(result), bool(carried.has_other_format))
