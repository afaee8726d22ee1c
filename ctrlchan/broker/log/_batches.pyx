"""Record batches: reading headers, checking an append, giving offsets.

Layout of a batch of format 2, big-endian; ``length`` counts the bytes after itself, ``crc`` is CRC-32C of all bytes
after itself. Source: DefaultRecordBatch, DefaultRecord.

    0  base offset int64         23  last offset delta int32    51  producer epoch int16
    8  length int32              27  base timestamp int64       53  base sequence int32
    12 leader epoch int32        35  max timestamp int64        57  count int32
    16 magic int8                43  producer id int64          61  records, maybe compressed
    17 crc uint32
    21 attributes int16

A record: its size, then attributes int8, timestamp delta, offset delta, key size, key, value size, value,
count of headers; for each: key size, key, value size, value. All numbers but the first byte are zig-zag
varints; a negative size means null.

Entries of formats 0 and 1, which logs may have from former times, are read as far as their header goes; their layout and
their records are in ``old_formats``.

An append of a leader is one batch (ProduceRequest.validateRecords). ``check_batches`` looks at everything
before a byte is written, in Kafka's order, so that the error is Kafka's too. ``assign_offsets`` changes the
batch in place under the lock of the log. Records that are compressed, or must be, are looked at by ``check``, which
runs on the handler pool.
"""

from collections import namedtuple

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64
from ctrlchan._c.clocks cimport monotonic_ns
from ctrlchan._c.crc32 cimport crc32, crc32_start
from ctrlchan._c.crc32c cimport crc32c, crc32c_by_table, crc32c_start
from ctrlchan._c.error_codes cimport (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NONE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ctrlchan.broker.log._varints cimport varint_size, write_varint, zigzag

crc32_start()
crc32c_start()

cdef enum:
    MAGIC = FORMAT_2
    # The smallest length that any format has (format 0): 14 bytes.
    LEAST_LENGTH = 14
    # Of an entry of format 0 or 1: the least sizes with offset and size, and where its fields are.
    LEAST_ENTRY_0 = 26
    LEAST_ENTRY_1 = 34
    ENTRY_CRC_AT = 12
    ENTRY_ATTRIBUTES_AT = 17
    ENTRY_TIMESTAMP_AT = 18
    NO_COUNT = -1
    ZSTD = 4
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1
    NO_LEADER_EPOCH = -1
    NO_SEQUENCE = -1
    # Types of markers (ControlRecordType).
    ABORT = 0
    COMMIT = 1
    # Version and type; version and coordinator epoch
    MARKER_KEY_BYTES = 4
    MARKER_VALUE_BYTES = 6

# An int32 more than this is still an int64.
cdef int64_t MOST_OFFSET = 2**63 - 1 - 2**31


# -- headers


cdef uint32_t checksum(const uint8_t* data, int64_t size) noexcept nogil:
    """Return the CRC-32C of ``size`` bytes."""
    return crc32c(data, size)


cdef void read_batch(const uint8_t* data, Batch* batch) noexcept nogil:
    """Read the header of a batch; its bytes are there (``header_bytes``). The length may be any number."""
    batch.base_offset = get_i64(data)
    batch.size = get_i32(data + 8) + OFFSET_AND_LENGTH_BYTES
    if data[MAGIC_AT] < MAGIC:
        read_entry_header(data, batch)
        return
    batch.leader_epoch = get_i32(data + LEADER_EPOCH_AT)
    batch.magic = <int8_t>data[MAGIC_AT]
    batch.crc = <uint32_t>get_i32(data + CRC_AT)
    batch.attributes = get_i16(data + ATTRIBUTES_AT)
    batch.last_offset_delta = get_i32(data + LAST_OFFSET_DELTA_AT)
    batch.base_timestamp = get_i64(data + 27)
    batch.max_timestamp = get_i64(data + MAX_TIMESTAMP_AT)
    batch.producer_id = get_i64(data + PRODUCER_ID_AT)
    batch.producer_epoch = get_i16(data + PRODUCER_EPOCH_AT)
    batch.base_sequence = get_i32(data + 53)
    batch.count = get_i32(data + 57)


cdef void read_entry_header(const uint8_t* data, Batch* batch) noexcept nogil:
    """Read the rest of the header of an entry of format 0 or 1. One of format 1 without room for a timestamp has none."""
    cdef int8_t magic = <int8_t>data[MAGIC_AT]
    batch.leader_epoch = NO_LEADER_EPOCH
    batch.magic = magic
    batch.crc = <uint32_t>get_i32(data + ENTRY_CRC_AT)
    batch.attributes = data[ENTRY_ATTRIBUTES_AT] & (COMPRESSION | (LOG_APPEND_TIME if magic == FORMAT_1 else 0))
    batch.last_offset_delta = 0
    batch.max_timestamp = NO_TIMESTAMP
    if magic == FORMAT_1 and batch.size >= LEAST_ENTRY_1:
        batch.max_timestamp = get_i64(data + ENTRY_TIMESTAMP_AT)
    batch.base_timestamp = batch.max_timestamp
    batch.producer_id, batch.producer_epoch, batch.base_sequence = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    batch.count = NO_COUNT


cdef int32_t header_bytes(int8_t magic) noexcept nogil:
    return HEADER_BYTES if magic >= MAGIC else LEAST_ENTRY_1 if magic == FORMAT_1 else LEAST_ENTRY_0


cdef int next_batch(const uint8_t* data, int64_t size, Batch* batch) noexcept nogil:
    """Read the header of the batch that begins at ``data``; return 0 or CORRUPT_MESSAGE.

    ``batch.size`` is 0 if no whole batch is there. An entry of format 1 may be smaller than its header. Source:
    ByteBufferLogInputStream.
    """
    cdef int32_t length
    batch.size = 0
    if size < OFFSET_AND_LENGTH_BYTES:
        return NONE
    length = get_i32(data + 8)
    if length < LEAST_LENGTH:
        return CORRUPT_MESSAGE
    if size <= MAGIC_AT:
        return NONE
    batch.magic = <int8_t>data[MAGIC_AT]
    if batch.magic < 0 or batch.magic > MAGIC:
        return CORRUPT_MESSAGE
    if size - OFFSET_AND_LENGTH_BYTES < length:
        return NONE
    if batch.magic == MAGIC and length < HEADER_BYTES - OFFSET_AND_LENGTH_BYTES:
        return CORRUPT_MESSAGE
    read_batch(data, batch)
    return NONE


cdef bint has_valid_crc(const uint8_t* data, const Batch* batch) noexcept nogil:
    """Return whether the CRC of a whole batch is right: CRC-32C, in formats 0 and 1 CRC-32."""
    if batch.magic < MAGIC:
        return crc32(data + MAGIC_AT, batch.size - MAGIC_AT) == batch.crc
    return crc32c(data + ATTRIBUTES_AT, batch.size - ATTRIBUTES_AT) == batch.crc


# -- records


@cython.overflowcheck(False)
cdef inline uint64_t unzigzag(uint64_t raw) noexcept nogil:
    return (raw >> 1) ^ (~(raw & 1) + 1)


cdef inline const uint8_t* read_varint(const uint8_t* p, const uint8_t* end, int32_t* value) noexcept nogil:
    """Read a varint of at most five bytes; return the byte after it, NULL if it is cut or longer.

    Bits over the 32nd are dropped, as Java does.
    """
    if p < end and p[0] < 0x80:
        value[0] = <int32_t>unzigzag(p[0])
        return p + 1
    if end - p >= 2 and p[1] < 0x80:
        value[0] = <int32_t>unzigzag((p[0] & 0x7f) | <uint64_t>p[1] << 7)
        return p + 2
    return read_long_varint(p, end, value)


@cython.overflowcheck(False)
cdef const uint8_t* read_long_varint(const uint8_t* p, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef uint32_t raw = 0
    cdef int shift = 0
    while p < end and shift < 35:
        raw |= <uint32_t>(p[0] & 0x7f) << shift
        if p[0] < 0x80:
            value[0] = <int32_t>unzigzag(raw)
            return p + 1
        p += 1
        shift += 7
    return NULL


@cython.overflowcheck(False)
cdef inline const uint8_t* read_varlong(const uint8_t* p, const uint8_t* end, int64_t* value) noexcept nogil:
    """Read a varint of at most ten bytes; return the byte after it, NULL if it is cut or longer."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    if p < end and p[0] < 0x80:
        value[0] = <int64_t>unzigzag(p[0])
        return p + 1
    while p < end and shift < 70:
        raw |= <uint64_t>(p[0] & 0x7f) << shift
        if p[0] < 0x80:
            value[0] = <int64_t>unzigzag(raw)
            return p + 1
        p += 1
        shift += 7
    return NULL


cdef struct Record:
    int64_t timestamp_delta
    int32_t offset_delta
    bint has_key
    # From the size of the key to the end of the record.
    const uint8_t* rest
    const uint8_t* end


cdef inline const uint8_t* skip_bytes(const uint8_t* p, const uint8_t* end, int32_t* size) noexcept nogil:
    """Skip bytes behind their size; a negative size means null. Return NULL if bytes are missing."""
    p = read_varint(p, end, size)
    if p == NULL or size[0] <= 0:
        return p
    return p + size[0] if size[0] <= end - p else NULL


@cython.overflowcheck(False)
cdef inline bint read_record(const uint8_t* p, const uint8_t* end, Record* record) noexcept nogil:
    """Read the record at ``p``; return whether it is whole and in order."""
    cdef int32_t size, count
    p = read_varint(p, end, &size)
    if p == NULL or size < 1 or size > end - p:
        return False
    end = p + size
    record.end = end
    # The attributes of a record have no meaning.
    p = read_varlong(p + 1, end, &record.timestamp_delta)
    if p == NULL:
        return False
    p = read_varint(p, end, &record.offset_delta)
    if p == NULL:
        return False
    record.rest = p
    p = skip_bytes(p, end, &size)
    if p == NULL:
        return False
    record.has_key = size >= 0
    p = skip_bytes(p, end, &size)
    if p == NULL:
        return False
    p = read_varint(p, end, &count)
    if p == NULL or count < 0 or count > end - p:
        return False
    while count > 0:
        p = skip_bytes(p, end, &size)
        if p == NULL or size < 0:
            return False
        p = skip_bytes(p, end, &size)
        if p == NULL:
            return False
        count -= 1
    return p == end


@cython.overflowcheck(False)
cdef inline int64_t timestamp_of(const Batch* batch, const Record* record) noexcept nogil:
    if batch.attributes & LOG_APPEND_TIME:
        return batch.max_timestamp
    return <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>record.timestamp_delta)


@cython.overflowcheck(False)
cdef inline int check_record(
    const Batch* batch, const Rules* rules, const Record* record, int64_t timestamp
) noexcept nogil:
    """Return the error of one record. Source: LogValidator.validateRecord."""
    cdef int64_t age
    if rules.compacted and not record.has_key:
        return INVALID_RECORD
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        # Differences wrap, as in Java.
        age = <int64_t>(<uint64_t>rules.now_ms - <uint64_t>timestamp)
        if age > rules.before_max_ms or <int64_t>(~<uint64_t>age + 1) > rules.after_max_ms:
            return INVALID_TIMESTAMP
    elif batch.attributes & LOG_APPEND_TIME:
        return INVALID_TIMESTAMP
    return NONE


cdef inline int malformed(Appended* appended) noexcept nogil:
    """Records that cannot be read are not refused one by one."""
    appended.bad_records, appended.first_bad_record = 0, -1
    return INVALID_RECORD


cdef int check_records(
    const uint8_t* p, const uint8_t* end, const Batch* batch, const Rules* rules, Appended* appended,
    bint* in_order,
) noexcept nogil:
    """Check all records of a batch, which are the bytes from ``p`` to ``end``; return the error code.

    Sets the largest timestamp and the count of bad records. ``in_order``: the offset deltas are 0, 1, 2 ….
    """
    cdef Record record
    cdef int32_t index
    cdef int64_t timestamp
    cdef int error, worst = NONE
    in_order[0] = True
    for index in range(batch.count):
        if not read_record(p, end, &record):
            return malformed(appended)
        p = record.end
        timestamp = timestamp_of(batch, &record)
        if timestamp > appended.max_timestamp:
            appended.max_timestamp = timestamp
        if record.offset_delta != index:
            in_order[0] = False
        error = check_record(batch, rules, &record, timestamp)
        if error != NONE:
            if appended.bad_records == 0:
                appended.first_bad_record = index
            appended.bad_records += 1
            if worst != INVALID_TIMESTAMP:
                worst = error
    if p != end:
        return malformed(appended)
    return worst


cdef bint read_marker(const uint8_t* data, const Batch* batch, Marker* marker) noexcept nogil:
    """Read the marker of a whole control batch; return whether there is one.

    Its key is version int16 and type int16; its value begins with version int16 and coordinator epoch int32.
    """
    cdef Record record
    cdef const uint8_t* p
    cdef int32_t size = 0
    if batch.attributes & COMPRESSION or not read_record(data + HEADER_BYTES, data + batch.size, &record):
        return False
    p = read_varint(record.rest, record.end, &size)
    if size < 4 or get_i16(p) < 0 or not ABORT <= get_i16(p + 2) <= COMMIT:
        return False
    marker.is_aborted = get_i16(p + 2) == ABORT
    p = read_varint(p + size, record.end, &size)
    if size < 6 or get_i16(p) < 0:
        return False
    marker.coordinator_epoch = get_i32(p + 2)
    marker.timestamp = timestamp_of(batch, &record)
    return True


cdef void write_header(
    uint8_t* data,
    int64_t size,
    int32_t count,
    int16_t attributes,
    int64_t timestamp,
    int64_t producer_id,
    int16_t producer_epoch,
    int32_t base_sequence,
) noexcept nogil:
    memset(data, 0, HEADER_BYTES)
    put_i32(data + 8, <int32_t>(size - OFFSET_AND_LENGTH_BYTES))
    put_i32(data + LEADER_EPOCH_AT, NO_LEADER_EPOCH)
    data[MAGIC_AT] = MAGIC
    put_i16(data + ATTRIBUTES_AT, attributes)
    put_i32(data + LAST_OFFSET_DELTA_AT, count - 1)
    put_i64(data + BASE_TIMESTAMP_AT, timestamp)
    put_i64(data + MAX_TIMESTAMP_AT, timestamp)
    put_i64(data + PRODUCER_ID_AT, producer_id)
    put_i16(data + PRODUCER_EPOCH_AT, producer_epoch)
    put_i32(data + BASE_SEQUENCE_AT, base_sequence)
    put_i32(data + 57, count)


cdef void write_crc(uint8_t* data, int64_t size) noexcept nogil:
    put_i32(data + CRC_AT, <int32_t>crc32c(data + ATTRIBUTES_AT, size - ATTRIBUTES_AT))


cdef void write_marker(
    uint8_t* data, int64_t producer_id, int16_t producer_epoch, const Marker* marker
) noexcept nogil:
    """Source: MemoryRecords.withEndTransactionMarker, EndTransactionMarker."""
    cdef uint8_t* record = data + HEADER_BYTES
    write_header(
        data, MARKER_BYTES, 1, TRANSACTIONAL | CONTROL, marker.timestamp, producer_id, producer_epoch, NO_SEQUENCE
    )
    memset(record, 0, MARKER_BYTES - HEADER_BYTES)
    # A record of 16 bytes; attributes and deltas are 0
    record[0] = <uint8_t>zigzag(MARKER_BYTES - HEADER_BYTES - 1)
    record[4] = <uint8_t>zigzag(MARKER_KEY_BYTES)
    put_i16(record + 7, ABORT if marker.is_aborted else COMMIT)
    record[9] = <uint8_t>zigzag(MARKER_VALUE_BYTES)
    put_i32(record + 12, marker.coordinator_epoch)
    write_crc(data, MARKER_BYTES)


# -- appends


cdef void set_header(const Batch* batch, const Rules* rules, Appended* appended) noexcept nogil:
    """Decide what the header says after the append. Source: DefaultRecordBatch.setMaxTimestamp."""
    if rules.log_append_time:
        appended.max_timestamp = rules.now_ms
    # Set to the last offset in ``assign_offsets``.
    appended.offset_of_max_timestamp = -1 if appended.max_timestamp == NO_TIMESTAMP else 0
    appended.header_timestamp = appended.max_timestamp
    appended.header_attributes = batch.attributes
    if (
        (batch.attributes & LOG_APPEND_TIME != 0) != rules.log_append_time
        or batch.max_timestamp != appended.max_timestamp
    ):
        appended.header_attributes &= COMPRESSION | TRANSACTIONAL | CONTROL | DELETE_HORIZON
        if rules.log_append_time:
            appended.header_attributes |= LOG_APPEND_TIME


cdef int check_header(
    const uint8_t* data, int64_t size, const Rules* rules, Batch* batch, Appended* appended
) noexcept nogil:
    """Check that the bytes are one whole batch whose header is right; return the error code.

    Sources, in this order: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords,
    LogValidator.validateBatch.
    """
    cdef Batch second
    cdef int error
    memset(appended, 0, sizeof(Appended))
    appended.max_timestamp = NO_TIMESTAMP
    appended.offset_of_max_timestamp = -1
    appended.first_bad_record = -1
    error = next_batch(data, size, batch)
    if error != NONE:
        return error
    if batch.size == 0 or batch.magic != MAGIC:
        return INVALID_RECORD
    if rules.refuses_zstd and batch.attributes & COMPRESSION == ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    error = next_batch(data + batch.size, size - batch.size, &second)
    if error != NONE:
        return error
    if second.size != 0:
        return INVALID_RECORD
    if rules.origin == CLIENT and batch.base_offset != 0:
        return INVALID_RECORD
    if batch.size > rules.max_message_bytes:
        return MESSAGE_TOO_LARGE
    if not has_valid_crc(data, batch):
        return CORRUPT_MESSAGE
    if batch.attributes & COMPRESSION > ZSTD:
        return UNKNOWN_SERVER_ERROR
    if batch.last_offset_delta < 0 or batch.count - 1 != batch.last_offset_delta:
        return INVALID_RECORD
    if rules.origin == CLIENT:
        if batch.attributes & CONTROL:
            return INVALID_RECORD
        if batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < 0:
            return INVALID_RECORD
    appended.size = batch.size
    appended.batches = 1
    appended.count = batch.count
    appended.last_offset = batch.last_offset_delta
    return NONE


cdef int check_batches(
    const uint8_t* data, int64_t size, const Rules* rules, Appended* appended
) noexcept nogil:
    """Check the records of an append to the leader; return Kafka's error code.

    With 0 and ``appended.needs_decompression``, only the header was checked: the handler pool calls ``check``.
    Source of the rest: LogValidator.assignOffsetsNonCompressed.
    """
    cdef Batch batch
    cdef bint in_order
    cdef int error = check_header(data, size, rules, &batch, appended)
    if error != NONE:
        return error
    if batch.attributes & COMPRESSION or (rules.compression > 0 and not batch.attributes & CONTROL):
        appended.needs_decompression = True
        return NONE
    error = check_records(data + HEADER_BYTES, data + batch.size, &batch, rules, appended, &in_order)
    if error != NONE:
        return error
    if batch.size > rules.segment_bytes:
        return RECORD_LIST_TOO_LARGE
    set_header(&batch, rules, appended)
    return NONE


cdef int check_replicated(const uint8_t* data, int64_t size, Appended* appended) noexcept nogil:
    """Check batches that have their offsets (from a leader); return Kafka's error code.

    Source: UnifiedLog.analyzeAndValidateRecords.
    """
    cdef Batch batch
    cdef int error
    memset(appended, 0, sizeof(Appended))
    appended.last_offset = -1
    appended.max_timestamp = NO_TIMESTAMP
    appended.offset_of_max_timestamp = -1
    appended.first_bad_record = -1
    while True:
        error = next_batch(data + appended.size, size - appended.size, &batch)
        if error != NONE:
            return error
        if batch.size == 0:
            return NONE
        if not has_valid_crc(data + appended.size, &batch):
            return CORRUPT_MESSAGE
        if batch.magic != MAGIC:
            if batch.size < header_bytes(batch.magic):
                return CORRUPT_MESSAGE
            appended.has_old = True
            appended.begins_old = appended.begins_old or appended.batches == 0
        if batch.last_offset_delta < 0 or batch.base_offset < 0 or batch.base_offset > MOST_OFFSET:
            return CORRUPT_MESSAGE
        if appended.batches == 0:
            appended.first_offset = batch.base_offset
        elif batch.base_offset <= appended.last_offset:
            # OffsetsOutOfOrderException has no code of its own.
            return UNKNOWN_SERVER_ERROR
        appended.last_offset = batch.base_offset + batch.last_offset_delta
        appended.last_leader_epoch = batch.leader_epoch
        if batch.max_timestamp > appended.max_timestamp:
            appended.max_timestamp = batch.max_timestamp
            appended.offset_of_max_timestamp = appended.last_offset
        appended.size += batch.size
        appended.batches += 1
        appended.count += batch.last_offset_delta + 1


cdef void assign_offsets(
    uint8_t* data, Appended* appended, int64_t next_offset, int32_t leader_epoch
) noexcept nogil:
    """Give the batch of a checked append its offsets, leader epoch and timestamp, in place."""
    put_i64(data, next_offset)
    put_i32(data + LEADER_EPOCH_AT, leader_epoch)
    appended.first_offset = next_offset
    appended.last_offset = next_offset + appended.count - 1
    appended.last_leader_epoch = leader_epoch
    if appended.offset_of_max_timestamp != -1:
        appended.offset_of_max_timestamp = appended.last_offset
    if (
        get_i16(data + ATTRIBUTES_AT) != appended.header_attributes
        or get_i64(data + MAX_TIMESTAMP_AT) != appended.header_timestamp
    ):
        put_i16(data + ATTRIBUTES_AT, appended.header_attributes)
        put_i64(data + MAX_TIMESTAMP_AT, appended.header_timestamp)
        write_crc(data, appended.size)


# -- for Python code


BatchHeader = namedtuple(
    "BatchHeader",
    "base_offset size leader_epoch magic crc attributes last_offset_delta base_timestamp max_timestamp "
    "producer_id producer_epoch base_sequence record_count",
)


def crc32c_of(const uint8_t[::1] data not None):
    """Return the CRC-32C of bytes."""
    return crc32c(&data[0], data.shape[0]) if data.shape[0] else 0


def crc32c_of_table(const uint8_t[::1] data not None):
    """Return the CRC-32C of bytes as a processor without an instruction for it computes it."""
    return ~crc32c_by_table(0xffffffff, &data[0] if data.shape[0] else NULL, data.shape[0]) & 0xffffffff


def read_header(const uint8_t[::1] data not None, Py_ssize_t position=0):
    """Return the header of the batch at ``position``. Raises ValueError if its bytes are not there.

    An entry of format 0 or 1: its only offset is that of its last record, and ``record_count`` is -1.
    """
    cdef Batch batch
    cdef int64_t size = data.shape[0] - position
    if position < 0 or size <= MAGIC_AT or size < header_bytes(<int8_t>data[position + MAGIC_AT]):
        raise ValueError(f"no batch header at {position} of {data.shape[0]} bytes")
    read_batch(&data[position], &batch)
    return BatchHeader(
        batch.base_offset, batch.size, batch.leader_epoch, batch.magic, batch.crc, batch.attributes,
        batch.last_offset_delta, batch.base_timestamp, batch.max_timestamp, batch.producer_id,
        batch.producer_epoch, batch.base_sequence, batch.count,
    )


def read_key_values(const uint8_t[::1] records not None, int64_t count):
    """Return the key and the value of so many records, or None if they do not fit into the bytes."""
    cdef const uint8_t* p = &records[0] if records.shape[0] else NULL
    return key_values(p, p + records.shape[0], count)


cdef const uint8_t* next_key_value(const uint8_t* p, const uint8_t* end, KeyValue* found) noexcept nogil:
    cdef Record record
    found.key_size = found.value_size = -1
    if not read_record(p, end, &record):
        return NULL
    found.key = read_varint(record.rest, record.end, &found.key_size)
    found.value = read_varint(found.key + max(found.key_size, 0), record.end, &found.value_size)
    return record.end


@cython.overflowcheck(False)
cdef const uint8_t* next_record(
    const uint8_t* p, const uint8_t* end, const Batch* batch, FullRecord* found
) noexcept nogil:
    cdef Record record
    if not read_record(p, end, &record):
        return NULL
    found.offset = batch.base_offset + record.offset_delta
    found.timestamp = timestamp_of(batch, &record)
    return next_key_value(p, end, &found.pair)


cdef list key_values(const uint8_t* p, const uint8_t* end, int64_t count):
    cdef KeyValue found
    cdef list pairs = []
    while count > 0:
        p = next_key_value(p, end, &found)
        if p == NULL:
            return None
        key = None if found.key_size < 0 else (<const char*>found.key)[:found.key_size]
        pairs.append((key, None if found.value_size < 0 else (<const char*>found.value)[:found.value_size]))
        count -= 1
    return pairs


#: By codec: gzip, lz4, zstd.
_DEFAULT_LEVELS = {1: -1, 3: 9, 4: 3}


cdef class AppendRules:
    """What is demanded of the records of one append: the topic's configuration, and the time.

    ``compression``: the codec of ``compression.type``, -1 for ``producer``; ``compression_level``: None for its
    default. ``origin``: an ``Origin``.
    """

    def __init__(self, *, int64_t now_ms, int64_t before_max_ms=2**63 - 1, int64_t after_max_ms=2**63 - 1,
                 int32_t max_message_bytes=1048588, int32_t segment_bytes=1073741824, int compression=PRODUCER,
                 compression_level=None, int origin=CLIENT, bint log_append_time=False, bint compacted=False,
                 bint refuses_zstd=False):
        self.rules.now_ms = now_ms
        self.rules.before_max_ms, self.rules.after_max_ms = before_max_ms, after_max_ms
        self.rules.max_message_bytes, self.rules.segment_bytes = max_message_bytes, segment_bytes
        self.rules.compression, self.rules.origin = compression, origin
        if compression_level is None:
            compression_level = _DEFAULT_LEVELS.get(compression, 0)
        self.rules.compression_level = compression_level
        self.rules.log_append_time, self.rules.compacted = log_append_time, compacted
        self.rules.refuses_zstd = refuses_zstd


cdef class Checked:
    """Batches that are checked and may be appended."""

    @property
    def needs_decompression(self):
        return self.appended.needs_decompression

    @property
    def first_offset(self):
        return self.appended.first_offset

    @property
    def last_offset(self):
        return self.appended.last_offset

    @property
    def max_timestamp(self):
        return self.appended.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self.appended.offset_of_max_timestamp

    @property
    def batches(self):
        return self.appended.batches

    @property
    def count(self):
        return self.appended.count

    @property
    def size(self):
        return self.appended.size

    @property
    def bad_records(self):
        return self.appended.bad_records

    @property
    def first_bad_record(self):
        return self.appended.first_bad_record

    def assign_offsets(self, int64_t next_offset, int32_t leader_epoch):
        """Give the batch its offsets, leader epoch and timestamp. The log does this itself."""
        cdef uint8_t[::1] data = self.data
        if self.appended.batches != 1 or self.appended.needs_decompression:
            raise ValueError("the records are not checked")
        assign_offsets(&data[0], &self.appended, next_offset, leader_epoch)


@cython.overflowcheck(False)
cdef int64_t rebuild_records(
    const uint8_t* p, const uint8_t* end, const Batch* batch, int64_t base_timestamp, uint8_t* out
) noexcept nogil:
    """Write checked records with offset deltas 0, 1, 2 … and deltas from ``base_timestamp``.

    Returns the bytes. With ``out`` NULL they are only counted; -1 for a timestamp that Kafka does not write
    (MemoryRecordsBuilder).
    """
    cdef Record record
    cdef int32_t index, body
    cdef int64_t timestamp, total = 0
    cdef uint64_t delta
    for index in range(batch.count):
        read_record(p, end, &record)
        p = record.end
        timestamp = timestamp_of(batch, &record)
        if timestamp < NO_TIMESTAMP:
            return -1
        delta = zigzag(timestamp - base_timestamp)
        body = <int32_t>(1 + varint_size(delta) + varint_size(zigzag(index)) + (record.end - record.rest))
        total += varint_size(zigzag(body)) + body
        if out != NULL:
            out = write_varint(out, zigzag(body))
            out[0] = 0
            out = write_varint(out + 1, delta)
            out = write_varint(out, zigzag(index))
            memcpy(out, record.rest, record.end - record.rest)
            out += record.end - record.rest
    return total


cdef bint has_builders_producer(const Batch* batch) noexcept nogil:
    """Return whether Kafka builds a batch with these fields (MemoryRecordsBuilder.validateProducerState)."""
    if batch.producer_id == NO_PRODUCER_ID:
        return not batch.attributes & TRANSACTIONAL
    return batch.producer_epoch != NO_PRODUCER_EPOCH and batch.base_sequence >= 0


def check(data, AppendRules rules not None):
    """Check the records of an append; return (error code, Checked), which holds a copy of the records.

    Compressed records are decompressed (see ``compression.py`` for the memory), and compressed again if the
    topic has another codec. Without that, offsets inside that are not in order are UNKNOWN_SERVER_ERROR, as in
    Kafka, which does not look at those of records that are not compressed. An undecodable payload is
    UNKNOWN_SERVER_ERROR, as in Kafka; one that is too large is MESSAGE_TOO_LARGE (Kafka has no limit).
    """
    cdef Checked checked = Checked()
    cdef uint8_t[::1] view
    cdef const uint8_t* begin
    cdef int64_t size
    cdef int error
    checked.data = bytearray(data)
    view = checked.data
    size = view.shape[0]
    begin = &view[0] if size else NULL
    with nogil:
        if rules.rules.origin == REPLICATION:
            error = check_replicated(begin, size, &checked.appended)
        else:
            error = check_batches(begin, size, &rules.rules, &checked.appended)
    view = None
    if error == NONE and checked.appended.needs_decompression:
        error = check_payload(checked, &rules.rules)
    return error, checked


cdef decompressed(const uint8_t[::1] data, const Batch* batch):
    """Return the records of a whole batch as a buffer."""
    from ctrlchan.broker.log import compression

    payload = data[HEADER_BYTES:batch.size]
    codec = batch.attributes & COMPRESSION
    return compression.decompress(codec, bytes(payload)) if codec else payload


cdef int check_payload(Checked checked, const Rules* rules) except? -2:
    """Check the records of a batch whose header is right; return the error code. Sources:
    LogValidator.validateMessagesAndAssignOffsetsCompressed and buildRecordsAndAssignOffsets."""
    from ctrlchan.broker.log import compression

    cdef Batch batch
    cdef bint in_order
    cdef int error, codec
    cdef int64_t size, base_timestamp, began
    cdef Record first
    cdef uint8_t[::1] view = checked.data
    cdef const uint8_t[::1] records
    cdef const uint8_t* begin
    cdef bytearray rebuilt
    cdef bytes payload
    read_batch(&view[0], &batch)
    try:
        records = decompressed(view, &batch)
    except compression.TooLargeError:
        return MESSAGE_TOO_LARGE
    except compression.CorruptError:
        return UNKNOWN_SERVER_ERROR
    size = records.shape[0]
    begin = &records[0] if size else NULL
    checked.temporary_bytes = HEADER_BYTES + size
    with nogil:
        error = check_records(begin, begin + size, &batch, rules, &checked.appended, &in_order)
    if error != NONE:
        return error
    codec = batch.attributes & COMPRESSION
    if rules.compression == PRODUCER or rules.compression == codec:
        if not in_order:
            # Kafka would build the batch again, but has skipped keys and values.
            return UNKNOWN_SERVER_ERROR
    else:
        began = monotonic_ns()
        codec = rules.compression
        read_record(begin, begin + size, &first)
        base_timestamp = timestamp_of(&batch, &first)
        size = rebuild_records(begin, begin + size, &batch, base_timestamp, NULL)
        if size < 0 or not has_builders_producer(&batch):
            return UNKNOWN_SERVER_ERROR
        rebuilt = bytearray(size)
        view = rebuilt
        with nogil:
            rebuild_records(begin, begin + records.shape[0], &batch, base_timestamp, &view[0])
        payload = bytes(rebuilt)
        if codec:
            payload = compression.compress(codec, payload, rules.compression_level)
        checked.data = checked.data[:HEADER_BYTES] + payload
        view = checked.data
        batch.size = <int32_t>len(checked.data)
        batch.attributes = <int16_t>(codec | batch.attributes & (LOG_APPEND_TIME | TRANSACTIONAL))
        put_i32(&view[8], batch.size - OFFSET_AND_LENGTH_BYTES)
        put_i64(&view[BASE_TIMESTAMP_AT], base_timestamp)
        put_i16(&view[ATTRIBUTES_AT], batch.attributes)
        write_crc(&view[0], batch.size)
        checked.appended.size = batch.size
        checked.converted_records, checked.conversion_ns = batch.count, monotonic_ns() - began
        checked.temporary_bytes += HEADER_BYTES + size
        if batch.size > rules.max_message_bytes:
            return MESSAGE_TOO_LARGE
    if batch.size > rules.segment_bytes:
        return RECORD_LIST_TOO_LARGE
    set_header(&batch, rules, &checked.appended)
    checked.appended.needs_decompression = False
    return NONE


def record_errors(data, AppendRules rules not None, Py_ssize_t most=2**31 - 1):
    """Return (index, message) of the first ``most`` records that ``check`` has refused (KIP-467).

    ``data``: an append for which ``check`` has found ``bad_records``.
    """
    cdef const uint8_t[::1] view = data
    cdef const uint8_t[::1] records
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef Batch batch
    cdef Record record
    cdef int32_t index
    cdef int64_t timestamp
    cdef int error
    found = []
    read_batch(&view[0], &batch)
    records = decompressed(view, &batch)
    p = &records[0]
    end = p + records.shape[0]
    for index in range(batch.count):
        if len(found) == most or not read_record(p, end, &record):
            break
        p = record.end
        timestamp = timestamp_of(&batch, &record)
        error = check_record(&batch, &rules.rules, &record, timestamp)
        if error == INVALID_RECORD:
            found.append((index, "Compacted topic cannot accept message without key."))
        elif error == INVALID_TIMESTAMP and (rules.rules.log_append_time or timestamp == NO_TIMESTAMP):
            found.append((index, "A producer may not set the timestamp type LogAppendTime."))
        elif error == INVALID_TIMESTAMP:
            found.append((index, (
                f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be within "
                f"[{rules.rules.now_ms - <object>rules.rules.before_max_ms}, "
                f"{rules.rules.now_ms + <object>rules.rules.after_max_ms}]"
            )))
    return found
